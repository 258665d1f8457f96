"""Templates, and how values are written on pages. Everything is escaped; nothing that runs stands in a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rota.model.gate import Right
from rota.surfaces.cli.output import one_line, span
from rota.surfaces.http.pages.static import address

if TYPE_CHECKING:
    from rota.surfaces.http.pages.visit import Visit

THEMES = ("dark", "light")
TEXT_MAX = 20_000
"""Characters of one value that a page shows; the rest is what the API is for."""


NAV: tuple[tuple[str, str, Right], ...] = (
    ("/", "Overview", Right.READ),
    ("/jobs", "Jobs", Right.READ),
    ("/queue", "Queue", Right.READ_STATS),
    ("/schedules", "Schedules", Right.READ),
    ("/groups", "Groups", Right.READ),
    ("/dead", "Dead letters", Right.READ),
    ("/workers", "Workers", Right.OPERATE),
    ("/templates", "Templates", Right.READ),
    ("/organizations", "Organizations", Right.READ_ORGANIZATIONS),
    ("/users", "Users", Right.READ_ORGANIZATIONS),
    ("/tokens", "Tokens", Right.MANAGE_ORGANIZATIONS),
    ("/webhooks", "Webhooks", Right.READ_WEBHOOKS),
    ("/audit", "Audit", Right.READ_AUDIT),
)
"""Pages in the order of the menu, and what one must be allowed to do to be offered each."""


def nav(visit: Visit) -> list[tuple[str, str]]:
    """Return the pages that this visitor is offered."""
    return [(href, name) for href, name, operation in NAV if visit.known and visit.may(operation)]


def is_here(visit: Visit, href: str) -> bool:
    """Say whether the visitor is on this page of the menu, or on one below it."""
    path = visit.request.url.path
    return path == href or (href != "/" and path.startswith(f"{href}/"))


def link(path: str, **query: object) -> str:
    """Return an address with what it is about behind the question mark: names may have any characters."""
    given = urlencode([(name, str(value)) for name, value in query.items() if value not in (None, "")])
    return f"{path}?{given}" if given else path


def render(template: str, **context: Any) -> str:
    """Return a page as text."""
    return _environment.get_template(template).render(now=datetime.now(UTC), **context)


def count(number: float) -> str:
    """Return a number that can be read: 1,234,567."""
    return f"{number:,}"


def clock(at: datetime | None) -> str:
    """Return a moment in UTC, to the second."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime) -> str:
    """Return a moment as machines read it."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def ago(at: datetime, now: datetime | None = None) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{coarse(seconds)} ago" if seconds > 0 else f"in {coarse(-seconds)}"


def coarse(seconds: float) -> str:
    """Return a length of time in one unit that a glance takes in."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def json_text(value: object) -> str:
    """Return a value as JSON with lines and indents, cut where it is too long to look at."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    return cut(text)


def compact(value: object) -> str:
    """Return a value as JSON on one short line; nothing for nothing."""
    return "" if value in (None, {}, []) else one_line(msgspec.json.encode(value, enc_hook=str).decode(), 120)


def cut(text: str) -> str:
    """Return a text, cut where it is too long to look at."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n… {len(text) - TEXT_MAX:,} more characters"


def word(value: object) -> str:
    """Return a word of the store's for people: DEAD_LETTER is dead letter."""
    return str(value).replace("_", " ").lower()


def ticked(text: str) -> Markup:
    """Return a sentence with what it has between backticks as code."""
    parts = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(text.split("`"))]
    return Markup("").join(parts)


def plural(number: int, noun: str) -> str:
    """Return a count with its noun: 1 job, 2,000 jobs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_environment = Environment(
    loader=PackageLoader(__package__ or "", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "count": count,
    "clock": clock,
    "iso": iso,
    "ago": ago,
    "span": span,
    "json": json_text,
    "compact": compact,
    "cut": cut,
    "word": word,
    "plural": plural,
    "line": one_line,
    "ticked": ticked,
    "twice": lambda value: (str(value), str(value)),
}
_environment.globals |= {"static": address, "Op": Right, "nav": nav, "is_here": is_here, "link": link}
