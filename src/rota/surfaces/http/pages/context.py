"""The context of a page: the request of one browser, what its form says, the answers that a page can give, and how values are written.

Everything is escaped; nothing that runs stands in a page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rota.app import Rota
from rota.errors import InvalidOption, PermissionDenied
from rota.model.access import csrf_of
from rota.model.gate import Actor, Right, Role, scope_of
from rota.model.grants import NOTHING
from rota.model.local_time import Reading, in_zone, localized, read_moment, shown
from rota.model.values import dashed
from rota.model.zones import known_zone, zone_of
from rota.operation import refuse_denied, session_of
from rota.surfaces.cli.output import one_line, span
from rota.surfaces.http.access import COOKIE, cookie_name, root_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

FIELDS_MAX = 1000
"""Fields of one form, at most."""
PART = "x-rota-part"
"""The header of a request for the inside of a page only."""
SAID = "rota_said"
"""The cookie with what the page after an act says, once."""
SAID_S = 60
SAID_MAX = 1000
THEME = "rota_theme"
ZONE = "rota_zone"
"""The cookie with the time zone that somebody chose for the pages."""
BROWSER_ZONE = "rota_browser_zone"
"""The cookie with the time zone of the browser, which the script of the pages writes."""
ZONE_FIELD = "zone"
"""The field of a form with the zone of its times."""
ZONE_MAX = 100
SURE = "sure"
EVENTS = "/api/v1/events"
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
    ("/connections", "Connections", Right.READ),
    ("/organizations", "Organizations", Right.READ_ORGANIZATIONS),
    ("/users", "Users", Right.READ_ORGANIZATIONS),
    ("/tokens", "Tokens", Right.MANAGE_ORGANIZATIONS),
    ("/webhooks", "Webhooks", Right.READ_WEBHOOKS),
    ("/audit", "Audit", Right.READ_AUDIT),
    ("/sql", "SQL", Right.READ),
)
"""Pages in the order of the menu, and what one must be allowed to do to be offered each."""
STATIC = {"rota.css": "text/css", "rota.js": "text/javascript", "rota.svg": "image/svg+xml"}
BODIES = {name: (files(__package__) / "static" / name).read_bytes() for name in STATIC}
DIGESTS = {name: hashlib.sha256(body).hexdigest()[:16] for name, body in BODIES.items()}
ADDRESSES = {name: f"/static/{name}?v={digest}" for name, digest in DIGESTS.items()}
"""Static files are named by their digest, so that browsers may keep them for ever."""
_OWN_ADDRESS = re.compile(r' (?:href|src|action|data-events)="(?=/)')
"""The start of an address in a page. Values have their quotes escaped, so that only templates can write one."""


class Ask(Exception):  # noqa: N818 - a question, not an error of anybody
    """Something that can't be taken back is asked about, once."""

    def __init__(self, question: str, verb: str) -> None:
        """Take the question and the word on the button that means yes."""
        super().__init__(question)
        self.question = question
        self.verb = verb


