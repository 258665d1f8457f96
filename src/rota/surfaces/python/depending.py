"""Dependencies: letting a job wait for others, and seeing what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.engine.submit import parent_rule
from rota.errors import InvalidOption
from rota.model.gate import EVERYTHING, Actor, Right
from rota.model.values import Graph, Job, JobRef
from rota.surfaces.python.base import Base


class Depending(Base):
    """The part of Rota that lets jobs wait for each other."""

    def depend(self, job_id: JobRef, on: Sequence[Any] | JobRef, *, on_failure: str = "wait", actor: Actor | str | None = None) -> Job:
        """Let a PENDING job wait for one more job, or several: their chains must complete before it is queued.

        What it waits for already changes nothing. `on_failure` says what becomes of it if one of them ends otherwise.
        """
        child = self._session.reach(job_id, actor, Right.STEER)
        who, rule = self._session.actor(actor), parent_rule(on_failure, "on_failure")
        parents = self._session.submitter.parents(on, who)
        if not parents:
            raise InvalidOption("there is nothing to wait for: give on=… one job, or several")
        job = self._session.open().store.add_dependencies(child, parents, on_failure=rule, actor=who, now=self._session.clock.now())
        self._session.poke()
        return job

    def graph(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Graph:
        """Return the chains that this one waits for and those that wait for it, near and far, each with its last attempt."""
        scope = self._session.scope(actor, Right.READ)
        found = self._session.open().store.graph(self._session.job_id(job_id, scope), limit=self.settings.graph_max)
        if found is None:
            raise self._session.no_job(job_id)
        if scope is EVERYTHING:
            return found
        jobs = {root: job for root, job in found.jobs.items() if scope.holds(job.organization, job.owner)}
        edges = tuple(edge for edge in found.edges if edge.child in jobs and edge.parent in jobs)
        return msgspec.structs.replace(found, jobs=jobs, edges=edges)
