"""The feed: what is new becomes events, for each listener what it asked for and may see, and never without bound."""

import threading
from contextlib import closing

import pytest

from rota import Actor, Rota, Settings
from rota.engine import event_poller
from rota.engine.event_feed import Batch, Feed, Listener, Over, sample
from rota.engine.event_poller import EventPoller, again, holes
from rota.errors import InvalidOption, PermissionDenied, StoreBusy, TooManyListeners
from rota.live import follow_log
from rota.model.events import Change, Cursor, Event, EventType, View, cursor_of, types_of
from rota.model.gate import Right, Scope
from rota.model.reports import Phase, ScheduleEvent, ScheduleReport
from rota.model.schedules import Fate
from rota.model.values import moment_of
from rota.operation import Ask
from rota.ports.events import Span
from rota.ports.executor import Report
from tests.stores.desk import Desk
from tests.support.clock import ManualClock
from tests.support.pace import patient
from tests.support.postgres import fresh_database
from tests.support.waiting import eventually


@pytest.fixture
def gatherer(rota, clock):
    @rota.job
    def echo(value: int = 0) -> int:
        return value

    rota.enqueue("echo")
    rota.turn()
    clock.advance(minutes=1)
    made = EventPoller(rota._session.open().store, clock)
    made.begin()
    return made


def story(gathered):
    return [(str(change.type), change.job.root_number, change.job.status) for change in gathered.changes if change.job is not None]


def test_what_was_there_before_is_no_news(gatherer):
    assert gatherer.gather().changes == []


def test_a_job_is_noticed_when_it_is_made_and_when_it_has_run(rota, gatherer):
    rota.enqueue("echo")
    assert story(gatherer.gather()) == [("job.created", 2, "QUEUED")]
    rota.turn()
    assert story(gatherer.gather()) == [("job.started", 2, "COMPLETED"), ("job.ended", 2, "COMPLETED")]
    assert gatherer.gather().changes == []


def test_one_that_was_made_and_ended_between_two_looks_is_told_whole(rota, gatherer):
    rota.enqueue("echo")
    rota.turn()
    assert [each[0] for each in story(gatherer.gather())] == ["job.created", "job.started", "job.ended"]


def test_a_job_that_never_ran_has_an_end_and_no_start(rota, gatherer):
    rota.jobs.cancel(rota.enqueue("echo").id)
    assert [each[0] for each in story(gatherer.gather())] == ["job.created", "job.ended"]


def test_a_further_attempt_is_a_job_of_its_own(rota, gatherer):
    @rota.job
    def fails() -> None:
        raise ValueError

    rota.enqueue("fails")
    rota.turn()
    assert story(gatherer.gather()) == [
        ("job.created", 2, "FAILED"),
        ("job.created", 2, "PENDING"),
        ("job.started", 2, "FAILED"),
        ("job.ended", 2, "FAILED"),
    ]


def test_progress_is_told_when_it_changes_and_only_then(rota, clock):
    desk = Desk(rota._session.open().store)
    desk.add()
    gatherer = EventPoller(desk.store, clock)
    gatherer.begin()
    job = desk.claim_one()
    assert [each[0] for each in story(gatherer.gather())] == ["job.started"]
    desk.turn(reports=[Report(job.number, progress=40, message="soon")])
    (change,) = gatherer.gather().changes
    assert (change.type, change.progress, change.message) == (EventType.PROGRESS, 40, "soon")
    assert gatherer.gather().changes == []
    desk.done(job)
    assert [each[0] for each in story(gatherer.gather())] == ["job.ended"]


def test_an_end_that_is_committed_later_than_its_moment_is_not_missed(rota, clock, gatherer):
    """Its moment lies before the last look, which did not see it."""
    rota.enqueue("echo")
    gatherer.gather()
    clock.advance(seconds=3)
    gatherer.gather()
    clock.step(seconds=-3)
    rota.turn()
    clock.step(seconds=3)
    assert [each[0] for each in story(gatherer.gather())] == ["job.started", "job.ended"]


