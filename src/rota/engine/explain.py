"""Why a job does not run yet: the dispatcher's own predicates, asked one by one."""

from __future__ import annotations

from collections import Counter

import msgspec

from rota.engine.definitions_cache import counting_of, fleet_of, make_world
from rota.engine.predicates import PREDICATES, Suspect, Waiting, World, first_block, in_use
from rota.engine.registry import Registry
from rota.errors import NotFound
from rota.model.dependencies import RUN
from rota.model.gate import EVERYTHING, Scope
from rota.model.groups import Group
from rota.model.handler import Place
from rota.model.kinds import is_kind, unserved
from rota.model.lanes import ParamNames
from rota.model.local_time import length_text, written
from rota.model.states import CHAIN_ENDS, GroupStatus, Status
from rota.model.values import Held, Instant, Job, WorkerInfo, broken_reason, dashed, instant, moment_of, undashed
from rota.ports.store import Store

RULES_MAX = 1000
"""Chains around a job that are looked at for its rules."""
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
        lines += [f"  {'✓' if reason.met else '✗'} {self.words(reason)}" for reason in self.reasons]
        return "\n".join(lines)

    def words(self, reason: Reason) -> str:
        """Return a condition with its detail, which is left out where the summary has said it."""
        return reason.condition if reason.detail == self.summary else f"{reason.condition}: {reason.detail}"


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
    why = broken_reason(job)
    if why is not None:
        detail = f"its row is broken: {why}; `rota repair` repairs what can be repaired"
        return Explanation(job=job, summary=detail, reasons=(Reason("its row is whole", met=False, detail=detail),))
    own = _own_conditions(store, job, now, scope)
    allowed = _allowed(store, job, now, registry, scope) if job.status is Status.QUEUED else []
    reasons = tuple(own + allowed)
    unmet = next((reason for reason in reasons if not reason.met), None)
    return Explanation(job=job, summary=unmet.detail if unmet else "it is next: it starts as soon as a slot is free", reasons=reasons)


def _own_conditions(store: Store, job: Job, now: Instant, scope: Scope) -> list[Reason]:
    parents = store.blockers(_hex(job)) if job.blockers else []
    shown = [parent for parent in parents if scope.holds(parent.organization, parent.owner, parent.schedule_id)]
    schedules = store.awaited(_hex(job)) if job.blockers else []
    groups = store.awaited_groups(_hex(job)) if job.blockers else []
    waits = _waits(shown, schedules, groups, _rules(store, job, shown)) if len(shown) == len(parents) else "waits for jobs of others"
    edges = Reason("what it waits for has ended", job.blockers == 0, waits)
    if job.status is Status.QUEUED or job.run_at is None:
        return [Reason("its time has come", met=True, detail="it is due"), edges]
    left_s = (instant(job.run_at) - now) / 1e6
    why = f", after attempt {job.attempt - 1} failed" if job.attempt > 1 else ""
    due = "it is due" if job.blockers else "it is due; the next turn queues it"
    if left_s > 0:
        due = f"due in {length_text(left_s)}, at {written(job.run_at)}{why}"
    return [Reason("its time has come", left_s <= 0, due), edges]


def _rules(store: Store, job: Job, parents: list[Job]) -> dict[str, str]:
    """Return what becomes of a job by the bad ends of its parents, where one has ended so and the job has not been told yet."""
    if all(parent.status is Status.COMPLETED or not parent.status.ended for parent in parents):
        return {}
    graph = store.graph(_hex(job), limit=RULES_MAX)
    return {edge.parent: edge.on_failure for edge in graph.edges if edge.child == job.root_id} if graph is not None else {}


def _waits(parents: list[Job], schedules: list[str], groups: list[Group], rules: dict[str, str]) -> str:
    """Return what a job waits for; first those that will not end well by themselves."""
    live = [f"{parent.number} ({parent.job_type}, {parent.status})" for parent in parents if not parent.status.ended]
    words = [_parent_ended(parent, rules.get(parent.root_id, "wait")) for parent in parents if parent.status.ended][:NAMED_MAX]
    if live:
        more = f" and {len(live) - NAMED_MAX:,} more" if len(live) > NAMED_MAX else ""
        words.append(f"waits for {', '.join(live[:NAMED_MAX])}{more}")
    words += [_group(group) for group in groups]
    if schedules:
        words.append(f"waits for a run of schedule {', '.join(schedules)} to complete; it is given up at its own schedule's next due time")
    return "; ".join(words) or "it waits for no other job"


