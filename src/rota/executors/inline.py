"""Runs jobs at once, in the caller's thread: for tests and for `rota.turn()`."""

from __future__ import annotations

from collections.abc import Sequence

from rota.executors.attempt import Attempt
from rota.executors.invoke import enter_handlers, leave_handlers, outcome_of, runner, unknown, wants_attempt
from rota.executors.stops import is_late, settle
from rota.model.decide import Outcome, Released, TimedOut
from rota.model.kinds import RUNNER
from rota.model.values import Claimed
from rota.ports.executor import Ended, Equipment, Readiness, StopReason


class InlineExecutor:
    """Every submitted job is over when `submit` returns. A timeout can only be found out afterwards."""

    def __init__(self, equipment: Equipment) -> None:
        """Take what handlers need."""
        self._equipment = equipment
        self._run = runner(equipment.settings)
        self._running: dict[int, Attempt | None] = {}
        """What is on the stack, by number; None for a handler that has no use for an attempt."""
        self._cut = False

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Run these, one after the other."""
        for job in jobs:
            if self._cut or (job.start_by and is_late(job, self._equipment.clock)):
                self._equipment.sink.ended(Ended(job, Released(), self._equipment.clock.now(), 0.0))
            else:
                self._execute(job)

    def readiness(self, job_type: str) -> Readiness:  # noqa: ARG002 - every handler alike
        """Run whatever is submitted, at once."""
        return Readiness.NOW

    def occupied(self) -> int:
        """Return how many handlers are on the stack."""
        return len(self._running)

    def given_up(self) -> int:
        """Have none: what is reported is over."""
        return 0

    def cancel(self, number: int) -> None:
        """Tell a handler that is on the stack; nothing ever waits here."""
        if attempt := self._running.get(number):
            attempt.stop()

    def tick(self, monotonic: float) -> float | None:  # noqa: ARG002 - nothing runs between two calls
        """Have nothing to enforce."""
        return None

    def release(self) -> list[Claimed]:
        """Have nothing to give back."""
        return []

    def interrupt(self) -> None:
        """Tell the handlers on the stack."""
        for attempt in tuple(self._running.values()):
            if attempt is not None:
                attempt.stop()

    def renew(self, until: float | None) -> None:
        """Have nothing that outlives its worker."""

    def cut(self, grace_s: float) -> None:
        """Tell the handlers on the stack, and start no more."""
        del grace_s
        self._cut = True
        self.interrupt()

    def close(self) -> None:
        """Have nothing to let go of."""

    def _execute(self, job: Claimed) -> None:
        equipment, settings = self._equipment, self._equipment.settings
        handler = equipment.handlers.get(job.job_type)
        attempt = Attempt(job, equipment) if handler is not None and (equipment.middleware or wants_attempt(handler)) else None
        self._running[job.number] = attempt
        path = None
        token = enter_handlers()
        started = equipment.clock.monotonic()
        try:
            if handler is None:
                outcome: Outcome = unknown(job)
            elif handler.executor == RUNNER and attempt is not None:
                from rota.executors.runner import perform_inline  # noqa: PLC0415 - only where there are jobs of such a kind

                outcome = perform_inline(job, attempt, equipment)
            elif handler.is_async and attempt is not None:
                from rota.executors.aio import run_to_end  # noqa: PLC0415 - asyncio only where it is needed

                outcome = run_to_end(handler, job, attempt, settings)
            else:
                outcome = self._run(handler, job, attempt, settings)
        except Exception as error:  # noqa: BLE001 - of what surrounds handlers, as tracing does: the job ends all the same
            outcome = outcome_of(error, settings)
        finally:
            leave_handlers(token)
            del self._running[job.number]
            if attempt is not None:
                path = attempt.end()
        seconds = equipment.clock.monotonic() - started
        if 0 < job.timeout < seconds:
            outcome = TimedOut(job.timeout)
        elif self._cut:
            outcome = settle(job, outcome, reason=StopReason.LEASE, reached=True, seconds=seconds)
        equipment.sink.ended(Ended(job, outcome, equipment.clock.now(), seconds, path))