def test_a_clock_that_is_set_back_hides_nothing_and_repeats_what_it_went_over_once(rota, clock, gatherer):
    clock.step(minutes=-30)
    rota.enqueue("echo")
    rota.turn()
    assert [number for word, number, _ in story(gatherer.gather()) if word == "job.ended"] == [1, 2]
    clock.step(minutes=30)
    rota.enqueue("echo")
    rota.turn()
    assert [number for word, number, _ in story(gatherer.gather()) if word == "job.ended"] == [3]
    assert gatherer.gather().changes == []


def test_more_new_jobs_than_a_look_reads_come_with_the_next(rota, gatherer, monkeypatch):
    monkeypatch.setattr(event_poller, "MADE_MAX", 10)
    rota.enqueue_many([("echo", {})] * 25)
    looks = [gatherer.gather() for _ in range(4)]
    assert [len(look.changes) for look in looks] == [10, 10, 5, 0]
    assert not any(look.missed for look in looks)


def test_a_flood_of_new_jobs_is_left_behind_and_that_is_said(rota, gatherer, monkeypatch):
    monkeypatch.setattr(event_poller, "MADE_MAX", 10)
    monkeypatch.setattr(event_poller, "BEHIND_MAX", 20)
    rota.enqueue_many([("echo", {})] * 25)
    look = gatherer.gather()
    assert (look.missed, len(look.changes)) == (True, 10)
    assert look.changes[-1].job.number == 26
    assert gatherer.gather() == event_poller.Gathered([])


def test_a_flood_of_ends_is_left_behind_and_that_is_said(rota, clock, gatherer, monkeypatch):
    monkeypatch.setattr(event_poller, "ENDED_MAX", 10)
    rota.enqueue_many([("echo", {})] * 15)
    gatherer.gather()
    rota.turn()
    look = gatherer.gather()
    assert look.missed
    assert len([change for change in look.changes if change.type is EventType.ENDED]) == 10
    clock.advance(minutes=1)
    rota.enqueue_many([("echo", {})] * 5)
    rota.turn()
    assert not gatherer.gather().missed


def test_ends_are_remembered_no_longer_than_a_look_goes_back(rota, clock, gatherer):
    for _ in range(5):
        rota.enqueue_many([("echo", {})] * 20)
        rota.turn()
        gatherer.gather()
        clock.advance(minutes=1)
    gatherer.gather()
    clock.advance(minutes=1)
    gatherer.gather()
    assert not gatherer._ended
    assert not gatherer._running
    assert not gatherer._missing


def test_definitions_that_people_change_are_told_and_whose_they_are(rota, gatherer):
    rota.organizations.create("acme")
    rota.templates.pause("echo")
    found = [(change.subject, change.name, change.organization) for change in gatherer.gather().changes]
    assert found == [("organization", "acme", "acme"), ("template", "echo", None)]


def test_a_number_that_is_committed_late_is_told_when_it_is_there():
    with fresh_database() as url, closing(Rota(url)) as slow, closing(Rota(url)) as quick:
        for each in (slow, quick):
            each.job(name="echo")(lambda: None)
        quick.enqueue("echo")
        gatherer = EventPoller(quick._session.open().store, ManualClock())
        gatherer.begin()
        with slow.transaction() as tx:
            late = slow.enqueue("echo", transaction=tx)
            early = quick.enqueue("echo")
            assert [change.job.job_id for change in gatherer.gather().changes if change.job] == [early.id.replace("-", "")]
            assert gatherer.cursor.number == 1
        assert [change.job.job_id for change in gatherer.gather().changes if change.job] == [late.id.replace("-", "")]
        assert gatherer.cursor.number == 3
        assert gatherer.gather().changes == []


@pytest.mark.parametrize(
    ("found", "missing"),
    [([], [Span(5, 9)]), ([5, 6, 7, 8, 9], []), ([5, 9], [Span(6, 8)]), ([1, 7, 12], [Span(5, 6), Span(8, 9)])],
)
def test_holes_are_what_was_not_found(found, missing):
    assert holes(Span(5, 9), found) == missing


