"""A store that three organizations share, full of marked rows: whatever is of one of them carries its mark."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from rota import Actor, Backoff, Context, NewJob, PermanentError, Rota, Settings, Skip
from rota.model.values import Job, moment, undashed
from tests.stores.desk import Desk
from tests.support.clock import ManualClock
from tests.support.keys import KNOWN, write_keys

ORGANIZATIONS = ("qqacme", "qqbeta", "qqcorp")
"""Their names are their marks: no other word has them in it."""
TEMPLATES = ("work", "fails", "dies", "skips", "guarded")
MANAGERS = ("chief", None)


class Person(NamedTuple):
    """Somebody who asks, and what is known of them."""

    name: str
    organization: str
    role: str

    @property
    def actor(self) -> Actor:
        return Actor(self.name, self.organization, self.role)


def person(role: str, organization: str, number: int = 1) -> Person:
    return Person(f"{role}{number}-{organization}", organization, role)


HOME = Person("housekeeper", "default", "admin")
"""An admin of the organization that system managers are of."""
PEOPLE = [*(person(role, name, number) for name in ORGANIZATIONS for role, number in (("admin", 1), ("user", 1), ("user", 2))), HOME]


class SharedStore:
    """One file, its clock, and the hands of a worker that holds jobs without ever ending them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.clock = ManualClock()
        keys = path.with_name("master-key")
        settings = Settings(synchronous="NORMAL", busy_timeout=5, forecast_simulated_max=200, master_key_file=str(keys))
        if not keys.exists():
            write_keys(keys, [b64encode(KNOWN).decode()])
        self.rota = Rota(path, clock=self.clock, settings=settings, seed=seed)
        register(self.rota)
        self._raw: apsw.Connection | None = None
        self._version = -1
        self._read: dict[tuple[str, str], Any] = {}
        self._said: dict[str, set[str]] = {}

    def copy(self, path: Path, seed: int) -> SharedStore:
        """Return the same store in a file of its own, an hour later."""
        self.rota.close()
        shutil.copy(self.path, path)
        other = SharedStore(path, seed)
        other.clock.advance(minutes=seed % 7 + 60)
        return other

    def close(self) -> None:
        self.rota.close()
        if self._raw is not None:
            self._raw.close()

    def changed(self) -> bool:
        """Say whether anybody has written since the last call, and forget what was read before."""
        version = self._connection().pragma("data_version")
        if version == self._version:
            return False
        self._version = version
        self._read.clear()
        return True

    def rows(self, mine: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row that is not of this organization, table by table."""
        return self._once(("rows", mine), lambda: {name: self._sql(statement, mine) for name, statement in OTHERS.items()})

    def marks(self, mine: str) -> set[str]:
        """Return what must not be told to somebody of this organization: names, ids and numbers of the others."""
        return self._once(("marks", mine), lambda: self._marks(mine))

    def jobs(self, mine: str = "%") -> list[tuple[str, str, int]]:
        """Return every job, or those of one organization that wait, as (id, number of its chain, attempt)."""
        rows = self._once(("jobs", mine), lambda: self._sql(JOBS, mine))
        return [(_dashed(job_id), f"JOB-2026-{number:05d}", attempt) for job_id, number, attempt in rows]

    def groups(self) -> list[str]:
        return [_dashed(group_id) for (group_id,) in self._once(("groups", ""), lambda: self._sql(GROUPS, ""))]

    def webhooks(self, mine: str = "") -> list[str]:
        """Return every webhook but those of one organization."""
        rows = self._once(
            ("webhooks", mine), lambda: self._sql("SELECT lower(hex(endpoint_id)) FROM endpoints WHERE organization_id <> ?1", mine)
        )
        return [_dashed(endpoint_id) for (endpoint_id,) in rows]

    def grants(self) -> list[str]:
        """Return every grant."""
        rows = self._once(("grants", ""), lambda: self._sql("SELECT lower(hex(grant_id)) FROM grants ORDER BY 1", ""))
        return [_dashed(grant_id) for (grant_id,) in rows]

    def cursors(self) -> list[tuple[int, str, str]]:
        """Return places in the ledger, of all organizations."""
        rows = self._once(
            ("cursors", ""), lambda: self._sql("SELECT due_at, lower(hex(schedule_id)), fate FROM occurrences ORDER BY 1, 2, 3", "")
        )
        return [tuple(row) for row in rows]

    def given(self, mine: str, arguments: object) -> set[str]:
        """Return what somebody of this organization has said: an answer may repeat it. Names are kept, since they may be in rows by now."""
        texts = _texts(arguments)
        # A statement names things in quotes, and an answer repeats the names.
        texts |= {part for text in texts for part in re.findall(r"""["']([^"']+)["']""", text)}
        said = self._said.setdefault(mine, set())
        said |= {text for text in texts if any(name in text for name in ORGANIZATIONS)}
        return texts | said

    def _marks(self, mine: str) -> set[str]:
        ids = [hexed for statement in MARKS for (hexed,) in self._sql(statement, mine)]
        numbers = self._sql("SELECT number FROM jobs WHERE organization_id <> ?1 AND attempt = 1", mine)
        return {*(set(ORGANIZATIONS) - {mine}), *ids, *map(_dashed, ids), *(f"JOB-2026-{number:05d}" for (number,) in numbers)}

    def _once(self, key: tuple[str, str], read: Callable[[], Any]) -> Any:
        self.changed()
        if key not in self._read:
            self._read[key] = read()
        return self._read[key]

    def _sql(self, statement: str, mine: str) -> list[tuple[Any, ...]]:
        return list(self._connection().execute(statement, (mine,) if "?1" in statement else ()))

    def _connection(self) -> apsw.Connection:
        if self._raw is None:
            self._raw = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        return self._raw


def register(rota: Rota) -> None:
    """Give a Rota the handlers that the rows were made by."""

    @rota.job(max_retries=1, backoff=Backoff(base=10, jitter=0))
    def work(ctx: Context, text: str = "") -> str:
        ctx.log.info("worked on %s", text)
        return f"result of {text}"

    @rota.job(max_retries=2, backoff=Backoff(base=5000, jitter=0))
    def fails(text: str = "") -> None:
        raise ValueError(f"error about {text}")

    @rota.job
    def dies(text: str = "") -> None:
        raise PermanentError(f"end of {text}")

    @rota.job
    def skips(text: str = "") -> None:
        raise Skip(f"skipped {text}")

    @rota.job(requires_permission="payroll", dedup_window=3600)
    def guarded(text: str = "") -> None:
        """Do nothing."""


def fill(store: SharedStore) -> None:
    """Make the organizations, their people and, for each, jobs of every state, groups, dependencies, pauses and a trail."""
    rota = store.rota
    rota.users.create("chief", role="system_manager")
    rota.enqueue("work", {"text": "nobody's"})
    for name in ORGANIZATIONS:
        rota.organizations.create(name, display_name=f"The {name}", max_queued=5000)
    for each in PEOPLE:
        rota.users.create(each.name, organization=each.organization, role=each.role, permissions=[f"right-{each.organization}", "payroll"])
    for name in ORGANIZATIONS:
        _ended(rota, name)
    for name in ORGANIZATIONS:
        _scheduled(rota, name)
    for name in ORGANIZATIONS:
        _granted(rota, name)
    for _ in range(3):
        store.clock.advance(minutes=40)
        rota.turn()
    for name in ORGANIZATIONS:
        _running(store, name)
    for name in ORGANIZATIONS:
        _waiting(rota, name)
        _steered(rota, name)
    for name in ORGANIZATIONS:
        rota.webhooks.create(f"https://{name}.example/hooks", organization=name)
        rota.jobs.cancel(rota.acting_as(f"user1-{name}").enqueue("work", _params(name)).id)
    desk = desk_of(store)
    desk.reserve("work", ttl=10**6, organization_id=ORGANIZATIONS[-1], owner=f"user1-{ORGANIZATIONS[-1]}", params='{"text": "direct"}')
    rota.close()


def desk_of(store: SharedStore) -> Desk:
    desk = Desk(store.rota._session.open().store)
    desk.now = store.clock.now()
    desk.ids = store.rota._session.ids
    desk.worker = desk.id()
    return desk


def _params(name: str, what: str = "x") -> dict[str, str]:
    return {"text": f"{what}-{name}"}


def _ended(rota: Rota, name: str) -> None:
    first, second = person("user", name), person("user", name, 2)
    for who in (first, second):
        for template in TEMPLATES:
            rota.acting_as(who.actor.name).enqueue(template, _params(name, who.name))
    rota.acting_as(first.name).group([("work", _params(name)), ("dies", _params(name)), ("work", _params(name))], name=f"ended-{name}")
    gone = rota.acting_as(second.name).enqueue("work", _params(name))
    rota.acting_as(second.name).jobs.cancel(gone.id, reason=f"reason of {name}")
    rota.turn()


def schedule_names(name: str) -> list[str]:
    """Return the names of an organization's schedules; two of them are others' names too."""
    return ["common", "shared", *(f"{what}-{name}" for what in ("nightly", "child", "paused", "broken", "once", "gone", "own"))]


def _scheduled(rota: Rota, name: str) -> None:
    """Make schedules that fire, wait for each other, are paused, are refused, are over, and calendars."""
    admin = f"admin1-{name}"
    rota.acting_as(admin).calendars.update(f"days-{name}", ["2026-03-02"], description=f"holidays of {name}")
    rota.acting_as(admin).calendars.update("common", ["2026-03-01"], description=f"shared holidays of {name}")
    plain = {"params": _params(name, "scheduled"), "description": f"schedule of {name}"}
    rota.acting_as(admin).schedules.create(f"nightly-{name}", "dies", every=1800, **plain)
    rota.acting_as(admin).schedules.create("common", "work", every=1800, overlap="allow", **plain)
    rota.acting_as(admin).schedules.create("shared", "work", cron="0 * * * *", calendar="common", **plain)
    rota.acting_as(admin).schedules.create(f"child-{name}", "work", every=1800, depends_on=[f"nightly-{name}"], **plain)
    rota.acting_as(admin).schedules.create(f"paused-{name}", "work", every=1800, calendar=f"days-{name}", **plain)
    rota.acting_as(admin).schedules.pause(f"paused-{name}")
    rota.acting_as(admin).schedules.create(f"broken-{name}", "work", every=1800, **(plain | {"params": {f"nonsense-{name}": 1}}))
    rota.acting_as(admin).schedules.create(f"once-{name}", "work", at=timedelta_from(rota, minutes=30), **plain)
    rota.acting_as(admin).schedules.create(f"gone-{name}", "work", every=1800, **plain)
    rota.acting_as("chief").schedules.delete(f"gone-{name}", organization=name)
    rota.acting_as("chief").schedules.create(f"own-{name}", "work", every=7200, organization=name)
    rota.acting_as("chief").schedules.update(f"own-{name}", description=f"edited for {name}", organization=name)
    rota.acting_as(admin).schedules.fire(f"own-{name}")


def _granted(rota: Rota, name: str) -> None:
    """Make roles, and grant users, roles and everybody whatever can be granted: none of it leads out of the organization."""
    user, other = f"user1-{name}", f"user2-{name}"
    chief = rota.acting_as(Actor("chief", name, "system_manager"))
    for role in ("ops", f"ops-{name}"):
        rota.acting_as(f"admin1-{name}").roles.create(role)
    chief.grants.create("ALL", user, job="common", grant_option=True)
    chief.grants.create("ALTER", f"ops-{name}", job=f"nightly-{name}")
    chief.grants.create("ROLE", user, role=f"ops-{name}", grant_option=True)
    chief.grants.create("ROLE", other, role="ops")
    chief.grants.create("CREATE JOB", "ops")
    chief.grants.create("VIEW JOB HISTORY", "PUBLIC", job="shared")
    chief.grants.create("EXECUTE EXTERNAL JOB", user)
    rota.acting_as(user).grants.create("EXECUTE", other, job="common")
    for connection in ("common", f"dw-{name}"):
        rota.acting_as(f"admin1-{name}").connections.create(connection, f"sqlite:////data/{name}.db")
        chief.grants.create("USE", user, connection=connection, grant_option=True)
    for secret in ("COMMON", f"KEY_{name}"):
        chief.secrets.create(secret, f"value of {name}")
        chief.secrets.create(secret, f"value of {name}", job=f"nightly-{name}")
    chief.grants.create("USE", user, secret_name="COMMON")


def timedelta_from(rota: Rota, **duration: float) -> datetime:
    now = moment(rota._session.clock.now())
    assert now is not None
    return now + timedelta(**duration)


def _running(store: SharedStore, name: str) -> None:
    desk = desk_of(store)
    store.rota.acting_as(f"user1-{name}").enqueue("work", _params(name, "running"))
    store.rota.acting_as(f"user2-{name}").enqueue("work", _params(name, "stopping"))
    desk.store.register(desk.worker, host=f"host-of-{name}", kind="worker", job_types=TEMPLATES, now=desk.now)
    held = desk.claim(2, types=TEMPLATES)
    store.rota.acting_as(f"admin1-{name}").jobs.cancel(_dashed(held[-1].job_id), reason=f"stop {name}")


def _waiting(rota: Rota, name: str) -> None:
    for number in (1, 2):
        user = f"user{number}-{name}"
        queued = rota.acting_as(user).enqueue("work", _params(name, "queued"), unique_key=f"key-{name}-{number}")
        child = rota.acting_as(user).enqueue("work", _params(name, "child"), depends_on=[queued.id])
        rota.acting_as(user).enqueue("work", _params(name, "grandchild"), depends_on=[child.id])
        rota.acting_as(user).enqueue("work", _params(name, "later"), run_at=timedelta(hours=5))
    rota.acting_as(f"user1-{name}").group([("work", _params(name)), ("fails", _params(name))], name=f"waiting-{name}")
    rota.acting_as(f"admin1-{name}").group([("work", _params(name)), ("work", _params(name))], mode="parallel", name=f"parallel-{name}")


def _steered(rota: Rota, name: str) -> None:
    admin = f"admin1-{name}"
    job = rota.acting_as(f"user1-{name}").enqueue("work", _params(name, "steered"))
    rota.acting_as(admin).jobs.update(job.id, params=_params(name, "changed"), priority=61)
    _steered_by_the_chief(rota, name, job)
    dead = rota.acting_as(f"user2-{name}").enqueue("work", _params(name, "cancelled"))
    rota.acting_as(admin).jobs.cancel(dead.id, reason=f"again {name}")
    rota.acting_as(admin).jobs.retry(dead.id)
    rota.acting_as(admin).organizations.pause(name)


def _steered_by_the_chief(rota: Rota, name: str, job: Job) -> None:
    """Do everything that is audited, as a system manager does it to others: their trail must not lead to its own organization."""
    user = f"user1-{name}"
    rota.acting_as("chief").jobs.update(job.id, params=_params(name, "changed by the chief"))
    rota.acting_as("chief").jobs.move(job.id, front=True)
    later = rota.acting_as(user).enqueue("work", _params(name, "waits"), run_at=timedelta(hours=9))
    rota.acting_as("chief").jobs.depend(later.id, [job.id])
    rota.acting_as("chief").jobs.cancel(later.id)
    rota.acting_as("chief").jobs.retry(later.id)
    rota.acting_as("chief").groups.cancel(rota.acting_as(user).group([("work", _params(name))], name=f"gone-{name}").id)
    gone = rota.acting_as(user).enqueue("work", _params(name, "discarded"))
    rota.acting_as("chief").jobs.cancel(gone.id)
    rota.acting_as("chief").jobs.delete(gone.id)
    rota.acting_as("chief").organizations.update(name, max_running=9)
    rota.acting_as("chief").users.update(user, permissions=[f"right-{name}", "payroll", "new"])


def _dashed(hexed: str) -> str:
    return f"{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}"


def _texts(value: object) -> set[str]:
    """Return every text that an argument says, in both forms of an id."""
    if isinstance(value, Job):
        value = value.id
    if isinstance(value, NewJob):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return set().union(*(_texts(each) for each in value))
    text = str(value)
    return {text} | ({str(undashed(text))} if undashed(text) else set())


_THEIRS = "SELECT number FROM jobs WHERE organization_id <> ?1"
_THEIR_SCHEDULES = "SELECT schedule_id FROM schedules WHERE organization_id <> ?1"
OTHERS = {
    "jobs": "SELECT * FROM jobs WHERE organization_id <> ?1 ORDER BY number",
    "job_runs": f"SELECT * FROM job_runs WHERE job_number IN ({_THEIRS}) ORDER BY job_number",
    "job_edges": f"SELECT * FROM job_edges WHERE child IN ({_THEIRS}) ORDER BY 1, 2",
    "job_groups": "SELECT * FROM job_groups WHERE organization_id <> ?1 ORDER BY group_id",
    "dedup": "SELECT * FROM dedup WHERE organization_id <> ?1 ORDER BY 1, 2, 3",
    "reservations": f"SELECT * FROM direct_reservations WHERE job_number IN ({_THEIRS}) ORDER BY reservation_id",
    "audit": "SELECT * FROM audit WHERE organization_id IS NOT ?1 ORDER BY audit_id",
    "organizations": "SELECT organization_id, display_name, state, max_running, max_queued, max_priority, created_at,"
    " iif(organization_id = ?1, 0, signs) FROM organizations ORDER BY organization_id",
    "roles": "SELECT * FROM roles WHERE organization_id <> ?1 ORDER BY role_id",
    "connections": "SELECT * FROM connections WHERE organization_id <> ?1 ORDER BY connection_id",
    "grants": "SELECT * FROM grants WHERE organization_id <> ?1 ORDER BY grant_id",
    "endpoints": "SELECT * FROM endpoints WHERE organization_id <> ?1 ORDER BY endpoint_id",
    "hook_secrets": "SELECT * FROM hook_secrets WHERE owner <> 'organization:' || ?1"
    " AND owner NOT IN (SELECT lower(hex(endpoint_id)) FROM endpoints WHERE organization_id = ?1) ORDER BY owner",
    "outbox": "SELECT * FROM outbox WHERE organization_id <> ?1 ORDER BY outbox_id",
    "users": "SELECT * FROM users ORDER BY name",
    "pauses": "SELECT * FROM pauses WHERE kind <> 'organization' OR name <> ?1 ORDER BY kind, name",
    "templates": "SELECT * FROM templates ORDER BY name",
    "totals": "SELECT * FROM stats_total WHERE organization_id <> ?1 ORDER BY 1, 2, 3",
    "hours": "SELECT * FROM stats_hourly WHERE organization_id <> ?1 ORDER BY 1, 2, 3, 4, 5",
    "schedules": "SELECT * FROM schedules WHERE organization_id <> ?1 ORDER BY schedule_id",
    "occurrences": f"SELECT * FROM occurrences WHERE schedule_id IN ({_THEIR_SCHEDULES}) ORDER BY 1, 2, 5",
    "calendars": "SELECT * FROM calendars WHERE organization_id <> ?1 ORDER BY 1, 2",
    "rates": "SELECT * FROM rate_log WHERE instr(key, ?1) = 0 ORDER BY key, at",
}
"""What nobody but a system manager may change, seen from one organization."""
JOBS = """
SELECT lower(hex(j.job_id)), r.number, j.attempt FROM jobs AS j JOIN jobs AS r ON r.job_id = j.root_id
 WHERE ?1 = '%' OR (j.organization_id = ?1 AND j.started_at IS NULL AND j.finished_at IS NULL) ORDER BY j.number
"""
GROUPS = "SELECT lower(hex(group_id)) FROM job_groups ORDER BY 1"
MARKS = (
    "SELECT lower(hex(job_id)) FROM jobs WHERE organization_id <> ?1",
    "SELECT lower(hex(group_id)) FROM job_groups WHERE organization_id <> ?1",
    f"SELECT lower(hex(run_id)) FROM job_runs WHERE job_number IN ({_THEIRS})",
    "SELECT lower(hex(schedule_id)) FROM schedules WHERE organization_id <> ?1",
    "SELECT lower(hex(endpoint_id)) FROM endpoints WHERE organization_id <> ?1",
    "SELECT lower(hex(role_id)) FROM roles WHERE organization_id <> ?1",
    "SELECT lower(hex(connection_id)) FROM connections WHERE organization_id <> ?1",
    "SELECT lower(hex(grant_id)) FROM grants WHERE organization_id <> ?1",
    "SELECT lower(hex(user_id)) FROM users WHERE organization_id <> ?1 AND role <> 'system_manager'",
)
