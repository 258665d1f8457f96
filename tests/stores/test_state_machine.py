"""A store and a dict, driven by the same hand: after every step they must agree."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rota.errors import AlreadyEnded, IllegalMove, KeyTaken, StillLive
from rota.model.decide import Completed, Crashed, Failed, Interrupted, Released, Skipped, Snoozed, Stopped, TimedOut
from rota.model.states import RUN_END, Status
from rota.model.values import SECOND, instant
from rota.ports.store import Where
from rota.ports.turns import Choice
from tests.stores.desk import ANNA, Desk, inside
from tests.stores.makers import MongoMaker, PostgresMaker, SqliteMaker
from tests.stores.queue_model import LIVE, WAITING, ModelJob, Queue
from tests.support.proof import size

PICK = st.integers(0, 10_000)
PRIORITIES = st.sampled_from([25, 50, 50, 75])
ORGANIZATIONS = st.sampled_from(["default", "default", "acme"])
DELAYS = st.sampled_from([0, 0, 0, 5, 60])
TTLS = st.sampled_from([None, None, None, 3, 30])
KEYS = st.sampled_from([None, None, None, "k1", "k2"])
OUTCOMES = st.sampled_from(
    [
        None,
        Completed('"ok"'),
        Failed("x"),
        Failed("x", permanent=True),
        Failed("x", after_s=3.0),
        TimedOut(1.0),
        Released(),
        Snoozed(10.0),
        Skipped("x"),
        Stopped(),
    ]
)


def a_row():
    return st.fixed_dictionaries(
        {
            "priority": PRIORITIES,
            "organization_id": ORGANIZATIONS,
            "delay": DELAYS,
            "ttl": TTLS,
            "unique_key": KEYS,
            "max_retries": st.integers(0, 2),
        }
    )


class QueueMachine(RuleBasedStateMachine):
    """One caller, one worker after another, and a clock that is moved."""

    makes = SqliteMaker

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-machine-"))
        self.maker = self.makes(self.folder)
        self.desk = Desk(self.maker.open())
        self.model = Queue()
        self.held = {}
        self.paused = set()
        self.ended = {}
        self.chains, self.runs = {}, {}
        """How jobs were when their chain or their run was read last: each is read again when they have changed, and at the end."""

    def teardown(self):
        self.chains.clear()
        self.a_chain_has_at_most_one_live_job_and_it_is_its_tail()
        self.runs.clear()
        self.a_run_is_there_exactly_if_the_job_started_and_ends_with_it()
        counted, real = self.maker.totals()
        self.maker.close()
        shutil.rmtree(self.folder)
        assert counted == real

    # ---- steps ------------------------------------------------------------------------------------------------

    @initialize(rows=st.lists(a_row(), min_size=1, max_size=4))
    def start_with_some(self, rows):
        self._enqueue(rows)

    @rule(row=a_row())
    def enqueue(self, row):
        self._enqueue([row])

    @rule(rows=st.lists(a_row(), min_size=2, max_size=6))
    def enqueue_many(self, rows):
        self._enqueue(rows)

    @rule(outcomes=st.lists(OUTCOMES, max_size=4), want=st.integers(0, 4), again=st.booleans())
    def turn(self, outcomes, want, again):
        jobs = list(self.held.values())[: len(outcomes)]
        endings, done, plain, ends = [], [], [], []
        for job, outcome in zip(jobs, outcomes, strict=False):
            ending = self.desk.ending(job, outcome or Completed())
            model = self.model.jobs[job.job_id]
            end = (model, ending.if_cancelled if model.asked_to_stop else ending.transition, ending.successor_id)
            if outcome is None:
                done.append((job.number, self.desk.now))
                plain.append(end)
            else:
                endings.append(ending)
                ends.append(end)
            del self.held[job.job_id]
        request = self.desk.request(want, done=done, endings=endings, choose=self._choose)
        turned = self.desk.store.turn(request)
        assert (turned.late, turned.refused) == ([], [])
        # plain completions are written before the others
        self.model.end(plain, self.desk.now)
        self.model.end(ends, self.desk.now)
        self._rest_of_turn(want, turned)
        if again:
            request.want = 0
            repeated = self.desk.store.turn(request)
            assert repeated.late == []
            self._rest_of_turn(0, repeated)

    @rule(pick=PICK)
    def cancel(self, pick):
        job = self._any(pick)
        if job is None:
            return
        live = next((each for each in self.model.chain(job.root) if each.status in LIVE), None)
        if live is None:
            tail = self.model.tail(job.root)
            if tail.status == "CANCELLED":
                assert inside(self.desk.store.cancel(job.id, actor=ANNA, now=self.desk.now).id) == tail.id
            else:
                with pytest.raises(AlreadyEnded):
                    self.desk.store.cancel(job.id, actor=ANNA, now=self.desk.now)
            return
        self.desk.store.cancel(job.id, actor=ANNA, now=self.desk.now)
        if live.status == "RUNNING":
            live.asked_to_stop = True
        else:
            self.model.end_waiting([live], "CANCELLED")

    @rule(pick=PICK, priority=PRIORITIES)
    def change(self, pick, priority):
        job = self._any(pick)
        if job is None:
            return
        live = next((each for each in self.model.chain(job.root) if each.status in LIVE), None)
        if live is None or live.status == "RUNNING":
            with pytest.raises((AlreadyEnded, IllegalMove)):
                self.desk.store.change(job.id, actor=ANNA, now=self.desk.now, priority=priority)
            return
        self.desk.store.change(job.id, actor=ANNA, now=self.desk.now, priority=priority)
        if live.priority != priority:
            if live.status == "QUEUED":
                live.position = self.model.last(live.organization, priority) + 100
            live.priority, live.held = priority, None

    @precondition(lambda self: len(self.model.of("QUEUED")) >= 2)
    @rule(pick=PICK, other=PICK, where=st.sampled_from(["front", "before", "after"]))
    def move(self, pick, other, where):
        queued = self.model.queued()
        job = queued[pick % len(queued)]
        own = [each for each in queued if (each.organization, each.priority) == (job.organization, job.priority) and each is not job]
        if not own and where != "front":
            return
        target = own[other % len(own)] if own else None
        wanted = [each.id for each in own]
        place = 0 if where == "front" else wanted.index(target.id) + (where == "after")
        wanted.insert(place, job.id)
        self.desk.store.move(
            job.id,
            actor=ANNA,
            now=self.desk.now,
            front=where == "front",
            before=target.id if where == "before" else None,
            after=target.id if where == "after" else None,
        )
        positions = {inside(each.id): each.position for each in self.desk.store.queue(limit=1000)}
        assert [job_id for job_id in self.desk.order() if job_id in set(wanted)] == wanted
        assert len({positions[job_id] for job_id in wanted[max(0, place - 1) : place + 2]}) == len(wanted[max(0, place - 1) : place + 2])
        if job.position != positions[job.id]:
            job.held = None
        for each in queued:
            if each.id in set(wanted):
                each.position = positions[each.id]

    @rule(pick=PICK)
    def retry(self, pick):
        job = self._any(pick)
        if job is None:
            return
        tail, new_id = self.model.tail(job.root), self.desk.id()
        refusal = None
        if tail.status in LIVE:
            refusal = StillLive
        elif tail.status == "COMPLETED":
            refusal = AlreadyEnded
        elif tail.key and self.model.holder(f"{tail.key}"):
            refusal = KeyTaken
        if refusal is not None:
            with pytest.raises(refusal):
                self.desk.store.retry(job.id, new_id=new_id, actor=ANNA, now=self.desk.now)
            return
        self.desk.store.retry(job.id, new_id=new_id, actor=ANNA, now=self.desk.now)
        self.model.retry(tail, new_id, self.desk.now)

    @rule(count=st.integers(1, 4), mode=st.sampled_from(["sequential", "parallel"]), rule_=st.sampled_from(["stop", "continue", "skip"]))
    def group(self, count, mode, rule_):
        rows = [self.desk.row(max_retries=1) for _ in range(count)]
        group = inside(self.desk.grouped(rows, mode, rule_).id)
        self.model.groups[group] = (mode, rule_)
        before = None
        for sequence, row in enumerate(rows, 1):
            waits = mode == "sequential" and before is not None
            self.model.add(
                ModelJob(
                    row.job_id,
                    row.job_id,
                    "PENDING" if waits else "QUEUED",
                    50,
                    "default",
                    self.desk.now,
                    row.run_at,
                    self.model.born,
                    waits_for=before if waits else None,
                    group=group,
                    sequence=sequence,
                )
            )
            before = row.job_id

    @precondition(lambda self: self.model.groups)
    @rule(pick=PICK)
    def cancel_group(self, pick):
        group = list(self.model.groups)[pick % len(self.model.groups)]
        self.desk.store.cancel_group(group, actor=ANNA, now=self.desk.now)
        members = [job for job in self.model.jobs.values() if job.group == group]
        for job in members:
            if job.status == "RUNNING":
                job.asked_to_stop = True
        self.model.end_waiting([job for job in members if job.status in WAITING], "CANCELLED")

    @rule(name=st.sampled_from(["default", "acme"]))
    def pause(self, name):
        self.desk.store.pause("organization", name, actor=ANNA, now=self.desk.now)
        self.paused.add(name)

    @rule(name=st.sampled_from(["default", "acme"]))
    def resume(self, name):
        self.desk.store.resume("organization", name, actor=ANNA, now=self.desk.now)
        if name in self.paused:
            self.paused.discard(name)
            for job in self.model.of("QUEUED"):
                if job.held == f"organization:{name}":
                    job.held = None

    @rule(seconds=st.sampled_from([1, 5, 60, 200, -2]))
    def pass_time(self, seconds):
        self.desk.advance(seconds)

    @rule(seconds=st.sampled_from([0, 10, 200]), limit=st.integers(1, 5))
    def purge(self, seconds, limit):
        """What is old goes, and whoever repairs afterwards finds nothing torn."""
        before, cursor, gone = self.desk.now - seconds * SECOND, None, 0
        there = len(self.model.jobs)
        self.model.purge(before, lambda job: instant(self.desk.job(job.id).finished_at))
        while True:
            batch = self.desk.store.purge(before=before, limit=limit, now=self.desk.now, dry_run=False, cursor=cursor)
            cursor, gone = batch.cursor, gone + batch.jobs
            if cursor is None:
                break
        assert gone == there - len(self.model.jobs)
        assert self.desk.store.repair(since=0) == []
        self.ended = {job_id: job for job_id, job in self.ended.items() if job_id in self.model.jobs}

    @rule(stopping=st.booleans(), twice=st.booleans())
    def lose_the_worker(self, stopping, twice):
        """The process dies; another one opens the store, recovers, and goes on as a new worker."""
        lost, self.held = self.desk.worker, {}
        order = self.desk.order()
        self.desk.store.close()
        self.desk.store = self.maker.open()
        assert self.desk.order() == order
        outcome = Interrupted() if stopping else Crashed()
        held = self.desk.held(lost)
        endings = [self.desk.ending(each.job, outcome) for each in held]
        assert len(self.desk.store.recover(endings, held, now=self.desk.now)) == len(held)
        if twice:
            assert self.desk.store.recover(endings, held, now=self.desk.now) == {}
        ends = []
        for ending, each in zip(endings, held, strict=True):
            model = self.model.jobs[each.job.job_id]
            ends.append((model, ending.if_cancelled if model.asked_to_stop else ending.transition, ending.successor_id))
        assert {end[0].id for end in ends} == {job.id for job in self.model.of("RUNNING")}
        self.model.end(ends, self.desk.now)
        self.desk.worker = self.desk.id()

    # ---- what must hold after every step ----------------------------------------------------------------------

    @invariant()
    def every_job_is_as_the_model_says(self):
        found = {inside(job.id): job for _, job in self.desk.store.find(Where(), limit=10_000)}
        assert set(found) == set(self.model.jobs)
        for job_id, model in self.model.jobs.items():
            job = found[job_id]
            assert _facts(job) == _model_facts(model), model
            if job.status.ended:
                assert self.ended.setdefault(job_id, job) == job

    @invariant()
    def the_order_is_the_models(self):
        assert self.desk.order() == self.model.order()

    @invariant()
    def a_chain_has_at_most_one_live_job_and_it_is_its_tail(self):
        states = defaultdict(list)
        for job in self.model.jobs.values():
            states[job.root].append(job.status)
        for root in [root for root, found in states.items() if self.chains.get(root) != found]:
            self.chains[root] = states[root]
            chain = self.desk.store.chain(root)
            assert all(job.status.ended for job in chain[:-1])
            assert [job.attempt for job in chain] == list(range(1, len(chain) + 1))
            assert chain[-1].status not in {Status.FAILED, Status.TIMED_OUT}

    @invariant()
    def a_run_is_there_exactly_if_the_job_started_and_ends_with_it(self):
        for job_id, model in self.model.jobs.items():
            if self.runs.get(job_id) == (state := (model.started, model.status)):
                continue
            self.runs[job_id] = state
            run = self.desk.store.run(job_id)
            assert (run is not None) is model.started
            if run is not None:
                assert run.status == (None if model.status == "RUNNING" else RUN_END[Status(model.status)])

    @invariant()
    def counts_add_up(self):
        stats = self.desk.store.stats(now=self.desk.now)
        for status in Status:
            assert stats.by_status[status] == len(self.model.of(str(status)))
        assert stats.late_results == 0
        keys = [job.key for job in self.model.of(*LIVE) if job.key]
        assert len(keys) == len(set(keys))

    @invariant()
    def groups_are_what_their_tails_say(self):
        for group in self.model.groups:
            assert self.desk.store.group(group).status == self.model.group_status(group)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _enqueue(self, rows):
        new, expected = [], []
        for given in rows:
            fields = dict(given)
            ttl, key = fields.pop("ttl"), fields.pop("unique_key")
            organization = "default" if key else fields["organization_id"]
            row = self.desk.row(**fields | {"organization_id": organization}, unique_key=key)
            row.expires_at = None if ttl is None else row.run_at + ttl * SECOND
            new.append(row)
        enqueued = self.desk.put(*new)
        for row in new:
            holder = self.model.holder(row.unique_key) if row.unique_key else None
            expected.append((holder.id, True) if holder else (row.job_id, False))
            if holder is None:
                self.model.add(
                    ModelJob(
                        row.job_id,
                        row.job_id,
                        "QUEUED" if row.run_at <= self.desk.now else "PENDING",
                        row.policy.priority,
                        row.organization_id,
                        self.desk.now,
                        row.run_at,
                        self.model.born,
                        key=row.unique_key,
                        expires_at=row.expires_at,
                    )
                )
        assert [(each.job_id, each.existing) for each in enqueued] == expected

    def _choose(self, candidates, _reservation, _usage):
        parked = [(job.number, f"organization:{job.organization_id}") for job in candidates if job.organization_id in self.paused]
        return Choice(take=[job for job in candidates if job.organization_id not in self.paused], park=parked)

    def _rest_of_turn(self, want, turned):
        self.model.expire(self.desk.now)
        self.model.promote(self.desk.now)
        wanted = self.model.claim(want, self.desk.worker, self.paused)
        assert [job.job_id for job in turned.claimed] == wanted
        self.held |= {job.job_id: job for job in turned.claimed}

    def _any(self, pick):
        jobs = list(self.model.jobs)
        return self.model.jobs[jobs[pick % len(jobs)]] if jobs else None


def _facts(job):
    return (
        str(job.status),
        job.priority,
        job.position,
        job.attempt,
        inside(job.root_id),
        job.failures,
        job.crashes,
        job.snoozes,
        job.held if job.status is Status.QUEUED else None,
        job.blockers if job.status is Status.PENDING else 0,
        job.unique_key,
        instant(job.run_at),
        job.cancel_requested_at is not None if job.status is Status.RUNNING else False,
    )


def _model_facts(job):
    return (
        job.status,
        job.priority,
        job.position,
        job.attempt,
        job.root,
        job.failures,
        job.crashes,
        job.snoozes,
        job.held if job.status == "QUEUED" else None,
        int(job.waits_for is not None) if job.status == "PENDING" else 0,
        job.key,
        job.run_at,
        job.asked_to_stop if job.status == "RUNNING" else False,
    )


class PostgresQueueMachine(QueueMachine):
    """The same on PostgreSQL."""

    makes = PostgresMaker


class MongoQueueMachine(QueueMachine):
    """The same on MongoDB."""

    makes = MongoMaker


TestQueueMachine = pytest.mark.prove(QueueMachine.TestCase)
TestPostgresQueueMachine = pytest.mark.prove(PostgresQueueMachine.TestCase)
TestMongoQueueMachine = pytest.mark.prove(MongoQueueMachine.TestCase)
TestQueueMachine.settings = settings(
    max_examples=size(20, prove=1000),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# A step costs three times as much there, and the verbs between the statements are the same.
TestPostgresQueueMachine.settings = settings(TestQueueMachine.settings, max_examples=size(6, prove=300))
# And ten times as much here.
TestMongoQueueMachine.settings = settings(TestQueueMachine.settings, max_examples=size(3, prove=100))