class Form(dict[str, str]):
    """The fields of a form; of one that is given twice, the last counts here, and `pairs` has all."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        """Take what was sent."""
        super().__init__(pairs)
        self.pairs = pairs

    def text(self, name: str) -> str | None:
        """Return what stands in a field, None if nothing does."""
        return self.get(name, "").strip() or None

    def need(self, name: str) -> str:
        """Return what stands in a field, or refuse the form."""
        found = self.text(name)
        if found is None:
            raise InvalidOption(f"{name} is empty: fill it in")
        return found

    def words(self, name: str) -> list[str]:
        """Return the words of a field, between commas."""
        return [word.strip() for word in self.get(name, "").split(",") if word.strip()]

    def number(self, name: str) -> int | None:
        """Return the whole number of a field, None if it is empty."""
        found = self.text(name)
        if found is None:
            return None
        if not found.removeprefix("-").isdecimal() or len(found) > 18:
            raise InvalidOption(f"{name}={found[:40]!r} is not a whole number")
        return int(found)


class Visit:
    """A page's view of one request."""

    def __init__(self, request: Request, actor: Actor | None = None, form: Form | None = None) -> None:
        """Take who asks for what; `actor` is None for somebody at the door."""
        rota: Rota = request.app.state.rota
        self.request = request
        session = None if actor is None else self.cookie(COOKIE)
        self.rota = rota if actor is None else rota.acting_as(actor)
        """As the actor uses it."""
        self.csrf = "" if session is None else csrf_of(session)
        self.form = form or Form([])
        self.actor = actor
        self.root = root_of(request)

    def may(self, operation: Right) -> bool:
        """Say whether the actor's right reaches anything: what it may not do is not offered."""
        if self.actor is None:
            return False
        held = NOTHING if self.actor.role is Role.MANAGER else session_of(self.rota).holdings(self.actor, operation)
        try:
            scope_of(self.actor, operation, held)
        except PermissionDenied:
            return False
        return True

    def must(self, operation: Right) -> None:
        """Refuse, in the gate's words, what the actor may not do: before it is asked whether it is sure."""
        assert self.actor is not None  # noqa: S101 - pages for nobody ask for none
        refuse_denied(self.rota, self.actor, operation)

    @property
    def everywhere(self) -> bool:
        """Say whether the actor sees more than one organization."""
        return self.actor is not None and self.actor.role is Role.MANAGER

    @property
    def here(self) -> str:
        """The address of this page, to come back to."""
        query = self.request.url.query
        return f"{self.path}?{query}" if query else self.path

    @property
    def path(self) -> str:
        """The path of this page below the root of the app: `root` is added where an address leaves the app."""
        return path_of(self.request)

    @property
    def selects_all(self) -> bool:
        """Say whether all rows of the page are ticked: what a link does where no script runs."""
        return self.request.query_params.get("selected") == "all"

    def selects(self, acts: Mapping[str, Any]) -> bool:
        """Say whether any button for ticked rows is offered: without one there is nothing to tick."""
        return any(act.offered(self) for act in acts.values())

    def with_query(self, **changed: object) -> str:
        """Return the address of this page with other filters; None takes one away."""
        names = set(changed)
        kept = [(name, value) for name, value in self.request.query_params.multi_items() if name not in names and value]
        new = [(name, str(value)) for name, value in changed.items() if value is not None]
        query = urlencode(kept + new)
        return f"{self.path}?{query}" if query else self.path

    # ---- times -----------------------------------------------------------------------------------------------

    @cached_property
    def chosen_zone(self) -> ZoneInfo | None:
        """The zone that this browser was told to show times in."""
        return _zone_in(self.cookie(ZONE))

    @cached_property
    def browser_zone(self) -> ZoneInfo | None:
        """The zone of this browser, if its script has told it."""
        return _zone_in(self.request.cookies.get(BROWSER_ZONE))

    @property
    def zone(self) -> ZoneInfo:
        """The zone of every time on this page, and of those that its forms take.

        A form carries the zone that it was shown in: another may have been chosen since.
        """
        return known_zone(self.form.get(ZONE_FIELD, "")[:ZONE_MAX]) or self.chosen_zone or self.browser_zone or zone_of("UTC")

    def moment(self, name: str) -> Reading:
        """Return the moment of a field: a time of the zone that the form was shown in, unless it has an offset."""
        return read_moment(self.form.need(name), zone_of(self.form.text(ZONE_FIELD) or self.zone.key))

    # ---- answers ----------------------------------------------------------------------------------------------

    def page(self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **context: Any) -> Response:
        """Return a page; only its inside, if that is what was asked for."""
        part = PART in self.request.headers
        theme = self.cookie(THEME) or ""
        said = "" if part else unquote(self.cookie(SAID) or "")[:SAID_MAX]
        text = _environment.get_template(template).render(
            now=datetime.now(UTC),
            visit=self,
            part=part,
            theme=theme if theme in THEMES else "",
            theme_cookie=cookie_name(self.request, THEME),
            said=said,
            events=EVENTS if self.may(Right.READ) else "",
            **context,
        )
        if self.root:
            text = _OWN_ADDRESS.sub(lambda found: found[0] + self.root, text)
        answer = HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store", "Vary": f"Cookie, {PART}", **(headers or {})})
        if said:
            self.drop(answer, SAID)
        return answer

    def go(self, to: str) -> Response:
        """Return a redirect to a page of ours."""
        return RedirectResponse(self.root + to, status_code=HTTPStatus.SEE_OTHER)

    @property
    def cookie_path(self) -> str:
        """The path of our cookies: they are not sent to other apps of the same server."""
        return self.root or "/"

    def done(self, said: str, to: str | None = None) -> Response:
        """Go on to a page (the one that the form names, if it is ours), which says what was done."""
        answer = self.go(self.back or to or "/")
        self.keep(answer, SAID, quote(said[:SAID_MAX]), SAID_S)
        return answer

    @property
    def back(self) -> str | None:
        """The page of ours that a form came from."""
        return ours(self.form.get("back"))

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie of ours."""
        return self.request.cookies.get(cookie_name(self.request, name))

    def drop(self, answer: Response, name: str) -> None:
        """Let the browser forget a cookie of ours."""
        answer.delete_cookie(cookie_name(self.request, name), path=self.cookie_path)

    def keep(self, answer: Response, name: str, value: str, max_age_s: int, *, httponly: bool = True) -> None:
        """Let the browser keep a cookie of ours."""
        secure = self.request.url.scheme == "https"
        own = cookie_name(self.request, name)
        answer.set_cookie(own, value, max_age=max_age_s, path=self.cookie_path, httponly=httponly, samesite="strict", secure=secure)

    def sure(self, question: str, verb: str) -> None:
        """Go on only if the person was asked and said yes."""
        if self.form.get(SURE) != "yes":
            raise Ask(question, verb)


def ours(address: str | None) -> str | None:
    """Return an address of a page of ours; no other may be gone on to."""
    if not address or not address.startswith("/") or address.startswith("//") or "\\" in address or not address.isprintable():
        return None
    return address


def path_of(request: Request) -> str:
    """Return the path of a request below the root of the app."""
    root, path = request.scope.get("root_path", "").rstrip("/"), request.url.path
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def form_of(request: Request) -> Form:
    """Return the form that was sent."""
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise InvalidOption("this form can't be read: send it as application/x-www-form-urlencoded in UTF-8") from None
    return Form(pairs)


# ---- how values are written ------------------------------------------------------------------------------------------


def nav(visit: Visit) -> list[tuple[str, str, bool]]:
    """Return the pages that this visitor is offered, each with whether it is the one that is shown, or one above it."""
    path = visit.path
    offered = [(href, name) for href, name, operation in NAV if visit.may(operation)]
    return [(href, name, path == href or (href != "/" and path.startswith(f"{href}/"))) for href, name in offered]


def _zone_in(cookie: str | None) -> ZoneInfo | None:
    name = unquote(cookie or "")
    return known_zone(name) if len(name) <= ZONE_MAX else None


def link(path: str, **query: object) -> str:
    """Return an address with what it is about behind the question mark: names may have any characters."""
    given = urlencode([(name, str(value)) for name, value in query.items() if value not in (None, "")])
    return f"{path}?{given}" if given else path


@pass_context
def clock(context: Context, at: datetime | None) -> str:
    """Return a moment in the zone of the page, to the second."""
    return "" if at is None else shown(at, context["visit"].zone)


@pass_context
def hour(context: Context, at: datetime) -> str:
    """Return the time of day of a moment, where the zone is said beside it."""
    return f"{in_zone(at, context['visit'].zone):%H:%M}"


@pass_context
def local(context: Context, text: str) -> str:
    """Return a sentence of Rota's with its moments in the zone of the page."""
    return localized(text, context["visit"].zone)


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


