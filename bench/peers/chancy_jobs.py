"""Chancy's job, in a module of its own: it is stored by its import path."""

from __future__ import annotations

from chancy import job
from common import Payload, started


@job(queue="default", max_attempts=3)
async def noop(*, job: Payload) -> None:
    """Do nothing but be counted."""
    started(job)
