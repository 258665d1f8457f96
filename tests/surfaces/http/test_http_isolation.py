"""No request by the token of one organization shows, or touches, anything of another: every route that there is, every id of the others.

Routes are taken from the app itself, so that one which is added later is asked too. What must not be told are names, ids and numbers of
the others; what the request itself named may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from rota.admission import Admission
from rota.sql.catalog import TABLES as SYS_TABLES
from rota.surfaces.http import make_app
from rota.surfaces.http.access import COOKIE
from tests.surfaces.shared_store import ORGANIZATIONS, TEMPLATES, Person, SharedStore, fill, person, schedule_names
from tests.surfaces.test_isolation import told

API = "/api/v1"
MINE = ORGANIZATIONS[0]
THEIRS = ORGANIZATIONS[1]
STREAMS = {f"{API}/events"}
"""Without end, and nothing in them before something happens: they have tests of their own."""
NAMED = re.compile(r"\{(\w+)\}")
VERBS = ["cancel", "change", "delete", "disable", "enable", "fire", "move", "pause", "resume", "retry", "rotate", "test"]
NOBODYS = {f"{API}/openapi.json", f"{API}/health", f"{API}/ready"}


class Visitor:
    """Somebody of one organization, with a token and a browser."""

    def __init__(self, store: SharedStore, client: TestClient, who: Person) -> None:
        self.store = store
        self.who = who
        self._client = client
        self._secret = store.rota.tokens.create(f"of {who.name}", user=who.name, permits=["manage"]).secret
        self._session = Admission(store.rota).open_session(self._secret).secret
        self._marks = {mark for mark in store.marks(who.organization) if mark != store.rota.settings.http_host}

    def ask(self, method: str, path: str, given: object, **more: Any):
        """Ask, and see that the answer says nothing of others but what was given."""
        self._client.cookies.clear()
        headers = {"Authorization": f"Bearer {self._secret}"} if path.startswith(API) else {"Cookie": f"{COOKIE}={self._session}"}
        answer = self._client.request(method, path, headers=headers, follow_redirects=False, **more)
        text = answer.text + repr(sorted(answer.headers.items()))
        found = {mark for mark in self._marks if mark in text}
        leaked = found and told(text, found, self.store.given(self.who.organization, [given, path]))
        assert not leaked, f"{self.who.name} was told {sorted(leaked)[:3]} by {method} {path} {given}: {text[:500]}"
        assert answer.status_code < 500, (method, path, given, answer.text)
        return answer


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[SharedStore]:
    made = SharedStore(tmp_path_factory.mktemp("isolation") / "shared.db", seed=1)
    fill(made)
    for name in ORGANIZATIONS:
        made.rota.acting_as(f"admin1-{name}").webhooks.create(f"https://{name}.example/hook", description=f"of {name}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(store: SharedStore) -> Iterator[TestClient]:
    with TestClient(make_app(store.rota), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module", params=["admin", "user"])
def visitor(request, store: SharedStore, client: TestClient) -> Visitor:
    return Visitor(store, client, person(request.param, MINE))


def routes(client: TestClient, *methods: str) -> list[tuple[str, str]]:
    """Return every route of the app, as method and path."""
    found = {
        (method, route.path.replace(":path}", "}"))
        for route in client.app.routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method in methods
    }
    return sorted(found)


def others(store: SharedStore) -> dict[str, list[str]]:
    """Return what stands for a parameter of a path: everything of others that has a name or an id."""
    ids = {job.id: job.number for name in ORGANIZATIONS[1:] for job in store.rota.jobs.list(organization=name, limit=1000)}
    names = [*ORGANIZATIONS[1:], *TEMPLATES, *schedule_names(THEIRS), f"days-{THEIRS}", f"user1-{THEIRS}", f"admin1-{THEIRS}", "chief"]
    return {
        "job": [*ids, *list(ids.values())[:20]],
        "group": [group.id for group in store.rota.groups.list(limit=1000) if group.organization != MINE],
        "token": [token.id for token in store.rota.tokens.list()],
        "webhook": [hook.id for hook in store.rota.webhooks.list() if hook.organization != MINE],
        "name": names,
    }


def asked(path: str, values: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return the paths that a route has for the things of others."""
    name, *rest = NAMED.findall(path) or [""]
    if not name:
        return [("", path)]
    assert set(rest) <= {"verb"}, f"tell this test what to give for {rest} of {path}"
    pool = values.get(name) or [each for known in values.values() for each in known[:5]]
    pairs = [(each, path.replace("{" + name + "}", quote(each, safe=""))) for each in pool]
    return [(each, address.replace("{verb}", verb)) for each, address in pairs for verb in (VERBS if rest else [""])]


def test_nothing_of_others_is_shown_by_any_page_or_answer(store, client, visitor):
    values, seen = others(store), 0
    for place, (method, path) in enumerate(routes(client, "GET")):
        if path in STREAMS | NOBODYS:
            continue
        # Every id of others by one route, and by each of the rest every tenth, another tenth each time.
        step = 1 if path == f"{API}/jobs/{{job}}" else 10
        pool = asked(path, values)
        for given, address in pool[place % min(step, len(pool)) :: step] if pool else []:
            seen += visitor.ask(method, address, given).status_code == 200
    assert seen > 10, "most lists can be read"


