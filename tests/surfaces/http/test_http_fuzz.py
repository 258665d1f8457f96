"""Whatever is sent, the answer is never a 5xx: bodies, cursors, ids, filters, headers and keys, on every store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.surfaces.http import make_app
from tests.stores.makers import MAKERS
from tests.support.proof import size

API = "/api/v1"
EXAMPLES = size(12, prove=1000)
pytestmark = pytest.mark.prove
"""For people who look for something: more."""
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


class Fuzzed:
    """An app over a store with a little in it."""

    def __init__(self, rota: Rota) -> None:
        @rota.job(max_retries=0)
        def echo(text: object = "hi") -> object:
            return text

        self.rota = rota
        self.ids = [rota.enqueue("echo", {"text": n}).id for n in range(3)]
        rota.turn()
        self.ids += [rota.enqueue("echo", {"text": n}).id for n in range(3)]
        self.ids += [rota.group([("echo", {})]).id]
        secret = rota.tokens.create("fuzz", permits=["manage"]).secret
        self.client = TestClient(make_app(rota), headers={"Authorization": f"Bearer {secret}"}, raise_server_exceptions=False)

    def send(self, method: str, path: str, **given: object) -> None:
        answer = self.client.request(method, API + path, **given)
        assert answer.status_code < 500, (method, path, given, answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.name)
def fuzzed(request, tmp_path_factory) -> Iterator[Fuzzed]:
    maker = request.param(tmp_path_factory.mktemp("fuzz"))
    rota = Rota(maker.url, settings=Settings(synchronous="NORMAL", http_direct_wait=0.5))
    yield Fuzzed(rota)
    rota.close()
    maker.close()


text = st.text(st.characters(), max_size=30)
odd = st.one_of(
    st.sampled_from([
        "", "\0", "a\0b", "\ud800", "\udfff\ud800", "nan", "-1", "0", "1" * 30, "JOB-2026-00001", "JOB-2026-00001.2", "..", "%", "'\"--",
        "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "\u202e", "🐸", "echo",
    ]),
    text,
)  # fmt: skip
value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), odd, st.sampled_from([10**400, -(2**63), 2**64, 1e308, -0.0])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd, inner, max_size=3)),
    max_leaves=6,
)
FIELDS = [
    "name",
    "params",
    "priority",
    "run_at",
    "unique_key",
    "depends_on",
    "on_parent_failure",
    "max_retries",
    "timeout",
    "queue_ttl",
    "webhook",
    "organization",
    "before",
    "after",
    "front",
    "reason",
    "on",
    "on_failure",
    "status",
    "job_type",
    "owner",
    "group",
    "chain",
    "schedule",
    "text",
    "error_type",
    "since",
    "until",
    "limit",
    "jobs",
    "mode",
]
body = st.dictionaries(st.sampled_from(FIELDS), value, max_size=5)
valid_job = body.map(lambda more: {"name": "echo"} | {name: each for name, each in more.items() if name != "name"})
PATHS = [
    ("POST", "/jobs"),
    ("POST", "/jobs/bulk"),
    ("POST", "/jobs/cancel"),
    ("POST", "/groups"),
    ("POST", "/dead-letters/retry"),
    ("POST", "/dead-letters/discard"),
    ("PATCH", "/jobs/{id}"),
    ("POST", "/jobs/{id}/move"),
    ("POST", "/jobs/{id}/cancel"),
    ("POST", "/jobs/{id}/depends"),
    ("POST", "/jobs/{id}/retry"),
    ("POST", "/groups/{id}/cancel"),
    ("POST", "/direct"),
]


def dumped(given: object) -> bytes:
    """Return JSON, and what goes for it elsewhere: NaN, half surrogates, numbers without end."""
    return json.dumps(given).encode()


@given(data=st.data(), where=st.sampled_from(PATHS), given=st.one_of(value, body, valid_job, st.lists(valid_job, max_size=3)))
@QUICK
def test_no_body_breaks_anything(fuzzed, data, where, given):
    method, path = where
    if path == "/direct" and isinstance(given, dict):
        given.pop("timeout", None)
    fuzzed.send(
        method,
        path.format(id=data.draw(st.sampled_from(fuzzed.ids))),
        content=dumped(given),
        headers={"content-type": "application/json"},
    )


@given(
    where=st.sampled_from(PATHS), raw=st.one_of(st.binary(max_size=60), valid_job.map(lambda job: dumped(job)[:-2])), lines=st.booleans()
)
@QUICK
def test_no_bytes_break_anything(fuzzed, where, raw, lines):
    kind = "application/x-ndjson" if lines and where[1] == "/jobs/bulk" else "application/json"
    fuzzed.send(where[0], where[1].format(id=fuzzed.ids[-2]), content=raw, headers={"content-type": kind})


@given(items=st.lists(st.one_of(valid_job.map(dumped), value.map(dumped), st.binary(max_size=20)), max_size=5))
@QUICK
def test_no_lines_break_anything(fuzzed, items):
    fuzzed.send("POST", "/jobs/bulk", content=b"\n".join(items), headers={"content-type": "application/x-ndjson"})


READS = ["/jobs", "/dead-letters", "/queue", "/groups"]
FILTERS = [*FIELDS, "cursor", "unknown"]


@given(path=st.sampled_from(READS), query=st.dictionaries(st.sampled_from(FILTERS), odd, max_size=3))
@QUICK
def test_no_filter_breaks_anything(fuzzed, path, query):
    fuzzed.send("GET", path, params={name: each.encode("utf-8", "surrogatepass") for name, each in query.items()})


@given(job_id=odd, rest=st.sampled_from(["", "/run", "/runs", "/chain", "/log", "/timeline", "/explain", "/graph"]))
@QUICK
def test_no_id_breaks_anything(fuzzed, job_id, rest):
    from urllib.parse import quote

    name = quote(job_id.encode("utf-8", "surrogatepass"), safe="")
    fuzzed.send("GET", f"/jobs/{name}{rest}") if name not in {"", ".", ".."} else None
    fuzzed.send("GET", f"/groups/{name}") if name not in {"", ".", ".."} else None


@given(data=st.data(), cut=st.integers(0, 20), put=odd)
@QUICK
def test_no_cursor_breaks_anything(fuzzed, data, cut, put):
    cursor = fuzzed.client.get(f"{API}/jobs", params={"limit": 1}).json()["next"]
    changed = cursor[:cut] + put.encode("utf-8", "ignore").decode() + cursor[cut + data.draw(st.integers(0, 3)) :]
    fuzzed.send("GET", "/jobs", params={"limit": 1, "cursor": changed})


header = st.binary(max_size=40).map(lambda each: bytes(byte for byte in each if byte >= 32 and byte != 127))
NAMES = ["Idempotency-Key", "If-Match", "If-None-Match", "Content-Type", "Accept", "Authorization", "Content-Length-Hint", "Cookie"]


@given(name=st.sampled_from(NAMES), given=st.one_of(header, st.sampled_from([b"*", b'"x"', b'W/"x"', b",,", b"text/plain", b"Bearer x"])))
@QUICK
def test_no_header_breaks_anything(fuzzed, name, given):
    fuzzed.send("POST", "/jobs", content=b'{"name": "echo"}', headers={"content-type": "application/json", name: given})
    fuzzed.send("GET", f"/jobs/{fuzzed.ids[0]}", headers={name: given})
    fuzzed.send("PATCH", f"/jobs/{fuzzed.ids[4]}", content=b'{"priority": 3}', headers={"content-type": "application/json", name: given})
