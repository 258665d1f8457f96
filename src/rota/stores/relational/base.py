"""What the shared verbs stand on: how a store writes, reads, and looks at one job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from rota.errors import NotFound
from rota.model.values import Job, dashed
from rota.stores.relational import reads
from rota.stores.relational.db import Db

T = TypeVar("T")


class Base(ABC):
    """A dialect fills this in."""

    @abstractmethod
    def _write(self, work: Callable[[Db], T], *, patient: bool = False) -> T:
        """Do one piece of work in a transaction of its own. Patient: others may go first."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Db]:
        """Lend a connection for a block of reads."""

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
