"""How a simulation puts things."""

from __future__ import annotations

from rota.model.values import SECOND, Instant, moment

UNITS = ((365 * 86_400, "year"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def length(span: Instant) -> str:
    """Return a length of time in its two largest units: "3 days 4 hours"."""
    left, parts = round(abs(span) / SECOND, 2), []
    if left < 60:
        return f"{left:g} second{'' if left == 1 else 's'}"
    for size, name in UNITS:
        count = int(left // size)
        left -= count * size
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(parts[:2])


def clock_time(at: Instant) -> str:
    """Return a moment in UTC, to the second."""
    return f"{moment(at):%Y-%m-%d %H:%M:%S}Z"