# ---- again ---------------------------------------------------------------------------------------------------------


def test_what_came_after_a_cursor_is_told_again_in_the_order_of_time(rota, clock, gatherer):
    cursor = gatherer.cursor
    for _ in range(2):
        clock.advance(seconds=10)
        rota.enqueue("echo")
        rota.turn()
    found = again(rota._session.open().store, cursor, clock.now(), oldest=0)
    assert [(str(change.type), change.job.root_number) for change in found] == [
        (word, number) for number in (2, 3) for word in ("job.created", "job.started", "job.ended")
    ]


def test_a_cursor_that_is_too_old_or_of_another_store_leads_nowhere(rota, clock, gatherer, monkeypatch):
    store, now = rota._session.open().store, clock.now()
    assert again(store, Cursor(now - 10, 1), now, oldest=now - 9) is None
    assert again(store, Cursor(now, 99), now, oldest=0) is None
    assert again(store, Cursor(now + 10**9, 1), now, oldest=0) is None
    monkeypatch.setattr(event_poller, "BEHIND_MAX", 5)
    rota.enqueue_many([("echo", {})] * 6)
    assert again(store, Cursor(now, 1), now, oldest=0) is None


@pytest.mark.parametrize("cursor", [Cursor(0, 0), Cursor(1_772_366_400_000_000, 42)])
def test_a_cursor_is_read_as_it_was_written(cursor):
    assert cursor_of(str(cursor)) == cursor


# ---- who is told what ----------------------------------------------------------------------------------------------


@pytest.fixture
def feed(rota, clock, settings):
    @rota.job
    def echo() -> None: ...

    rota.enqueue("echo")
    rota.turn()
    clock.advance(minutes=1)
    made = Feed(rota._session.open().store, clock, settings, None)
    made._begin = lambda: None if made.cursor else _begin(made)  # the test looks, no thread does
    yield made
    made.close()


def _begin(feed):
    feed._poller.begin()
    feed.cursor = str(feed._poller.cursor)


def heard(listener):
    return [str(event.type) for batch in listener.take() for event in batch.events]


def test_those_who_ask_for_the_same_are_told_by_one(rota, feed):
    one, two = feed.listen(View()), feed.listen(View())
    rota.enqueue("echo")
    feed.step()
    (first,), (second,) = one.take(), two.take()
    assert first is second
    assert [str(event.type) for event in first.events] == ["job.created"]


def test_each_hears_what_is_inside_its_scope_and_filter(rota, feed):
    views = {
        "own": View(scope=Scope("default", "bob")),
        "organization": View(scope=Scope("acme")),
        "type": View(job_type="other"),
        "status": View(statuses=frozenset({"PENDING"})),
        "kind": View(types=frozenset({EventType.ENDED})),
        "all": View(),
    }
    ears = {name: feed.listen(view) for name, view in views.items()}
    rota.acting_as(Actor("bob")).enqueue("echo")
    feed.step()
    assert {name for name, ear in ears.items() if heard(ear)} == {"own", "all"}


def test_a_flood_is_sampled_and_what_was_left_out_is_counted(rota, clock, feed):
    listener = feed.listen(View(types=frozenset({EventType.CREATED})))
    rota.enqueue_many([("echo", {})] * 1000)
    feed.step()
    clock.advance(seconds=1)
    feed.step()
    events = [event for batch in listener.take() for event in batch.events]
    assert [event.type for event in events].count(EventType.CREATED) == 100
    assert [event.count for event in events if event.type is EventType.SKIPPED] == [900]
    rota.enqueue("echo")
    feed.step()
    assert heard(listener) == ["job.created"]


def test_a_sample_is_taken_evenly():
    changes = [Change(type=EventType.CREATED, at=at) for at in range(10)]
    assert [change.at for change in sample(changes, 5)] == [0, 2, 4, 6, 8]
    assert sample(changes, 10) is changes
    assert sample(changes, 0) == []


