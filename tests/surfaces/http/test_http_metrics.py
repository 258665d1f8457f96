"""`/metrics`: the names that operators know, for those who may read them, in counters that never go back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.ports.overseeing import Figure, Unfired
from rota.surfaces.http import make_app
from rota.surfaces.http.metrics import METRICS, OTHER, Growth, _bounded
from tests.docs.pages import ROOT, page, rows
from tests.stores.desk import Desk
from tests.support.clock import ManualClock

SPEC = ("scheduler_queue_depth", "jobs_running", "jobs_failed_total", "job_run_latency_ms")


class Scraper:
    """Reads /metrics with somebody's token."""

    def __init__(self, rota: Rota, client: TestClient) -> None:
        self.rota = rota
        self.client = client

    def token(self, user: str | None = None, *permits: str) -> dict[str, str]:
        made = self.rota.tokens.create("scraper", user=user, permits=permits or ("read",))
        return {"Authorization": f"Bearer {made.secret}"}

    def __call__(self, headers: dict[str, str] | None = None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        answer = self.client.get("/metrics", headers=self.token() if headers is None else headers)
        assert answer.status_code == 200, answer.text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }


@pytest.fixture
def scrape(shared: Rota) -> Iterator[Scraper]:
    @shared.job(max_retries=0)
    def boom() -> None:
        raise ValueError("no")

    with TestClient(make_app(shared)) as client:
        yield Scraper(shared, client)


def of(found: dict, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def test_nobody_reads_without_a_token_or_without_the_right(scrape: Scraper):
    assert scrape.client.get("/metrics").status_code == 401
    assert scrape.client.get("/metrics", headers=scrape.token("bob")).status_code == 403
    assert scrape.client.get("/metrics", headers=scrape.token("root", "submit")).status_code == 403
    assert scrape.client.get("/metrics", headers=scrape.token("root")).status_code == 200


@pytest.mark.parametrize("name", SPEC)
def test_the_names_that_were_promised_are_there(name):
    assert name in METRICS


def test_what_waits_runs_and_ended_is_counted(scrape: Scraper, clock: ManualClock):
    headers = scrape.token()
    scrape(headers)
    for _ in range(3):
        scrape.rota.enqueue("echo")
    scrape.rota.enqueue("boom")
    scrape.rota.enqueue("echo", run_at=timedelta(hours=1))
    clock.advance(seconds=30)
    before = scrape(headers)
    assert of(before, "scheduler_queue_depth", job_type="echo", state="ready") == 3
    assert of(before, "rota_pending_jobs", state="later") == 1
    assert of(before, "rota_oldest_waiting_seconds", job_type="echo") == 30
    scrape.rota.turn()
    after = scrape(headers)
    assert of(after, "scheduler_queue_depth", job_type="echo", state="ready") is None
    assert of(after, "rota_jobs_completed_total", job_type="echo") == 3
    assert of(after, "jobs_failed_total", job_type="boom") == 1
    assert of(after, "rota_dead_letters", job_type="boom") == 1
    assert of(after, "job_run_latency_ms_count", job_type="echo") == 3
    assert of(after, "job_run_latency_ms_bucket", job_type="echo", le="+Inf") == 3


def test_queues_are_measured_by_name(scrape: Scraper, clock: ManualClock):
    headers = scrape.token()
    scrape.rota.enqueue("echo", queue="mail")
    clock.advance(seconds=20)
    found = scrape(headers)
    assert of(found, "rota_queue_depth", queue="mail") == 1
    assert of(found, "rota_queue_oldest_waiting_seconds", queue="mail") == 20
    assert of(found, "rota_queue_workers", queue="mail") == 0
    scrape.rota.turn()
    found = scrape(headers)
    assert (of(found, "rota_queue_depth", queue="mail"), of(found, "rota_queue_workers", queue="mail")) == (0, 1)


def test_the_longest_wait_is_told_by_type(scrape: Scraper, clock: ManualClock):
    headers = scrape.token()
    scrape.rota.enqueue("echo")
    clock.advance(seconds=20)
    scrape.rota.enqueue("boom")
    scrape.rota.enqueue("echo")
    clock.advance(seconds=10)
    found = scrape(headers)
    assert of(found, "rota_oldest_waiting_seconds", job_type="echo") == 30
    assert of(found, "rota_oldest_waiting_seconds", job_type="boom") == 10
    scrape.rota.turn()
    assert not [name for name, _ in scrape(headers) if name == "rota_oldest_waiting_seconds"]


def test_of_very_many_types_those_that_wait_longest_keep_their_name():
    waits = {(f"t{n}",): float(n) for n in range(5)}
    assert _bounded(waits, 2, together=max) == {("t4",): 4, ("t3",): 3, (OTHER,): 2}
    assert _bounded(waits, 2) == {("t4",): 4, ("t3",): 3, (OTHER,): 3}


def test_jobs_that_are_claimed_ahead_are_told_apart_from_handlers_that_run(scrape: Scraper, clock: ManualClock):
    for _ in range(5):
        scrape.rota.enqueue("echo")
    desk = Desk(scrape.rota._session.open().store)
    desk.ids, desk.now = scrape.rota._session.ids, clock.now()
    desk.worker = desk.id()
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["echo"], now=desk.now, slots=2)
    lease = scrape.rota._session.open().liveness.take(desk.worker)
    desk.claim(5, types=("echo",))
    found = scrape()
    lease.release(clean=True)
    assert of(found, "jobs_running", job_type="echo") == 5
    assert of(found, "rota_claimed_ahead_jobs") == 3


