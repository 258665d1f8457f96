"""Answers for a token without the permit `read`: they confirm what it did, and show nothing else."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.values import Job, Run
from rota.schedule_views import ScheduleView
from rota.template_views import TemplateView

WITHOUT_READ: dict[type, tuple[str, ...]] = {
    Job: (
        "id",
        "number",
        "status",
        "job_type",
        "organization",
        "priority",
        "position",
        "attempt",
        "root_id",
        "created_at",
        "existing",
        "retry_of",
        "run_at",
        "queued_at",
        "started_at",
        "finished_at",
        "cancel_requested_at",
    ),
    Run: ("id", "job_id", "status", "started_at", "finished_at"),
    ScheduleView: ("id", "name", "organization", "template", "state", "next_at", "last_at", "version"),
    TemplateView: ("name", "state", "version"),
}
"""The fields that answers show to a token without the permit `read`. A field that is not listed is left out.

`docs/guide/access.md` is tested against this.
"""


def without_read(value: Any) -> Any:
    """Return a value with only the fields that a token without the permit `read` may see."""
    if isinstance(value, dict):
        return {name: without_read(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_read(each) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    names = WITHOUT_READ.get(type(value), value.__struct_fields__)
    return {name: without_read(getattr(value, name)) for name in names}
