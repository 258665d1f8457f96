"""With whose rights a job runs that is SQL or a command: asked when it is defined, asked again at each start, and lent to nobody."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota import Rota, Settings
from rota.errors import InvalidName, InvalidParams, InvalidSchedule, PermissionDenied, Refused, SqlError, UnknownTemplate
from rota.model.access import PERMITS, Permit
from rota.model.gate import Actor, Role
from rota.sql import job_commands
from tests.runners.external.stage import WAYS, Stage
from tests.sql.sql_support import create_connection, executed, rows, runs_of
from tests.stores.makers import MAKERS, SqliteMaker
from tests.support.keys import key_file
from tests.support.prepared import prepare
from tests.support.stranger import public_folder

NOWHERE = "postgresql://127.0.0.1:1/none"
"""A database that does not answer: what is asked before it is all that counts."""
HOURLY = "SCHEDULE = EVERY 1 HOUR"
BARE = next(way for way in WAYS if way.isolation == "off")


class Shop:
    """A store that two organizations share, the files of its connections, and a command."""

    def __init__(self, maker: SqliteMaker, rota: Rota, folder: Path, commands: Stage) -> None:
        self.maker = maker
        self.rota = rota
        self.folder = folder
        self.command = commands.script("echo done")
        self._numbers = itertools.count(1)
        for name in ("acme", "beta"):
            rota.organizations.create(name)
        rota.users.create("root", organization="acme", role="system_manager")
        rota.users.create("ada", organization="acme", role="admin")
        rota.users.create("eve", organization="beta", role="admin")
        self.root = rota.acting_as("root")
        self.root.sql(f"CREATE CONNECTION far URL '{NOWHERE}' USER 'app'")
        self.data = create_connection(self.root, "data", folder / "data.db", "t (x, y)")

    def number(self) -> int:
        return next(self._numbers)

    def user(self, role: str = "user", *grants: str) -> str:
        """Return the name of a new user of acme, who may create jobs and has these grants."""
        name = f"u{self.number()}"
        self.rota.users.create(name, organization="acme", role=role)
        for grant in ("CREATE JOB", *grants):
            self.root.sql(f"GRANT {grant} TO {name}")
        return name

    def as_(self, name: str | Actor) -> Rota:
        return self.rota.acting_as(name)

    def job(self, who: str, clauses: str, name: str | None = None) -> str:
        """Create a job of a user, and return its name."""
        name = name or f"j{self.number()}"
        self.as_(who).sql(f"CREATE JOB {name} {HOURLY} {clauses}")
        return name

    def started(self, job: str, params: str | None = None) -> dict[str, Any]:
        """Have the owner's job executed by the manager, and return its run."""
        return executed(self.root, job, params)

    def owner(self, job: str) -> str:
        return str(dict(self.root.sql(f"SHOW JOB {job}")[0].rows)["created_by"])

    def secret(self) -> str:
        name = f"s{self.number()}"
        self.root.sql(f"CREATE SECRET {name} VALUE ?", [f"value of {name}"])
        return name


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.name)
def shop(request, tmp_path_factory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with public_folder() as public, closing(request.param(folder)) as maker:
        commands = Stage(public, BARE)
        settings = Settings(
            master_key_file=str(key_file(folder)), sql_paths=str(folder), external_file=commands.config(), synchronous="NORMAL"
        )
        with closing(Rota(maker.url, settings=settings, seed=7)) as rota:
            rota.job(lambda: None, name="report")
            yield Shop(maker, rota, folder, commands)


def denied(view: Rota, text: str) -> str:
    """Return the SQLSTATE of a refusal; empty: it was carried out."""
    try:
        view.sql(text)
    except SqlError as error:
        return error.sqlstate
    return ""


# ---- the table --------------------------------------------------------------------------------------------------------


class Thing(NamedTuple):
    """What a job uses by the rights of its owner."""

    clauses: str
    change: str
    """The same with ALTER JOB, on a job that has none of it."""
    plain: str
    """The clauses of that job."""
    grant: str
    says: str
    """Part of the error of a run whose owner has lost the right."""


THINGS = {
    "connection": Thing("CONNECTION {name} AS 'SELECT 1'", "SET CONNECTION {name} SET AS 'SELECT 1'", "CALL report()",
                        "USE ON CONNECTION {name}", "may not use connection"),
    "secret": Thing("CONNECTION data SECRETS ({name}) AS 'SELECT 1'", "SET SECRETS ({name})", "CONNECTION data AS 'SELECT 1'",
                    "USE ON SECRET {name}", "may not use secret"),
    "role": Thing("CONNECTION far RUN AS {name} AS 'SELECT 1'", "SET RUN AS {name}", "CONNECTION far AS 'SELECT 1'",
                  "ROLE {name}", "may not run jobs as role"),
    "command": Thing("EXEC '{command}'", "SET EXEC '{command}'", "CALL report()", "EXECUTE EXTERNAL JOB", "may not run commands"),
}  # fmt: skip
ROLES = {str(role) for role in Role}
HOLDERS = ("system_manager", "admin", "user", "directly", "role", "PUBLIC")
MAY = {
    "connection": {"system_manager", "admin", "directly", "role", "PUBLIC"},
    "secret": {"system_manager", "admin", "directly", "role", "PUBLIC"},
    "role": {"system_manager", "directly"},
    "command": {"system_manager", "directly", "role", "PUBLIC"},
}
"""Who may use each, by role or by a grant: to the user, to a role of the user, to everybody."""
IMPOSSIBLE = {("role", "role"), ("role", "PUBLIC")}
"""A role has no roles, and is not granted to everybody."""
CELLS = [(thing, holder) for thing in THINGS for holder in HOLDERS if (thing, holder) not in IMPOSSIBLE]


class Cell:
    """One thing, one user, and how the user comes by it."""

    def __init__(self, shop: Shop, thing: str, holder: str) -> None:
        self.shop, self.thing, self.holder = shop, THINGS[thing], holder
        self.name = f"n{shop.number()}"
        if thing == "connection":
            create_connection(shop.root, self.name, shop.folder / f"{self.name}.db")
        elif thing == "secret":
            shop.root.sql(f"CREATE SECRET {self.name} VALUE ?", ["hunter2"])
        elif thing == "role":
            shop.root.sql(f"CREATE ROLE {self.name}")
        # What is not asked for: an admin has it, a user is granted it.
        beside = {"secret": ["USE ON CONNECTION data"], "role": ["USE ON CONNECTION far"]}.get(thing, [])
        self.user = shop.user(holder if holder in ROLES else "user", *beside)
        self.team = f"team{shop.number()}"
        shop.root.sql(f"CREATE ROLE {self.team}; GRANT ROLE {self.team} TO {self.user}")

    def filled(self, text: str) -> str:
        return text.format(name=self.name, command=self.shop.command)

    @property
    def grantee(self) -> str:
        return {"directly": self.user, "role": self.team, "PUBLIC": "PUBLIC"}[self.holder]

    def grant(self) -> None:
        if self.holder not in ROLES:
            self.shop.root.sql(f"GRANT {self.filled(self.thing.grant)} TO {self.grantee}")

    def take(self) -> None:
        """Take the right from the user, in the way that the user has it."""
        if self.holder in ROLES:
            self.shop.rota.users.update(self.user, role="user")
        else:
            self.shop.root.sql(f"REVOKE {self.filled(self.thing.grant)} FROM {self.grantee}")

    def give_back(self) -> None:
        if self.holder in ROLES:
            self.shop.rota.users.update(self.user, role=self.holder)
        else:
            self.grant()


@pytest.fixture
def cell(shop, request) -> Iterator[Cell]:
    made = Cell(shop, *request.param)
    yield made
    if made.holder == "PUBLIC":
        made.take()


@pytest.mark.parametrize("cell", CELLS, ids="-".join, indirect=True)
def test_who_may_use_a_thing_may_name_it_in_a_new_job_and_in_another(cell, request):
    thing, holder = request.node.callspec.params["cell"]
    cell.grant()
    view, plain = cell.shop.as_(cell.user), cell.shop.job(cell.user, cell.thing.plain)
    found = [
        denied(view, f"CREATE JOB new_{plain} {HOURLY} {cell.filled(cell.thing.clauses)}"),
        denied(view, f"ALTER JOB {plain} {cell.filled(cell.thing.change)}"),
    ]
    assert all(found) is (holder not in MAY[thing]), found
    assert any(found) is (holder not in MAY[thing]), found
    assert set(found) <= {"", "42501", "42704"}


@pytest.mark.parametrize("cell", [each for each in CELLS if each[1] in MAY[each[0]]], ids="-".join, indirect=True)
def test_a_token_without_the_permit_may_not_name_it_whatever_its_user_may(cell):
    cell.grant()
    role = Role(cell.holder) if cell.holder in ROLES else Role.USER
    plain = cell.shop.job(cell.user, cell.thing.plain)
    for permits, expected in [({Permit.READ, Permit.SUBMIT, Permit.OPERATE}, "42501"), ({Permit.MANAGE}, "")]:
        rights = frozenset(right for right, needed in PERMITS.items() if needed in permits)
        view = cell.shop.as_(Actor(cell.user, "acme", role, operations=rights))
        assert denied(view, f"CREATE JOB new_{plain} {HOURLY} {cell.filled(cell.thing.clauses)}") == expected
        assert denied(view, f"ALTER JOB {plain} {cell.filled(cell.thing.change)}") == expected


@pytest.mark.parametrize("cell", [each for each in CELLS if each[1] in MAY[each[0]]], ids="-".join, indirect=True)
def test_a_right_that_was_lost_fails_the_next_run_for_good_and_is_audited(cell):
    shop = cell.shop
    cell.grant()
    job = shop.job(cell.user, cell.filled(cell.thing.clauses))
    before = shop.started(job)
    assert "any more" not in str(before["result_message"])
    cell.take()
    run = shop.started(job)
    assert run["state"] == "FAILED"
    assert run["status"] == "DEAD_LETTER", "it is not tried again"
    assert cell.thing.says in run["result_message"]
    assert repr(cell.user) in run["result_message"]
    (entry,) = shop.root.sql(
        f"SELECT event, actor, outcome FROM sys.audit WHERE job_run_uuid = '{run['job_run_uuid']}' AND event = 'JOB_FAILED'"
    )[0].rows
    assert entry[0] == "JOB_FAILED"
    assert entry[1] in {cell.user, cell.name}
    cell.give_back()
    assert "any more" not in str(shop.started(job)["result_message"])


# ---- owners -----------------------------------------------------------------------------------------------------------


def test_a_job_runs_with_the_rights_of_its_owner_whoever_executes_it(shop):
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user()
    job = shop.job(owner, "CONNECTION data AS 'INSERT INTO t VALUES (1, rota_job_name())'")
    shop.root.sql(f"GRANT EXECUTE ON JOB {job} TO {other}")
    shop.as_(other).sql(f"EXECUTE JOB {job}")
    shop.root.turn()
    run = runs_of(shop.root, job)[-1]
    assert (run["state"], run["owner"], run["rows_affected"]) == ("COMPLETED", owner, 1)
    assert rows(shop.data, f"SELECT x FROM t WHERE y = '{job}'") == [(1,)]


def test_the_runs_of_a_removed_owner_fail_until_the_user_is_back_with_the_rights(shop):
    owner = shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    assert shop.started(job)["state"] == "COMPLETED"
    shop.rota.users.delete(owner)
    run = shop.started(job)
    assert (run["status"], "is not a user of this store any more" in run["result_message"]) == ("DEAD_LETTER", True)
    shop.rota.users.create(owner, organization="acme")
    assert "may not use connection" in shop.started(job)["result_message"], "the grants went with the user"
    shop.root.sql(f"GRANT USE ON CONNECTION data TO {owner}")
    assert shop.started(job)["state"] == "COMPLETED"


def test_the_runs_of_an_owner_who_moved_to_another_organization_fail(shop):
    owner = shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.rota.users.update(owner, organization="beta")
    assert "is not in organization 'acme' any more" in shop.started(job)["result_message"]
    shop.rota.users.update(owner, organization="acme")
    assert "may not use connection" in shop.started(job)["result_message"]


def test_a_connection_that_is_dropped_and_created_again_needs_a_new_grant(shop):
    create_connection(shop.root, "again", shop.folder / "again.db")
    owner = shop.user("user", "USE ON CONNECTION again")
    job = shop.job(owner, "CONNECTION again AS 'SELECT 1'")
    assert denied(shop.root, "DROP CONNECTION again") == "2BP01", "a job names it"
    shop.as_(owner).sql(f"ALTER JOB {job} SET CONNECTION NONE SET CALL report()")
    shop.root.sql(f"DROP CONNECTION again; CREATE CONNECTION again URL 'sqlite:///{shop.folder / 'again.db'}'")
    assert denied(shop.as_(owner), f"ALTER JOB {job} SET CONNECTION again") == "42704"


def test_a_role_that_is_dropped_and_created_again_has_no_members(shop):
    shop.root.sql("CREATE ROLE passing")
    owner = shop.user("user", "USE ON CONNECTION far", "ROLE passing")
    job = shop.job(owner, "CONNECTION far RUN AS passing AS 'SELECT 1'")
    assert denied(shop.root, "DROP ROLE passing") == "2BP01"
    shop.root.sql(f"DROP JOB {job}; REVOKE ROLE passing FROM {owner}; DROP ROLE passing; CREATE ROLE passing")
    assert denied(shop.as_(owner), f"CREATE JOB {job} {HOURLY} CONNECTION far RUN AS passing AS 'SELECT 1'") == "42501"


@pytest.mark.parametrize(
    "change",
    ["SET AS 'SELECT 2'", "SET CONNECTION other", "SET SECRETS (given)", "SET RUN AS NONE", "SET AS 'SELECT 2' SET TIMEOUT = 9"],
)
def test_who_changes_what_a_job_borrows_becomes_its_owner(shop, change):
    _common(shop)
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user("user", "USE ON CONNECTION data", "USE ON CONNECTION other")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}; GRANT USE ON SECRET given TO {other}")
    shop.as_(other).sql(f"ALTER JOB {job} {change}")
    assert shop.owner(job) == other
    assert shop.started(job)["owner"] == other


