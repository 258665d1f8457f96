"""Forecasts of what will run, and plans of what a change of a schedule would change.

A forecast simulates the due times that meet; all others need no simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.declarations import synced
from rota.engine.definitions_cache import make_world
from rota.engine.demand import Demands, demands_of
from rota.engine.fleet import fleet_of
from rota.errors import InvalidOption, InvalidSchedule
from rota.lab.agenda import note_of
from rota.lab.forecasts import Forecast, ForecastItem, SchedulePlan, ZoneChange
from rota.lab.prospects import DAY_US, DAYS_MAX, FURTHEST, prospects, window
from rota.model.checks import whole
from rota.model.contention import contended, fits
from rota.model.figures import FIGURES_H, Fared, usual
from rota.model.forecast import Ahead, Foreseen, Jumps, Seen, compare, list_due, look_ahead
from rota.model.gate import Role, Scope
from rota.model.prospects import Outcomes, Prospect
from rota.model.schedule_options import OPTIONS
from rota.model.schedules import Calendar, Schedule, ScheduleState
from rota.model.states import Status
from rota.model.values import LATEST, SECOND, Instant, Job, instant, moment_of, undashed
from rota.model.words import in_words
from rota.ports.store import Store, Where
from rota.schedule_edits import changed, with_template_name
from rota.schedule_views import in_scope, named

if TYPE_CHECKING:
    from rota.operation import Ask
    from rota.simulation import Carried, Definitions, Preview

HOUR_US = 3600 * SECOND
COUNTED = 20
"""Due times that are counted to see who meets whom, for each one that may be simulated."""
AFTER = 100
"""Steps that a simulation continues after its end while jobs wait that were due before, besides one for each due time."""
LIVE_MAX = 1000
"""Jobs that are not over which are taken into a simulation, at most."""
LIVE = (Status.PENDING, Status.QUEUED, Status.RUNNING)


def forecast(
    ask: Ask,
    hours: float | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    schedule: str | None = None,
    skipped: bool = False,
    organization: str | None = None,
    limit: int | None = None,
    simulated: int | None = None,
) -> Forecast:
    """Return what will run in the next hours, or between two moments: see `Rota.forecast`.

    `simulated` is the number of due times that are simulated, at most; None: the setting. With 0 neither overlaps nor waits for a slot or
    a limit are worked out, which takes most of the time.
    """
    now, settings = ask.now, ask.settings
    after, until = window(now, hours, start, end)
    shown = in_scope(ask, schedule, organization)
    most = settings.forecast_max if limit is None else whole("limit", limit, least=1, most=settings.forecast_max)
    store, simulated_max = synced(ask.session), settings.forecast_simulated_max
    if simulated is not None:
        simulated_max = min(simulated, simulated_max)
    everything = prospects(ask.session, store, _with_others(ask, store, shown) if simulated_max else shown, now if after >= now else None)
    mine = everything[: len(shown)]
    table = list_due(mine, after, until, most=most, skipped=skipped)
    foresight = Foresight(ask, everything, now, most=simulated_max) if simulated_max else None
    if foresight is not None:
        foresight.look(now, after, table.end(until))
    outcomes = Outcomes(everything, wait=round(settings.dependency_wait * SECOND), most=most)
    ahead = look_ahead(mine, table, outcomes=outcomes, foresee=_unforeseen if foresight is None else foresight.of, skipped=skipped)
    jumps = Jumps(mine, after, until)
    exact_until = after if foresight is None else foresight.end
    return Forecast(
        (_item(item, jumps) for item in ahead.items),
        start=moment_of(after),
        end=moment_of(until),
        cut=ahead.cut,
        exact_until=None if exact_until is None else moment_of(max(after, exact_until)),
        changes=tuple(_changes(ahead, mine, jumps)),
    )


def plan(ask: Ask, name: str, *, days: int = 90, organization: str | None = None, **options: Any) -> SchedulePlan:
    """Return the due times of the coming days that a change would add and remove: see `Rota.plan`."""
    if not options:
        raise InvalidOption(f"nothing to change: pass some of {', '.join(OPTIONS)}")
    now = ask.now
    end = min(FURTHEST, now + whole("days", days, least=1, most=DAYS_MAX) * DAY_US)
    before = msgspec.structs.replace(named(ask, name, organization), state=ScheduleState.ENABLED)
    after = changed(ask.session, before, with_template_name(ask.session, options), now)
    calendars = {calendar.name: calendar for _, calendar in ask.store.calendars(organization=before.organization)}
    _check_references(ask, after, calendars)
    old, new = (Prospect(schedule=each, calendar=calendars.get(each.calendar or "")) for each in (before, after))
    change = compare(old, new, now, end, most=ask.settings.forecast_max)
    return SchedulePlan(
        schedule=before.name,
        start=moment_of(now),
        end=moment_of(change.until),
        added=tuple(map(moment_of, change.added)),
        removed=tuple(map(moment_of, change.removed)),
        kept=change.kept,
        words_before=in_words(before.timing),
        words_after=in_words(after.timing),
    )


def _unforeseen(_schedule_id: str, _due_at: Instant) -> None:
    """Say nothing of a due time: it is as the definitions say."""


def _with_others(ask: Ask, store: Store, shown: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules that are shown, and after them all others that the actor may read: they occupy slots too."""
    known = {each.id for each in shown}
    return [*shown, *(each for each in store.schedules(scope=ask.scope) if each.id not in known)]


