"""The OpenAPI document: every route of the API, its parameters and its answers, made from the operations.

Values are described by their own types (msgspec knows them), so there is no second list of their fields. What every operation may refuse
is added here, once: a route names only what is special to it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from rota import errors, wire
from rota.errors import RotaError
from rota.surfaces.http.problems import MEDIA_TYPE, OWN, status_of

if TYPE_CHECKING:
    from rota.surfaces.http.api.endpoint import Address, Endpoint, HandRoute

JSON = "application/json"
EVENTS = "text/event-stream"
REF = "#/components/schemas/{name}"
METHODS = frozenset({"get", "put", "post", "delete", "patch"})
SECURITY: list[dict[str, list[str]]] = [{"Token": []}]

TAGS = {
    "Jobs": "Work to be done once: created, found, changed, moved, cancelled and retried; its runs and its log.",
    "Groups": "Jobs that belong together, in order or side by side.",
    "Dead letters": "Chains that failed for good: looked at, retried, discarded.",
    "Events": "What happens, as it happens: server-sent events.",
    "Templates": "What jobs are created from: handler, limits, retries. What operators set takes precedence over the code.",
    "Schedules": "When a template becomes jobs, and the outcome of each due time.",
    "Calendars": "Days on which schedules that name them are not due.",
    "Organizations": "Who shares this store, and how much of it.",
    "Users": "People and programs: the organization of each, and what each may do.",
    "Roles": "Roles of organizations: members hold the privileges that a role was granted.",
    "Grants": "Privileges: who was granted what, on which job, and by whom.",
    "Connections": "Databases that jobs in SQL use, and who may use them. A password is a secret, never a part of one.",
    "Secrets": "Values that jobs are given, encrypted in the store. No answer has a value.",
    "Tokens": "Keys of this API. A secret is shown once, when it is created.",
    "Webhooks": "Addresses that are notified of events, and the delivery of each message.",
    "Queues": "What waits in each queue, what runs, and who serves it.",
    "Workers": "The processes that run jobs.",
    "Scheduler": "Pauses, the worker of this server, and what retention would remove.",
    "Store": "The store as a whole: pauses, recovery, statistics and the doctor.",
    "Stored settings": "Settings that the store keeps for all processes, and whose value is in force.",
    "Overview": "What the first screen shows: is it healthy, what did not run, what is stuck, what runs, what comes next.",
    "Audit": "What people changed, and who.",
    "SQL": "Statements of the SQL language: jobs defined, run and inspected, and queries over sys.*.",
    "Health": "The two questions of a load balancer. No token is asked for.",
}
"""Every tag, in the order in which people read them."""

ABOUT = """\
Rota over HTTP. Moments are ISO 8601 in UTC, lengths are seconds, sizes are bytes.

**Access.** Give a token of `rota token create` as `Authorization: Bearer rota_…`. It acts as its user: what that user may not see is not
there (404), what it may not do is refused (403).

**Parameters** of `GET` and `DELETE` are in the address, those of all other methods are one JSON object in the body. They are the
parameters of the same operation in Python and on the command line.

**Lists** come in pages: `next` is the `cursor` of the page after it, null at the end.

**Edits** of what has a version (jobs, templates, schedules, webhooks) return its `ETag`. Send it as `If-Match`, and the edit is refused
with 412 if somebody else was quicker. A route that does not list `If-Match` or `Idempotency-Key` refuses the header (422).

**Refusals** are problems of RFC 9457 with a stable `code`.
"""

_ANY = {"description": "Any JSON value."}


# ---- for routes ----------------------------------------------------------------------------------------------------


def shape(kind: type) -> dict[str, Any]:
    """Return a reference to the description of a value; `SHAPES` of the API's examples has to know it."""
    return {"$ref": REF.format(name=kind.__name__)}


def query(name: str, schema: dict[str, Any], words: str) -> dict[str, Any]:
    """Return the description of a parameter in the address."""
    return {"name": name, "in": "query", "required": False, "description": words, "schema": schema}


def header(name: str, words: str, example: str | None = None, **schema: Any) -> dict[str, Any]:
    """Return the description of a header."""
    said = {"name": name, "in": "header", "required": False, "description": words, "schema": {"type": "string", **schema}}
    return said if example is None else {**said, "example": example}


def takes(kind: type) -> dict[str, Any]:
    """Return the content of a body that is one JSON value."""
    return {JSON: {"schema": shape(kind)}}