def _group(group: Group) -> str:
    """Return what is still open of a group that a job follows."""
    name = f"group {group.name or group.id}"
    left = sum(member.status not in CHAIN_ENDS for member in group.members)
    if left:
        return f"waits for {name}: {left:,} of {len(group.members):,} members have not ended"
    if group.status is GroupStatus.COMPLETED:
        return f"{name} has completed, and the next turn releases this job"
    rule = "wait" if group.then is None else group.then.on_parent_failure
    if rule != "wait":
        return f"{name} ended {group.status}, and the next turn {'releases' if rule == RUN else 'ends'} this job"
    return f"{name} ended {group.status}: retry the members that failed, or cancel this job"


def _parent_ended(parent: Job, rule: str) -> str:
    if parent.status is Status.COMPLETED:
        return f"{parent.number} has completed, and the next turn lets this job go on"
    if rule != "wait":
        then = "releases this job" if rule == RUN else "ends this job"
        return f"{parent.number} ended {parent.status}, and the next turn {then}"
    return f"{parent.number} ended {parent.status}: retry it, or cancel this job"


def _allowed(store: Store, job: Job, now: Instant, registry: Registry, scope: Scope) -> list[Reason]:
    workers = [worker for worker in store.workers() if worker.kind == "worker"]
    world = world_of(store, workers, now, registry)
    waiting = Waiting(job.job_type, job.organization, job.crashes, job.queue, names_of(job, registry))
    reasons = []
    for predicate in PREDICATES:
        blocker = predicate.blocked_by(waiting, world)
        detail = "yes" if blocker is None else in_words(blocker, world, now, whole=scope.organization is None)
        reasons.append(Reason(predicate.name, blocker is None, detail))
    if job.template_id is None and not reasons[0].met:
        modules = "it has no template, so a worker must be allowed to import its module: see the setting handler_modules"
        reasons[0] = Reason(reasons[0].condition, met=False, detail=f"{reasons[0].detail}; {modules}")
    if not workers:
        reasons[0] = Reason(reasons[0].condition, met=False, detail="no worker is running: start one with `rota up` or `rota worker`")
    reasons.append(_turn_of(store, job, workers, world, scope))
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
        # None of them can take one more if all together hold as many as all together may.
        concurrency={name: limit * able[name] for name, limit in world.concurrency.items() if able[name]},
        in_use=msgspec.structs.replace(usage, here=usage.by_type),
        suspects=_suspects(store, workers),
        fleet=fleet_of(workers, registry),
    )


def names_of(job: Job, registry: Registry) -> ParamNames:
    """Return what a job was enqueued for or, where that is not known, the names of its params."""
    known = None if job.digest is None else registry.param_names().get((job.job_type, job.digest))
    own = frozenset(job.params)
    return known or ParamNames(own, own)


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


def _turn_of(store: Store, job: Job, workers: list[WorkerInfo], world: World, scope: Scope) -> Reason:
    if job.held == Held.DIRECT:
        return Reason("its turn has come", met=True, detail="it is a direct execution, and the first in line")
    ahead, direct = store.ahead(_hex(job)), _direct_ahead(store, world, scope)
    if not ahead and direct is None:
        return Reason("its turn has come", met=True, detail="it is the first in line")
    if scope.organization is None:
        words = _ahead(ahead, workers)
    else:
        own = store.ahead(_hex(job), scope=scope) if ahead else 0
        words = _ahead(own, []) or ("others are ahead of it" if ahead else "")
    return Reason("its turn has come", met=False, detail="; ".join(filter(None, (direct, words))))


def _direct_ahead(store: Store, world: World, scope: Scope) -> str | None:
    """Name the direct execution that waits for a slot and could start: it is before every other job."""
    reservation = store.reservation()
    job = None if reservation is None else store.job(reservation.job_id)
    if (
        reservation is None
        or job is None
        or job.status is not Status.QUEUED
        or first_block(Waiting(job.job_type, job.organization, queue=job.queue), world)
    ):
        return None
    by = f" by {reservation.reserved_by}" if scope.organization is None else ""
    return f"a direct execution{by} takes the next free slot"


