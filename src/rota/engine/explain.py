"""Why a job does not run yet: the dispatcher's own predicates, asked one by one."""

from __future__ import annotations

from collections import Counter

import msgspec

from rota.engine.knowledge import counting_of, make_world
from rota.engine.predicates import PREDICATES, Suspect, Waiting, World, in_use
from rota.engine.registry import Registry
from rota.engine.wording import in_words
from rota.errors import NotFound
from rota.model.gate import EVERYTHING, Scope
from rota.model.handler import Place
from rota.model.states import Status
from rota.model.values import Instant, Job, WorkerInfo, dashed, instant, undashed
from rota.ports.store import Store

NAMED_MAX = 10
"""How many of those that a job waits for are named."""


class Reason(msgspec.Struct, frozen=True):
    """One condition, whether it is met, and who or what it depends on."""

    condition: str
    met: bool
    detail: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a job waits for, in the order in which the dispatcher asks."""

    job: Job
    summary: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        """Return the summary and one line per condition."""
        lines = [f"{self.job.number} is {self.job.status}: {self.summary}"]
        lines += [f"  {'✓' if reason.met else '✗'} {reason.condition}: {reason.detail}" for reason in self.reasons]
        return "\n".join(lines)


def explain(store: Store, job_id: str, now: Instant, *, registry: Registry, scope: Scope = EVERYTHING) -> Explanation:
    """Explain the live job of a chain, or how the chain ended. To whom sees one organization, nothing is told of others."""
    chain = store.chain(job_id)
    if not chain:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    job = chain[-1]
    if job.status.ended:
        return Explanation(job=job, summary=_ended(store, job), reasons=())
    if job.status is Status.RUNNING:
        return Explanation(job=job, summary=_running(job), reasons=())
    own = _own_conditions(store, job, now, scope)
    allowed = _allowed(store, job, now, registry, scope) if job.status is Status.QUEUED else []
    reasons = tuple(own + allowed)
    unmet = next((reason for reason in reasons if not reason.met), None)
    return Explanation(job=job, summary=unmet.detail if unmet else "it is next: it starts as soon as a slot is free", reasons=reasons)


def _own_conditions(store: Store, job: Job, now: Instant, scope: Scope) -> list[Reason]:
    parents = store.blockers(_hex(job)) if job.blockers else []
    shown = [parent for parent in parents if scope.holds(parent.organization, parent.owner)]
    schedules = store.awaited(_hex(job)) if job.blockers else []
    waits = _waits(shown, schedules) if len(shown) == len(parents) else "waits for jobs of others"
    edges = Reason("what it waits for has ended", job.blockers == 0, waits)
    if job.status is Status.QUEUED or job.run_at is None:
        return [Reason("its time has come", met=True, detail="it is due"), edges]
    left_s = (instant(job.run_at) - now) / 1e6
    why = f" after attempt {job.attempt - 1} ended" if job.attempt > 1 else ""
    due = "it is due" if job.blockers else "it is due; the next turn queues it"
    if left_s > 0:
        due = f"due in {left_s:.0f} s{why} (at {job.run_at:%Y-%m-%dT%H:%M:%SZ})"
    return [Reason("its time has come", left_s <= 0, due), edges]


def _waits(parents: list[Job], schedules: list[str]) -> str:
    """Return what a job waits for; first those that will not end well by themselves."""
    live = [f"{parent.number} ({parent.job_type}, {parent.status})" for parent in parents if not parent.status.ended]
    words = [_parent_ended(parent) for parent in parents if parent.status.ended][:NAMED_MAX]
    if live:
        more = f" and {len(live) - NAMED_MAX:,} more" if len(live) > NAMED_MAX else ""
        words.append(f"waits for {', '.join(live[:NAMED_MAX])}{more}")
    if schedules:
        words.append(f"waits for a run of schedule {', '.join(schedules)} to complete; it is given up at its own schedule's next due time")
    return "; ".join(words) or "it waits for no other job"


def _parent_ended(parent: Job) -> str:
    if parent.status is Status.COMPLETED:
        return f"{parent.number} has completed, and the next turn lets this job go on"
    return f"{parent.number} ended {parent.status}: retry it, or cancel this job"


def _allowed(store: Store, job: Job, now: Instant, registry: Registry, scope: Scope) -> list[Reason]:
    workers = [worker for worker in store.workers() if worker.kind == "worker"]
    world = world_of(store, workers, now, registry)
    waiting = Waiting(job.job_type, job.organization, _number(store, job), job.crashes)
    reasons = []
    for predicate in PREDICATES:
        blocker = predicate.blocked_by(waiting, world)
        detail = "yes" if blocker is None else in_words(blocker, world, now, whole=scope.organization is None)
        reasons.append(Reason(predicate.name, blocker is None, detail))
    if not workers:
        reasons[0] = Reason(reasons[0].condition, met=False, detail="no worker is running: start one with `rota up` or `rota worker`")
    reasons.append(_turn_of(store, job, workers, scope))
    if job.crashes:
        detail = f"{_crashed(job)}: it runs in a process of its own, or alone in its worker if no process can import its handler"
        reasons.append(Reason("it is a suspect", met=True, detail=detail))
    return reasons


def world_of(store: Store, workers: list[WorkerInfo], now: Instant, registry: Registry) -> World:
    """Return the world as all live workers together see it."""
    registry.sync(store, now)
    world = make_world(registry, store, frozenset(name for worker in workers for name in worker.job_types))
    counting = msgspec.structs.replace(counting_of(world), running=True)
    usage = in_use(store.usage(counting, now=now), {})
    able = Counter(name for worker in workers for name in worker.job_types)
    return msgspec.structs.replace(
        world,
        reservation=store.reservation(),
        # None of them can take one more if all together hold as many as all together may.
        concurrency={name: limit * able[name] for name, limit in world.concurrency.items() if able[name]},
        in_use=msgspec.structs.replace(usage, here=usage.by_type),
        suspects=_suspects(store, workers),
    )


def _suspects(store: Store, workers: list[WorkerInfo]) -> dict[str, Suspect]:
    """Return the suspects that are in the way, by job type: only where each worker that has the handler runs one."""
    running = {each.worker_id: Suspect(each.number, each.executor != Place.PROCESS) for each in store.suspects()}
    if not running:
        return {}
    found: dict[str, Suspect | None] = {}
    for worker in workers:
        suspect = running.get(undashed(worker.id) or "")
        for name in worker.job_types:
            known = found.get(name, suspect)
            # Others than suspects are kept waiting only where it is alone on every worker.
            found[name] = None if known is None or suspect is None else suspect if known.alone else known
    return {name: suspect for name, suspect in found.items() if suspect is not None}


def _turn_of(store: Store, job: Job, workers: list[WorkerInfo], scope: Scope) -> Reason:
    ahead = store.ahead(_hex(job))
    if scope.organization is None or not ahead:
        return Reason("its turn has come", ahead == 0, _ahead(ahead, workers))
    own = store.ahead(_hex(job), scope=scope)
    return Reason("its turn has come", met=False, detail=_ahead(own, []) if own else "others are ahead of it")


def _ahead(ahead: int, workers: list[WorkerInfo]) -> str:
    if not ahead:
        return "it is the first in line"
    jobs = "1 ready job is" if ahead == 1 else f"{ahead:,} ready jobs are"
    busy = ", ".join(f"worker {worker.id[:8]} runs {worker.running}" for worker in workers)
    return f"{jobs} ahead of it" + (f" ({busy})" if busy else "")


def _number(store: Store, job: Job) -> int | None:
    reservation = store.reservation()
    return reservation.job_number if reservation is not None and dashed(reservation.job_id) == job.id else 0


def _running(job: Job) -> str:
    asked = f"; {job.cancel_requested_by} asked it to stop" if job.cancel_requested_at else ""
    apart = "in a process of its own" if job.executor == Place.PROCESS else "alone: its worker starts nothing else until it finishes"
    suspect = f"; {_crashed(job)}, so it runs {apart}" if job.crashes else ""
    return f"it runs on worker {job.worker_id} since {job.started_at:%Y-%m-%dT%H:%M:%SZ}, attempt {job.attempt}{suspect}{asked}"


def _crashed(job: Job) -> str:
    return "a worker crashed under it" if job.crashes == 1 else f"workers crashed under it {job.crashes} times"


def _ended(store: Store, job: Job) -> str:
    run = store.run(_hex(job))
    why = job.reason or (run.error if run else None)
    return f"it ended at {job.finished_at:%Y-%m-%dT%H:%M:%SZ}, attempt {job.attempt}" + (f": {why}" if why else "")


def _hex(job: Job) -> str:
    return undashed(job.id) or ""
