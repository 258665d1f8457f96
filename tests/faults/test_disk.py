"""A disk that fails, fills up, tears a write or loses its power, at every write of a scenario in turn.

The caller gets an error or success; success means that it is there after reopening; the file is whole; a step that got
an error can be repeated and has the effect of once; and the same store object goes on when the disk does.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import pytest

from rota import Rota
from rota.errors import StoreUnavailable
from rota.local_workers import make_worker
from tests.faults import invariants
from tests.faults.broken_disk import BrokenDisk, Fault, Op
from tests.faults.scenario import SETTINGS, Scenario, job_id, prepare, scenario
from tests.support.proof import size

EVERY = size(11, prove=1)
"""Every so many writes one meets the fault."""
AFTERWARDS = 2
"""How many more steps are taken after the one that met the fault, to see that the store goes on."""
_names = count()


@pytest.fixture
def tmp_path(tmp_path_factory):
    """In memory where there is such a place: thousands of syncs are counted here, and none is waited for."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path_factory.mktemp("disk")
        return
    with tempfile.TemporaryDirectory(prefix="rota-faults-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def disk():
    made = BrokenDisk(f"broken-{next(_names)}")
    yield made
    made.unregister()


@pytest.fixture
def prepared(tmp_path):
    path = tmp_path / "prepared.db"
    prepare(path)
    return path


def fresh(folder, prepared):
    """A file of its own for each story, on which SQLite has no memory of the one before."""
    path = folder / f"{next(_names)}.db"
    if prepared is not None:
        shutil.copy(prepared, path)
    return path


def remove(path):
    for left in path.parent.glob(f"{path.stem}.db*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def opened(path, disk, ack):
    """Open as a caller would who tries again after a clear error."""
    try:
        return Scenario(path, vfs=disk.name, ack=ack)
    except StoreUnavailable:
        assert disk.fired
        return Scenario(path, vfs=disk.name, ack=ack)


def go_through(path, disk, *, whole=False):
    """Go through the scenario, repeating a step that met the fault. Return what was confirmed."""
    facts = []
    story = opened(path, disk, facts.append)
    left = None
    try:
        for name, step in story.steps():
            before = disk.fired
            try:
                step()
            except StoreUnavailable:
                # Any other error of ours or of the driver is not what a broken disk should look like.
                assert disk.fired > before, f"{name} failed although the disk did not"
                step()
            if disk.fired and left is None:
                left = AFTERWARDS
            elif left is not None and not whole:
                left -= 1
                if not left:
                    break
    finally:
        disk.fault = None
        story.close()
    return facts


def look(path, facts):
    """With the disk whole and the file opened anew, everything that was confirmed is there."""
    invariants.check(path)
    with invariants.reading(path) as db:
        there = {row[0] for row in db.execute("SELECT lower(hex(job_id)) FROM jobs")}
    assert [fact for fact in facts if " " not in fact and fact not in there] == []
    ends = invariants.tails(path)
    for fact in facts:
        root, _, status = fact.partition(" ")
        assert not status or ends[root] == status


def every_fault(tmp_path, disk, prepared, kind, first, step, *, whole_every=0):
    """Tell the story again and again, with the fault one operation later each time, until it is not met any more."""
    for met, at in enumerate(count(first, step)):
        path = fresh(tmp_path, prepared)
        disk.count, disk.fired, disk.fault = 0, 0, Fault(kind, at)
        whole = bool(whole_every) and met % whole_every == 0
        try:
            facts = go_through(path, disk, whole=whole)
            look(path, facts)
        except Exception as error:
            raise AssertionError(f"{kind} at operation {at}: {error}") from error
        if whole:
            yield at, path
        remove(path)
        if not disk.fired:
            assert met
            return


# ---- errors that pass ----------------------------------------------------------------------------------------------


# What fails is told apart by its code alone, so the two ways to fail take turns: every write fails once, and every one is torn once.
KINDS = pytest.mark.parametrize(("kind", "first", "step"), [("ioerr", 1, EVERY), ("full", 2, EVERY), ("torn", 3, EVERY)])


@pytest.mark.prove
@KINDS
def test_a_fault_at_any_write_is_an_error_or_a_success_that_lasts_and_the_store_goes_on(tmp_path, disk, prepared, kind, first, step):
    path = fresh(tmp_path, prepared)
    go_through(path, disk, whole=True)
    clean = invariants.tails(path)
    for at, broken in every_fault(tmp_path, disk, prepared, kind, first, step, whole_every=10):
        assert invariants.tails(broken) == clean, f"{kind} at {at}: it went another way than without the fault"


@pytest.mark.prove
@KINDS
def test_a_fault_while_the_file_is_made_leaves_nothing_or_all_of_the_schema(tmp_path, disk, kind, first, step):
    for at in count(first, step):
        path = fresh(tmp_path, None)
        disk.count, disk.fired, disk.fault = 0, 0, Fault(kind, at)
        try:
            story = opened(path, disk, lambda _: None)
            try:
                for _, step_ in islice(story.steps(), 2):
                    try:
                        step_()
                    except StoreUnavailable:
                        step_()
            finally:
                disk.fault = None
                story.close()
            look(path, [job_id(1)])
        except Exception as error:
            raise AssertionError(f"{kind} at operation {at}: {error!r}") from error
        remove(path)
        if not disk.fired:
            return


# ---- a disk that stays full ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ioerr", "full"])
def test_while_the_disk_stays_broken_every_verb_says_so_and_nothing_changes(tmp_path, disk, prepared, kind):
    path = fresh(tmp_path, prepared)
    with scenario(path, vfs=disk.name) as story:
        for name, step in story.steps():
            step()
            if name == "move":
                break
        before = dump(path)
        disk.fault = Fault(kind, disk.count + 1, 1_000_000)
        rota = story.rota
        verbs = {
            "enqueue": lambda: rota.enqueue("good", {"n": 1}),
            "enqueue_many": lambda: rota.enqueue_many([("good", {"n": 1})] * 20),
            "cancel": lambda: rota.jobs.cancel(job_id(21)),
            "change": lambda: rota.jobs.update(job_id(21), priority="high"),
            "move": lambda: rota.jobs.move(job_id(21), front=True),
            "retry": lambda: rota.jobs.retry(job_id(4)),
            "group": lambda: rota.group([("good", {"n": 1}), ("good", {"n": 2})]),
            "pause": lambda: rota.templates.pause("good"),
        }
        for verb in verbs.values():
            with pytest.raises(StoreUnavailable):
                verb()
        with pytest.raises(StoreUnavailable), rota.transaction() as tx:
            rota.enqueue("good", {"n": 1}, transaction=tx)
        # What is there can still be read.
        assert rota.jobs.get(job_id(21)).status == "QUEUED"
        assert len(rota.queues.jobs()) == 2
        assert dump(path) == before
        disk.fault = None
        for verb in (*list(verbs.values())[:3], verbs["retry"], verbs["group"]):
            verb()
    invariants.check(path)


def dump(path):
    """Every row of every table that people's work is in."""
    with invariants.reading(path) as db:
        tables = ["jobs", "job_runs", "job_edges", "job_groups", "direct_reservations", "templates", "pauses", "audit", "queue_clock"]
        return {table: list(db.execute(f"SELECT * FROM {table}")) for table in tables}


def test_a_worker_keeps_its_outcomes_while_the_disk_is_full_and_writes_them_when_it_is_not(tmp_path, disk, prepared):
    path = fresh(tmp_path, prepared)
    with scenario(path, vfs=disk.name) as story:
        rota = story.rota
        # The disk fills up while a handler runs: after the claim, before the end.
        rota.job(name="fills")(lambda: setattr(disk, "fault", Fault("full", disk.count + 1, 1_000_000)))
        job = rota.enqueue("fills")
        worker = a_worker(story)
        worker.turn()
        worker.turn()
        assert rota.jobs.get(job.id).status == "RUNNING"
        for _ in range(5):
            assert worker.turn() > 0
        assert worker.holding == 1
        disk.fault = None
        worker.turn()
        assert rota.jobs.get(job.id).status == "COMPLETED"
        assert worker.holding == 0
        worker.begin_stop()
        worker.finish()
    invariants.check(path)


def test_a_job_whose_first_turn_failed_is_claimed_by_the_next_without_another_hint(tmp_path, disk, prepared):
    path = fresh(tmp_path, prepared)
    with scenario(path, vfs=disk.name) as story:
        worker = a_worker(story)
        for _ in range(5):
            worker.turn()
        with closing(Rota(path, clock=story.clock, settings=SETTINGS)) as other:
            job = other.enqueue("good", {"n": 1})
        disk.fault = Fault("ioerr", disk.count + 1)
        for _ in range(10):
            worker.turn()
        assert disk.fired
        assert story.rota.jobs.get(job.id).status == "COMPLETED"
        worker.begin_stop()
        worker.finish()


def a_worker(story):
    """A worker that is turned by hand, beside the story's own."""
    story.rota._session.registry.sync(story.store, story.clock.now())
    worker = make_worker(story.rota._session, story.rota._session.opened, 2, inline=True)
    worker.start()
    return worker


def test_callers_that_share_a_commit_share_its_fate(tmp_path, disk, prepared):
    """Many threads enqueue at once while the log can't be written now and then: a job is there if its caller was told so, and only then."""
    path = fresh(tmp_path, prepared)
    told: dict[str, bool] = {}
    with scenario(path, vfs=disk.name) as story:
        rota = story.rota

        def call(first):
            for number in range(first, first + 40):
                try:
                    rota.enqueue("good", {"n": number}, job_id=job_id(number))
                    told[job_id(number)] = True
                except StoreUnavailable:
                    told[job_id(number)] = False

        threads = [threading.Thread(target=call, args=(1000 * index,)) for index in range(1, 9)]
        rng = random.Random(2)
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if disk.fault is None or disk.count > disk.fault.at + 5:
                disk.fault = Fault(rng.choice(["ioerr", "full"]), disk.count + rng.randrange(5, 60), 3, log_writes_only=True)
            time.sleep(0)
        for thread in threads:
            thread.join()
        disk.fault = None
        assert disk.fired
    invariants.check(path)
    assert len(told) == 320
    assert 0 < sum(told.values()) < 320
    assert set(invariants.tails(path)) == {each for each, accepted in told.items() if accepted}


# ---- death and power -----------------------------------------------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize(("kind", "begin"), [("crash", "prepared"), ("torn crash", "prepared"), ("crash", "nothing")])
def test_a_process_that_dies_at_any_write_leaves_a_file_that_goes_on(file_stage, tmp_path, prepared, kind, begin):
    every = size(17, prove=1)
    program = file_stage.start("crash_disk", tmp_path, kind, every, prepared if begin == "prepared" else "-")
    assert program.ends(within=50) == 0, program.text[-3000:]
    assert "violation" not in program.text, program.text[:3000]
    assert int(program.says("died")) * every > 120


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_power_lost_at_any_moment_takes_nothing_that_was_acknowledged(tmp_path, disk, prepared, seed):
    """What was not synced may be on the disk or not, whole or in sectors; what was acknowledged must be."""
    path = fresh(tmp_path, prepared)
    disk.log = []
    facts: list[tuple[int, str]] = []
    with scenario(path, vfs=disk.name, ack=lambda fact: facts.append((len(disk.log), fact))) as story:
        for _, step in story.steps():
            step()
    rng = random.Random(seed)
    log, files = disk.log, {path.name: bytearray(prepared.read_bytes())}
    after = tmp_path / "after"
    unsynced: list[Op] = []
    for number, op in enumerate(log, 1):
        unsynced.append(op)
        if op.kind == "sync":
            for each in unsynced:
                if each.file == op.file:
                    _apply(files, each)
            unsynced = [each for each in unsynced if each.file != op.file]
        if number % (2 if seed is None else 3) == 0 or op.kind == "sync":
            after.mkdir()
            _restart(after, files, unsynced if seed is not None else [], rng)
            try:
                look(after / path.name, [fact for at, fact in facts if at <= number])
            except Exception as error:
                raise AssertionError(f"power lost after operation {number} of {len(log)}: {error}") from error
            shutil.rmtree(after)
    assert len(facts) > 15


def _apply(files, op):
    content = files.setdefault(op.file, bytearray())
    if op.kind == "truncate":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
    elif op.kind == "write":
        content.extend(bytes(max(0, op.offset - len(content))))
        content[op.offset : op.offset + len(op.data)] = op.data


def _restart(folder, files, unsynced, rng):
    """Write what the disk would show: what was synced, and some sectors of what was not."""
    left = {name: bytearray(content) for name, content in files.items()}
    for op in unsynced:
        if op.kind == "write":
            for start in range(0, len(op.data), 512):
                if rng.random() < 0.5:
                    _apply(left, Op(op.file, "write", op.offset + start, op.data[start : start + 512]))
        elif op.kind == "truncate" and rng.random() < 0.5:
            _apply(left, op)
    for name, content in left.items():
        if not name.endswith("-journal"):
            (folder / name).write_bytes(content)
