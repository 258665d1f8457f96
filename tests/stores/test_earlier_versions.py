"""Stores of every schema version: each is brought up to date by opening it, loses nothing, and runs on.

A landed migration is never edited: somebody's store was made by it.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import apsw
import pytest

from rota import Rota, Settings
from rota.model.findings import State
from rota.stores.postgres import migrate as postgres_migrate
from rota.stores.sqlite import migrate
from tests.support.clock import ManualClock
from tests.support.postgres import fresh_database, shared_server
from tests.support.runs import run_of
from tests.support.schema import STORES, migrated

ROWS = Path(__file__).with_name("versions")
JOB, WORKER = "019ca9450a007000800700000000000", uuid.uuid4().hex
"""How ids of the jobs in the rows begin, and a worker of this process's own: on PostgreSQL lock files are in a folder that all share."""

SERVER = {"durability", "clock"}
"""Findings about the server of the tests, which keeps nothing on disk, and about a clock that the test moves."""

LANDED = {
    "postgres/0001_wheel.sql": "f344c358fe607fac",
    "postgres/0002_door.sql": "2bba08c9621aceeb",
    "postgres/0003_hooks.sql": "732f9a9e88661893",
    "postgres/0004_guards.sql": "653f630c24f2516b",
    "postgres/0005_slots.sql": "4baba760310e5be8",
    "postgres/0006_reports.sql": "30acbc47069f8e56",
    "postgres/0007_frozen.sql": "1426c3cc2b3f2824",
    "postgres/0008_adhoc.sql": "955ef7b30d13aaf0",
    "postgres/0009_clocks.sql": "dbffdc9eba6f8213",
    "postgres/0010_run_as.sql": "38b20d368d22a650",
    "postgres/0011_then.sql": "f3e51931ea820aab",
    "postgres/0012_frozen_words.sql": "39026fe7baae8a83",
    "postgres/0013_lanes.sql": "19054c158b779066",
    "postgres/0014_lane_versions.sql": "78eef62247a6153b",
    "postgres/0015_minutes.sql": "d246e9576cc12cce",
    "postgres/0016_scan.sql": "2d983af6ad427b20",
    "postgres/0017_sql_jobs.sql": "427e0df90b2128d4",
    "postgres/0018_worker_facts.sql": "144aad113560ac56",
    "postgres/0019_grants.sql": "9166be68b8c11891",
    "postgres/0020_audit_events.sql": "72f54c3a170416b4",
    "postgres/0021_connections.sql": "9f3870144f75e35c",
    "postgres/0022_secrets.sql": "e3901c2db1474b82",
    "postgres/0023_kinds.sql": "5237bdf549bfda54",
    "postgres/0024_run_logs.sql": "55f72ecc88096e03",
    "sqlite/0001_wheel.sql": "ca1b65141e685d9b",
    "sqlite/0002_trust.sql": "7e7507dbfdf193bd",
    "sqlite/0003_time.sql": "e5a8638752ef17d9",
    "sqlite/0004_door.sql": "ac03b2496a6ec09c",
    "sqlite/0005_hooks.sql": "547e997423a51d5a",
    "sqlite/0006_lean.sql": "fba77df35b0872de",
    "sqlite/0007_slots.sql": "c2e75a002f7ae375",
    "sqlite/0008_reports.sql": "b5b5aac5fda2fde8",
    "sqlite/0009_frozen.sql": "4f1c308ea313f443",
    "sqlite/0010_adhoc.sql": "262fe2440155e577",
    "sqlite/0011_clocks.sql": "728856a1899f1e0b",
    "sqlite/0012_run_as.sql": "b2b2778e8f910e07",
    "sqlite/0013_then.sql": "58ffed02b2fcea5f",
    "sqlite/0014_lanes.sql": "884381c45fa9bb16",
    "sqlite/0015_lane_versions.sql": "e191a90911b84cf0",
    "sqlite/0016_minutes.sql": "eab58c44f9c9d0b7",
    "sqlite/0017_scan.sql": "fc7a7178fb5ed890",
    "sqlite/0018_sql_jobs.sql": "4389b838b6b623a6",
    "sqlite/0019_worker_facts.sql": "a9f435d9eb6ca9bf",
    "sqlite/0020_grants.sql": "97b815447e278b8f",
    "sqlite/0021_audit_events.sql": "bcae3f37b478f127",
    "sqlite/0022_connections.sql": "93acb9034484a71b",
    "sqlite/0023_secrets.sql": "1690b520846357ad",
    "sqlite/0024_kinds.sql": "5237bdf549bfda54",
    "sqlite/0025_run_logs.sql": "e65999af09c44009",
}
"""The digest of every migration. A new migration adds its line, which the test below prints."""


