"""Schedules that depend on each other, under every order of events: nobody starts too early, and nobody waits for ever."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rota import Rota, Settings
from rota.errors import RotaError
from rota.model.findings import State
from rota.model.values import SECOND
from tests.faults import invariants
from tests.support.clock import ManualClock
from tests.support.mongodb import shared_set
from tests.support.mongodb_hand import mongodb_hand
from tests.support.proof import size

pytestmark = pytest.mark.prove

DEPENDS = {"a": (), "b": ("a",), "c": ("b",), "d": ("a", "b")}
"""Who depends on whom: a line of three, and one that joins."""
EVERY_M = {"a": 10, "b": 20, "c": 20, "d": 30}
name = st.sampled_from(sorted(DEPENDS))


class Family(RuleBasedStateMachine):
    """Four schedules whose jobs end as told, by a worker that turns when told."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rota-family-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
        self.rota = Rota(self.new_store(), clock=self.clock, settings=Settings(synchronous="NORMAL", retention=0), seed=7)
        self.fails: set[str] = set()
        for each in DEPENDS:
            self.rota.job(name=each, max_retries=0)(self._handler(each))
        for each, parents in DEPENDS.items():
            self.rota.schedules.create(each, each, every=EVERY_M[each] * 60, overlap="allow", depends_on=list(parents))

    def _handler(self, each):
        def run():
            if each in self.fails:
                raise ValueError("told to fail")

        return run

    def new_store(self) -> Path | str:
        """Return where an empty store is."""
        return self.folder / "rota.db"

    def reading(self) -> AbstractContextManager[apsw.Connection]:
        """Return a connection that sees the tables of the store."""
        return invariants.reading(self.folder / "rota.db")

    def teardown(self) -> None:
        self.rota.close()
        shutil.rmtree(self.folder)

    @rule(minutes=st.sampled_from([1, 5, 10, 10, 20, 65]))
    def advance(self, minutes):
        self.clock.advance(minutes=minutes)
        self.rota.turn()

    @rule(name=name)
    def let_it_fail(self, name):
        self.fails ^= {name}

    @rule(name=name)
    def hold_its_jobs(self, name):
        self.rota.templates.pause(name)

    @rule(name=name)
    def let_its_jobs_run(self, name):
        self.rota.templates.resume(name)
        self.rota.turn()

    @rule(name=name, verb=st.sampled_from(["enable", "pause", "disable"]))
    def set_state(self, name, verb):
        getattr(self.rota.schedules, verb)(name)

    @rule(name=name)
    def fire_by_hand(self, name):
        self.rota.schedules.fire(name)

    @rule(name=name, verb=st.sampled_from(["cancel", "retry"]), newest=st.integers(0, 3))
    def steer(self, name, verb, newest):
        jobs = [job for job in self.rota.jobs.list(limit=500) if job.job_type == name]
        if len(jobs) > newest:
            # It may have ended, or may live, already.
            with suppress(RotaError):
                getattr(self.rota.jobs, verb)(jobs[newest].id)

    @rule(minutes=st.sampled_from([0.5, 15, 45]))
    def step_back(self, minutes):
        if self.clock.now() - minutes * 60 * SECOND > 1_772_366_400 * SECOND:
            self.clock.step(minutes=-minutes)
            self.clock.advance(seconds=1)
            self.rota.turn()

    @invariant()
    def the_file_is_whole(self):
        invariants.check(self.folder / "rota.db")

    @invariant()
    def the_tables_are_as_they_should_be(self):
        """Ask all that follows of one reading: on a replica set it is a copy of every table."""
        with self.reading() as db:
            self.every_due_time_has_one_row_and_a_job_if_it_fired(db)
            self.nobody_started_before_what_it_depends_on_had_completed(db)
            self.nobody_waits_beyond_its_time(db)

    def every_due_time_has_one_row_and_a_job_if_it_fired(self, db):
        twice = "SELECT schedule_id, due_at FROM occurrences GROUP BY 1, 2 HAVING count(*) > 1"
        assert list(db.execute(twice)) == []
        overlap = """SELECT 1 FROM occurrences AS a JOIN occurrences AS b USING (schedule_id)
                      WHERE a.job_id IS NOT NULL AND b.job_id IS NULL AND a.due_at = b.last_due_at"""
        assert list(db.execute(overlap)) == []
        without = """SELECT 1 FROM occurrences AS o LEFT JOIN jobs AS j USING (job_id)
                      WHERE (o.fate IN ('FIRED', 'SKIPPED_DEPENDENCY')) <> (j.job_id IS NOT NULL)"""
        assert list(db.execute(without)) == []
        lost = """SELECT 1 FROM jobs AS j WHERE due_at IS NOT NULL AND attempt = 1
                     AND NOT EXISTS (SELECT 1 FROM occurrences AS o WHERE o.job_id = j.job_id)"""
        assert list(db.execute(lost)) == []

    def nobody_started_before_what_it_depends_on_had_completed(self, db):
        """A job of a due time that began had, of each schedule it depends on, a chain that completed since the due time before.

        Or one of a due time in between, whenever the clock said that it ended.
        """
        jobs = "SELECT job_type, due_at, attempt, started_at FROM jobs WHERE due_at IS NOT NULL AND started_at IS NOT NULL"
        ends: dict[str, list[int]] = {each: [] for each in DEPENDS}
        for job_type, finished_at, due_at in db.execute("SELECT job_type, finished_at, due_at FROM jobs WHERE status = 'COMPLETED'"):
            ends[job_type].append(max(finished_at, due_at or 0))
        for job_type, due_at, attempt, started_at in db.execute(jobs):
            since = due_at - EVERY_M[job_type] * 60 * SECOND
            for parent in DEPENDS[job_type] if attempt == 1 else ():
                assert any(since < end for end in ends[parent]), (job_type, due_at, started_at, parent)

    def nobody_waits_beyond_its_time(self, db):
        waits = "SELECT child FROM job_edges WHERE resolved_at IS NULL AND source = 'schedule' AND until IS NULL"
        assert list(db.execute(waits)) == []
        late = """SELECT 1 FROM job_edges AS e JOIN jobs AS j ON j.number = e.child
                   WHERE e.resolved_at IS NULL AND e.source = 'schedule' AND j.status <> 'PENDING'"""
        assert list(db.execute(late)) == []

    @rule()
    def wait_a_day(self):
        """After a day without new due times, everything that waited is over."""
        states = {view.name: view.state for view in self.rota.schedules.list()}
        for each in DEPENDS:
            self.rota.schedules.disable(each)
            self.rota.templates.resume(each)
        self.rota.turn()
        self.clock.advance(days=1, minutes=1)
        self.rota.turn()
        with self.reading() as db:
            assert list(db.execute("SELECT job_type, status FROM jobs WHERE finished_at IS NULL")) == []
        for each, state in states.items():
            if state != "DISABLED":
                self.rota.schedules.enable(each)


