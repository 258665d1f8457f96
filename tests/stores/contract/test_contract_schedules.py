"""Schedules and calendars: made, changed, dropped, fired; each verb of `rota.ports.schedules`."""

from datetime import date

import msgspec
import pytest

from rota.errors import DependencyCycle, InvalidSchedule, NotFound, ScheduleExists, StillNeeded, TemplateUnavailable, UnknownTemplate
from rota.model.definitions import Organization, TemplateState
from rota.model.gate import Scope
from rota.model.schedules import Calendar, CatchUp, Fate, Kind, OnCompletion, Overlap, ScheduleState, Timing
from rota.model.values import SECOND
from rota.ports.store import DefinitionsChanged, Where
from tests.stores.desk import ANNA, START
from tests.stores.timekeeper import Timekeeper

MINUTE = 60 * SECOND
DAY = 86_400 * SECOND


@pytest.fixture
def desk(store):
    return Timekeeper(store)


def due_times(desk):
    return [(row.schedule, (row.due_at - START) // MINUTE) for row in desk.rows() if row.fate is Fate.FIRED]


def organization(name):
    return Organization(name=name, display_name=name.title())


def jobs(desk):
    return [job for _, job in desk.store.find(Where(), limit=10_000)][::-1]


# ---- making ------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_read_as_it_was_added(desk):
    desk.store.put_calendar(Calendar(name="off", days=frozenset()), organization="default", actor=ANNA, now=desk.now)
    desk.schedule("before")
    new = desk.schedule(
        "nightly",
        at_once=False,
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        starts_at=desk.now,
        ends_at=desk.now + 300 * DAY,
        state=ScheduleState.PAUSED,
        description="at night, “quoted”",
        params={"deep": {"list": [1, 2.5, None, "ü"]}},
        priority=75,
        catch_up=CatchUp.ALL,
        catch_up_lateness=5 * MINUTE,
        catch_up_count=3,
        overlap=Overlap.QUEUE,
        jitter=SECOND,
        calendar="off",
        on_completion=OnCompletion.DROP,
        depends_on=("before",),
        run_as="role",
        declared={"cron": "30 2 * * *"},
    )
    desk.store.add_schedule(new, actor=ANNA, now=desk.now)
    found = desk.read(new.id)
    written = {"next_at", "created_at", "updated_at"}
    for name in set(type(new).__struct_fields__) - written:
        assert getattr(found, name) == getattr(new, name), name
    assert found.next_at == 1_772_415_000 * SECOND
    assert found.created_at == found.updated_at
    assert round(found.created_at.timestamp() * SECOND) == desk.now


def test_a_name_is_taken_once_in_each_organization(desk):
    desk.store.put_organization(organization("other"), actor=ANNA, now=desk.now)
    desk.schedule()
    with pytest.raises(ScheduleExists, match="'s' already"):
        desk.schedule()
    desk.schedule(organization="other")
    assert [(each.organization, each.name) for each in desk.store.schedules()] == [("default", "s"), ("other", "s")]


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"template": "nothing"}, UnknownTemplate, "no template 'nothing'"),
        ({"calendar": "nothing"}, InvalidSchedule, "calendar='nothing' is not there"),
        ({"depends_on": ("nothing",)}, InvalidSchedule, "depends_on='nothing'"),
    ],
)
def test_what_is_not_there_is_refused_when_made_and_when_changed(desk, fields, error, match):
    with pytest.raises(error, match=match):
        desk.schedule("new", **fields)
    there = desk.schedule()
    desk.advance(60)
    with pytest.raises(error, match=match):
        desk.change(there.id, **fields)
    assert [each.name for each in desk.store.schedules()] == ["s"]
    # The closing of its ledger went with the change that was refused.
    assert desk.rows() == []
    assert jobs(desk) == []


