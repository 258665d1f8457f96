"""The workers of a simulation: real ones, which take turns in an order drawn by chance, and may vanish."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import get_ident

import msgspec

from rota.engine.parts import Parts
from rota.engine.registry import Registry
from rota.engine.worker import Worker
from rota.model.handler import Handler, inspect_handler
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.ports.clock import Ids
from rota.ports.executor import Equipment, Executor
from rota.ports.liveness import Life
from rota.simulation.executor import Manners, SimulatedClock, SimulatedExecutor
from rota.simulation.store import ThrowAway, Vanish, Vanished

LOGGERS = ("rota.worker", "rota.jobs", "rota.trigger", "rota.recovery", "rota.retention", "rota.templates", "rota.schedules")
TURNS_MAX = 100_000
"""Turns at one moment: more mean that workers keep each other busy for ever."""


class Roll:
    """Implements `rota.ports.liveness.Liveness` for workers that are all simulated here."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.living: set[str] = set()

    def take(self, worker_id: str) -> Sign:
        """Let a worker live."""
        self.living.add(worker_id)
        return Sign(self, worker_id)

    @contextmanager
    def seize(self, worker_id: str) -> Iterator[Life]:
        """Say whether a worker lives: here this is always known."""
        yield Life.ALIVE if worker_id in self.living else Life.DEAD

    def forget(self, worker_id: str) -> None:
        """Forget a worker."""
        self.living.discard(worker_id)


class Sign:
    """The sign of life of one simulated worker."""

    fd = -1

    def __init__(self, roll: Roll, worker_id: str) -> None:
        """Stand for one worker."""
        self._roll = roll
        self._worker_id = worker_id

    def release(self, *, clean: bool) -> None:
        """Live no more."""
        del clean
        self._roll.forget(self._worker_id)


class Gear(msgspec.Struct, kw_only=True):
    """What all workers of one simulation share."""

    path: Path
    settings: Settings
    clock: SimulatedClock
    ids: Ids
    rng: Random
    registry: Registry
    manners: Manners
    on_recovered: Callable[[int], object] | None = None
    roll: Roll = msgspec.field(default_factory=Roll)

    def handlers(self) -> Mapping[str, Handler]:
        """Return a handler for every template: its jobs can be claimed, and nothing of the user's is called."""
        return {known.name: inspect_handler(known.name, _nothing, "inline") for known in self.registry.known()}


class Hand:
    """One worker as a process would be it: with its own connections and executors, all gone when it vanishes."""

    def __init__(self, gear: Gear, concurrency: int) -> None:
        """Start it: it recovers what the dead have left."""
        self._gear = gear
        self._executors: list[SimulatedExecutor] = []
        self.store = ThrowAway(gear.path, gear.settings)
        self.store.on_recovered = gear.on_recovered
        parts = Parts(
            store=self.store,
            liveness=gear.roll,
            clock=gear.clock,
            ids=gear.ids,
            rng=gear.rng,
            settings=gear.settings,
            handlers=gear.handlers(),
            registry=gear.registry,
            build_executor=self._build,
            log_dir=None,
        )
        self.worker = Worker(parts, concurrency=concurrency)
        self.worker.start()

    def _build(self, place: str, equipment: Equipment) -> Executor:
        del place
        executor = SimulatedExecutor(equipment, self._gear.clock, self._gear.manners)
        self._executors.append(executor)
        return executor

    def turn(self) -> Instant:
        """Turn once, with what is over handed in before; return after how long to turn again."""
        for executor in self._executors:
            executor.deliver()
        delay = round(self.worker.turn() * SECOND)
        # What was started in this turn is not in the worker's own answer.
        ends = [executor.ends for executor in self._executors if executor.ends is not None]
        return min([delay, *(max(0, end - self._gear.clock.passed) for end in ends)])

    def vanish(self) -> None:
        """Be gone without a word."""
        self._gear.roll.forget(self.worker.id)
        self.stop()

    def stop(self) -> None:
        """Let go: what still runs is left as it is."""
        self.worker.inbox.close()
        self.store.close()


class Fleet:
    """All workers. `settle` turns them until there is nothing left to do at this moment."""

    def __init__(self, gear: Gear, *, slots: Sequence[int], chance: Random) -> None:
        """Start a worker for each number of slots."""
        self._gear = gear
        self._slots = slots
        self._chance = chance
        self.hands: dict[int, Hand] = {}
        for number in range(1, len(slots) + 1):
            self.start(number)

    def start(self, number: int) -> None:
        """Start a worker, or start it again."""
        self.hands[number] = Hand(self._gear, self._slots[number - 1])

    def settle(self, on_vanished: Callable[[int, Vanish | None], object]) -> Instant | None:
        """Turn everybody until all is quiet; return after how long somebody wants to turn again (None: there is nobody)."""
        for _ in range(TURNS_MAX):
            before = sum(hand.store.writes for hand in self.hands.values())
            numbers = sorted(self.hands)
            if len(numbers) > 1:
                self._chance.shuffle(numbers)
            delays = [self._turn(number, on_vanished) for number in numbers]
            quiet = len(self.hands) == 1 or sum(hand.store.writes for hand in self.hands.values()) == before
            if not self.hands:
                return None
            if quiet and len(delays) == len(self.hands) and min(delays) > 0:
                return min(delays)
        raise AssertionError("the workers of the simulation don't come to rest")

    def _turn(self, number: int, on_vanished: Callable[[int, Vanish | None], object]) -> Instant:
        hand = self.hands[number]
        try:
            return hand.turn()
        except Vanished:
            self.lose(number)
            on_vanished(number, hand.store.vanish)
            return 0

    def lose(self, number: int) -> None:
        """Let a worker vanish now."""
        self.hands.pop(number).vanish()

    def arm(self, number: int, how: Vanish) -> None:
        """Let a worker vanish in its next write."""
        self.hands[number].store.vanish = how

    def disarm(self) -> None:
        """Let nobody vanish any more."""
        for hand in self.hands.values():
            hand.store.vanish = None

    def stop(self) -> None:
        """Let everybody go."""
        while self.hands:
            self.hands.popitem()[1].stop()


@contextmanager
def quietly() -> Iterator[list[str]]:
    """Keep what simulated workers would log from being taken for the real ones' words: of this thread only.

    What they could not expect is gathered: the engine goes on after a surprise, but a simulation has to tell of it.
    """
    own, surprises = get_ident(), list[str]()

    def others(record: logging.LogRecord) -> bool:
        if record.thread == own and record.exc_info and record.exc_info[1] is not None:
            surprises.append(f"{record.getMessage()}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}")
        return record.thread != own

    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(others)
    try:
        yield surprises
    finally:
        for logger in loggers:
            logger.removeFilter(others)


def _nothing(**_params: object) -> None:
    """Be a handler that is never called."""
