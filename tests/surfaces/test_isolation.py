"""No read, write, list, count, event or error message crosses an organization: every operation, by everybody, on everything."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import NewJob, Rota
from rota.engine import doctor
from rota.engine.explain import Explanation
from rota.errors import RotaError
from rota.model.grants import Privilege
from rota.model.stored_settings import STORABLE
from rota.operation import NOUNS, noun
from rota.results import Log
from rota.sql.catalog import TABLES
from tests.support.proof import size
from tests.surfaces.shared_store import HOME, MANAGERS, ORGANIZATIONS, PEOPLE, TEMPLATES, Person, SharedStore, fill, person, schedule_names

OF_THE_PROGRAM = {"acting_as", "close", "if_match", "include"}
"""Methods that concern the program's own object and code, and no row of anybody."""


def verbs(noun: type) -> dict[str, Any]:
    """Return what a noun, or Rota itself, can be asked for."""
    found = inspect.getmembers(noun, inspect.isfunction)
    return {name: each for name, each in found if not name.startswith("_") and name not in OF_THE_PROGRAM}


METHODS = verbs(Rota) | {f"{name}.{verb}": each for name in NOUNS for verb, each in verbs(noun(name)).items()}
EXAMPLE = "such as JOB-2026-00042"
"""How a message shows what a number looks like: there may be one of that number."""
OF_ANOTHER_WORLD = {"simulate"}
"""Tell of jobs in a store that is thrown away: their numbers begin at one and are nobody's here."""
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL work(text => 'mine')"
OF_JOBS = [
    *(f'{verb} JOB "{{}}"' for verb in ("SHOW", "SHOW CREATE", "EXPLAIN", "EXECUTE", "CANCEL", "PAUSE", "ENABLE", "DROP", "PLAN DROP")),
    *(f'{verb} JOB "{{}}" {HOURLY}' for verb in ("CREATE", "CREATE OR ALTER", "RECREATE", "PLAN CREATE")),
    f'CREATE JOB mine DEPENDS ON "{{}}" {HOURLY}',
    "ALTER JOB \"{}\" SET DESCRIPTION = 'mine' SET TIMEOUT = 5",
    'ALTER JOB "{}" SET SCHEDULE = EVERY 2 HOURS',
    'ALTER JOB mine RENAME TO "{}"',
    'SHOW JOB RUNS FOR "{}" LIMIT 5',
    'SHOW SECRETS FOR "{}"',
    "ALTER JOB \"{}\" SET SECRET MINE = 'mine'",
    'ALTER JOB "{}" DROP SECRET COMMON',
    'SHOW AUDIT FOR JOB "{}"',
    'FORECAST JOB "{}" FOR 1 HOUR',
    'GRANT ALL ON JOB "{}" TO PUBLIC',
    'REVOKE ALL ON JOB "{}" FROM PUBLIC CASCADE',
    'SHOW GRANTS FOR JOB "{}"',
]
"""Statements about a job by its name."""
OF_NAMES = [
    *(f'GRANT {what} TO {kind}"{{}}"' for what in ("CREATE JOB", 'EXECUTE ON JOB "common"', "ROLE ops") for kind in ("", "USER ", "ROLE ")),
    'REVOKE VIEW JOB HISTORY ON JOB "shared" FROM "{}"',
    'REVOKE EXECUTE ON JOB "common" FROM "{}" CASCADE',
    'GRANT ROLE "{}" TO PUBLIC',
    'CREATE ROLE "{}"',
    'DROP ROLE "{}"',
    'SHOW GRANTS FOR "{}"',
]
"""Statements about a user or a role by its name."""
OF_RUNS = ["CANCEL JOB RUN '{}'", "EXPLAIN JOB RUN '{}'", "SHOW JOB '{}'"]
STARTING = {"run", "running", "start", "stop", "webhooks.test"}
"""Start and stop workers, or send: refused to most, and left out for system managers, whose workers would go on by themselves."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    store = SharedStore(tmp_path_factory.mktemp("isolation") / "shared.db", seed=1)
    fill(store)
    return store


BY_HAND = {
    "enqueue": "on the path of every job: `submit` asks the gate",
    "enqueue_many": "the same",
    "overview": "shows what the actor may see of each part, and nothing where it may see nothing",
    "running": "a block around `start`, which is an operation",
    "simulate": "reads a store that may be moved or not be there, and asks the gate of that",
    "store.promote": "the same, of a store that an operation would create",
    "sql": "each statement asks for its own right: see `rota.sql.run.DOINGS`",
    "store.reopen": "the same",
    "templates.command": "it is `define`, which is an operation, and returns a task",
    "templates.sql": "the same",
    "transaction": "a block; it asks the gate as it begins",
    "wait": "asks again and again while the store is away",
}
"""Verbs that are not operations, and where they ask the gate."""


def test_every_verb_is_an_operation_or_says_where_it_asks_the_gate():
    assert {name for name, each in METHODS.items() if not hasattr(each, "operation")} == set(BY_HAND)


# ---- arguments ------------------------------------------------------------------------------------------------------


class Pool:
    """What arguments are drawn from: things of all organizations, and things that never were."""

    def __init__(self, store: SharedStore, mine: str) -> None:
        jobs = store.jobs()
        forms = [form for job_id, number, attempt in jobs for form in (job_id, number, number[9:].lstrip("0"), f"{number}.{attempt}")]
        nowhere = ["JOB-2026-99999", f"{jobs[0][1]}.77", "01a00000-0000-7000-8000-000000000000", "nonsense"]
        waiting = [job_id for job_id, _, _ in store.jobs(mine)] or nowhere
        self.id = st.sampled_from([job_id for job_id, _, _ in jobs])
        self.job = st.one_of(st.sampled_from(waiting), st.sampled_from(forms), st.sampled_from([*forms, *nowhere]))
        self.group = st.sampled_from([*store.groups(), jobs[0][0], "nonsense"])
        self.name = st.sampled_from([*TEMPLATES, *ORGANIZATIONS, *(each.name for each in PEOPLE), "chief", "default", "nobody"])
        self.organization = st.sampled_from([*ORGANIZATIONS, "default", "nobody"])
        self.text = st.sampled_from([*ORGANIZATIONS, "x", "key", "work", ""])
        self.params = st.sampled_from([None, {}, {"text": "mine"}, {"text": f"x-{ORGANIZATIONS[0]}"}, {"wrong": 1}])
        self.new = st.one_of(st.tuples(st.sampled_from(TEMPLATES), self.params), st.builds(NewJob, name=st.sampled_from(TEMPLATES)))
        self.count = st.sampled_from([0, 1, 5, 60, 100])
        self.key = st.sampled_from([None, "mine", *(f"key-{name}-1" for name in ORGANIZATIONS)])
        names = [name for each in ORGANIZATIONS for name in schedule_names(each)]
        self.schedule = st.sampled_from(["mine", "nothing", *schedule_names(mine), *names])
        self.calendar = st.sampled_from(["mine", "common", "nothing", *(f"days-{name}" for name in ORGANIZATIONS)])
        self.place = st.sampled_from(store.cursors())
        self.role = st.sampled_from(["ops", "mine", "nothing", *(f"ops-{name}" for name in ORGANIZATIONS)])
        self.connection = st.sampled_from(["common", "mine", "default", "nothing", *(f"dw-{name}" for name in ORGANIZATIONS)])
        self.secret = st.sampled_from(["COMMON", "MINE", "no name", *(f"KEY_{name}" for name in ORGANIZATIONS)])
        self.grant = st.sampled_from([*store.grants(), jobs[0][0], "nonsense"])
        self.webhook = st.sampled_from([*store.webhooks(), jobs[0][0], "nonsense"])
        self.their_webhook = st.sampled_from([*store.webhooks(mine), "nonsense"])
        self.url = st.sampled_from(["https://mine.example/", "http://x", *(f"https://{name}.example/hooks" for name in ORGANIZATIONS)])
        said = st.one_of(
            st.sampled_from(["SHOW JOBS", "SHOW JOB RUNS", "SHOW OCCURRENCES", "SHOW DEPENDENCIES", "SHOW AUDIT", "SHOW METRICS"]),
            st.sampled_from(["SHOW SCHEDULER", "SHOW SETTINGS", "FORECAST FOR 1 HOUR", "SHOW GRANTS", "SHOW ROLES"]),
            st.sampled_from(["SHOW CONNECTIONS", "SHOW SECRETS"]),
            st.builds("SELECT * FROM sys.{}".format, st.sampled_from(sorted(TABLES))),
            st.builds(lambda form, name: form.format(name), st.sampled_from(OF_NAMES), st.one_of(self.name, self.role)),
            st.builds(lambda form, name: form.format(name), st.sampled_from(OF_JOBS), self.schedule),
            st.builds(lambda form, job_id: form.format(job_id), st.sampled_from(OF_RUNS), self.id),
        )
        self.sql = st.lists(said, min_size=1, max_size=2).map("; ".join)
        self.said = {
            "every": st.sampled_from([60, 3600]),
            "description": st.just("mine"),
            "params": self.params,
            "calendar": st.one_of(st.none(), self.calendar),
            "depends_on": st.one_of(st.none(), self.schedule, st.lists(self.schedule, max_size=2)),
            "overlap": st.sampled_from(["skip", "allow", "queue"]),
        }

    def arguments(self, name: str) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy for the arguments of a method."""
        required, optional = {}, {}
        for parameter in list(inspect.signature(METHODS[name]).parameters.values())[1:]:
            if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
                continue
            strategy = self.of(name, parameter.name)
            if parameter.default is not parameter.empty and parameter.name != "timeout":
                optional |= {} if strategy is None else {parameter.name: strategy}
            elif strategy is None:
                pytest.fail(f"tell this test what to give for {parameter.name!r} of Rota.{name}")
            else:
                required[parameter.name] = strategy
        if name in {"schedules.create", "schedules.update", "plan"}:
            required["every"] = self.said["every"]
            optional |= {option: strategy for option, strategy in self.said.items() if option != "every"}
        if name == "simulate":
            # A week of what is due every minute tells no more, and takes long.
            required["days"] = st.sampled_from([0.05, 0.3])
        if name == "forecast":
            # What depends on others is simulated, and a day of it tells no more than an hour.
            required["hours"] = st.sampled_from([0.2, 1])
            optional = {option: strategy for option, strategy in optional.items() if option != "hours"}
        if name == "plan":
            required["days"] = st.sampled_from([1, 3])
        return st.fixed_dictionaries(required, optional=optional)

    def of(self, method: str, parameter: str) -> st.SearchStrategy[Any] | None:
        """Return what to give for a parameter; None if there is nothing to be learnt from it."""
        if "schedule" in method or method in {"forecast", "plan"}:
            found = ({"name": self.schedule, "schedule": st.one_of(st.none(), self.schedule)} | self.said).get(parameter)
            if found is not None:
                return found
        if method.startswith(("roles.", "grants.")):
            found = {
                "name": self.role,
                "id": self.grant,
                "job": st.one_of(st.none(), self.schedule),
                "role": st.one_of(st.none(), self.role),
                "connection": st.one_of(st.none(), self.connection),
                "privilege": st.sampled_from([*Privilege, "NOTHING"]),
                "grantee": st.one_of(self.name, self.role, st.just("PUBLIC")),
                "kind": st.sampled_from([None, "USER", "ROLE"]),
                "cascade": st.booleans(),
                "option_only": st.booleans(),
                "grant_option": st.booleans(),
            }.get(parameter)
            if found is not None:
                return found
        if method.startswith("connections."):
            found = {
                "name": self.connection,
                "url": st.sampled_from(["postgresql://127.0.0.1:1/dw", "sqlite:////mine.db"]),
                "password": st.just("mine"),
                "login": st.sampled_from([None, "mine"]),
                "secret_name": st.none(),
                "multi": st.booleans(),
            }.get(parameter)
            if found is not None:
                return found
        if method.startswith("secrets."):
            found = {"name": self.secret, "job": st.one_of(st.none(), self.schedule), "value": st.just("mine")}.get(parameter)
            if found is not None:
                return found
        special = {
            ("schedules.occurrences", "before"): st.one_of(st.none(), self.place),
            ("calendars.get", "name"): self.calendar,
            ("calendars.update", "name"): self.calendar,
            ("calendars.delete", "name"): self.calendar,
            ("calendars.update", "days"): st.sampled_from([[], ["2026-12-25"]]),
            ("groups.get", "group"): self.group,
            ("groups.cancel", "group"): self.group,
            ("events", "job"): st.one_of(st.none(), self.job),
            ("sql", "text"): self.sql,
            ("sql", "params"): st.none(),
            ("enqueue", "job_id"): st.one_of(st.none(), self.id),
            ("enqueue", "name"): st.sampled_from(TEMPLATES[:2]),
            ("enqueue", "webhook"): st.one_of(st.none(), self.url),
            ("store.load", "path"): st.just(__file__),
            ("store.promote", "target"): st.just("/nowhere/rota.db"),
            ("templates.update", "name"): st.sampled_from(TEMPLATES),
            ("templates.sql", "sql"): st.sampled_from(["SELECT 1", ""]),
            ("templates.command", "command"): st.sampled_from(["/usr/bin/true", "true"]),
            ("stop", "driver"): st.none(),
            # Queues are everybody's: a system manager does not name one by what marks an organization.
            ("queues.pause", "name"): st.sampled_from(["default", "mail"]),
            ("stored_settings.set", "name"): st.sampled_from(sorted(STORABLE)),
            ("stored_settings.set", "value"): st.sampled_from(["false", "2", "all"]),
            ("stored_settings.reset", "name"): st.sampled_from(sorted(STORABLE)),
            ("users.create", "organization"): self.organization,
            ("webhooks.rotate", "webhook"): st.one_of(st.none(), self.webhook),
            # One of its own would be sent to.
            ("webhooks.test", "webhook"): self.their_webhook,
            ("webhooks.get", "webhook"): self.webhook,
            ("webhooks.delete", "webhook"): self.webhook,
            ("webhooks.update", "webhook"): self.webhook,
            ("webhooks.update", "url"): st.one_of(st.none(), self.url),
            ("webhooks.deliveries", "before"): st.sampled_from([None, 1, 7, 50]),
            ("jobs.list", "before"): st.sampled_from([None, 1, 7, 50]),
            ("dead_letters.list", "before"): st.sampled_from([None, 1, 7, 50]),
            ("audit.list", "before"): st.sampled_from([None, 1, 7, 50]),
            ("jobs.direct", "job_id"): st.one_of(st.none(), self.id),
            ("users.update", "organization"): self.organization,
        }
        general = {
            "job": self.job,
            "chain": st.one_of(st.none(), self.job),
            "on": st.lists(self.job, min_size=1, max_size=2),
            "before": st.one_of(st.none(), self.job),
            "after": st.one_of(st.none(), self.job),
            "front": st.booleans(),
            "depends_on": st.one_of(st.none(), st.lists(self.job, max_size=2)),
            "group_id": self.group,
            "group": st.one_of(st.none(), self.group),
            "jobs": st.lists(st.one_of(self.new, self.job), max_size=3),
            "name": self.name,
            "params": self.params,
            "source": st.just([]),
            "timeout": st.sampled_from([0, 0.01]),
            "run_at": st.just(timedelta(hours=1)),
            "priority": self.count,
            "reason": st.sampled_from([None, "because"]),
            "unique_key": self.key,
            "organization": st.one_of(st.none(), self.organization),
            "template": st.one_of(st.none(), st.sampled_from(TEMPLATES)),
            "job_type": st.one_of(st.none(), st.sampled_from(TEMPLATES)),
            "owner": st.one_of(st.none(), self.name),
            "text": st.one_of(st.none(), self.text),
            "limit": self.count,
            "mode": st.sampled_from(["sequential", "parallel"]),
            "dry_run": st.booleans(),
            "removed": st.booleans(),
            "max_running": st.sampled_from([None, 0, 3]),
            "role": st.sampled_from(["user", "admin", "boss"]),
            "not_ran": st.booleans(),
            "skipped": st.booleans(),
            "enabled": st.booleans(),
            "hours": st.sampled_from([None, 1, 30]),
            "url": self.url,
            "webhook": st.one_of(st.none(), self.webhook),
            "token": st.sampled_from(["01a00000-0000-7000-8000-000000000000", "nonsense"]),
            "delivery": st.sampled_from([1, 2, 3, 10, 20, 999]),
            "events": st.sampled_from([None, ["run.failed"], ["nothing"]]),
            "state": st.sampled_from([None, "waiting", "lost"]),
            "fate": st.sampled_from([None, "FIRED", "REFUSED", "OVERDUE", ["MISSED", "SKIPPED_PAUSED"]]),
        }
        return special.get((method, parameter), general.get(parameter))