@pytest.mark.parametrize("state", [TemplateState.DISABLED, TemplateState.ARCHIVED])
def test_a_schedule_comes_into_use_only_on_an_enabled_template(desk, state):
    desk.template("other")
    there, paused, off = desk.schedule(), desk.schedule("paused"), desk.schedule("off", state=ScheduleState.DISABLED)
    elsewhere = desk.schedule("elsewhere", template="other")
    desk.change(paused.id, state=ScheduleState.PAUSED)
    desk.store.set_template_state(there.template, state, actor=ANNA, now=desk.now)
    words = f"template '{there.template}' is {state.lower()}"
    for refused in (
        lambda: desk.schedule("new"),
        lambda: desk.schedule("new", state=ScheduleState.PAUSED),
        lambda: desk.change(off.id, state=ScheduleState.ENABLED),
        lambda: desk.change(off.id, state=ScheduleState.PAUSED),
        lambda: desk.change(paused.id, state=ScheduleState.ENABLED),
        lambda: desk.change(elsewhere.id, template=there.template),
    ):
        with pytest.raises(TemplateUnavailable, match=words):
            refused()
    # What is in use may be changed and taken out of use, and what is out of use may be kept.
    assert desk.change(there.id, description="x").state is ScheduleState.ENABLED
    assert desk.change(there.id, state=ScheduleState.PAUSED).state is ScheduleState.PAUSED
    assert desk.change(there.id, state=ScheduleState.DISABLED).state is ScheduleState.DISABLED
    assert desk.schedule("kept", state=ScheduleState.DISABLED).next_at is None
    desk.store.set_template_state(there.template, TemplateState.ENABLED, actor=ANNA, now=desk.now)
    assert desk.change(off.id, state=ScheduleState.ENABLED).next_at is not None


def test_a_rename_keeps_everything_but_the_name(desk):
    there = desk.schedule()
    desk.schedule("child", depends_on=("s",))
    desk.schedule("both", depends_on=("child", "s"))
    desk.store.put_organization(organization("other"), actor=ANNA, now=desk.now)
    desk.schedule("t", organization="other")
    desk.pass_time(60)
    ledger = [(row.due_at, row.fate) for row in desk.rows() if row.schedule == "s"]
    assert ledger
    before = {each.id: each for each in desk.store.schedules()}
    renamed = desk.change(there.id, name="t")
    assert (renamed.id, renamed.name, renamed.next_at, renamed.version) == (there.id, "t", before[there.id].next_at, 2)
    assert [(row.due_at, row.fate) for row in desk.rows() if row.schedule == "t" and row.organization == "default"] == ledger
    needs = {each.name: (each.depends_on, each.version) for each in desk.store.schedules() if each.depends_on}
    assert needs == {"child": (("t",), 2), "both": (("child", "t"), 2)}
    with pytest.raises(StillNeeded):
        desk.drop(there.id)
    written = [each for each in desk.store.audit(limit=10) if each.action == "schedule.edit"]
    assert [(each.subject_id, each.before["name"], each.after["name"]) for each in written] == [("t", "s", "t")]
    # The old name is free again, and another schedule of it is another one.
    assert desk.schedule("s").id != there.id


def test_a_rename_hides_no_circle(desk):
    there = desk.schedule()
    desk.schedule("child", depends_on=("s",))
    with pytest.raises(DependencyCycle):
        desk.change(there.id, name="t", depends_on=("child",))


def test_a_rename_to_a_name_that_is_taken_writes_nothing(desk):
    there, _ = desk.schedule(), desk.schedule("taken")
    with pytest.raises(ScheduleExists, match="'taken'"):
        desk.change(there.id, name="taken")
    assert desk.read(there.id).name == "s"
    assert desk.read(there.id).version == 1


