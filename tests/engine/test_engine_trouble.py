"""A store that fails before it writes, or after (the reply is lost): nothing lost, nothing doubled (X11, DESIGN 3)."""

from collections import Counter
from random import Random

import pytest

from rota import Backoff, PermanentError, Rota, Settings, Snooze
from rota.compose import Opened
from rota.errors import StoreBusy, StoreUnavailable
from rota.local_workers import make_worker
from tests.stores.desk import ANNA
from tests.support.runs import run_of

WORKER_VERBS = (
    "turn",
    "peek",
    "holding",
    "beat",
    "definitions",
    "pauses",
    "workers",
    "reservation",
    "changed",
    "held_by",
    "recover",
    "end_worker",
)
EXACT = Backoff(base=60, factor=1, jitter=0)


class Faulty:
    """A store whose verbs fail when the plan says so: 'before' the write, or 'after' it, when only the reply is lost."""

    def __init__(self, store, plan):
        self._store = store
        self._plan = plan
        self.calls = Counter()
        self.faults = Counter()

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if not callable(verb) or name == "close":
            return verb

        def call(*args, **kwargs):
            self.calls[name] += 1
            fault = self._plan(name, self.calls[name])
            if fault is None:
                return verb(*args, **kwargs)
            self.faults[name] += 1
            if fault == "before":
                raise StoreBusy("another process held the lock") if self.calls[name] % 2 else StoreUnavailable("disk full")
            verb(*args, **kwargs)
            raise StoreUnavailable("the reply was lost")

        return call


class Rig:
    """A worker that turns inline on a store that fails by plan."""

    def __init__(self, folder, clock, plan, **settings):
        self.clock = clock
        self.rota = Rota(folder / "rota.db", clock=clock, settings=Settings(**settings), seed=11)
        self.runs = []
        self.attempts = Counter()

        @self.rota.job(max_retries=2, backoff=EXACT)
        def act(ctx, n):
            self.runs.append(ctx.run_id)
            self.attempts[n] += 1
            ctx.artifact(f"file-{n}-{ctx.attempt}")
            if n % 5 == 1 and ctx.attempt == 1:
                raise ValueError("once")
            if n % 5 == 2:
                raise PermanentError("never")
            if n % 5 == 3 and ctx.attempt == 1:
                raise Snooze(30)
            return n if n % 5 == 4 else None

        self.real = self.rota._session.open()
        self.rota._session.registry.sync(self.real.store, clock.now())
        self.faulty = Faulty(self.real.store, lambda *_: None)
        opened = Opened(self.faulty, self.real.liveness, self.real.log_dir)
        self.worker = make_worker(self.rota._session, opened, 4, inline=True)
        self.worker.start()
        self.faulty._plan = plan

    def drive(self, turns=400):
        for _ in range(turns):
            if not self._alive() and not self.worker.holding:
                return
            self.worker.poke()
            self.worker.turn()
            self.clock.advance(seconds=2)
        raise AssertionError(f"not everything ended: {self.rota.store.stats().by_status}")

    def _alive(self):
        counts = self.real.store.stats(now=0).by_status
        return any(counts[status] for status in ("PENDING", "QUEUED", "RUNNING"))

    def close(self):
        self.faulty._plan = lambda *_: None
        self.worker.begin_stop()
        self.worker.finish()
        self.rota.close()


