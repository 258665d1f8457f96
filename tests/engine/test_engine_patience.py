"""A store that goes away while somebody waits, for an end or for a direct execution: they go on waiting, and nothing is done twice."""

import asyncio
import time
from collections import Counter

import msgspec
import pytest

from rota import Context, Settings
from rota.engine.patience import Patience
from rota.errors import AnswerLost, StoreBusy, StoreUnavailable, WaitTimeout
from rota.live import follow_log
from rota.local_workers import inline_worker
from rota.model.gate import Right
from rota.operation import Ask
from tests.stores.desk import inside
from tests.support.pace import patient


class Away:
    """A store whose verbs fail at first, 'before' they write or 'after' it: the first few times, or as often as they are called."""

    def __init__(self, store):
        self._store = store
        self.calls = Counter()
        self.when = {}
        self.times = 3

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        when = self.when.get(name, self.when.get("*"))
        if when is None or not callable(verb) or name == "close":
            return verb

        def call(*args, **kwargs):
            self.calls[name] += 1
            if self.calls[name] > self.times:
                return verb(*args, **kwargs)
            if when == "after":
                verb(*args, **kwargs)
                raise AnswerLost("the answer was lost")
            raise StoreUnavailable("the server is away") if self.calls[name] % 2 else StoreBusy("others had it")

        return call


@pytest.fixture
def settings():
    return Settings(busy_timeout=0.3)


@pytest.fixture
def away(rota):
    opened = rota._session.open()
    made = Away(opened.store)
    rota._session.opened = msgspec.structs.replace(opened, store=made)
    yield made
    made.when = {}


@pytest.fixture
def ran(rota, away):
    seen = []
    rota.job(lambda n: seen.append(n) or n, name="note")
    return seen


# ---- a wait ----------------------------------------------------------------------------------------------------------


def wait(rota, *args):
    return rota.wait(*args)


def await_end(rota, *args):
    return asyncio.run(rota._wait_async(*args))


either = pytest.mark.parametrize("way", [wait, await_end])


@pytest.mark.parametrize("timeout", [None, 10])
@pytest.mark.parametrize(
    ("way", "verb"),
    [
        *((wait, verb) for verb in ("definitions", "by_number", "chain", "run")),
        *((await_end, verb) for verb in ("definitions", "by_number", "tails")),
    ],
)
def test_a_wait_goes_on_through_a_short_outage(rota, away, ran, way, verb, timeout):
    job = rota.enqueue("note", {"n": 1})
    rota.turn()
    away.when = {verb: "before"}
    assert way(rota.acting_as("anna"), job.number, timeout).result == 1
    assert away.calls[verb] > away.times


@either
@pytest.mark.parametrize("settings", [Settings(busy_timeout=50)])
def test_an_outage_that_outlasts_the_timeout_is_what_the_wait_says(rota, away, ran, way):
    job = rota.enqueue("note", {"n": 1})
    with pytest.raises(WaitTimeout):
        way(rota, job.id, 0.01)
    away.when, away.times = {"*": "before"}, 1000
    begun = time.monotonic()
    with pytest.raises((StoreBusy, StoreUnavailable)):
        way(rota, job.id, 0.2)
    assert 0.2 <= time.monotonic() - begun < rota.settings.busy_timeout


@either
def test_without_a_timeout_an_outage_is_borne_for_the_busy_timeout(rota, away, ran, way):
    job = rota.enqueue("note", {"n": 1})
    away.when, away.times = {"*": "before"}, 1000
    begun = time.monotonic()
    with pytest.raises((StoreBusy, StoreUnavailable)):
        way(rota, job.id)
    assert time.monotonic() - begun >= rota.settings.busy_timeout


def test_who_was_kept_waiting_by_the_store_itself_does_not_wait_as_long_again():
    asked = []

    def question():
        asked.append(time.sleep(0.06))
        raise StoreBusy("all connections have been busy for 0.05 s")

    with pytest.raises(StoreBusy):
        Patience(outage_s=0.05).ask(question)
    assert len(asked) == 1


# ---- a direct execution ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["reserve", "job", "workers", "run", "register", "recovered", "turn", "stopping", "end_worker"])
def test_a_direct_execution_goes_on_through_a_short_outage_and_runs_once(rota, away, ran, verb, when):
    rota.jobs.direct("note", {"n": 0})
    away.when = {verb: when}
    run = rota.jobs.direct("note", {"n": 1}, timeout=patient(10))
    assert (run.status, run.result, ran) == ("COMPLETED", 1, [0, 1])
    assert away.calls[verb]
    away.when = {}
    assert len(rota.jobs.list()) == 2
    assert rota._session.open().store.reservation() is None


def test_while_it_waits_for_a_slot_an_outage_delays_its_giving_up_and_leaves_nothing_behind(rota, away, ran):
    rota.templates.update("note", rate_limit="1/1h")
    rota.jobs.direct("note", {"n": 0})
    away.when = dict.fromkeys(("give_up_waiting", "job", "usage"), "before")
    with pytest.raises(Exception, match="resource busy"):
        rota.jobs.direct("note", {"n": 1}, timeout=0.1)
    away.when = {}
    assert rota._session.open().store.reservation() is None
    assert [str(job.status) for job in rota.jobs.list(limit=1)] == ["CANCELLED"]


def test_where_the_store_stays_away_it_is_told_that_the_job_is_made(rota, away, ran):
    rota.jobs.direct("note", {"n": 0})
    away.times, away.when = 1000, {"job": "before"}
    with pytest.raises(AnswerLost, match=r"is made, and the store was lost.*Look at it then") as told:
        rota.jobs.direct("note", {"n": 1}, timeout=0.01)
    away.when = {}
    (job,) = rota.jobs.list(limit=1)
    assert job.id in str(told.value)
    assert ran == [0]


@pytest.mark.parametrize("settings", [Settings(busy_timeout=50)])
def test_before_it_is_made_an_outage_is_borne_as_long_as_a_slot_is_waited_for(rota, away, ran):
    rota.jobs.direct("note", {"n": 0})
    away.times, away.when = 1000, {"reserve": "before"}
    begun = time.monotonic()
    with pytest.raises((StoreBusy, StoreUnavailable)) as told:
        rota.jobs.direct("note", {"n": 1}, timeout=0.1)
    assert not isinstance(told.value, AnswerLost)
    assert 0.1 <= time.monotonic() - begun < rota.settings.busy_timeout
    away.when = {}
    assert len(rota.jobs.list()) == 1


def test_a_worker_that_could_not_come_or_go_in_an_outage_does_not_look_alive(rota, away, ran):
    rota.jobs.direct("note", {"n": 0})
    away.times, away.when = 1000, {"recovered": "before", "end_worker": "before"}
    with pytest.raises((StoreBusy, StoreUnavailable)), inline_worker(rota._session):
        pass
    away.when = {}
    (left,) = [worker for worker in rota.workers.list() if worker.kind == "worker"]
    assert rota.store.recover().workers == 1
    assert inside(left.id) not in {inside(worker.id) for worker in rota.workers.list()}
    assert rota.jobs.direct("note", {"n": 1}, timeout=1).result == 1


# ---- a log -----------------------------------------------------------------------------------------------------------


def test_a_log_that_is_followed_goes_on_through_a_short_outage(rota, away):
    @rota.job
    def greet(ctx: Context):
        ctx.log.info("hello")

    job = rota.enqueue("greet")
    rota.turn()
    tail = follow_log(Ask(rota._session, None, Right.READ_LOG), job.id)
    away.when = {"job": "before"}
    (piece,) = tail
    assert piece.endswith("hello\n")