def test_counters_stay_when_retention_removes_what_they_counted(scrape: Scraper, clock: ManualClock):
    headers = scrape.token()
    scrape(headers)
    scrape.rota.enqueue("boom")
    scrape.rota.turn()
    assert of(scrape(headers), "jobs_failed_total", job_type="boom") == 1
    clock.advance(days=500)
    scrape.rota.store.purge(older_than=timedelta(days=1))
    found = scrape(headers)
    assert of(found, "jobs_failed_total", job_type="boom") == 1
    assert of(found, "rota_dead_letters", job_type="boom") is None


def test_due_times_that_did_not_fire_are_counted_by_fate(scrape: Scraper, clock: ManualClock):
    headers = scrape.token()
    scrape.rota.schedule("hourly", "echo", every=timedelta(hours=1))
    scrape.rota.schedules.pause("hourly")
    clock.advance(hours=2, minutes=1)
    scrape.rota.turn()
    scrape(headers)
    clock.advance(hours=3)
    scrape.rota.turn()
    found = scrape(headers)
    assert of(found, "rota_missed_occurrences_total", fate="SKIPPED_PAUSED") == 3
    assert of(found, "rota_next_due_seconds") is not None


def test_an_admin_reads_of_its_organization_and_nothing_of_the_process(scrape: Scraper):
    scrape.rota.acting_as("ada").enqueue("echo")
    scrape.rota.acting_as("eve").enqueue("boom")
    ada = scrape(scrape.token("ada"))
    assert of(ada, "scheduler_queue_depth", job_type="echo", state="ready") == 1
    assert of(ada, "scheduler_queue_depth", job_type="boom", state="ready") is None
    names = {name for name, _ in ada}
    assert not names & {"rota_workers", "rota_turns_total", "rota_http_requests_total", "rota_worker_beat_age_seconds"}


def test_requests_are_counted_by_their_pattern_and_never_by_their_path(scrape: Scraper):
    headers = scrape.token()
    job = scrape.rota.enqueue("echo")
    scrape.client.get(f"/api/v1/jobs/{job.id}", headers=headers)
    scrape.client.request("BREW", "/nothing/here")
    found = scrape(headers)
    assert of(found, "rota_http_requests_total", method="GET", route="/api/v1/jobs/{job}", status="200") == 1
    assert any(name == "rota_http_requests_total" and ("route", "(other)") in labels for name, labels in found)
    assert not any(job.id in value for _, labels in found for _, value in labels)


def test_the_workers_of_this_process_count_their_turns(live: Rota):
    @live.job
    def echo() -> None:
        pass

    with TestClient(make_app(live)) as client:
        live.start()
        live.wait(live.enqueue("echo").id, 10)
        found = Scraper(live, client)()
        assert of(found, "rota_workers", state="alive") == 1
        assert of(found, "rota_jobs_claimed_total") == 1
        assert of(found, "rota_turns_total") == of(found, "rota_turn_duration_seconds_count")
        assert of(found, "rota_turns_total") > 0


