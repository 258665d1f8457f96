"""What a worker holds, what of it has ended, and how much more it has room for."""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.dispatch import Slots
from rota.model.decide import Completed, Released
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
GUESS_LEAST = 16
"""From this number of measured types on, a type not measured yet is expected to take as long as they do on average."""
START_S = (0.05, 5.0)
"""How long after its claim a job of a rate-limited type may start: as a rule, and at most, on a machine that can't keep to the rule."""


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
        self.start_s = START_S[0]
        """How long after its claim a job of a rate-limited type may start."""
        self._late_at: Instant = 0
        """The last claim of which a start came too late."""

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
        if is_plain:
            self.plain[job.number] = ended
        else:
            self.ended[job.number] = ended
            if type(outcome) is Released and job.start_by:
                self._start_later(job)
        kind = (job.executor, job.job_type)
        left = self._kinds[kind] - 1
        if left:
            self._kinds[kind] = left
        else:
            # Every turn goes through all kinds: of thousands of types, those that are not held must not cost anything.
            del self._kinds[kind]
        if job is self.suspect:
            self.suspect = None

    def started_in_time(self) -> None:
        """Go back towards the rule."""
        self.start_s = max(START_S[0], self.start_s / 2)

    def _start_later(self, job: Claimed) -> None:
        """Allow more time after a start that came too late: a machine that is always slower would never start one."""
        if job.started_at > self._late_at:
            self._late_at = job.started_at
            self.start_s = min(START_S[1], self.start_s * 3)

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
        self._measure([self.ended.pop(ending.number) for ending in turn.endings])
        self._measure([self.plain.pop(number) for number, _ in turn.done])

    def done(self) -> list[tuple[int, Instant]]:
        """Return the number and the moment of each plain completion."""
        return [(number, each.at) for number, each in self.plain.items()]

    def hand_over(self) -> list[tuple[int, Instant]]:
        """Have the plain ones written beside the wheel: return them."""
        self.writing, self.plain = self.plain, {}
        return [(number, each.at) for number, each in self.writing.items()]

    def written_beside(self) -> None:
        """Forget what was written beside the wheel."""
        self._measure(self.writing.values())
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
        guess_s = self._guess_s()
        return Slots(
            free=self.free(given_up),
            holding=len(self.jobs),
            quick=self._concurrency - self._slow(guess_s),
            ahead_s=max(0.0, self._settings.prefetch - self._waiting_s(guess_s)) if ahead else 0.0,
            places=frozenset([place for place, _ in self._kinds]),
            means=self.means,
            guess_s=guess_s or 0.0,
            # As many as are measured: a program of thousands of types is learned in a few turns, and a slow one stops it early.
            guesses=0 if guess_s is None else len(self.means),
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

    def _guess_s(self) -> float | None:
        """Return the seconds to expect of a type that is not measured yet: the average of those that are. None: too few are."""
        return sum(self.means.values()) / len(self.means) if len(self.means) >= GUESS_LEAST else None

    def _slow(self, guess_s: float | None) -> int:
        """Return how many of the jobs held are slow, or of a type of which that is not known."""
        bound = self._settings.prefetch
        unknown = bound + 1 if guess_s is None else guess_s
        return sum(count for (_, name), count in self._kinds.items() if self.means.get(name, unknown) > bound)

    def _waiting_s(self, guess_s: float | None) -> float:
        """Return the expected seconds of the work that is held but has no slot yet."""
        if not self.ahead:
            return 0.0
        expected = sum(count * self.means.get(name, guess_s or 0.0) for (_, name), count in self._kinds.items())
        return expected * (len(self.jobs) - self._concurrency) / len(self.jobs)

    def _measure(self, batch: Iterable[Ended]) -> None:
        means = self.means
        for each in batch:
            seconds = each.seconds
            if seconds > 0:
                name = each.job.job_type
                known = means.get(name)
                means[name] = seconds if known is None else known + SMOOTHING * (seconds - known)
