"""Overdue is said while nobody is alive: on every screen, by the same count, and only of what its reader may see."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.errors import NotFound
from rota.model.findings import State
from rota.model.gate import Actor, Role
from rota.model.overview import Level
from rota.surfaces.http import make_app
from rota.testing import Clock
from tests.support.clock import ManualClock
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.pages_support import browsing

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA, BOB, EVE = Actor("ada", "acme", Role.ADMIN), Actor("bob", "acme", Role.USER), Actor("eve", "beta", Role.ADMIN)
WORDS = "no outcome is recorded: start a worker, which records 17 COALESCED and 1 FIRED"
CONCERN = "18 due times of schedule beat have no outcome since 2026-03-01T12:00:05Z"


@pytest.fixture
def late(shared: Rota, clock: ManualClock) -> Rota:
    """No worker for 92 seconds, and a schedule of acme that is due every five."""
    shared.schedule("beat", "echo", every="5s", organization="acme")
    clock.advance(seconds=92)
    return shared


def doctor(rota: Rota):
    return next(each for each in rota.store.doctor() if each.name == "schedules")


# ---- python ------------------------------------------------------------------------------------------------------------


def test_the_first_screen_says_what_is_overdue_since_when_and_what_to_do(late: Rota):
    seen = late.overview()
    (row,) = seen.not_run
    assert (row.kind, row.name, row.organization, row.fate, row.count) == ("schedule", "beat", "acme", "OVERDUE", 18)
    assert (row.first_at, row.last_at) == (NOON + timedelta(seconds=5), NOON + timedelta(seconds=90))
    assert (row.reason, row.planned, row.more) == (WORDS, False, False)
    concern = next(each for each in seen.health.concerns if "due times" in each.what)
    assert (concern.level, concern.what, concern.remedy) == (Level.TROUBLE, CONCERN, "start a worker with `rota up` or `rota worker`")


def test_the_ledger_shows_what_is_overdue_as_a_row_that_is_not_recorded(late: Rota):
    (row,) = late.schedules.occurrences(not_ran=True)
    assert (row.schedule, row.fate, row.count, row.ran, row.recorded_at, row.reason) == ("beat", "OVERDUE", 18, False, None, WORDS)
    assert late.schedules.occurrences("beat", organization="acme") == late.schedules.occurrences(fate="overdue") == [row]
    assert late.schedules.occurrences(fate=["OVERDUE", "FIRED"]) == [row]
    assert late.schedules.occurrences(fate="FIRED") == []


def test_nothing_of_it_is_stored(late: Rota):
    late.overview(), late.schedules.occurrences(), late.store.doctor(), late.schedules.verify()
    late.turn()
    assert [(row.fate, row.count) for row in late.schedules.occurrences("beat", organization="acme")] == [("FIRED", 1), ("COALESCED", 17)]
    assert (late.schedules.overdue(), late.schedules.occurrences(fate="OVERDUE"), late.schedules.verify().ok) == ([], [], True)
    assert [row.fate for row in late.overview().not_run] == ["COALESCED"]


def test_pages_of_the_ledger_have_what_is_overdue_in_its_place(late: Rota, clock: ManualClock):
    late.turn()
    late.schedule("other", "echo", every="20s", organization="acme")
    clock.advance(seconds=50)
    found, before = [], None
    while page := late.schedules.occurrences(limit=1, before=before):
        found += [(row.schedule, row.fate, row.count) for row in page]
        before = page[-1].cursor
    assert found == [("other", "OVERDUE", 2), ("beat", "OVERDUE", 10), ("beat", "FIRED", 1), ("beat", "COALESCED", 17)]
    assert found == [(row.schedule, row.fate, row.count) for row in late.schedules.occurrences()]


@pytest.mark.parametrize(
    ("since", "until", "shown"), [(0, 200, True), (90, 200, True), (91, 200, False), (0, 5, False), (0, 6, True)], ids=str
)
def test_the_ledger_shows_what_is_overdue_if_any_of_it_is_in_the_time_asked_for(late: Rota, since, until, shown):
    window = {"since": NOON + timedelta(seconds=since), "until": NOON + timedelta(seconds=until)}
    assert bool(late.schedules.occurrences(**window)) is shown


def test_verify_does_not_say_that_all_is_well(late: Rota):
    found = late.schedules.verify()
    assert (found.ok, found.problems, found.due, found.matched) == (False, (), 18, 0)
    assert [(each.schedule, each.count) for each in found.overdue] == [("beat", 18)]
    assert late.schedules.verify(until=NOON).ok


def test_the_doctor_has_a_problem_with_it(late: Rota):
    found = doctor(late)
    assert found.state is State.PROBLEM
    assert found.text == "18 due times have no outcome, the first since 2026-03-01T12:00:05Z: beat (18)"
    assert "start a worker" in found.remedy


def test_the_doctor_is_content_with_a_store_on_which_a_worker_keeps_time(late: Rota, clock: ManualClock):
    late.turn()
    clock.advance(seconds=late.settings.lease_ttl - 10)
    assert (doctor(late).state, doctor(late).text) == (State.OK, "no due time is overdue")


def test_what_is_late_by_no_more_than_the_bound_is_no_alarm(shared: Rota, clock: ManualClock):
    shared.schedule("beat", "echo", every="5s", organization="acme")
    clock.advance(seconds=34.9)
    assert (shared.overview().not_run, shared.schedules.occurrences(), shared.schedules.overdue(), shared.schedules.verify().ok) == (
        (),
        [],
        [],
        True,
    )
    assert doctor(shared).state is State.OK
    assert [each.what for each in shared.overview().health.concerns] == ["no worker is running"]


def test_a_schedule_that_is_paused_is_shown_as_planned_and_alarms_nobody(shared: Rota, clock: ManualClock):
    shared.schedule("beat", "echo", every="5s", organization="acme")
    shared.schedules.pause("beat", organization="acme")
    clock.advance(seconds=92)
    (row,) = shared.overview().not_run
    assert (row.fate, row.count, row.planned) == ("OVERDUE", 18, True)
    assert row.reason == "no outcome is recorded: start a worker, which records 18 SKIPPED_PAUSED"
    assert [each.what for each in shared.overview().health.concerns] == ["no worker is running"]
    assert (doctor(shared).state, shared.schedules.verify().ok) == (State.OK, True)


def test_each_sees_what_is_overdue_of_its_own_organization(late: Rota):
    late.schedule("mine", "echo", every="5s", organization="beta")
    late._session.clock.advance(seconds=60)

    def names(actor):
        found = [
            {row.name for row in late.acting_as(actor).overview().not_run},
            {row.schedule for row in late.acting_as(actor).schedules.occurrences()},
            {each.schedule for each in late.acting_as(actor).schedules.overdue()},
            {each.schedule for each in late.acting_as(actor).schedules.verify().overdue},
        ]
        assert all(each == found[0] for each in found)
        return found[0]

    assert names(None) == {"beat", "mine"}
    assert (names(ADA), names(EVE)) == ({"beat"}, {"mine"})
    assert (
        late.acting_as(ADA).schedules.occurrences(organization="beta") == late.acting_as(ADA).schedules.overdue(organization="beta") == []
    )
    with pytest.raises(NotFound):
        late.acting_as(ADA).schedules.overdue("mine")


def test_a_user_sees_what_is_overdue_of_the_schedules_that_it_may_read(late: Rota):
    assert {each.schedule for each in late.acting_as(BOB).schedules.overdue()} == {
        view.name for view in late.acting_as(BOB).schedules.list()
    }


def test_of_many_schedules_the_longest_overdue_are_worked_out_and_more_is_said(shared: Rota, clock: ManualClock, monkeypatch):
    monkeypatch.setattr("rota.engine.overdue.overdue.__kwdefaults__", {**_defaults(), "limit": 3})
    for index in range(5):
        shared.schedule(f"s{index}", "echo", every="1m")
        clock.advance(seconds=1)
    clock.advance(minutes=10)
    seen = shared.overview()
    assert [row.name for row in seen.not_run] == ["s0", "s1", "s2"]
    assert "more than 30 due times of 3 schedules (s0, s1, s2, …) have no outcome since" in seen.health.concerns[1].what
    assert "at least 30 due times" in doctor(shared).text


def _defaults():
    from rota.engine.overdue import overdue

    return overdue.__kwdefaults__


# ---- over HTTP -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(late: Rota):
    with TestClient(make_app(late)) as made:
        yield made


def bearer(rota: Rota, user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {rota.tokens.create(user, user=user, permits=('read',)).secret}"}


def test_ready_counts_what_is_overdue_and_answers_503_if_asked_about_schedules(client: TestClient, late: Rota):
    plain, asked = client.get("/api/v1/ready"), client.get("/api/v1/ready?schedules=1")
    assert (plain.status_code, plain.json()) == (200, {"status": "ok", "overdue": 18})
    assert (asked.status_code, asked.json()) == (503, {"status": "overdue", "overdue": 18})
    late.turn()
    again = client.get("/api/v1/ready?schedules=1")
    assert (again.status_code, again.json()) == (200, {"status": "ok", "overdue": 0})


def test_the_api_shows_it_in_the_overview_the_ledger_and_verify(client: TestClient, late: Rota):
    headers = bearer(late, "ada")
    (row,) = client.get("/api/v1/overview", headers=headers).json()["not_run"]
    assert (row["fate"], row["count"], row["first_at"]) == ("OVERDUE", 18, "2026-03-01T12:00:05Z")
    for query in ("not_ran=true", "fate=OVERDUE", "schedule=beat"):
        (item,) = client.get(f"/api/v1/occurrences?{query}", headers=headers).json()["items"]
        assert (item["fate"], item["count"], item["recorded_at"], item["ran"]) == ("OVERDUE", 18, None, False)
    assert client.get("/api/v1/occurrences?fate=OVERDUE", headers=bearer(late, "eve")).json()["items"] == []
    found = client.get("/api/v1/occurrences/verify", headers=headers).json()
    assert [(each["schedule"], each["expected"]) for each in found["overdue"]] == [("beat", 18)]


def test_a_page_of_the_api_goes_on_after_what_is_overdue(client: TestClient, late: Rota, clock: ManualClock):
    late.turn()
    clock.advance(seconds=60)
    headers = bearer(late, "ada")
    first = client.get("/api/v1/occurrences?limit=1", headers=headers).json()
    second = client.get("/api/v1/occurrences", params={"limit": 1, "cursor": first["next"]}, headers=headers).json()
    assert [each["items"][0]["fate"] for each in (first, second)] == ["OVERDUE", "FIRED"]


def test_the_metric_counts_it_for_those_who_may_read_it(client: TestClient, late: Rota):
    def overdue(user: str) -> float:
        text = client.get("/metrics", headers=bearer(late, user)).text
        return next(each.samples[0].value for each in text_string_to_metric_families(text) if each.name == "rota_overdue_occurrences")

    assert (overdue("root"), overdue("ada"), overdue("eve")) == (18, 18, 0)
    late.turn()
    assert overdue("root") == 0


def test_the_dashboard_shows_it_on_its_first_page_and_on_that_of_the_schedule(late: Rota):
    with browsing(late) as browser:
        seen = browser("ada")
        for path in ("/", "/schedules/one?name=beat&organization=acme", "/schedules/one?name=beat&organization=acme&fate=not_ran"):
            text = seen.get(path).text
            assert 'class="chip is-overdue"' in text, path
            assert WORDS in text, path
        assert "every due time became a job" not in seen.get("/").text


# ---- commands ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """A store on which a schedule was made two hours ago, and no worker has been since."""
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    made.ok("template", "list", "--app", "shop:rota")
    rota = Rota(made.store, clock=Clock(datetime.now(UTC) - timedelta(hours=2)), settings=Settings(synchronous="NORMAL"))
    rota.schedule("beat", "greet", every="1h", starts=datetime.now(UTC) - timedelta(minutes=90))
    rota.close()
    yield made
    made.close()
    sys.modules.pop("shop", None)


def test_commands_say_what_is_overdue(cli):
    records = "no outcome is recorded: start a worker, which records 1 COALESCED and 1 FIRED"
    top = cli.ok("top", "--once")
    assert "2 due times of schedule beat have no outcome since" in top
    assert "everything that was due did run" not in top
    assert "overdue  for 1h" in top
    assert records in top
    listed = cli.ok("schedule", "occurrences", "--not-ran")
    assert "OVERDUE ×2" in listed
    assert records in listed
    assert [row["count"] for row in cli.lines("schedule", "occurrences", "--fate", "overdue")] == [2]
    checked = cli("doctor")
    assert (checked.exit_code, "2 due times have no outcome, the first since" in checked.output) == (1, True)
    verified = cli("schedule", "verify")
    assert verified.exit_code == 1
    assert "OVERDUE ×2" in verified.output
    assert "0 problems, 1 schedule overdue: 0 of 2 due times match" in verified.output
    assert "All is well" not in verified.output
