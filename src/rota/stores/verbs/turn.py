"""One turn of the wheel in SQL: end what is over, keep what was reported, promote what is due, claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from rota.model.audit import AuditRuns
from rota.model.states import Status
from rota.model.values import Claimed, Held, Instant
from rota.ports.executor import Receipt, Report
from rota.ports.turns import Choice, Peek, Reservation, Turn, Turned, Usage
from rota.stores.verbs import definitions, limits
from rota.stores.verbs.db import Db
from rota.stores.verbs.endings import (
    About,
    Finished,
    NotLight,
    expire,
    finish,
    finish_lightly,
    finish_plain,
    is_light,
    release,
    settle,
    tally,
)
from rota.stores.verbs.queue import promote

_claimed = msgspec.json.Decoder(list[Claimed])
_numbers = msgspec.json.Decoder(tuple[int, ...])

RUN_LEAST, RUN_MAX = 50, 1000
"""Where so many rows of one kind were parked in one round, those that follow among the next so many are parked with them."""
OLD_LOOK = 1000
"""Jobs at the front of a lane that are looked at for old ones."""
ROUNDS_MAX = 8
"""How often a turn picks again because rows at the head were in the way; then the next turn goes on."""


def turn(db: Db, request: Turn) -> Turned:
    """Make one turn. Everything in it is one transaction."""
    turned = Turned()
    if request.reports:
        keep(db, request.reports, turned)
    finished = finish_plain(db, request, turned) if request.done else None
    if finished is not None:
        finished.count(db)
    if request.endings:
        finish(db, request.endings, request.now, turned, About(bytes.fromhex(request.worker_id), request.audit_runs))
    look = _bring_forward(db, request, turned, finished)
    if finished is not None and ((look.audited and request.scheduled != []) or request.audit_runs == AuditRuns.ALL):
        finished.audit(db, request)
    if look.hooked and finished is not None:
        finished.tell(db, request.now, turned)
    if look.told(turned, request):
        _claim(db, request, turned, active_reservation(db) if look.direct_waits else None)
    return turned


def may_be_light(request: Turn) -> bool:
    """Say whether nothing that is asked for keeps a turn from being made beside others' turns."""
    return request.counting is None and not request.numbers and all(is_light(ending.transition) for ending in request.endings)


def lightly(db: Db, request: Turn) -> Turned:
    """Make a turn beside others' turns: what it looks at first only changes with the wheel, or the store, in one hand.

    Raise NotLight where that can't be; `choose` has not been asked then.
    """
    turned = Turned()
    look = _Look(*db.look(bytes.fromhex(request.worker_id), request.done))
    if not look.is_calm(request.now):
        raise NotLight
    if request.reports:
        keep(db, request.reports, turned)
    ended = finish_lightly(db, request, turned) if request.endings else []
    finished = finish_plain(db, request, turned) if request.done else None
    if look.direct is not None and (ended or finished is not None):
        release(db, [*ended, *(finished.done if finished is not None else ())], request.now)
    if finished is not None and ((look.audited and request.scheduled != []) or request.audit_runs == AuditRuns.ALL):
        finished.audit(db, request)
    if look.hooked and finished is not None:
        finished.tell(db, request.now, turned)
    if look.told(turned, request):
        _pick(db, request, turned, None, None)
    # Last of all, and all at once: other turns that count the same wait for it until the commit, and must not do so in a ring.
    if ended:
        tally(db, ended + (finished.fresh if finished is not None else []))
    elif finished is not None:
        finished.count(db)
    return turned


class _Look(NamedTuple):
    """What a turn asks first of the whole store, in one statement: mostly there is nothing to do but claims."""

    definitions: int
    given_up: bool
    any_ended: bool
    expires_at: Instant | None
    due_at: Instant | None
    over_limit: bool
    waited_for: bool
    direct: str | None
    """The status of the job of a direct execution that is under way."""
    hooked: bool
    """Somebody may want to be told of ends."""
    audited: bool
    """SQL has created jobs."""

    @property
    def means_something(self) -> bool:
        """Say whether the end of a plain job means anything to others."""
        return bool(self.over_limit or self.waited_for or self.direct is not None)

    @property
    def direct_waits(self) -> bool:
        """Say whether a direct execution is to start before anything else."""
        return self.direct == Status.QUEUED

    def is_calm(self, now: Instant) -> bool:
        """Say whether there is nothing to do but to end plain jobs and to claim."""
        return not (
            self.over_limit
            or self.waited_for
            or self.direct_waits
            or self.any_ended
            or _has_come(self.expires_at, now)
            or _has_come(self.due_at, now)
        )

    def told(self, turned: Turned, request: Turn) -> bool:
        """Put into the answer what was seen; return whether to claim."""
        turned.next_due = _earliest(self.due_at, self.expires_at)
        turned.definitions = self.definitions
        turned.given_up = bool(self.given_up)
        turned.calm = self.is_calm(request.now)
        return bool(request.want and request.choose and self.definitions == request.definitions and not self.given_up)


