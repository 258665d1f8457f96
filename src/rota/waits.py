"""Waiting for the end of a chain, with a thread and without one."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from rota.engine.patience import Patience
from rota.errors import WaitTimeout
from rota.handle import ended
from rota.model.gate import Actor, Right
from rota.model.states import Status
from rota.model.values import Job, JobRef, Run, undashed

if TYPE_CHECKING:
    from rota.session import Session

WAIT_S = (0.002, 0.025)
"""First and longest pause between two looks."""


def wait(session: Session, actor: Actor | str | None, job: JobRef, timeout: float | None = None) -> Run:
    """Wait for the end of the chain and return its last run. A store that becomes unavailable is waited for."""
    end = None if timeout is None else time.monotonic() + timeout
    patience = Patience(outage_s=session.settings.busy_timeout) if end is None else Patience(until=end)
    session.open()
    tail = patience.ask(lambda: session.reach(job, actor, Right.READ))
    pause, longest = WAIT_S
    while True:
        chain = patience.ask(lambda: session.open().store.chain(tail))
        if not chain:
            raise session.no_job(job)
        last = chain[-1]
        if last.status.ended:
            return ended(last, patience.ask(partial(_run_of, session, last)))
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(f"{last.number} is still {last.status} after {timeout:g} s; it continues, wait again")
        time.sleep(pause)
        pause = min(longest, pause * 1.5)


async def wait_async(
    session: Session,
    actor: Actor | str | None,
    job: JobRef,
    timeout: float | None = None,  # noqa: ASYNC109 - the same word as in wait()
) -> Run:
    """Wait without blocking the event loop or a thread: one thread asks for all waits."""
    watcher = await session.watching()
    tail = await watcher.tail(partial(session.reach, job, actor, Right.READ), timeout)
    if tail is None:
        raise session.no_job(job)
    if tail.run is not None and tail.status not in {Status.CANCELLED, Status.SKIPPED}:
        return tail.run
    # The error names what the store has of the job, and reading that would block the loop.
    found = await session.calls.call(lambda: session.job(tail.job_id, session.scope(actor, Right.READ)))
    return ended(found, tail.run)


def _run_of(session: Session, job: Job) -> Run | None:
    return session.open().store.run(str(undashed(job.id)))
