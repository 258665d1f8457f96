"""The trigger: what becomes of due times, by the rules of schedule, template, organization and owner (S3-S11)."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from rota import PermanentError, Rota, Settings
from rota.errors import NotFound
from rota.model.schedules import Fate
from rota.model.values import SECOND, instant
from rota.stores.sqlite import SqliteStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings():
    return Settings(synchronous="NORMAL", retention=0)


@pytest.fixture
def rota(rota):
    ran = rota.ran = []
    rota.job(name="work", default_params={"a": 1, "b": 1}, priority=40)(lambda a=0, b=0, c=0: ran.append((a, b, c)))
    rota.job(name="held")(lambda: ran.append("held"))

    @rota.job
    def dies():
        raise PermanentError("x")

    rota.templates.pause("held")
    return rota


def told(rota, name=None, **filters):
    """The ledger, oldest first: fate and how many."""
    return [(row.fate, row.count) for row in rota.schedules.occurrences(name, limit=1000, **filters)[::-1]]


def due(rota, name="s"):
    """When jobs of a schedule were due, in minutes since noon."""
    return [(row.due_at - NOON) / timedelta(minutes=1) for row in rota.schedules.occurrences(name, fate="FIRED", limit=1000)[::-1]]


def jobs(rota, name="s"):
    """The jobs of a schedule, oldest first."""
    schedule_id = rota.schedules.get(name).id
    return [job for job in rota.jobs.list(limit=1000)[::-1] if job.schedule_id == schedule_id]


def minutes(rota, clock, count):
    for _ in range(count):
        clock.advance(minutes=1)
        rota.turn()


# ---- when --------------------------------------------------------------------------------------------------------------


def test_every_is_anchored_where_it_was_made_and_does_not_drift(rota, clock):
    rota.schedule("s", "work", every="10m")
    for step in (9.9, 0.2, 9.95, 10.3, 9.7, 10.0):
        clock.advance(minutes=step)
        rota.turn()
    assert due(rota) == [10, 20, 30, 40, 50]


def test_every_is_anchored_at_its_start_where_one_is_given(rota, clock):
    rota.schedule("s", "work", every="10m", starts=NOON + timedelta(minutes=3), ends=NOON + timedelta(minutes=23))
    minutes(rota, clock, 40)
    assert due(rota) == [3, 13, 23]
    assert rota.schedules.get("s").next_at is None


def test_an_at_fires_once_late_if_nobody_was_there_and_is_then_disabled(rota, clock):
    rota.schedule("s", "work", at=NOON + timedelta(minutes=5))
    clock.advance(days=2)
    rota.turn()
    view = rota.schedules.get("s")
    assert (due(rota), view.state, view.next_at, view.last_at) == ([5], "DISABLED", None, NOON + timedelta(minutes=5))
    clock.advance(days=2)
    rota.turn()
    assert len(rota.ran) == 1


@pytest.mark.parametrize("verb", ["update", "schedule"])
def test_an_at_that_is_over_and_is_given_another_time_fires_again(rota, clock, verb):
    rota.schedule("s", "work", at=NOON + timedelta(minutes=5))
    minutes(rota, clock, 6)
    again = NOON + timedelta(minutes=9)
    rota.schedules.update("s", at=again) if verb == "update" else rota.schedule("s", "work", at=again)
    assert (rota.schedules.get("s").state, rota.schedules.get("s").next_at) == ("ENABLED", NOON + timedelta(minutes=9))
    minutes(rota, clock, 6)
    assert (due(rota), rota.schedules.get("s").state) == ([5, 9], "DISABLED")
    rota.schedules.update("s", every="1m")
    assert rota.schedules.get("s").state == "ENABLED"


def test_an_at_that_somebody_disabled_stays_so_when_it_is_given_another_time(rota, clock):
    rota.schedule("s", "work", at=NOON + timedelta(minutes=5))
    rota.schedules.disable("s")
    minutes(rota, clock, 6)
    rota.schedules.update("s", at=NOON + timedelta(minutes=9))
    assert rota.schedules.get("s").state == "DISABLED"
    rota.schedules.update("s", description="as it was")
    minutes(rota, clock, 6)
    assert due(rota) == []


def test_an_at_that_is_not_to_be_kept_is_gone_once_it_fired(rota, clock):
    rota.schedules.create("s", "work", at=NOON + timedelta(minutes=5), on_completion="DROP")
    minutes(rota, clock, 6)
    assert rota.schedules.list() == []
    assert [(row.schedule, row.fate, row.status) for row in rota.schedules.occurrences()] == [("s", "FIRED", "COMPLETED")]


@pytest.mark.parametrize(
    "change",
    [
        lambda rota: rota.schedules.disable("s"),
        lambda rota: rota.schedules.pause("s"),
        lambda rota: rota.schedules.update("s", description="new"),
        lambda rota: rota.schedules.update("s", at=NOON + timedelta(days=1)),
    ],
    ids=["disable", "pause", "edit", "another time"],
)
def test_an_at_that_is_not_to_be_kept_and_was_due_can_not_be_changed_any_more(rota, clock, change):
    rota.schedules.create("s", "work", at=NOON + timedelta(minutes=5), on_completion="DROP")
    clock.advance(minutes=6)
    before = rota.schedules.get("s")
    with pytest.raises(NotFound, match="schedule 's' is over: it was due, and its on_completion is DROP"):
        change(rota)
    # Nothing was written: it fires by the definition that held when it was due.
    assert (rota.schedules.get("s"), rota.jobs.list()) == (before, [])
    rota.turn()
    assert (rota.schedules.list(), [(row.schedule, row.fate) for row in rota.schedules.occurrences()]) == ([], [("s", "FIRED")])


def test_an_at_that_is_not_to_be_kept_and_was_due_fires_when_it_is_deleted(rota, clock):
    rota.schedules.create("s", "work", at=NOON + timedelta(minutes=5), on_completion="DROP")
    clock.advance(minutes=6)
    rota.schedules.delete("s")
    assert (rota.schedules.list(), [(row.schedule, row.fate) for row in rota.schedules.occurrences()]) == ([], [("s", "FIRED")])


def test_an_at_that_is_kept_and_was_due_fires_and_then_is_what_it_is_set_to(rota, clock):
    rota.schedules.create("s", "work", at=NOON + timedelta(minutes=5))
    clock.advance(minutes=6)
    assert (rota.schedules.disable("s").state, due(rota)) == ("DISABLED", [5])


def test_an_at_of_this_very_moment_fires_at_once(rota, clock):
    rota.schedules.create("s", "work", at=NOON)
    rota.turn()
    assert due(rota) == [0]


# ---- catching up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "late", "fates"),
    [
        ({"catch_up": "none"}, 59, [("MISSED", 9), ("FIRED", 1)]),
        ({"catch_up": "none"}, 61, [("MISSED", 10)]),
        ({"catch_up": "last"}, 59, [("COALESCED", 9), ("FIRED", 1)]),
        ({"catch_up": "last"}, 290, [("COALESCED", 9), ("FIRED", 1)]),
        ({"catch_up": "last", "catch_up_lateness": "4m"}, 239, [("COALESCED", 9), ("FIRED", 1)]),
        ({"catch_up": "last", "catch_up_lateness": "4m"}, 241, [("MISSED", 10)]),
        ({"catch_up": "all", "overlap": "queue"}, 290, [("FIRED", 1)] * 10),
        ({"catch_up": "all", "overlap": "queue", "catch_up_count": 3}, 290, [("MISSED", 7), *[("FIRED", 1)] * 3]),
        ({"catch_up": "all", "overlap": "allow", "catch_up_lateness": "11m"}, 100, [("MISSED", 8), *[("FIRED", 1)] * 2]),
    ],
)
def test_what_was_due_while_nobody_was_there_is_caught_up_as_told(rota, clock, options, late, fates):
    rota.schedule("s", "work", every="5m", **options)
    clock.advance(minutes=50, seconds=late)
    rota.turn()
    assert told(rota) == fates
    assert len(rota.ran) == fates.count(("FIRED", 1))


@pytest.mark.parametrize("overlap", ["queue", "allow"])
def test_catching_up_all_is_paced_one_after_the_other(rota, clock, overlap):
    rota.schedule("s", "held", every="5m", catch_up="all", overlap=overlap)
    clock.advance(minutes=20)
    rota.turn()
    assert [job.status for job in jobs(rota)] == ["QUEUED", "PENDING", "PENDING", "PENDING"]
    rota.templates.resume("held")
    rota.turn()
    assert [job.status for job in jobs(rota)] == ["COMPLETED"] * 4
    starts = [job.number for job in sorted(jobs(rota), key=lambda job: job.queued_at)]
    assert starts == [job.number for job in jobs(rota)]


def test_no_more_than_the_setting_are_caught_up_at_once(tmp_path, clock):
    rota = Rota(tmp_path / "r.db", clock=clock, settings=Settings(catch_up_max=7, synchronous="NORMAL"))
    rota.job(name="work")(lambda: None)
    rota.schedule("s", "work", every=60, catch_up="all", overlap="queue")
    clock.advance(days=30)
    rota.turn()
    assert told(rota) == [("MISSED", 43_193), *[("FIRED", 1)] * 7]
    rota.close()


# ---- overlaps ----------------------------------------------------------------------------------------------------------


def test_overlap_skip_leaves_out_due_times_while_an_earlier_job_is_not_over(rota, clock):
    rota.schedule("s", "held", every="5m")
    minutes(rota, clock, 17)
    assert told(rota) == [("FIRED", 1), ("SKIPPED_OVERLAP", 2)]
    (job,) = jobs(rota)
    assert rota.schedules.occurrences("s")[0].reason == f"job {job.id} of an earlier due time is not over"
    rota.templates.resume("held")
    minutes(rota, clock, 5)
    assert told(rota) == [("FIRED", 1), ("SKIPPED_OVERLAP", 2), ("FIRED", 1)]


def test_a_job_that_waits_for_its_retry_is_not_over(rota, clock):
    attempts = []

    @rota.job(max_retries=1, backoff=None)
    def flaky(ctx):
        attempts.append(ctx.attempt)
        raise ValueError("x")

    rota.templates.update("flaky", backoff={"base": 600, "jitter": 0})
    rota.schedule("s", "flaky", every="5m")
    minutes(rota, clock, 11)
    assert (told(rota), attempts) == ([("FIRED", 1), ("SKIPPED_OVERLAP", 1)], [1])


def test_overlap_queue_waits_for_the_job_before_whatever_its_end(rota, clock):
    rota.schedule("s", "held", every="5m", overlap="queue")
    minutes(rota, clock, 17)
    first, second, third = jobs(rota)
    assert [job.status for job in (first, second, third)] == ["QUEUED", "PENDING", "PENDING"]
    rota.jobs.cancel(first.id)
    rota.templates.resume("held")
    rota.turn()
    assert [job.status for job in jobs(rota)] == ["CANCELLED", "COMPLETED", "COMPLETED"]


def test_overlap_queue_lets_nobody_overtake_where_one_in_between_is_cancelled(rota, clock):
    rota.schedule("s", "held", every="5m", overlap="queue")
    minutes(rota, clock, 17)
    first, second, third = jobs(rota)
    rota.jobs.cancel(second.id)
    rota.turn()
    assert [job.status for job in jobs(rota)] == ["QUEUED", "CANCELLED", "PENDING"]
    rota.jobs.cancel(first.id)
    rota.turn()
    assert rota.jobs.get(third.id).status == "QUEUED"


def test_overlap_queue_is_one_line_also_behind_a_job_that_is_retried(rota, clock):
    attempts = []

    @rota.job(max_retries=1)
    def flaky(ctx):
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise ValueError("x")

    rota.templates.update("flaky", backoff={"base": 60, "jitter": 0})
    rota.templates.pause("flaky")
    rota.schedule("s", "flaky", every="5m", overlap="queue")
    minutes(rota, clock, 10)
    rota.templates.resume("flaky")
    rota.turn()
    rota.templates.pause("flaky")
    minutes(rota, clock, 5)
    first, second, third = (job for job in jobs(rota) if job.attempt == 1)
    assert [rota.jobs.get(job.id).status for job in (first, second, third)] == ["FAILED", "PENDING", "PENDING"]
    rota.jobs.cancel(first.id)
    rota.turn()
    assert [rota.jobs.get(job.id).status for job in (second, third)] == ["QUEUED", "PENDING"]


def test_overlap_queue_waits_for_all_that_are_not_over_those_fired_by_hand_among_them(rota, clock):
    rota.schedule("s", "held", every="5m", overlap="queue")
    minutes(rota, clock, 5)
    by_hand = rota.schedules.fire("s")
    minutes(rota, clock, 5)
    first, third = (job for job in jobs(rota) if job.due_at)
    rota.jobs.cancel(by_hand.id)
    rota.turn()
    assert rota.jobs.get(third.id).status == "PENDING"
    rota.jobs.cancel(first.id)
    rota.turn()
    assert rota.jobs.get(third.id).status == "QUEUED"


def test_overlap_allow_looks_at_nobody(rota, clock):
    rota.schedule("s", "held", every="5m", overlap="allow")
    minutes(rota, clock, 17)
    assert [job.status for job in jobs(rota)] == ["QUEUED"] * 3


def test_a_dead_chain_never_stops_its_schedule(rota, clock):
    rota.schedule("s", "dies", every="5m")
    minutes(rota, clock, 16)
    assert [(row.fate, row.status, row.ran) for row in rota.schedules.occurrences("s")] == [("FIRED", "DEAD_LETTER", False)] * 3
    assert len(rota.schedules.occurrences(not_ran=True)) == 3


# ---- what a job gets ---------------------------------------------------------------------------------------------------


def test_params_are_the_templates_under_the_schedules_own_and_those_given_by_hand(rota, clock):
    rota.schedule("s", "work", every="5m", params={"b": 2})
    rota.schedule("plain", "work", every="5m")
    minutes(rota, clock, 5)
    rota.schedules.fire("s", {"c": 3})
    rota.turn()
    assert sorted(rota.ran) == [(1, 1, 0), (1, 2, 0), (1, 2, 3)]


def test_the_priority_is_the_schedules_or_the_templates(rota, clock):
    rota.schedule("s", "work", every="5m", priority="high")
    rota.schedule("plain", "work", every="5m")
    minutes(rota, clock, 5)
    assert (jobs(rota)[0].priority, jobs(rota, "plain")[0].priority) == (75, 40)


def test_jitter_spreads_jobs_inside_its_bound_and_leaves_due_times_alone(rota, clock):
    rota.schedule("s", "work", every="10m", jitter="2m", overlap="allow")
    minutes(rota, clock, 200)
    delays = [(job.run_at - job.due_at).total_seconds() for job in jobs(rota)]
    assert due(rota) == [10 * (index + 1) for index in range(20)]
    assert all(0 <= delay <= 120 for delay in delays)
    assert len(set(delays)) > 10


def test_a_job_says_which_schedule_it_is_of_when_it_was_due_and_whose_it_is(rota, clock):
    rota.users.create("ada", role="admin")
    rota.acting_as("ada").schedules.create("s", "work", every="5m")
    minutes(rota, clock, 5)
    (job,) = jobs(rota)
    assert (job.origin, job.due_at, job.owner, job.organization) == ("schedule", NOON + timedelta(minutes=5), "ada", "default")
    assert job.schedule_id == rota.schedules.get("s").id


def test_queue_ttl_counts_from_the_run_and_not_from_the_due_time(rota, clock):
    rota.templates.update("held", queue_ttl=60)
    rota.schedule("s", "held", every="5m", overlap="allow")
    clock.advance(minutes=9)
    rota.turn()
    assert jobs(rota)[0].status == "QUEUED"
    minutes(rota, clock, 2)
    assert jobs(rota)[0].status == "SKIPPED"


# ---- refused -----------------------------------------------------------------------------------------------------------


def refusals(rota):
    """Each: how a due time comes to be refused, how that is mended, and what the ledger says."""
    return {
        "template disabled": (lambda: rota.templates.disable("work"), lambda: rota.templates.enable("work"), "template 'work' is disabled"),
        "organization suspended": (
            lambda: rota.organizations.suspend("acme"),
            lambda: rota.organizations.restore("acme"),
            "organization 'acme' is suspended and takes no new jobs",
        ),
        "queue full": (
            lambda: rota.organizations.update("acme", max_queued=0),
            lambda: rota.organizations.update("acme", max_queued=None),
            "organization 'acme' has as many jobs queued as its max_queued allows",
        ),
        "permission": (
            lambda: rota.templates.update("work", requires_permission="payroll"),
            lambda: rota.users.update("ada", permissions=["payroll"]),
            "'ada' lacks the permission 'payroll'",
        ),
        "params": (
            lambda: rota.schedules.update("s", params={"nonsense": 1}, organization="acme"),
            lambda: rota.schedules.update("s", params=None, organization="acme"),
            "nonsense",
        ),
        "payload": (
            lambda: (rota.templates.update("work", payload_max=14), rota.schedules.update("s", params={"c": 1}, organization="acme")),
            lambda: rota.templates.update("work", payload_max=1000),
            "params take 19 bytes; the limit is 14",
        ),
    }


@pytest.mark.parametrize(
    "why",
    ["template disabled", "organization suspended", "queue full", "permission", "params", "payload"],
    ids=lambda why: why.replace(" ", "-"),
)
def test_a_due_time_that_is_refused_says_why_and_later_ones_fire_again(rota, clock, why):
    rota.organizations.create("acme")
    rota.users.create("ada", role="admin", organization="acme")
    rota.acting_as("ada").schedules.create("s", "work", every="5m", organization="acme")
    refuse, mend, reason = refusals(rota)[why]
    minutes(rota, clock, 5)
    refuse()
    minutes(rota, clock, 10)
    mend()
    minutes(rota, clock, 5)
    assert told(rota, "s", organization="acme") == [("FIRED", 1), ("REFUSED", 2), ("FIRED", 1)]
    (row,) = rota.schedules.occurrences("s", fate="REFUSED", organization="acme")
    assert reason in row.reason
    assert len(rota.ran) == 2


def test_the_reason_of_a_refusal_has_a_bound(rota, clock):
    rota.schedule("s", "work", every="5m", params={"x" * 100_000: 1})
    minutes(rota, clock, 5)
    (row,) = rota.schedules.occurrences()
    assert (row.fate, len(row.reason)) == ("REFUSED", 1000)


def test_what_is_refused_for_another_reason_takes_no_room_in_the_queue(rota, clock):
    rota.organizations.create("acme", max_queued=1)
    rota.schedules.create("a", "dies", every="5m", organization="acme")
    rota.schedules.create("b", "work", every="5m", organization="acme")
    rota.templates.disable("dies")
    minutes(rota, clock, 5)
    assert {row.schedule: row.fate for row in rota.schedules.occurrences()} == {"a": "REFUSED", "b": "FIRED"}


def test_room_in_the_queue_is_shared_by_all_that_fire_at_once(rota, clock):
    rota.organizations.create("acme", max_queued=3)
    for index in range(5):
        rota.schedules.create(f"s{index}", "held", every="5m", organization="acme")
    minutes(rota, clock, 5)
    assert sorted(fate for fate, _ in told(rota)) == ["FIRED"] * 3 + ["REFUSED"] * 2


def test_room_that_some_have_taken_is_not_taken_again_by_those_who_depend_on_them(rota, clock):
    rota.organizations.create("acme", max_queued=5)
    for name in ("a", "b"):
        rota.schedules.create(name, "held", every="5m", organization="acme")
    for name in ("c", "d"):
        rota.schedules.create(name, "held", every="5m", organization="acme", depends_on="a")
    minutes(rota, clock, 5)
    assert told(rota) == [("FIRED", 1)] * 4


def test_a_removed_user_fires_nothing_any_more(rota, clock):
    rota.users.create("ada", role="admin", permissions=["payroll"])
    rota.templates.update("work", requires_permission="payroll")
    rota.acting_as("ada").schedules.create("s", "work", every="5m")
    minutes(rota, clock, 5)
    rota.users.delete("ada")
    minutes(rota, clock, 5)
    assert told(rota) == [("FIRED", 1), ("REFUSED", 1)]


def test_an_organizations_highest_priority_bounds_its_schedules(rota, clock):
    rota.organizations.create("acme", max_priority=30)
    rota.schedules.create("s", "work", every="5m", priority=90, organization="acme")
    minutes(rota, clock, 5)
    assert jobs(rota)[0].priority == 30


def test_a_template_that_was_archived_refuses_until_it_is_back(rota, clock):
    rota.schedule("s", "work", every="5m")
    rota.templates.archive("work")
    minutes(rota, clock, 5)
    assert rota.ran == []
    assert "FIRED" not in {fate for fate, _ in told(rota)}


# ---- by hand -----------------------------------------------------------------------------------------------------------


def test_firing_by_hand_neither_shifts_nor_uses_up_the_next_due_time(rota, clock):
    rota.schedule("s", "work", every="5m")
    minutes(rota, clock, 3)
    before = rota.schedules.get("s")
    job = rota.schedules.fire("s")
    assert (job.due_at, job.schedule_id, rota.schedules.get("s")) == (None, before.id, before)
    assert told(rota) == []
    minutes(rota, clock, 9)
    assert due(rota) == [5, 10]
    assert len(rota.ran) == 3


@pytest.mark.parametrize("verb", ["pause", "disable"])
def test_firing_by_hand_works_whatever_the_state(rota, clock, verb):
    rota.schedule("s", "work", every="5m")
    getattr(rota.schedules, verb)("s")
    rota.schedules.fire("s")
    rota.turn()
    assert len(rota.ran) == 1


def test_what_is_not_there_can_not_be_fired(rota):
    with pytest.raises(NotFound, match="no schedule 'nothing'"):
        rota.schedules.fire("nothing")


# ---- edits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["edit", "pause", "disable", "delete", "declare"])
def test_whatever_changes_a_schedule_closes_its_ledger_by_what_held_before(rota, clock, verb):
    rota.schedule("s", "work", every="5m")
    ledger_id = rota.schedules.get("s").id
    clock.advance(minutes=12)
    {
        "edit": lambda: rota.schedules.update("s", every="1h"),
        "pause": lambda: rota.schedules.pause("s"),
        "disable": lambda: rota.schedules.disable("s"),
        "delete": lambda: rota.schedules.delete("s"),
        "declare": lambda: rota.schedule("s", "work", every="1h"),
    }[verb]()
    assert told(rota) == [("COALESCED", 1), ("FIRED", 1)]
    rota.turn()
    assert len(rota.ran) == 1
    assert [job.schedule_id for job in rota.jobs.list()] == [ledger_id]


def test_enabling_does_not_replay(rota, clock):
    rota.schedule("s", "work", every="5m")
    rota.schedules.disable("s")
    minutes(rota, clock, 22)
    rota.schedules.enable("s")
    assert told(rota) == []
    minutes(rota, clock, 10)
    assert due(rota) == [25, 30]


def test_code_that_says_the_same_again_changes_nothing_that_people_have_set(rota, clock):
    rota.schedule("s", "work", every="5m", priority=60)
    rota.schedules.update("s", every="1h", description="people's word")
    again = rota.schedule("s", "work", every="5m", priority=60)
    assert (again.every, again.description, again.version) == (3600, "people's word", 2)
    news = rota.schedule("s", "work", every="5m", priority=70)
    assert (news.every, news.priority, news.version) == (3600, 70, 3)


# ---- time --------------------------------------------------------------------------------------------------------------


def whole(rota, name, first, last, step=5):
    """Every due time from one to another, in minutes since noon, has one fate, and those that fired one job each."""
    rows = rota.schedules.occurrences(name, limit=10_000)
    inside = [row for row in rows if NOON < row.due_at <= NOON + timedelta(minutes=last)]
    assert sum(row.count for row in inside) == (last - first) // step + 1
    fired = [row for row in rows if row.fate is Fate.FIRED]
    assert len({row.due_at for row in fired}) == len(fired) == len({job.due_at for job in jobs(rota, name)}) == len(jobs(rota, name))


def test_a_clock_that_goes_to_2030_and_back_fires_nothing_twice_and_loses_nothing(rota, clock):
    rota.schedule("s", "work", every="5m")
    rota.schedule("none", "work", every="5m", catch_up="none", overlap="allow")
    minutes(rota, clock, 20)
    clock.step(days=4 * 365)
    minutes(rota, clock, 12)
    ahead = len(rota.ran)
    clock.step(days=-4 * 365)
    minutes(rota, clock, 28)
    assert rota.schedules.get("s").next_at == NOON + timedelta(minutes=65)
    whole(rota, "s", 5, 60)
    whole(rota, "none", 5, 60)
    assert len(rota.ran) > ahead


def test_when_the_time_comes_that_a_wrong_clock_had_fired_it_does_not_fire_again(rota, clock):
    rota.schedule("s", "work", every="5m", overlap="allow")
    clock.step(minutes=60)
    minutes(rota, clock, 1)
    clock.step(minutes=-60)
    for _ in range(30):
        minutes(rota, clock, 5)
    whole(rota, "s", 5, 150)


@pytest.mark.parametrize("verb", ["edit", "pause", "pause and enable"])
def test_a_clock_set_back_behind_a_change_and_on_again_leaves_each_due_time_one_fate(rota, clock, verb):
    rota.schedule("s", "work", every="5m")
    clock.advance(minutes=300)
    rota.turn()
    if verb == "edit":
        rota.schedules.update("s", catch_up="none")
    else:
        rota.schedules.pause("s")
    if verb == "pause and enable":
        clock.advance(minutes=30)
        rota.schedules.enable("s")
    clock.step(minutes=-120)
    minutes(rota, clock, 1)
    whole(rota, "s", 5, 180 if verb != "pause and enable" else 210)
    clock.advance(minutes=1000)
    rota.turn()
    whole(rota, "s", 5, 1180 if verb != "pause and enable" else 1210)
    assert rota.schedules.verify().ok


def test_a_day_asleep_is_one_fate_for_each_due_time_and_firing_goes_on(rota, clock):
    rota.schedule("s", "work", every="5m")
    minutes(rota, clock, 10)
    clock.step(days=1)
    minutes(rota, clock, 10)
    whole(rota, "s", 5, 24 * 60 + 20)
    assert due(rota)[-1] == 24 * 60 + 20


def test_a_clock_stepped_back_and_forth_a_little_fires_each_once(rota, clock):
    rota.schedule("s", "work", every=30, overlap="allow")
    furthest = clock.now()
    for step in (-20, 40, -59, 30, 7, -7, 45, -30) * 5:
        clock.step(seconds=step)
        clock.advance(seconds=11)
        rota.turn()
        furthest = max(furthest, clock.now())
    rows = rota.schedules.occurrences("s", limit=1000)
    assert sum(row.count for row in rows) == (furthest - instant(NOON)) // (30 * SECOND)
    assert len({row.due_at for row in rows}) == len(rows)


# ---- dependencies ------------------------------------------------------------------------------------------------------


def test_a_schedule_waits_for_the_one_it_depends_on(rota, clock):
    rota.schedule("parent", "held", every="1h")
    rota.schedule("child", "work", every="1h", depends_on="parent")
    clock.advance(hours=1)
    rota.turn()
    assert jobs(rota, "child")[0].status == "PENDING"
    rota.templates.resume("held")
    rota.turn()
    assert rota.ran == ["held", (1, 1, 0)]


def test_the_last_due_time_waits_as_long_as_the_setting_says(tmp_path, clock):
    rota = Rota(tmp_path / "r.db", clock=clock, settings=Settings(dependency_wait=600, synchronous="NORMAL"))
    rota.job(name="work")(lambda: None)
    rota.schedule("parent", "work", every="5h")
    rota.schedule("child", "work", at=NOON + timedelta(hours=1), depends_on="parent")
    clock.advance(hours=1)
    rota.turn()
    clock.advance(seconds=599)
    rota.turn()
    assert told(rota) == [("FIRED", 1)]
    clock.advance(seconds=1)
    rota.turn()
    assert told(rota) == [("SKIPPED_DEPENDENCY", 1)]
    rota.close()


def test_due_times_caught_up_wait_each_for_its_own_window(rota, clock):
    rota.schedule("parent", "work", every="1h", catch_up="all", overlap="queue")
    rota.schedule("child", "work", every="1h", depends_on="parent", catch_up="all", overlap="queue")
    clock.advance(hours=4)
    rota.turn()
    assert {(row.schedule, row.status) for row in rota.schedules.occurrences()} == {("parent", "COMPLETED"), ("child", "COMPLETED")}
    assert len(rota.ran) == 8


# ---- telling -----------------------------------------------------------------------------------------------------------


def test_who_wants_to_know_is_told_of_due_times_that_did_not_run(rota, clock):
    heard = []
    rota.on.not_run(heard.append)
    rota.on.not_run(lambda _: 1 / 0)
    rota.schedule("s", "held", every="5m")
    rota.schedule("fine", "work", every="5m")
    minutes(rota, clock, 10)
    assert [(news.schedule, news.fate, news.count) for news in heard] == [("s", "SKIPPED_OVERLAP", 1)]
    assert heard[0].due_at == NOON + timedelta(minutes=10)


def test_what_somebody_asked_for_is_no_cause_for_alarm(rota, clock):
    heard = []
    rota.on.not_run(heard.append)
    rota.schedule("s", "work", every="5m")
    rota.schedules.pause("s")
    minutes(rota, clock, 10)
    rota.schedules.enable("s")
    clock.advance(minutes=40)
    rota.turn()
    assert (heard, told(rota)) == ([], [("SKIPPED_PAUSED", 2), ("COALESCED", 7), ("FIRED", 1)])


# ---- trouble -----------------------------------------------------------------------------------------------------------


def test_a_schedule_that_can_not_be_read_keeps_nobody_else_from_firing_and_loses_nothing(rota, clock, caplog):
    rota.schedule("bad", "work", cron="*/5 * * * *", timezone="Europe/Berlin", overlap="allow")
    rota.schedule("good", "work", every="5m", overlap="allow")
    _sql(rota, "UPDATE schedules SET timezone = 'Mars/Olympus' WHERE name = 'bad'")
    with caplog.at_level(logging.ERROR, logger="rota.trigger"):
        minutes(rota, clock, 10)
    assert (told(rota, "good"), told(rota, "bad")) == ([("FIRED", 1)] * 2, [])
    assert "schedule bad cannot be read" in caplog.text
    assert "Mars/Olympus" in caplog.text
    _sql(rota, "UPDATE schedules SET timezone = 'Europe/Berlin' WHERE name = 'bad'")
    minutes(rota, clock, 5)
    assert sum(count for _, count in told(rota, "bad")) == 3


def test_a_schedule_that_can_not_be_read_can_be_mended_disabled_and_deleted(rota, clock):
    for name in "abc":
        rota.schedule(name, "work", cron="*/5 * * * *", timezone="Europe/Berlin")
    _sql(rota, "UPDATE schedules SET timezone = 'Mars/Olympus'")
    clock.advance(minutes=7)
    rota.schedules.delete("a")
    assert rota.schedules.disable("b").state == "DISABLED"
    assert rota.schedules.update("c", timezone="UTC").next_at == NOON + timedelta(minutes=10)


def test_a_trigger_that_fails_does_not_stop_the_wheel(rota, clock, monkeypatch, caplog):
    rota.schedule("s", "work", every="5m")
    rota.turn()
    monkeypatch.setattr(SqliteStore, "fire", _boom)
    minutes(rota, clock, 6)
    rota.enqueue("work", {"a": 9})
    rota.turn()
    assert rota.ran == [(9, 1, 0)]
    assert "schedules could not be fired" in caplog.text
    monkeypatch.undo()
    minutes(rota, clock, 1)
    assert told(rota) == [("FIRED", 1)]


def _boom(*_, **__):
    raise RuntimeError("boom")


def _sql(rota, statement):
    import apsw

    raw = apsw.Connection(str(rota._session.open().store.path))
    raw.set_busy_timeout(5000)
    raw.execute(statement)
    raw.close()


def test_definitions_that_change_between_the_reading_and_the_writing_are_read_again(rota, clock, monkeypatch):
    rota.schedule("s", "work", every="5m")
    real, versions = SqliteStore.fire, []

    def fire(store, decide, **options):
        if not versions:
            rota.templates.update("work", priority=77)
        versions.append(options["definitions"])
        return real(store, decide, **options)

    monkeypatch.setattr(SqliteStore, "fire", fire)
    minutes(rota, clock, 5)
    assert versions[1] > versions[0]
    assert [job.priority for job in jobs(rota)] == [77]


def test_definitions_that_change_while_a_schedule_is_edited_are_read_again(rota, clock, monkeypatch):
    rota.schedule("s", "work", every="5m")
    real, versions = SqliteStore.change_schedule, []

    def change_schedule(store, *args, **options):
        if not versions:
            rota.templates.update("work", priority=77)
        versions.append(options["definitions"])
        return real(store, *args, **options)

    monkeypatch.setattr(SqliteStore, "change_schedule", change_schedule)
    clock.advance(minutes=5)
    assert rota.schedules.update("s", every="1h").version == 2
    assert versions[1] > versions[0]
    assert [job.priority for job in jobs(rota)] == [77]


def test_a_change_that_had_to_wait_while_its_schedule_fired_comes_after_that(rota, clock, monkeypatch):
    """The moment of a change is not before a due time that has fired: the ledger is whole up to it."""
    rota.schedule("s", "work", every="5m")
    real, waits = SqliteStore.change_schedule, [1]

    def change_schedule(store, *args, **options):
        if waits:
            waits.clear()
            minutes(rota, clock, 5)
        return real(store, *args, **options)

    monkeypatch.setattr(SqliteStore, "change_schedule", change_schedule)
    view = rota.schedules.disable("s")
    (row,) = rota.schedules.occurrences("s")
    assert row.fate == "FIRED"
    assert row.due_at <= view.cursor_at


# ---- retention ---------------------------------------------------------------------------------------------------------


def test_the_ledger_grows_no_longer_than_jobs_are_kept(tmp_path, clock):
    rota = Rota(tmp_path / "r.db", clock=clock, settings=Settings(synchronous="NORMAL", retention=3600, retention_interval=30))
    rota.job(name="work")(lambda: None)
    rota.schedule("s", "work", every=60)
    rota.schedules.create("gone", "work", at=NOON + timedelta(minutes=5), on_completion="DROP")
    gone = rota._session.open().store.schedules(name="gone")[0].id
    minutes(rota, clock, 200)
    rows = rota.schedules.occurrences(limit=1000)
    assert {row.schedule for row in rows} == {"s"}
    assert 60 <= len(rows) <= 63
    assert all(row.ran for row in rows)
    assert rota._session.open().store.schedule(gone) is None
    rota.close()