def test_another_organization_is_none_to_depend_on_or_to_take_a_calendar_from(desk):
    desk.store.put_organization(organization("other"), actor=ANNA, now=desk.now)
    desk.store.put_calendar(Calendar(name="off", days=frozenset()), organization="default", actor=ANNA, now=desk.now)
    desk.schedule("mine")
    with pytest.raises(InvalidSchedule):
        desk.schedule("theirs", organization="other", depends_on=("mine",))
    with pytest.raises(InvalidSchedule):
        desk.schedule("theirs", organization="other", calendar="off")


def test_schedules_are_listed_by_organization_and_name_inside_a_scope(desk):
    desk.template("u")
    desk.store.put_organization(organization("acme"), actor=ANNA, now=desk.now)
    desk.schedule("b", created_by="bert")
    desk.schedule("a", template="u")
    desk.schedule("c", organization="acme")
    names = lambda **options: [each.name for each in desk.store.schedules(**options)]  # noqa: E731
    assert names() == ["c", "a", "b"]
    assert names(scope=Scope("default")) == ["a", "b"]
    assert names(scope=Scope("default", "bert")) == ["b"]
    assert names(name="b") == ["b"]
    assert names(template="u") == ["a"]
    assert names(name="b", template="u") == []


def test_the_beat_tells_the_earliest_due_time_and_the_furthest_moment(desk):
    assert desk.store.beat_of_schedules().next_at is None
    desk.schedule("slow", interval=DAY)
    quick = desk.schedule("quick")
    desk.schedule("depends", interval=90 * SECOND, depends_on=("slow",))
    assert desk.store.beat_of_schedules().next_at == START + MINUTE
    assert desk.store.beat_of_schedules().furthest == START
    desk.change(quick.id, state=ScheduleState.DISABLED)
    assert desk.store.beat_of_schedules().next_at == START + 90 * SECOND
    desk.pass_time(100)
    assert desk.store.beat_of_schedules().furthest == START + 100 * SECOND


# ---- firing ------------------------------------------------------------------------------------------------------------


def test_job_row_and_cursor_advance_together(desk):
    schedule = desk.schedule(params={"a": 1})
    fired = desk.pass_time(60)
    ((row,), found) = desk.rows(), desk.read(schedule.id)
    assert (row.fate, row.due_at, row.last_due_at, row.count, row.reason) == ("FIRED", START + MINUTE, START + MINUTE, 1, None)
    assert (found.cursor_at, found.next_at, found.last_at) == (START + MINUTE, START + 2 * MINUTE, START + MINUTE)
    (job,) = jobs(desk)
    assert (job.id.replace("-", ""), job.schedule_id.replace("-", "")) == (row.job_id, schedule.id)
    assert (job.status, job.origin, round(job.due_at.timestamp() * SECOND)) == ("QUEUED", "schedule", START + MINUTE)
    assert (fired.settled, fired.unfinished) == ([], False)


def test_firing_tells_of_due_times_that_did_not_fire(desk):
    desk.schedule("fires")
    late, paused = desk.schedule("late"), desk.schedule("paused", interval=2 * MINUTE, state=ScheduleState.PAUSED)
    desk.pass_time(60)
    desk.change(late.id, catch_up=CatchUp.NONE)
    told = {each.schedule.id: [(row.fate, row.count) for row in each.rows] for each in desk.pass_time(120).settled}
    assert told[late.id] == [("MISSED", 1), ("FIRED", 1)]
    assert told[paused.id] == [("SKIPPED_PAUSED", 1)]


def test_a_row_without_a_job_has_no_id_of_one(desk):
    desk.schedule(state=ScheduleState.PAUSED)
    desk.pass_time(60)
    assert [(row.job_id, row.status, row.ran) for row in desk.rows()] == [(None, None, False)]


def test_firing_again_at_the_same_moment_does_nothing_more(desk):
    desk.schedule()
    desk.pass_time(60)
    before = desk.snapshot(), desk.rows()
    desk.fire()
    assert (desk.snapshot(), desk.rows()) == before


