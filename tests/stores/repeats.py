"""A store that begins work again as one without savepoints and with conflicts between transactions does, over a SQLite file.

Each write is done once in vain, undone and done again, up to the moment at which a worker chooses: that is asked once. If a part of it
raises, all is undone and begun again, and the part of that name raises the same error before it has done anything.
Some statements are functions, and the ends of runs and jobs are written in one step: the verbs know nothing of either.

As a plugin of pytest (`-p tests.stores.repeats`) it takes the place of the SQLite store in the contract suite.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import pytest

from rota.model.values import Enqueued, NewRow
from rota.ports.turns import Choice, Turn, Turned
from rota.stores import sqlite
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.db import Db
from rota.stores.verbs.db import About, Function
from rota.stores.verbs.store import Hold, VerbStore
from tests.stores import makers

T = TypeVar("T")
log = logging.getLogger("rota.store")


class Undone(BaseException):
    """A part has raised, and with it the whole transaction is undone. No verb catches this."""

    def __init__(self, about: About, error: Exception) -> None:
        super().__init__(about)
        self.about = about
        self.error = error


class Asked(BaseException):
    """A worker is asked to choose: this far, work may be begun again."""


class RepeatedDb(Db):
    """A connection without savepoints, on which some names are functions."""

    __slots__ = ("_failed", "_functions", "begun")

    def __init__(self, raw: Any, failed: dict[About, Exception]) -> None:
        self.raw = raw
        self._failed = failed
        self.begun: list[About] = []
        """The parts that were begun, in order."""
        self._functions: dict[str, Function] = {
            "same_id": self._same_id,
            "states_of": self._states_of,
            "park_jobs": self._park_jobs,
            "queue_jobs": self._queue_jobs,
        }

    @contextmanager
    def savepoint(self, about: About = ()) -> Iterator[None]:
        if about in self._failed:
            raise self._failed[about]
        assert about, "a part must say what it is about"
        self.begun.append(about)
        try:
            yield
        except Exception as error:
            raise Undone(about, error) from error

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        function = self._functions.get(name)
        if function is None:
            return super().rows(name, **values)
        found = function(**values)
        assert isinstance(found, list)
        return found

    def change(self, name: str, /, **values: Any) -> int:
        function = self._functions.get(name)
        if function is None:
            return super().change(name, **values)
        changed = function(**values)
        assert isinstance(changed, int)
        return changed

    def finish(self, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
        """End each run with its job, one by one."""
        for run, job in zip(runs, jobs, strict=True):
            assert run[:2] == job[:2], "a run and a job that do not belong together"
            super().finish([run], [job])

    def _same_id(self, **values: Any) -> list[tuple[Any, ...]]:
        found = self.raw.execute(
            "SELECT job_id, root_id, number, status, queued_at, position, job_type, organization_id FROM jobs WHERE job_id = ?",
            (values["job_id"],),
        )
        return [
            (job_id.hex(), root_id.hex(), number, status, 0 if queued_at is None else position, job_type, organization_id)
            for job_id, root_id, number, status, queued_at, position, job_type, organization_id in found
        ]

    def _states_of(self, **values: Any) -> list[tuple[Any, ...]]:
        return [
            row for number in values["numbers"] for row in self.raw.execute("SELECT number, status FROM jobs WHERE number = ?", (number,))
        ]

    def _park_jobs(self, **values: Any) -> int:
        text = "UPDATE jobs SET held = ? WHERE number = ? AND status = 'QUEUED' AND held IS NULL"
        return sum(self._one(text, held, number) for number, held in values["parked"].items())

    def _queue_jobs(self, **values: Any) -> int:
        text = "UPDATE jobs SET status = 'QUEUED', queued_at = ?, position = ? WHERE number = ? AND status = 'PENDING'"
        return sum(self._one(text, values["now"], position, number) for number, position in values["positions"].items())

    def _one(self, text: str, *values: Any) -> int:
        self.raw.execute(text, values)
        return int(self.raw.changes())


class RepeatedStore(SqliteStore):
    """A SQLite store all of whose writes are begun at least twice."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.begun_again = 0
        """How often work was begun again because a part of it had raised."""
        self._mode = threading.local()

    def enqueue(self, rows: Sequence[NewRow], **options: Any) -> list[Enqueued]:
        """Go the long way, which is a piece of work, with a lone plain job too."""
        return VerbStore.enqueue(self, rows, **options)

    def turn(self, turn_: Turn) -> Turned:
        choose = turn_.choose
        if choose is None:
            return super().turn(turn_)

        def ask(*offered: Any) -> Choice:
            if self._mode.in_vain:
                raise Asked
            self._mode.asked = True
            return choose(*offered)

        return super().turn(msgspec.structs.replace(turn_, choose=ask))

    def _write(self, work: Callable[[Any], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        def repeated(db: Db) -> T:
            with each_line_once():
                return self._repeated(db, work)

        return super()._write(repeated, hold=hold, patient=patient, long=long)

    def _repeated(self, db: Db, work: Callable[[Any], T]) -> T:
        self._mode.in_vain = True
        first = self._in_vain(db, work)
        self._mode.in_vain = self._mode.asked = False
        failed: dict[About, Exception] = {}
        while True:
            again = RepeatedDb(db.raw, failed)
            try:
                with db.savepoint():
                    value = work(again)
            except Undone as undone:
                self._note(undone, failed)
            else:
                if not failed and not self._mode.asked:
                    assert again.begun == first, "parts are about something else when they are begun again"
                return value

    def _note(self, undone: Undone, failed: dict[About, Exception]) -> None:
        assert undone.about not in failed, f"{undone.about} raises, and has been tried again"
        assert not self._mode.asked, "a worker would have to choose again"
        failed[undone.about] = undone.error
        self.begun_again += 1

    def _in_vain(self, db: Db, work: Callable[[Any], object]) -> list[About]:
        """Do the work and undo it; return what its parts were about."""
        tried = RepeatedDb(db.raw, {})
        try:
            with db.savepoint():
                work(tried)
                raise Asked
        except (Exception, Asked, Undone):
            return tried.begun


@contextmanager
def each_line_once() -> Iterator[None]:
    """Keep a line out of the log that the same piece of work has logged before."""
    lines: set[str] = set()
    me = threading.get_ident()

    def is_new(record: logging.LogRecord) -> bool:
        line = record.getMessage()
        if record.thread != me or line not in lines:
            lines.add(line)
            return True
        return False

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


def pytest_load_initial_conftests() -> None:
    """Have the contract suite open this store, and no other: its own conftest is imported after this."""
    sqlite.SqliteStore = makers.SqliteStore = RepeatedStore  # type: ignore[misc]
    makers.MAKERS[:] = [makers.SqliteMaker]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave as many cases as are asked for, from all over the suite; of a sample, not the large ones."""
    every = max(1, len(items) // int(os.environ["ROTA_TEST_CASES"]))
    items[:] = [item for item in items[::every] if every == 1 or item.get_closest_marker("prove") is None]
