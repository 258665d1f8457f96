"""Templates and pauses: each change advances the version that every turn and enqueue looks at."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.values import Actor, Instant, Template
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.verbs import audit


def put_templates(db: Db, templates: Sequence[Template], actor: Actor, now: Instant) -> None:
    """Make or update templates by name; those that are the same change nothing."""
    changed = 0
    for template in templates:
        changed += db.change(
            "put_template",
            template_id=template.id,
            name=template.name,
            job_type=template.job_type,
            defaults=msgspec.json.encode(template.defaults, order="sorted").decode(),
            actor=actor.name,
            now=now,
        )
    if changed:
        db.change("advance_definitions")


def templates(db: Db) -> list[Template]:
    """Return every template."""
    return [
        Template(id=row[0], name=row[1], job_type=row[2], state=row[3], version=row[4], defaults=msgspec.json.decode(row[5]))
        for row in db.rows("templates")
    ]


def pause(db: Db, kind: str, name: str, actor: Actor, now: Instant) -> None:
    """Begin a pause; one that lasts already goes on."""
    if db.change("pause", kind=kind, name=name, actor=actor.name, now=now):
        db.change("advance_definitions")
        audit(db, actor, now, "pause", (kind, name))


def resume(db: Db, kind: str, name: str, actor: Actor, now: Instant) -> None:
    """End a pause and give back what it parked."""
    if db.change("resume", kind=kind, name=name):
        db.change("unpark", held=f"{kind}:{name}")
        db.change("advance_definitions")
        audit(db, actor, now, "resume", (kind, name))
