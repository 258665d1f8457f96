"""The OpenAPI document as a whole: what FastAPI found, and what it can't know.

The values of the model are described by their own types (msgspec knows them), so there is no second list of their fields. What every
operation may refuse is added here, once: a route names only what is special to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from importlib import import_module
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from rota import errors
from rota.errors import RotaError
from rota.surfaces.http.problems import MEDIA_TYPE, OWN, STATUS

JSON = "application/json"
EVENTS = "text/event-stream"
REF = "#/components/schemas/{name}"
METHODS = frozenset({"get", "put", "post", "delete", "patch"})

TAGS = {
    "Jobs": "Work to be done once: made, found, changed, moved, cancelled and retried.",
    "Runs": "What happened when a job was executed.",
    "Groups": "Jobs that belong together, in order or side by side.",
    "Direct": "One job ahead of the queue, with its result in the answer.",
    "Dead letters": "Chains that failed for good: looked at, retried, discarded.",
    "Events": "What happens, as it happens: server-sent events.",
    "Templates": "What jobs of a name are: handler, limits, retries. People's word goes over the code's.",
    "Schedules": "When a template becomes jobs, and what became of each due time.",
    "Calendars": "Days on which schedules that name them are not due.",
    "Organizations": "Who shares this store, and how much of it.",
    "Users": "People and programs: whose they are, and what they may.",
    "Tokens": "Keys of this API. A secret is shown once, when it is made.",
    "Webhooks": "Addresses that are told of ends, and what was told them.",
    "Queues": "Lines of jobs that some workers serve: what waits, what runs, who serves them.",
    "Workers": "The processes that run jobs.",
    "Scheduler": "Pauses, this process's own worker, recovery, retention.",
    "Statistics": "Counts, depths, ages and durations.",
    "Overview": "What the first screen shows: is it healthy, what did not run, what is stuck, what runs, what comes next.",
    "Audit": "What people changed, and who.",
    "Doctor": "What is wrong with the store, and what would help.",
    "Health": "The two questions of a load balancer. No token is asked for.",
}
"""Every tag, in the order in which people read them."""

ABOUT = """\
Rota over HTTP. Moments are ISO 8601 in UTC, lengths are seconds, sizes are bytes.

**Access.** Give a token of `rota token create` as `Authorization: Bearer rota_…`. It acts as its user: what that user may not see is not
there (404), what it may not do is refused (403).

**Lists** come in pages: `next` is what to give as `cursor` for the page after it, null at the end.

**Edits** of what has a version (templates, schedules) give its `ETag` back. Send it as `If-Match`, and the edit is refused with 412 if
somebody else was quicker.

**Refusals** are problems of RFC 9457 with a stable `code`.
"""

SHAPES_OF = ("shapes", "examples", "webhooks")
"""Modules of `rota.surfaces.http.api` whose `SHAPES` many routes share: values that they take and give, each with an example."""

_ANY = {"description": "Any JSON value."}


# ---- for routes ----------------------------------------------------------------------------------------------------


def shape(kind: type) -> dict[str, Any]:
    """Return a reference to the description of a value; its module's `SHAPES`, or those of `SHAPES_OF`, have to know it."""
    return {"$ref": REF.format(name=kind.__name__)}


def page_of(kind: type) -> dict[str, Any]:
    """Return the description of one page of a list."""
    return {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": shape(kind)},
            "next": {"type": ["string", "null"], "description": "Give it as `cursor` to get the page after this one."},
        },
    }


def list_of(kind: type) -> dict[str, Any]:
    """Return the description of a list that is never long enough for pages."""
    return {"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": shape(kind)}}}


