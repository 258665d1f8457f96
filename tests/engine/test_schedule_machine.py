"""Schedules under every order of events, against a model that walks due times one by one and knows no spans.

After each step every due time up to the cursor has exactly one fate, the one that the model gives it, and the jobs are those of
the due times that fired.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rota import Rota, Settings
from rota.errors import InvalidSchedule, NotFound
from rota.model.values import SECOND, instant, moment, undashed
from rota.ports.schedules import Ledger
from rota.ports.store import Where
from tests.support.clock import ManualClock
from tests.support.mongodb import shared_set
from tests.support.mongodb_hand import mongodb_hand
from tests.support.proof import size

pytestmark = pytest.mark.prove

START = datetime(2026, 3, 27, 21, 58, 30, tzinfo=UTC)
"""A day before Berlin's clock jumps."""
GRACE = 60 * SECOND
MINUTE = 60 * SECOND
BERLIN = ZoneInfo("Europe/Berlin")
DAYS_OFF = {date(2026, 3, 28), date(2026, 3, 30), date(2026, 3, 31), date(2026, 4, 20)}
CATCH_UP_COUNT = 4

# ---- when, naively -----------------------------------------------------------------------------------------------------

CRONS = {
    "*/7 * * * *": (None, lambda at: at.minute % 7 == 0),
    "0 */5 * * *": (None, lambda at: at.minute == 0 and at.hour % 5 == 0),
    "30 2 * * *": ("Europe/Berlin", lambda at: (at.hour, at.minute, at.fold) == (2, 30, 0)),
    "15 4 * * SAT": (None, lambda at: (at.hour, at.minute, at.weekday()) == (4, 15, 5)),
}