def _has_come(at: Instant | None, now: Instant) -> bool:
    return at is not None and at <= now


def _bring_forward(db: Db, request: Turn, turned: Turned, finished: Finished | None) -> _Look:
    """Expire what is over, tell who waits for what ended, queue what is due; return what there is to look forward to."""
    found = _Look(*db.look(bytes.fromhex(request.worker_id)))
    if finished is not None and found.means_something:
        finished.follow(db, request.now, over_limit=found.over_limit, waited_for=found.waited_for, reserved=found.direct is not None)
        found = _Look(*db.look(bytes.fromhex(request.worker_id)))
    expired = _has_come(found.expires_at, request.now)
    if expired:
        expire(db, request.now, request.limit)
    if expired or found.any_ended:
        turned.unfinished = settle(db, request.now, request.limit)
        found = _Look(*db.look(bytes.fromhex(request.worker_id)))
    if _has_come(found.due_at, request.now):
        promote(db, request.now, request.limit)
        found = _Look(*db.look(bytes.fromhex(request.worker_id)))
    return found


def _earliest(one: Instant | None, other: Instant | None) -> Instant | None:
    return other if one is None else one if other is None else min(one, other)


# ---- keep ------------------------------------------------------------------------------------------------------------


def keep(db: Db, reports: Sequence[Report], turned: Turned) -> None:
    """Write what running handlers reported. A run that has ended meanwhile keeps what it has."""
    for place, report in enumerate(reports):
        receipt = _keep_one(db, report, place)
        if report.checkpoint is not None and receipt is not Receipt.WRITTEN:
            turned.unkept[report.number] = receipt


def _keep_one(db: Db, report: Report, place: int) -> Receipt:
    try:
        with db.savepoint(("report", report.number, place)):
            return _keep(db, report)
    except db.unwritable:
        # It is dropped: the wheel must not stand still for it.
        return Receipt.UNWRITABLE


def _keep(db: Db, report: Report) -> Receipt:
    """Write one report; say whether its checkpoint met a run that is still open."""
    if report.progress is not None or report.message is not None:
        db.change("keep_progress", number=report.number, progress=report.progress or 0, message=report.message)
    if report.artifact is not None:
        db.change("keep_artifact", number=report.number, artifact=report.artifact)
    if report.checkpoint is None or db.change("keep_checkpoint", number=report.number, checkpoint=report.checkpoint):
        return Receipt.WRITTEN
    return Receipt.REFUSED


# ---- claim -----------------------------------------------------------------------------------------------------------


def _claim(db: Db, request: Turn, turned: Turned, reservation: Reservation | None) -> None:
    rooms = limits.Rooms(db, request.counting, request.now, bound=request.limit) if request.counting else None
    if rooms is not None and rooms.offer():
        turned.unfinished = True
    _pick(db, request, turned, rooms, reservation)
    if rooms is not None:
        turned.room_at = rooms.room_at()
        turned.next_due = _earliest(turned.next_due, turned.room_at)


def _pick(db: Db, request: Turn, turned: Turned, rooms: limits.Rooms | None, reservation: Reservation | None) -> None:
    """Offer the direct execution first, then the queue; take and park. Where parked rows were in the way, offer the next ones."""
    assert request.choose is not None  # noqa: S101 - the caller looked
    usage = Usage() if rooms is None else rooms.usage
    lanes = definitions.lanes_of_types(db, request.types) if request.lanes is None else request.lanes
    if reservation is not None and (direct := _direct_candidate(db, reservation, lanes)):
        _start(db, request.choose(direct, reservation, usage).take, request, turned, rooms, in_line=False)
    if request.numbers and not request.direct_only:
        named = _claimed.decode(db.value("candidates_named", numbers=request.numbers))
        _start(db, request.choose(named[: request.want - len(turned.claimed)], None, usage).take, request, turned, rooms)
    want = request.want - len(turned.claimed)
    if want <= 0 or request.direct_only:
        return
    suspects = request.suspects
    for again in range(ROUNDS_MAX):
        # Slim ones lack what may be large, and are only looked at.
        if not lanes or not (offered := db.candidates(tuple(lanes), request.limit if again else want, slim=again > 0, suspects=suspects)):
            return
        choice = request.choose(offered, None, usage)
        if again:
            choice.take = _read_whole(db, choice.take)
        _start(db, choice.take, request, turned, rooms)
        if choice.park:
            _park(db, offered, choice, rooms)
        if not choice.again:
            return
        if choice.leave:
            lanes = {lane: name for lane, name in lanes.items() if name not in choice.leave}
        suspects = suspects and choice.suspects
    turned.unfinished = True


