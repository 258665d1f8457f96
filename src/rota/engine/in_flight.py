"""The jobs that a worker holds, those that have ended and are not written yet, and how much more it has room for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

from rota.model.decide import Completed, Released
from rota.model.handler import Place
from rota.model.settings import Settings
from rota.model.values import Claimed, Instant, Origin
from rota.ports.executor import Ended
from rota.ports.store import Store
from rota.ports.turns import Turn, Turned

SCHEDULE: str = Origin.SCHEDULE.value
"""Compared with every job: as a plain text that is cheaper."""
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
MANY = 64
"""From so many jobs on, ends and claims are worth a transaction each."""
CLOSE_S = 5.0
"""How long a worker that stops waits for turns that are still under way."""


class Slots(msgspec.Struct, kw_only=True):
    """What a worker has room for."""

    free: int
    """Slots in which a handler can start at once."""
    holding: int
    """Jobs it holds already, running or waiting for a slot."""
    quick: int = 1
    """Slots that are free or run something whose measured mean is short: those that work claimed ahead can wait for."""
    ahead_s: float
    """How much work may be claimed beyond the free slots, in seconds."""
    places: frozenset[str]
    """The executors that hold something: work is claimed ahead for one executor only, so that slots are not exceeded."""
    means: Mapping[str, float]
    """Measured mean seconds by job type."""
    guess_s: float = 0.0
    """Seconds to expect of a type that is not measured yet."""
    guesses: int = 0
    """How many jobs of such types may be claimed by that guess; the others only into free slots."""
    alone: bool = False
    """It runs a suspect that has the worker to itself."""


class InFlight:
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
        """Plain ones that a parallel turn is writing."""
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
        return len(self.jobs) + len(self.plain) + len(self.ended) + len(self.writing)

    @property
    def ahead(self) -> bool:
        """Say whether more is held than there are slots."""
        return len(self.jobs) > self._concurrency

    def add(self, jobs: Iterable[Claimed]) -> None:
        """Take up jobs that were claimed."""
        held, kinds = self.jobs, self._kinds
        for job in jobs:
            held[job.number] = job
            kind = (job.executor, job.job_type)
            kinds[kind] = kinds.get(kind, 0) + 1
            if job.crashes:
                self.suspect = job

    def end(self, batch: Iterable[Ended]) -> None:
        """Move jobs from held to ended. One that is not held was given up before: its result is dropped here."""
        held, plain, kinds = self.jobs, self.plain, self._kinds
        for ended in batch:
            number, outcome = ended.job.number, ended.outcome
            job = held.pop(number, None)
            if job is None:
                continue
            if type(outcome) is Completed and outcome.result is None and ended.log_path is None and outcome.message is None:
                plain[number] = ended
            else:
                self.ended[number] = ended
                if type(outcome) is Released and job.start_by and job.started_at > self._late_at:
                    # Its start came too late. Allow more time: a machine that is always slower would never start one.
                    self._late_at = job.started_at
                    self.start_s = min(START_S[1], self.start_s * 3)
            kind = (job.executor, job.job_type)
            kinds[kind] = left = kinds[kind] - 1
            if not left:
                # Every turn goes through all kinds: of thousands of types, those that are not held must not cost anything.
                del kinds[kind]
            if job is self.suspect:
                self.suspect = None

    def held(self) -> tuple[Claimed, ...]:
        """Return the jobs that are claimed and not ended. From any thread."""
        return tuple(self.jobs.values())

    def by_type(self) -> dict[str, int]:
        """Return how many are held of each job type."""
        counts: dict[str, int] = {}
        for (_, name), count in self._kinds.items():
            counts[name] = counts.get(name, 0) + count
        return counts

    def numbers(self) -> set[int]:
        """Return the number of each job that is held, or has ended and may not be written."""
        return {*self.jobs, *self.plain, *self.ended, *self.writing}

    def add_done(self, turn: Turn) -> None:
        """Put the number and the moment of each plain completion into a turn, and which of them are of schedules."""
        done, scheduled = turn.done, turn.scheduled = [], []
        for number, each in self.plain.items():
            done.append((number, each.at))
            if each.job.origin == SCHEDULE:
                scheduled.append(number)

    def written(self, turn: Turn) -> None:
        """Forget what a turn has written. Its durations are kept as means."""
        if turn.endings:
            self.measure([self.ended.pop(ending.number) for ending in turn.endings])
        if len(turn.done) == len(self.plain):
            self.measure(self.plain.values())
            self.plain = {}
        else:
            self.measure([self.plain.pop(number) for number, _ in turn.done])

    def measure(self, batch: Iterable[Ended]) -> None:
        """Let the means of job types follow how long these took."""
        means = self.means
        for each in batch:
            seconds = each.seconds
            if seconds > 0:
                name = each.job.job_type
                known = means.get(name)
                means[name] = seconds if known is None else known + SMOOTHING * (seconds - known)

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
        means, kinds, held, prefetch_s = self.means, self._kinds, len(self.jobs), self._settings.prefetch
        # The seconds to expect of a type that is not measured yet: the average of those that are, unless these are too few.
        guess_s = sum(means.values()) / len(means) if len(means) >= GUESS_LEAST else None
        unknown_s = prefetch_s + 1 if guess_s is None else guess_s
        slow = sum([count for (_, name), count in kinds.items() if means.get(name, unknown_s) > prefetch_s])
        waiting_s = 0.0
        if held > self._concurrency:
            # The expected seconds of the work that is held but has no slot yet.
            expected_s = sum([count * means.get(name, guess_s or 0.0) for (_, name), count in kinds.items()])
            waiting_s = expected_s * (held - self._concurrency) / held
        return Slots(
            free=self.free(given_up),
            holding=held,
            quick=self._concurrency - slow,
            ahead_s=max(0.0, prefetch_s - waiting_s) if ahead else 0.0,
            places=frozenset([place for place, _ in kinds]),
            means=means,
            guess_s=guess_s or 0.0,
            # As many as are measured: a program of thousands of types is learned in a few turns, and a slow one stops it early.
            guesses=0 if guess_s is None else len(means),
            alone=self.suspect is not None and self.suspect.executor != Place.PROCESS,
        )

    def want(self, slots: Slots) -> int:
        """Return how many candidates to ask for: the free slots, and what fits into the prefetch at the fastest mean."""
        batch = self._settings.batch
        if slots.alone or len(self.plain) + len(self.ended) + len(self.writing) > UNWRITTEN_MAX * batch:
            return 0
        ahead = 0
        if len(slots.places) <= 1 and slots.means and slots.ahead_s > 0:
            ahead = int(slots.ahead_s / max(1e-6, min(slots.means.values())))
        if not slots.free and ahead < min(AHEAD_LEAST, batch):
            return 0
        room = max(3 * batch - slots.holding, slots.free)
        return min(batch, slots.free + ahead, room)


class ParallelTurns:
    """Threads that make turns beside the worker's own: one for ends, one for claims. All methods belong to the worker's thread.

    Only where the store does its work elsewhere. Then a server ends one batch while it claims the next, and this process hands a third
    to its executors in the meantime. A worker that has little to do needs none: one turn that does everything costs less.
    """

    def __init__(self, store: Store, jobs: InFlight, wake: Callable[[], None]) -> None:
        """Start nothing yet; `wake` is called when one of them has finished."""
        self.able = store.beside
        """Such turns are of use with this store, and not closed."""
        self.ending = self.claiming = False
        """Completions are being written, or a claim is under way: it was begun, and its outcome was not taken yet."""
        self._in_flight = jobs
        self._refused: frozenset[int] = frozenset()
        """Completions that could not be written."""
        self._ends = TurnThread(store, wake, name="rota-ends")
        self._claims = TurnThread(store, wake, name="rota-claims")

    @property
    def may_end(self) -> bool:
        """Say whether there are completions worth a turn of their own, and a thread is free for it.

        What could not be written is the worker's own to try again: it knows how to wait for a store that is away.
        """
        plain = self._in_flight.plain
        return self.able and len(plain) >= MANY and not self.ending and not any(number in plain for number in self._refused)

    @property
    def reach(self) -> int:
        """Return from how many jobs on claims are worth a turn of their own; out of reach where there is no other thread."""
        return MANY if self.able and self._in_flight.jobs else sys.maxsize

    def end(self, turn: Turn) -> None:
        """Have the plain completions written by this turn, which has nothing else to do."""
        self._in_flight.add_done(turn)
        self._in_flight.writing, self._in_flight.plain = self._in_flight.plain, {}
        self.ending = True
        self._ends.make(turn)

    def claim(self, turn: Turn) -> bool:
        """Have a turn made that does nothing but claim many; say whether it is one."""
        if turn.want < self.reach or turn.done or turn.endings or turn.reports:
            return False
        self.claiming = True
        self._claims.make(turn)
        return True

    def ended(self) -> Turned | None:
        """Return what came of completions, once. Those that could not be written are held as before: the next turn writes them."""
        if (made := self._ends.take()) is None:
            return None
        self.ending = False
        jobs, (turn, turned) = self._in_flight, made
        if isinstance(turned, Exception):
            self._refused = frozenset([number for number, _ in turn.done])
            jobs.plain, jobs.writing = jobs.writing | jobs.plain, {}
            return None
        self._refused = frozenset()
        jobs.measure(jobs.writing.values())
        jobs.writing = {}
        return turned

    def claimed(self) -> tuple[Turn, Turned | Exception] | None:
        """Return what came of a claim, once."""
        if (made := self._claims.take()) is not None:
            self.claiming = False
        return made

    def close(self) -> None:
        """Wait for what is under way, for a while, and let go of the threads. From here on the worker makes its own turns only."""
        self.able = False
        self._ends.close()
        self._claims.close()


class TurnThread:
    """Makes one turn at a time on a thread of its own. All methods belong to the worker's thread."""

    def __init__(self, store: Store, wake: Callable[[], None], *, name: str) -> None:
        """Start nothing yet."""
        self._store = store
        self._wake = wake
        self._name = name
        self._turn: Turn | None = None
        self._came: Turned | Exception | None = None
        self._call = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def make(self, turn: Turn) -> None:
        """Begin to make a turn. Not to be called before the outcome of the last one was taken."""
        self._turn = turn
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._call.set()

    def take(self) -> tuple[Turn, Turned | Exception] | None:
        """Return the turn and what came of it, once; None: none was given, or it is still under way."""
        turn, came = self._turn, self._came
        if turn is None or came is None:
            return None
        self._turn = self._came = None
        return turn, came

    def close(self) -> None:
        """Wait for what is under way, for a while, and end."""
        self._closed = True
        self._call.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            self._call.wait()
            self._call.clear()
            turn = self._turn
            if turn is not None and self._came is None:
                try:
                    self._came = self._store.turn(turn)
                except Exception as error:  # noqa: BLE001 - it is the worker's, which takes it as if it had made the turn itself
                    self._came = error
                self._wake()
            if self._closed:
                return