@pytest.fixture
def make_rig(tmp_path, clock):
    rigs = []

    def make(plan, **settings):
        rigs.append(Rig(tmp_path, clock, plan, **settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


EXPECTED = {0: ["COMPLETED"], 1: ["FAILED", "COMPLETED"], 2: ["DEAD_LETTER"], 3: ["SKIPPED", "COMPLETED"], 4: ["COMPLETED"]}


def check(rig, jobs):
    """Every chain ended as it must, each attempt was executed once, each artifact is there once."""
    for n, job in enumerate(jobs):
        chain = rig.rota.jobs.attempts(job.id)
        assert [str(each.status) for each in chain] == EXPECTED[n % 5], n
        assert rig.attempts[n] == len(chain)
        for each in chain:
            assert run_of(rig.rota, each.id).artifacts == [f"file-{n}-{each.attempt}"]
    assert len(rig.runs) == len(set(rig.runs))
    assert rig.rota.store.stats().late_results == 0
    assert [worker.running for worker in rig.rota.workers.list()] == [0]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", WORKER_VERBS)
def test_a_verb_that_fails_every_other_time_loses_and_doubles_nothing(make_rig, verb, when):
    rig = make_rig(lambda name, call: when if name == verb and call % 2 else None, concurrency=4)
    jobs = [rig.rota.enqueue("act", {"n": n}) for n in range(15)]
    rig.drive()
    check(rig, jobs)
    if verb in {"turn", "beat", "workers", "reservation"}:
        assert rig.faulty.faults[verb] > 0


@pytest.mark.parametrize("seed", range(6))
def test_any_verb_failing_at_any_time_loses_and_doubles_nothing(make_rig, seed):
    rng = Random(seed)

    def plan(_name, _call):
        dice = rng.random()
        return "before" if dice < 0.15 else "after" if dice < 0.3 else None

    rig = make_rig(plan)
    jobs = [rig.rota.enqueue("act", {"n": n}) for n in range(20)]
    rig.drive(turns=900)
    check(rig, jobs)


def test_a_store_away_for_long_keeps_the_outcomes_and_claims_nothing(make_rig):
    away = [False]
    rig = make_rig(lambda name, _: "before" if away[0] and name == "turn" else None)
    jobs = [rig.rota.enqueue("act", {"n": 0}) for _ in range(9)]
    rig.worker.poke()
    rig.worker.turn()
    ran = len(rig.runs)
    assert 0 < ran < 9
    away[0] = True
    delays = []
    for _ in range(8):
        rig.worker.poke()
        delays.append(rig.worker.turn())
        rig.clock.advance(seconds=1)
    assert len(rig.runs) == ran
    assert delays == sorted(delays)
    assert delays[-1] == 1.0
    away[0] = False
    rig.drive()
    assert {str(rig.rota.jobs.get(job.id).status) for job in jobs} == {"COMPLETED"}
    assert len(rig.runs) == 9


def test_a_claim_whose_reply_was_lost_is_found_again_and_run_once(make_rig):
    rig = make_rig(lambda name, call: "after" if (name, call) == ("turn", 1) else None)
    jobs = [rig.rota.enqueue("act", {"n": 0}) for _ in range(3)]
    rig.worker.poke()
    rig.worker.turn()
    assert rig.runs == []
    assert rig.real.store.stats(now=0).by_status["RUNNING"] == 3
    rig.drive()
    assert len(rig.runs) == 3
    assert {str(rig.rota.jobs.get(job.id).status) for job in jobs} == {"COMPLETED"}


def test_a_cancel_during_the_trouble_is_still_obeyed(make_rig):
    rig = make_rig(lambda name, call: "after" if (name, call) == ("turn", 1) else None)
    job = rig.rota.enqueue("act", {"n": 1})
    rig.worker.poke()
    rig.worker.turn()
    rig.real.store.cancel(job.id.replace("-", ""), actor=ANNA, now=rig.clock.now())
    rig.drive()
    assert [str(each.status) for each in rig.rota.jobs.attempts(job.id)] in (["CANCELLED"], ["COMPLETED"])


CALLER_VERBS = ("enqueue", "cancel", "change", "move", "retry", "add_group", "cancel_group", "reserve", "pause", "resume", "put_templates")


@pytest.mark.parametrize("verb", CALLER_VERBS)
def test_a_callers_verb_that_fails_before_its_write_changed_nothing(rota, clock, verb):
    store, snapshot, call = caller(rota, clock, verb)
    before = snapshot()
    with pytest.raises((StoreUnavailable, StoreBusy)):
        call(Faulty(store, lambda name, _: "before" if name == verb else None))
    assert snapshot() == before


@pytest.mark.parametrize("verb", CALLER_VERBS)
def test_a_callers_verb_repeated_after_a_lost_reply_does_nothing_more(rota, clock, verb):
    store, snapshot, call = caller(rota, clock, verb)
    with pytest.raises(StoreUnavailable):
        call(Faulty(store, lambda name, _: "after" if name == verb else None))
    before = snapshot()
    call(store)
    assert snapshot() == before


def caller(rota, clock, verb):
    """Return the store, a look at it, and one call of the verb that can be made again with the very same arguments."""
    from rota.model.definitions import Template
    from tests.stores.desk import Desk

    rota.job(lambda: None, name="act")
    rota.enqueue("act")
    store = rota._session.open().store
    desk = Desk(store)
    desk.ids, desk.now = rota._session.ids, clock.now()
    first, second = desk.several(2, "act")
    dead = desk.add("act")
    store.cancel(dead, actor=ANNA, now=desk.now)
    group = desk.grouped([desk.row("act"), desk.row("act")], "parallel")
    row, new_id, other_id = desk.row("act"), desk.id(), desk.id()
    direct = desk.row("act", origin="direct", max_retries=0)
    template = Template(id=desk.id(), name="new", job_type="new", state="ENABLED", version=0, defaults={"priority": 1})
    if verb == "resume":
        store.pause("template", "act", actor=ANNA, now=desk.now)
    at = {"actor": ANNA, "now": desk.now}

    def members():
        import msgspec

        from rota.model.groups import Mode, OnFailure
        from rota.ports.store import NewGroup

        return NewGroup(group_id=other_id, name=None, mode=Mode.PARALLEL, on_failure=OnFailure.STOP, members=[msgspec.structs.replace(row)])

    calls = {
        "enqueue": lambda s: s.enqueue([row], now=desk.now),
        "cancel": lambda s: s.cancel(first, **at),
        "change": lambda s: s.change(first, priority=75, **at),
        "move": lambda s: s.move(second, front=True, **at),
        "retry": lambda s: s.retry(dead, new_id=new_id, **at),
        "add_group": lambda s: s.add_group(members(), **at),
        "cancel_group": lambda s: s.cancel_group(group.id.replace("-", ""), **at),
        "reserve": lambda s: s.reserve(
            direct, reservation_id=new_id, reserved_by="me", worker_id=desk.worker, now=desk.now, expires_at=desk.now + 10**6
        ),
        "pause": lambda s: s.pause("template", "act", **at),
        "resume": lambda s: s.resume("template", "act", **at),
        "put_templates": lambda s: s.put_templates([template], **at),
    }

    def snapshot():
        return desk.snapshot(), store.templates(), store.pauses(), store.definitions()

    return store, snapshot, calls[verb]


def test_an_outage_is_two_lines_in_the_log_one_when_it_begins_and_one_when_it_is_over(make_rig, caplog):
    away = True
    rig = make_rig(lambda *_: "before" if away else None)
    rig.rota.enqueue("act", {"n": 0})

    def said():
        return [record.message.partition(";")[0] for record in caplog.records if record.message.startswith("the store is")]

    for _ in range(5):
        rig.worker.poke()
        rig.worker.turn()
        rig.clock.advance(seconds=2)
    assert said() == ["the store is unavailable"]
    away = False
    rig.drive()
    assert said() == ["the store is unavailable", "the store is available again"]
