"""The table of privileges in the guide, cell by cell: who may do what, through every door, on every store, with and without the permit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.errors import NotFound, PermissionDenied, SqlError
from rota.model.access import PERMITS, Permit
from rota.model.gate import GIVES, Actor, Right, Role
from rota.model.grants import PRIVILEGES, TargetKind
from rota.surfaces.http import make_app
from tests.stores.makers import MAKERS, MongoMaker, PostgresMaker, SqliteMaker
from tests.support.clock import ManualClock
from tests.support.keys import key_file
from tests.surfaces.http.api_support import Caller

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "organizations.md"
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"
DENIED = {"42501", "42704"}


class Row(NamedTuple):
    """One line of the table."""

    privilege: str
    allows: str
    cells: dict[str, str]
    permit: Permit

    def __str__(self) -> str:
        return f"{self.privilege}: {self.allows}"


def table() -> list[Row]:
    """Return the table of the guide."""
    section = GUIDE.read_text().partition("\n## Privileges\n")[2].partition("\n## ")[0]
    lines = [[cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    heading = lines[0]
    rows = [dict(zip(heading, line, strict=True)) for line in lines[2:]]
    return [Row(row.pop("privilege"), row.pop("allows"), row, Permit(row.pop("permit"))) for row in rows]


TABLE = table()


class Action(NamedTuple):
    """What a line allows, through each door that has it. Each is given a Rota or a caller, a job and its run."""

    right: Right
    statement: str | None = None
    python: Callable[[Rota, str, str], object] | None = None
    http: tuple[str, str] | None = None
    also: str | None = None
    """A privilege that it needs beside."""
    needs_run: bool = False
    changes: bool = True
    """Whether it can be done to one job only once."""


ACTIONS = {
    "CREATE JOB": Action(Right.CREATE_JOBS, f"CREATE JOB new_{{job}} {HOURLY}"),
    "EXEC in a job": Action(
        Right.EXTERNAL, "CREATE JOB new_{job} SCHEDULE = EVERY 1 HOUR DISABLED EXEC '/usr/bin/true'", also="CREATE JOB"
    ),
    "EXECUTE JOB": Action(Right.EXECUTE_JOBS, "EXECUTE JOB {job}"),
    "CANCEL JOB": Action(
        Right.CANCEL,
        "CANCEL JOB {job}",
        lambda rota, _job, run: rota.jobs.cancel(run),
        ("POST", "/jobs/{run}/cancel"),
        needs_run=True,
    ),
    "ALTER JOB": Action(Right.ALTER_JOBS, "ALTER JOB {job} SET TIMEOUT = 5"),
    "SET SECRET of a job": Action(Right.ALTER_JOBS, "ALTER JOB {job} SET SECRET k = 'hunter2'"),
    "see a secret": Action(Right.READ, None, lambda rota, job, _run: rota.secrets.get(job), ("GET", "/secrets/{job}"), changes=False),
    "DROP JOB": Action(Right.DROP_JOBS, "DROP JOB {job}", needs_run=True),
    "SHOW JOB": Action(
        Right.READ, "SHOW JOB {job}", lambda rota, job, _run: rota.schedules.get(job), ("GET", "/schedules/{job}"), changes=False
    ),
    "see the connection": Action(
        Right.READ, None, lambda rota, job, _run: rota.connections.get(job), ("GET", "/connections/{job}"), changes=False
    ),
    "read logs": Action(
        Right.READ_LOG, None, lambda rota, _job, run: rota.jobs.log(run), ("GET", "/jobs/{run}/log"), needs_run=True, changes=False
    ),
}
COLUMNS = {"system_manager": "root", "admin": "ada", "owner": "own", "other user": "bob"}
WAYS = ("directly", "role", "PUBLIC")
"""How bob comes by a privilege."""


def about(privilege: str, job: str) -> str:
    """Return a privilege with the name of what it is on."""
    return f"{privilege} {job}" if " ON " in privilege else privilege


class Stage:
    """A store that two organizations share, its door, and a new job for each cell."""

    def __init__(self, rota: Rota, client: TestClient) -> None:
        self.rota = rota
        self.client = client
        self._numbers = itertools.count(1)
        self._callers: dict[tuple[str, tuple[Permit, ...]], Caller] = {}
        rota.organizations.create("acme")
        rota.organizations.create("beta")
        rota.users.create("root", organization="acme", role="system_manager")
        for name, organization, role in [
            ("ada", "acme", "admin"),
            ("own", "acme", "user"),
            ("bob", "acme", "user"),
            ("cid", "acme", "user"),
            ("eve", "beta", "admin"),
            ("fay", "beta", "user"),
        ]:
            rota.users.create(name, organization=organization, role=role)
        rota.acting_as("root").roles.create("ops")

    def new_job(self, row: Row) -> tuple[str, str]:
        """Return the name of a new job of own's, and the id of a run of it that waits; a line about secrets gets one of that name.

        The id is empty where the line is about no run.
        """
        job = f"j{next(self._numbers)}"
        owner = self.rota.acting_as(Actor("own", "acme", Role.ADMIN))
        owner.sql(f"CREATE JOB {job} {HOURLY}")
        self.connect(row.privilege, job)
        if row.privilege == "USE ON SECRET":
            owner.sql(f"CREATE SECRET {job} VALUE ?", ["hunter2"])
        return job, str(owner.sql(f"EXECUTE JOB {job}")[0].rows[0][0]) if ACTIONS[row.allows].needs_run else ""

    def grant_row(self, row: Row, job: str, way: str = "directly") -> None:
        """Grant bob what a line is about, and what it needs beside."""
        also = ACTIONS[row.allows].also
        for privilege in [row.privilege] if also is None else [row.privilege, also]:
            self.grant(privilege, job, way)

    def grant(self, privilege: str, job: str, way: str = "directly") -> None:
        """Grant bob a privilege."""
        root = self.rota.acting_as("root")
        if way == "role":
            root.sql("GRANT ROLE ops TO bob")
        root.sql(f"GRANT {about(privilege, job)} TO {({'directly': 'bob', 'role': 'ROLE ops'}).get(way, way)}")

    def connect(self, privilege: str, job: str) -> None:
        """Create the connection that a privilege is about, if it is about one."""
        if privilege.endswith("ON CONNECTION") and all(each.name != job for each in self.rota.connections.list()):
            self.rota.connections.create(job, "sqlite:////data/x.db", organization="acme")

    def caller(self, name: str, permits: tuple[Permit, ...]) -> Caller:
        if (name, permits) not in self._callers:
            self._callers[name, permits] = Caller(self.client, self.rota.tokens.create(name, user=name, permits=permits).secret)
        return self._callers[name, permits]


def python(stage: Stage, action: Action, name: str, permits: tuple[Permit, ...], job: str, run: str) -> bool | None:
    """Say whether somebody may, by Python; None: there is no such call."""
    if action.python is None:
        return None
    try:
        action.python(stage.rota.acting_as(actor(stage, name, permits)), job, run)
    except (NotFound, PermissionDenied):
        return False
    return True


def sql(stage: Stage, action: Action, name: str, permits: tuple[Permit, ...], job: str, run: str) -> bool | None:
    """Say whether somebody may, by SQL; None: there is no such statement."""
    if action.statement is None:
        return None
    try:
        stage.rota.acting_as(actor(stage, name, permits)).sql(action.statement.format(job=job, run=run))
    except SqlError as error:
        if error.sqlstate not in DENIED:
            raise
        return False
    return True


def http(stage: Stage, action: Action, name: str, permits: tuple[Permit, ...], job: str, run: str) -> bool | None:
    """Say whether somebody may, with a token over HTTP; None: there is no such route."""
    if action.http is None:
        return None
    method, path = action.http
    answer = stage.caller(name, permits)(method, path.format(job=job, run=run))
    assert answer.status_code in {200, 202, 403, 404}, answer.text
    return answer.status_code < 300


def http_sql(stage: Stage, action: Action, name: str, permits: tuple[Permit, ...], job: str, run: str) -> bool | None:
    """Say whether somebody may, by a statement over HTTP; None: there is no such statement."""
    if action.statement is None:
        return None
    answer = stage.caller(name, permits)("POST", "/sql", {"sql": action.statement.format(job=job, run=run)})
    assert answer.status_code == 200 or answer.json()["sqlstate"] in DENIED, answer.text
    return answer.status_code == 200


DOORS = {"python": python, "sql": sql, "http": http, "http sql": http_sql}
ALL = (Permit.MANAGE,)


def actor(stage: Stage, name: str, permits: tuple[Permit, ...]) -> Actor | str:
    """Return who comes with a token: all of what the user may, or what the permits are for."""
    if Permit.MANAGE in permits:
        return name
    user = stage.rota.users.get(name)
    return Actor(name, user.organization, user.role, operations=frozenset(each for each, needed in PERMITS.items() if needed in permits))


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.name)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("privileges")
    maker = request.param(folder)
    settings = Settings(master_key_file=str(key_file(folder)), synchronous="NORMAL")
    rota = Rota(maker.url, clock=ManualClock(), settings=settings, seed=7)

    @rota.job(name="report")
    def report() -> None: ...

    with TestClient(make_app(rota), raise_server_exceptions=False) as client:
        yield Stage(rota, client)
    rota.close()
    maker.close()


@pytest.fixture(autouse=True)
def nothing_granted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin and end each cell without grants."""
    yield
    if "stage" in request.fixturenames:
        rota = request.getfixturevalue("stage").rota
        for grant in rota.grants.list():
            rota.grants.delete(grant.id, cascade=True)