def test_counts_are_told_at_first_and_when_they_changed_at_most_once_a_second(rota, clock, feed):
    listener = feed.listen(View(stats=Scope()))
    feed.step()
    assert heard(listener) == ["counts"]
    rota.enqueue("echo")
    feed.step()
    assert heard(listener) == ["job.created"]
    clock.advance(seconds=1)
    feed.step()
    assert heard(listener) == ["counts"]
    late = feed.listen(View(stats=Scope()))
    assert heard(late) == ["counts"]


def test_one_who_is_too_slow_is_cut_off_and_keeps_nothing(rota, clock, feed):
    listener = feed.listen(View(types=frozenset({EventType.CREATED})))
    for _ in range(11):
        rota.enqueue_many([("echo", {})] * 100)
        feed.step()
        clock.advance(seconds=1)
    assert listener.over is Over.SLOW
    assert listener.take() == []


def test_a_batch_says_where_to_go_on_for_whoever_has_had_all_of_it_or_not(clock):
    event = Event(type=EventType.GAP, at=moment_of(clock.now()))
    assert [each.id for each in Batch([event, event, event], "before", "after").with_ids()] == ["before", "before", "after"]


def test_more_listeners_than_the_setting_allows_are_refused(rota, clock):
    feed = Feed(rota._session.open().store, clock, Settings(events_streams=1), None)
    listener = feed.listen(View())
    with pytest.raises(TooManyListeners, match="events_streams"):
        feed.listen(View(job_type="x"))
    listener.close()
    listener.close()
    feed.listen(View())
    feed.close()


def test_nobody_looks_before_somebody_listens_nor_long_after(live, monkeypatch):
    monkeypatch.setattr("rota.engine.event_feed.LINGER_S", 0.0)
    assert live._session.feed is None
    events = live.events()
    feed = live._session.feed
    assert feed.looking
    events.close()
    eventually(lambda: not feed.looking)
    live.job(name="echo")(lambda: None)
    with live.events(types="job") as again_:
        live.enqueue("echo")
        assert again_.next(5).type == "job.created"


def test_the_store_in_trouble_costs_a_second_and_no_event(live, monkeypatch, caplog):
    live.job(name="echo")(lambda: None)
    with live.events(types="job") as events:
        store, failed = live._session.open().store, threading.Event()
        marks = store.marks

        def fail():
            failed.set()
            raise StoreBusy("busy")

        monkeypatch.setattr(store, "marks", fail)
        assert failed.wait(patient(5))
        live.enqueue("echo")
        monkeypatch.setattr(store, "marks", marks)
        assert events.next(5).type == "job.created"


# ---- the Python surface --------------------------------------------------------------------------------------------


def test_events_of_a_job_end_with_its_chain(live):
    live.job(name="echo")(lambda: None)
    job = live.enqueue("echo")
    with live.running():
        told = [(event.type, event.job.id) for event in live.events(job=job)]
    assert told[-1] == ("job.ended", job.id)
    assert {each for _, each in told} == {job.id}


def test_events_end_when_rota_is_closed(live):
    events = live.events()
    live.close()
    assert [event.type for event in events] in ([], ["counts"])
    assert events.over is Over.CLOSED


def test_whoever_may_read_nothing_hears_nothing(live):
    with pytest.raises(PermissionDenied):
        live.acting_as(Actor("x", operations=frozenset())).events()
    assert live._session.feed is None or live._session.feed.listening == 0


@pytest.mark.parametrize("asked", [{"types": "x"}, {"types": ["job.created", "x"]}, {"status": "x"}, {"after": "x"}])
def test_what_is_no_type_no_status_and_no_id_is_refused(live, asked):
    with pytest.raises(InvalidOption):
        live.events(**asked)


def test_job_stands_for_all_that_is_about_jobs():
    assert types_of("job") == types_of(["job.created", "job.started", "job.progress", "job.ended"])


def test_a_listener_that_nobody_holds_is_let_go(live):
    live.events()
    eventually(lambda: live._session.feed.listening == 0)


def test_a_batch_that_is_told_first_comes_first(clock):
    class Nothing:
        cursor = ""

    listener = Listener(Nothing(), View(), most=10, ready=None)
    one, two = Batch([], "", ""), Batch([], "", "")
    listener.put(two)
    listener.put_first(one)
    assert listener.take()[0] is one