def pretty(value: object) -> str:
    """Return a value as JSON with lines and indents, never cut: a form sends again what it shows."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def compact(value: object, limit: int = 120) -> str:
    """Return a value as JSON on one short line; nothing for nothing."""
    return "" if value in (None, {}, []) else one_line(msgspec.json.encode(value, enc_hook=str).decode(), limit)


def cut(text: str, most: int = TEXT_MAX) -> str:
    """Return a text, cut where it is too long to look at."""
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


def word(value: object) -> str:
    """Return a word of the store's for people: DEAD_LETTER is dead letter."""
    return str(value).replace("_", " ").lower()


def ticked(text: str) -> Markup:
    """Return a sentence with what it has between backticks as code."""
    parts = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(text.split("`"))]
    return Markup("").join(parts)


def sentences(*said: str) -> str:
    """Return sentences one after the other, each with a capital letter and a full stop, without empty ones."""
    return " ".join(f"{each[:1].upper()}{each[1:].rstrip('.')}." for each in said if each)


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
    "count": "{:,}".format,
    "clock": clock,
    "hour": hour,
    "local": local,
    "iso": iso,
    "ago": ago,
    "span": span,
    "pretty": pretty,
    "compact": compact,
    "cut": cut,
    "word": word,
    "plural": plural,
    "line": one_line,
    "ticked": ticked,
    "dashed": dashed,
    "twice": lambda value: (str(value), str(value)),
}
_environment.globals |= {"static": ADDRESSES, "Op": Right, "nav": nav, "link": link, "TEXT_MAX": TEXT_MAX}
