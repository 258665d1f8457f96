"""What a worker asks of the store in one turn: which ends to write, and how much to claim."""

from __future__ import annotations

from rota.engine.dispatch import Dispatcher, Slots
from rota.engine.holding import Holding
from rota.engine.knowledge import Knowledge
from rota.engine.parts import Parts
from rota.engine.suspects import Suspects
from rota.model.decide import Limits, Released, decide, decide_cancelled
from rota.model.values import SECOND, Instant
from rota.ports.executor import Ended
from rota.ports.turns import Ending, Turn

START_SPARE_S = 0.01
"""What a start is counted later than it may be: for what lies between the executor's last look and the handler, and between clocks."""


class Asking:
    """Puts turns together for one worker. Belongs to its thread."""

    def __init__(self, parts: Parts, hold: Holding, know: Knowledge, suspects: Suspects) -> None:
        """Take what the questions rest on."""
        self._parts = parts
        self._clock = parts.clock
        self._settings = parts.settings
        self._hold = hold
        self._know = know
        self._suspects = suspects
        self._limits = Limits(parts.settings.snooze_floor, parts.settings.max_snoozes)
        self._dispatcher: Dispatcher | None = None
        self.sweep = True
        """The next claim looks at everything that is parked."""

    def nothing_yet(self, worker_id: str) -> Turn:
        """Return a turn that asks for nothing."""
        # First: what may start until then by this clock may do so by the other one, too.
        start_by = self._clock.monotonic() + self._hold.start_s
        return Turn(
            now=self._clock.now(), worker_id=worker_id, limit=self._settings.batch, definitions=self._know.version, start_by=start_by
        )

    def add_endings(self, turn: Turn) -> None:
        """Have every end written that is not plain."""
        turn.endings = [self._ending(each, turn.now) for each in self._hold.ended.values()]

    def add_claim(self, turn: Turn, slots: Slots) -> None:
        """Claim what there is room for."""
        here = self._hold.by_type()
        turn.want = self._hold.want(slots)
        turn.types, turn.lanes = self._know.types(here), self._know.lanes(here)
        turn.suspects = self._hold.suspect is None
        turn.direct_only = self._parts.direct_only
        world = self._suspects.seen_by(self._know.world_with(here), self._hold.suspect)
        self._dispatcher = Dispatcher(world, slots, most=turn.want)
        turn.choose = self._dispatcher.choose
        turn.counting = self._know.counting(sweep=self.sweep, within=round((self._hold.start_s + START_SPARE_S) * SECOND))
        turn.run_ids = self._parts.ids.take(turn.want + 1, turn.now)

    def slots(self, given_up: int, *, stalled: bool) -> Slots:
        """Return what there is room for."""
        return self._hold.slots(given_up, ahead=not stalled)

    def note_suspects(self) -> None:
        """Have processes made ready for suspects that the last claim passed over for want of one."""
        if self._dispatcher is not None:
            self._suspects.passed(self._dispatcher.unready, saw_all=self._dispatcher.has_room)

    def _ending(self, each: Ended, now: Instant) -> Ending:
        transition = decide(each.job, each.outcome, now, self._parts.rng, self._limits)
        successor_id = self._parts.ids.take(1, now)[0] if transition.successor else ""
        job = each.job
        unstarted = (job.job_type, job.counted_at) if job.counted_at and type(each.outcome) is Released else None
        return Ending(job.number, each.at, transition, decide_cancelled(each.outcome), successor_id, each.log_path, unstarted)