def test_many_rows_enqueued_at_once_are_told_within_bounds(live):
    live.job(name="echo")(lambda: None)
    with live.events(types=["job.created", "skipped"]) as events:
        live.enqueue_many([("echo", {})] * 500)
        count = 0
        while count < 500:
            event = events.next(5)
            count += event.count if event.type is EventType.SKIPPED else 1
        assert count == 500


def test_a_log_is_followed_to_its_end_in_whole_lines(live):
    @live.job
    def talks(ctx) -> None:
        for number in range(3):
            ctx.log.info("line %d ä", number)

    job = live.enqueue("talks")
    with live.running():
        pieces = list(follow_log(Ask(live._session, None, Right.READ_LOG), job.id))
    assert all(piece.endswith("\n") for piece in pieces)
    assert "".join(pieces) == live.jobs.log(job.id).text


# ---- reports of schedules ------------------------------------------------------------------------------------------


def reported(changes):
    return [
        (event.type, event.schedule.name, event.schedule.phase, event.schedule.count)
        for event in (change.event() for change in changes)
        if event.schedule is not None
    ]


def test_a_due_time_that_was_missed_is_told_when_it_is_written_and_again_after_a_cursor(rota, clock, gatherer):
    rota.schedule("often", "echo", every=60, catch_up="none")
    gatherer.gather()
    cursor = gatherer.cursor
    clock.advance(minutes=10)
    rota.turn()
    news = [("schedule.missed", "often", "opened", 9), ("schedule.missed", "often", "closed", 9)]
    assert reported(gatherer.gather().changes) == news
    assert reported(gatherer.gather().changes) == []
    assert reported(again(rota._session.open().store, cursor, clock.now(), oldest=0)) == news


def test_reports_beyond_what_one_look_reads_come_with_the_next(rota, clock, gatherer, monkeypatch):
    monkeypatch.setattr(event_poller, "REPORTS_MAX", 3)
    for name in ("a", "b", "c"):
        rota.schedule(name, "echo", every=60, catch_up="none")
    clock.advance(minutes=10)
    rota.turn()
    looks = [len(reported(gatherer.gather().changes)) for _ in range(3)]
    assert looks == [3, 3, 0]


def test_a_report_written_in_the_middle_of_a_look_is_told_once(rota, clock, gatherer, monkeypatch):
    rota.schedule("often", "echo", every=60, catch_up="none")
    clock.advance(minutes=10)
    rota.turn()
    store = rota._session.open().store
    read = store.reports_after

    def late(report_id, *, limit):
        clock.advance(minutes=10)
        rota.turn()
        return read(report_id, limit=limit)

    monkeypatch.setattr(store, "reports_after", late)
    first = reported(gatherer.gather().changes)
    monkeypatch.setattr(store, "reports_after", read)
    assert len(first) == 4
    assert reported(gatherer.gather().changes) == []


def test_reports_are_seen_by_the_organization_and_by_who_created_the_schedule():
    report = ScheduleReport(
        event=ScheduleEvent.MISSED,
        phase=Phase.OPENED,
        schedule_id="0" * 32,
        schedule="nightly",
        organization="acme",
        owner="ada",
        template="echo",
        outcome=Fate.MISSED,
        due_at=0,
        last_due_at=0,
        count=1,
        reason=None,
        at=0,
    )
    change = Change(type=EventType.SCHEDULE_MISSED, at=0, report=report)
    sees = {
        View(): True,
        View(scope=Scope("acme")): True,
        View(scope=Scope("acme", "ada")): True,
        View(scope=Scope("acme", "bob")): False,
        View(scope=Scope("other")): False,
        View(job_type="echo"): True,
        View(job_type="other"): False,
        View(types=types_of("schedule")): True,
        View(types=types_of("schedule.refused")): False,
        View(types=types_of("job")): False,
        View(root_id="1" * 32): False,
    }
    assert {view: view.shows(change) for view in sees} == sees