def gives(
    given: type | dict[str, Any], *, status: int = 200, what: str | None = None, etag: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Return the entry of `responses` for what a route answers: a value of the model, or a description made by hand."""
    schema = shape(given) if isinstance(given, type) else given
    answer: dict[str, Any] = {"description": what or HTTPStatus(status).phrase, "content": {JSON: {"schema": schema}}}
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
        status, code = (kind, OWN[kind]) if isinstance(kind, HTTPStatus) else (status_of(kind), kind.code)
        entry = found.setdefault(int(status), {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": PROBLEM_REF}}})
        entry["content"][MEDIA_TYPE].setdefault("examples", {})[code] = {"value": _example(status, code)}
    return found


# ---- the document --------------------------------------------------------------------------------------------------


def document(routes: list[Address]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    from rota import __version__  # noqa: PLC0415 - this is imported by nobody that `rota` imports
    from rota.surfaces.http.api.endpoint import API, Endpoint  # noqa: PLC0415 - routes describe their answers by this module
    from rota.surfaces.http.api.examples import SHAPES  # noqa: PLC0415 - as above

    paths: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for route in routes:
        said = _operation(route, kinds) if isinstance(route, Endpoint) else _by_hand(typing.cast("HandRoute", route))
        paths.setdefault(API + route.shown, {})[route.method.lower()] = said
    _, components = msgspec.json.schema_components(tuple(SHAPES), schema_hook=lambda _kind: _ANY, ref_template=REF)
    for kind, example in SHAPES.items():
        components[kind.__name__]["examples"] = [example]
    schemas = dict(sorted((components | kinds | {"Problem": _problem_schema()}).items()))
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "summary": "A durable job scheduler and background-job engine.",
            "description": ABOUT,
            "version": __version__,
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"Token": {"type": "http", "scheme": "bearer", "description": "A token of `rota token create`."}},
        },
    }
    used = {tag for _, _, operation in operations(found) for tag in operation["tags"]}
    found["tags"] = [{"name": name, "description": words} for name, words in TAGS.items() if name in used]
    for _, _, operation in operations(found):
        _add_refusals(operation)
        _add_examples(operation, schemas)
    return found


def _said(route: Address, words: str) -> dict[str, Any]:
    """Return what every operation says: its chapter, its name, and its words, of which the first sentence is the summary."""
    summary = " ".join(words.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return {"tags": [route.tag], "operationId": route.name.replace(".", "_"), "summary": summary, "description": " ".join(words.split())}


def _by_hand(route: HandRoute) -> dict[str, Any]:
    described = route.described
    said = _said(route, inspect.getdoc(route.endpoint) or "")
    if "parameters" in described:
        said["parameters"] = described["parameters"]
    if "content" in described:
        said["requestBody"] = {"required": True, "content": described["content"]}
    said["responses"] = {str(status): answer for status, answer in described["responses"].items()}
    if not described.get("is_open"):
        said["security"] = SECURITY
    return said


def _operation(route: Endpoint, kinds: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of an operation, and add the types of its parameters to `kinds`."""
    operation = route.operation
    schema = wire.schema(operation, refs=REF)
    kinds |= schema.pop("$defs", {})
    properties = {name: each for name, each in schema["properties"].items() if name in route.parameters}
    # What Python passes as `before` is the cursor here.
    words = inspect.getdoc(operation.body) or ""
    said = _said(route, words if route.place is None else words.replace("`before`", "`cursor`"))
    parameters = [_parameter(route, name, each) for name, each in properties.items() if name in route.in_path or not route.takes_body]
    if route.limit is not None:
        parameters += _paging(route)
    said["parameters"] = parameters + _conditions(route)
    if route.takes_body:
        inside = {name: each for name, each in properties.items() if name not in route.in_path}
        required = [name for name in schema.get("required", ()) if name in inside]
        body = {"type": "object", "properties": inside, "required": required, "additionalProperties": False}
        example = _body_example(route, inside, required)
        said["requestBody"] = {
            "required": bool(required) or operation.confirm is not None,
            "content": {JSON: {"schema": body, "example": example}},
        }
    said["responses"] = {str(status): answer for status, answer in _answers(route).items()}
    said["security"] = SECURITY
    return {name: value for name, value in said.items() if value != []}


def _parameter(route: Endpoint, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter in the address; null is left out there, not sent."""
    is_path = name in route.in_path
    schema = dict(schema)
    words = schema.pop("description", "")
    examples = schema.pop("examples", None)
    if "anyOf" in schema:
        members = [each for each in schema["anyOf"] if each.get("type") != "null"]
        schema = members[0] if len(members) == 1 else {**schema, "anyOf": members}
    if isinstance(schema.get("type"), list):
        schema["type"] = [each for each in schema["type"] if each != "null"]
    said: dict[str, Any] = {"name": name, "in": "path" if is_path else "query", "required": is_path, "schema": schema}
    if words:
        said["description"] = words
    if examples:
        said["example"] = examples[0]
    return said


def _paging(route: Endpoint) -> list[dict[str, Any]]:
    from rota.surfaces.http.api.results import CURSOR_MAX, PAGE_MAX  # noqa: PLC0415 - as above

    limit = {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": route.limit}
    said = [query("limit", limit, "Items of this page, at most.")]
    if route.place is not None:
        schema = {"type": "string", "maxLength": CURSOR_MAX}
        said.append(query("cursor", schema, "`next` of the previous page, with the same filters."))
    return said


def _conditions(route: Endpoint) -> list[dict[str, Any]]:
    if route.operation.etag and route.operation.method == "GET":
        return [header("If-None-Match", "The `ETag` that you have seen: 304 without a body if it has not changed.", '"3"')]
    words = "The `ETag` that you have seen: 412 if it has another by now. `*`, or no header: whatever it has."
    return [header("If-Match", words, '"3"')] if route.checks_version else []


def _body_example(route: Endpoint, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the example of a body: the one that is written for it, or its required fields, or else its first one."""
    from rota.surfaces.http.api.examples import BODIES  # noqa: PLC0415 - as above

    if route.name in BODIES:
        return BODIES[route.name]
    known = {name: each["examples"][0] for name, each in properties.items() if each.get("examples")}
    return {name: known[name] for name in required} or dict(list(known.items())[:1])


def _answers(route: Endpoint) -> dict[int | str, dict[str, Any]]:
    operation = route.operation
    found: dict[int | str, dict[str, Any]] = {}
    if operation.result is type(None) or operation.result is None:
        found |= nothing()
    elif route.item is not None:
        fields: dict[str, Any] = {"items": {"type": "array", "items": shape(_shown(route.item))}}
        if route.place is not None:
            fields["next"] = {"type": ["string", "null"], "description": "Give it as `cursor` to get the page after this one."}
        found |= gives({"type": "object", "required": list(fields), "properties": fields}, status=operation.status)
    else:
        found |= gives(_shown(operation.result), status=operation.status, etag=operation.etag)
    if operation.etag and operation.method == "GET":
        found[304] = {"description": "It has not changed."}
    if route.name == "jobs.log":
        found |= _log(found)
    refused: list[type[RotaError]] = [errors.NotFound] if route.parameters else []
    if operation.method != "GET":
        refused.append(errors.Refused)
        if route.checks_version:
            refused.append(errors.ChangedMeanwhile)
    if route.name == "scheduler.retention":
        refused.append(errors.ClockInDoubt)
    return found | refuses(*refused)


def _log(found: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    content = found[200]["content"]
    content["text/plain"] = {"schema": {"type": "string"}, "example": "2026-03-01T09:00:00.000Z  QUEUED by ada"}
    example = 'event: log\ndata: {"text":"2026-03-01T09:00:00.000000Z INFO sent\\n"}\n\n'
    content[EVENTS] = {"schema": {"type": "string"}, "example": example}
    return nothing("All of it was sent before.")


def _shown(kind: Any) -> type:
    """Return the type of which the JSON form of a result is."""
    from rota.surfaces.http.api.results import SHOWN  # noqa: PLC0415 - as above

    shown, _ = SHOWN.get(getattr(kind, "__origin__", None) or kind, (kind, None))
    return shown


def operations(found: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Go through a document's operations, as path, method and what is said of it."""
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield path, method, operation


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
    "invalid_request": "A parameter, a header or a field is unknown, missing or of the wrong type; `detail` says which.",
    "error": "Something went wrong inside; the server's log says what.",
    "job_exists": "A SQL statement creates a job, and there is one of this name.",
    "not_available": "A SQL statement can be read, and this version can't carry it out.",
    "role_exists": "A SQL statement creates a role, and there is one of this name.",
    "secret_exists": "A SQL statement creates a secret, and there is one of this name.",
    "unknown_grantee": "A SQL statement names a user or a role that does not exist, or both have the name.",
    "unknown_job": "A SQL statement names a job that does not exist, or that the caller may not see.",
    "unknown_procedure": "A SQL statement calls a handler that does not exist.",
    "unknown_role": "A SQL statement names a role that does not exist.",
    "unknown_secret": "A SQL statement names a secret that does not exist, or that the caller may not see.",
    "unknown_run": "A SQL statement names a run that does not exist, or that the caller may not see.",
}
"""What the codes say that no class of errors has, and the one that says nothing. The others have the first line of their error's docs."""
DETAILS = {
    "unauthenticated": "this token opens nothing here: give one that `rota token create` has shown",
    "permission_denied": "'bob' (user) may not manage templates",
    "not_found": "there is no schedule 'nightly': `rota schedule list` shows them",
    "invalid_request": "body.max_retries: Expected `int | null`, got `str`",
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
    "column": {"type": "integer", "description": "Of SQL: the place in the line, counted from 1."},
    "expected": {"type": "array", "items": {"type": "string"}, "description": "Of SQL: what could have been there."},
    "found": {"type": "string", "description": "Of SQL: what was there."},
    "line": {"type": "integer", "description": "Of `invalid_import` and SQL: the number of the line."},
    "position": {"type": "integer", "description": "Of SQL: the place in the whole text, counted from 1."},
    "executed": {"type": "integer", "description": "Of SQL: how many statements before this one were executed."},
    "sqlstate": {"type": "string", "description": "Of SQL: its code in SQL."},
    "statement": {"type": "integer", "description": "Of SQL: which statement of the script failed, counted from 1."},
    "suggestion": {"type": "string", "description": "Of SQL: the word that was probably meant."},
    "path": {"type": "array", "items": {"type": "string"}, "description": "Of `dependency_cycle`: its members in the order of waiting."},
    "retry_after_s": {"type": "number", "description": "Of `rate_limited`: seconds to wait before the next try."},
}
"""The members of problems that errors name (`RotaError.members`)."""


def codes() -> dict[str, HTTPStatus]:
    """Return every code that a problem may have, and its status."""
    found = {code: status for status, code in OWN.items()}
    for kind in _kinds():
        found.setdefault(kind.code, status_of(kind))
    return dict.fromkeys(MEANINGS, HTTPStatus.UNPROCESSABLE_ENTITY) | found


def _kinds() -> Iterator[type[RotaError]]:
    """Go through every class of errors, those of SQL last: some share a code with another."""
    from rota.sql import errors as sql_errors  # noqa: PLC0415 - servers that are not asked for the document need none of SQL

    yield from error_kinds()
    yield from (each for each in vars(sql_errors).values() if isinstance(each, type) and issubclass(each, errors.SqlError))


def error_kinds(kind: type[RotaError] = RotaError) -> Iterator[type[RotaError]]:
    """Go through a class of errors and all below it."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from error_kinds(each)


def meaning(code: str) -> str:
    """Return in a few words when a code is given."""
    kind = next((each for each in _kinds() if each.code == code), RotaError)
    return MEANINGS.get(code) or (kind.__doc__ or "").partition("\n")[0]


def _example(status: HTTPStatus, code: str) -> dict[str, Any]:
    detail = DETAILS.get(code) or meaning(code)
    return {"type": "about:blank", "title": status.phrase, "status": int(status), "code": code, "detail": detail}


def _problem_schema() -> dict[str, Any]:
    known = codes()
    texts = {"type": {"type": "string"}, "title": {"type": "string"}, "detail": {"type": "string"}}
    return {
        "title": "Problem",
        "type": "object",
        "description": "What was refused and why (RFC 9457). `code` is stable: programs look at it, people read `detail`.",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            **texts,
            "status": {"type": "integer", "enum": sorted({int(status) for status in known.values()})},
            "code": {"type": "string", "enum": sorted(known)},
            "item": {"type": "integer", "description": "Of a bulk request: the first item that it is about."},
            "accepted": {"type": "integer", "description": "Of a bulk request: how many jobs were accepted before it."},
            **MEMBERS,
        },
        "examples": [_example(HTTPStatus.NOT_FOUND, "not_found")],
    }


def _add_refusals(operation: dict[str, Any]) -> None:
    """Add what every operation of its kind may refuse, beside what its route says itself."""
    responses = operation["responses"]
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