@pytest.mark.parametrize("path", sorted(STORES.glob("*/migrations/*.sql")), ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_a_landed_migration_is_never_edited(path):
    name, digest = f"{path.parts[-3]}/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    assert name in LANDED, f'a new migration: run `make schema`, and add this line to LANDED in this file:\n    "{name}": "{digest}",'
    assert digest == LANDED[name], f"{name} has landed, and stores were made by it: undo the change and add the next number instead"


def test_no_landed_migration_is_removed():
    assert {f"{path.parts[-3]}/{path.name}" for path in STORES.glob("*/migrations/*.sql")} >= LANDED.keys()


def rows(name: str, version: int) -> str:
    """Return the statements that fill a store of a version."""
    sections = re.split(r"^-- version (\d+)$", (ROWS / f"{name}.sql").read_text(), flags=re.MULTILINE)
    text = "".join(text for number, text in zip(sections[1::2], sections[2::2], strict=True) if int(number) <= version)
    return text.replace("019ca9450a0070008005000000000001", WORKER)


VERSIONS = [
    (name, number)
    for name, migrations in {"sqlite": migrate.migrations(), "postgres": postgres_migrate.migrations()}.items()
    for number in sorted(migrations)
]

CLEARED = {
    name: next(int(path.name[:4]) for path in (STORES / name / "migrations").glob("*_run_as.sql")) for name in ("sqlite", "postgres")
}
"""The version from which on no store has a role in it."""


@pytest.fixture(params=VERSIONS, ids=lambda version: "-".join(map(str, version)))
def left(request, tmp_path):
    """The address of a store of some version, with what somebody left in it."""
    with _left(*request.param, tmp_path) as address:
        yield address


@contextmanager
def _left(name: str, version: int, folder: Path) -> Iterator[Path | str]:
    if name == "sqlite":
        raw = apsw.Connection(str(folder / "rota.db"))
        raw.pragma("synchronous", "off")  # else each statement waits for the disk, for as long as the test takes
        migrated(raw, version)
        raw.execute(rows(name, version))
        raw.close()
        yield folder / "rota.db"
        return
    with fresh_database(like=_database_of(version)) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def _databases():
    """Drop the databases of all versions at the end: the server looks at each of them again and again, to clean it."""
    yield
    if _database_of.cache_info().currsize:
        with shared_server().connect() as raw:
            for name, version in VERSIONS:
                if name == "postgres":
                    raw.execute(f"DROP DATABASE IF EXISTS version_{version} WITH (FORCE)")
        _database_of.cache_clear()


@cache
def _database_of(version: int) -> str:
    """Return a database with a store of some version."""
    name, server = f"version_{version}", shared_server()
    with server.connect() as raw:
        raw.execute(f"CREATE DATABASE {name}")
    with server.connect(name, options="-c search_path=rota") as raw, raw.transaction():
        raw.execute("CREATE SCHEMA rota")
        for number, text in sorted(postgres_migrate.migrations().items()):
            if number <= version:
                raw.execute(text)
        raw.execute(f"INSERT INTO meta (key, value) VALUES ('schema', {version})")
        raw.execute(rows("postgres", version))
    return name


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rota(left, clock):
    made = Rota(left, clock=clock, seed=7, settings=Settings(beat=0.2))
    yield made
    made.close()


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: "-".join(map(str, version)))
def only_read(request, tmp_path_factory):
    """A store of some version that was brought up to date once, for tests that change nothing in it."""
    with (
        _left(*request.param, tmp_path_factory.mktemp("only_read")) as address,
        closing(Rota(address, clock=ManualClock(), seed=7, settings=Settings(beat=0.2))) as made,
    ):
        yield made