@pytest.mark.parametrize(
    "change",
    ["SET TIMEOUT = 9", "SET SCHEDULE = EVERY 2 HOURS", "SET PARAMS = '{\"a\": 1}'", "RENAME TO {job}_new", "SET DESCRIPTION = 'x'",
     "SET MAX_RETRIES = 0", "SET PRIORITY = 7", "SET STATE = PAUSED", "SET CLASS = LOCAL_SAFE"],
)  # fmt: skip
def test_who_changes_anything_else_does_not(shop, change):
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user()
    job = shop.job(owner, "CONNECTION data PARAMS = '{\"a\": 0}' AS 'SELECT :a'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}")
    shop.as_(other).sql(f"ALTER JOB {job} {change}".replace("{job}", job))
    name = f"{job}_new" if "RENAME" in change else job
    assert shop.owner(name) == owner
    assert shop.started(name)["owner"] == owner


def _common(shop: Shop) -> None:
    if "other" not in {each.name for each in shop.root.connections.list()}:
        create_connection(shop.root, "other", shop.folder / "other.db")
        shop.root.sql("CREATE SECRET given VALUE ?", ["the value of given"])


@pytest.mark.parametrize(
    "change", ["SET AS 'SELECT 2'", "SET SECRETS NONE", "SET CONNECTION data", "SET RUN AS NONE", "SET EXEC '/bin/true'"]
)
def test_nobody_changes_what_a_job_borrows_without_the_rights_to_all_of_it(shop, change):
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user()
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.root.sql(f"GRANT ALL ON JOB {job} TO {other}")
    assert denied(shop.as_(other), f"ALTER JOB {job} {change}") in {"42501", "42704"}
    create = f"{HOURLY} CONNECTION data AS 'SELECT 2'"
    assert denied(shop.as_(other), f"CREATE OR ALTER JOB {job} {create}") == "42704"
    assert denied(shop.as_(other), f"RECREATE JOB {job} {create}") == "42704"
    assert shop.owner(job) == owner


