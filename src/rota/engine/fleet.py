"""The workers of a store: which are alive, by their locks and their beats."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import msgspec

from rota.model.values import WorkerInfo
from rota.ports.liveness import Life, Liveness
from rota.ports.store import Store


class Beats:
    """Remembers when each worker's beat was last seen to move. Clocks of other machines are not asked: only the counter."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def ages(self, workers: Iterable[WorkerInfo]) -> dict[str, float]:
        """Return for how long each beat has stood still at least, in seconds; those that are gone are forgotten."""
        now = time.monotonic()
        with self._lock:
            seen = {}
            for worker in workers:
                beat, since = self._seen.get(worker.id, (worker.beat, now))
                seen[worker.id] = (worker.beat, since if beat == worker.beat else now)
            self._seen = seen
            return {worker_id: now - since for worker_id, (_, since) in seen.items()}


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The workers: those that show signs of life, and those that should and don't."""

    alive: tuple[WorkerInfo, ...]
    lost: tuple[WorkerInfo, ...]
    ages_s: dict[str, float]


def fleet_of(store: Store, liveness: Liveness, beats: Beats, *, patience_s: float) -> Fleet:
    """Look for signs of life: the lock of those on this machine; of others their beat, as far as it was watched from here."""
    workers = [worker for worker in store.workers() if worker.kind == "worker"]
    ages = beats.ages(worker for worker in workers if worker.ended_at is None)
    alive: list[WorkerInfo] = []
    lost: list[WorkerInfo] = []
    for worker in workers:
        (alive if worker.ended_at is None and _lives(liveness, worker, ages[worker.id], patience_s) else lost).append(worker)
    return Fleet(alive=tuple(alive), lost=tuple(lost), ages_s=ages)


def _lives(liveness: Liveness, worker: WorkerInfo, age_s: float, patience_s: float) -> bool:
    with liveness.seize(worker.id) as life:
        found = life
    return found is Life.ALIVE or (found is Life.UNKNOWN and age_s <= patience_s)
