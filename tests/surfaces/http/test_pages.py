"""The dashboard without JavaScript: every page, every act, every role."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from rota import Backoff, PermanentError, Rota
from rota.model.overview import (
    Ahead,
    Coming,
    Concern,
    Counts,
    Current,
    Example,
    Health,
    Hour,
    Level,
    NotRun,
    Overview,
    Running,
    Stuck,
    Why,
)
from rota.surfaces.http import make_app
from rota.surfaces.http.access import COOKIE
from rota.surfaces.http.pages.context import ADDRESSES, NAV
from rota.wire import seal
from tests.surfaces.http.pages_support import ACCEPT, HOSTILE, Browser, browsing, said

PAGE_MAX = 100_000


@pytest.fixture
def store(shared: Rota) -> Rota:
    """The store that organizations share, with a little of everything in it."""

    @shared.job(max_retries=1, backoff=Backoff(base=1, jitter=0))
    def breaks(why: str = "no reason") -> None:
        raise PermanentError(why)

    @shared.job(max_retries=0)
    def logs(ctx, line: str) -> dict[str, str]:
        ctx.log.info("%s", line)
        ctx.progress(40, line)
        ctx.artifact(f"/tmp/{line[:8]}")
        return {"said": line}

    ada, options = shared.acting_as("ada"), {"organization": "acme"}
    ada.enqueue("breaks", {"why": HOSTILE}, **options)
    ada.enqueue("logs", {"line": HOSTILE}, **options)
    shared.acting_as("eve").enqueue("echo", {"text": "eve's own secret"})
    shared.turn()
    ada.schedule("nightly <b>", "echo", cron="0 3 * * *", timezone="Europe/Berlin", description=HOSTILE, **options)
    ada.enqueue("echo", {"text": HOSTILE}, run_at=timedelta(hours=1), unique_key=HOSTILE, **options)
    ada.group([("echo", {"text": "one"}), ("echo", {"text": "two"})], name=HOSTILE, **options)
    ada.enqueue("echo", {"text": "first"}, **options)
    ada.enqueue("echo", {"text": "second"}, **options)
    return shared


@pytest.fixture
def people(store: Rota):
    with browsing(store) as browser:
        yield browser


@pytest.fixture
def root(people) -> Browser:
    return people("root")


class Reader(HTMLParser):
    """Collects what a test asks of a page: links, forms' targets, and whatever would run or dress inline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.wrong: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.fields: list[set[str]] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._script = tag in {"script", "style"}
        if self._script and "src" not in found:
            self.wrong.append(f"<{tag}> inline")
        self.wrong += [f"{name} of <{tag}>" for name in found if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action", "formaction"):
            value = found.get(name) or ""
            if "//" in value or value.startswith("javascript"):
                self.wrong.append(f"{name}={value}")
            if tag == "a" and name == "href" and value.startswith("/"):
                self.links.add(value)
        if tag == "form":
            self.forms.append(found)
            self.fields.append(set())
        if tag == "input" and self.fields and "form" not in found:
            self.fields[-1].add(found.get("name", ""))

    def handle_data(self, data):
        if self._script and data.strip():
            self.wrong.append(f"code: {data[:40]}")
        self._script = False


def links_of(browser: Browser, first: str) -> dict[str, str]:
    """Follow every link from a page on and return all pages."""
    found: dict[str, str] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop().partition("#")[0]
        if path in found or path.startswith("/static"):
            continue
        answer = browser.get(path)
        assert answer.status_code == 200, f"{path} gives {answer.status_code}"
        found[path] = answer.text
        if answer.headers["content-type"].startswith("text/html"):
            # One month is enough: they go on for ever.
            waiting += [link for link in Reader(answer.text).links if "month=" not in link]
    return found


def full() -> Overview:
    """Return a first screen with as much on it as there can be."""
    at = datetime(2026, 11, 15, 12, tzinfo=UTC)
    example = Example(id="01a1e058-9d26-7000-8003-efe928a830a3", number="JOB-2026-123456.2", job_type="x" * 40)
    names = [f"{place:03d} {'a schedule of some length':<30}" for place in range(100)]
    own = {"organization": "an organization"}
    return Overview(
        at=at,
        organization=None,
        health=Health(level=Level.WATCH, sentence="s" * 200, concerns=(Concern(level=Level.WATCH, what="w" * 100, remedy="`do` it"),) * 8),
        counts=Counts(queued=1_000_000, workers=1),
        not_run=tuple(
            NotRun(kind="schedule", name=each, fate="MISSED", count=9, first_at=at, last_at=at, reason="r" * 200, example=example, **own)
            for each in names[:50]
        ),
        stuck=(Stuck(why=Why.TURN, words="w" * 120, count=9, more=True, oldest_s=9, example=example),) * 50,
        running=Running(
            jobs=tuple(
                Current(
                    id=example.id,
                    number=example.number,
                    job_type=each,
                    attempt=2,
                    started_at=at,
                    elapsed_s=90,
                    progress=40,
                    message="m" * 90,
                    usual_s=3,
                    long_s=9,
                    **own,
                )
                for each in names[:50]
            ),
            count=50,
        ),
        ahead=Ahead(
            start=at,
            end=at + timedelta(hours=24),
            items=tuple(Coming(schedule=each, template="t", due_at=at, note="n" * 80, **own) for each in names),
            hours=tuple(Hour(begins_at=at + timedelta(hours=hour), count=hour) for hour in range(25)),
            count=100,
        ),
    )


# ---- at the door -----------------------------------------------------------------------------------------------------


def test_who_has_not_come_in_is_led_to_the_door_and_then_to_where_they_wanted(store: Rota):
    client = TestClient(make_app(store), base_url="http://localhost")
    secret = store.tokens.create("mine", permits=["read"]).secret
    asked = client.get("/jobs?status=QUEUED", headers=ACCEPT, follow_redirects=False)
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=/jobs%3Fstatus%3DQUEUED")
    assert 'value="/jobs?status=QUEUED"' in client.get(asked.headers["location"], headers=ACCEPT).text
    came = client.post("/login", data={"token": secret, "next": "/jobs?status=QUEUED"}, headers=ACCEPT)
    assert str(came.url) == "http://localhost/jobs?status=QUEUED"
    assert client.get("/login", headers=ACCEPT).url.path == "/"


def test_the_cookie_of_a_session_is_kept_from_scripts_and_other_sites(store: Rota):
    secret, app = store.tokens.create("mine", permits=["read"]).secret, make_app(store)
    for base, secure in (("http://localhost", False), ("https://localhost", True)):
        client = TestClient(app, base_url=base)
        cookie = client.post("/login", data={"token": secret}, headers=ACCEPT, follow_redirects=False).headers["set-cookie"]
        assert COOKIE in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert ("Secure" in cookie) is secure


def test_a_wrong_token_is_told_so_and_many_have_to_wait(store: Rota):
    browser = Browser(TestClient(make_app(store), base_url="http://localhost"))
    wrong = browser.post("/login", token="rota_" + "0" * 64)
    assert wrong.status_code == 401
    assert "opens nothing here" in wrong.text
    for _ in range(store.settings.login_attempts):
        last = browser.post("/login", token="nonsense")
    assert last.status_code == 429
    assert "too many wrong tokens came from here: use a right one, or wait" in last.text
    assert int(last.headers["retry-after"]) > 0


def test_another_sites_form_lets_nobody_in(store: Rota):
    client = TestClient(make_app(store), base_url="http://localhost")
    secret = store.tokens.create("mine", permits=["read"]).secret
    answer = client.post("/login", data={"token": secret}, headers=ACCEPT | {"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert not client.cookies


def test_nobody_is_led_to_another_site(store: Rota):
    secret, app = store.tokens.create("mine", permits=["read"]).secret, make_app(store)
    for next_ in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        client = TestClient(app, base_url="http://localhost")
        answer = client.post("/login", data={"token": secret, "next": next_}, headers=ACCEPT, follow_redirects=False)
        assert answer.headers["location"] == "/"


def test_a_form_without_its_word_changes_nothing(store: Rota, root: Browser):
    job = store.queues.jobs()[0]
    for word in ("", "0" * 64):
        answer = root.post(f"/jobs/{job.id}/cancel", csrf=word, sure="yes")
        assert answer.status_code == 403
        assert "did not come from a page" in unescape(answer.text)
    assert not store.jobs.get(job.id).status.ended


@pytest.mark.parametrize("placed", ["mounted", "behind a proxy"])
def test_below_a_path_every_address_starts_with_it(store: Rota, placed: str):
    app, options = make_app(store), {"base_url": "http://localhost"}
    if placed == "mounted":
        site = Starlette()
        site.mount("/rota", app)
        client = TestClient(site, **options)
    else:
        client = TestClient(app, root_path="/rota", **options)
    browser = Browser(client)
    assert browser.get("/rota/queue").url.path == "/rota/login"
    secret = store.tokens.create("of root", user="root", permits=("read", "submit", "operate", "manage")).secret
    entered = client.post("/rota/login", data={"token": secret, "next": "/queue"}, headers=ACCEPT)
    assert (entered.status_code, entered.url.path) == (200, "/rota/queue")
    assert "Path=/rota;" in entered.history[0].headers["set-cookie"]
    for path, text in links_of(browser, "/rota/").items():
        addresses = re.findall(r' (?:href|src|action|data-events)="(/[^"]*)"', text)
        assert [each for each in addresses if not each.startswith("/rota/")] == [], path
        assert "/rota/rota/" not in text, path
    assert client.get(re.search(r'href="([^"]*rota.css[^"]*)"', entered.text)[1]).status_code == 200
    asked = browser.post("/rota/users/remove", csrf=browser.csrf, name="eve", back="/users")
    assert 'action="/rota/users/remove"' in asked.text
    done = browser.act("/rota/users/remove", name="eve", back="/users")
    assert (done.url.path, said(done)) == ("/rota/users", "User eve is removed.")
    assert client.get("/rota/api/v1/nothing", headers=ACCEPT).headers["content-type"] == "application/problem+json"
    assert browser.act("/rota/logout").url.path == "/rota/login"
    assert COOKIE not in client.cookies


def test_who_logs_out_is_out(root: Browser):
    cookie = root.client.cookies[COOKIE]
    root.act("/logout")
    assert COOKIE not in root.client.cookies
    root.client.cookies[COOKIE] = cookie
    assert root.get("/jobs").url.path == "/login"


def test_dark_and_light_can_be_switched_without_javascript(root: Browser):
    assert '<html lang="en">' in root.get("/jobs").text
    assert '<html lang="en" data-theme="dark">' in root.act("/theme", back="/jobs").text
    assert '<html lang="en" data-theme="light">' in root.act("/theme", back="/jobs").text


# ---- every page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["root", "ada", "bob"])
def test_every_link_from_the_first_page_on_leads_to_a_page_and_nothing_in_them_runs(people, user):
    pages = links_of(people(user), "/")
    for path, text in pages.items():
        if text.startswith("<!doctype"):
            reader = Reader(text)
            assert reader.wrong == [], path
            assert all(
                "csrf" in fields for form, fields in zip(reader.forms, reader.fields, strict=True) if form.get("method") == "post"
            ), path
            assert "<script>alert" not in text, path
            assert "<img src=x" not in text, path
    assert any("&lt;script&gt;alert(" in text for text in pages.values()) is (user != "bob")


@pytest.mark.parametrize(("user", "offered"), [("root", len(NAV)), ("ada", 13), ("bob", 8)])
def test_only_pages_that_one_may_read_are_offered(people, user, offered):
    browser = people(user)
    text = browser.get("/").text
    hrefs = [href for href, _, _ in NAV if f'<li><a href="{href}"' in text]
    assert len(hrefs) == offered
    for href, _, _ in NAV:
        answer = browser.get(href)
        assert answer.status_code == (200 if href in hrefs else 403), href
        if href not in hrefs:
            assert "may not" in unescape(answer.text)


def test_nothing_of_one_organization_is_shown_to_another(people):
    for text in links_of(people("eve"), "/").values():
        # Digits of a form's own word may spell a name.
        assert "ada" not in re.sub(r'name="csrf" value="\w+"', "", text)
        assert "nightly &lt;" not in text
        assert "alert(" not in text
    for text in links_of(people("ada"), "/").values():
        assert "eve" not in re.sub(r"\b[ns]?eve(r|n)\w*", "", text)


def test_a_token_that_may_only_read_is_offered_nothing_else(people):
    for path, text in links_of(people("ada", "read"), "/").items():
        acts = {form["action"] for form in Reader(text).forms if form.get("method") == "post"}
        # Statements that only read are sent by a form, too.
        assert acts <= {"/theme", "/zone", "/logout", "/sql"}, path


def test_the_first_page_with_all_its_parts_is_small(store: Rota, root: Browser, monkeypatch):
    monkeypatch.setattr(type(store), "overview", lambda *_, **__: full())
    parts = [root.get("/").content, *(root.get(ADDRESSES[name]).content for name in ("rota.css", "rota.js", "rota.svg"))]
    assert sum(map(len, parts)) < PAGE_MAX, [len(part) for part in parts]


def test_parts_are_kept_for_ever_by_their_digest_and_asked_for_again_without_it(root: Browser):
    for name in ("rota.css", "rota.js", "rota.svg"):
        kept = root.get(ADDRESSES[name])
        assert "immutable" in kept.headers["cache-control"]
        assert root.get(f"/static/{name}").headers["cache-control"] == "no-cache"
        again = root.client.get(f"/static/{name}", headers={"if-none-match": kept.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_pages_are_kept_nowhere(root: Browser):
    assert root.get("/").headers["cache-control"] == "no-store"


def test_the_inside_of_a_page_is_what_a_live_look_gets(root: Browser):
    part = root.client.get("/", headers=ACCEPT | {"x-rota-part": "1"})
    assert 'id="health"' in part.text
    assert "<nav" not in part.text
    root.client.cookies.clear()
    assert root.client.get("/", headers=ACCEPT | {"x-rota-part": "1"}).status_code == 401


def test_a_problem_is_a_page_in_its_own_words(root: Browser):
    missing = root.get("/jobs/JOB-2026-99999")
    assert missing.status_code == 404
    assert "there is no job" in unescape(missing.text)
    assert "rota.db" not in missing.text
    assert root.get("/nowhere").status_code == 404
    assert "there is no page /nowhere" in root.get("/nowhere").text
    assert root.get("/jobs?status=ODD").status_code == 422
    assert root.get("/jobs?before=x").status_code == 422
    assert root.get("/schedules/month?month=never").status_code == 422
    assert root.get(f"/jobs/{HOSTILE[:60]}").status_code == 404
    assert root.client.get("/jobs/JOB-2026-99999").headers["content-type"] == "application/problem+json"


def test_a_page_that_is_not_there_keeps_the_menu(store: Rota, root: Browser):
    menu = '<nav aria-label="Pages">'
    missing = root.get("/nowhere")
    assert missing.status_code == 404
    assert menu in missing.text
    assert '<a href="/audit">Audit</a>' in missing.text
    assert menu in root.get("/jobs/JOB-2026-99999").text
    assert menu in root.get("/theme").text
    stranger = Browser(TestClient(make_app(store), base_url="http://localhost"))
    assert stranger.get("/nowhere").status_code == 404
    assert menu not in stranger.get("/nowhere").text
    stranger.client.cookies.set(COOKIE, "old")
    assert (stranger.get("/nowhere").status_code, menu in stranger.get("/nowhere").text) == (404, False)


def test_no_address_and_no_form_breaks_a_page(root: Browser):
    odd = (
        "\0",
        "%00",
        "\U0001f600" * 300,
        "' OR 1=1 --",
        "9" * 40,
        "-1",
        "1e999",
        "../../etc/passwd",
        "{{ 7 * 7 }}",
        "\u202e",
        "%ff",
        "",
    )
    fields = ("text", "status", "before", "since", "name", "organization", "fate", "month", "subject", "archived", "group", "schedule")
    for value in odd:
        query = "&".join(f"{field}={quote(value, safe='%')}" for field in fields)
        for path in (
            "/jobs",
            "/dead",
            "/audit",
            "/schedules/one",
            "/schedules/month",
            "/templates/one",
            "/templates",
            "/webhooks",
            "/connections",
            "/login",
        ):
            answer = root.get(f"{path}?{query}")
            assert answer.status_code in {200, 404, 422}, f"{path}?{query}"
            assert "49" not in answer.text.split("{{ 7 * 7 }}")[0][-10:]
        for field in ("text", "since", "name", "schedule", "organization", "group"):
            assert root.get(f"/jobs?{field}={quote(value, safe='%')}").status_code in {200, 404, 422}
        for path in (f"/jobs/{quote(value, safe='')}", f"/groups/{quote(value, safe='')}"):
            assert root.get(path).status_code in {200, 404, 422}
        for path in (
            "/jobs",
            "/queue/move",
            "/pauses",
            "/schedules/one/fire",
            "/tokens",
            "/users/add",
            "/jobs/act",
            "/webhooks",
            "/connections/create",
        ):
            sent = dict.fromkeys(("name", "params", "priority", "move", "what", "kind", "url", "permit", "expires_in", "role"), value)
            assert root.act(path, **sent).status_code in {200, 403, 404, 409, 422}, path
    assert root.client.post("/jobs", content=b"\xff\xfe=%ff", headers=ACCEPT).status_code == 422
    for place in ((2**63, "a" * 32, "FIRED"), (-1, "a" * 32, "FIRED"), (1, "x", "FIRED"), (1, "a" * 32, "x")):
        assert root.get(f"/schedules/one?name={quote('nightly <b>')}&before={seal(place)}").status_code == 422


def test_every_page_works_on_postgresql_too(shop: Rota):
    shop.schedule("hourly", "ship", every="1h", params={"order": 7})
    shop.group([("ship", {"order": 1}), ("ship", {"order": 2})], name="two")
    with browsing(shop) as browser:
        manager = browser(None)
        assert len(links_of(manager, "/")) > 20
        job = shop.queues.jobs()[0]
        assert said(manager.act(f"/jobs/{job.id}/cancel")) == f"{job.number} is cancelled."
        assert manager.get("/jobs?text=%00").status_code == 422


def test_what_nobody_expected_is_a_page_too(store: Rota, root: Browser, monkeypatch):
    monkeypatch.setattr(type(store), "audit", lambda *_, **__: 1 / 0)
    broken = root.get("/audit")
    assert broken.status_code == 500
    assert "the server's log says what" in unescape(broken.text)
    assert "ZeroDivision" not in broken.text


def test_empty_pages_teach(rota: Rota):
    with browsing(rota) as browser:
        new = browser(None)
        assert "rota enqueue greet" in new.get("/").text
        for path, words in {
            "/jobs": "rota enqueue",
            "/queue": "The queue is empty",
            "/schedules": "rota schedule create",
            "/groups": "rota.group(",
            "/dead": "PermanentError",
            "/workers": "rota up",
            "/templates": "@rota.job",
            "/users": "rota user create",
            "/connections": "rota connection create",
            "/webhooks": "rota webhook create",
        }.items():
            assert words in new.get(path).text, path
