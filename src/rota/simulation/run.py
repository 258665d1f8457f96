"""The loop of a simulation: real workers turn, the clock goes from event to event, and things go wrong.

What goes wrong, and when, is drawn by chance, so that the same seed brings the same trouble.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from random import Random

import msgspec

from rota.errors import InvalidOption
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.simulation.fleet import Fleet, Gear, quietly
from rota.simulation.store import Vanish

POLL_S = 86_400.0
"""How often an idle worker looks: nobody else writes to its store, so what it has seen stays true."""
RECOVERY_S = 30.0
"""How often a worker looks for dead ones."""
SET_RIGHT, BACK, LOOK, DEED = "set right", "back", "look", "deed"
"""What else there is to come: the clock is set right, a worker is back, others look for it, somebody does something."""
LONGER: Instant = 3600 * SECOND
"""How far a step after the end goes at most."""
TELL_EVERY = 200
"""Steps between two words of progress."""
UNITS = ((365 * 86_400, "year"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


class Fault(StrEnum):
    """A kind of trouble."""

    CRASH = "crash"
    """A worker vanishes without a word, and starts again after a while."""
    CLOCK_STEP = "clock-step"
    """The wall clock jumps, ahead or back, and is set right later."""
    SLEEP = "sleep"
    """The machine is asleep."""


DOWN = (5 * SECOND, HOUR)
"""How long a worker that vanished stays away."""
STEP = (MINUTE, 5 * 365 * DAY)
"""How far the clock jumps."""
WRONG = (MINUTE, 6 * HOUR)
"""How long it stays wrong."""
ASLEEP = (MINUTE, 3 * DAY)
"""How long the machine sleeps."""


def faults_of(given: str | Iterable[str]) -> tuple[Fault, ...]:
    """Return the faults that are named, in one order and each once; refuse what is none."""
    words = given.split(",") if isinstance(given, str) else list(given)
    named = {str(word).strip().lower() for word in words} - {""}
    if named == {"all"}:
        return tuple(Fault)
    for word in sorted(named - set(Fault)):
        raise InvalidOption(f"faults={word!r} is not one of {', '.join(Fault)}, or all")
    return tuple(fault for fault in Fault if fault in named)


class Trouble(msgspec.Struct, order=True):
    """One thing to come, at a moment of the right time."""

    at: Instant
    number: int
    what: str
    worker: int = 0


class Agenda:
    """What is to come, in order of time."""

    def __init__(self, faults: Iterable[Fault], *, per_day: float, seed: int, start: Instant) -> None:
        """Draw the first of each kind; kinds don't share their chance."""
        self._mean = DAY / per_day if per_day > 0 else 0.0
        self.chances = {fault: Random(f"{seed}:fault:{fault}") for fault in Fault}  # noqa: S311 - a story, no secret
        self._coming: list[Trouble] = []
        self._number = 0
        for fault in faults:
            self.draw(fault, start)

    def draw(self, fault: Fault, after: Instant) -> None:
        """Draw when a fault happens next."""
        if self._mean:
            self.add(after + max(SECOND, round(self.chances[fault].expovariate(1.0) * self._mean)), fault)

    def add(self, at: Instant, what: str, worker: int = 0) -> None:
        """Note something to come."""
        self._number += 1
        heappush(self._coming, Trouble(at, self._number, what, worker))

    @property
    def next_at(self) -> Instant | None:
        """When the next thing comes."""
        return self._coming[0].at if self._coming else None

    def due(self, right: Instant) -> Trouble | None:
        """Take the next thing whose time has come."""
        return heappop(self._coming) if self._coming and self._coming[0].at <= right else None

    def between(self, fault: Fault, span: tuple[Instant, Instant]) -> Instant:
        """Draw a length of time, as likely between one minute and two as between one day and two; in whole seconds."""
        low, high = (math.log(each) for each in span)
        return round(math.exp(self.chances[fault].uniform(low, high)) / SECOND) * SECOND


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be simulated."""

    start: Instant
    end: Instant
    seed: int = 0
    workers: int = 1
    concurrency: int = 8
    slots: tuple[int, ...] = ()
    """How many jobs each worker runs at once, where that differs; else all run `concurrency`."""
    faults: tuple[Fault, ...] = ()
    faults_per_day: float = 2.0
    """Of each kind, on average."""
    failures: bool = False
    """Jobs fail as often as their types are known to."""


class Deed(msgspec.Struct, frozen=True):
    """Something that somebody does while the simulation runs, at a moment of the right time."""

    at: Instant
    act: Callable[[], object]


class Happened(msgspec.Struct, frozen=True):
    """Something that happened to the workers or to the clock, at a moment of the right time."""

    at: Instant
    what: str
    words: str


class Simulation:
    """One run over a store that is thrown away. `happened` is what befell it; what became of schedules is in the store."""

    def __init__(self, order: Order, gear: Gear) -> None:
        """Take what workers are made of, with a store that has its definitions."""
        self.order = order
        self._clock = gear.clock
        self.happened: list[Happened] = []
        self.recovered = 0
        self.surprises: list[str] = []
        """What the engine did not expect: none, unless it has a fault of its own."""
        self._deeds: Sequence[Deed] = ()
        self._agenda = Agenda(order.faults, per_day=order.faults_per_day, seed=order.seed, start=order.start)
        self._gear = gear
        gear.on_recovered = self._note_recovered

    def run(
        self,
        progress: Callable[[Instant], object] | None = None,
        deeds: Sequence[Deed] = (),
        longer: Callable[[], bool] | None = None,
    ) -> None:
        """Live through it, and on after the end while `longer` says so."""
        self._deeds = deeds
        for number, deed in enumerate(deeds):
            self._agenda.add(deed.at, DEED, number)
        order, clock = self.order, self._clock
        chance = Random(f"{order.seed}:order")  # noqa: S311 - a story, no secret
        with quietly() as self.surprises:
            self._fleet = Fleet(self._gear, slots=order.slots or (order.concurrency,) * order.workers, chance=chance)
            try:
                steps = 0
                while (left := order.end - clock.right) > 0:
                    self._step(left)
                    steps += 1
                    if progress is not None and steps % TELL_EVERY == 0:
                        progress(clock.right)
                if longer is not None:
                    # What is due at the end is fired first.
                    self._fleet.settle(self._vanished)
                    while longer():
                        self._step(LONGER)
                self._come_to_rest()
            finally:
                self._fleet.stop()

    def _step(self, left: Instant) -> None:
        """Let everybody do what can be done now, then let time pass to the next event."""
        delay = self._fleet.settle(self._vanished)
        coming = self._agenda.next_at
        waits = [left, delay, None if coming is None else coming - self._clock.right]
        self._clock.advance(max(0, min(wait for wait in waits if wait is not None)))
        while (trouble := self._agenda.due(self._clock.right)) is not None:
            self._befall(trouble.what, trouble.worker)

    def _come_to_rest(self) -> None:
        """Set right what is wrong at the end, so that the end can be looked at."""
        self._set_right()
        self._fleet.disarm()
        for number in range(1, self.order.workers + 1):
            self._start_again(number)
        self._fleet.settle(self._vanished)

    # ---- what goes wrong --------------------------------------------------------------------------------------

    def _befall(self, what: str, worker: int) -> None:
        match what:
            case Fault.CRASH:
                self._crash()
            case Fault.CLOCK_STEP:
                self._step_clock()
            case Fault.SLEEP:
                self._sleep()
            case "set right":
                self._set_right()
            case "back":
                self._start_again(worker)
            case "deed":
                self._deeds[worker].act()
            case _:
                return  # a look: the turn that follows is all there is to it
        if what in set(Fault):
            self._agenda.draw(Fault(what), self._clock.right)

    def _crash(self) -> None:
        chance = self._agenda.chances[Fault.CRASH]
        if not self._fleet.hands:
            return
        number = chance.choice(sorted(self._fleet.hands))
        how = chance.choice((None, Vanish.BEFORE, Vanish.AFTER))
        if how is not None:
            self._fleet.arm(number, how)
            return
        self._fleet.lose(number)
        self._vanished(number, None)

    def _vanished(self, number: int, how: Vanish | None) -> None:
        away = self._agenda.between(Fault.CRASH, DOWN)
        right = self._clock.right
        self._tell(
            Fault.CRASH, f"worker {number} vanished{f', in the middle of a write: {how}' if how else ''}; it is away for {length(away)}"
        )
        self._agenda.add(right + round(RECOVERY_S * SECOND), LOOK)
        self._agenda.add(right + away, BACK, number)

    def _start_again(self, number: int) -> None:
        if number not in self._fleet.hands:
            self._fleet.start(number)
            self._tell(BACK, f"worker {number} is back")

    def _step_clock(self) -> None:
        if self._clock.error:
            return
        far = self._agenda.between(Fault.CLOCK_STEP, STEP)
        back = self._agenda.chances[Fault.CLOCK_STEP].random() < 0.5
        lasts = self._agenda.between(Fault.CLOCK_STEP, WRONG)
        self._tell(Fault.CLOCK_STEP, f"the clock jumped {'back' if back else 'ahead'} by {length(far)}, for {length(lasts)}")
        self._clock.error = -far if back else far
        self._agenda.add(self._clock.right + lasts, SET_RIGHT)

    def _set_right(self) -> None:
        if self._clock.error:
            self._clock.error = 0
            self._tell(SET_RIGHT, "the clock was set right")

    def _sleep(self) -> None:
        lasts = min(self._agenda.between(Fault.SLEEP, ASLEEP), max(0, self.order.end - self._clock.right))
        self._tell(Fault.SLEEP, f"the machine slept for {length(lasts)}")
        self._clock.sleep(lasts)

    def _note_recovered(self, jobs: int) -> None:
        self.recovered += jobs
        self._tell(
            "recovered",
            f"{jobs} {'job' if jobs == 1 else 'jobs'} of a lost worker ended, to go on by {'its' if jobs == 1 else 'their'} budget",
        )

    def _tell(self, what: str, words: str) -> None:
        self.happened.append(Happened(self._clock.right, what, words))


def length(span: Instant) -> str:
    """Return a length of time in its two largest units: "3 days 4 hours"."""
    left, parts = round(abs(span) / SECOND, 2), []
    if left < 60:
        return f"{left:g} second{'' if left == 1 else 's'}"
    for size, name in UNITS:
        count = int(left // size)
        left -= count * size
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(parts[:2])


def settings_for(settings: Settings) -> Settings:
    """Return settings under which a simulation is quick; all that decides what happens is the user's own."""
    quick = msgspec.structs.replace(
        settings, synchronous="NORMAL", wal_pages=10_000, prefetch=0.0, retention=0.0, beat=POLL_S, recovery_interval=RECOVERY_S
    )
    # Beyond what is sane for a real worker, and so beyond what the settings take.
    for name in ("poll", "poll_hinted"):
        msgspec.structs.force_setattr(quick, name, POLL_S)
    return quick
