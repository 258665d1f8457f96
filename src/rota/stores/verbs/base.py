"""What the shared verbs stand on: how a store writes, reads, and looks at one job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, TypeVar

from rota.errors import NotFound
from rota.model.values import Job, dashed
from rota.stores.verbs import reads
from rota.stores.verbs.db import Db

T = TypeVar("T")


class Hold(Enum):
    """How much of the store a piece of work keeps others out of. A dialect with one writer keeps everybody out of everything."""

    NOTHING = "nothing"
    """It touches rows that nobody else's work depends on."""
    DOOR = "door"
    """It adds plain jobs: many may do so at once, also while a turn is made."""
    LIGHT = "light"
    """It is a turn that ends what means nothing to others, and claims what nothing limits: many may do so at once."""
    CLAIM = "claim"
    """It is such a turn and claims many: one of these at a time, for two would want the same jobs and be in each other's way."""
    WHEEL = "wheel"
    """It is any other turn: one at a time."""
    ALL = "all"
    """It reads, decides and writes: nobody else does meanwhile."""
    STILL = "still"
    """As ALL, and no caller's own transaction is open that has added jobs, which nobody sees yet."""


class Base(ABC):
    """A dialect fills this in."""

    _shares = False
    """Several may write at once where `Hold` lets them."""
    _calm = False
    """The last turn found nothing that asks for a turn with the wheel to itself: the next may try to be a light one."""

    @abstractmethod
    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        """Do one piece of work in a transaction of its own. Patient: others may go first. Long: its work grows with the store."""

    @abstractmethod
    def _reading(self, *, long: bool = False) -> AbstractContextManager[Db]:
        """Lend a connection for a block of reads. Long: their work grows with the store."""

    @abstractmethod
    def _of(self, transaction: Any) -> AbstractContextManager[Db]:
        """Lend the connection of the caller's own transaction."""

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return one job."""
        with self._reading() if transaction is None else self._of(transaction) as db:
            row = db.row("job", job_id=job_id)
            return None if row is None else reads.job_from(row)

    def _verb(self, work: Callable[[Db], str]) -> Job:
        job_id = self._write(work)
        job = self.job(job_id)
        if job is None:
            raise NotFound(f"{dashed(job_id)} was removed meanwhile")
        return job
