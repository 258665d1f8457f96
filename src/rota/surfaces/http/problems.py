"""What is refused, in the words of RFC 9457: one place turns every error into a status and a stable code.

An error's code is its class's (`rota.errors`); what HTTP itself refuses has the codes of `OWN`. No 5xx tells what went wrong inside.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota import errors
from rota.errors import RotaError

log = logging.getLogger("rota.http")

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[RotaError], HTTPStatus] = {
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.TooManyAttempts: HTTPStatus.TOO_MANY_REQUESTS,
    errors.PermissionDenied: HTTPStatus.FORBIDDEN,
    errors.OrganizationUnavailable: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.PayloadTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.DuplicateId: HTTPStatus.CONFLICT,
    errors.InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QueueFull: HTTPStatus.TOO_MANY_REQUESTS,
    errors.ChangedMeanwhile: HTTPStatus.PRECONDITION_FAILED,
    errors.ResourceBusy: HTTPStatus.CONFLICT,
    errors.Refused: HTTPStatus.CONFLICT,
    errors.JobFailed: HTTPStatus.CONFLICT,
    errors.JobCancelled: HTTPStatus.CONFLICT,
    errors.JobSkipped: HTTPStatus.CONFLICT,
    errors.WaitTimeout: HTTPStatus.GATEWAY_TIMEOUT,
    errors.StoreBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreError: HTTPStatus.INTERNAL_SERVER_ERROR,
    RotaError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""By the nearest class: what is not here is what its base is. `docs/reference/http.md` is tested against it."""

OWN = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.NOT_FOUND: "no_such_page",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_TIMEOUT: "too_slow",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.MISDIRECTED_REQUEST: "wrong_host",
    HTTPStatus.UNPROCESSABLE_ENTITY: "invalid_request",
    HTTPStatus.PRECONDITION_FAILED: "changed_meanwhile",
    HTTPStatus.INTERNAL_SERVER_ERROR: "error",
}


BUSY = "53300"
"""The SQLSTATE of a statement that found no room to run in."""
AWAY = "the store can't be used now; the server's log says why"


def status_of(error: RotaError | type[RotaError]) -> HTTPStatus:
    """Return the status of an error, or of a class of errors: its own class's, or the nearest above it."""
    if isinstance(error, errors.SqlError) and error.sqlstate == BUSY:
        return HTTPStatus.TOO_MANY_REQUESTS
    kind = error if isinstance(error, type) else type(_reason(error))
    return next(STATUS[each] for each in kind.__mro__ if each in STATUS)


def _reason(error: RotaError) -> RotaError:
    """Return why a statement failed. What it names and is not there is a wrong value: the address itself is right."""
    cause = error.__cause__ if isinstance(error, errors.SqlError) else None
    return cause if isinstance(cause, RotaError) and not isinstance(cause, errors.NotFound) else error


def problem(status: int, code: str, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> Response:
    """Return a problem as an answer."""
    words = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": int(status), "code": code, "detail": detail}
    body = {**words, **{name: value for name, value in extra.items() if value is not None}}
    return Response(msgspec.json.encode(_sayable(body)), status_code=int(status), media_type=MEDIA_TYPE, headers=headers)


def _sayable(value: Any) -> Any:
    """Return what is repeated from a request as what can be written: half of a surrogate pair as its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sayable(name): _sayable(each) for name, each in value.items()}
    return [_sayable(each) for each in value] if isinstance(value, list | tuple) else value


def of(error: RotaError, *, store: str = "") -> Response:
    """Return an error of ours as an answer. Where the store is, and what is wrong with it, is not told to whom it serves."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="rota"'
    after_s = getattr(error, "after_s", None) or getattr(error, "retry_after_s", None)
    if after_s or status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(max(1, round(after_s or 1)))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s: %s", error.code, error)
    detail = AWAY if isinstance(_reason(error), errors.StoreError) else str(error)
    if store:
        detail = detail.replace(store, "this store")
    # What is empty says nothing: the job of a duplicate that its reader may not see has no id.
    members = {name: value for name in error.members if (value := getattr(error, name)) not in {None, "", ()}}
    return problem(status, error.code, detail, headers=headers, item=error.item, accepted=error.accepted, **members)


def of_http(error: HTTPException) -> Response:
    """Return what HTTP itself refuses as an answer."""
    status = HTTPStatus(error.status_code)
    return problem(status, OWN.get(status, status.name.lower()), str(error.detail), headers=dict(error.headers or {}))


def surprise(method: str, path: str, error: Exception) -> Response:
    """Return what nobody expected as an answer; only the log says what it was."""
    log.error("%s %s failed", method, path, exc_info=error)
    return problem(500, OWN[HTTPStatus.INTERNAL_SERVER_ERROR], "something went wrong here; the server's log says what")
