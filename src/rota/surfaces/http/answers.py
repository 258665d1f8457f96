"""Answers as JSON: the values of the model, written by msgspec, which knows them already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import Response
from starlette.types import Receive, Scope, Send

from rota.model.gate import Actor, Right
from rota.model.values import Job, Run
from rota.schedule_views import ScheduleView
from rota.template_views import TemplateView

ACTOR = "rota.actor"
"""Where the scope of a request has the actor whom the door let in."""
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
"""What answers show to a token without the permit `read`: that its own act has worked. A field that is not listed is left out.

`docs/guide/access.md` is tested against this.
"""
_encode = msgspec.json.Encoder().encode


class Answer(Response):
    """Any value of ours as JSON, as far as the token that it is for may read it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as bytes; keep it until it is known whom it is for."""
        self._content = content
        return _encode(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; without what the token may not read, and without a tag, which would tell of that."""
        actor: Actor | None = scope.get(ACTOR)
        if actor is not None and actor.operations is not None and Right.READ not in actor.operations:
            self.body = _encode(_without_read(self._content))
            self.headers["content-length"] = str(len(self.body))
            if isinstance(self._content, Job) and "etag" in self.headers:
                del self.headers["etag"]
        await super().__call__(scope, receive, send)


def _without_read(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_read(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_read(each) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    names = WITHOUT_READ.get(type(value), value.__struct_fields__)
    return {name: _without_read(getattr(value, name)) for name in names}


def page(items: Iterable[Any], next_: int | str | None) -> dict[str, Any]:
    """Return one page of a list; `next` is the cursor of the page after it, null if there is none."""
    return {"items": list(items), "next": None if next_ is None else str(next_)}