@pytest.mark.parametrize("change", ["SET SECRETS (given)", "SET SECRETS NONE", "SET RUN AS NONE"])
def test_who_takes_over_a_command_may_run_commands(shop, change):
    _common(shop)
    other = shop.user("user", "USE ON SECRET given")
    job = shop.job("root", f"EXEC '{shop.command}'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}")
    assert denied(shop.as_(other), f"ALTER JOB {job} {change}") == "42501"
    assert shop.owner(job) == "root"
    shop.root.sql(f"GRANT EXECUTE EXTERNAL JOB TO {other}")
    shop.as_(other).sql(f"ALTER JOB {job} {change}")
    assert (shop.owner(job), shop.started(job)["state"]) == (other, "COMPLETED")


def test_a_job_that_was_changed_since_it_was_looked_at_is_not_taken_over(shop, monkeypatch):
    """Between the check of a new owner's rights and the write somebody changes the text: it would run with rights of the new owner."""
    _common(shop)
    owner = shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    alteration = job_commands.alteration

    def overtaken(run, before, statement, who):
        change = alteration(run, before, statement, who)
        monkeypatch.setattr(job_commands, "alteration", alteration)
        shop.as_(owner).sql(f"ALTER JOB {job} SET AS 'DELETE FROM t'")
        return change

    monkeypatch.setattr(job_commands, "alteration", overtaken)
    assert denied(shop.root, f"ALTER JOB {job} SET SECRETS (given)") == "40001"
    assert shop.owner(job) == owner