def _park(db: Db, offered: list[Claimed], choice: Choice, rooms: limits.Rooms | None) -> None:
    words = dict(choice.park)
    db.change("park_jobs", parked=words)
    own = (f"{Held.TEMPLATE_LIMIT}:", f"{Held.RATE_LIMIT}:")
    kinds = Counter(
        (job.job_type, job.lane, job.organization_id, words[job.number])
        for job in offered
        if job.number in words and not words[job.number].startswith(own)
    )
    for kind, count in kinds.items():
        if choice.again and count >= RUN_LEAST:
            # What follows of a kind that fills the head of the queue: many at once, without a look at each.
            _, lane, organization_id, held = kind
            kinds[kind] += db.change("park_run", lane=lane, organization_id=organization_id, held=held, limit=RUN_MAX)
    if rooms is not None:
        rooms.passed_on(kinds)


def whole(db: Db, numbers: list[int]) -> list[Claimed]:
    """Return jobs by their numbers with all that a worker needs."""
    return _claimed.decode(db.value("candidates_among", numbers=numbers, want=len(numbers))) if numbers else []


def _read_whole(db: Db, chosen: list[Claimed]) -> list[Claimed]:
    """Read jobs whole that were chosen by less. Where a suspect is to run was decided with the choice."""
    places = {job.number: job.executor for job in chosen if job.crashes}
    jobs = whole(db, [job.number for job in chosen])
    for job in jobs:
        job.executor = places.get(job.number, job.executor)
    return jobs


def _direct_candidate(db: Db, reservation: Reservation, lanes: dict[int, str]) -> list[Claimed]:
    offered = _claimed.decode(db.value("candidate_direct", number=reservation.job_number))
    return [job for job in offered if job.lane in lanes]


def _start(db: Db, jobs: list[Claimed], request: Turn, turned: Turned, rooms: limits.Rooms | None, *, in_line: bool = True) -> None:
    """Make jobs RUNNING. `in_line`: their positions tell how far the queue has come, which is where newcomers join it."""
    if not jobs:
        return
    ids = request.run_ids[len(turned.claimed) : len(turned.claimed) + len(jobs)]
    clocks: dict[int, int] = {}
    for job, run_id in zip(jobs, ids, strict=True):
        job.run_id = run_id
        job.started_at = request.now
        if job.crashes:
            db.change("place_suspect", number=job.number, executor=job.executor)
        if in_line and job.position > clocks.get(job.priority, 0):
            clocks[job.priority] = job.position
    db.start(jobs, clocks, now=request.now, worker_id=bytes.fromhex(request.worker_id))
    turned.claimed += jobs
    if rooms is not None:
        rooms.took(jobs)


def peek(db: Db, *, types: tuple[str, ...], worker_id: str, lanes: Collection[int] | None = None) -> Peek:
    """Look whether a turn is worth its commit."""
    asked = list(definitions.lanes_of_types(db, types) if lanes is None else lanes)
    ((version, ready, direct_ready, parked, ended, expires_at, due_at, cancelling),) = db.rows(
        "peek", lanes=asked, worker_id=bytes.fromhex(worker_id)
    )
    # Where some wait to be told that a chain has ended, a turn tells them.
    due = [0] if ended else [at for at in (expires_at, due_at) if at is not None]
    return Peek(
        ready=bool(ready or direct_ready),
        next_due=min(due, default=None),
        cancelling=_numbers.decode(cancelling),
        definitions=version,
        parked=bool(parked),
    )


def old_in_lanes(db: Db, lanes: Collection[int], *, before: Instant, limit: int) -> list[int]:
    """Return ready jobs that wait for long."""
    found: list[int] = []
    for lane in lanes:
        rows = db.rows("old_in_lane", lane=lane, before=before, look=OLD_LOOK, limit=limit - len(found))
        found += [number for (number,) in rows]
        if len(found) >= limit:
            break
    return found


def active_reservation(db: Db) -> Reservation | None:
    """Return the direct execution that is under way, if there is one."""
    row = db.row("active_reservation")
    return None if row is None else Reservation(*row)