def call(rota: Rota, name: str, arguments: dict[str, Any], actor: object) -> Any:
    """Call a method to its end: awaited, entered and gone through."""
    method = _bound(rota.acting_as(actor), name)
    by_place = [each.name for each in inspect.signature(method).parameters.values() if each.kind is each.POSITIONAL_ONLY]
    named = {name: value for name, value in arguments.items() if name not in by_place}
    found = method(*(arguments[name] for name in by_place), **named)
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    if isinstance(found, AbstractContextManager):
        with found as inside:
            return type(inside).__name__
    return found


def _bound(rota: Rota, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), rota)


def words(value: object) -> str:
    """Return everything that a value or an error says."""
    if isinstance(value, BaseException):
        return f"{value!s} {value!r} {vars(value)!r}"
    if isinstance(value, Log):
        return f"{value!s} {value.text} {list(value)!r}"
    return f"{value!s} {value!r}"


def told(text: str, marks: set[str], given: set[str]) -> set[str]:
    """Return the marks in a text that the caller has not brought along."""
    for one in sorted({*given, EXAMPLE}, key=len, reverse=True):
        text = text.replace(one, "…") if any(mark in one for mark in marks) else text
    return {mark for mark in marks if mark in text}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let the doctor not wait for the beats of workers."""
    monkeypatch.setattr(doctor, "BEATS", 0)


# ---- the property ---------------------------------------------------------------------------------------------------

everybody = st.one_of(st.sampled_from(PEOPLE), st.sampled_from(PEOPLE), st.sampled_from(MANAGERS))


@pytest.mark.prove
@settings(
    max_examples=size(15, prove=1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), seed=st.integers(2, 10**6), as_value=st.booleans())
def test_whoever_does_whatever_touches_and_learns_nothing_of_another_organization(shared, tmp_path, data, seed, as_value):
    store = shared.copy(tmp_path / f"{seed}.db", seed)
    try:
        for _ in range(25):
            who = data.draw(everybody)
            name = data.draw(st.sampled_from(sorted(METHODS)))
            mine = who.organization if isinstance(who, Person) else "default"
            arguments = data.draw(Pool(store, mine).arguments(name))
            if isinstance(who, Person):
                check(store, who, name, arguments, as_value=as_value)
            elif name not in STARTING:
                note_manager(store, arguments)
                attempt(store.rota, name, arguments, who)
    finally:
        store.close()
        for path in tmp_path.glob(f"{seed}.db*"):
            path.unlink() if path.is_file() else None


def note_manager(store: SharedStore, arguments: dict[str, Any]) -> None:
    """Note what a system manager says: it may bring the name of one organization into the rows of its own, or of another."""
    for organization in {"default", arguments.get("organization") or "default"}:
        store.given(organization, arguments)
    free = {name: arguments[name] for name in ("params", "unique_key", "depends_on", "calendar", "jobs") if name in arguments}
    for organization in ORGANIZATIONS:
        store.given(organization, free)


def attempt(rota: Rota, name: str, arguments: dict[str, Any], actor: object) -> object:
    try:
        return call(rota, name, arguments, actor)
    except RotaError as error:
        return error


def check(store: SharedStore, who: Person, name: str, arguments: dict[str, Any], *, as_value: bool) -> None:
    before, marks = store.rows(who.organization), store.marks(who.organization)
    if name in OF_ANOTHER_WORLD:
        marks = {mark for mark in marks if not mark.startswith("JOB-")}
    given = store.given(who.organization, arguments)
    answer = attempt(store.rota, name, arguments, who.actor if as_value else who.name)
    after = store.rows(who.organization)
    for table, rows in before.items():
        assert after[table] == rows, f"{who.name} changed {table} of others by {name}({arguments})"
    assert not told(words(answer), marks, given), f"{who.name} learnt of others by {name}({arguments}): {words(answer)}"


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("who", [person("admin", "qqbeta"), person("user", "qqbeta"), HOME], ids=lambda who: who.name)
def test_no_method_touches_or_tells_what_is_of_another_organization(shared, tmp_path, name, who):
    """Each method for itself, so that one that leaks is named."""
    store = shared.copy(tmp_path / "one.db", 4711)
    pool = Pool(store, who.organization)

    @settings(max_examples=size(12, prove=200), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(arguments=pool.arguments(name))
    def go(arguments):
        check(store, who, name, arguments, as_value=False)

    try:
        go()
    finally:
        store.close()


# ---- counts ---------------------------------------------------------------------------------------------------------

READS = {
    name: each for name, each in METHODS.items() if re.match(r"Return|Say", each.__doc__ or "") and name not in {"wait", "workers.list"}
}


def look(store: SharedStore, who: Person) -> dict[str, str]:
    """Return what somebody is told by everything that can be asked without an argument, or of an own job."""
    found = {}
    own = [job.id for name in ("user1", "user2") for job in mine(store, f"{name}-{who.organization}")]
    for name, method in READS.items():
        needed = [one.name for one in inspect.signature(method).parameters.values() if one.default is one.empty and one.name != "self"]
        if not needed:
            found[name] = without_time(words(attempt(store.rota, name, {}, who.name)))
        elif needed == ["job"]:
            found |= {f"{name} {job_id}": without_turn(attempt(store.rota, name, {"job": job_id}, who.name)) for job_id in own}
    return found


def without_time(text: str) -> str:
    """Return what was said without how long it took."""
    return re.sub(r"took_ms=[0-9.]+", "", text)


def without_turn(answer: object) -> str:
    """Return an answer as words; of an explanation, without what it says of the turn: others may be ahead, and that may be told."""
    if not isinstance(answer, Explanation):
        return words(answer)
    turns = [reason for reason in answer.reasons if reason.condition == "its turn has come"]
    told = "it is the first in line|others are ahead of it|.* ready jobs? (is|are) ahead of it|a direct execution takes the next free slot"
    assert all(re.fullmatch(told, part) for turn in turns for part in turn.detail.split("; "))
    return words([answer.job, [reason for reason in answer.reasons if reason not in turns]])


def mine(store: SharedStore, owner: str) -> list[Any]:
    return [job for job_id, _, _ in store.jobs() if (job := store.rota.jobs.get(job_id)).owner == owner]


@pytest.mark.parametrize("role", ["admin", "user"])
def test_what_others_do_changes_nothing_that_one_is_told(shared, tmp_path, role):
    store = shared.copy(tmp_path / "counts.db", 77)
    who, rota = person(role, "qqacme"), store.rota
    before = look(store, who)
    assert len(before) > 100
    for name in ("qqbeta", "qqcorp"):
        user, admin = person("user", name).name, person("admin", name).name
        as_user, as_admin, as_chief = (rota.acting_as(each) for each in (user, admin, "chief"))
        jobs = [as_user.enqueue(template, {"text": str(n)}) for n in range(7) for template in ("work", "fails", "dies")]
        as_user.enqueue_many([("work", {})] * 50)
        as_admin.jobs.cancel(jobs[0])
        as_admin.jobs.retry(jobs[0])
        as_admin.jobs.update(jobs[3], priority=99)
        as_user.group([("work", {}), ("dies", {})])
        as_admin.organizations.resume(name)
        as_chief.users.create(f"new-{name}", organization=name)
        as_admin.roles.create("new")
        as_admin.grants.create("ALL", "PUBLIC", job="common")
        as_admin.grants.create("VIEW JOB HISTORY", user)
        as_admin.connections.create("new", "sqlite:////new.db")
        as_admin.connections.update("common", multi=True)
        as_admin.schedules.create("new", "work", every=60)
        as_admin.schedules.update("common", every=60, params={"text": "x"})
        as_chief.schedules.delete(f"child-{name}", organization=name)
        as_admin.schedules.fire("common")
        as_admin.calendars.update("common", ["2026-12-24"])
    after = look(store, who)
    for name, text in before.items():
        assert after[name] == text, name
    store.close()


def test_the_store_that_is_shared_has_due_times_of_every_kind_in_every_organization(shared, tmp_path):
    store = shared.copy(tmp_path / "kinds.db", 5)
    for name in ORGANIZATIONS:
        found = store.rota.schedules.occurrences(organization=name, limit=1000)
        kinds = {row.fate for row in found}
        assert kinds >= {"FIRED", "REFUSED", "SKIPPED_PAUSED", "SKIPPED_CALENDAR", "SKIPPED_DEPENDENCY"}
        assert all(name in (row.reason or name) for row in found if row.fate in {"REFUSED", "SKIPPED_DEPENDENCY"})
    store.close()
