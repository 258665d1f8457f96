"""await_end and aenqueue: no thread for each wait, nothing of the program's own pool, and the same answers as without asyncio."""

import asyncio
import math
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from random import Random

import pytest

from rota import Backoff, PermanentError, Rota, Settings, TransientError, enqueue_async
from rota.engine import call_pool, watcher
from rota.engine.watcher import BATCH, HINTED_S, Watcher
from rota.errors import JobCancelled, NotFound, StoreError, WaitTimeout
from rota.ports.clock import UuidV7
from rota.session import Session
from rota.waits import wait_async
from tests.stores.makers import MAKERS
from tests.support.pace import patient
from tests.support.postgres import fresh_database, make_server
from tests.support.prepared import prepare
from tests.support.proof import size
from tests.support.waiting import eventually

MANY = 1000


@pytest.fixture
def rota(url):
    made = registered(Rota(url))
    yield made
    made.close()


def registered(rota):
    @rota.job
    def double(n: int) -> int:
        return 2 * n

    @rota.job(max_retries=2, backoff=Backoff(base=0.01, jitter=0))
    def flaky(ctx) -> int:
        if ctx.attempt < 3:
            raise TransientError("again")
        return ctx.attempt

    @rota.job
    def dies() -> None:
        raise PermanentError("never")

    return rota


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "rota-watcher"]


def no_watcher():
    eventually(lambda: not watchers(), what="the watcher's thread ends")


async def pending(rota, ids, within=None):
    """Await the ends of jobs, as tasks that have all been looked at once."""
    tasks = [asyncio.create_task(wait_async(rota._session, None, job_id, within)) for job_id in ids]
    await until(lambda: rota._session.watcher is not None and watched(rota) == len(ids) and all(waiter.looked for waiter in waiters(rota)))
    return tasks


def waiters(rota):
    return [*rota._session.watcher._waiters]


def watched(rota):
    return len(waiters(rota))


async def until(fact):
    end = time.monotonic() + patient(20)
    while not fact():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def leave(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---- many at once ----------------------------------------------------------------------------------------------------


def test_a_thousand_waits_hold_one_thread_and_nothing_of_the_programs_pool(rota):
    async def story():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        await asyncio.to_thread(lambda: 1)
        ids = rota.enqueue_many([("double", {"n": n}) for n in range(MANY)]).ids
        idle = threading.active_count()
        tasks = await pending(rota, ids)
        assert threading.active_count() <= idle + 2
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), patient(5)) == 1
        more = await asyncio.wait_for(enqueue_async(rota, "double", {"n": MANY}), patient(5))
        assert threading.active_count() <= idle + 2
        assert not any(task.done() for task in tasks)
        with rota.running(concurrency=4):
            runs = await asyncio.wait_for(asyncio.gather(*tasks, wait_async(rota._session, None, more.id)), patient(50))
        assert [run.result for run in runs] == [2 * n for n in range(MANY + 1)]
        assert len({run.id for run in runs}) == MANY + 1

    asyncio.run(story())
    no_watcher()


@contextmanager
def looks_counted(monkeypatch):
    """Note, for each look of a watcher, how many callers it was for and which statements it made."""
    made, looks = [], []
    for kind in {maker.db for maker in MAKERS}:
        for verb in ("rows", "row", "value"):
            plain = getattr(kind, verb)

            def spied(db, name, /, _plain=plain, **values):
                if threading.current_thread().name == "rota-watcher":
                    made.append(name)
                return _plain(db, name, **values)

            monkeypatch.setattr(kind, verb, spied)
    look = Watcher._look

    def counted(watcher, waiters):
        before = len(made)
        answered = look(watcher, waiters)
        looks.append((len(waiters), made[before:]))
        return answered

    monkeypatch.setattr(Watcher, "_look", counted)
    yield looks


def test_a_look_at_a_thousand_waits_is_a_few_selects(rota, monkeypatch):
    async def story():
        ids = rota.enqueue_many([("double", {"n": n}) for n in range(MANY)]).ids
        with looks_counted(monkeypatch) as looks:
            tasks = await pending(rota, ids)
            await until(lambda: sum(count == MANY for count, _ in looks) >= 3)
            await leave(tasks)
        whole = [names for count, names in looks if count == MANY]
        assert all(set(names) == {"tails"} for names in whole)
        assert max(map(len, whole)) <= math.ceil(MANY / BATCH)

    asyncio.run(story())


