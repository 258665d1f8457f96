"""What a worker holds, what of it has ended, and how much more it has room for."""

from __future__ import annotations

from rota.engine.dispatch import Slots
from rota.model.decide import Completed
from rota.model.handler import Place
from rota.model.settings import Settings
from rota.model.values import Claimed, Instant
from rota.ports.executor import Ended
from rota.ports.turns import Turn

SMOOTHING = 0.1
"""Weight of the newest duration in a type's mean."""
UNWRITTEN_MAX = 3
"""Nothing more is claimed while more batches than this have ended and are not written."""
AHEAD_LEAST = 32
"""With no slot free, claiming ahead is worth a commit only for so many."""


class Holding:
    """The jobs of one worker between claim and written end. Belongs to the worker's thread."""

    def __init__(self, concurrency: int, settings: Settings) -> None:
        """Start empty."""
        self._concurrency = concurrency
        self._settings = settings
        self.jobs: dict[int, Claimed] = {}
        """Claimed and not ended."""
        self.plain: dict[int, Ended] = {}
        """Completed with nothing left behind, and not yet written."""
        self.ended: dict[int, Ended] = {}
        """Ended in any other way, and not yet written."""
        self.writing: dict[int, Ended] = {}
        """Plain ones that are being written beside the wheel."""
        self.means: dict[str, float] = {}
        """Measured mean seconds by job type."""
        self.suspect: Claimed | None = None
        """The one job among them under which a worker crashed before."""
        self._kinds: dict[tuple[str, str], int] = {}
        """How many are held of each executor and job type."""

    def __len__(self) -> int:
        """Return how many jobs are claimed and not yet written as ended."""
        return len(self.jobs) + self.unwritten

    @property
    def unwritten(self) -> int:
        """Return how many have ended whose end is not known to be written."""
        return len(self.plain) + len(self.ended) + len(self.writing)

    @property
    def ahead(self) -> bool:
        """Say whether more is held than there are slots."""
        return len(self.jobs) > self._concurrency

    def add(self, job: Claimed) -> None:
        """Take up a job that was claimed."""
        self.jobs[job.number] = job
        kind = (job.executor, job.job_type)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        if job.crashes:
            self.suspect = job

    def end(self, ended: Ended) -> None:
        """Move a job from held to ended. One that is not held was given up before: its result is dropped here."""
        job = self.jobs.pop(ended.job.number, None)
        if job is None:
            return
        outcome = ended.outcome
        is_plain = type(outcome) is Completed and outcome.result is None and ended.log_path is None
        (self.plain if is_plain else self.ended)[job.number] = ended
        self._kinds[job.executor, job.job_type] -= 1
        if job is self.suspect:
            self.suspect = None

    def by_type(self) -> dict[str, int]:
        """Return how many are held of each job type."""
        found: dict[str, int] = {}
        for (_, name), count in self._kinds.items():
            found[name] = found.get(name, 0) + count
        return found

    def numbers(self) -> set[int]:
        """Return the number of each job that is held, or has ended and may not be written."""
        return {*self.jobs, *self.plain, *self.ended, *self.writing}

    def written(self, turn: Turn) -> None:
        """Forget what a turn has written. Its durations are kept as means."""
        for ending in turn.endings:
            self._measure(self.ended.pop(ending.number))
        for number, _ in turn.done:
            self._measure(self.plain.pop(number))

    def done(self) -> list[tuple[int, Instant]]:
        """Return the number and the moment of each plain completion."""
        return [(number, each.at) for number, each in self.plain.items()]

    def hand_over(self) -> list[tuple[int, Instant]]:
        """Have the plain ones written beside the wheel: return them."""
        self.writing, self.plain = self.plain, {}
        return [(number, each.at) for number, each in self.writing.items()]

    def written_beside(self) -> None:
        """Forget what was written beside the wheel."""
        for each in self.writing.values():
            self._measure(each)
        self.writing = {}

    def put_back(self) -> None:
        """Take back what could not be written beside the wheel."""
        self.plain, self.writing = self.writing | self.plain, {}

    def lose(self) -> None:
        """Forget everything that is held: others have ended it."""
        self.jobs.clear()
        self._kinds.clear()
        self.suspect = None

    def free(self, given_up: int) -> int:
        """Return the slots a handler could start in: timed-out threads that have not returned still occupy theirs."""
        return max(0, self._concurrency - given_up - len(self.jobs))

    def slots(self, given_up: int, *, ahead: bool) -> Slots:
        """Return what there is room for; `ahead`: work may be claimed beyond the free slots."""
        return Slots(
            free=self.free(given_up),
            holding=len(self.jobs),
            quick=self._concurrency - self._slow(),
            ahead_s=max(0.0, self._settings.prefetch - self._waiting_s()) if ahead else 0.0,
            places=frozenset(place for (place, _), count in self._kinds.items() if count),
            means=self.means,
            alone=self.suspect is not None and self.suspect.executor != Place.PROCESS,
        )

    def want(self, slots: Slots) -> int:
        """Return how many candidates to ask for: the free slots, and what fits into the prefetch at the fastest mean."""
        if slots.alone:
            return 0
        batch = self._settings.batch
        if self.unwritten > UNWRITTEN_MAX * batch:
            return 0
        ahead = 0
        if len(slots.places) <= 1 and slots.means and slots.ahead_s > 0:
            ahead = int(slots.ahead_s / max(1e-6, min(slots.means.values())))
        if not slots.free and ahead < min(AHEAD_LEAST, batch):
            return 0
        room = max(3 * batch - slots.holding, slots.free)
        return min(batch, slots.free + ahead, room)

    def _slow(self) -> int:
        """Return how many of the jobs held are slow, or of a type not measured yet."""
        bound = self._settings.prefetch
        return sum(count for (_, name), count in self._kinds.items() if self.means.get(name, bound + 1) > bound)

    def _waiting_s(self) -> float:
        """Return the expected seconds of the work that is held but has no slot yet."""
        if not self.ahead:
            return 0.0
        expected = sum(count * self.means.get(name, 0.0) for (_, name), count in self._kinds.items())
        return expected * (len(self.jobs) - self._concurrency) / len(self.jobs)

    def _measure(self, each: Ended) -> None:
        if each.seconds <= 0:
            return
        name = each.job.job_type
        known = self.means.get(name)
        self.means[name] = each.seconds if known is None else known + SMOOTHING * (each.seconds - known)