def test_nothing_of_others_is_shown_by_any_filter(store, client, visitor):
    group = next(group.id for group in store.rota.groups.list(limit=1000) if group.organization == THEIRS)
    job = next(iter(store.rota.jobs.list(organization=THEIRS, limit=1)))
    filters = {
        "organization": THEIRS,
        "owner": f"user1-{THEIRS}",
        "text": THEIRS,
        "chain": job.id,
        "group": group,
        "schedule": f"nightly-{THEIRS}",
        "name": f"nightly-{THEIRS}",
        "subject": f"job:{job.id}",
        "q": THEIRS,
        "id": job.id,
        "cursor": job.number,
    }
    described = client.get(f"{API}/openapi.json").json()["paths"]
    assert len(described) > 60
    for method, path in routes(client, "GET"):
        if path in STREAMS | NOBODYS or "{" in path:
            continue
        if path in described:
            names = {each["name"] for each in described[path]["get"].get("parameters", ()) if each["in"] == "query"}
            queries = [{name: value} for name, value in filters.items() if name in names]
        else:
            # A page takes what it knows: all at once, and each of the first few alone.
            queries = [filters, *({name: filters[name]} for name in ("organization", "text", "name"))]
        for query in queries:
            visitor.ask(method, path, [query, job.id], params=query)


def test_nothing_of_others_is_touched_or_shown_by_any_act(store, client, visitor):
    values, before = others(store), store.rows(MINE)
    described = client.get(f"{API}/openapi.json").json()["paths"]
    for method, path in routes(client, "POST", "PUT", "PATCH", "DELETE"):
        if "{" not in path:
            continue
        content = described.get(path, {}).get(method.lower(), {}).get("requestBody", {}).get("content", {})
        example = content.get("application/json", {}).get("example", {"priority": 1})
        for given, address in asked(path, values)[::25]:
            for body in ({}, example):
                visitor.ask(method, address, given, json=body)
    after = store.rows(MINE)
    assert {table for table in before if before[table] != after[table]} == set()


def test_nothing_of_others_can_be_named_in_a_body(store, client, visitor):
    job = next(iter(store.rota.jobs.list(organization=THEIRS, status="QUEUED", limit=1)))
    group = next(group.id for group in store.rota.groups.list(limit=1000) if group.organization == THEIRS)
    mine = next(iter(store.rota.jobs.list(organization=MINE, status="QUEUED", limit=1)))
    before = store.rows(MINE)
    for path, body in (
        ("/jobs", {"name": "work", "depends_on": [job.id]}),
        ("/jobs", {"name": "work", "depends_on": [job.number]}),
        ("/jobs", {"name": "work", "organization": THEIRS}),
        ("/jobs", {"name": "work", "unique_key": f"key-{THEIRS}-1"}),
        ("/jobs/bulk", [{"name": "work", "depends_on": [job.number]}]),
        (f"/jobs/{mine.id}/move", {"before": job.id}),
        (f"/jobs/{mine.id}/depend", {"on": [job.id]}),
        ("/groups", {"jobs": [job.id]}),
        ("/groups", {"jobs": [{"name": "work"}], "organization": THEIRS}),
        ("/direct", {"name": "work", "organization": THEIRS}),
        ("/jobs/cancel", {"organization": THEIRS}),
        ("/jobs/cancel", {"group": group}),
        ("/jobs/cancel", {"text": THEIRS}),
        ("/dead-letters/retry", {"organization": THEIRS}),
        ("/dead-letters/delete", {"organization": THEIRS}),
    ):
        visitor.ask("POST", API + path, body, json=body)
    assert {table for table, rows in store.rows(MINE).items() if rows != before[table]} == set()


def test_nothing_of_others_is_shown_by_any_table_or_statement_of_sql(store, client, visitor):
    job = next(iter(store.rota.jobs.list(organization=THEIRS, status="QUEUED", limit=1)))
    before = store.rows(MINE)
    texts = [f"SELECT * FROM sys.{name}" for name in SYS_TABLES]
    texts += ["SHOW JOBS", "SHOW JOB RUNS", "SHOW OCCURRENCES", "SHOW DEPENDENCIES", "FORECAST FOR 1 DAY", f"CANCEL JOB RUN {job.id}"]
    for name in schedule_names(THEIRS):
        verbs = ("SHOW JOB", "SHOW CREATE JOB", "EXPLAIN JOB", "EXECUTE JOB", "CANCEL JOB", "PAUSE JOB", "DROP JOB", "PLAN DROP JOB")
        texts += [f'{verb} "{name}"' for verb in verbs]
    for text in texts:
        visitor.ask("POST", f"{API}/sql", text, json={"sql": text})
    assert {table for table, rows in store.rows(MINE).items() if rows != before[table]} == set()
    assert visitor.ask("POST", f"{API}/sql", "", json={"sql": "SELECT 1"}).status_code == 200


def test_what_is_ones_own_is_shown(store, client, visitor):
    """Otherwise the others would prove nothing."""
    mine = store.rota.jobs.list(organization=MINE, owner=visitor.who.name, limit=1) or store.rota.jobs.list(organization=MINE, limit=1)
    assert visitor.ask("GET", f"{API}/jobs/{mine[0].id}", "").status_code == 200
    assert visitor.ask("GET", f"{API}/jobs", "").json()["items"]
    assert MINE in visitor.ask("GET", f"{API}/jobs", "").text
