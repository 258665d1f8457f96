"""A preview: what becomes of each due time of some schedules, by a simulation without chance. Forecasts ask for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from rota.engine.due import DueRows
from rota.engine.registry import Registry
from rota.errors import InvalidInput, PermissionDenied, Refused
from rota.model.decide import Transition
from rota.model.forecast import Seen
from rota.model.gate import SYSTEM
from rota.model.schedules import Schedule, next_due
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, Instant, Job, instant
from rota.ports.clock import Ids
from rota.ports.schedules import Occurrence
from rota.ports.store import Adopted, Past
from rota.simulation.report import chains_of, rows_of
from rota.simulation.run import Order
from rota.simulation.stage import Definitions, Stage, stage


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a schedule that was there before: it still has to run, or it has ended, which others may depend on."""

    schedule_id: str
    created_at: Instant
    lasts: Instant | None = None
    """How long it will still run, if it runs now."""
    ended_at: Instant | None = None
    completed: bool = False


class Preview:
    """What becomes of due times, by the ids of their schedules."""

    def __init__(self, end: Instant) -> None:
        """Begin with nothing."""
        self.end = end
        """Up to here, this moment included, every due time is foreseen."""
        self._single: dict[tuple[str, Instant], Seen] = {}
        self._spans: dict[str, list[Occurrence]] = {}
        """Rows that cover several due times, in order of time."""

    def add(self, schedule_id: str, rows: Sequence[Occurrence], chains: dict[str, list[Job]]) -> None:
        """Take the ledger of one schedule and its jobs."""
        for row in sorted(rows, key=_due_at):
            if row.count > 1:
                self._spans.setdefault(schedule_id, []).append(row)
                continue
            jobs = chains.get(row.job_id or "", [])
            starts_at = jobs[0].started_at if jobs else None
            ends_at = jobs[-1].finished_at if jobs else None
            self._single[schedule_id, row.due_at] = Seen(
                fate=row.fate,
                reason=row.reason,
                starts_at=None if starts_at is None else instant(starts_at),
                ends_at=None if ends_at is None else instant(ends_at),
            )

    def of(self, schedule_id: str, due_at: Instant) -> Seen | None:
        """Return what becomes of a due time, if it is foreseen."""
        found = self._single.get((schedule_id, due_at))
        if found is not None:
            return found
        spans = self._spans.get(schedule_id, [])
        place = bisect_right(spans, due_at, key=_due_at) - 1
        if place < 0 or spans[place].last_due_at < due_at:
            return None
        return Seen(fate=spans[place].fate, reason=spans[place].reason)

    def runs(self) -> Iterator[tuple[Instant, Instant]]:
        """Go through when jobs run, from one moment to another; one that has not ended runs to the end."""
        for seen in self._single.values():
            if seen.starts_at is not None:
                yield seen.starts_at, max(self.end, seen.starts_at) if seen.ends_at is None else seen.ends_at


def _due_at(row: Occurrence) -> Instant:
    return row.due_at


def preview(said: Definitions, order: Order, settings: Settings, *, carried: Sequence[Carried] = (), most: int) -> Preview:
    """Live through the schedules of some definitions, and on until every job due by then has started, for at most `most` steps more."""
    usual = tuple(msgspec.structs.replace(each, p95_s=each.average_s) for each in said.figures)
    with stage(msgspec.structs.replace(said, figures=usual), order, settings) as made:
        schedules = made.store.schedules()
        registry = Registry(made.settings, made.ids)
        registry.sync(made.store, order.start)
        made.live(registry, remaining=_carry(made, registry, carried), longer=_longer(made, order, schedules, most))
        seen = Preview(order.end)
        for schedule in schedules:
            seen.add(schedule.id, rows_of(made.store, schedule), chains_of(made.store, schedule))
    return seen


def _longer(made: Stage, order: Order, schedules: Sequence[Schedule], most: int) -> Callable[[], bool]:
    """Return a test whether a job that was due in time still waits, and is worth some more steps."""
    wait = round(made.settings.dependency_wait * SECOND)
    # A job that waits for other schedules is abandoned when its own schedule is due again.
    given_up = [next_due(each.timing, order.end) or order.end + wait for each in schedules if each.depends_on]
    left, latest = most, max([2 * order.end - order.start, *given_up])

    def longer() -> bool:
        nonlocal left
        left -= 1
        return left > 0 and made.clock.right < latest and made.store.waits(order.end)

    return longer


def _carry(made: Stage, registry: Registry, carried: Sequence[Carried]) -> dict[str, Instant]:
    """Write jobs that were there before the start; return how long those that ran will still run, by their ids."""
    by_id = {each.id: each for each in made.store.schedules()}
    rows = DueRows(registry, made.ids, Random(0))  # noqa: S311 - nothing is drawn
    rows.begin()
    adopted: list[Adopted] = []
    remaining: dict[str, Instant] = {}
    # What runs takes its slots and limits before what waits.
    for each in sorted(carried, key=lambda each: (each.ended_at is None, each.lasts is None, each.created_at)):
        schedule, start = by_id[each.schedule_id], made.clock.now()
        created_at = start if each.ended_at is None else each.created_at
        try:
            row = rows.build(schedule, schedule.params, now=created_at, run_at=created_at)
        except (InvalidInput, PermissionDenied, Refused):
            continue
        adopted.append(
            Adopted(row=row, created_at=created_at, past=None if each.ended_at is None else _past(each, each.ended_at, made.ids))
        )
        if each.lasts is not None:
            remaining[row.job_id] = each.lasts
    if adopted:
        (adopter_id,) = made.ids.take(1, made.clock.now())
        made.store.adopt(adopted, adopter_id=adopter_id, actor=SYSTEM, now=made.clock.now())
    return remaining


def _past(each: Carried, ended_at: Instant, ids: Ids) -> Past:
    status = Status.COMPLETED if each.completed else Status.CANCELLED
    (run_id,) = ids.take(1, each.created_at)
    return Past(run_id=run_id, started_at=each.created_at, ended_at=ended_at, failures=0, transition=Transition(status))
