"""The good inputs of the specification: each is carried out, and a check shows that it did what it says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rota import Rota
from rota.sql.parser import parse_script
from rota.sql.result import Result
from tests.support.clock import ManualClock

INPUTS = dict(enumerate((Path(__file__).parent / "good_inputs.txt").read_text().strip().split("\n----\n"), 1))
LATER = {
    "RUN AS reporter": "roles have tests of their own",
    "SET RUN AS role_name": "roles have tests of their own",
    "SHOW GRANTS": "grants have tests of their own",
    "SHOW ROLES": "roles have tests of their own",
    "GRANT": "grants have tests of their own",
    "REVOKE": "grants have tests of their own",
    "CREATE ROLE": "roles have tests of their own",
    "DROP ROLE": "roles have tests of their own",
    "SHOW SECRETS": "secrets have tests of their own",
    "ALTER JOB j SET SECRET": "secrets have tests of their own",
    "ALTER JOB j DROP SECRET": "secrets have tests of their own",
    "SHOW NODES": "clusters are not available yet",
    "SHOW SHARDS": "clusters are not available yet",
    "ALTER SYSTEM": "stored settings have tests of their own",
}
"""Statements, by how they begin, and clauses that need a later part, with the reason. SQL without a connection is kept DISABLED."""
WRITTEN, RUN = "d15f9cf4-2ab1-4e2c-9f33-0b0a6f4a0e0d", "019aec00-2ab1-7e2c-9f33-0b0a6f4a0e0d"
"""The id of a run in the inputs, and the one that takes its place: ids of runs begin with a time."""
START = datetime(2025, 12, 1, 12, tzinfo=UTC)
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"
SQL_ONE = "SCHEDULE = CRON '0 2 * * *' DISABLED AS 'SWEEP DATABASE'"


@pytest.fixture
def clock() -> ManualClock:
    """Before all moments of the inputs."""
    return ManualClock(START)


@pytest.fixture
def rota(rota: Rota) -> Iterator[Rota]:
    """A Rota with what the inputs name, but for the jobs."""

    @rota.job(name="p")
    def p() -> None: ...

    @rota.job(name="schema.proc")
    def proc(first: int, second: str, third: str | None) -> str:
        return f"{first} {second} {third}"

    @rota.job(name="takes_x")
    def takes_x(x: int = 0) -> int:
        return x + 1

    rota.calendars.update("holidays", ["2026-12-25"])
    return rota


class Outcome:
    """What an input has done."""

    def __init__(self, rota: Rota, clock: ManualClock, results: list[Result]) -> None:
        self.rota = rota
        self.clock = clock
        self.results = results

    @property
    def tags(self) -> list[str]:
        return [result.tag for result in self.results]

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.rota.sql(f'SHOW JOB "{name}"')[0].rows)

    def has(self, name: str, **facts: Any) -> dict[str, Any]:
        job = self.job(name)
        assert {field: job[field] for field in facts} == facts
        return job

    def rows(self, number: int) -> list[dict[str, Any]]:
        result = self.results[number]
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def names(self, text: str = "SHOW JOBS") -> list[str]:
        return [row[0] for row in self.rota.sql(text)[0].rows]

    def runs(self, name: str) -> list[dict[str, Any]]:
        (result,) = self.rota.sql(f'SHOW JOB RUNS FOR "{name}"')
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def due(self, name: str, **ahead: float) -> list[str]:
        """Return when a job is due from now on, also one that is disabled."""
        statement = self.rota.sql(f'SHOW CREATE JOB "{name}"')[0].rows[0][1]
        (planned,) = self.rota.sql("PLAN " + statement.replace(f"JOB {name}", "JOB planned").replace("STATE = DISABLED", ""))
        until = datetime.fromtimestamp(self.clock.now() / 1e6, UTC) + timedelta(**ahead)
        return [f"{at:%m-%d %H:%M:%S}" for at, _ in planned.rows if at <= until]


Check: TypeAlias = Callable[[Outcome], object]


def _sweep(seen: Outcome) -> None:
    job = seen.has("daily_sweep", description="Daily sweep/GC maintenance", body="SWEEP DATABASE", job_type="SQL", max_retries=3)
    assert job["state"] == "DISABLED", "there is no connection yet"
    assert "has none called default" in seen.results[0].notices[0].message
    assert seen.due("daily_sweep", days=2) == ["12-02 02:00:00", "12-03 02:00:00"]


def _nightly(seen: Outcome) -> None:
    facts = {"job_class": "LOCAL_SAFE", "partition_strategy": "ALL_SHARDS", "max_retries": 3, "retry_backoff_seconds": 60.0}
    seen.has("nightly", **facts, timeout_seconds=3600.0, on_completion="PRESERVE", description="description")
    seen.has("nightly", body="DELETE FROM t WHERE x = 'y'")
    assert seen.rota.sql("SHOW DEPENDENCIES FOR nightly")[0].rows == (("nightly", "a"), ("nightly", "b"))


def _single_shard(seen: Outcome) -> None:
    facts = {"partition_strategy": "SINGLE_SHARD", "partition_shard": "00000000-0000-0000-0000-000000000001", "state": "DISABLED"}
    seen.has("j", **facts, on_completion="DROP", body="procedure_name()", job_type="PROCEDURE")
    assert seen.due("j", days=90) == ["01-15 10:00:00"]


def _shard_set(seen: Outcome) -> None:
    seen.has("j", partition_strategy="SHARD_SET", partition_expression='["a","b"]', body="/usr/bin/true", job_type="EXTERNAL")
    assert seen.due("j", days=31)[:2] == ["01-01 00:00:00", "01-01 00:15:00"]
    ((starts, ends),) = seen.rota.sql("SELECT starts_at_ts, ends_at_ts FROM sys.jobs WHERE job_name = 'j'")[0].rows
    assert (starts, ends) == ("2026-01-01T00:00:00.000000Z", "2027-01-01T00:00:00.000000Z")


def _every(seconds: int, **facts: Any) -> Check:
    def check(seen: Outcome) -> None:
        seen.has("j", **facts)
        assert seen.rota.sql("SELECT interval_seconds FROM sys.jobs WHERE job_name = 'j'")[0].rows == ((seconds,),)

    return check


def _altered(seen: Outcome) -> None:
    job = seen.has("j", job_class="LEADER_ONLY", body="SELECT 1", description="stays", max_retries=9)
    assert job["version"] == 2, "one statement is one version"
    assert seen.due("j", days=1) == ["12-02 02:00:00"]


def _recreated(seen: Outcome) -> None:
    seen.has("j", body="schema.proc(1, 'x', NULL)", version=1, description=None, max_retries=3, state="ENABLED")
    seen.clock.advance(minutes=15)
    seen.rota.turn()
    (run,) = seen.runs("j")
    assert seen.rota.jobs.runs(run["job_run_uuid"])[0].result == "1 x None"


def _due(*moments: str, **ahead: float) -> Check:
    def check(seen: Outcome) -> None:
        assert seen.due("job_name", **ahead) == list(moments)

    return check


def _paused(seen: Outcome) -> None:
    job = seen.has("job_name", state="PAUSED")
    assert job["next_run_time"] is not None
    seen.clock.advance(hours=1)
    seen.rota.turn()
    assert seen.runs("job_name") == []
    assert seen.rota.sql("SHOW OCCURRENCES FOR job_name")[0].rows[0][4] == "SKIPPED_PAUSED"


def _executed(seen: Outcome) -> None:
    (run,) = seen.rows(0)
    assert run["state"] == "PENDING"
    seen.rota.turn()
    (ended,) = seen.runs("job_name")
    assert (ended["job_run_uuid"], ended["state"]) == (run["job_run_uuid"], "COMPLETED")


def _dropped(kept: int) -> Check:
    def check(seen: Outcome) -> None:
        assert "job_name" not in seen.names()
        runs = seen.rota.sql("SELECT state FROM sys.job_runs WHERE job_name = 'job_name' ORDER BY number")[0].rows
        assert runs == (("COMPLETED",), ("CANCELLED",))[:kept]

    return check


def _cancelled(seen: Outcome) -> None:
    job = seen.rota.jobs.get(RUN)
    assert (job.status, job.reason) == ("CANCELLED", "cancelled with SQL")


def _selected(seen: Outcome) -> None:
    assert [row["job_name"] for row in seen.rows(0)] == ["off", "soon", "late"], "NULL comes first"
    assert [row["state"] for row in seen.rows(0)] == ["DISABLED", "ENABLED", "ENABLED"]
    assert seen.rows(0)[1]["next_run_time"] == round((START + timedelta(minutes=5)).timestamp() * 1000)


def _by_job(seen: Outcome) -> None:
    assert seen.results[0].columns[:3] == ("job_run_uuid", "job_uuid", "job_name")
    assert seen.results[0].rows == (), "'...' is the uuid of no job"
    job_uuid = seen.job("j")["job_uuid"]
    for text in (job_uuid, job_uuid.replace("-", ""), job_uuid.upper()):
        (row,) = seen.rota.sql("SELECT * FROM sys.job_runs WHERE job_uuid = ?", [text])[0].rows
        assert row[1:3] == (job_uuid, "j")


def _by_quoted_name(seen: Outcome) -> None:
    assert [(row["job_name"], row["state"]) for row in seen.rows(0)] == [("daily_sweep", "COMPLETED")]


def _listed(seen: Outcome) -> None:
    assert [[row["job_name"] for row in seen.rows(number)] for number in (0, 1)] == [["daily_sweep", "other"], ["daily_sweep"]]
    assert dict(seen.results[2].rows)["body"] == "report()"
    assert [row["state"] for row in seen.rows(3)] == ["COMPLETED"] * 12
    assert len(seen.rows(4)) == 10
    numbers = [row["scheduled_time"] for row in seen.rows(3)]
    assert numbers == sorted(numbers, reverse=True), "the latest first"


def _shown(seen: Outcome) -> None:
    assert seen.rows(0)[0]["statement"].startswith("CREATE JOB daily_sweep\n")
    assert [row["fate"] for row in seen.rows(1)] == ["FIRED"]
    assert seen.results[2].rows == (("load", "daily_sweep"),)


def _reports(seen: Outcome) -> None:
    assert seen.results[0].columns[:2] == ("setting", "value")
    assert [row["event"] for row in seen.rows(1)] == ["JOB_EXECUTED", "JOB_EXECUTED", "JOB_CREATED"]
    assert dict(seen.results[2].rows)["jobs_enabled"] == 1
    assert dict(seen.results[3].rows)["jobs_completed"] == 1


def _explained(seen: Outcome) -> None:
    assert {row["condition"]: row["met"] for row in seen.rows(0)}["the job is enabled"] is True
    assert any("COMPLETED" in row["condition"] for row in seen.rows(1))


def _planned(seen: Outcome) -> None:
    changes = [(f"{row['due_at']:%m-%d %H}", row["change"]) for row in seen.rows(0)]
    assert changes[:2] == [("12-02 02", "removed"), ("12-02 03", "added")]
    assert {row["change"] for row in seen.rows(1)} == {"added"}
    assert {row["change"] for row in seen.rows(2)} == {"removed"}
    assert seen.names() == ["j"], "nothing is written"


def _foreseen(seen: Outcome) -> None:
    per_day = [len(rows) for rows in map(seen.rows, range(4))]
    assert per_day == [2, 2, 7, 6]
    assert {row["job_name"] for row in seen.rows(2)} == {"j"}
    assert f"{seen.rows(3)[0]['due_at']:%Y-%m-%d}" == "2026-03-28"


def _berlin(seen: Outcome) -> None:
    job = seen.has(
        "j", timezone="Europe/Berlin", catch_up="last", overlap="skip", params='{"a":1}', body=" INSERT INTO t VALUES ('it''s') "
    )
    assert job["job_type"] == "SQL"
    ((calendar, priority),) = seen.rota.sql("SELECT calendar, priority FROM sys.jobs WHERE job_name = 'j'")[0].rows
    assert (calendar, priority) == ("holidays", 75)
    assert seen.due("j", days=1) == ["12-02 01:30:00"]
    assert "JITTER = 10 MINUTES" in seen.rota.sql("SHOW CREATE JOB j")[0].rows[0][1]


def _steered(seen: Outcome) -> None:
    assert seen.tags == ["PAUSE JOB", "RESUME JOB", "EXECUTE JOB", "CANCEL JOB 1", "ENABLE JOB", "DISABLE JOB"]
    seen.has("j", state="DISABLED")
    assert [run["state"] for run in seen.runs("j")] == ["CANCELLED"]
    states = [each.after["state"] for each in reversed(seen.rota.audit.list(subject="schedule", event="JOB_MODIFIED"))]
    assert states == ["PAUSED", "ENABLED", "DISABLED"], "ENABLE of a job that is enabled changes nothing"


def _awaited(seen: Outcome) -> None:
    ((run, state),) = seen.results[0].rows
    assert state == "COMPLETED"
    assert seen.rota.jobs.get(run).params == {"x": 1}
    assert seen.rota.jobs.runs(run)[0].result == 2


def _counted(seen: Outcome) -> None:
    assert seen.results[0].rows == ((0,),)
    text = "WITH r AS (SELECT * FROM sys.job_runs) SELECT count(*) FROM r WHERE state = 'COMPLETED'"
    assert seen.rota.sql(text)[0].rows == ((1,),)


JOB = f"CREATE JOB job_name {HOURLY}"
A_AND_B = f"CREATE JOB a {HOURLY}; CREATE JOB b {HOURLY}"
ENDED = "CREATE JOB j SCHEDULE = CRON '0 2 * * *' CALL report(); EXECUTE JOB j"
CASES: dict[int, tuple[str, Check]] = {
    1: ("", _sweep),
    2: (A_AND_B, _nightly),
    3: ("", _single_shard),
    4: ("", _shard_set),
    5: ("", _every(90, job_class="QUORUM_REQUIRED", partition_strategy="DYNAMIC", partition_expression="SELECT 1", body="SELECT 1")),
    6: ("", _every(120, partition_strategy="DYNAMIC", partition_expression="hash(customer_id)")),
    7: ("CREATE JOB j SCHEDULE = EVERY 1 HOUR DESCRIPTION = 'stays' MAX_RETRIES = 9 CALL report()", _altered),
    8: ("CREATE JOB j SCHEDULE = EVERY 1 HOUR DESCRIPTION = 'goes' MAX_RETRIES = 9 CALL report()", _recreated),
    9: (JOB, _due("12-01 14:00:00", "12-01 16:00:00", hours=5)),
    10: (JOB, _due("01-15 10:00:00", days=90)),
    11: (JOB, _due("01-01 00:00:00", "01-01 02:00:00", days=30, hours=14, minutes=1)),
    12: (JOB, _paused),
    13: (
        f"{JOB}; PAUSE JOB job_name",
        lambda seen: seen.has("job_name", state="ENABLED", max_retries=5, retry_backoff_seconds=120.0, timeout_seconds=1800.0, version=3),
    ),
    14: (
        "CREATE JOB job_name SCHEDULE = AT '2026-01-15T10:00:00Z' CALL report()",
        lambda seen: seen.has("job_name", description="...", on_completion="DROP"),
    ),
    15: (f"{A_AND_B}; {JOB}", lambda seen: seen.has("job_name", depends_on="a, b")),
    16: (
        f"{A_AND_B}; CREATE JOB job_name SCHEDULE = EVERY 1 HOUR DEPENDS ON a, b CALL report()",
        lambda seen: seen.has("job_name", depends_on=None),
    ),
    17: (JOB, lambda seen: seen.has("job_name", job_class="LOCAL_SAFE", partition_strategy="SINGLE_SHARD", partition_shard="shard")),
    18: (JOB, lambda seen: seen.has("job_name", job_type="SQL", body="UPDATE t SET a = 1", state="DISABLED", template_version=2)),
    19: (JOB, lambda seen: seen.has("job_name", job_type="PROCEDURE", body="p()", state="ENABLED", template_version=2)),
    20: (JOB, lambda seen: seen.has("job_name", job_type="EXTERNAL", body="/opt/x --y", state="ENABLED")),
    21: (JOB, lambda seen: seen.has("job_name", state="DISABLED", max_retries=2, next_run_time=None)),
    22: (f"{JOB}; EXECUTE JOB job_name", _dropped(0)),
    23: (f"{JOB}; EXECUTE JOB job_name", _dropped(2)),
    24: (JOB, _executed),
    25: ("", _cancelled),
    26: ("", _cancelled),
    27: (
        (
            f"CREATE JOB late {HOURLY}; CREATE JOB off SCHEDULE = EVERY 1 HOUR DISABLED CALL report();"
            "CREATE JOB soon SCHEDULE = EVERY 5 MINUTES CALL report()"
        ),
        _selected,
    ),
    28: (ENDED, _by_job),
    29: (f"CREATE JOB daily_sweep {HOURLY}; CREATE JOB other {HOURLY}" + "; EXECUTE JOB daily_sweep" * 12, _listed),
    30: (f"CREATE JOB daily_sweep {HOURLY}; EXECUTE JOB daily_sweep", _by_quoted_name),
    31: (
        (
            f"CREATE JOB daily_sweep {HOURLY}; CREATE JOB load SCHEDULE = EVERY 1 DAY DEPENDS ON daily_sweep CALL report();"
            f"CREATE JOB j {HOURLY}"
        ),
        _shown,
    ),
    32: (ENDED, _reports),
    33: (f"CREATE JOB j {HOURLY}", _explained),
    34: ("CREATE JOB j SCHEDULE = CRON '0 2 * * *' CALL report()", _planned),
    35: (
        "CREATE JOB j SCHEDULE = CRON '0 2 * * *' CALL report(); CREATE JOB k SCHEDULE = CRON '0 5 * * *' CALL report()",
        _foreseen,
    ),
    41: ("", lambda seen: seen.has("hourly_report", job_type="SQL", body="CALL generate_hourly_sales_report()", schedule="every hour UTC")),
    42: ("", _berlin),
    43: ("", lambda seen: seen.has("weird name; -- x", body="SELECT ';'", schedule="every hour")),
    44: ("", lambda seen: seen.has("enabled", body="select 1", schedule="every day")),
    45: (f"CREATE JOB j {HOURLY}", _steered),
    46: ("CREATE JOB j SCHEDULE = EVERY 1 HOUR CALL takes_x()", _awaited),
    47: (ENDED, _counted),
    48: (f"CREATE JOB etl_extract {HOURLY}", lambda seen: seen.has("etl_transform", depends_on="etl_extract", job_type="SQL")),
    49: (
        "",
        lambda seen: seen.has("rebuild_shard", job_class="LOCAL_SAFE", partition_strategy="SINGLE_SHARD", partition_shard="shard_001"),
    ),
}
"""What must be there before each input, and what shows that it was carried out. Those that are not here are of a later part entirely."""
TURNS = {22, 23, 28, 29, 30, 31, 32, 33, 47}
"""Inputs before which runs have ended."""


def _now(text: str) -> list[str]:
    """Return the statements of an input that do not need a later part, without clauses that do."""
    statements = [text[each.start : each.end] for each in parse_script(text)]
    kept = [each for each in statements if not each.startswith(tuple(LATER))]
    for clause in LATER:
        kept = [each.replace(clause, "") if clause.startswith(("RUN", "SET")) else each for each in kept]
    return kept


def test_every_input_is_carried_out_or_of_a_later_part():
    assert len(INPUTS) == 49
    assert {number for number, text in INPUTS.items() if _now(text)} == set(CASES)
    statements = [text[each.start : each.end] for text in INPUTS.values() for each in parse_script(text)]
    unused = [begins for begins in LATER if not any(begins in each for each in statements)]
    assert unused == []


@pytest.mark.parametrize("number", CASES)
def test_a_good_input_does_what_it_says(rota, clock, number):
    before, check = CASES[number]
    if before:
        rota.sql(before)
    if number in {25, 26, 33}:
        rota.enqueue("report", job_id=RUN)
    if number in TURNS:
        if number == 31:
            clock.advance(hours=1)
        rota.turn()
        rota.turn()
    if number in {22, 23}:
        rota.sql("EXECUTE JOB job_name")
    with _running(rota, working=number == 46):
        seen = Outcome(rota, clock, [result for text in _now(INPUTS[number].replace(WRITTEN, RUN)) for result in rota.sql(text)])
    check(seen)


class _running:  # noqa: N801 - used as a function
    """A worker beside a statement that waits for its run."""

    def __init__(self, rota: Rota, *, working: bool) -> None:
        self._rota = rota
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work) if working else None

    def _work(self) -> None:
        while not self._stop.wait(0.02):
            self._rota.turn()

    def __enter__(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
