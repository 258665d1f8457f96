"""Ready is not yet allowed: what must hold before a QUEUED job may start, each as one object.

The dispatcher asks them when it claims and `explain` asks the same ones, in the same order, so the two can't disagree.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from rota.ports.store import Reservation


class Waiting(msgspec.Struct, frozen=True):
    """What the predicates look at of a job. Fields left None are not known yet and block nothing."""

    job_type: str
    organization_id: str | None = None
    number: int | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers depend on."""

    types: frozenset[str]
    """Job types that the worker (or, in explain, any live worker) can run."""
    pauses: frozenset[tuple[str, str]] = frozenset()
    reservation: Reservation | None = None


class Predicate(Protocol):
    """One condition."""

    name: str
    parks: bool
    """Whether a blocked row leaves the ready index, so that no claim meets it again until this changes."""

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Return who or what blocks this job, or None."""


class RunnableType:
    """Some worker has a handler for it."""

    name = "a worker has its handler"
    parks = False

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Name the type that nobody runs."""
        return None if job.job_type in world.types else f"type:{job.job_type}"


class NothingPaused:
    """Neither everything, nor its template, is paused."""

    name = "not paused"
    parks = False

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Name the pause."""
        if ("all", "") in world.pauses:
            return "all:"
        return f"template:{job.job_type}" if ("template", job.job_type) in world.pauses else None


class OrganizationOpen:
    """Its organization is not paused."""

    name = "organization not paused"
    parks = True

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Name the organization."""
        if job.organization_id is not None and ("organization", job.organization_id) in world.pauses:
            return f"organization:{job.organization_id}"
        return None


class NoReservation:
    """No direct execution has reserved the next slot for another job."""

    name = "no direct execution ahead"
    parks = False

    def blocked_by(self, job: Waiting, world: World) -> str | None:
        """Name who reserved the next slot."""
        reservation = world.reservation
        if reservation is None or job.number is None or reservation.job_number == job.number:
            return None
        return f"direct:{reservation.reserved_by}"


PREDICATES: tuple[Predicate, ...] = (RunnableType(), NothingPaused(), OrganizationOpen(), NoReservation())


_WORDS = {
    "type": "no live worker has a handler for {name}",
    "all": "everything is paused",
    "template": "template {name} is paused",
    "organization": "organization {name} is paused",
    "direct": "a direct execution by {name} has the next slot",
}


def in_words(blocker: str) -> str:
    """Return what blocks as a person would say it."""
    kind, _, name = blocker.partition(":")
    return _WORDS[kind].format(name=name)


def first_block(job: Waiting, world: World) -> tuple[Predicate, str] | None:
    """Return the first predicate that does not hold, and what blocks."""
    for predicate in PREDICATES:
        blocker = predicate.blocked_by(job, world)
        if blocker is not None:
            return predicate, blocker
    return None
