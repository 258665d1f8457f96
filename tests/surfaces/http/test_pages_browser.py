"""The dashboard in a real browser: through login, every page and act, dark and light, on a phone, by keyboard alone.

A violation of the content policy, an error in the console or a page that can't be used without a mouse is a failure. With
ROTA_PICTURES=1 the pictures of the docs are taken anew.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from rota.admission import Admission
from rota.surfaces.http.pages.context import NAV
from tests.support.pace import patient
from tests.support.pictures import shrink
from tests.surfaces.http.browser_support import PHONE, QUERY, WIDE, Served, chromium_browser
from tests.surfaces.http.pages_support import Crowd, LongNames

pytestmark = pytest.mark.paired

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
PICTURE_MAX = 150_000


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("day"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def session(chromium: Browser, served: Served) -> dict:
    return served.session(chromium)


class Window:
    """One window, and all that went wrong in it."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(patient(10_000))
        expect.set_options(timeout=patient(10_000))
        self.base = base
        self.wrong: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.wrong.append(f"{self.page.url}: {error}"))
        self.page.on("request", lambda asked: self.wrong.append(asked.url) if not asked.url.startswith(base) else None)

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"}:
            self.wrong.append(f"{self.page.url}: {said.text}")

    def go(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page


@pytest.fixture
def window(chromium: Browser, served: Served, session: dict, request) -> Iterator[Window]:
    options = {"viewport": WIDE, "color_scheme": "light", **getattr(request, "param", {})}
    context = chromium.new_context(storage_state=session, **options)
    context.set_default_timeout(patient(30_000))
    made = Window(context, served.base)
    yield made
    context.close()
    assert made.wrong == []


# ---- what everybody must be able to use ------------------------------------------------------------------------------

AUDIT = (Path(__file__).parent / "audit.js").read_text()
"""A function that returns what is wrong with a page for those who can't see, point or tell colours as others do."""


def test_the_check_for_everybody_finds_what_is_wrong(window: Window):
    page = window.go("/tokens")
    page.evaluate("document.querySelector('main').innerHTML += '<button></button><p class=soft id=pale>pale</p><input><h4>deep</h4>'")
    page.evaluate("document.getElementById('pale').style.color = '#888'")
    assert [found.split(":")[0] for found in page.evaluate(AUDIT)] == [
        "has no name",
        "has no label",
        "leaves out a level",
        "contrast 3.28 of rgb(136, 136, 136)",
    ]


@pytest.mark.parametrize("window", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True, ids=["light", "dark"])
def test_every_page_can_be_used_by_everybody(window: Window, served: Served):
    for name, path in served.pages().items():
        page = window.go(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.evaluate(AUDIT) == [], name


@pytest.mark.parametrize("window", [{"viewport": PHONE, "has_touch": True}], indirect=True, ids=["phone"])
def test_no_page_is_wider_than_a_phone(window: Window, served: Served):
    for name, path in served.pages().items():
        page = window.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name


@pytest.mark.parametrize("window", [{"viewport": PHONE, "has_touch": True}], indirect=True, ids=["phone"])
def test_the_menu_of_a_phone_shows_where_one_is(window: Window):
    for href, name, _ in NAV:
        box = window.go(href).locator("nav [aria-current=page]").bounding_box()
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= PHONE["width"], name


ROWS = "[...document.querySelectorAll('table.stack tbody tr')].map((row) => row.getBoundingClientRect().height)"
LINE_PX = 24


@pytest.mark.parametrize("window", [{"viewport": PHONE, "has_touch": True}], indirect=True, ids=["phone"])
def test_a_row_of_a_list_takes_few_lines_of_a_phone(window: Window):
    for path, lines in {"/jobs": 2, "/queue": 4, "/dead?by=row": 5, "/dead?by=error": 8, "/schedules": 5}.items():
        heights = window.go(path).evaluate(ROWS)
        assert sum(heights) / len(heights) < (lines + 1) * LINE_PX, path


FIELDS = """[...document.querySelectorAll('.field')].map((field) => [field.getBoundingClientRect(),
  field.querySelector('input, select, textarea').getBoundingClientRect()]).filter(([around, one]) => one.right > around.right + 1).length"""


@pytest.mark.parametrize("window", [{"viewport": PHONE}, {"viewport": WIDE}], indirect=True, ids=["phone", "wide"])
def test_no_field_of_a_form_reaches_into_its_neighbour(window: Window):
    for path in ("/schedules/new?template=send_report", "/schedules/one/change?name=hourly+load", "/jobs/new?name=send_report", "/tokens"):
        assert window.go(path).evaluate(FIELDS) == 0, path


OUT_OF_REACH = (Path(__file__).parent / "reach.js").read_text()
"""A function that returns the buttons and links of a page that can be neither seen nor scrolled to."""


@pytest.fixture(scope="module")
def long_names(tmp_path_factory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("long"), LongNames)
    yield made
    made.close()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_names_of_255_characters_leave_every_button_in_reach(chromium: Browser, long_names: Served, size: dict):
    context = chromium.new_context(viewport=size)
    context.set_default_timeout(patient(30_000))
    window = Window(context, long_names.base)
    window.go(f"/login#token={long_names.secret}").wait_for_url(f"{window.base}/")
    wrong = {}
    for name, path in long_names.pages().items():
        page = window.go(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.locator("h1").count() == 1, name
        wrong |= {name: found} if (found := page.evaluate(OUT_OF_REACH)) else {}
    context.close()
    assert wrong == {}
    assert window.wrong == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_thousand_rows_and_ten_thousand_members_leave_every_button_in_reach(chromium: Browser, tmp_path: Path, size: dict):
    crowd = Served(tmp_path, Crowd)
    context = chromium.new_context(viewport=size)
    context.set_default_timeout(patient(30_000))
    window = Window(context, crowd.base)
    window.go(f"/login#token={crowd.secret}").wait_for_url(f"{window.base}/")
    wrong, rows = {}, {}
    for path in crowd.day.paths:
        page = window.go(path)
        rows[path] = page.locator("tbody tr").count()
        wrong |= {path: found} if (found := page.evaluate(OUT_OF_REACH)) else {}
    context.close()
    crowd.close()
    assert wrong == {}
    assert rows["/schedules"] == 1000
    assert rows[f"/groups/{crowd.day.group.id}"] == 100
    assert window.wrong == []


THOUSAND = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, hex(i) AS h FROM n"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_results_of_sql_leave_every_button_in_reach_and_can_be_used_by_everybody(
    chromium: Browser, long_names: Served, size: dict, theme: str
):
    context = chromium.new_context(viewport=size, color_scheme=theme)
    context.set_default_timeout(patient(30_000))
    window = Window(context, long_names.base)
    window.go(f"/login#token={long_names.secret}").wait_for_url(f"{window.base}/")
    for text, words in ((QUERY, "SELECT 8"), (THOUSAND, "SELECT 1000"), ("SHOW JOBS; SELECT\n  nope FROM sys.jobs", "Refused")):
        page = window.go("/sql")
        page.get_by_label("Statements").fill(text)
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_role("heading", name=words)).to_be_visible()
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.evaluate(OUT_OF_REACH) == [], words
        assert page.evaluate(AUDIT) == [], words
    context.close()
    # The browser notes the refusal.
    assert [said for said in window.wrong if "422" not in said] == []


def test_sql_is_run_by_the_keyboard_downloaded_and_works_without_a_script(window: Window, served: Served, chromium: Browser, session: dict):
    page = window.go("/sql")
    page.get_by_role("link", name="Runs by state").click()
    page.wait_for_url("**/sql?sql=*")
    assert page.locator(".results .card").count() == 0
    editor = page.get_by_label("Statements")
    editor.fill("SELECT job_type, count(*) AS jobs FROM sys.history GROUP BY job_type")
    editor.press("Control+Enter")
    expect(page.locator("table.result tbody tr")).not_to_have_count(0)
    expect(page.locator(".picture svg")).to_be_visible()
    with page.expect_download() as sent:
        page.get_by_role("button", name="Download as CSV").click()
    assert sent.value.suggested_filename == "rota.csv"
    assert Path(sent.value.path()).read_text().startswith("job_type,jobs")
    plain = chromium.new_context(storage_state=session, java_script_enabled=False)
    plain.set_default_timeout(patient(30_000))
    page = plain.new_page()
    page.goto(f"{served.base}/sql?sql=SELECT+6*7+AS+x")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("table.result td")).to_have_text("42")
    plain.close()


