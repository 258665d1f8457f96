"""A job to try things with, and its template: `rota template load --samples`, or `rota.store.load(samples=True)`.

It is run by any worker that may import it: `ROTA_HANDLER_MODULES=rota.samples rota up`.
"""

from __future__ import annotations

import time

from rota.executors.context import Context
from rota.model.signals import PermanentError

NAP_S = 0.05
"""The longest it sleeps without a look whether it was asked to stop."""

SAMPLES: list[dict[str, object]] = [
    {
        "doctype": "Job Type",
        "type_name": "sample_job",
        "display_name": "Sample Background Job",
        "description": "Counts to 100 percent; slowly, or not to the end, if it is told so.",
        "handler_method": "rota.samples.execute_sample_job",
        "default_timeout": 60,
        "default_priority": "Normal",
        "max_retries": 3,
        "is_enabled": 1,
        "deduplication_window": 0,
    }
]
"""In the form of a definitions file of job types."""


def execute_sample_job(ctx: Context, steps: int = 5, seconds: float = 1.0, fail: bool | str = False) -> dict[str, object]:  # noqa: FBT001, FBT002 - params are passed by name
    """Report progress in so many steps over so many seconds; with `fail`, raise halfway: an error, or for good if it says "permanent"."""
    for step in range(steps):
        ctx.progress(100 * step / steps, f"step {step + 1} of {steps}")
        _sleep(ctx, seconds / steps)
        if fail and step >= steps // 2:
            raise (PermanentError if fail == "permanent" else RuntimeError)(f"asked to fail in step {step + 1}")
    ctx.progress(100, "done")
    ctx.log.info("%d steps in %g s", steps, seconds)
    return {"steps": steps, "attempt": ctx.attempt}


def _sleep(ctx: Context, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ctx.checkpoint()
        time.sleep(min(left, NAP_S))