def test_waiting_runs_keep_the_owner_and_the_text_that_they_were_made_with(shop):
    _common(shop)
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT ''old'' AS word'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}; EXECUTE JOB {job}")
    shop.as_(other).sql(f"ALTER JOB {job} SET AS 'SELECT ''new'' AS word'")
    shop.root.sql(f"EXECUTE JOB {job}")
    shop.root.sql(f"REVOKE USE ON CONNECTION data FROM {other}")
    shop.root.turn()
    old, new = runs_of(shop.root, job)
    assert (old["state"], old["owner"], "old" in str(old["result_data"])) == ("COMPLETED", owner, True)
    assert (new["state"], new["owner"]) == ("FAILED", other)
    retried = shop.root.jobs.retry(new["job_run_uuid"])
    shop.root.sql(f"GRANT USE ON CONNECTION data TO {other}")
    shop.root.turn()
    again = shop.root.jobs.get(retried.id)
    assert (again.owner, again.status, shop.root.jobs.runs(again.id)[-1].result["rows"]) == (other, "COMPLETED", [["new"]])


def test_a_run_whose_version_is_gone_does_not_take_another_one(shop):
    owner = shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.root.sql(f"EXECUTE JOB {job}; ALTER JOB {job} SET AS 'INSERT INTO t VALUES (1, ''taken'')'")
    # As nothing of ours does.
    shop.maker.damage("DELETE FROM template_versions WHERE version = 1")
    shop.root.turn()
    run = runs_of(shop.root, job)[-1]
    assert (run["status"], run["result_message"]) == ("DEAD_LETTER", "what this job does is not in the store any more")
    assert rows(shop.data, "SELECT count(*) FROM t WHERE y = 'taken'") == [(0,)]


