"""The reads of a relational store."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.gate import EVERYTHING, Scope
from rota.model.values import Audited, Graph, Group, Instant, Job, LogEntry, ResultsPage, Run, Stats
from rota.ports.store import Tail, Where
from rota.ports.turns import Counting, Usage
from rota.stores.verbs import graph, groups, limits, lists, reads, stats
from rota.stores.verbs.base import Base


class Reading(Base):
    """What people and the engine ask of the rows."""

    def by_number(self, number: int) -> Job | None:
        """Return a job by its number."""
        with self._reading() as db:
            row = db.row("job_by_number", number=number)
            return None if row is None else reads.job_from(row)

    def chain(self, job_id: str) -> list[Job]:
        """Return a chain, first to tail."""
        with self._reading() as db:
            return [reads.job_from(row) for row in db.rows("chain", job_id=job_id)]

    def tails(self, job_ids: Sequence[str]) -> dict[str, Tail]:
        """Return the last jobs of many chains."""
        with self._reading() as db:
            return reads.tails(db, job_ids)

    def run(self, job_id: str) -> Run | None:
        """Return a job's run."""
        with self._reading() as db:
            row = db.row("run", job_id=job_id)
            return None if row is None else reads.run_from(job_id, row)

    def find(self, where: Where, *, limit: int, before: int | None = None) -> list[tuple[int, Job]]:
        """Return a page of jobs."""
        with self._reading(long=True) as db:
            return lists.find(db, where, limit, before)

    def queue(self, *, limit: int, scope: Scope = EVERYTHING) -> list[Job]:
        """Return the queue in its order."""
        with self._reading() as db:
            return reads.queue(db, limit, scope)

    def ahead(self, job_id: str, *, scope: Scope = EVERYTHING) -> int:
        """Return how many stand before a job."""
        with self._reading(long=True) as db:
            return int(db.value("ahead", job_id=job_id, organization_id=scope.organization))

    def blockers(self, job_id: str) -> list[Job]:
        """Return what a job waits for."""
        with self._reading() as db:
            return [reads.job_from(row) for row in db.rows("blockers", job_id=job_id)]

    def awaited_groups(self, job_id: str) -> list[Group]:
        """Return the groups that a job waits for."""
        with self._reading() as db:
            return groups.awaited_groups(db, job_id)

    def results_before(
        self, job_id: str, *, after: tuple[int, int] | None, limit: int, template: str | None = None, parent: str | None = None
    ) -> ResultsPage:
        """Return results of what a job waited for."""
        with self._reading() as db:
            return groups.results_before(db, job_id, after, limit, template=template, parent=parent)

    def log(self, job_id: str) -> list[LogEntry]:
        """Return the moves of a chain."""
        with self._reading() as db:
            return reads.log(db, job_id)

    def graph(self, job_id: str, *, limit: int) -> Graph | None:
        """Return what waits for what around a chain."""
        with self._reading() as db:
            return graph.graph(db, job_id, limit)

    def usage(self, counting: Counting, *, now: Instant) -> Usage:
        """Count what a turn would count."""
        with self._reading() as db:
            return limits.usage(db, counting, now)

    def audit(self, *, limit: int, before: int | None = None, scope: Scope = EVERYTHING, subject: str | None = None) -> list[Audited]:
        """Return what people changed."""
        with self._reading(long=True) as db:
            return reads.audit(db, limit, before, scope, subject)

    def stats(self, *, now: Instant, hours: int = 24, scope: Scope = EVERYTHING) -> Stats:
        """Return counts and ages."""
        with self._reading(long=True) as db:
            return stats.stats(db, now, hours, scope)