def test_metrics_are_open_to_this_machine_only_where_the_settings_say_so(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(metrics_access="loopback"))
    try:
        with TestClient(make_app(rota), client=("127.0.0.1", 5000)) as near, TestClient(make_app(rota), client=("10.0.0.7", 5000)) as far:
            assert near.get("/metrics").status_code == 200
            assert near.get("/metrics", headers={"X-Forwarded-For": "10.0.0.7"}).status_code == 401
            assert near.get("/metrics", headers={"Authorization": "Bearer rota_wrong"}).status_code == 401
            assert far.get("/metrics").status_code == 401
    finally:
        rota.close()


def test_job_types_beyond_the_bound_are_counted_together(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(metrics_types_max=2, metrics_organizations="yes"))
    try:
        for name in ("a", "b", "c", "d"):
            rota.job(name=name)(lambda: None)
        with TestClient(make_app(rota)) as client:
            scrape = Scraper(rota, client)
            headers = scrape.token()
            scrape(headers)
            for name in ("a", "b", "c", "d"):
                rota.enqueue(name)
            assert len({labels for name, labels in scrape(headers) if name == "scheduler_queue_depth"}) == 3
            rota.turn()
            found = scrape(headers)
            done = {labels: value for (name, labels), value in found.items() if name == "rota_jobs_completed_total"}
            assert len(done) == 3
            assert sum(done.values()) == 4
            assert all(("organization", "default") in labels for labels in done)
    finally:
        rota.close()


# ---- counters from figures that may go back ------------------------------------------------------------------------

HOUR = 3_600_000_000


def figure(count: int, hour: int = 0, total_us: int = 0) -> Figure:
    return Figure("t", "COMPLETED", 80, count, total_us, hour, "default")


def unfired(count: int, due_at: int = 0) -> Unfired:
    return Unfired(
        schedule="s", schedule_id="1", organization="default", fate="MISSED", due_at=due_at, last_due_at=9, count=count, reason=None
    )


def test_growth_begins_at_nothing_and_adds_what_is_new_in_each_hour():
    growth = Growth()
    growth.add([figure(10)], [unfired(5)], 1)
    assert growth.ends["default", "t", "COMPLETED", 80] == 0
    assert growth.unfired["MISSED"] == 0
    growth.add([figure(12, total_us=7), figure(3, HOUR, 5)], [unfired(6), unfired(2, 7)], 2)
    assert growth.ends["default", "t", "COMPLETED", 80] == 5
    assert growth.spent_us["default", "t"] == 12
    assert growth.unfired["MISSED"] == 3


def test_growth_never_goes_back_whatever_is_removed():
    growth = Growth()
    growth.add([], [], 1)
    growth.add([figure(4)], [unfired(4)], 2)
    growth.add([figure(1)], [], 3)
    growth.add([], [unfired(1)], 4)
    assert growth.ends["default", "t", "COMPLETED", 80] == 4
    assert growth.unfired["MISSED"] == 5


def test_the_next_look_goes_back_before_the_last_one():
    growth = Growth()
    assert growth.since is None
    growth.add([], [], 10 * HOUR)
    assert growth.since is not None
    assert growth.since < 10 * HOUR


# ---- what is written of them ---------------------------------------------------------------------------------------


def test_the_page_about_metrics_has_each_of_them_as_it_is():
    table = {row[0].strip("`"): row for row in rows(page("docs/operations/metrics.md")) if len(row) == 4}
    assert sorted(table) == sorted(METRICS) or set(METRICS) <= set(table)
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert table[metric.name] == [f"`{metric.name}`", metric.kind, labels, metric.what]


def test_every_metric_of_the_grafana_dashboard_is_there_and_every_question_has_its_row():
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "rota.json").read_text())
    known = {name for metric in METRICS.values() for name in _scraped(metric.name, metric.kind)}
    used = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = re.sub(r'"[^"]*"', "", target["expr"])
            used |= set(re.findall(r"\b(?:rota|jobs?|scheduler)_[a-z_]+", expression)) - {"job_type"}
    assert used <= known
    assert len(used) > 15
    titles = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert titles[:5] == ["Is it healthy?", "What did not run?", "What is stuck?", "What is running?", "What comes next?"]
    assert {name for name in known if name.startswith("rota_queue_")} <= used
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def _scraped(name: str, kind: str) -> set[str]:
    return {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
