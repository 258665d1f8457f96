"""Random statements by actors of another organization: each has a result or an error of ours; nothing of others is seen or changed."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from msgspec import UNSET

from rota import Rota
from rota.errors import RotaError, SqlError
from rota.sql import syntax
from rota.sql.render import render
from tests.sql.generated import Statements
from tests.support.proof import proving, size

SEED = Random().getrandbits(32) if proving() else 11
COUNT = size(80, prove=5_000)
CANARY = "zebra-canary"
QUERIES = (
    "SELECT * FROM sys.jobs",
    "SELECT * FROM sys.job_runs WHERE job_name = 'theirs'",
    "SELECT count(*) FROM sys.job_runs WHERE owner = 'eve' OR organization = 'beta'",
    "SELECT * FROM sys.job_dependencies",
    "SELECT * FROM sys.occurrences",
    "SELECT * FROM sys.history UNION ALL SELECT * FROM sys.history",
)


class Attack(Statements):
    """Statements about few names, so that most of them are of something; those of SQL bodies and of waits are left out."""

    def __init__(self, seed: int, ids: list[str]) -> None:
        super().__init__(seed)
        self._ids = ids

    def name(self) -> str:
        return self.chance.choice(["mine", "mine", "theirs", "dropped", "new1", "new2", "report"])

    def uuid(self) -> UUID:
        return UUID(self.chance.choice(self._ids))

    def body(self) -> syntax.Body:
        return syntax.CallBody(("report",), (), ())

    def execute_job(self) -> syntax.ExecuteJob:
        return syntax.ExecuteJob(self.name(), self.params() if self.flip() else UNSET)

    def select(self) -> syntax.Select:
        return syntax.Select(self.chance.choice(QUERIES), ())

    def __call__(self) -> syntax.Statement:
        statement = super().__call__()
        return self.execute_job() if isinstance(statement, syntax.ExecuteJob) else statement


@pytest.fixture
def shared(rota: Rota) -> Rota:
    for organization in ("acme", "beta", "empty"):
        rota.organizations.create(organization)
    rota.users.create("root", role="system_manager")
    for name, organization, role in [
        ("ada", "acme", "admin"),
        ("bob", "acme", "user"),
        ("eve", "beta", "admin"),
        ("ben", "empty", "admin"),
    ]:
        rota.users.create(name, organization=organization, role=role)
    hourly = "SCHEDULE = EVERY 1 HOUR"
    rota.acting_as("ada").sql(f"CREATE JOB mine {hourly} CALL report(); EXECUTE JOB mine")
    theirs = rota.acting_as("eve")
    theirs.sql(f"CREATE JOB theirs {hourly} DESCRIPTION = '{CANARY}' CALL report('{CANARY}'); EXECUTE JOB theirs")
    theirs.sql(f"CREATE JOB dropped {hourly} DESCRIPTION = '{CANARY}' CALL report('{CANARY}'); EXECUTE JOB dropped")
    rota.turn()
    theirs.sql("DROP JOB dropped KEEP HISTORY")
    return rota


def beta(rota: Rota) -> list[object]:
    """Return all that the other organization has."""
    view = rota.acting_as("eve")
    return [view.sql(text)[0].rows for text in ("SELECT * FROM sys.jobs", "SELECT * FROM sys.job_runs ORDER BY number")]


@pytest.mark.prove
@pytest.mark.timeout(1800 if proving() else 300)
@pytest.mark.parametrize("who", ["ada", "bob", "ben"])
@pytest.mark.parametrize("atomic", [False, True], ids=["one by one", "atomic"])
def test_random_statements_of_others_change_nothing_and_learn_nothing(shared, who, atomic):
    before = beta(shared)
    ids = [
        row[0]
        for row in shared.sql(
            "SELECT job_uuid FROM sys.jobs UNION SELECT job_run_uuid FROM sys.job_runs UNION SELECT job_uuid FROM sys.job_runs"
        )[0].rows
    ]
    known = [
        row[0]
        for row in shared.acting_as("eve").sql("SELECT job_uuid FROM sys.job_runs UNION SELECT job_run_uuid FROM sys.job_runs")[0].rows
    ]
    attack, view, done = Attack(SEED, ids), shared.acting_as(who), 0
    for _ in range(COUNT):
        text = render(attack(), secrets=True)
        try:
            answer = repr(view.sql(text, atomic=atomic))
            done += 1
        except SqlError as error:
            answer = error.report()
        except RotaError as error:
            pytest.fail(f"{text} raises {error!r}, which is no SqlError")
        assert CANARY not in answer, text
        assert not [each for each in known if each in answer and each not in text], text
    assert done > COUNT / 50 or who == "bob"
    assert beta(shared) == before


def test_a_job_that_was_dropped_is_not_shown_explained_or_steered_by_its_id(rota):
    rota.sql("CREATE JOB j SCHEDULE = EVERY 1 HOUR CALL report(); EXECUTE JOB j")
    rota.turn()
    ((job, run),) = rota.sql("SELECT job_uuid, job_run_uuid FROM sys.job_runs")[0].rows
    rota.sql("DROP JOB j KEEP HISTORY")
    for text in (
        f"SHOW JOB {job}",
        f"SHOW CREATE JOB {job}",
        f"EXPLAIN JOB {job}",
        f"SHOW JOB '{job}'",
        "SHOW JOB j",
        f"FORECAST JOB {job}",
    ):
        with pytest.raises(SqlError) as refused:
            rota.sql(text)
        assert refused.value.sqlstate == "42704", text
    # What ran is still explained.
    assert any("COMPLETED" in row[0] for row in rota.sql(f"EXPLAIN JOB RUN {run}")[0].rows)


def test_a_plan_of_a_create_says_what_the_create_would_say(rota):
    rota.sql("CREATE JOB j SCHEDULE = EVERY 1 HOUR CALL report()")
    with pytest.raises(SqlError) as refused:
        rota.sql("PLAN CREATE OR ALTER JOB new SCHEDULE = EVERY 1 HOUR")
    assert refused.value.sqlstate == "42601"
    assert refused.value.message.startswith("there is no job new yet, and ")
    (planned,) = rota.sql("PLAN CREATE JOB IF NOT EXISTS j SCHEDULE = EVERY 5 MINUTES CALL report()")
    assert planned.rows == (), "the job is there, and stays as it is"
