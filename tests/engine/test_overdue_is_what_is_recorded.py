"""What is shown as overdue is what a worker records that comes back at that very moment, whatever the schedules and the gap."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rota import Rota, Settings
from rota.engine.overdue import overdue
from rota.model.schedules import Fate, lattice_of
from rota.model.values import undashed
from rota.ports.schedules import Ledger
from tests.stores.makers import MAKERS
from tests.support.clock import ManualClock
from tests.support.proof import size

pytestmark = pytest.mark.prove

START = datetime(2026, 3, 27, 21, 58, 30, tzinfo=UTC)
"""A day before the clocks of Europe jump, and eight before that of Lord Howe goes back by half an hour."""
DAYS_OFF = {date(2026, 3, 28), date(2026, 3, 30), date(2026, 3, 31), date(2026, 4, 20)}
EXAMPLES = {"sqlite": size(30, prove=1000), "postgres": size(4, prove=200), "mongodb": size(3, prove=100)}
ROWS_MAX = 100_000

TIMES = st.one_of(
    st.sampled_from([5, 90, 3600, 7 * 3600, 90_000]).map(lambda every: {"every": every}),
    st.tuples(
        st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "15 4 * * SAT", "0 0 LW * *", "0 */5 * * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    ).map(lambda pair: {"cron": pair[0], "timezone": pair[1]}),
    st.tuples(st.sampled_from([0, 1, 50, 3000]), st.sampled_from(["PRESERVE", "DROP"])).map(
        lambda pair: {"at": START + timedelta(minutes=pair[0]), "on_completion": pair[1]}
    ),
)
RULES = st.sampled_from(
    [
        {"catch_up": "none", "overlap": "skip"},
        {"catch_up": "none", "overlap": "allow"},
        {"catch_up": "last", "overlap": "skip"},
        {"catch_up": "last", "overlap": "queue"},
        {"catch_up": "last", "overlap": "allow", "catch_up_lateness": 1800},
        {"catch_up": "all", "overlap": "queue", "catch_up_count": 4},
        {"catch_up": "all", "overlap": "allow", "catch_up_count": 3, "catch_up_lateness": 7200},
    ]
)
LENGTHS = st.sampled_from([1, 20, 61, 600, 3700, 30_000, 86_400, 3 * 86_400, 40 * 86_400])


@st.composite
def worlds(draw):
    """Return schedules, what is done while a worker is there, and how long there is none."""
    count = draw(st.integers(1, 4))
    schedules = []
    for index in range(count):
        options = draw(TIMES) | draw(RULES) | {"calendar": draw(st.sampled_from([None, "off"])), "jitter": draw(st.sampled_from([0, 30]))}
        if index and draw(st.booleans()):
            options["depends_on"] = [f"s{draw(st.integers(0, index - 1))}"]
        schedules.append((draw(st.sampled_from(["quick", "slow", "disabled"])), options))
    states = draw(st.lists(st.tuples(st.integers(0, count - 1), st.sampled_from(["pause", "disable", "enable"])), max_size=3))
    worked = draw(st.lists(LENGTHS, max_size=3))
    room = None if any("depends_on" in options for _, options in schedules) else draw(st.sampled_from([None, 0, 3]))
    return schedules, states, worked, draw(LENGTHS), room


@contextmanager
def opened(maker_of, clock: ManualClock) -> Iterator[Rota]:
    folder = Path(tempfile.mkdtemp(prefix="rota-overdue-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    maker = maker_of(folder)
    rota = Rota(maker.url, clock=clock, settings=Settings(synchronous="NORMAL", retention=0), seed=7)
    try:
        yield rota
    finally:
        rota.close()
        maker.close()
        shutil.rmtree(folder)


def build(rota: Rota, schedules) -> list[str]:
    """Make templates, calendar and schedules; return the ids of the schedules."""
    for name in ("quick", "slow", "disabled"):
        rota.job(name=name)(lambda: None)
    rota.templates.pause("slow")
    rota.calendars.update("off", DAYS_OFF)
    made = [rota.schedules.create(f"s{index}", template, **options).id for index, (template, options) in enumerate(schedules)]
    rota.templates.disable("disabled")
    return [undashed(each) for each in made]


def ledger(rota: Rota, schedule_id: str) -> dict[tuple[int, bool], tuple]:
    """Return the rows of one schedule, by what never changes of them. One whose job was given up fired."""
    fired = {Fate.SKIPPED_DEPENDENCY: (Fate.FIRED, None)}
    rows = rota._session.open().store.occurrences(Ledger(schedule_id=schedule_id), limit=ROWS_MAX)
    return {
        (row.due_at, fate is Fate.SKIPPED_DST_GAP): (row.due_at, row.last_due_at, row.count, fate, reason)
        for row in rows
        for fate, reason in (fired.get(row.fate, (row.fate, row.reason)),)
    }


def recorded(before, after, timing) -> set[tuple]:
    """Return what was added to a ledger, as if no row had been made longer."""
    found = set()
    for key, row in after.items():
        old = before.get(key)
        if old is None:
            found.add(row)
        elif old != row:
            # It goes on from the due time after its last.
            found.add((lattice_of(timing).next(old[1]), row[1], row[2] - old[2], *row[3:]))
    return found


def holds(maker_of, world) -> None:
    schedules, states, worked, gap, room = world
    clock = ManualClock(START)
    with opened(maker_of, clock) as rota:
        ids = build(rota, schedules)
        store = rota._session.open().store
        for length in worked:
            clock.advance(seconds=length)
            rota.turn()
        if room is not None:
            rota.organizations.update("default", max_queued=room)
        there = {each.name for each in rota.schedules.list()}
        for index, verb in states:
            if f"s{index}" in there and schedules[index][1].get("at") is None:
                getattr(rota.schedules, verb)(f"s{index}")
        clock.advance(seconds=gap)
        before = {each: ledger(rota, each) for each in ids}
        timings = {each: store.schedule(each).timing for each in ids}

        at_once = overdue(store, rota._session.registry, rota.settings, now=clock.now(), tolerance=0)
        shown = {each.schedule_id: each for each in at_once.schedules}
        listed = {row.schedule: row for row in rota.schedules.occurrences(fate="OVERDUE", limit=ROWS_MAX)}
        late = {each.schedule: each for each in rota.schedules.overdue()}
        rota.turn()

        for schedule_id in ids:
            added = recorded(before[schedule_id], ledger(rota, schedule_id), timings[schedule_id])
            each = shown.get(schedule_id)
            rows = () if each is None else each.rows
            planned = {(row.due_at, row.last_due_at, row.count, row.fate, row.reason) for row in rows}
            assert _told(added, each) == _told(planned, each)
            if each is not None:
                span = min(row[0] for row in added), max(row[1] for row in added), sum(row[2] for row in added)
                assert (each.due_at, each.last_due_at, each.count) == span
        # What people see is the same, but for what is late by less than the bound.
        old = {each.schedule for each in at_once.schedules if clock.now() - each.due_at >= rota.settings.lease_ttl * 1_000_000}
        assert set(listed) == set(late) == old
        for each in at_once.schedules:
            if each.schedule in old:
                row, view = listed[each.schedule], late[each.schedule]
                assert (row.due_at, row.last_due_at, row.count) == (view.due_at, view.last_due_at, view.count)
                assert (view.count, view.expected, row.reason) == (each.count, each.expected, each.reason)
        assert overdue(store, rota._session.registry, rota.settings, now=clock.now(), tolerance=0).schedules == ()
        assert rota.schedules.occurrences(fate="OVERDUE") == []


def _told(rows, each) -> set[tuple]:
    """Return rows as far as they are foretold: of what depends on others, not whether it fires or is skipped."""
    if each is None or not each.dependent:
        return rows
    unknown = {Fate.FIRED, Fate.SKIPPED_OVERLAP}
    return {row if row[3] not in unknown else (*row[:3], None, None) for row in rows}


BASE = {"catch_up": "last", "overlap": "skip"}
KNOWN = [
    ([("slow", {"every": 90} | BASE)], [], [100], 600, None),
    ([("quick", {"every": 3600, "calendar": "off"} | BASE)], [], [20], 3 * 86_400, None),
    ([("quick", {"every": 5} | BASE)], [(0, "pause")], [20], 3700, None),
    ([("quick", {"cron": "30 2 * * *", "timezone": "Europe/Berlin"} | BASE)], [], [], 3 * 86_400, None),
    ([("quick", {"every": 90, "catch_up": "all", "overlap": "queue"}), ("quick", {"every": 90} | BASE)], [], [], 600, 3),
    ([("quick", {"at": START + timedelta(minutes=1), "on_completion": "DROP"} | BASE)], [], [], 86_400, None),
    ([("disabled", {"every": 90} | BASE), ("quick", {"every": 90, "depends_on": ["s0"]} | BASE)], [], [100], 600, None),
]


def with_known_worlds(test):
    """Try each kind of outcome once, whatever chance brings."""
    for world in KNOWN:
        test = example(world)(test)
    return test


def of_store(name: str):
    return next(maker for maker in MAKERS if maker.name == name)


def trying(name: str):
    return settings(max_examples=EXAMPLES[name], deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@trying("sqlite")
@with_known_worlds
@given(worlds())
def test_what_is_shown_as_overdue_is_what_a_worker_records_that_comes_back(world):
    holds(of_store("sqlite"), world)


@trying("postgres")
@with_known_worlds
@given(worlds())
def test_what_is_shown_as_overdue_is_what_a_worker_records_on_postgresql_too(world):
    holds(of_store("postgres"), world)


@trying("mongodb")
@with_known_worlds
@given(worlds())
def test_what_is_shown_as_overdue_is_what_a_worker_records_on_mongodb_too(world):
    holds(of_store("mongodb"), world)
