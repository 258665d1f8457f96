"""One clock a page: every time in the zone of the browser, or in one that was chosen, also those that forms take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.pace import patient
from tests.surfaces.http.test_pages_browser import PHONE, WIDE, Served, Window, chromium, served, session

__all__ = ["chromium", "served", "session"]

pytestmark = pytest.mark.paired

CLOCK = (Path(__file__).parent / "clock.js").read_text()
"""A function that returns the times of a page, and those that do not carry its zone."""
BERLIN, ST_JOHNS = ("Europe/Berlin", "CES?T"), ("America/St_Johns", "N[SD]T")


@pytest.fixture
def window(chromium: Browser, served: Served, session: dict, request) -> Iterator[Window]:
    options = {"viewport": WIDE, "timezone_id": "Europe/Berlin", **getattr(request, "param", {})}
    context = chromium.new_context(storage_state=session, **options)
    context.set_default_timeout(patient(30_000))
    made = Window(context, served.base)
    yield made
    context.close()
    assert made.wrong == []


@pytest.fixture(scope="module", autouse=True)
def more(served: Served) -> None:
    """Add what says a time in a sentence: a schedule for one moment, one with bounds, and a job that waits for its retry."""
    rota = served.rota
    rota.schedules.create("new year", "clean_up", at=datetime(2027, 1, 1, 5, 30, tzinfo=UTC))
    rota.schedules.create("winter", "clean_up", cron="30 0 * * *", timezone="Europe/Berlin", ends=datetime(2027, 3, 1, tzinfo=UTC))
    rota.enqueue("send_invoice", {"order": 23})


def settled(page: Page) -> Page:
    """Wait for the page that the script may load again in the zone of the browser."""
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    expect(page.locator("body")).to_have_attribute("data-zone", zone)
    return page


def pages(served: Served) -> dict[str, str]:
    failed = served.rota.jobs.list(job_type="send_invoice", limit=1)[0]
    return served.pages() | {
        "retry": f"/jobs/{failed.id}",
        "once": f"/schedules/one?{urlencode({'name': 'new year'})}",
        "with an end": f"/schedules/one?{urlencode({'name': 'winter'})}",
        "month, exact": "/schedules/month?exact=yes",
    }


@pytest.mark.parametrize(
    ("window", "zone"),
    [({"timezone_id": BERLIN[0]}, BERLIN), ({"timezone_id": ST_JOHNS[0], "viewport": PHONE}, ST_JOHNS)],
    indirect=["window"],
    ids=["Berlin", "St. John's"],
)
def test_every_time_on_every_page_carries_the_zone_of_the_page(window: Window, served: Served, zone: tuple[str, str]):
    wrong, count = {}, {}
    settled(window.go("/"))
    for name, path in pages(served).items():
        page = window.go(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        seen = page.evaluate(CLOCK, [zone[1], zone[0]])
        count[name] = len(seen["found"])
        wrong |= {name: seen["wrong"]} if seen["wrong"] else {}
        expect(page.locator("footer.zone")).to_contain_text(f"Times on this page are in {zone[0]}, the time zone of this browser")
    assert wrong == {}
    without = {"/groups", "/templates", "/organizations", "/users", "/tokens", "/webhooks", "/sql", "query"}
    without |= {"choose a template", "enqueue", "enqueue, as JSON", "change"}
    without |= {"choose a schedule's template", "create a schedule", "change a schedule", "define a template", "change a definition"}
    assert [name for name, number in count.items() if not number and name not in without] == []


def test_the_check_of_the_clock_finds_other_zones(window: Window):
    page = settled(window.go("/tokens"))
    wrong = "<p>since 2026-11-16T05:27:40Z</p><p>at 2026-11-16 05:27:40 UTC</p><p>at 2026-11-16 06:27:40</p><p title='12:00 UTC'>x</p>"
    page.evaluate(f"document.querySelector('main').innerHTML += \"{wrong}<p>at 06:27 CET, and every day at 02:00 Asia/Tokyo</p>\"")
    found = page.evaluate(CLOCK, [BERLIN[1], BERLIN[0]])["wrong"]
    assert [each.split(":")[0] for each in found] == ["not for people", "without its zone", "without its zone", "without its zone"]


def test_another_zone_is_chosen_kept_and_given_up(window: Window, served: Served):
    page = settled(window.go(f"/jobs/{served.day.parent.id}"))
    made = page.locator("dl.pairs time").first
    assert made.inner_text().endswith("CET")
    page.get_by_label("Time zone", exact=True).fill("America/New_York")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("footer.zone")).to_contain_text("in America/New_York, which was chosen here")
    assert made.inner_text().endswith("EST")
    page = window.go(f"/jobs/{served.day.parent.id}/change")
    expect(page.get_by_label("Not before (America/New_York)")).to_be_visible()
    page.get_by_label("Time zone", exact=True).fill("Berlin")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("'Berlin' is not an IANA name")
    window.wrong.clear()  # the browser notes a refusal
    page.get_by_label("Time zone", exact=True).fill("browser")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("footer.zone")).to_contain_text("in Europe/Berlin, the time zone of this browser")
    assert {each["path"] for each in page.context.cookies() if "zone" in each["name"]} == {"/"}


@pytest.mark.parametrize("window", [{"java_script_enabled": False}], indirect=True, ids=["no script"])
def test_without_script_times_are_in_utc_and_say_so(window: Window, served: Served):
    window.page.context.clear_cookies(name="rota_browser_zone")
    page = window.go(f"/jobs/{served.day.parent.id}")
    expect(page.locator("footer.zone")).to_contain_text("in UTC: the time zone of this browser is not known")
    assert page.locator("dl.pairs time").first.inner_text().endswith(" UTC")
    page.get_by_label("Time zone", exact=True).fill("Asia/Kathmandu")
    page.get_by_role("button", name="Set").click()
    assert page.locator("dl.pairs time").first.inner_text().endswith(" +0545")


def test_a_zone_that_is_none_is_not_taken_from_a_cookie(window: Window, served: Served):
    for value in ("Mars%2FOlympus", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Flocaltime", "x" * 3000, "%00"):
        window.page.context.add_cookies([{"name": "rota_zone", "value": value, "url": served.base}])
        settled(window.go("/jobs"))


def test_a_page_takes_the_zone_that_another_window_chose(window: Window, served: Served):
    page = settled(window.go(f"/jobs/{served.day.parent.id}"))
    page.context.add_cookies([{"name": "rota_zone", "value": "Asia%2FTokyo", "url": served.base}])
    served.rota.enqueue("clean_up")
    expect(page.locator("dl.pairs time").first).to_contain_text("JST")
    expect(page.locator("body")).to_have_attribute("data-zone", "Asia/Tokyo")


# ---- forms -----------------------------------------------------------------------------------------------------------


def enqueue(window: Window, served: Served, run_at: str):
    """Enqueue a job by the form, and return it."""
    page = settled(window.go("/jobs/new?name=clean_up"))
    page.get_by_label("Not before (Europe/Berlin)").fill(run_at)
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    return served.rota.jobs.get(urlsplit(page.url).path.rpartition("/")[2])


def test_a_time_in_a_form_goes_round(window: Window, served: Served):
    job = enqueue(window, served, "2027-01-15T09:30")
    assert job.run_at == datetime(2027, 1, 15, 8, 30, tzinfo=UTC)
    expect(window.page.locator("dl.pairs")).to_contain_text("2027-01-15 09:30:00 CET")
    page = window.go(f"/jobs/{job.id}/change")
    field = page.get_by_label("Not before (Europe/Berlin)")
    expect(field).to_have_value("2027-01-15T09:30")
    field.fill("2027-07-15T10:00")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text(f"{job.number} is changed.")
    assert served.rota.jobs.get(job.id).run_at == datetime(2027, 7, 15, 8, tzinfo=UTC)
    served.rota.jobs.cancel(job.id)


def test_a_time_that_the_clock_skips_is_refused_with_the_remedy(window: Window):
    page = settled(window.go("/jobs/new?name=clean_up"))
    page.get_by_label("Not before (Europe/Berlin)").fill("2027-03-28T02:30")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("2027-03-28T02:30:00 does not exist in Europe/Berlin")
    expect(page.get_by_role("alert")).to_contain_text("Use 2027-03-28T01:30 or 2027-03-28T03:30")
    expect(page.get_by_label("Not before (Europe/Berlin)")).to_have_value("2027-03-28T02:30")
    window.wrong.clear()  # the browser notes a refusal


def test_of_a_time_that_comes_twice_the_first_is_taken_and_said(window: Window, served: Served):
    job = enqueue(window, served, "2027-10-31T02:30")
    expect(window.page.get_by_role("status")).to_contain_text("comes twice in Europe/Berlin")
    expect(window.page.get_by_role("status")).to_contain_text("the first is taken: 02:30 CEST")
    assert job.run_at == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    second = served.rota.jobs.get(served.rota.enqueue("clean_up", run_at=datetime(2027, 10, 31, 1, 30, tzinfo=UTC)).id)
    page = window.go(f"/jobs/{second.id}/change")
    expect(page.get_by_label("Not before (Europe/Berlin)")).to_have_value("2027-10-31T02:30")
    page.get_by_label("Priority").fill("70")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text(f"{second.number} is changed.")
    changed = served.rota.jobs.get(second.id)
    assert (changed.priority, changed.run_at) == (70, second.run_at), "a time that was not touched stays"
    for each in (job, second):
        served.rota.jobs.cancel(each.id)


def test_a_form_is_read_in_the_zone_that_it_was_shown_in(window: Window, served: Served):
    page = settled(window.go("/jobs/new?name=clean_up"))
    page.get_by_label("Not before (Europe/Berlin)").fill("2027-01-15T09:30")
    page.context.add_cookies([{"name": "rota_zone", "value": "Asia%2FTokyo", "url": served.base}])
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    job = served.rota.jobs.get(urlsplit(page.url).path.rpartition("/")[2])
    assert job.run_at == datetime(2027, 1, 15, 8, 30, tzinfo=UTC)
    served.rota.jobs.cancel(job.id)


def test_params_that_are_moments_are_of_the_zone(window: Window, served: Served):
    page = settled(window.go("/jobs/new?name=send_report"))
    page.get_by_label("recipient").fill("ada@example.org")
    page.get_by_label("month").fill("2027-01-01")
    page.get_by_label("name").fill("Ada")
    page.get_by_label("address").fill("ada@example.org")
    page.get_by_label("not_after").fill("2027-01-15T09:30:00")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    job = served.rota.jobs.get(urlsplit(page.url).path.rpartition("/")[2])
    assert job.params["not_after"] == "2027-01-15T08:30:00Z"


def test_a_schedule_for_one_moment_is_of_the_zone(window: Window, served: Served):
    page = settled(window.go("/schedules/new?template=clean_up"))
    expect(page.get_by_label("Time zone of the cron")).to_have_value("Europe/Berlin")
    page.get_by_label("Name", exact=True).fill("gone soon")
    page.get_by_label("or once at (Europe/Berlin)").fill("2027-06-01T12:00")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_contain_text("once, at 2027-06-01 12:00:00 CEST")
    assert served.rota.schedules.get("gone soon").next_at == datetime(2027, 6, 1, 10, tzinfo=UTC)
    served.rota.schedules.delete("gone soon")


def test_filters_are_of_the_zone_that_their_address_names(window: Window, served: Served):
    job = served.rota.enqueue("clean_up")
    page = settled(window.go("/jobs?job_type=clean_up"))
    label = page.get_by_label("Created since (Europe/Berlin)")
    # Of UTC this would be in the future.
    label.fill(f"{datetime.now(ZoneInfo('Europe/Berlin')) - timedelta(minutes=5):%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#list tbody")).to_contain_text(job.number)
    assert "zone=Europe%2FBerlin" in page.url
    elsewhere = urlencode({"since": "2026-11-15T08:00", "zone": "America/New_York"})
    page = window.go(f"/jobs?{elsewhere}")
    expect(page.get_by_label("Created since (Europe/Berlin)")).to_have_value("2026-11-15T14:00:00")
    page = window.go(f"/jobs?{urlencode({'since': '2027-03-28T02:30'})}")
    expect(page.get_by_role("alert")).to_contain_text("does not exist in Europe/Berlin")
    window.wrong.clear()  # the browser notes a refusal


# ---- the calendar ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [{}, {"viewport": PHONE}], indirect=True, ids=["wide", "phone"])
def test_a_calendar_has_the_days_and_times_of_the_zone(window: Window, served: Served):
    page = settled(window.go("/schedules/month?month=2027-01&name=winter"))
    expect(page.get_by_text("Days and times in Europe/Berlin")).to_be_visible()
    cell = page.locator("td", has=page.locator("time[datetime='2027-01-14T23:30:00.000Z']"))
    expect(cell.locator(".day")).to_contain_text("15")
    expect(cell).to_contain_text("00:30 winter")
    cells = [each for each in page.locator("td:not(.other)").all() if each.is_visible()]
    assert len(cells) == 31
    for each in cells:
        box = each.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= page.viewport_size["width"]
