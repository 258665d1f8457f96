"""The OpenAPI document is what the server does: every operation is called with what it allows and with what it does not.

The data are by a fixed seed, the store is a real file, and the caller may do everything: what is refused is refused for its value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import EngineEvent, FatalError, NonFatalError, ScenarioFinished
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.surfaces.http import make_app
from tests.support.proof import size

EXAMPLES = size(2, prove=60)
ONLY = os.environ.get("ROTA_TEST_PATHS", "")
"""For people who look for something: fewer paths."""
PHASES = ("examples", "coverage", "fuzzing", "stateful")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "ignored_auth",
)

REJECTION = {"enabled": True, "expected-statuses": ["400", "401", "403", "404", "405", "409", "412", "415", "422", "429"]}
"""An `If-Match` that does not match is told before the rest is looked at."""


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context: object, value: object) -> bytes:
    items = value if isinstance(value, list) else [value]
    return b"\n".join(json.dumps(each).encode() for each in items)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rota, TestClient]]:
    """A store in which there is something of everything, and its app."""
    rota = Rota(tmp_path_factory.mktemp("schema") / "rota.db", settings=Settings(synchronous="NORMAL", login_attempts=100_000), seed=7)
    fill(rota)
    with TestClient(make_app(rota), raise_server_exceptions=False) as client:
        yield rota, client
    rota.close()


def fill(rota: Rota) -> None:
    @rota.job(max_retries=0)
    def send_email(to: str = "", fail: bool = False) -> dict[str, object]:
        if fail:
            raise ValueError("no such address")
        return {"sent": to}

    rota.organizations.create("acme")
    rota.users.create("ada", organization="acme", role="admin")
    for params in ({"to": "a@b.c"}, {"fail": True}, {}):
        rota.acting_as("ada").enqueue("send_email", params, organization="acme")
    rota.turn()
    rota.enqueue("send_email")
    rota.group([("send_email", {}), ("send_email", {})])
    rota.calendars.update("holidays", ["2026-12-25"])
    rota.schedules.create("daily", "send_email", cron="0 9 * * *", timezone="Europe/Berlin")
    rota.schedules.fire("daily")


@pytest.mark.prove
@pytest.mark.parametrize("phase", PHASES)
def test_every_operation_does_what_the_document_says(served, phase):
    rota, client = served
    secret = rota.tokens.create("tests", permits=("manage",)).secret
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", client.app, config=config(phase, secret))
    # The streams don't end.
    schema = schema.exclude(path_regex="/events$").include(path_regex=ONLY)
    failures = [line for event in from_schema(schema).execute() for line in told(event)]
    assert not failures, "\n".join(failures)


def config(phase: str, secret: str) -> SchemathesisConfig:
    return SchemathesisConfig.from_dict(
        {
            "seed": 7,
            "suppress-health-check": ["all"],
            "parameters": {"query.follow": False},
            "headers": {"Authorization": f"Bearer {secret}"},
            "generation": {"max-examples": EXAMPLES, "deterministic": True, "no-shrink": True},
            "checks": {"enabled": False} | {name: {"enabled": True} for name in CHECKS} | {"negative_data_rejection": REJECTION},
            "phases": {name: {"enabled": name == phase} for name in PHASES},
        }
    )


def told(event: EngineEvent) -> Iterator[str]:
    """Go through what an event tells of failures."""
    if isinstance(event, FatalError):
        raise event.exception
    if isinstance(event, NonFatalError):
        yield f"{event.label}: {event.value!r}"
    if isinstance(event, ScenarioFinished):
        for case_id, checks in event.recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    sent = event.recorder.interactions.get(case_id)
                    asked = "" if sent is None else f"{sent.request.method} {sent.request.uri} {sent.request.body!r:.300}"
                    got = "" if sent is None or sent.response is None else f"{sent.response.status_code} {sent.response.content!r:.300}"
                    said = check.failure_info.failure
                    yield f"{check.name}: {asked} -> {got}\n    {said.title}: {' '.join(said.message.split()):.300}"