def test_two_who_fire_at_the_same_moment_make_one_job(desk, maker):
    desk.schedule()
    other = Timekeeper(maker.open())
    desk.advance(60)
    other.now = desk.now
    desk.fire()
    other.fire()
    assert other.decided == []
    assert len(jobs(desk)) == len(desk.rows()) == 1


def test_what_a_decision_raises_undoes_everything(desk):
    first, second = desk.schedule("a"), desk.schedule("b")
    desk.advance(60)

    def decide(due):
        if due.schedule.id == second.id:
            raise RuntimeError("no")
        return desk.decide(due)

    with pytest.raises(RuntimeError):
        desk.fire(decide)
    assert (desk.rows(), jobs(desk), desk.read(first.id).cursor_at) == ([], [], START)
    desk.fire()
    assert len(desk.rows()) == 2


def test_definitions_that_changed_meanwhile_are_told_and_nothing_is_written(desk):
    schedule = desk.schedule()
    version = desk.store.definitions()
    desk.template("u")
    desk.advance(60)
    for verb in (
        lambda: desk.fire(definitions=version),
        lambda: desk.change(schedule.id, definitions=version, description="x"),
        lambda: desk.store.drop_schedule(schedule.id, desk.decide, actor=ANNA, now=desk.now, definitions=version),
    ):
        with pytest.raises(DefinitionsChanged):
            verb()
    assert (desk.rows(), desk.read(schedule.id), len(desk.store.schedules())) == ([], schedule, 1)
    desk.fire(definitions=desk.store.definitions())
    assert len(desk.rows()) == 1


def test_at_most_so_many_fire_in_one_transaction_and_the_rest_in_the_next(desk):
    for index in range(7):
        desk.schedule(f"s{index}")
    desk.advance(60)
    assert [(desk.fire(limit=3).unfinished, len(desk.rows())) for _ in range(4)] == [(True, 3), (True, 6), (False, 7), (False, 7)]
    assert len({row.schedule for row in desk.rows()}) == 7


def test_those_longest_overdue_fire_first(desk):
    for name, minutes in (("c", 3), ("a", 1), ("b", 2)):
        desk.schedule(name, interval=minutes * MINUTE)
    desk.pass_time(180, limit=2)
    assert [each.schedule.name for each in desk.decided] == ["a", "b"]


def test_a_decision_is_given_what_it_rests_on(desk, maker):
    schedule = desk.schedule()
    days = frozenset({date(2026, 12, 25)})
    desk.store.put_calendar(Calendar(name="off", days=days), organization="default", actor=ANNA, now=desk.now)
    desk.change(schedule.id, calendar="off")
    desk.pass_time(60)
    desk.pass_time(60)
    maker.limit_queue("default", 5)
    desk.pass_time(60)
    due = desk.decided[-1]
    assert due.live == tuple(row.job_id for row in desk.rows()[:2])
    assert (due.calendar.days, due.room, due.already) == (days, 3, ())
    assert (due.schedule.name, due.schedule.cursor_at) == ("s", START + 2 * MINUTE)


def test_a_retried_chain_is_one_that_lives_and_one_that_ended_is_none(desk):
    from rota.model.decide import Completed, Failed

    desk.schedule()
    desk.pass_time(60)
    root = desk.rows()[0].job_id
    desk.run_to(Failed("x"))
    desk.pass_time(60)
    assert desk.decided[-1].live == (root,)
    desk.advance(3)
    job = desk.claim_one()
    assert job.root_id == desk.rows()[1].job_id
    desk.end(job, Completed(None))
    desk.pass_time(57)
    assert desk.decided[-1].live == (root,)