def _check_references(ask: Ask, after: Schedule, calendars: Mapping[str, Calendar]) -> None:
    """Refuse what the store would refuse."""
    if after.calendar is not None and after.calendar not in calendars:
        raise InvalidSchedule(f"calendar={after.calendar!r} is not there: `rota calendar list` shows them")
    there = {each.name for each in ask.store.schedules(scope=Scope(after.organization))} if after.depends_on else set()
    for name in after.depends_on:
        if name not in there:
            raise InvalidSchedule(f"depends_on={name!r}: there is no schedule of that name: `rota schedule list` shows them")


def _item(item: Foreseen, jumps: Jumps) -> ForecastItem:
    schedule, starts_at = item.prospect.schedule, item.starts_at
    return ForecastItem(
        schedule=schedule.name,
        organization=schedule.organization,
        template=schedule.template,
        due_at=moment_of(item.due_at),
        fate=item.fate,
        note=note_of(item, jumps),
        starts_at=None if starts_at is None else moment_of(starts_at),
        wait_s=0.0 if starts_at is None else (starts_at - item.due_at) / SECOND,
    )


def _changes(ahead: Ahead, shown: Sequence[Prospect], jumps: Jumps) -> Iterator[ZoneChange]:
    """Go through the jumps that concern what is in the forecast, or what is not because of them."""
    due = {item.prospect.schedule.id for item in ahead.items}
    last = ahead.items[-1].due_at if ahead.cut and ahead.items else LATEST
    for jump in jumps.inside():
        concerned = [each for each in shown if jump.concerns(each.schedule) and (each.schedule.id in due or jump.skips(each))]
        names = sorted({each.schedule.name for each in concerned})
        if names and jump.at <= last:
            yield ZoneChange(at=moment_of(jump.at), timezone=jump.timezone, before=jump.before, after=jump.after, schedules=tuple(names))


# ---- what meets -----------------------------------------------------------------------------------------------------