def test_while_nothing_is_committed_a_store_with_hints_is_hardly_asked(tmp_path, monkeypatch):
    with closing(registered(Rota(prepare(tmp_path / "rota.db")))) as rota:

        async def story():
            job = rota.enqueue("double", {"n": 1})
            with looks_counted(monkeypatch) as looks:
                tasks = await pending(rota, [job.id])
                begun, before = time.monotonic(), len(looks)
                await asyncio.sleep(1)
                assert len(looks) - before <= 4 + (time.monotonic() - begun) / HINTED_S
                rota.turn()
                assert (await tasks[0]).result == 2

        asyncio.run(story())


def test_many_callers_of_one_job_get_its_run_each(rota):
    async def story():
        job = rota.enqueue("double", {"n": 4})
        tasks = await pending(rota, [job.id] * 20)
        rota.turn()
        assert [(await task).result for task in tasks] == [8] * 20

    asyncio.run(story())


# ---- what is answered ------------------------------------------------------------------------------------------------


def test_a_chain_is_followed_through_its_retries_to_its_last_run(rota):
    async def story():
        flaky, dead, gone = rota.enqueue("flaky"), rota.enqueue("dies"), rota.enqueue("double", {"n": 1})
        rota.jobs.cancel(gone.id)
        with rota.running():
            runs = await asyncio.gather(*(wait_async(rota._session, None, job.id, patient(20)) for job in (flaky, dead)))
            with pytest.raises(JobCancelled, match=f"{gone.number} .* was cancelled"):
                await wait_async(rota._session, None, gone.id, patient(20))
        assert (runs[0].status, runs[0].result) == ("COMPLETED", 3)
        assert (runs[1].status, runs[1].error_type) == ("FAILED", "permanent")
        assert [rota.wait(job.id) for job in (flaky, dead)] == runs

    asyncio.run(story())


def test_a_job_may_be_named_as_for_wait_and_one_that_is_not_there_is_not_found(rota):
    async def story():
        job = rota.enqueue("double", {"n": 5})
        rota.turn()
        for name in (job, job.id, job.number, job.id.replace("-", "")):
            assert (await wait_async(rota._session, None, name, 0)).result == 10
        for unknown in (UuidV7().take(1, 0)[0], "JOB-2026-99999", "nonsense"):
            with pytest.raises(NotFound, match=unknown):
                await wait_async(rota._session, None, unknown)

    asyncio.run(story())


def test_a_job_that_is_removed_while_it_is_awaited_is_not_found(rota):
    async def story():
        job = rota.enqueue("double", {"n": 5})
        (task,) = await pending(rota, [job.id])
        # Both at once for the watcher, which is kept from looking meanwhile.
        with rota._session.watcher._lock:
            rota.jobs.cancel(job.id)
            rota.jobs.delete(job.id)
        with pytest.raises(NotFound, match=job.id):
            await task

    asyncio.run(story())


def test_a_timeout_is_the_loops_own_and_says_how_the_job_stands(rota):
    async def story():
        job = rota.enqueue("double", {"n": 5})
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(WaitTimeout, match=rf"{job.number} is still QUEUED after 0.3 s; the job is not affected, wait again"):
            await wait_async(rota._session, None, job.id, 0.3)
        assert loop.time() - begun >= 0.3
        for shortest in (0, -1, 0.000_001):
            with pytest.raises(WaitTimeout, match=job.number):
                await wait_async(rota._session, None, job.number, shortest)

    asyncio.run(story())
    no_watcher()


def test_a_timeout_is_met_while_the_watcher_is_held_up(rota, monkeypatch):
    async def story():
        job = rota.enqueue("double", {"n": 5})
        (task,) = await pending(rota, [job.id], patient(0.3))
        held = threading.Event()
        tails = rota._session.watcher.store.tails
        monkeypatch.setattr(rota._session.watcher.store, "tails", lambda ids: held.wait(patient(20)) and tails(ids))
        with pytest.raises(WaitTimeout, match=job.number):
            await task
        assert not held.is_set()
        held.set()

    asyncio.run(story())


def test_a_timeout_is_met_although_the_store_has_never_answered(rota, monkeypatch):
    async def story():
        job = rota.enqueue("double", {"n": 5})
        held = threading.Event()
        store = rota._session.open().store
        monkeypatch.setattr(watcher, "FIRST_LOOK_S", 0.2)
        monkeypatch.setattr(store, "tails", lambda _: held.wait(patient(20)) and {})
        for timeout in (0.01, 0.3):
            with pytest.raises(WaitTimeout, match="has not answered after"):
                await wait_async(rota._session, None, job.id, timeout)
        held.set()

    asyncio.run(story())
    no_watcher()