def test_jobs_behind_all_that_live_are_one_line_whatever_is_retried_or_cancelled_meanwhile(desk):
    from rota.model.decide import Failed

    def in_line(due):
        firing = desk.decide(due)
        for job in firing.jobs:
            job.behind = due.live
        return firing

    schedule = desk.schedule()
    desk.pass_time(60, decide=in_line)
    first = desk.claim_one()
    desk.put(desk.row(schedule_id=schedule.id))
    desk.pass_time(60, decide=in_line)
    assert len(desk.decided[-1].live) == 2
    by_hand = desk.claim_one()
    # Its retry is younger than those that wait for its chain.
    desk.end(first, Failed("x"))
    desk.pass_time(60, decide=in_line)
    roots = [row.job_id for row in desk.rows()]
    assert desk.decided[-1].live == (roots[1],)
    desk.store.cancel(roots[1], actor=ANNA, now=desk.now)
    desk.done(by_hand)
    retry = desk.claim_one()
    assert (retry.root_id, desk.job(roots[2]).blockers) == (first.root_id, 1)
    desk.done(retry)
    assert desk.claim_one().root_id == roots[2]


def test_a_due_time_can_not_become_two_jobs_whatever_is_decided(desk):
    """The last net: who decides wrongly gets an error and changes nothing."""
    schedule = desk.schedule()
    desk.pass_time(60)

    def again(due):
        firing = desk.decide(due)
        row = msgspec.structs.replace(firing.rows[0], due_at=START + MINUTE, last_due_at=START + MINUTE)
        firing.jobs[0].row.due_at = START + MINUTE
        firing.rows = [row]
        return firing

    desk.advance(60)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate key"):
        desk.fire(again)
    assert len(jobs(desk)) == len(desk.rows()) == 1
    assert desk.read(schedule.id).cursor_at == START + MINUTE


def test_jobs_of_many_schedules_keep_what_is_their_own(desk):
    desk.store.put_organization(organization("acme"), actor=ANNA, now=desk.now)
    desk.template("u")
    made = [
        desk.schedule("a"),
        desk.schedule("b", organization="acme"),
        desk.schedule("c", template="u"),
        desk.schedule("d", created_by="bert"),
        desk.schedule("e"),
    ]
    desk.pass_time(60)
    by_schedule = {job.schedule_id.replace("-", ""): job for job in jobs(desk)}
    assert [by_schedule[each.id].organization for each in made] == ["default", "acme", "default", "default", "default"]
    assert [by_schedule[each.id].job_type for each in made] == ["t", "t", "u", "t", "t"]
    assert [by_schedule[each.id].owner for each in made] == ["anna", "anna", "anna", "bert", "anna"]
    assert {row.job_id: row.schedule_id for row in desk.rows()} == {job.id.replace("-", ""): key for key, job in by_schedule.items()}