def cron_points(text: str, after: int, until: int) -> set[int]:
    """Walk minute by minute."""
    zone, due = CRONS[text]
    tz = ZoneInfo(zone) if zone else UTC
    first = after // MINUTE * MINUTE + MINUTE
    return {at for at in range(first, until + 1, MINUTE) if due(datetime.fromtimestamp(at // SECOND, tz))}


def cron_gaps(text: str, after: int, until: int) -> set[int]:
    """Walk day by day: the time that is not there when Berlin's clock jumps."""
    found = set()
    if CRONS[text][0]:
        day = moment(after).date() - timedelta(days=1)
        while day <= moment(until).date():
            wall = datetime(day.year, day.month, day.day, 2, 30, tzinfo=BERLIN)
            at = instant(wall.astimezone(UTC))
            if wall.astimezone(UTC).astimezone(BERLIN).hour != 2 and after < at <= until:
                found.add(at)
            day += timedelta(days=1)
    return found


class Model:
    """One schedule as it should be."""

    def __init__(self, view, *, now: int, slow: bool) -> None:
        self.id = undashed(view.id)
        self.view = view
        self.slow = slow
        self.cursor = now
        self.ruled_at = now
        self.state = "ENABLED"
        self.dropped = False
        self.live = 0
        self.fates: dict[int, str] = {}
        self.gaps: set[int] = set()
        self.jobs: set[int] = set()

    def points(self, after: int, until: int) -> set[int]:
        view = self.view
        if view.kind == "CRON":
            return cron_points(view.cron, max(after, instant(view.starts) - 1 if view.starts else 0), until)
        if view.kind == "AT":
            return {at for at in (instant(view.at),) if after < at <= until}
        at, found = instant(view.starts), set()
        while at <= until:
            if at > after:
                found.add(at)
            at += round(view.every * SECOND)
        return found

    def take_back(self, now: int) -> None:
        """The clock was ahead: what is not a job yet has not happened."""
        self.fates = {at: fate for at, fate in self.fates.items() if at <= now or at in self.jobs}
        self.gaps = {at for at in self.gaps if at <= now}
        self.cursor = now

    def settle(self, now: int) -> bool:
        """Give due times their fates; say whether there were any, those that a clock jumped over among them."""
        if self.dropped or self.state == "DISABLED" or now <= self.cursor:
            return False
        points = self.points(self.cursor, now)
        due = sorted(points - self.jobs)
        gaps = cron_gaps(self.view.cron, self.cursor, now) if self.view.kind == "CRON" else set()
        self.gaps |= gaps
        if points or gaps:
            self.cursor = now
        zone = ZoneInfo(self.view.timezone)
        off = [at for at in due if self.view.calendar and moment(at).astimezone(zone).date() in DAYS_OFF]
        self.fates |= dict.fromkeys(off, "SKIPPED_CALENDAR")
        self._decide([at for at in due if at not in off], now)
        if self.view.kind == "AT" and due:
            self.state, self.dropped = ("DISABLED", False) if self.view.on_completion == "PRESERVE" else (self.state, True)
        return bool(points or gaps)

    def _decide(self, due: list[int], now: int) -> None:
        if not due:
            return
        catch_up = self.view.catch_up
        if self.state == "PAUSED":
            self.fates |= dict.fromkeys(due, "SKIPPED_PAUSED")
            return
        if catch_up == "none":
            fire, rest = (due[-1:] if now - due[-1] <= GRACE else []), "MISSED"
        elif catch_up == "last":
            fire, rest = due[-1:], "COALESCED"
        else:
            fire, rest = due[-CATCH_UP_COUNT:], "MISSED"
        self.fates |= dict.fromkeys(due, rest)
        for at in fire:
            if self.view.overlap == "skip" and self.live:
                self.fates[at] = "SKIPPED_OVERLAP"
                continue
            self.fates[at] = "FIRED"
            self.jobs.add(at)
            self.live += 1


# ---- what may happen ---------------------------------------------------------------------------------------------------

TIMES = st.one_of(
    st.sampled_from([{"every": 90}, {"every": 3600}, {"every": 7 * 3600}]),
    st.sampled_from([{"cron": text, "timezone": zone or "UTC"} for text, (zone, _) in CRONS.items()]),
)
RULES = st.sampled_from(
    [
        {"catch_up": "none", "overlap": "skip"},
        {"catch_up": "last", "overlap": "skip"},
        {"catch_up": "last", "overlap": "allow"},
        {"catch_up": "last", "overlap": "queue"},
        {"catch_up": "all", "overlap": "queue", "catch_up_count": CATCH_UP_COUNT},
        {"catch_up": "all", "overlap": "allow", "catch_up_count": CATCH_UP_COUNT},
    ]
)
NAMES = ("one", "two", "three")
name = st.sampled_from(NAMES)


class Machine(RuleBasedStateMachine):
    """Up to three schedules of mixed kinds, a worker that turns when told, and a clock that does as it likes."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rota-machine-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.clock = ManualClock(START)
        self.rota = Rota(self.new_store(), clock=self.clock, settings=Settings(synchronous="NORMAL", retention=0), seed=7)
        self.rota.job(name="quick")(lambda: None)
        self.rota.job(name="broken", max_retries=0)(lambda: 1 / 0)
        self.rota.job(name="slow")(lambda: None)
        self.rota.templates.pause("slow")
        self.rota.calendars.update("off", DAYS_OFF)
        self.models: dict[str, Model] = {}
        self.gone: list[Model] = []
        self.by_hand = 0
        self.astray: set[datetime] = set()
        self.furthest = self.now

    def new_store(self) -> Path | str:
        """Return where an empty store is."""
        return self.folder / "rota.db"

    def teardown(self) -> None:
        self.rota.close()
        shutil.rmtree(self.folder)

    @property
    def now(self) -> int:
        return self.clock.now()

    # ---- schedules --------------------------------------------------------------------------------------------

    @rule(
        name=name, when=TIMES, rules=RULES, template=st.sampled_from(["quick", "broken", "slow"]), calendar=st.sampled_from([None, "off"])
    )
    def create(self, name, when, rules, template, calendar):
        if name not in self.models:
            view = self.rota.schedules.create(name, template, calendar=calendar, **when, **rules)
            self._made(view, slow=template == "slow")

    @rule(
        name=name,
        rules=RULES,
        minutes=st.sampled_from([0, 1, 50, 3000]),
        end=st.sampled_from(["PRESERVE", "DROP"]),
        template=st.sampled_from(["quick", "slow"]),
    )
    def create_at(self, name, rules, minutes, end, template):
        if name not in self.models:
            at = moment(self.now) + timedelta(minutes=minutes)
            view = self.rota.schedules.create(name, template, at=at, on_completion=end, **rules)
            self._made(view, slow=template == "slow")
            if minutes == 0:
                self.models[name].cursor -= 1

    def _made(self, view, *, slow):
        self.models[view.name] = Model(view, now=self.now, slow=slow)
        self.furthest = max(self.furthest, self.now)

    @rule(name=name, when=st.one_of(st.just({}), TIMES), rules=RULES, calendar=st.sampled_from([None, "off"]))
    def edit(self, name, when, rules, calendar):
        model = self.models.get(name)
        if model is not None:
            when = {} if model.view.kind == "AT" else when
            self._change(name, lambda: self.rota.schedules.update(name, calendar=calendar, **when, **{"catch_up_count": None, **rules}))

    @rule(name=name, verb=st.sampled_from(["enable", "disable", "pause"]))
    def set_state(self, name, verb):
        model = self.models.get(name)
        if model is None:
            return
        wanted = {"enable": "ENABLED", "disable": "DISABLED", "pause": "PAUSED"}[verb]
        call = {"enable": self.rota.schedules.enable, "disable": self.rota.schedules.disable, "pause": self.rota.schedules.pause}[verb]
        if (wanted, model.state, model.view.kind) == ("ENABLED", "DISABLED", "AT") and instant(model.view.at) <= self.now:
            with pytest.raises(InvalidSchedule, match="no due time left"):
                call(name)
        elif wanted != model.state:
            self._change(name, lambda: call(name), wanted)
        else:
            call(name)

    def _change(self, name, call, wanted=None):
        model = self.models[name]
        before = self.rota.schedules.get(name).version
        try:
            view = call()
        except NotFound:
            # It was due, fired and was not to be kept: there was nothing left to change, and nothing was written.
            assert model.view.on_completion == "DROP"
            assert model.points(model.cursor, self.now)
            return
        if view.version == before:
            return
        # They fired when the clock was ahead, by a rule that no longer holds when the clock gets there again.
        self.astray |= {moment(at) for at in model.jobs if at > self.now}
        if model.cursor > self.now:
            model.take_back(self.now)
        model.settle(self.now)
        model.cursor = self.now
        model.ruled_at = self.now
        model.view = view
        model.state = wanted or model.state
        self.furthest = max(self.furthest, self.now)

    @rule(name=name)
    def delete(self, name):
        model = self.models.pop(name, None)
        if model is not None:
            self.rota.schedules.delete(name)
            if model.cursor > self.now:
                model.take_back(self.now)
            model.settle(self.now)
            model.dropped = True
            self.gone.append(model)

    @rule(name=name)
    def fire_by_hand(self, name):
        if name in self.models:
            before = self.rota.schedules.get(name)
            self.rota.schedules.fire(name)
            after = self.rota.schedules.get(name)
            assert (before.next_at, before.cursor_at, before.last_at) == (after.next_at, after.cursor_at, after.last_at)
            self.models[name].live += 1
            self.by_hand += 1

    # ---- time and work ----------------------------------------------------------------------------------------

    @rule(step=st.sampled_from([1, 20, 100, 3700, 30_000, 86_400, 40 * 86_400]))
    def advance(self, step):
        self.clock.advance(seconds=step)
        self.turn()

    @rule(step=st.sampled_from([1, 600, 86_400]))
    def pass_unseen(self, step):
        self.clock.advance(seconds=step)

    @rule(step=st.sampled_from([2, 30, 59, 100, 4000, 100_000, 39 * 86_400]))
    def step_back(self, step):
        # Not behind a change: spans that were counted by another rule are cut as near as can be, not exactly, and what was told by
        # another rule comes back as it was when the clock does, which this model, without a memory, does not know.
        if self.now - step * SECOND > max((model.ruled_at for model in self.models.values()), default=instant(START)):
            self.clock.step(seconds=-step)

    @rule()
    def step_back_and_turn(self):
        self.step_back(5000)
        self.turn()

    @rule()
    def turn(self):
        self.clock.advance(seconds=1)
        self.rota.turn()
        if self.furthest > self.now + GRACE:
            for model in self.models.values():
                if model.state != "DISABLED" and model.cursor > self.now:
                    model.take_back(self.now)
            self.furthest = self.now
        for name, model in list(self.models.items()):
            if model.settle(self.now):
                self.furthest = max(self.furthest, self.now)
            if model.dropped:
                self.gone.append(self.models.pop(name))
        for model in [*self.models.values(), *self.gone]:
            model.live = model.live if model.slow else 0

    @precondition(lambda self: any(model.slow and model.live for model in [*self.models.values(), *self.gone]))
    @rule()
    def let_the_slow_ones_run(self):
        self.rota.templates.resume("slow")
        self.turn()
        self.rota.turn()
        self.rota.templates.pause("slow")
        for model in [*self.models.values(), *self.gone]:
            model.live = 0

    # ---- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def every_due_time_has_the_fate_that_the_model_gives_it(self):
        store = self.rota._session.open().store
        made = Counter()
        for model in [*self.models.values(), *self.gone]:
            rows = store.occurrences(Ledger(schedule_id=model.id), limit=100_000)
            gaps = [row for row in rows if row.fate == "SKIPPED_DST_GAP"]
            assert {row.due_at for row in gaps} == model.gaps
            rows = [row for row in rows if row not in gaps]
            for row in rows:
                mine = [at for at, fate in model.fates.items() if fate == row.fate and row.due_at <= at <= row.last_due_at]
                assert row.count == len(mine), (row, sorted(map(moment, mine)))
                assert (row.due_at, row.last_due_at) == (min(mine), max(mine))
            by_fate = Counter()
            for row in rows:
                by_fate[row.fate] += row.count
            assert by_fate == Counter(model.fates.values())
            assert {row.due_at for row in rows if row.job_id} == model.jobs
            made |= Counter((model.id, at) for at in model.jobs)
        jobs = [job for _, job in store.find(Where(), limit=100_000)]
        assert Counter((undashed(job.schedule_id), instant(job.due_at)) for job in jobs if job.due_at is not None) == made
        assert len([job for job in jobs if job.due_at is None]) == self.by_hand

    @invariant()
    def who_verifies_ledgers_finds_nothing_wrong(self):
        found = self.rota.schedules.verify().problems
        # That the clock was ahead is seen by jobs that were made later: where there are none, a job that fired ahead looks astray.
        assert [problem for problem in found if problem.due_at not in self.astray or "is no due time" not in problem.what] == []

    @invariant()
    def states_and_next_due_times_are_right(self):
        views = {view.name: view for view in self.rota.schedules.list()}
        assert {name: view.state for name, view in views.items()} == {name: model.state for name, model in self.models.items()}
        for name, model in self.models.items():
            next_at = views[name].next_at
            if model.state == "DISABLED":
                assert next_at is None
            elif next_at is not None:
                assert model.points(instant(next_at) - 1, instant(next_at)) == {instant(next_at)}
                assert not model.points(max(model.cursor, self.now), instant(next_at) - 1) - model.jobs


@pytest.mark.parametrize("verb", ["disable", "pause"])
@pytest.mark.parametrize("end", ["DROP", "PRESERVE"])
def test_an_at_that_is_due_now_is_settled_by_its_old_definition_before_its_state_is_set(verb, end):
    state = Machine()
    state.begin()
    try:
        state.create_at(end=end, minutes=0, name="two", rules={"catch_up": "none", "overlap": "skip"}, template="quick")
        state.set_state(name="two", verb=verb)
        state.every_due_time_has_the_fate_that_the_model_gives_it()
        state.states_and_next_due_times_are_right()
        state.turn()
        state.every_due_time_has_the_fate_that_the_model_gives_it()
        state.states_and_next_due_times_are_right()
        assert ("two" in state.models) is (end == "PRESERVE")
    finally:
        state.teardown()


Machine.TestCase.settings = settings(
    max_examples=size(30, prove=1000),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
test_every_due_time_has_one_fate_whatever_happens = Machine.TestCase


class MongoMachine(Machine):
    """The same on a replica set."""

    def new_store(self) -> str:
        mongodb_hand("machine").empty()
        return shared_set().url("machine")


# A step costs ten times as much there, and the verbs between the statements are the same.
MongoMachine.TestCase.settings = settings(Machine.TestCase.settings, max_examples=size(3, prove=100))
test_every_due_time_has_one_fate_on_mongodb = MongoMachine.TestCase
