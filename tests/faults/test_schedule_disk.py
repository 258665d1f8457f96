"""A disk that fails at every write of a story with firings and edits: each due time still has one fate, each firing one job.

The same story without a fault says what is right; with one, a step that got an error is repeated and has the effect of once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from rota.errors import NotFound, StoreUnavailable
from rota.model.values import LATEST
from tests.faults import invariants
from tests.faults.broken_disk import BrokenDisk, Fault
from tests.faults.scenario import Scenario, prepare
from tests.support.proof import size

_names = count()


class Timetable(Scenario):
    """Schedules that fire, are edited just when they are due, skip, depend on each other, and go."""

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        rota = self.rota
        yield "declare", lambda: rota.schedule("s", "good", every=60, params={"n": 1}, overlap="allow")
        yield "declare child", lambda: rota.schedule("child", "good", every=120, params={"n": 2}, overlap="allow", depends_on="s")
        yield "a minute", lambda: self.clock.advance(seconds=60)
        yield "fire", self.turn
        yield "two minutes", lambda: self.clock.advance(seconds=125)
        yield "edit", lambda: rota.schedules.update("s", every=90, catch_up="all", overlap="queue")
        yield "fire child", self.turn
        yield "some minutes", lambda: self.clock.advance(seconds=400)
        yield "pause", lambda: rota.schedules.pause("child")
        yield "fire many", self.turn
        yield "more minutes", lambda: self.clock.advance(seconds=200)
        yield "delete", self._delete
        yield "last", self.turn

    def turn(self) -> None:
        """Turn until nothing is due any more: a firing that met the fault is tried again by the worker itself."""
        for _ in range(20):
            super().turn()
            if (self.store.beat_of_schedules().next_at or LATEST) > self.clock.now():
                return
        raise AssertionError("what was due never fired")

    def _delete(self) -> None:
        try:
            self.rota.schedules.delete("child")
        except NotFound:
            # It was deleted, and its caller did not hear of it.
            assert [view.name for view in self.rota.schedules.list()] == ["s"]


@pytest.fixture
def folder():
    """In memory where there is such a place: no sync is waited for."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="rota-faults-", dir=memory if usable else None) as made:
        yield Path(made)


@pytest.fixture
def disk():
    made = BrokenDisk(f"broken-timetable-{next(_names)}")
    yield made
    made.unregister()


def tell(path: Path, disk: BrokenDisk) -> None:
    """Go through the story, repeating a step that met the fault."""
    try:
        story = Timetable(path, vfs=disk.name)
    except StoreUnavailable:
        story = Timetable(path, vfs=disk.name)
    try:
        for name, step in story.steps():
            before = disk.fired
            try:
                step()
            except StoreUnavailable:
                assert disk.fired > before, f"{name} failed although the disk did not"
                step()
    finally:
        disk.fault = None
        story.close()


def read(path: Path) -> tuple[list[object], ...]:
    """The ledger, the jobs and the schedules, without ids."""
    invariants.check(path)
    with invariants.reading(path) as db:
        rows = "SELECT s.name, o.due_at, o.last_due_at, o.count, o.fate, o.reason, j.due_at, j.status FROM occurrences AS o"
        jobs = (
            "SELECT s.name, j.due_at, j.attempt, j.status, j.params FROM jobs AS j JOIN schedules AS s USING (schedule_id) ORDER BY 1, 2, 3"
        )
        return (
            list(db.execute(f"{rows} JOIN schedules AS s USING (schedule_id) LEFT JOIN jobs AS j ON j.job_id = o.job_id ORDER BY 1, 2, 5")),
            list(db.execute(jobs)),
            list(db.execute("SELECT name, cursor_at, next_trigger_at, state, version, dropped_at FROM schedules ORDER BY name")),
            list(db.execute("SELECT action, subject_id FROM audit ORDER BY audit_id")),
        )


@pytest.mark.prove
@pytest.mark.parametrize(
    ("kind", "step"),
    [("ioerr", size(13, prove=1)), ("full", size(29, prove=1)), ("torn", size(23, prove=1))],
    ids=["ioerr", "full", "torn"],
)
def test_a_fault_at_any_write_of_a_firing_or_an_edit_changes_nothing_in_the_end(folder, disk, kind, step):
    prepared = folder / "prepared.db"
    prepare(prepared)
    clean = folder / "clean.db"
    shutil.copy(prepared, clean)
    tell(clean, disk)
    wanted = read(clean)
    assert {row[4] for row in wanted[0]} == {"FIRED", "COALESCED", "SKIPPED_PAUSED"}
    for at in count(1, step):
        path = folder / f"{next(_names)}.db"
        shutil.copy(prepared, path)
        disk.count, disk.fired, disk.fault = 0, 0, Fault(kind, at)
        try:
            tell(path, disk)
            assert read(path) == wanted
        except Exception as error:
            raise AssertionError(f"{kind} at operation {at}: {error}") from error
        for left in folder.glob(f"{path.stem}.db*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if not disk.fired:
            return