class Cell:
    """What a line allows, tried on one job until somebody may and has changed it; then on a new one."""

    def __init__(self, stage: Stage, row: Row, way: str | None = None) -> None:
        self.stage = stage
        self.row = row
        self.way = way
        """How bob comes by the privilege; None: not at all."""
        self._job: tuple[str, str] | None = None

    def tried(self, name: str, permits: tuple[Permit, ...] = ALL) -> dict[str, bool]:
        """Return whether somebody may, by each door that has it."""
        action, answers = ACTIONS[self.row.allows], {}
        for door, attempt in DOORS.items():
            answer = attempt(self.stage, action, name, permits, *self._ready())
            if answer is not None:
                answers[door] = answer
            if answer and action.changes:
                self._job = None
        assert answers
        return answers

    def _ready(self) -> tuple[str, str]:
        """Return the job and its run: refused attempts have left it as it was."""
        if self._job is None:
            self._job = self.stage.new_job(self.row)
            if self.way is not None:
                self.stage.grant_row(self.row, self._job[0], self.way)
        return self._job


in_sql = pytest.mark.parametrize("stage", [SqliteMaker, PostgresMaker], indirect=True, ids=["sqlite", "postgres"])
on_mongodb = pytest.mark.parametrize("stage", [MongoMaker], indirect=True, ids=["mongodb"])
"""A cell takes ten times as long there, and who may is decided above the store: what has the most cells is tried in one way."""