# ---- actors that a program vouches for --------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "lost"), [(Role.USER, True), (Role.ADMIN, False), (Role.MANAGER, False)])
def test_an_owner_whom_only_the_program_knows_has_no_more_rights_than_it_was_vouched_for(shop, role, lost):
    name = f"v{shop.number()}"
    create_connection(shop.root, f"c{name}", shop.folder / f"c{name}.db")
    shop.root.sql(f"GRANT CREATE JOB TO PUBLIC; GRANT USE ON CONNECTION c{name} TO PUBLIC")
    shop.job(Actor(name, "acme", role), f"CONNECTION c{name} AS 'SELECT 1'", name=f"of_{name}")
    assert shop.started(f"of_{name}")["state"] == "COMPLETED"
    shop.root.sql(f"REVOKE CREATE JOB FROM PUBLIC; REVOKE USE ON CONNECTION c{name} FROM PUBLIC")
    run = shop.started(f"of_{name}")
    assert ("may not use connection" in str(run["result_message"])) is lost, run["result_message"]
    shop.root.sql(f"ALTER JOB of_{name} SET AS 'SELECT 2'")
    assert shop.started(f"of_{name}")["state"] == "COMPLETED", "it is the manager's now"


# ---- other doors ------------------------------------------------------------------------------------------------------


def test_a_type_of_a_kind_is_not_a_template(shop):
    for view in (shop.root, shop.as_(shop.user())):
        for name in ("kind:external", "kind:sql:acme/data"):
            with pytest.raises(UnknownTemplate):
                view.enqueue(name, {})
            with pytest.raises(UnknownTemplate):
                view.enqueue(name, {}, meta={"template_version": 1})
            with pytest.raises(UnknownTemplate):
                view.jobs.direct(name, {})
            with pytest.raises(UnknownTemplate):
                view.group([(name, {})])
    for act in (
        lambda: shop.root.templates.update("kind:external", handler="os:system"),
        lambda: shop.root.templates.define("kind:sql:acme/data", sql="SELECT 1"),
        lambda: shop.rota.job(lambda: None, name="kind:external"),
        lambda: shop.root.enqueue(handler="os:getcwd", job_type="kind:external"),
    ):
        with pytest.raises(InvalidName):
            act()
    with pytest.raises(UnknownTemplate):
        shop.root.schedules.create("sneaky", "kind:external", every=60)
    assert denied(shop.root, f'CREATE JOB sneaky {HOURLY} CALL "kind:external"()') == "42883"


def test_a_run_of_a_job_that_sql_has_created_is_not_enqueued_again_by_its_readers(shop):
    owner = shop.user("user", "USE ON CONNECTION data")
    run = shop.started(shop.job(owner, "CONNECTION data AS 'SELECT 1'"))
    for who in ("root", "ada", owner):
        with pytest.raises(Refused, match="EXECUTE JOB"):
            shop.as_(who).jobs.again(run["job_run_uuid"])


def test_a_role_is_not_taken_off_a_job_by_another_door_than_sql(shop):
    shop.root.sql("CREATE ROLE kept")
    job = shop.job("root", "CONNECTION far RUN AS kept AS 'SELECT 1'")
    with pytest.raises(InvalidSchedule, match="ALTER JOB"):
        shop.as_("ada").schedules.update(job, run_as=None)
    assert shop.root.schedules.get(job).run_as == "kept"


def test_who_changes_the_params_of_a_call_needs_the_permission_of_its_handler(shop):
    name = f"secretive{shop.number()}"
    shop.rota.job(lambda day=1: day, name=name, requires_permission="payroll")
    job = shop.job("root", f"CALL {name}()")
    with pytest.raises(PermissionDenied, match="payroll"):
        shop.as_("ada").schedules.update(job, params={"day": 2})


def test_a_template_that_is_sql_runs_with_the_rights_of_its_author(shop):
    shop.root.templates.define("shared", sql="INSERT INTO t VALUES (:x, 'shared')", connection="data")
    user = shop.user()
    job = shop.as_(user).enqueue("shared", {"x": 5}, meta={"template_version": 99, "mine": 1})
    shop.root.turn()
    assert shop.root.jobs.get(job.id).status == "COMPLETED"
    assert shop.root.jobs.get(job.id).owner == user
    assert rows(shop.data, "SELECT x FROM t WHERE y = 'shared'") == [(5,)]
    with pytest.raises(PermissionDenied):
        shop.as_("ada").templates.define("shared", sql="SELECT 1")
    late = shop.as_("ada").schedules.create(f"late{shop.number()}", "shared", every=3600, params={"x": 6})
    shop.as_("ada").schedules.fire(late.name)
    assert shop.as_(user).jobs.direct("shared", {"x": 7}).rows_affected == 1
    shop.root.turn()
    assert rows(shop.data, "SELECT x FROM t WHERE y = 'shared' ORDER BY x") == [(5,), (6,), (7,)]


