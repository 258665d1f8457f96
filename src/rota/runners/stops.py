"""Whether a run is to stop: for runners of SQL, which ask before each step.

A commit that was made is a completion, also if the attempt was asked to stop during it: the caller must not repeat it.
"""

from __future__ import annotations

from rota.ports.executor import StopReason
from rota.ports.runner import Control


class Halted(Exception):  # noqa: N818 - a signal to the runner itself
    """The attempt is to stop, and nothing of it was committed."""

    def __init__(self, reason: StopReason) -> None:
        """Take why."""
        super().__init__(reason)
        self.reason = reason


def stop_reason(control: Control) -> StopReason | None:
    """Return why an attempt is to stop. One without time left is late, even if nobody has said so yet."""
    reason = control.reason()
    if reason is None and control.remaining_s() == 0:
        return StopReason.TIMEOUT
    return reason


def halt(control: Control) -> None:
    """Raise if the attempt is to stop."""
    reason = stop_reason(control)
    if reason is not None:
        raise Halted(reason)
