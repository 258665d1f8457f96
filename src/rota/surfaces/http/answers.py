"""Answers as JSON: the values of the model, written by msgspec, which knows them already."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.model.gate import Actor
from rota.model.values import Job
from rota.surfaces.redaction import is_redacted, without_read

ACTOR = "rota.actor"
"""Where the scope of a request has the actor whom the door let in."""
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
        if actor is not None and is_redacted(actor):
            self.body = _encode(without_read(self._content))
            self.headers["content-length"] = str(len(self.body))
            if isinstance(self._content, Job) and "etag" in self.headers:
                del self.headers["etag"]
        await super().__call__(scope, receive, send)
