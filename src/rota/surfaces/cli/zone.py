"""The time zone of the command line: of the times that it shows, and of those that people type without an offset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rota.model.zones import known_zone, zone_of
from rota.surfaces.cli.tree import asked_zone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

VARIABLE = "ROTA_ZONE"
LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")


def current() -> ZoneInfo:
    """Return the zone of this command: that of --zone, else of $ROTA_ZONE, else of the machine."""
    name = asked_zone.get() or os.environ.get(VARIABLE, "").strip()
    return zone_of(name) if name else machine()


def machine() -> ZoneInfo:
    """Return the zone of the machine: of $TZ, else of /etc/localtime. UTC, where neither names a zone that is known."""
    named = os.environ.get("TZ")
    if named is not None:
        return known_zone(named.strip().removeprefix(":")) or zone_of("UTC")
    return _linked() or _noted() or zone_of("UTC")


def _linked() -> ZoneInfo | None:
    _, found, name = str(LOCALTIME.resolve()).rpartition("/zoneinfo/")
    return known_zone(name) if found else None


def _noted() -> ZoneInfo | None:
    try:
        return known_zone(TIMEZONE.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None