# ---- secrets ----------------------------------------------------------------------------------------------------------

MENTION = '{{"note": {{"$secret": "{}"}}}}'


def test_params_of_a_definition_place_a_secret_that_the_definition_names(shop):
    secret, column = shop.secret(), f"p{shop.number()}"
    clauses = f"CONNECTION data SECRETS ({secret}) PARAMS = '{MENTION.format(secret)}' AS 'INSERT INTO t VALUES (:note, ''{column}'')'"
    job = shop.job("root", clauses)
    run = shop.started(job)
    assert run["state"] == "COMPLETED", run
    assert rows(shop.data, f"SELECT x FROM t WHERE y = '{column}'") == [(f"value of {secret}",)]
    assert shop.root.jobs.get(run["job_run_uuid"]).params == {"note": {"$secret": secret}}
    assert shop.started(job, MENTION.format(secret))["state"] == "COMPLETED", "the same again is nothing new"


def test_params_of_a_definition_do_not_mention_a_secret_that_it_does_not_name(shop):
    secret = shop.secret()
    mention = f"PARAMS = '{MENTION.format(secret)}'"
    with pytest.raises(SqlError, match=r"add SECRETS") as refused:
        shop.job("root", f"CONNECTION data {mention} AS 'SELECT :note'")
    assert (refused.value.sqlstate, refused.value.code) == ("42704", "unknown_secret")
    job = shop.job("root", "CONNECTION data PARAMS = '{\"note\": 1}' AS 'SELECT :note'")
    assert denied(shop.root, f"ALTER JOB {job} SET {mention}") == "42704"
    with pytest.raises(InvalidParams, match=r"add SECRETS"):
        shop.as_("ada").schedules.update(job, params={"note": {"$secret": secret}})
    with pytest.raises(InvalidParams, match=r"add SECRETS"):
        shop.root.templates.define("placing", sql="SELECT :note", default_params={"note": [{"$secret": secret}]})
    named = shop.job("root", f"CONNECTION data SECRETS ({secret}) {mention} AS 'SELECT :note'")
    assert denied(shop.root, f"ALTER JOB {named} SET SECRETS NONE") == "42704"


@pytest.mark.parametrize("named", [True, False], ids=["a secret that the job names", "another"])
def test_params_of_one_run_mention_no_secret(shop, named):
    secret, other = shop.secret(), shop.user()
    job = shop.job("root", f"CONNECTION data SECRETS ({secret}) PARAMS = '{{\"note\": \"\"}}' AS 'INSERT INTO t VALUES (:note, ''leak'')'")
    wanted = secret if named else shop.secret()
    shop.root.sql(f"GRANT EXECUTE ON JOB {job} TO {other}")
    mention = {"note": {"$secret": wanted}}
    for who in (other, "ada", "root"):
        with pytest.raises(SqlError, match="only the definition") as refused:
            shop.as_(who).sql(f"EXECUTE JOB {job} WITH PARAMS '{MENTION.format(wanted)}'")
        assert refused.value.sqlstate == "22023"
    for who in ("ada", "root"):
        with pytest.raises(InvalidParams):
            shop.as_(who).schedules.fire(job, mention)
    run = shop.root.sql(f"EXECUTE JOB {job}")[0].rows[0][0]
    for who in ("ada", "root"):
        with pytest.raises(InvalidParams):
            shop.as_(who).jobs.update(run, params=mention)
    shop.root.jobs.cancel(run)
    assert rows(shop.data, "SELECT count(*) FROM t WHERE y = 'leak'") == [(0,)]


@pytest.mark.parametrize("named", [True, False], ids=["a secret that the template names", "another"])
def test_who_enqueues_a_template_can_not_have_it_read_a_secret(shop, named):
    secret, user, name = shop.secret(), shop.user(), f"tell{shop.number()}"
    shop.root.templates.define(name, sql="INSERT INTO t VALUES (:note, 'told')", connection="data", secrets=[secret])
    wanted = secret if named else shop.secret()
    mention = {"note": {"$secret": wanted}, "deep": [{"er": {"$secret": wanted}}]}
    for view in (shop.as_(user), shop.as_("ada"), shop.root):
        for act in (
            lambda view=view: view.enqueue(name, mention),
            lambda view=view: view.enqueue(name, mention, priority=5),
            lambda view=view: view.enqueue_many([(name, mention)]),
            lambda view=view: view.group([(name, mention)]),
            lambda view=view: view.jobs.direct(name, mention),
        ):
            with pytest.raises(InvalidParams, match="only the definition"):
                act()
    if not named:
        with pytest.raises(InvalidParams, match="does not name"):
            shop.as_("ada").schedules.create(f"s{shop.number()}", name, every=3600, params=mention)
    assert rows(shop.data, "SELECT count(*) FROM t WHERE y = 'told'") == [(0,)]


