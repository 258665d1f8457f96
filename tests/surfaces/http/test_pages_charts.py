"""Pictures: what they say to those who hear them, and that names in them are names."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import msgspec

from rota import Rota
from rota.model.gate import Right
from rota.model.overview import Ahead, ClockChange, Coming, Hour
from rota.operation import ask_for
from rota.resources.trend import RANGES, Period, Trend, trend
from rota.surfaces.http.pages import charts
from tests.surfaces.http.pages_support import HOSTILE, browsing

NOON = datetime(2026, 10, 24, 12, tzinfo=UTC)


def drawn(picture: str) -> ET.Element:
    """Return a picture as a tree: what is not well formed raises."""
    found = ET.fromstring(picture)
    assert found.find("title").text
    assert found.find("desc").text
    return found


def texts(picture: ET.Element) -> list[str]:
    return [each.text for each in picture.iter("text")]


def test_the_timeline_marks_where_a_clock_changes_and_tells_what_follows():
    ahead = Ahead(
        start=NOON,
        end=NOON + timedelta(hours=24),
        items=(
            Coming(schedule=HOSTILE, organization="default", template="t", due_at=NOON + timedelta(hours=1), more=1439),
            Coming(schedule="nightly", organization="default", template="t", due_at=NOON + timedelta(hours=14)),
        ),
        hours=tuple(Hour(begins_at=NOON + timedelta(hours=hour), count=60) for hour in range(25)),
        count=1441,
        changes=(
            ClockChange(at=NOON + timedelta(hours=13), timezone="Europe/Berlin", before="UTC+2", after="UTC+1", schedules=("nightly",)),
        ),
    )
    picture = drawn(charts.timeline(ahead))
    assert "Europe/Berlin: UTC+2 → UTC+1" in texts(picture)
    assert "1,439 more" in texts(picture)
    assert "nightly" in texts(picture)
    assert picture.find("desc").text.startswith("1,441 due times; the first: <script>")
    assert picture.find(".//script") is None


def bars(picture: ET.Element, kind: str) -> list[str]:
    return [each.find("title").text for each in picture.iter("rect") if each.get("class") == kind]


def test_a_busy_day_has_a_bar_for_every_hour_and_its_count_on_the_first_page(rota: Rota):
    @rota.job
    def work() -> None: ...

    for number in range(3):
        rota.schedule(f"busy {number}", "work", every="1s")
    rota.users.create("root", role="system_manager")
    with browsing(rota) as browser:
        page = browser("root").get("/").text
    assert "259,200 due times in the next 24 hours" in page
    picture = drawn(re.search(r'<svg[^>]*aria-labelledby="timeline-t.*?</svg>', page, re.DOTALL)[0])
    shown = bars(picture, "hour")
    assert len(shown) == 24
    assert all(tip.endswith("10,800 due") for tip in shown[1:])


def test_a_month_works_out_overlaps_only_when_asked_and_says_up_to_when(rota: Rota):
    @rota.job
    def work() -> None: ...

    rota.users.create("root", role="system_manager")
    rota.schedule("first", "work", cron="0 9 * * *")
    rota.schedule("second", "work", cron="30 9 * * *", depends_on=["first"])
    plain = "/schedules/month?month=2099-05"
    address, words = f"{plain}&exact=yes", "Overlaps, dependencies and waits are worked out up to"
    with browsing(rota) as browser:
        root = browser("root")
        assert "Due times to come are shown as if their jobs did not meet" in root.get(plain).text
        assert "exact=yes" in root.get(plain).text
        assert words not in root.get(address).text
        rota.settings = msgspec.structs.replace(rota.settings, forecast_simulated_max=4)
        assert words in root.get(address).text


def test_the_page_of_a_schedule_simulates_few_due_times_of_others_and_says_up_to_when(rota: Rota):
    @rota.job
    def work() -> None: ...

    rota.users.create("root", role="system_manager")
    rota.schedule("often", "work", every="1m")
    rota.schedule("after it", "work", every="1m", depends_on=["often"])
    rota.schedule("seldom", "work", cron="0 9 * * *", depends_on=["often"])
    with browsing(rota) as browser:
        root = browser("root")
        words = "Overlaps, dependencies and waits are worked out up to"
        assert words not in root.get("/schedules/one?name=often").text
        # Its tenth due time is ten days ahead, and the others have thousands until then.
        assert words in root.get("/schedules/one?name=seldom").text


def test_hours_that_are_counted_in_part_are_drawn_otherwise_and_say_so():
    hours = tuple(Hour(begins_at=NOON + timedelta(hours=hour), count=60) for hour in range(24))
    picture = drawn(charts.timeline(Ahead(start=NOON, end=NOON + timedelta(hours=24), hours=hours, count=1440, more=True)))
    assert bars(picture, "hour") == []
    assert bars(picture, "hour partial")[0] == "12:00 UTC: 60 due or more"
    assert "up to 60 an hour, or more" in texts(picture)


def test_pictures_of_nothing_are_pictures():
    empty = Ahead(start=NOON, end=NOON + timedelta(hours=24))
    drawn(charts.timeline(empty))
    quiet = [Period(begins_at=NOON + timedelta(hours=hour), completed=0, failed=0, p50_s=None, p95_s=None) for hour in range(24)]
    for name in RANGES:
        for periods in (quiet, []):
            nothing = lately(*periods, name=name)
            drawn(charts.throughput(nothing))
            drawn(charts.latency(nothing))
            drawn(charts.by_type(nothing))


def lately(*periods: Period, name: str = "24h", types: tuple[str, ...] = ()) -> Trend:
    return Trend(range=RANGES[name], job_type=None, periods=periods, types=types)


def test_charts_tell_their_figures():
    hour = lately(Period(begins_at=NOON, completed=1200, failed=3, p50_s=0.02, p95_s=12.0))
    assert drawn(charts.throughput(hour)).find("desc").text == "1,200 completed and 3 failed in 24 hours"
    assert "between 20ms and 12.0s" in drawn(charts.latency(hour)).find("desc").text


def test_types_are_stacked_and_what_is_left_is_named_others():
    period = Period(begins_at=NOON, completed=9, failed=1, p50_s=None, p95_s=None, by_type={"mail": 6, HOSTILE: 3})
    picture = drawn(charts.by_type(lately(period, types=("mail", HOSTILE))))
    assert picture.find(".//script") is None
    assert bars(picture, "fill-type-0") == ["12:00 UTC: 6 mail"]
    assert bars(picture, "fill-type-1") == [f"12:00 UTC: 3 {HOSTILE}"]
    assert bars(picture, "fill-soft") == ["12:00 UTC: 1 others"]


def test_a_chain_is_drawn_attempt_by_attempt():
    attempts = [
        charts.Attempt("attempt 1", made=NOON, began=NOON, ended=NOON + timedelta(seconds=5), status="FAILED"),
        charts.Attempt("attempt 2", made=NOON + timedelta(seconds=60), began=None, ended=None, status="PENDING"),
    ]
    picture = drawn(charts.chain(attempts, NOON + timedelta(seconds=90)))
    assert texts(picture)[:2] == ["attempt 1", "attempt 2"]
    assert "failed after 5.0s" in [each.text for each in picture.iter("title")]


def test_the_trend_counts_by_the_hour_and_only_ones_own(rota: Rota, clock):
    @rota.job
    def takes(seconds: float) -> None:
        clock.advance(seconds=seconds)

    rota.organizations.create("acme")
    rota.users.create("ada", organization="acme", role="admin")
    rota.enqueue("takes", {"seconds": 2})
    rota.turn()
    clock.advance(hours=1)
    rota.acting_as("ada").enqueue("takes", {"seconds": 8})
    rota.turn()
    everybody = trend(ask_for(rota, Right.READ_STATS)).periods[-3:]
    assert [(each.completed, each.failed) for each in everybody] == [(0, 0), (1, 0), (1, 0)]
    assert 1.9 < everybody[1].p50_s < 2.2
    assert everybody[2].p95_s > 7
    assert [each.completed for each in trend(ask_for(rota.acting_as("ada"), Right.READ_STATS)).periods[-3:]] == [0, 0, 1]


def test_a_trend_is_of_a_range_and_of_one_type_or_all(rota: Rota, clock):
    for name in ("often", "seldom"):
        rota.job(name=name)(lambda: None)
    for minutes, name in ((0, "often"), (3 * 24 * 60 - 300, "often"), (250, "seldom"), (45, "often"), (5, "often")):
        clock.advance(minutes=minutes)
        rota.enqueue(name)
        rota.turn()
    ask = ask_for(rota, Right.READ_STATS)
    ended = {name: sum(each.completed for each in trend(ask, range_name=name).periods) for name in RANGES}
    assert ended == {"15m": 2, "1h": 3, "6h": 4, "24h": 4, "7d": 5}
    assert {name: len(trend(ask, range_name=name).periods) for name in RANGES} == {"15m": 15, "1h": 30, "6h": 24, "24h": 24, "7d": 28}
    found = trend(ask, range_name="1h")
    assert found.types == ("often", "seldom")
    assert [each.by_type for each in found.periods if each.by_type] == [{"seldom": 1}, {"often": 1}, {"often": 1}]
    assert sum(each.completed for each in trend(ask, range_name="7d", job_type="seldom").periods) == 1


def test_ranges_and_types_of_charts_stand_in_the_address(rota: Rota):
    for name in ("often", "seldom"):
        rota.job(name=name)(lambda: None)
        rota.enqueue(name)
    rota.turn()
    rota.users.create("root", role="system_manager")
    with browsing(rota) as browser:
        root = browser("root")
        page = root.get("/").text
        assert 'href="/?range=15m#h-trend"' in page
        assert "2 completed and 0 failed in 24 hours" in page
        assert "often 1, seldom 1" in page
        one = root.get("/?range=1h&type=seldom").text
        assert "1 completed and 0 failed in 1 hour" in one
        assert "By type" not in one
        assert "range=6h" in one
        assert "type=seldom" in one.partition('aria-label="Range of the charts"')[2].partition("</nav>")[0]
        assert "1 completed and 0 failed in 15 minutes" in root.get("/templates/one?name=often&range=15m").text
        assert root.get("/?range=1y").status_code == 422


def test_a_chain_is_drawn_once_an_attempt_has_started(rota: Rota):
    rota.job(name="act")(lambda: None)
    waiting, ended = rota.enqueue("act", run_at=timedelta(hours=2)), rota.enqueue("act")
    rota.turn()
    rota.users.create("root", role="system_manager")
    with browsing(rota) as browser:
        root = browser("root")
        assert "Timeline of the chain" not in root.get(f"/jobs/{waiting.id}").text
        assert "Timeline of the chain" in root.get(f"/jobs/{ended.id}").text