Family.TestCase.settings = settings(
    max_examples=size(15, prove=500),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
test_nobody_starts_too_early_and_nobody_waits_for_ever = Family.TestCase


class MongoFamily(Family):
    """The same on a replica set; what the invariants ask for is copied into tables."""

    def new_store(self) -> str:
        self.hand = mongodb_hand("machine")
        self.hand.empty()
        return shared_set().url("machine")

    def reading(self) -> AbstractContextManager[apsw.Connection]:
        states = {state["_id"]: state for name in ("job_live", "job_ends") for state in self.hand.find(name)}
        jobs = [fact | states[fact["_id"]] | {"number": fact["_id"]} for fact in self.hand.find("job_facts")]
        tables = {"jobs": jobs, "occurrences": self.hand.find("occurrences"), "job_edges": self.hand.find("job_edges")}
        db = apsw.Connection(":memory:")
        for name, documents in tables.items():
            columns = COLUMNS[name]
            db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            rows = [[document.get(column) for column in columns] for document in documents]
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        return closing(db)

    @invariant()
    def the_file_is_whole(self):
        store = self.rota._session.open().store
        found = store.checkup(now=self.clock.now(), machine=self.clock.now, full=True)
        assert [each for each in found if each.name == "rows" and each.state is State.PROBLEM] == []


COLUMNS = {
    "jobs": ("number", "job_id", "job_type", "status", "attempt", "due_at", "started_at", "finished_at"),
    "occurrences": ("schedule_id", "due_at", "last_due_at", "fate", "job_id"),
    "job_edges": ("child", "parent_root", "source", "resolved_at", "until"),
}
# A step costs ten times as much there, and the verbs between the statements are the same.
MongoFamily.TestCase.settings = settings(Family.TestCase.settings, max_examples=size(2, prove=100))
test_nobody_waits_for_ever_on_mongodb = MongoFamily.TestCase