# ---- the cells ---------------------------------------------------------------------------------------------------------


def test_the_table_has_every_privilege_that_gives_a_right_and_every_action():
    given = {(privilege.partition(" ON ")[0], ACTIONS[allows].right) for privilege, allows, *_ in TABLE}
    # USE gives no right to act: it is asked for where a job names the thing.
    assert given == {(str(privilege), right) for privilege, rights in GIVES.items() for right in rights} | {("USE", Right.READ)}
    forms = {f"{privilege} ON JOB" if kind is TargetKind.JOB else str(privilege) for privilege in GIVES for kind in PRIVILEGES[privilege]}
    assert {row.privilege for row in TABLE} == forms | {"USE ON CONNECTION", "USE ON SECRET"}
    assert {row.permit for row in TABLE} == {PERMITS[ACTIONS[row.allows].right] for row in TABLE}
    assert all(row.permit is PERMITS[ACTIONS[row.allows].right] for row in TABLE)
    assert all(set(row.cells) == {*COLUMNS, "granted"} for row in TABLE)


@pytest.mark.parametrize(("row", "column"), [(row, column) for row in TABLE for column in COLUMNS], ids=str)
def test_who_may_without_a_grant(stage, row, column):
    expected = {"yes": True, "no": False}[row.cells[column]]
    assert set(Cell(stage, row).tried(COLUMNS[column]).values()) == {expected}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_who_may_with_a_grant(stage, row, way):
    assert row.cells["granted"] == "yes"
    assert set(Cell(stage, row, way).tried("bob").values()) == {True}


@in_sql
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_nobody_else_may_by_that_grant(stage, row, way):
    nobody_else_may(stage, row, way)


@on_mongodb
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_nobody_else_may_by_that_grant_on_mongodb(stage, row):
    nobody_else_may(stage, row, "directly")


def nobody_else_may(stage: Stage, row: Row, way: str) -> None:
    cell = Cell(stage, row, way)
    for name in ("eve", "fay", *(() if way == "PUBLIC" else ("cid",))):
        # Another organization's admin may create jobs there, and no user may read logs by their own role.
        expected = {name == "eve" and row.allows == "CREATE JOB"}
        assert set(cell.tried(name).values()) == expected, name


@in_sql
@pytest.mark.parametrize("column", ["system_manager", "admin", "granted"])
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_token_may_with_the_permit_and_not_without(stage, row, column):
    a_token_may(stage, row, column)


@on_mongodb
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_token_may_with_the_permit_and_not_without_on_mongodb(stage, row):
    a_token_may(stage, row, "granted")


def a_token_may(stage: Stage, row: Row, column: str) -> None:
    name, way = ("bob", "directly") if column == "granted" else (COLUMNS[column], None)
    cell = Cell(stage, row, way)
    for permit in Permit:
        expected = permit in {row.permit, Permit.MANAGE} and row.cells[column] == "yes"
        assert set(cell.tried(name, (permit,)).values()) == {expected}, permit


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_revoke_ends_it(stage, row):
    job, run = stage.new_job(row)
    stage.grant_row(row, job)
    stage.rota.acting_as("ada").sql(f"REVOKE {about(row.privilege, job)} FROM bob")
    for attempt in DOORS.values():
        assert attempt(stage, ACTIONS[row.allows], "bob", ALL, job, run) in {False, None}


@pytest.mark.parametrize("row", [row for row in TABLE if " ON " in row.privilege], ids=str)
def test_a_grant_on_one_thing_is_about_no_other(stage, row):
    granted, _ = stage.new_job(row)
    stage.grant(row.privilege, granted)
    assert set(Cell(stage, row).tried("bob").values()) == {False}