BROKEN = """() => {
  const found = [];
  for (const cell of document.querySelectorAll("tbody :is(th, td)")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const word of walker.currentNode.data.matchAll(/\\w{2,24}/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""
"""A function that returns the words in cells of tables that are broken, though a column could hold them."""


def test_words_that_a_column_can_hold_are_not_broken(window: Window, served: Served):
    for path in ("/", "/jobs", "/queue", "/schedules", "/dead", "/templates", f"/groups/{served.day.group.id}"):
        assert window.go(path).evaluate(BROKEN) == [], path
    page = window.go("/queue")
    page.evaluate(
        "for (const each of document.querySelectorAll('tbody td:nth-child(3)')) each.style.cssText = 'display: block; width: 3rem'"
    )
    assert "sync_partner" in page.evaluate(BROKEN)


def test_the_check_of_reach_finds_what_is_cut_off(window: Window):
    page = window.go("/tokens")
    hidden = "<div id=cut><a href=/jobs id=far>far</a></div>"
    page.evaluate(f"document.querySelector('main').innerHTML += '{hidden}'")
    page.evaluate("document.getElementById('cut').style.overflow = 'hidden'")
    page.evaluate("document.getElementById('far').style.marginLeft = '3000px'")
    assert [found.split(":")[0] for found in page.evaluate(OUT_OF_REACH)] == ["cut off"]
    page.evaluate("document.getElementById('cut').style.overflow = 'auto'")
    assert page.evaluate(OUT_OF_REACH) == []
    page.evaluate("document.getElementById('cut').style.overflow = 'visible'")
    assert [found.split(":")[0] for found in page.evaluate(OUT_OF_REACH)] == ["the page is wider than the window", "outside"]


def test_the_keyboard_is_enough(window: Window, served: Served):
    page = window.go("/jobs?status=QUEUED&status=PENDING")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    # Through the whole page and out of it again: nothing holds the focus, everything that has it shows it.
    reached: list[str] = []
    for _ in range(300):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "() => { const it = document.activeElement;"
            " return [it.tagName, it.id || it.name || it.innerText, getComputedStyle(it).outlineStyle] }"
        )
        if at[0] == "BODY":
            break
        assert at[2] != "none", f"{at} does not show that it has the focus"
        reached.append(at[1])
    else:
        pytest.fail(f"the focus never left the page: {reached[-5:]}")
    assert "cancel-all" in reached
    # A question is answered by keyboard: Escape says no.
    page.focus("#cancel-all")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_contain_text("Cancel")
    assert page.evaluate("document.activeElement.textContent") == "No, go back"
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


# ---- what a script adds ----------------------------------------------------------------------------------------------


def test_a_token_is_pasted_at_the_door_and_a_session_ends(chromium: Browser, served: Served):
    context = chromium.new_context()
    context.set_default_timeout(patient(30_000))
    page = context.new_page()
    page.goto(f"{served.base}/queue")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("Token").fill("rota_wrong")
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("opens nothing here")
    page.get_by_label("Token").fill(served.secret)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{served.base}/queue")
    assert "token" not in page.url
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{served.base}/login")
    page.goto(f"{served.base}/login#token={served.secret}")
    page.wait_for_url(f"{served.base}/")
    assert served.secret not in page.evaluate("JSON.stringify(history.state) + location.href")
    context.close()


def test_all_of_it_works_below_a_path(chromium: Browser, served: Served):
    context = chromium.new_context()
    context.set_default_timeout(patient(30_000))
    window = Window(context, f"{served.base}/rota")
    page = window.go(f"/login#token={served.secret}")
    page.wait_for_url(f"{window.base}/")
    assert {each["path"] for each in context.cookies()} == {"/rota"}
    for href, name, _ in NAV:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(window.base + href)
        expect(page.locator("nav [aria-current=page]")).to_have_text(name)
    page.get_by_role("button", name="Dark/light").click()
    assert {each["path"] for each in context.cookies()} == {"/rota"}
    page = window.go("/jobs/new?name=clean_up")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    with page.expect_request(f"{window.base}/api/v1/events"):
        window.go("/jobs?job_type=clean_up")
    job = served.rota.enqueue("clean_up")
    expect(page.locator("#list tbody tr", has_text=job.number)).to_contain_text("completed")
    # The Rota at the root of the same host has a session of its own, in this browser too.
    assert window.wrong == []
    page.goto(f"{served.base}/login#token={served.secret}")
    page.wait_for_url(f"{served.base}/")
    window.go("/jobs").get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{window.base}/login")
    page.goto(f"{served.base}/jobs")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    context.close()


def test_dark_and_light_follow_the_system_and_the_switch(window: Window):
    page = window.go("/jobs")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.get_by_role("button", name="Dark/light").click()
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light
    page.context.clear_cookies(name="rota_theme")


def test_a_question_is_asked_in_a_dialog_and_yes_does_it(window: Window, served: Served):
    job = served.rota.enqueue("sync_partner", {"partner": "Tyrell"})
    page = window.go(f"/jobs/{job.id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("dialog")).to_contain_text(f"Cancel {job.number}")
    page.locator("dialog").get_by_text("No, go back").click()
    expect(page.locator("dialog")).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    page.locator("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("status")).to_have_text(f"{job.number} is cancelled.")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("is the next attempt")
    served.rota.jobs.cancel(job.id)


def test_a_page_changes_by_itself_when_something_happens(window: Window, served: Served):
    page = window.go("/jobs?job_type=clean_up")
    before = page.locator("#list tbody tr").count()
    job = served.rota.enqueue("clean_up")
    row = page.locator("#list tbody tr", has_text=job.number)
    expect(row).to_contain_text("completed")
    assert page.locator("#list tbody tr").count() == before + 1


def test_a_log_is_followed_while_its_job_runs(window: Window, served: Served):
    running = next(job for job in served.rota.workers.jobs() if job.params["album"] == "harbour")
    page = window.go(f"/jobs/{running.id}")
    first = page.locator("#top progress").get_attribute("value")
    expect(page.locator("#top progress")).not_to_have_attribute("value", first, timeout=patient(20_000))
    expect(page.locator(".log")).to_contain_text("RUNNING")


def test_a_queued_job_is_dragged_to_another_place(window: Window, served: Served):
    page = window.go("/queue")
    line = [job for job in served.rota.queues.jobs() if job.job_type == "sync_partner"]
    rows = page.locator("tr[draggable]")
    rows.filter(has_text=line[-1].number).drag_to(rows.filter(has_text=line[0].number), target_position={"x": 200, "y": 3})
    expect(page.get_by_role("status")).to_have_text(f"{line[-1].number} is moved.")
    assert served.rota.queues.jobs()[0].id == line[-1].id
    page.get_by_role("button", name=f"Move {line[-1].number} down").click()
    expect(page.get_by_role("status")).to_have_text(f"{line[-1].number} is moved.")
    assert served.rota.queues.jobs()[0].id == line[0].id


def test_forms_do_what_they_say(window: Window, served: Served):
    page = window.go("/jobs")
    page.get_by_role("link", name="Enqueue a job").click()
    page.get_by_label("Template").select_option("sync_partner")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("partner").fill("<b>Wayne</b>")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    expect(page.locator("pre").first).to_contain_text("<b>Wayne</b>")
    served.rota.jobs.cancel(urlsplit(page.url).path.rpartition("/")[2])
    page = window.go("/templates/one?name=clean_up")
    page.get_by_label("Running at a time, in all workers").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("clean_up: max_running set.")
    page.get_by_role("button", name=re.compile("^Reset")).click()
    expect(page.get_by_role("status")).to_have_text("clean_up: max_running reset.")
    page = window.go("/schedules")
    page.get_by_role("button", name="Pause hourly load").click()
    expect(page.get_by_role("status")).to_contain_text("hourly load is paused")
    page.get_by_role("button", name="Enable hourly load").click()
    expect(page.get_by_role("status")).to_contain_text("hourly load is enabled")


@pytest.mark.parametrize(
    "window",
    [{}, {"viewport": PHONE, "has_touch": True, "color_scheme": "dark"}, {"java_script_enabled": False}],
    indirect=True,
    ids=["wide", "phone", "no script"],
)
def test_params_are_entered_in_fields(window: Window, served: Served):
    page = window.go("/templates/one?name=send_report")
    page.get_by_role("link", name="Enqueue a job").click()
    # The browser itself insists on what is required.
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_label("recipient")).to_be_focused()
    page.get_by_label("recipient").fill("ada@example.org")
    page.get_by_label("month").fill("2026-11-01")
    sender = page.get_by_role("group", name="sender")
    sender.get_by_label("name").fill("The shop")
    sender.get_by_label("address").fill("shop@example.org")
    page.get_by_label("layout").select_option("chart")
    page.get_by_label("not_after").fill("2026-11-20T08:30")
    page.get_by_label("attach").uncheck()
    page.get_by_label("body").fill("Two\nlines")
    page.get_by_label("columns").fill('["orders"')
    page.get_by_label("Not before").fill("2031-01-01T00:00")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("columns: not JSON")
    assert [told.rpartition("status of ")[2] for told in window.wrong] == ["422 (Unprocessable Entity)"]
    window.wrong.clear()
    expect(page.get_by_label("body")).to_have_value("Two\nlines")
    expect(page.get_by_label("attach")).not_to_be_checked()
    page.get_by_label("columns").fill('["orders"]')
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    params = {
        "recipient": "ada@example.org",
        "month": "2026-11-01",
        "sender": {"name": "The shop", "address": "shop@example.org"},
        "layout": "chart",
        "not_after": "2026-11-20T08:30:00Z",
        "attach": False,
        "body": "Two\nlines",
        "columns": ["orders"],
    }
    job = urlsplit(page.url).path.rpartition("/")[2]
    assert served.rota.jobs.get(job).params == params

    page.get_by_role("link", name="Change", exact=True).click()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Nothing is changed.")
    page.get_by_role("link", name="Change", exact=True).click()
    page.get_by_label("copies").fill("3")
    page.get_by_role("button", name="Edit as JSON").click()
    whole = page.get_by_label("Params, a JSON object")
    assert json.loads(whole.input_value()) == params | {"copies": 3}
    whole.fill(json.dumps(params | {"copies": 4}))
    page.get_by_role("button", name="Edit as fields").click()
    expect(page.get_by_label("copies")).to_have_value("4")
    page.get_by_label("attach").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("is changed")
    assert served.rota.jobs.get(job).params == params | {"copies": 4, "attach": True}
    served.rota.jobs.cancel(job)


def sure(page: Page, button: str, answer: str) -> None:
    """Press a button that asks, and say yes."""
    page.get_by_role("button", name=button, exact=True).click()
    page.locator("dialog").get_by_role("button", name=answer).click()


def test_dead_letters_and_groups_are_acted_on(window: Window, served: Served):
    before = len(served.rota.dead_letters.list(job_type="close_books"))
    assert before
    page = window.go("/dead?job_type=close_books")
    sure(page, "Retry all matching", "Retry")
    expect(page.get_by_role("status")).to_contain_text("will be tried again")
    # It fails again, and comes back by itself.
    expect(page.locator("#list tbody tr")).to_have_count(before)
    broken = served.rota.enqueue("close_books")
    page.locator("#list tbody tr", has_text=broken.number).get_by_role("button", name="Remove").click()
    page.locator("dialog").get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("status")).to_contain_text("removed")
    group = served.rota.group([("sync_partner", {"partner": name}) for name in ("Acme", "Hooli")], name="short-lived")
    page = window.go(f"/groups/{group.id}")
    sure(page, "Cancel the group", "Cancel the group")
    expect(page.locator("h1 + .chip")).to_have_text("cancelled")


def test_rows_are_ticked_counted_kept_while_the_page_changes_and_acted_on(window: Window, served: Served):
    jobs = [served.rota.enqueue("sync_partner", {"partner": f"row {place}"}) for place in range(3)]
    page = window.go("/jobs?job_type=sync_partner&text=row")
    cancel = page.locator("#rows").get_by_role("button", name="Cancel")
    expect(cancel).to_be_disabled()
    for job in jobs[:2]:
        page.get_by_label(f"Select {job.number}").check()
    expect(page.locator("#rows .selected")).to_have_text("2 selected")
    # A change of the page leaves the ticks alone.
    served.rota.enqueue("sync_partner", {"partner": "row 4"})
    expect(page.locator("#list tbody tr")).to_have_count(4)
    expect(page.locator("#rows .selected")).to_have_text("2 selected")
    cancel.click()
    expect(page.locator("dialog")).to_contain_text("Cancel 2 jobs?")
    page.locator("dialog").get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_role("status")).to_have_text("2 jobs are cancelled.")
    page.get_by_text("Select all on this page").click()
    expect(page.locator("#rows .selected")).to_have_text("4 selected")
    page.locator("#rows").get_by_role("button", name="Retry").click()
    expect(page.locator("h1")).to_have_text("Retry: 2 jobs could not be changed")
    expect(page.locator("#row-errors li")).to_have_count(2)
    page.get_by_text("Back to the list").click()
    page.get_by_text("Select all on this page").click()
    page.get_by_text("Select none").click()
    expect(page.locator("#rows .selected")).to_have_text("0 selected")
    served.rota.jobs.cancel_all(text="row", job_type="sync_partner")


@pytest.mark.parametrize("window", [{"java_script_enabled": False}], indirect=True, ids=["no script"])
def test_rows_are_acted_on_without_a_script(window: Window, served: Served):
    for place in range(2):
        served.rota.enqueue("sync_partner", {"partner": f"plain {place}"})
    page = window.go("/jobs?job_type=sync_partner&text=plain")
    page.get_by_text("Select all on this page").click()
    page.locator("#rows").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_role("status")).to_have_text("2 jobs are cancelled.")


def test_organizations_users_and_tokens_are_managed(window: Window, served: Served):
    page = window.go("/organizations")
    page.get_by_label("Name", exact=True).fill("gamma")
    page.get_by_label("Run at once, at most").fill("5")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("Organization gamma is created.")
    page.get_by_role("link", name="Change gamma").click()
    expect(page.get_by_label("Run at once, at most")).to_have_value("5")
    page.get_by_label("Queued, at most").fill("10")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Organization gamma is changed.")
    assert (served.rota.organizations.get("gamma").max_running, served.rota.organizations.get("gamma").max_queued) == (5, 10)
    sure(page, "Suspend gamma", "Suspend it")
    expect(page.get_by_role("row", name="gamma").locator(".chip")).to_have_text("suspended")
    sure(page, "Remove gamma", "Remove it")
    expect(page.get_by_role("status")).to_have_text("gamma is removed.")

    page = window.go("/tokens")
    page.get_by_label("Name", exact=True).fill("ci")
    page.get_by_label("submit", exact=True).check()
    page.get_by_role("button", name="Create").click()
    assert Admission(served.rota).authenticate(page.locator("pre.secret").inner_text()).operations
    window.go("/tokens")
    expect(page.locator("pre.secret")).to_have_count(0)
    sure(page, "Revoke ci", "Revoke it")
    expect(page.get_by_role("row", name="ci")).to_have_count(0)


def test_webhooks_are_managed(window: Window, served: Served):
    page = window.go("/webhooks")
    page.get_by_label("URL").fill("https://example.org/hook")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("pre.secret")).to_contain_text("whsec_")
    page = window.go("/webhooks")
    expect(page.locator("pre.secret")).to_have_count(0)
    sure(page, "Disable https://example.org/hook", "Disable it")
    expect(page.get_by_role("row", name="example.org").locator(".chip")).to_have_text("disabled")
    sure(page, "Delete https://example.org/hook", "Delete it")
    expect(page.get_by_text("Nobody is told.")).to_be_visible()
    assert served.rota.webhooks.list() == []


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_the_pictures_of_the_docs_are_there_and_small(chromium: Browser, served: Served, session: dict):
    pages = served.pages()
    wanted = {
        "overview": ("/", WIDE | {"height": 1345}, "light"),
        "overview-dark": ("/", WIDE | {"height": 1345}, "dark"),
        "overview-phone": ("/", PHONE, "light"),
        "jobs": ("/jobs", WIDE, "light"),
        "job": (pages["dead job"], WIDE | {"height": 1000}, "light"),
        "queue": ("/queue", WIDE | {"height": 520}, "light"),
        "schedule": (pages["schedule"], WIDE, "light"),
        "calendar": (pages["month"], WIDE | {"height": 960}, "dark"),
        "dead-letters": ("/dead", WIDE, "light"),
        "template": (pages["template"], WIDE | {"height": 960}, "light"),
        "enqueue": (pages["enqueue"], WIDE | {"height": 1120}, "light"),
    }
    for name, (path, size, scheme) in wanted.items():
        kept = PICTURES / f"{name}.png"
        if os.environ.get("ROTA_PICTURES"):
            context = chromium.new_context(storage_state=session, viewport=size, color_scheme=scheme)
            context.set_default_timeout(patient(30_000))
            page = context.new_page()
            page.goto(served.base + path)
            PICTURES.mkdir(exist_ok=True)
            kept.write_bytes(shrink(page.screenshot()))
            context.close()
        assert 5_000 < kept.stat().st_size < PICTURE_MAX, name