def test_a_mention_that_came_into_the_store_otherwise_is_not_resolved(shop, monkeypatch):
    """The last wall: whatever the doors let in, a run is given the secrets that its definition names and no other."""
    secret = shop.secret()
    job = shop.job("root", "CONNECTION data PARAMS = '{\"note\": 1}' AS 'INSERT INTO t VALUES (:note, ''wall'')'")
    monkeypatch.setattr("rota.resources.schedules.refuse_mentions", lambda *_: None)
    run = shop.started(job, MENTION.format(secret))
    assert (run["status"], "does not name" in run["result_message"]) == ("DEAD_LETTER", True)
    assert rows(shop.data, "SELECT count(*) FROM t WHERE y = 'wall'") == [(0,)]


def test_who_places_a_secret_anew_must_be_allowed_to_use_it_and_becomes_the_owner(shop):
    secret = shop.secret()
    other = shop.user("user", "USE ON CONNECTION data")
    job = shop.job("root", f"CONNECTION data SECRETS ({secret}) PARAMS = '{{\"note\": \"\"}}' AS 'SELECT :note IS NULL'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}")
    change = f"ALTER JOB {job} SET PARAMS = '{MENTION.format(secret)}'"
    assert denied(shop.as_(other), change) == "42704"
    shop.as_(other).sql(f"ALTER JOB {job} SET PARAMS = '{{\"note\": 3}}'")
    assert shop.owner(job) == "root"
    shop.root.sql(f"GRANT USE ON SECRET {secret} TO {other}")
    shop.as_(other).sql(change)
    assert shop.owner(job) == other
    shop.root.sql(f"REVOKE USE ON SECRET {secret} FROM {other}")
    assert "may not use secret" in shop.started(job)["result_message"]


def test_a_schedule_of_a_shared_template_is_given_no_secret_that_its_author_may_not_use(shop):
    secret, name, other = shop.secret(), f"plain{shop.number()}", shop.user()
    shop.root.templates.define(name, sql="SELECT :note IS NULL", connection="data", secrets=[secret], default_params={"note": 1})
    schedule = shop.root.schedules.create(f"of_{name}", name, every=3600, organization="acme").name
    shop.root.sql(f"GRANT ALTER ON JOB {schedule} TO {other}")
    assert denied(shop.as_(other), f"ALTER JOB {schedule} SET PARAMS = '{MENTION.format(secret)}'") == "42704"
    shop.root.sql(f"GRANT USE ON SECRET {secret} TO {other}")
    shop.as_(other).sql(f"ALTER JOB {schedule} SET PARAMS = '{MENTION.format(secret)}'")
    shop.root.schedules.fire(schedule, organization="acme")
    shop.root.turn()
    assert runs_of(shop.root, schedule)[-1]["state"] == "COMPLETED"


def test_a_param_does_not_take_the_place_of_a_secret(shop):
    secret = shop.secret()
    job = shop.job("root", f"CONNECTION data SECRETS ({secret}) AS 'INSERT INTO t VALUES (:{secret}, ''{secret}'')'")
    run = shop.started(job, f'{{"{secret}": "mine"}}')
    assert (run["status"], "has the name of a secret" in run["result_message"]) == ("DEAD_LETTER", True)
    assert shop.started(job)["state"] == "COMPLETED"
    assert rows(shop.data, f"SELECT x FROM t WHERE y = '{secret}'") == [(f"value of {secret}",)]


def test_the_password_of_a_connection_is_given_to_no_job_that_may_not_use_it(shop):
    password = shop.secret()
    shop.root.sql(f"CREATE CONNECTION login{password} URL '{NOWHERE}' USER 'app' SECRET {password}")
    owner = shop.user("user", f"USE ON CONNECTION login{password}", f"USE ON SECRET {password}")
    job = shop.job(owner, f"CONNECTION login{password} SECRETS ({password}) AS 'SELECT 1'")
    shop.root.sql(f"REVOKE USE ON SECRET {password} FROM {owner}")
    assert "may not use secret" in shop.started(job)["result_message"]
    plain = shop.job(owner, f"CONNECTION login{password} AS 'SELECT 1'")
    assert "any more" not in str(shop.started(plain)["result_message"]), "to use the connection is enough"
    assert denied(shop.as_(owner), f"ALTER JOB {plain} SET SECRETS ({password})") == "42704"


