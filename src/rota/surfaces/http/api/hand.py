"""Routes that are written by hand, because they stream, wait, or take more than one kind of body. They describe themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Scope

from rota.surfaces.http.api.endpoint import Address
from rota.surfaces.http.api.requests import JSON

ROUTES: list[HandRoute] = []
"""Every route that is written by hand."""


class HandRoute(Address):
    """One of them, with what the OpenAPI document says of it."""

    def __init__(
        self,
        name: str,
        tag: str,
        http: str,
        endpoint: Callable[[Request], Any],
        *,
        parameters: Sequence[dict[str, Any]] = (),
        content: dict[str, Any] | None = None,
        responses: dict[int | str, dict[str, Any]],
        is_open: bool = False,
    ) -> None:
        """Take its parameters, its body by media type, and its answers; `is_open` if it asks for no token."""
        super().__init__(name, tag, http, endpoint)
        self.parameters = list(parameters)
        self.content = content
        self.responses = responses
        self.is_open = is_open
        self.words = inspect.getdoc(endpoint) or ""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this route: where its path has no parts that vary, that is a comparison."""
        if scope["type"] != "http" or "{" in self.path:
            return super().matches(scope)
        if scope["path"].removeprefix(scope.get("root_path", "")) != self.path:
            return Match.NONE, {}
        match = Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL
        return match, {"endpoint": self.endpoint, "path_params": {}, "route": self}


def route(
    name: str,
    tag: str,
    http: str,
    *,
    parameters: Sequence[dict[str, Any]] = (),
    content: dict[str, Any] | None = None,
    responses: dict[int | str, dict[str, Any]],
    is_open: bool = False,
) -> Callable[[Callable[[Request], Any]], Callable[[Request], Any]]:
    """Make a function of a request a route."""

    def decorate(function: Callable[[Request], Any]) -> Callable[[Request], Any]:
        made = HandRoute(name, tag, http, function, parameters=parameters, content=content, responses=responses, is_open=is_open)
        ROUTES.append(made)
        return function

    return decorate


def query(name: str, schema: dict[str, Any], words: str) -> dict[str, Any]:
    """Return the description of a parameter in the address."""
    return {"name": name, "in": "query", "required": False, "description": words, "schema": schema}


def header(name: str, words: str, **schema: Any) -> dict[str, Any]:
    """Return the description of a header."""
    return {"name": name, "in": "header", "required": False, "description": words, "schema": {"type": "string", **schema}}


JOB = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "The job's id, or its number.",
    "schema": {"type": "string"},
    "example": "JOB-2026-00042",
}


def takes(kind: type) -> dict[str, Any]:
    """Return the content of a body that is one JSON value."""
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
