"""Pausing and resuming by what a surface was given: a template, an organization, or neither."""

from __future__ import annotations

from rota.app import Rota
from rota.errors import InvalidOption


def set_pause(rota: Rota, *, paused: bool, template: str | None = None, organization: str | None = None) -> None:
    """Pause or resume a template, an organization, or (neither given) everything."""
    if template is not None and organization is not None:
        raise InvalidOption("pass template=… or organization=…, not both")
    if template is not None:
        (rota.templates.pause if paused else rota.templates.resume)(template)
    elif organization is not None:
        (rota.organizations.pause if paused else rota.organizations.resume)(organization)
    elif paused:
        rota.store.pause()
    else:
        rota.store.resume()
