"""Moments over HTTP are ISO 8601 in UTC, with a Z, whatever zone the server, the reader or a schedule is in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.surfaces.http.api_support import Callers, callers

__all__ = ["callers"]

MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def office(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> Callers:
    """A store that has all kinds of moments in it, on a machine and for a reader that are elsewhere."""
    monkeypatch.setenv("TZ", "America/St_Johns")
    callers.client.cookies.set("rota_zone", "Europe%2FBerlin")
    rota = callers.rota
    rota.enqueue("echo")
    rota.turn()
    rota.enqueue("echo", run_at=timedelta(hours=2))
    rota.group([("echo", {})], name="two")
    rota.schedules.create("nightly", "echo", cron="30 2 * * *", timezone="Europe/Berlin")
    rota.schedules.create("once", "echo", at=datetime(2037, 6, 1, 9, tzinfo=UTC))
    rota.schedules.fire("nightly")
    rota.store.pause()
    return callers


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(each)


def paths(office: Callers) -> Iterator[str]:
    """Go through the addresses of what can be read, with one of each thing."""
    job = office.rota.jobs.list(limit=1)[0].id
    group = office.rota.groups.list()[0].id
    known = {"job": job, "job_id": job, "group": group, "name": "once", "schedule": "once", "template": "echo", "organization": "acme"}
    document = office.manager.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        names = re.findall(r"{(\w+)}", path)
        if "get" in methods and "events" not in path and all(name in known for name in names):
            yield path.removeprefix("/api/v1").format(**known)


def test_every_moment_of_every_answer_is_utc_with_a_z(office: Callers):
    seen, answered = 0, 0
    for path in paths(office):
        answer = office.manager.get(path)
        if answer.status_code != 200 or "json" not in answer.headers["content-type"]:
            continue
        answered += 1
        for text in texts(answer.json()):
            moments = MOMENT.findall(text)
            seen += len(moments)
            assert len(ISO.findall(text)) == len(moments), (path, text)
    assert answered > 15
    assert seen > 50