# ---- comings and goings ----------------------------------------------------------------------------------------------


def test_the_thread_ends_with_the_last_wait_and_comes_back_with_the_next(rota):
    async def story(cancel):
        job = rota.enqueue("double", {"n": 1})
        tasks = await pending(rota, [job.id] * 3)
        assert len(watchers()) == 1
        if cancel:
            await leave(tasks)
        else:
            rota.turn()
            await asyncio.gather(*tasks)
        assert watched(rota) == 0

    for cancel in (True, False, True):
        asyncio.run(story(cancel))
        no_watcher()


def test_a_wait_that_is_cancelled_takes_nothing_from_the_others(rota):
    async def story():
        first, second = (rota.enqueue("double", {"n": n}) for n in (1, 2))
        tasks = await pending(rota, [first.id, second.id, first.id])
        tasks[0].cancel()
        rota.turn()
        assert (await asyncio.gather(*tasks[1:]))[0].result == 4
        assert (await tasks[2]).result == 2
        assert tasks[0].cancelled()

    asyncio.run(story())


def test_a_loop_that_is_closed_with_waits_open_harms_nobody(rota):
    job = rota.enqueue("double", {"n": 1})
    left = asyncio.new_event_loop()
    task = left.create_task(wait_async(rota._session, None, job.id))
    left.run_until_complete(asyncio.sleep(0.05))
    task._log_destroy_pending = False
    left.close()

    async def story():
        (other,) = [asyncio.create_task(wait_async(rota._session, None, job.id))]
        await until(lambda: watched(rota) == 1)
        rota.turn()
        assert (await other).result == 2

    asyncio.run(story())
    no_watcher()
    task.get_coro().close()


