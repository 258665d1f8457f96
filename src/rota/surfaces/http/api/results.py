"""Results as answers: what each looks like as JSON, as far as its reader may see it, its ETag, and the page of a list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota import wire
from rota.errors import InvalidOption
from rota.faces.background_job import named_output
from rota.lab.forecasts import Forecast, ForecastItem, ZoneChange
from rota.model.access import Token
from rota.model.connections import ConnectionView
from rota.model.definitions import Organization, User
from rota.model.gate import Actor
from rota.model.lanes import QueueInfo
from rota.model.schedules import Calendar
from rota.model.states import Status
from rota.model.values import Job, Purged, Run, WorkerInfo, undashed
from rota.model.webhooks import Webhook
from rota.operation import Operation, session_of, tag_of
from rota.resources.tokens import NewToken
from rota.resources.webhooks import NewWebhook
from rota.results import Page
from rota.schedule_views import OccurrenceView, ScheduleView
from rota.surfaces.http.access import ACTOR
from rota.surfaces.redaction import without_read
from rota.template_views import TemplateView

if TYPE_CHECKING:
    from rota.surfaces.http.api.endpoint import Asked

CURSOR_MAX = 4096
PAGE_MAX = 1000
"""Items of one page, at most."""
NO_STORE = {"Cache-Control": "no-store"}
_CHECK_BYTES = 6
_encode = msgspec.json.Encoder().encode


class Answer(Response):
    """Any value of ours as JSON, as far as the token that it is for may read it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as bytes; keep it until it is known whom it is for."""
        self._content = content
        return _encode(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; without what the token may not read, and without a tag, which would tell of that."""
        actor: Actor | None = scope.get(ACTOR)
        if actor is not None and actor.is_redacted:
            self.body = _encode(without_read(self._content))
            self.headers["content-length"] = str(len(self.body))
            if isinstance(self._content, Job) and "etag" in self.headers:
                del self.headers["etag"]
        await super().__call__(scope, receive, send)


class Cursors:
    """The cursors of one list: a cursor of another list, or of the same list with other filters, is refused."""

    def __init__(self, name: str, filters: Mapping[str, Any]) -> None:
        """Take the list's name and its filters."""
        self._salt = repr((name, sorted((name, str(value)) for name, value in filters.items() if value is not None))).encode()

    def seal(self, place: object) -> str:
        """Return the cursor of a place."""
        return wire.seal((self._check(place), place))

    def unseal(self, cursor: str, kind: Any) -> Any:
        """Return the place of a cursor."""
        try:
            check, place = wire.unseal(cursor[:CURSOR_MAX], tuple[str, kind])
        except InvalidOption:
            check, place = "", None
        if not check or check != self._check(place):
            raise InvalidOption(f"cursor {cursor[:100]!r} is not of this list: pass `next` of the previous page, with the same filters")
        return place

    def _check(self, place: object) -> str:
        # No secret: a cursor opens nothing that the filters would not. It only has to show a mistake.
        return hashlib.blake2b(self._salt + _encode(place), digest_size=_CHECK_BYTES).hexdigest()


Key = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]
"""The place in a list that is whole in memory: the key that it is sorted by."""


class Paging(msgspec.Struct):
    """Which page of a list is asked for."""

    cursors: Cursors
    limit: int
    after: tuple[str, ...] | None = None
    """The key that the page begins after, in a list that is whole in memory."""


class NewSecret(msgspec.Struct, frozen=True):
    """A secret, which is never shown again."""

    secret: str


class Removed(msgspec.Struct, frozen=True):
    """What was removed for good."""

    chains: int
    jobs: int
    kept: int
    """Chains that match and that others still need."""


class Paused(msgspec.Struct, frozen=True):
    """Something that is paused."""

    kind: str
    """`all`, `template`, `organization` or `queue`."""
    name: str


Occurrence = msgspec.defstruct(
    "Occurrence",
    [(field.name, field.type) for field in msgspec.structs.fields(OccurrenceView) if field.name != "cursor"],
    namespace={"__doc__": "The outcome of a due time, or of several in a row."},
    kw_only=True,
)
"""A row of the ledger without its place, which only the cursor of a page tells."""


class HourDensity(msgspec.Struct, frozen=True):
    """How many will run in one hour."""

    hour: datetime
    count: int


class ForecastAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What is due in a window, in order of time."""

    items: list[ForecastItem]
    start: datetime
    end: datetime
    cut: bool
    """There is more than was asked for: what is here is complete up to its last item."""
    exact_until: datetime | None
    """Overlaps, dependencies and waits are simulated up to here; null: all of them are."""
    changes: tuple[ZoneChange, ...]
    density: list[HourDensity]


def _forecast(forecast: Forecast) -> ForecastAnswer:
    return ForecastAnswer(
        items=list(forecast),
        start=forecast.start,
        end=forecast.end,
        cut=forecast.cut,
        exact_until=forecast.exact_until,
        changes=forecast.changes,
        density=[HourDensity(hour, count) for hour, count in forecast.density],
    )


SHOWN: dict[Any, tuple[type, Callable[[Any], Any]]] = {
    # A path of the machine that ran the job is nobody's business.
    Run: (Run, lambda run: msgspec.structs.replace(run, log_path=None, output_reference=named_output(run))),
    OccurrenceView: (Occurrence, lambda row: {name: getattr(row, name) for name in Occurrence.__struct_fields__}),
    # A set has no order.
    Calendar: (Calendar, lambda calendar: msgspec.structs.asdict(calendar) | {"days": sorted(calendar.days)}),
    Token: (Token, lambda token: msgspec.structs.asdict(token) | {"permits": sorted(token.permits)}),
    NewToken: (NewToken, lambda new: {"token": shown(new.token), "secret": new.secret}),
    Purged: (Removed, lambda gone: Removed(gone.chains, gone.jobs, gone.kept)),
    Forecast: (ForecastAnswer, _forecast),
    str: (NewSecret, NewSecret),
    tuple: (Paused, lambda pause: Paused(*pause)),
}
"""The types of results that look different as JSON: what as, and how."""
SECRETS = (NewToken, NewWebhook, str)
"""Results that no cache keeps."""
KEYS: dict[Any, tuple[str, ...]] = {
    Calendar: ("name",),
    ConnectionView: ("organization", "name"),
    Organization: ("name",),
    QueueInfo: ("name",),
    ScheduleView: ("organization", "name"),
    TemplateView: ("name",),
    Token: ("id",),
    User: ("name",),
    Webhook: ("id",),
    WorkerInfo: ("started_at", "id"),
}
"""What lists of these are sorted by. They are whole in memory, and cut into pages by it."""
NEWEST_FIRST = (Token, Webhook)
"""Those that are sorted from the end: ids grow with time."""


def shown(value: Any) -> Any:
    """Return a value as its JSON form is made from."""
    _, convert = SHOWN.get(type(value), (None, None))
    return value if convert is None else convert(value)


def answer(asked: Asked, operation: Operation, result: Any, page: Paging | None) -> Response:
    """Return the result of an operation as an answer."""
    if result is None:
        return Response(status_code=204)
    headers = dict(NO_STORE) if isinstance(result, SECRETS) else {}
    if page is not None:
        items, following = _page(result, page)
        return Answer({"items": [shown(each) for each in items], "next": following}, status_code=operation.status)
    if isinstance(result, list) and type(result) not in SHOWN:
        return Answer({"items": [shown(each) for each in result]}, status_code=operation.status)
    if operation.etag:
        headers["ETag"] = tag = etag(asked, result)
        seen = asked.request.headers.get("if-none-match", "").split(",")
        if operation.reads and tag in {each.strip().removeprefix("W/") for each in seen}:
            return Response(status_code=304, headers=headers)
    return Answer(shown(result), status_code=operation.status, headers=headers)


def etag(asked: Asked, result: Any) -> str:
    """Return the tag of something that has a version, or of a job."""
    if not isinstance(result, Job):
        return f'"{result.version}"'
    if not result.status.ended or result.status is Status.COMPLETED:
        return tag_of(result, result)
    # Only what has ended otherwise may have a later attempt.
    chain = session_of(asked.rota).open().store.chain(str(undashed(result.id)))
    return tag_of(result, chain[-1] if chain else result)


def _page(result: Sequence[Any], page: Paging) -> tuple[Sequence[Any], str | None]:
    if isinstance(result, Page):
        return result, None if result.next is None else page.cursors.seal(result.next)
    backwards = bool(result) and isinstance(result[0], NEWEST_FIRST)
    items = sorted(result, key=key_of, reverse=backwards)
    if page.after is not None:
        items = [each for each in items if (key_of(each) < page.after if backwards else key_of(each) > page.after)]
    return items[: page.limit], page.cursors.seal(key_of(items[page.limit - 1])) if len(items) > page.limit else None


def key_of(value: Any) -> tuple[str, ...]:
    """Return what a value is sorted by in a list."""
    parts = (getattr(value, name) for name in KEYS[type(value)])
    return tuple(part.isoformat(timespec="microseconds") if isinstance(part, datetime) else str(part) for part in parts)