def gives(
    given: type | dict[str, Any], *, status: int = 200, what: str | None = None, example: object = None, etag: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Return the entry of `responses` for what a route answers: a value of the model, or a description made by hand."""
    media: dict[str, Any] = {"schema": shape(given) if isinstance(given, type) else given}
    if example is not None:
        media["example"] = example
    answer: dict[str, Any] = {"description": what or HTTPStatus(status).phrase, "content": {JSON: media}}
    if etag:
        answer["headers"] = {"ETag": {"description": "Its version, for `If-Match`.", "schema": {"type": "string"}, "example": '"3"'}}
    return {status: answer}


def nothing(what: str = "Done; there is nothing to say.") -> dict[int | str, dict[str, Any]]:
    """Return the entry of `responses` for an answer without a body."""
    return {204: {"description": what}}


def refuses(*kinds: type[RotaError] | HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the entries of `responses` for what a route refuses beyond what all do."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status, code = (kind, OWN[kind]) if isinstance(kind, HTTPStatus) else (_status(kind), kind.code)
        entry = found.setdefault(int(status), {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": PROBLEM_REF}}})
        entry["content"][MEDIA_TYPE].setdefault("examples", {})[code] = {"value": _example(status, code)}
    return found


# ---- the document --------------------------------------------------------------------------------------------------


def install(app: FastAPI) -> None:
    """Let an app describe itself by this document, made when it is first asked for."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign] # how FastAPI says that it is done


def operation_id(route: APIRoute) -> str:
    """Return what an operation is called by programs that are made from the document: `templates_find`."""
    tag = str(route.tags[0]) if route.tags else "api"
    return f"{tag.lower().replace(' ', '_')}_{route.name}"


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app."""
    found = get_openapi(
        title=app.title, version=app.version, openapi_version="3.1.0", summary=app.summary, description=ABOUT, routes=app.routes
    )
    used = {tag for _, _, operation in operations(found) for tag in operation.get("tags", ())}
    found["tags"] = [{"name": name, "description": words} for name, words in TAGS.items() if name in used]
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= _components(_shapes())
    schemas["Problem"] = _problem_schema()
    for _, _, operation in operations(found):
        _add_refusals(operation)
        _add_examples(operation, schemas)
    return found


def operations(found: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Go through a document's operations, as path, method and what is said of it."""
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield path, method, operation


def _shapes() -> dict[type, Any]:
    """Return every value that routes name, from their modules or from those beside them."""
    from rota.surfaces.http.app import ROUTERS  # noqa: PLC0415 - the app is described by this module

    found: dict[type, Any] = {}
    for name in (*SHAPES_OF, *ROUTERS):
        found |= getattr(import_module(f"rota.surfaces.http.api.{name}"), "SHAPES", {})
    return found


def _components(shapes: Mapping[type, Any]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components(tuple(shapes), schema_hook=lambda _kind: _ANY, ref_template=REF)
    for kind, example in shapes.items():
        components[kind.__name__]["examples"] = [example]
    return components


# ---- refusals ------------------------------------------------------------------------------------------------------

PROBLEM_REF = {"$ref": REF.format(name="Problem")}
MEANINGS = {
    "bad_request": "The body is not JSON, or can't be read at all.",
    "no_such_page": "Nothing is at this address.",
    "method_not_allowed": "There is something at this address, but not for this method.",
    "too_slow": "The request did not come whole in time (setting `http_patience`).",
    "body_too_large": "The body is over the setting `http_body_max`.",
    "unsupported_media_type": "The body is of a kind that is not read here: send what the operation takes.",
    "wrong_host": "The server is not known under the name in `Host` (setting `http_hosts`).",
    "invalid_request": "A parameter, a header or a field is unknown, missing or not what it should be; `errors` says where.",
    "error": "Something went wrong inside; the server's log says what.",
}
"""What the codes say that only HTTP has, and the one that says nothing. The others have the first line of their error's description."""
DETAILS = {
    "unauthenticated": "this token opens nothing here: give one that `rota token create` has shown",
    "permission_denied": "'bob' (user) may not manage templates",
    "not_found": "there is no schedule 'nightly': `rota schedule list` shows them",
    "invalid_request": "query.limit: Input should be less than or equal to 1000",
    "changed_meanwhile": "schedule 'daily' has version 4 by now, not 3: read it again, and change what you find",
    "too_many_attempts": "too many wrong tokens came from here: use a right one, or wait 42 s before the next try",
    "body_too_large": "the body is over 67,108,864 bytes: send less, or in parts",
}
"""What examples say, where it is more than the meaning."""


MEMBERS = {
    "after_s": {"type": "number", "description": "Of `too_many_attempts`: seconds until the next token is looked at."},
    "job_id": {
        "type": "string",
        "description": "Of `duplicate_job`: the job that was submitted before; of `wait_timeout`: the job.",
    },
    "line": {"type": "integer", "description": "Of `invalid_import`: the number of the line."},
    "path": {"type": "array", "items": {"type": "string"}, "description": "Of `dependency_cycle`: its members in the order of waiting."},
    "retry_after_s": {"type": "number", "description": "Of `rate_limited`: seconds to wait before the next try."},
}
"""The members of problems that errors name (`RotaError.members`)."""


def codes() -> dict[str, HTTPStatus]:
    """Return every code that a problem may have, and its status."""
    found = {code: status for status, code in OWN.items()}
    for kind in error_kinds():
        found[kind.code] = _status(kind)
    return found


def error_kinds(kind: type[RotaError] = RotaError) -> Iterator[type[RotaError]]:
    """Go through a class of errors and all below it."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from error_kinds(each)


def _status(kind: type[RotaError]) -> HTTPStatus:
    return next(STATUS[each] for each in kind.__mro__ if each in STATUS)


def meaning(code: str) -> str:
    """Return in a few words when a code is given."""
    kind = next((each for each in error_kinds() if each.code == code), RotaError)
    return MEANINGS.get(code) or (kind.__doc__ or "").partition("\n")[0]


def _example(status: HTTPStatus, code: str) -> dict[str, Any]:
    detail = DETAILS.get(code) or meaning(code)
    return {"type": "about:blank", "title": status.phrase, "status": int(status), "code": code, "detail": detail}


def _problem_schema() -> dict[str, Any]:
    known = codes()
    texts = {"type": {"type": "string"}, "title": {"type": "string"}, "detail": {"type": "string"}}
    wrong = {"type": "object", "required": ["at", "message"], "properties": {"at": {"type": "string"}, "message": {"type": "string"}}}
    return {
        "title": "Problem",
        "type": "object",
        "description": "What was refused and why (RFC 9457). `code` is stable: programs look at it, people read `detail`.",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            **texts,
            "status": {"type": "integer", "enum": sorted({int(status) for status in known.values()})},
            "code": {"type": "string", "enum": sorted(known)},
            "errors": {"type": "array", "items": wrong, "description": "Of `invalid_request`: each place that is wrong."},
            "item": {"type": "integer", "description": "Of a bulk request: the first item that it is about."},
            "accepted": {"type": "integer", "description": "Of a bulk request: how many jobs were accepted before it."},
            **MEMBERS,
        },
        "examples": [_example(HTTPStatus.NOT_FOUND, "not_found")],
    }


def _add_refusals(operation: dict[str, Any]) -> None:
    """Add what every operation of its kind may refuse, beside what its route says itself."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    common: list[type[RotaError] | HTTPStatus] = [errors.StoreUnavailable]
    if operation.get("security"):
        common += [errors.Unauthenticated, errors.PermissionDenied, errors.TooManyAttempts, HTTPStatus.UNPROCESSABLE_ENTITY]
    if "requestBody" in operation:
        common += [HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, errors.InvalidInput]
    for status, entry in refuses(*common).items():
        present = responses.setdefault(str(status), entry)
        if present is not entry and MEDIA_TYPE in present.get("content", {}):
            examples = present["content"][MEDIA_TYPE].setdefault("examples", {})
            present["content"][MEDIA_TYPE]["examples"] = entry["content"][MEDIA_TYPE]["examples"] | examples
    operation["responses"] = dict(sorted(responses.items()))


# ---- examples ------------------------------------------------------------------------------------------------------


def _add_examples(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Give answers the examples of the values that they are made of."""
    for answer in operation["responses"].values():
        for kind, media in answer.get("content", {}).items():
            if kind == EVENTS:
                # What a stream says event by event, no schema of JSON can say; its example does.
                media.pop("schema", None)
            if "$ref" in media.get("schema", {}):
                # FastAPI takes what it does not write itself for a text.
                media["schema"].pop("type", None)
            if "example" not in media and "examples" not in media:
                example = _example_of(media.get("schema", {}), schemas)
                if example is not None:
                    media["example"] = example


def _example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _example_of(schemas.get(schema["$ref"].rpartition("/")[2], {}), schemas)
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("type") == "array":
        item = _example_of(schema.get("items", {}), schemas)
        return None if item is None else [item]
    if schema.get("type") == "object" and "properties" in schema:
        found = {name: _example_of(each, schemas) for name, each in schema["properties"].items()}
        return found if any(value is not None for value in found.values()) else None
    return None