def test_two_due_times_of_one_schedule_in_one_firing_are_two_jobs(desk):
    desk.schedule(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    desk.pass_time(180)
    assert due_times(desk) == [("s", 1), ("s", 2), ("s", 3)]
    assert [round(job.due_at.timestamp() - START / SECOND) for job in jobs(desk)] == [60, 120, 180]


# ---- one that is over --------------------------------------------------------------------------------------------------


def test_an_at_that_is_over_is_disabled_or_dropped(desk):
    kept = desk.schedule("kept", at=START + MINUTE)
    gone = desk.schedule("gone", at=START + MINUTE, on_completion=OnCompletion.DROP)
    desk.pass_time(3600)
    assert [(each.name, each.state, each.next_at) for each in desk.store.schedules()] == [("kept", "DISABLED", None)]
    assert due_times(desk) == [("kept", 1), ("gone", 1)]
    assert desk.read(gone.id).name == "gone"
    assert desk.store.beat_of_schedules().next_at is None
    desk.schedule("gone")
    assert desk.change(kept.id, description="over").state == "DISABLED"


def test_an_at_that_others_depend_on_is_kept_for_them(desk):
    desk.schedule("gone", at=START + MINUTE, on_completion=OnCompletion.DROP)
    desk.schedule("child", at=START + MINUTE, depends_on=("gone",))
    desk.pass_time(60)
    assert [(each.name, each.state) for each in desk.store.schedules()] == [("child", "DISABLED"), ("gone", "DISABLED")]
    parent, child = (desk.job_of(row) for row in sorted(desk.rows(), key=lambda row: row.schedule != "gone"))
    assert (desk.status(parent), desk.status(child)) == ("QUEUED", "PENDING")


def test_an_at_that_is_edited_just_when_it_was_due_fires_first_and_is_over(desk):
    schedule = desk.schedule(at=START + MINUTE)
    desk.advance(60)
    changed = desk.change(schedule.id, description="late")
    assert (changed.state, changed.next_at, changed.description) == ("DISABLED", None, "late")
    assert desk.fates() == [("FIRED", 1)]


def test_an_at_that_is_moved_just_when_it_was_due_fires_twice_by_both_definitions(desk):
    schedule = desk.schedule(at=START + MINUTE)
    desk.advance(60)
    changed = desk.change(schedule.id, timing=msgspec.structs.replace(schedule.timing, at=START + 5 * MINUTE))
    assert (changed.state, changed.next_at) == ("ENABLED", START + 5 * MINUTE)
    desk.pass_time(300)
    assert due_times(desk) == [("s", 1), ("s", 5)]


def test_one_to_be_dropped_that_was_due_is_not_there_to_be_changed(desk):
    schedule = desk.schedule(at=START + MINUTE, on_completion=OnCompletion.DROP)
    desk.advance(60)
    with pytest.raises(NotFound, match="schedule 's' is over"):
        desk.change(schedule.id, description="late")
    # Both or neither: it fires when the trigger comes to it.
    assert desk.rows() == []
    desk.fire()
    assert desk.fates() == [("FIRED", 1)]


def test_the_last_due_time_is_the_one_at_its_end(desk):
    desk.schedule(ends_at=START + 2 * MINUTE)
    for _ in range(4):
        desk.pass_time(60)
    assert due_times(desk) == [("s", 1), ("s", 2)]
    assert desk.store.schedules()[0].next_at is None


# ---- changing ----------------------------------------------------------------------------------------------------------


def every(desk, minutes):
    return Timing(kind=Kind.EVERY, interval=minutes * MINUTE, starts_at=desk.now)


def test_an_edit_closes_the_ledger_by_the_old_definition(desk):
    schedule = desk.schedule()
    desk.advance(150)
    changed = desk.change(schedule.id, timing=every(desk, 10))
    assert desk.fates() == [("COALESCED", 1), ("FIRED", 1)]
    assert (changed.cursor_at, changed.next_at, changed.version) == (desk.now, desk.now + 10 * MINUTE, 2)
    desk.fire()
    desk.pass_time(599)
    assert len(desk.rows()) == 2
    desk.pass_time(1)
    assert desk.fates() == [("COALESCED", 1), ("FIRED", 1), ("FIRED", 1)]


def test_a_change_that_changes_nothing_writes_nothing(desk, maker):
    schedule = desk.schedule()
    trail = maker.audit()
    desk.advance(90)
    assert desk.change(schedule.id, description=None) == desk.read(schedule.id) == schedule
    assert (desk.rows(), maker.audit()) == ([], trail)


def test_an_edit_touches_no_job_that_is_there(desk):
    schedule = desk.schedule()
    desk.pass_time(60)
    before = jobs(desk)
    desk.change(schedule.id, params={"new": 1}, priority=99, template="t", timing=every(desk, 5))
    desk.change(schedule.id, state=ScheduleState.DISABLED)
    desk.drop(schedule.id)
    assert jobs(desk) == before


def test_a_pause_skips_due_times_and_says_so(desk):
    schedule = desk.schedule()
    desk.advance(60)
    desk.change(schedule.id, state=ScheduleState.PAUSED)
    assert desk.fates() == [("FIRED", 1)]
    for _ in range(3):
        desk.pass_time(60)
    assert desk.fates() == [("FIRED", 1), ("SKIPPED_PAUSED", 3)]
    desk.advance(60)
    desk.change(schedule.id, state=ScheduleState.ENABLED)
    assert desk.fates() == [("FIRED", 1), ("SKIPPED_PAUSED", 4)]
    desk.pass_time(60)
    assert desk.fates() == [("FIRED", 1), ("SKIPPED_PAUSED", 4), ("FIRED", 1)]


def test_what_is_disabled_has_no_due_times_and_enabling_does_not_replay(desk):
    schedule = desk.schedule()
    desk.advance(60)
    disabled = desk.change(schedule.id, state=ScheduleState.DISABLED)
    assert (desk.fates(), disabled.next_at) == ([("FIRED", 1)], None)
    desk.pass_time(600)
    enabled = desk.change(schedule.id, state=ScheduleState.ENABLED)
    assert (enabled.cursor_at, enabled.next_at) == (desk.now, desk.now + MINUTE)
    desk.pass_time(60)
    assert due_times(desk) == [("s", 1), ("s", 12)]


def test_a_drop_closes_the_ledger_and_keeps_jobs_and_rows(desk):
    schedule = desk.schedule()
    desk.advance(60)
    desk.drop(schedule.id)
    assert (desk.store.schedules(), desk.fates(), len(jobs(desk))) == ([], [("FIRED", 1)], 1)
    assert desk.read(schedule.id).id == schedule.id
    desk.pass_time(600)
    again = desk.schedule()
    desk.pass_time(60)
    assert desk.fates(schedule.id) == desk.fates(again.id) == [("FIRED", 1)]


def test_what_was_dropped_is_not_found(desk):
    schedule = desk.schedule()
    desk.drop(schedule.id)
    for verb in (lambda: desk.drop(schedule.id), lambda: desk.change(schedule.id, description="x"), lambda: desk.drop(desk.id())):
        with pytest.raises(NotFound):
            verb()
    assert desk.store.schedule(desk.id()) is None


def test_one_that_others_depend_on_can_not_be_dropped(desk):
    parent, child = desk.schedule("parent"), desk.schedule("child", depends_on=("parent",))
    with pytest.raises(StillNeeded, match="needed by 'child'"):
        desk.drop(parent.id)
    desk.drop(child.id)
    desk.drop(parent.id)


def test_a_circle_is_refused_with_its_path(desk):
    desk.schedule("a")
    desk.schedule("b", depends_on=("a",))
    desk.schedule("c", depends_on=("b",))
    with pytest.raises(DependencyCycle, match="a → c → b → a") as told:
        desk.change(desk.store.schedules(name="a")[0].id, depends_on=("c",))
    assert told.value.path == ("a", "c", "b", "a")
    assert desk.store.schedules(name="a")[0].depends_on == ()


def test_a_change_may_refuse_by_raising(desk):
    schedule = desk.schedule()
    desk.advance(60)

    def refuse(_):
        raise InvalidSchedule("no")

    with pytest.raises(InvalidSchedule):
        desk.store.change_schedule(schedule.id, refuse, desk.decide, actor=ANNA, now=desk.now)
    assert desk.rows() == []


def test_each_change_is_audited_once_with_both_sides(desk, maker):
    schedule = desk.schedule()
    desk.change(schedule.id, description="x", priority=75)
    desk.change(schedule.id, state=ScheduleState.PAUSED)
    desk.drop(schedule.id)
    trail = [entry for entry in maker.audit() if entry["subject"] == "schedule"]
    assert [(entry["action"], entry["subject_id"]) for entry in trail] == [
        ("schedule.create", "s"),
        ("schedule.edit", "s"),
        ("schedule.edit", "s"),
        ("schedule.delete", "s"),
    ]
    assert (trail[0]["before"], trail[0]["after"]["every"]) == (None, 60)
    assert ("description" in trail[1]["before"], trail[1]["after"]["description"], trail[1]["after"]["priority"]) == (False, "x", 75)
    assert (trail[2]["before"]["state"], trail[2]["after"]["state"]) == ("ENABLED", "PAUSED")
    assert (trail[3]["before"]["state"], trail[3]["after"]) == ("PAUSED", None)


def test_firing_is_not_audited(desk, maker):
    desk.schedule()
    trail = maker.audit()
    desk.pass_time(60)
    assert maker.audit() == trail


# ---- by hand -----------------------------------------------------------------------------------------------------------


def test_a_job_fired_by_hand_belongs_to_the_schedule_and_to_no_due_time(desk):
    schedule = desk.schedule()
    desk.put(desk.row(schedule_id=schedule.id), desk.row(schedule_id=schedule.id))
    assert [(job.schedule_id.replace("-", ""), job.due_at) for job in jobs(desk)] == [(schedule.id, None)] * 2
    assert (desk.rows(), desk.read(schedule.id)) == ([], schedule)
    desk.pass_time(60)
    assert len(desk.decided[-1].live) == 2
    assert due_times(desk) == [("s", 1)]


# ---- calendars ---------------------------------------------------------------------------------------------------------


def calendar(desk, name="off", days=("2026-12-25",), **fields):
    new = Calendar(name=name, days=frozenset(map(date.fromisoformat, days)), **fields)
    desk.store.put_calendar(new, organization="default", actor=ANNA, now=desk.now)
    return new


def test_calendars_are_made_changed_and_read_by_name(desk):
    desk.store.put_organization(organization("acme"), actor=ANNA, now=desk.now)
    b, a = calendar(desk, "b", description="x"), calendar(desk, "a", days=())
    theirs = Calendar(name="b", days=frozenset())
    desk.store.put_calendar(theirs, organization="acme", actor=ANNA, now=desk.now)
    assert desk.store.calendars() == [("acme", theirs), ("default", a), ("default", b)]
    changed = calendar(desk, "b", days=("2026-01-01", "2026-12-25"))
    assert desk.store.calendars(organization="default") == [("default", a), ("default", changed)]


def test_a_calendar_that_is_the_same_is_audited_no_more(desk, maker):
    calendar(desk)
    calendar(desk)
    calendar(desk, days=())
    desk.store.drop_calendar("off", organization="default", actor=ANNA, now=desk.now)
    trail = [entry for entry in maker.audit() if entry["subject"] == "calendar"]
    assert [
        (entry["action"], entry["before"] and entry["before"]["days"], entry["after"] and entry["after"]["days"]) for entry in trail
    ] == [
        ("calendar.set", None, ["2026-12-25"]),
        ("calendar.set", ["2026-12-25"], []),
        ("calendar.delete", [], None),
    ]


def test_a_calendar_in_use_can_not_be_dropped(desk):
    calendar(desk)
    schedule = desk.schedule(calendar="off")
    with pytest.raises(StillNeeded, match="used by 's'"):
        desk.store.drop_calendar("off", organization="default", actor=ANNA, now=desk.now)
    desk.drop(schedule.id)
    desk.store.drop_calendar("off", organization="default", actor=ANNA, now=desk.now)
    with pytest.raises(NotFound, match="no calendar 'off'"):
        desk.store.drop_calendar("off", organization="default", actor=ANNA, now=desk.now)


def test_a_day_off_is_of_the_schedules_own_zone(desk):
    # 2026-03-02 in Auckland is 2026-03-01 11:00 to 2026-03-02 11:00 UTC; the clock stands at 12:00 UTC.
    calendar(desk, days=("2026-03-02",))
    there = desk.schedule("there", cron="0 * * * *", timezone="Pacific/Auckland", calendar="off")
    here = desk.schedule("here", cron="0 * * * *", calendar="off")
    desk.pass_time(3600)
    assert (desk.fates(there.id), desk.fates(here.id)) == ([("SKIPPED_CALENDAR", 1)], [("FIRED", 1)])
    assert desk.rows(there.id)[0].reason == "excluded by calendar 'off'"
