"""Pausing and resuming by what a form was given: a template, an organization, a queue, or none of them."""

from __future__ import annotations

from rota.app import Rota
from rota.errors import InvalidOption


def set_pause(rota: Rota, *, paused: bool, template: str | None = None, organization: str | None = None, queue: str | None = None) -> None:
    """Pause or resume a template, an organization, a queue, or (none given) everything."""
    asked = {"template": template, "organization": organization, "queue": queue}
    named = [f"{kind}=…" for kind, name in asked.items() if name is not None]
    if len(named) > 1:
        raise InvalidOption(f"use {' or '.join(named)}, not {'both' if len(named) == 2 else 'all of them'}")
    if template is not None:
        (rota.templates.pause if paused else rota.templates.resume)(template)
    elif organization is not None:
        (rota.organizations.pause if paused else rota.organizations.resume)(organization)
    elif queue is not None:
        (rota.queues.pause if paused else rota.queues.resume)(queue)
    elif paused:
        rota.store.pause()
    else:
        rota.store.resume()