def test_a_store_of_any_version_is_brought_up_to_date_by_opening_and_runs_on(rota, clock):
    ran = []

    @rota.job
    def greet(name: str) -> str:
        ran.append(name)
        return name

    for _ in range(4):
        rota.turn()
    assert sorted(ran) == [f"job {number}" for number in (2, 4, 6, 7, 8)]
    assert ran.index("job 2") < ran.index("job 6")
    # The worker is gone: nobody holds its lock.
    rota._session.open().liveness.take(WORKER).release(clean=False)
    assert rota.store.recover().jobs == 1
    clock.advance(hours=1)
    for _ in range(4):
        rota.turn()
    assert sorted(ran[5:]) == ["job 5", "job 9", "schedule"]
    ends = {job.number: job.status for job in rota.jobs.list()}
    unhappy = {"JOB-2026-00002": "FAILED", "JOB-2026-00005": "FAILED"}
    assert ends == dict.fromkeys(ends, "COMPLETED") | unhappy
    assert [row.fate for row in rota.schedules.occurrences("hourly")] == ["FIRED", "MISSED"]
    # Earlier versions left their files open to others.
    assert {finding.name for finding in rota.store.repair() if finding.state is State.REPAIRED} <= {"permissions"}
    assert not [finding for finding in rota.store.doctor(full=True) if finding.state is not State.OK and finding.name not in SERVER]


def test_a_store_of_any_version_keeps_what_was_said_in_it(only_read):
    assert only_read.jobs.get(f"{JOB}1").status == "COMPLETED"
    assert run_of(only_read, f"{JOB}1").result == "job 1"


WITHOUT_IDS = [(name, number) for name, number in VERSIONS if number < {"sqlite": 20, "postgres": 19}[name]]


@pytest.mark.parametrize("left", WITHOUT_IDS, ids=lambda each: "-".join(map(str, each)), indirect=True)
def test_every_user_of_a_store_of_any_version_gets_an_id_of_its_own(rota):
    users = rota._session.open().store.users()
    ids = [uuid.UUID(user.id) for user in users]
    assert len(set(ids)) == len(users)
    assert {each.version for each in ids} == ({7} if ids else set())


EARLIER = [each for each in VERSIONS if each[1] < CLEARED[each[0]]]


@pytest.mark.parametrize("left", EARLIER, ids=lambda each: "-".join(map(str, each)), indirect=True)
def test_a_role_of_any_earlier_version_is_cleared_and_each_is_in_the_audit_trail(left, clock):
    _give_roles(left)
    rota = Rota(left, clock=clock, seed=7, settings=Settings(beat=0.2))
    try:
        assert rota.schedules.get("hourly").run_as is None
        jobs = rota.jobs.list(limit=100)
        assert {job.run_as for job in jobs} == {None}
        told = [entry for entry in rota.audit.list(limit=100) if entry.actor == "system" and entry.before == {"run_as": "root"}]
        assert {(entry.action, entry.subject) for entry in told} <= {
            ("schedule.edit", "schedule"),
            ("job.change", "job"),
            ("template.set", "template"),
        }
        assert {entry.subject_id for entry in told} >= {"hourly", "greet"}
        assert len([entry for entry in told if entry.subject == "job"]) == len(jobs)
        assert all(entry.after == {"run_as": None} for entry in told)
    finally:
        rota.close()


def _give_roles(left):
    """Write a role into every template, schedule and job, as an earlier version could have."""
    if isinstance(left, str):
        with shared_server().connect(left.rpartition("/")[2], options="-c search_path=rota") as raw, raw.transaction():
            for table in ("templates", "schedules", "job_facts"):
                raw.execute(f"UPDATE {table} SET run_as = 'root'")
        return
    raw = apsw.Connection(str(left))
    # A job has its role from its beginning; here it is given to jobs that have ended.
    frozen = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name = 'jobs_ended'").fetchall()
    for name, _ in frozen:
        raw.execute(f"DROP TRIGGER {name}")
    for table in ("templates", "schedules", "jobs"):
        raw.execute(f"UPDATE {table} SET run_as = 'root'")
    for _, text in frozen:
        raw.execute(text)
    raw.close()


def test_a_message_of_any_version_is_kept_with_all_that_is_known_of_it(only_read):
    kept = [
        (each.id, each.webhook, each.event, each.key, each.job, each.schedule, each.state, each.attempts, each.last_status, each.last_error)
        for each in only_read.webhooks.deliveries()
    ]
    run, webhook = "019ca945-0a00-7000-800b-000000000001", "019ca945-0a00-7000-800a-000000000001"
    message = (1, webhook, "run.completed", run, only_read.jobs.get(f"{JOB}1").id, None, "gave up", 3, 503, "no answer")
    assert kept == [message] * len(only_read.webhooks.list())
    for each in only_read.webhooks.deliveries():
        moments = (each.created_at, each.last_attempt_at, each.gave_up_at)
        assert [moment.microsecond for moment in moments if moment is not None] == [2, 3, 4]
