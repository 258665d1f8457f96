"""What a template requires of people who say what its jobs do, though the jobs are somebody else's."""

from __future__ import annotations

from rota.engine.registry import Registry
from rota.errors import PermissionDenied
from rota.model.gate import Actor, may_use


def refuse_unfit(registry: Registry, who: Actor, template: str) -> None:
    """Refuse who lacks the permission that a template requires. A job has the rights of its owner: nobody borrows them by an edit."""
    known = registry.find(template)
    needed = None if known is None else known.force.requires_permission
    if not may_use(who, needed):
        raise PermissionDenied(f"{who.name!r} lacks the permission {needed!r} that template {template!r} requires")
