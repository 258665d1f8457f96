"""Jobs whose parameters a worker's handlers do not take: left to workers that do, for as long as one may come.

During a rolling deploy two versions of the code enqueue and run side by side. A job carries the digest of the parameters that it was
enqueued for, and waits in a lane of its own. A worker claims from the lanes that its handlers take. A job without a digest is compared
with the handler when it is claimed; one that does not fit is given back, and from then on waits for its parameters too.
"""

from __future__ import annotations

from collections.abc import Collection

from rota.engine.explain import fleet_of
from rota.engine.parts import Parts
from rota.engine.predicates import Server, Waiting
from rota.errors import InvalidParams
from rota.model.codec import digest_of
from rota.model.decide import Failed, Released
from rota.model.handler import Handler
from rota.model.lanes import JobLane, ParamNames, Takes, fits, signature
from rota.model.params import EMPTY, decode_params
from rota.model.values import SECOND, Claimed, Origin

LOOKS = 20
"""How often in `misfit_patience` lanes are looked at that this worker does not take."""
LANES_MAX = 200
"""Lanes of one type, at most, that given back jobs add to: what strangers make up has an end."""
RIPE_MAX = 100
"""Jobs that are taken out of such lanes at once."""


class Misfits:
    """The lanes that this worker's handlers do not take. Belongs to its thread."""

    def __init__(self, parts: Parts) -> None:
        """Know of none yet."""
        self._parts = parts
        self._lanes: dict[int, JobLane] = {}
        self._undigested: frozenset[int] = frozenset()
        self._counts: dict[str, int] = {}
        self._alone_since: dict[int, float] = {}
        self._looked = parts.clock.monotonic()
        self.ripe: tuple[int, ...] = ()
        """Jobs for which no fitting worker has come for `misfit_patience`: this worker is to take them, and to see."""

    def sort(self, lanes: Collection[JobLane]) -> dict[int, str]:
        """Take in the lanes that this worker serves; return those that its handlers take, each with its type."""
        taken: dict[int, str] = {}
        self._lanes, self._counts = {}, {}
        for lane in lanes:
            self._counts[lane.job_type] = self._counts.get(lane.job_type, 0) + 1
            handler = self._parts.handlers[lane.job_type]
            if lane.names is None or fits(handler.codec.names, lane.names):
                taken[lane.id] = lane.job_type
            else:
                self._lanes[lane.id] = lane
        self._undigested = frozenset(lane.id for lane in lanes if not lane.digest)
        self._alone_since = {lane: since for lane, since in self._alone_since.items() if lane in self._lanes}
        return taken

    @property
    def watched(self) -> frozenset[int]:
        """Lanes whose jobs are compared with their handlers before they start."""
        return self._undigested.union(self._lanes) if self._lanes else self._undigested

    def look(self, monotonic: float) -> bool:
        """Look, now and then, whether somebody takes what this worker does not; say whether there are jobs to see to."""
        patience = self._parts.settings.misfit_patience
        if not self._lanes or monotonic - self._looked < patience / LOOKS:
            return False
        self._looked = monotonic
        fleet = self._fleet()
        alone = [lane for lane in self._lanes.values() if not any(_takes(server, lane) for server in fleet)]
        self._alone_since = {lane.id: self._alone_since.get(lane.id, monotonic) for lane in alone}
        over = [lane for lane, since in self._alone_since.items() if monotonic - since >= patience]
        if over:
            before = self._parts.clock.now() - round(patience * SECOND)
            self.ripe = tuple(self._parts.store.old_in_lanes(over, before=before, limit=RIPE_MAX))
        return bool(self.ripe)

    def _fleet(self) -> tuple[Server, ...]:
        workers = [
            each for each in self._parts.store.workers() if each.kind == "worker" and each.ended_at is None and each.stopping_at is None
        ]
        return fleet_of(workers, self._parts.registry)

    def refuse(self, job: Claimed) -> Failed | Released | None:
        """Return how a job ends that its handler can't be called with: given back once, or dead if nobody has come for it."""
        handler = self._parts.handlers.get(job.job_type)
        if handler is None or job.origin == Origin.DIRECT or (job.params == EMPTY and not handler.required):
            return None
        why = _mismatch(handler, job)
        if why is None:
            return None
        if job.lane in self._undigested:
            return self._give_back(job, why)
        lane, patience_s = self._lanes.get(job.lane), self._parts.settings.misfit_patience
        asked = "other parameters" if lane is None or lane.names is None else signature(job.job_type, lane.names)
        return _dead(f"it was enqueued for {asked}, and no worker that takes this came in {patience_s:g} s: {why}")

    def _give_back(self, job: Claimed, why: str) -> Failed | Released:
        own = frozenset(decode_params(job.params))
        names = ParamNames(own, own)
        digest = digest_of(names)
        if any(lane.digest == digest and lane.job_type == job.job_type for lane in self._lanes.values()):
            return Released(f"given back: {why}", Takes(digest, names))
        if self._counts.get(job.job_type, 0) >= LANES_MAX:
            return _dead(why)
        self._counts[job.job_type] += 1
        return Released(f"given back: {why}", Takes(digest, names))


def _dead(error: str) -> Failed:
    return Failed(error, permanent=True, error_code="params_mismatch")


def _takes(server: Server, lane: JobLane) -> bool:
    takes = server.takes.get(lane.job_type)
    return (
        server.serves(Waiting(lane.job_type, queue=lane.queue)) and takes is not None and lane.names is not None and fits(takes, lane.names)
    )


def _mismatch(handler: Handler, job: Claimed) -> str | None:
    try:
        handler.check(decode_params(job.params))
    except InvalidParams as error:
        return str(error)
    except ValueError:
        return None  # its row is broken: the executor says so
    return None
