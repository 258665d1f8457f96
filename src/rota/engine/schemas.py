"""The JSON Schemas of a worker's handlers, recorded in the store a few at a time: building thousands takes seconds."""

from __future__ import annotations

from rota.engine.parts import Parts

AT_ONCE = 50
"""Schemas that are built and recorded in one go."""


class Schemas:
    """Records the schemas of one worker's handlers. Belongs to its thread."""

    def __init__(self, parts: Parts) -> None:
        """Have recorded none yet."""
        self._parts = parts
        self._stated: set[str] = set()

    def state(self) -> None:
        """Record the next few that were not recorded yet."""
        if len(self._stated) == len(self._parts.handlers) or self._parts.direct_only:
            return
        names = [name for name in self._parts.handlers if name not in self._stated][:AT_ONCE]
        self._parts.registry.state_schemas(names, self._parts.store, self._parts.clock.now())
        self._stated.update(names)