def _ahead(ahead: int, workers: list[WorkerInfo]) -> str:
    if not ahead:
        return ""
    jobs = "1 ready job is" if ahead == 1 else f"{ahead:,} ready jobs are"
    busy = ", ".join(f"worker {worker.id[:8]} runs {worker.running}" for worker in workers)
    return f"{jobs} ahead of it" + (f" ({busy})" if busy else "")


def _running(job: Job) -> str:
    asked = f"; {job.cancel_requested_by} asked it to stop" if job.cancel_requested_at else ""
    apart = "in a process of its own" if job.executor == Place.PROCESS else "alone: its worker starts nothing else until it finishes"
    suspect = f"; {_crashed(job)}, so it runs {apart}" if job.crashes else ""
    since = "an unknown time" if job.started_at is None else written(job.started_at)
    return f"it runs on worker {job.worker_id} since {since}, attempt {job.attempt}{suspect}{asked}"


def _crashed(job: Job) -> str:
    return "a worker crashed under it" if job.crashes == 1 else f"workers crashed under it {job.crashes} times"


def _ended(store: Store, job: Job) -> str:
    run = store.run(_hex(job))
    why = job.reason or (run.error if run else None)
    at = "an unknown time" if job.finished_at is None else written(job.finished_at)
    return f"it ended at {at}, attempt {job.attempt}" + (f": {why}" if why else "")


def _hex(job: Job) -> str:
    return undashed(job.id) or ""


_WORDS = {
    "type": "no live worker has a handler for {name}",
    "queue": "no live worker that has its handler serves queue {name}: start one with `rota worker --queue {name}`",
    "params": "it was enqueued for {name}: it waits for a worker that takes its parameters",
    "all": "everything is paused",
    "paused-queue": "queue {name} is paused",
    "template": "template {name} is paused",
    "broken": "template {name} can't be read, so its jobs wait: `rota doctor` says what to do",
    Held.ORGANIZATION: "organization {name} is paused",
    Held.SUSPENDED: "organization {name} is suspended",
    "alone": "{name} runs alone: a worker crashed under it before, and nothing else starts on its worker until it finishes",
    "suspect": "{name} is running: of jobs that a worker crashed under, a worker runs one at a time",
    "process": "a handler process for it is starting",
}
_DISCREET = {
    Held.TEMPLATE_LIMIT: "template {name} is at its limit",
    Held.RATE_LIMIT: "template {name} is at its rate limit",
    "concurrency": "its workers hold as many {name} jobs as they may",
    "alone": "a job that a worker crashed under runs alone, and nothing else starts on its worker until it finishes",
    "suspect": "another job that a worker crashed under is running: a worker runs one at a time",
}
"""For whom must not learn how much others run, or who they are."""


def in_words(blocker: str, world: World, now: Instant, *, whole: bool) -> str:
    """Return what blocks. `whole`: figures and names of all organizations may be told, not only of the reader's own."""
    kind, _, name = blocker.partition(":")
    words = _DISCREET[kind].format(name=name) if kind in _DISCREET and not whole else _told(kind, name, world)
    return words + _until(name, world, now) if kind == Held.RATE_LIMIT else words


def _told(kind: str, name: str, world: World) -> str:
    used = world.in_use
    match kind:
        case Held.TEMPLATE_LIMIT:
            return f"{used.by_type.get(name, 0)} of at most {world.template_limits[name]} {name} jobs run"
        case Held.ORGANIZATION_LIMIT:
            return f"organization {name} runs {used.by_organization.get(name, 0)} of at most {world.organization_limits[name]}"
        case Held.RATE_LIMIT:
            return f"{used.starts[name].count} started in the last {world.rates[name].seconds:g} s"
        case "type" if is_kind(name):
            return unserved(name)
        case "concurrency":
            return f"its workers hold {used.here.get(name, 0)} of at most {world.concurrency[name]} {name} jobs"
        case _:
            return _WORDS[kind].format(name=name)


def _until(name: str, world: World, now: Instant) -> str:
    next_at = world.in_use.starts[name].next_at
    if next_at is None:
        return ""
    return f"; the next may start in {length_text((next_at - now) / 1e6)}, at {written(moment_of(next_at))}"
