"""Foresight: which schedules a forecast has to simulate, and what the simulation says of their due times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from rota.engine.definitions_cache import make_world
from rota.engine.demand import Demands, demands_of
from rota.engine.registry import Registry
from rota.model.contention import contended, fits
from rota.model.figures import TypeStats, usual
from rota.model.forecast import Seen, list_due
from rota.model.gate import Role
from rota.model.prospects import Prospect
from rota.model.schedules import Schedule, ScheduleState
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import Instant, Job, instant, undashed
from rota.ports.store import Store, Where

if TYPE_CHECKING:
    from rota.simulation import Carried, Definitions, Preview

COUNTED = 20
"""Due times that are counted to see who meets whom, for each one that may be simulated."""
AFTER = 100
"""Steps that a simulation continues after its end while jobs wait that were due before, besides one for each due time."""
LIVE_MAX = 1000
"""Jobs that are not over which are taken into a simulation, at most."""
LIVE = (Status.PENDING, Status.QUEUED, Status.RUNNING)


class Foresight:
    """A look ahead at the schedules of a store: due times that meet are simulated, all others need no simulation."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        prospects: Sequence[Prospect],
        figures: Iterable[TypeStats],
        slots: Sequence[int],
    ) -> None:
        """Take every schedule that may run, what is known of the durations of their jobs, and the slots of each worker."""
        self._store = store
        self._registry = registry
        self._settings = settings
        self._prospects = prospects
        self._figures = {each.job_type: each for each in figures}
        self._workers = tuple(slots)
        self._slots = sum(slots)
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
        most = self._settings.forecast_simulated_max
        if not most:
            self.end = after
            return
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

        most = self._settings.forecast_simulated_max
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
        templates = {each.template for each in schedules}
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
                lasts = None if ran is None else max(1, usual(self._figures.get(schedule.template)) - ran)
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