def test_loops_of_several_threads_wait_at_the_same_time(rota):
    ids = rota.enqueue_many([("double", {"n": n}) for n in range(40)]).ids
    found = {}

    def one(place):
        async def story():
            runs = await asyncio.gather(*(wait_async(rota._session, None, job_id, patient(30)) for job_id in ids[place::4]))
            found[place] = [run.result for run in runs]

        asyncio.run(story())

    threads = [threading.Thread(target=one, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: rota._session.watcher is not None and watched(rota) == 40)
    assert len(watchers()) == 1
    with rota.running():
        for thread in threads:
            thread.join(patient(30))
    assert found == {place: [2 * n for n in range(place, 40, 4)] for place in range(4)}


def test_closing_ends_the_waits_and_the_threads_and_a_later_wait_opens_the_store_again(rota):
    async def story():
        job = rota.enqueue("double", {"n": 1})
        await enqueue_async(rota, "double", {"n": 2})
        tasks = await pending(rota, [job.id] * 2)
        rota.close()
        assert not watchers()
        for task in tasks:
            with pytest.raises(StoreError, match="closed while this job was awaited"):
                await task
        await until(lambda: not callers())
        rota.turn()
        assert (await wait_async(rota._session, None, job.id, patient(20))).result == 2

    asyncio.run(story())


def test_a_watcher_that_fails_leaves_nobody_waiting_and_the_next_wait_has_another(rota, monkeypatch, caplog):
    async def story():
        job = rota.enqueue("double", {"n": 1})
        with monkeypatch.context() as broken:
            broken.setattr(Watcher, "_rest", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await wait_async(rota._session, None, job.id)
        assert "awaiting jobs failed" in caplog.text
        rota.turn()
        assert (await wait_async(rota._session, None, job.id, patient(20))).result == 2

    asyncio.run(story())
    no_watcher()


@pytest.mark.prove
def test_callers_that_come_time_out_and_are_cancelled_at_random_get_their_own_answers(rota):
    rounds = size(50, prove=2000)
    wrong = []

    async def one(chance, number):
        job = await enqueue_async(rota, "double", {"n": number})
        wait = asyncio.create_task(wait_async(rota._session, None, job.id, chance.choice([None, 0, 0.01, 0.05, patient(20)])))
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() / 20)
            wait.cancel()
        try:
            run = await wait
        except (WaitTimeout, asyncio.CancelledError):
            run = await wait_async(rota._session, None, job.id, patient(30))
        if run.result != 2 * number:
            wrong.append((number, run))

    def loop(place):
        async def story():
            chance = Random(place)
            for begin in range(0, rounds, 10):
                await asyncio.gather(*(one(chance, number) for number in range(begin, begin + 10)))

        asyncio.run(story())

    threads = [threading.Thread(target=loop, args=(place,)) for place in range(3)]
    with rota.running():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert watched(rota) == 0
    no_watcher()


# ---- enqueueing ------------------------------------------------------------------------------------------------------


def callers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rota-call")]


def test_aenqueue_uses_a_few_threads_of_its_own_and_none_of_the_programs(rota):
    async def story():
        jobs = await asyncio.gather(*(enqueue_async(rota, "double", {"n": n}) for n in range(100)))
        assert 1 <= len(callers()) <= call_pool.THREADS
        assert asyncio.get_running_loop()._default_executor is None
        rota.turn()
        runs = await asyncio.gather(*(wait_async(rota._session, None, job.id, patient(20)) for job in jobs))
        assert [run.result for run in runs] == [2 * n for n in range(100)]
        assert asyncio.get_running_loop()._default_executor is None

    asyncio.run(story())


def test_aenqueue_is_not_held_up_by_a_pool_of_the_programs_that_is_full(rota):
    async def story():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        busy = threading.Event()
        blocked = asyncio.create_task(asyncio.to_thread(busy.wait, patient(50)))
        job = await asyncio.wait_for(enqueue_async(rota, "double", {"n": 1}), patient(10))
        with pytest.raises(WaitTimeout):
            await asyncio.wait_for(wait_async(rota._session, None, job.id, 0), patient(10))
        assert not blocked.done()
        busy.set()
        await blocked

    asyncio.run(story())


def test_aenqueue_carries_the_callers_context_along(url):
    said = ContextVar("said", default="nothing")
    heard = []

    class Listening(UuidV7):
        def take(self, count, now):
            heard.append((said.get(), threading.current_thread().name[:9]))
            return super().take(count, now)

    with closing(registered(Rota(url, ids=Listening()))) as rota:

        async def story(word):
            said.set(word)
            await enqueue_async(rota, "double", {"n": 1})

        async def both():
            await asyncio.gather(story("one"), story("two"))

        asyncio.run(both())
    assert Counter(word for word, thread in heard if thread == "rota-call") >= Counter(["one", "two"])


def test_the_store_is_opened_on_a_thread_and_not_on_the_event_loop(url, monkeypatch):
    opened_on = []
    plain = Session.open_on_time
    monkeypatch.setattr(Session, "open_on_time", lambda rota: opened_on.append(threading.current_thread().name[:9]) or plain(rota))
    for call in (lambda rota: enqueue_async(rota, "double", {"n": 1}), lambda rota: wait_async(rota._session, None, "JOB-2026-00001", 0)):
        with closing(registered(Rota(url))) as rota, suppress(WaitTimeout):
            asyncio.run(call(rota))
    assert opened_on == ["rota-call"] * 2


def test_the_event_loop_turns_while_another_thread_opens_the_store(url):
    held, go, released = threading.Event(), threading.Event(), threading.Event()

    def hold(lock):
        with lock:
            held.set()
            go.wait(10)
        released.set()

    async def story(rota):
        call = asyncio.create_task(enqueue_async(rota, "double", {"n": 1}))
        await asyncio.sleep(0.05)
        turned_meanwhile = not released.is_set()
        go.set()
        await call
        return turned_meanwhile

    with closing(registered(Rota(url))) as rota:
        opening = threading.Thread(target=hold, args=(rota._session.lock,))
        opening.start()
        held.wait()
        assert asyncio.run(story(rota))
        opening.join()


# ---- outages ---------------------------------------------------------------------------------------------------------


@pytest.mark.paired
def test_waits_continue_while_the_server_is_away(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = make_server()
    try:
        settings = Settings(busy_timeout=min(60.0, patient(20)))
        with fresh_database(server) as url, closing(registered(Rota(url, settings=settings))) as rota:

            async def story():
                ids = rota.enqueue_many([("double", {"n": n}) for n in range(30)]).ids
                tasks = [
                    *await pending(rota, ids),
                    *(asyncio.create_task(wait_async(rota._session, None, job_id, patient(50))) for job_id in ids),
                ]
                server.stop("immediate")
                await until(lambda: all(waiter.error for waiter in waiters(rota)))
                assert not any(task.done() for task in tasks)
                server.start()
                with rota.running():
                    runs = await asyncio.wait_for(asyncio.gather(*tasks), patient(40))
                assert [run.result for run in runs] == [2 * n for n in range(30)] * 2

            asyncio.run(story())
    finally:
        server.throw_away()
