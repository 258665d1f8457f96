"""Schedules that decorators declare: made once, brought up to date, and people's word kept."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from rota import Rota, Status
from rota.errors import InvalidOption, InvalidSchedule
from rota.model.schedules import ScheduleState


def another(rota: Rota) -> Rota:
    """A program that starts anew on the same store."""
    rota.close()
    return Rota(rota.store.url, clock=rota._session.clock, settings=rota.settings, seed=8)


def nothing() -> None:
    """Do nothing."""


def test_a_decorator_declares_a_schedule_named_like_the_template(rota):
    rota.job(nothing, cron="0 9 * * mon-fri", timezone="Europe/Berlin", catch_up="none", overlap="queue", jitter="30s")
    (view,) = rota.schedules.list()
    assert (view.name, view.template, view.organization, view.created_by) == ("nothing", "nothing", "default", "system")
    assert (view.cron, view.timezone, view.catch_up, view.overlap, view.jitter) == ("0 9 * * mon-fri", "Europe/Berlin", "none", "queue", 30)
    assert view.declared
    assert view.state is ScheduleState.ENABLED


def test_the_template_may_have_another_name_than_its_function(rota):
    rota.job(nothing, name="tidy", every=timedelta(minutes=5))
    assert [(each.name, each.template, each.every) for each in rota.schedules.list()] == [("tidy", "tidy", 300.0)]


@pytest.mark.parametrize(
    "use",
    [
        lambda rota: rota.turn(),
        lambda rota: rota.enqueue("nothing"),
        lambda rota: rota.enqueue_many([("nothing", {})]),
        lambda rota: rota.schedules.get("nothing"),
        lambda rota: rota.schedule("after", "nothing", every=60, depends_on="nothing"),
    ],
    ids=["worker", "enqueue", "enqueue_many", "look", "schedule"],
)
def test_whoever_uses_the_store_first_brings_it_there(rota, use):
    rota.job(nothing, every="1h")
    use(rota)
    assert "nothing" in [each.name for each in rota._session.open().store.schedules()]


def test_it_fires_and_its_jobs_run(rota, clock):
    rota.job(nothing, every="10m")
    rota.turn()
    clock.advance(minutes=10)
    rota.turn()
    assert [job.status for job in rota.jobs.list(job_type="nothing")] == [Status.COMPLETED]


def test_nothing_is_declared_inside_somebodys_transaction_and_the_next_call_makes_up_for_it(rota):
    with rota.transaction() as transaction:
        rota.job(nothing, every="1h")
        with pytest.raises(Exception, match="transaction"):
            rota.enqueue("nothing", transaction=transaction)
    assert rota._session.open().store.schedules() == []
    rota.enqueue("nothing")
    assert [each.name for each in rota._session.open().store.schedules()] == ["nothing"]


def test_a_transaction_of_a_program_whose_templates_are_known_enqueues_without_declaring(rota):
    rota.job(nothing)
    rota.enqueue("nothing")
    with rota.transaction() as transaction:
        rota._session.registry.undeclared = frozenset({"nothing"})
        rota.enqueue("nothing", transaction=transaction)
    assert rota._session.open().store.schedules() == []


# ---- said again ------------------------------------------------------------------------------------------------------


def test_a_program_that_says_the_same_at_its_next_start_changes_nothing(rota, clock):
    rota.job(nothing, every="1h")
    before = rota.schedules.get("nothing")
    again = another(rota)
    clock.advance(minutes=7)
    again.job(nothing, every="1h")
    assert again.schedules.get("nothing") == before
    again.close()


def test_what_people_changed_stays_until_the_code_has_a_new_word(rota):
    rota.job(nothing, cron="0 9 * * *", timezone="Europe/Berlin")
    rota.schedules.update("nothing", cron="0 7 * * *", overlap="queue")
    again = another(rota)
    again.job(nothing, cron="0 9 * * *", timezone="Europe/Paris")
    view = again.schedules.get("nothing")
    assert (view.cron, view.timezone, view.overlap) == ("0 7 * * *", "Europe/Paris", "queue")
    once_more = another(again)
    once_more.job(nothing, cron="30 9 * * *", timezone="Europe/Paris")
    assert once_more.schedules.get("nothing").cron == "30 9 * * *"
    once_more.close()


def test_a_disabled_one_stays_disabled_and_a_deleted_one_comes_back_at_the_next_start(rota):
    rota.job(nothing, every="1h")
    rota.schedules.disable("nothing")
    again = another(rota)
    again.job(nothing, every="1h")
    assert again.schedules.get("nothing").state is ScheduleState.DISABLED
    again.schedules.delete("nothing")
    assert again.schedules.list() == []
    once_more = another(again)
    once_more.job(nothing, every="1h")
    assert once_more.schedules.get("nothing").state is ScheduleState.ENABLED
    once_more.close()


def test_a_decorator_that_says_no_time_any_more_leaves_the_schedule_to_people(rota):
    rota.job(nothing, every="1h")
    rota.turn()
    again = another(rota)
    again.job(nothing)
    again.turn()
    assert [each.name for each in again.schedules.list()] == ["nothing"]
    again.close()


def test_a_template_that_is_archived_gets_no_schedule(rota):
    rota.job(nothing)
    rota.templates.archive("nothing")
    again = another(rota)
    again.job(nothing, every="1h")
    again.turn()
    assert again.schedules.list() == []
    again.close()


@pytest.mark.parametrize("when", [{"at": "2026-03-01T13:00:00Z"}, {"cron": "@hourly", "ends": "2026-03-01T13:00:00Z"}])
def test_a_program_that_says_again_what_has_passed_since_comes_up(rota, clock, when):
    rota.job(nothing)
    rota.schedule("once", "nothing", **when)
    clock.advance(hours=3)
    rota.turn()
    before = rota.schedules.get("once")
    assert rota.schedule("once", "nothing", **when) == before
    with pytest.raises(InvalidSchedule):
        rota.schedule("other", "nothing", **when)


# ---- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cron": "61 * * * *"}, "minute 61 is out of range 0-59"),
        ({"cron": "0 0 30 2 *"}, "none of its months has such a day"),
        ({"cron": "* * * * *", "every": 60}, "cron and every are both given"),
        ({"every": "soon"}, "every='soon' is not a length of time"),
        ({"every": 0.5}, "at least 1 second"),
        ({"cron": "@daily", "timezone": "Mars/Base"}, "Mars/Base"),
        ({"cron": "@daily", "overlap": "maybe"}, "overlap='maybe' is not one of"),
        ({"cron": "@daily", "depends_on": "nothing"}, "can't depend on itself"),
        ({"timezone": "UTC"}, "give cron= or every="),
        ({"at": "2027-01-01T00:00:00Z"}, "create_schedule"),
    ],
)
def test_what_can_not_be_is_refused_where_it_is_written_naming_the_function(rota, options, why):
    with pytest.raises(InvalidSchedule, match=f"^{__name__}:nothing: .*") as refused:
        rota.job(nothing, **options)
    assert why in str(refused.value)
    assert rota._session.registry.find("nothing") is None


def test_an_unknown_option_is_answered_with_those_there_are(rota):
    with pytest.raises(InvalidOption, match=r"no option 'crom' \(did you mean 'cron'\?\): it takes name, .*cron, every, timezone"):
        rota.job(nothing, crom="@daily")


def test_what_the_store_refuses_is_told_and_keeps_nothing_else_from_working(rota, caplog):
    rota.job(nothing, cron="@daily", calendar="holidays")
    rota.job(nothing, name="other", cron="@hourly")
    with caplog.at_level(logging.ERROR, "rota.schedules"):
        rota.enqueue("nothing")
        rota.turn()
    assert [each.name for each in rota.schedules.list()] == ["other"]
    assert len(caplog.records) == 1
    assert "nothing" in caplog.text
    assert "calendar='holidays' is not there" in caplog.text
    rota.calendars.update("holidays", ["2026-12-25"])
    again = another(rota)
    again.job(nothing, cron="@daily", calendar="holidays")
    assert again.schedules.get("nothing").calendar == "holidays"
    again.close()


def test_schedules_that_wait_for_each_other_may_be_decorated_in_any_order(rota):
    rota.job(nothing, name="a", cron="@daily", depends_on=["b", "c"])
    rota.job(nothing, name="b", cron="@daily", depends_on="c")
    rota.job(nothing, name="c", cron="@daily")
    assert {each.name: each.depends_on for each in rota.schedules.list()} == {"a": ("b", "c"), "b": ("c",), "c": ()}


def test_a_circle_of_decorators_is_told_and_the_others_are_declared(rota, caplog):
    rota.job(nothing, name="a", cron="@daily", depends_on="b")
    rota.job(nothing, name="b", cron="@daily", depends_on="a")
    rota.job(nothing, name="c", cron="@daily")
    assert [each.name for each in rota.schedules.list()] == ["c"]
    assert "in a circle" in caplog.text


# ---- several at once -------------------------------------------------------------------------------------------------


def test_a_process_that_finds_the_schedule_made_in_the_same_moment_comes_up(rota, monkeypatch):
    other = Rota(rota.store.url, clock=rota._session.clock, settings=rota.settings)
    other.job(nothing, every="1h", overlap="queue")
    rota.job(nothing, every="1h")
    store = rota._session.open().store
    look = store.schedules

    def late(**which):
        monkeypatch.undo()
        found = look(**which)
        other.schedules.list()
        return found

    monkeypatch.setattr(store, "schedules", late)
    rota.turn()
    (view,) = rota.schedules.list()
    assert (view.overlap, view.version) == ("skip", 2)
    other.close()


def test_many_that_start_at_once_make_one_schedule(tmp_path):
    at_once = Barrier(4)

    def start(_: int) -> list[str]:
        rota = Rota(tmp_path / "rota.db")
        rota.job(nothing, every="1h")
        at_once.wait()
        rota.turn()
        names = [each.id for each in rota.schedules.list()]
        rota.close()
        return names

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(start, range(4)))
    assert len(found[0]) == 1
    assert found == [found[0]] * 4