def test_a_secret_of_the_job_itself_needs_no_grant_and_is_not_the_password_of_its_connection(shop):
    owner = shop.user("user", "USE ON CONNECTION data")
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.as_(owner).sql(f"ALTER JOB {job} SET SECRET own = ?", ["mine"])
    shop.as_(owner).sql(f"ALTER JOB {job} SET SECRETS (own) SET AS 'INSERT INTO t VALUES (:own, ''{job}'')'")
    assert shop.started(job)["state"] == "COMPLETED"
    assert rows(shop.data, f"SELECT x FROM t WHERE y = '{job}'") == [("mine",)]
    with pytest.raises(SqlError, match="only the definition"):
        shop.root.sql(f"EXECUTE JOB {job} WITH PARAMS '{MENTION.format('own')}'")


# ---- what is left behind of it ----------------------------------------------------------------------------------------


def test_a_role_that_a_job_runs_as_is_in_the_audit_trail_at_each_step(shop):
    shop.root.sql("CREATE ROLE reporter; CREATE ROLE writer")
    owner = shop.user("user", "USE ON CONNECTION far", "ROLE reporter", "ROLE writer")
    job = shop.job(owner, "MAX_RETRIES = 0 CONNECTION far RUN AS reporter AS 'SELECT 1'")
    shop.as_(owner).sql(f"ALTER JOB {job} SET RUN AS writer")
    run = shop.started(job)
    entries = [
        (event, actor, str(after))
        for event, actor, after in shop.root.sql(
            f"SELECT event, actor, after FROM sys.audit WHERE job_uuid = '{run['job_uuid']}' AND event <> 'SECRET_USED' ORDER BY audit_id"
        )[0].rows
    ]
    assert [entry[0] for entry in entries] == ["JOB_CREATED", "JOB_MODIFIED", "JOB_EXECUTED", "JOB_FAILED"]
    assert "reporter" in entries[0][2]
    assert "writer" in entries[1][2]
    assert entries[3][1] == "writer", "who ran it"
    assert shop.root.jobs.get(run["job_run_uuid"]).run_as == "writer"


def test_an_attempt_to_borrow_is_in_the_audit_trail_too(shop):
    owner, other = shop.user("user", "USE ON CONNECTION data"), shop.user()
    job = shop.job(owner, "CONNECTION data AS 'SELECT 1'")
    shop.root.sql(f"GRANT ALTER ON JOB {job} TO {other}")
    assert denied(shop.as_(other), f"ALTER JOB {job} SET EXEC '{shop.command}'") == "42501"
    found = shop.root.sql(f"SELECT outcome FROM sys.audit WHERE actor = '{other}'")[0].rows
    assert ("denied",) in found


# ---- what changes around a job ----------------------------------------------------------------------------------------


def test_a_role_is_not_forgotten_when_the_connection_becomes_one_without_roles(shop):
    shop.root.sql(f"CREATE ROLE moved; CREATE CONNECTION moved URL '{NOWHERE}' USER 'app'")
    job = shop.job("root", "CONNECTION moved RUN AS moved AS 'INSERT INTO t VALUES (1, ''without a role'')'")
    shop.root.sql(f"ALTER CONNECTION moved SET URL = 'sqlite:///{shop.data}' SET USER = NONE")
    run = shop.started(job)
    assert (run["status"], "SQLite has no roles" in run["result_message"]) == ("DEAD_LETTER", True)
    assert rows(shop.data, "SELECT count(*) FROM t WHERE y = 'without a role'") == [(0,)]


def test_a_store_that_was_promoted_asks_the_same_rights_of_the_same_owners(tmp_path):
    settings = Settings(sql_paths=str(tmp_path), synchronous="NORMAL")
    with closing(Rota(prepare(tmp_path / "rota.db"), settings=settings)) as rota:
        rota.users.create("root", role="system_manager")
        rota.users.create("bob")
        create_connection(rota, "data", tmp_path / "data.db", "t (x)")
        rota.sql("GRANT CREATE JOB TO PUBLIC; GRANT USE ON CONNECTION data TO PUBLIC")
        for who, name in (("bob", "bobs"), (Actor("zed"), "zeds"), ("root", "roots")):
            rota.acting_as(who).sql(
                f"CREATE JOB {name} {HOURLY} CONNECTION data AS 'INSERT INTO t VALUES (''{name}'')'; EXECUTE JOB {name}"
            )
        rota.store.promote(tmp_path / "copy.db", keep=True)
    with closing(Rota(tmp_path / "copy.db", settings=settings)) as copy:
        copy.turn()
        assert sorted(rows(tmp_path / "data.db", "SELECT x FROM t")) == [("bobs",), ("roots",), ("zeds",)]
        copy.sql("REVOKE USE ON CONNECTION data FROM PUBLIC")
        states = {name: executed(copy, name)["state"] for name in ("bobs", "zeds", "roots")}
        assert states == {"bobs": "FAILED", "zeds": "FAILED", "roots": "COMPLETED"}
