"""Routes that tell which of them answered: requests are counted and logged by it."""

from __future__ import annotations

from starlette.routing import Match, Route
from starlette.types import Scope


class KnownRoute(Route):
    """A route that is named in the scope of its requests, as `route`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this route."""
        match, child = super().matches(scope)
        return match, child if match is Match.NONE else {**child, "route": self}