class Foresight:
    """A look ahead at the schedules of a store: due times that meet are simulated, all others need no simulation."""

    def __init__(self, ask: Ask, prospects: Sequence[Prospect], now: Instant, *, most: int) -> None:
        """Take every schedule that may run; read how long jobs of their types take, and the slots of each worker."""
        self._most = most
        store, settings = ask.store, ask.settings
        self._store = store
        self._registry = ask.registry
        self._settings = settings
        self._prospects = prospects
        fared: dict[str, Fared] = {}
        for figure in store.figures(since=now - FIGURES_H * HOUR_US, scope=ask.scope):
            if figure.status == Status.COMPLETED:
                kept = fared.setdefault(figure.job_type, Fared())
                kept.add(bucket=figure.bucket, completed=True, count=figure.count, total_us=figure.total_us)
        self._figures = {job_type: each.of(job_type) for job_type, each in fared.items()}
        fleet = fleet_of(store, ask.opened.liveness, ask.session.beats, patience_s=settings.lease_ttl)
        self._workers = tuple(worker.slots or settings.concurrency for worker in fleet.alive) or (settings.concurrency,)
        self._slots = sum(self._workers)
        self.end: Instant | None = None
        """Up to here everything that meets was simulated; None: to the end of the look."""
        self._seen: Preview | None = None

    def of(self, schedule_id: str, due_at: Instant) -> Seen | None:
        """Return what was simulated of a due time."""
        return None if self._seen is None or due_at > self._seen.end else self._seen.of(schedule_id, due_at)

    def look(self, now: Instant, after: Instant, until: Instant) -> None:
        """Simulate what meets in (after, until].

        A window that begins later is simulated from now on, with the jobs that are there now, unless too much is due before it.
        """
        most = self._most
        from_now = after >= now and not self._exceeds(most, now, after)
        begin = now if from_now else after
        live = self._live() if from_now else {}
        world = make_world(self._registry, self._store, frozenset())
        demands = demands_of(self._prospects, self._registry, world, figures=self._figures, slots=self._slots, busy=live)
        due = list_due(self._prospects, begin, until, most=most * COUNTED)
        counted = [(at, place) for at, place, _ in due.entries]
        if due.cut:
            # Those of one moment are counted together or not at all.
            self.end = until = counted[-1][0] - 1
        chosen, everything = contended(counted, demands.each, demands.rooms), frozenset(range(len(demands.each)))
        while chosen:
            end = self._simulate(chosen, begin, until, live if from_now else None)
            self.end = end if end < until else self.end
            if chosen == everything or self._fits(chosen, counted, demands):
                return
            chosen = everything

    def _exceeds(self, most: int, after: Instant, until: Instant) -> bool:
        """Say whether more than this number of due times lie between two moments."""
        count = 0
        for prospect in self._prospects:
            run = prospect.lattice.tally(after, until) if after < until else None
            count += 0 if run is None else run.count
            if count > most:
                return True
        return False

    def _live(self) -> dict[str, list[Job]]:
        """Return the jobs of schedules that are not over, by the schedules' ids."""
        found: dict[str, list[Job]] = {}
        for _, job in self._store.find(Where(status=LIVE), limit=LIVE_MAX):
            schedule_id = undashed(job.schedule_id or "")
            if schedule_id is not None:
                found.setdefault(schedule_id, []).append(job)
        return found

    def _fits(self, chosen: frozenset[int], counted: Sequence[tuple[Instant, int]], demands: Demands) -> bool:
        """Say whether the slots suffice for what was simulated and what was not, together."""
        if self._seen is None:
            return True
        others = [(at, at + demands.each[place].lasts) for at, place in counted if place not in chosen and at <= self._seen.end]
        return fits([*others, *self._seen.runs()], self._slots)

    # ---- simulating -------------------------------------------------------------------------------------------

    def _simulate(self, chosen: frozenset[int], begin: Instant, until: Instant, live: Mapping[str, Sequence[Job]] | None) -> Instant:
        """Simulate some schedules, and return up to when; without `live` nothing is known of what was before."""
        from rota.simulation import Order, preview  # noqa: PLC0415 - few programs need it

        most = self._most
        prospects = [self._prospects[place] for place in sorted(chosen)]
        due = list_due(prospects, begin, until, most=most + 1)
        end = due.entries[most][0] - 1 if len(due.entries) > most else until
        if end <= begin:
            return begin
        said = self._definitions(prospects)
        carried: Sequence[Carried] = ()
        if live is not None:
            carried, said.behind = self._before(prospects, begin, live)
        order = Order(start=begin, end=end, workers=len(self._workers), slots=self._workers)
        # Who waits at the end is followed for as long as it took to get there.
        self._seen = preview(said, order, self._settings, carried=carried, most=AFTER + len(due.entries))
        return end

    def _definitions(self, prospects: Sequence[Prospect]) -> Definitions:
        """Return the definitions of some schedules, and what they need."""
        from rota.simulation import Definitions  # noqa: PLC0415 - few programs need it

        schedules = [_stilled(each) for each in prospects]
        organizations = {each.organization for each in schedules}
        templates = {each.job_type for each in schedules}
        makers = {each.created_by for each in schedules}
        store = self._store
        return Definitions(
            organizations=[each for each in store.organizations() if each.name in organizations],
            users=[
                each for each in store.users() if each.organization in organizations and (each.name in makers or each.role is Role.MANAGER)
            ],
            templates=[each for each in store.templates() if each.name in templates],
            pauses=[(kind, name) for kind, name in store.pauses() if kind == "all" or name in organizations | templates],
            calendars=[(owner, calendar) for owner, calendar in store.calendars() if owner in organizations],
            schedules=schedules,
            figures=tuple(each for each in self._figures.values() if each.job_type in templates),
        )

    def _before(
        self, prospects: Sequence[Prospect], now: Instant, live: Mapping[str, Sequence[Job]]
    ) -> tuple[list[Carried], dict[str, Instant]]:
        """Return the jobs that were there before, and of schedules whose job waits for others the moment before its due time."""
        from rota.simulation import Carried  # noqa: PLC0415 - few programs need it

        carried: list[Carried] = []
        behind: dict[str, Instant] = {}
        awaited = {(each.schedule.organization, name) for each in prospects for name in each.schedule.depends_on}
        for schedule in (each.schedule for each in prospects):
            for job in live.get(schedule.id, ()):
                if job.blockers and schedule.depends_on and job.due_at is not None:
                    # It waits for others, and will again: it is fired once more.
                    behind[schedule.id] = min(behind.get(schedule.id, now), instant(job.due_at) - 1)
                    continue
                ran = None if job.started_at is None else now - instant(job.started_at)
                lasts = None if ran is None else max(1, usual(self._figures.get(schedule.job_type)) - ran)
                carried.append(Carried(schedule_id=schedule.id, created_at=instant(job.created_at), lasts=lasts))
            if (schedule.organization, schedule.name) in awaited:
                latest = self._store.find(Where(schedule_id=schedule.id, tails=True), limit=1)
                carried += [
                    Carried(
                        schedule_id=schedule.id,
                        created_at=instant(job.created_at),
                        ended_at=instant(job.finished_at),
                        completed=job.status is Status.COMPLETED,
                    )
                    for _, job in latest
                    if job.finished_at is not None
                ]
        return carried, behind


def _stilled(prospect: Prospect) -> Schedule:
    """Return a schedule as it is simulated: one whose jobs are all refused, for reasons that may lie in the code, fires nothing."""
    schedule = prospect.schedule
    if prospect.refused is None or schedule.state is not ScheduleState.ENABLED:
        return schedule
    return msgspec.structs.replace(schedule, state=ScheduleState.PAUSED)
