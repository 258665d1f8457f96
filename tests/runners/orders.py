"""Orders for tests of runners."""

from __future__ import annotations

import json
from typing import Any

from rota.model.decide import Completed, Outcome
from rota.model.schedules import JobKind
from rota.ports.runner import Database, Order

JOB, RUN = "0190b0c8-0000-7000-8000-000000000001", "0190b0c8-0000-7000-8000-000000000002"


def order(body: str, database: Database | None, *, kind: JobKind = JobKind.SQL, timeout_s: float = 0.0, **more: Any) -> Order:
    """Return an attempt at running a body."""
    return Order(
        kind=kind, body=body, database=database, job_uuid=JOB, run_uuid=RUN, job_name="nightly", attempt=1, owner="ada",
        organization="acme", timeout_s=timeout_s, **more,
    )  # fmt: skip


def rows(outcome: Outcome) -> list[list[Any]]:
    """Return the rows that a run has kept."""
    assert isinstance(outcome, Completed), outcome
    assert outcome.result is not None
    found: list[list[Any]] = json.loads(outcome.result)["rows"]
    return found
