"""Retention in SQL: whole chains that nothing needs any more, in bounded batches."""

from __future__ import annotations

import msgspec

from rota.errors import IllegalMove, NotFound, StillLive, StillNeeded
from rota.model.gate import Actor
from rota.model.states import CHAIN_ENDS, Status
from rota.model.values import Instant, PurgeCursor, Purged, dashed, number_text
from rota.ports.overseeing import MINUTES_KEPT
from rota.stores.verbs.broken import words_of
from rota.stores.verbs.db import Db, audit, is_moved

START: PurgeCursor = (0, 0, 0)
NAMED_MAX = 5
"""How many that need a chain are named in a refusal."""


class Plan(msgspec.Struct, kw_only=True):
    """One step of a walk over old ends: what can go, what must stay, and where to go on."""

    tails: list[int] = msgspec.field(default_factory=list)
    numbers: list[int] = msgspec.field(default_factory=list)
    run_ids: list[str] = msgspec.field(default_factory=list)
    kept: int = 0
    broken: dict[int, str] = msgspec.field(default_factory=dict)
    """Chains that can't be removed, by the number of their last job, with the reason."""
    cursor: PurgeCursor | None = None

    def purged(self) -> Purged:
        """Return the plan as what was, or would be, done."""
        return Purged(
            chains=len(self.tails),
            jobs=len(self.numbers),
            kept=self.kept,
            run_ids=self.run_ids,
            cursor=self.cursor,
            broken=self.broken,
        )


def purge(db: Db, before: Instant, limit: int, now: Instant, cursor: PurgeCursor | None, *, figures_before: Instant | None) -> Purged:
    """Remove up to `limit` jobs of chains that ended before a moment, one whole chain at least if there is one."""
    plan = _plan(db, before, limit, cursor)
    _remove_all(db, plan)
    more = _tidy(db, before, limit, now, first=cursor is None, figures_before=figures_before)
    if plan.cursor is None:
        # The jobs are gone: now what was kept for them.
        more |= _forget_times(db, before, limit)
        plan.cursor = (cursor or START) if more else None
    return plan.purged()


def purge_dropped(db: Db, *, limit: int) -> Purged:
    """Remove ended chains of jobs that were dropped with their history, up to `limit` jobs, one whole chain at least if there is one."""
    plan, jobs = Plan(), 0
    tails: list[int] = []
    for number, attempt in db.rows("purging_ends", limit=limit):
        if tails and jobs + attempt > limit:
            break
        tails.append(number)
        jobs += attempt
    _add_chains(db, plan, tails)
    _remove_all(db, plan)
    db.change("forget_ledger_of_purged")
    db.change("end_purge")
    return plan.purged()


def look(db: Db, before: Instant, limit: int, cursor: PurgeCursor | None) -> Purged:
    """Count what `purge` would remove."""
    with db.snapshot():
        plan = _plan(db, before, limit, cursor)
    plan.run_ids = []
    return plan.purged()


def retention_clock(db: Db) -> Instant | None:
    """Return when the clock was last trusted to delete by age."""
    mark: Instant | None = db.value("retention_clock")
    return mark


def set_retention_clock(db: Db, now: Instant) -> None:
    """Record that the clock is trusted."""
    db.change("set_retention_clock", now=now)


def discard(db: Db, job_id: str, *, actor: Actor, now: Instant) -> Purged:
    """Remove one ended chain; refuse if it lives or others need it, and say who."""
    found = db.row("locate", job_id=job_id)
    if found is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    tail = db.row("tail_of", job_id=found[0])
    assert tail is not None  # noqa: S101 - the chain has at least its root
    number, tail_id, status, _, organization_id, job_type, root_id = tail
    if Status(status) not in CHAIN_ENDS:
        raise StillLive(f"the chain of {dashed(job_id)} has not ended: its job {dashed(tail_id)} is {status}; cancel it first")
    plan = Plan()
    _add_chains(db, plan, [number])
    needs = _who_needs(db, root_id, number) + (
        [] if plan.tails else ["a direct execution, or a message about it that is still to be delivered"]
    )
    if needs:
        raise StillNeeded(f"the chain of {dashed(job_id)} can't be discarded yet: it is needed by {', '.join(needs)}")
    try:
        with db.savepoint(("chain", number)):
            _remove(db, plan.numbers)
    except db.refused as error:
        if is_moved(error):
            raise
        raise IllegalMove(
            f"the chain of {dashed(job_id)} can't be discarded: {words_of(error)}. `rota doctor --full` says more, `rota repair` repairs it"
        ) from error
    before = {"status": status, "job_type": job_type, "jobs": len(plan.numbers)}
    audit(db, actor, now, "job.discard", ("job", root_id), before=before, organization=organization_id)
    return plan.purged()


def _who_needs(db: Db, root_id: str, number: int) -> list[str]:
    children = db.rows("live_children", root_id=root_id, limit=NAMED_MAX)
    group_id = db.value("group_lives", number=number)
    for (followed,) in db.rows("groups_of", numbers=[number]):
        children += db.rows("live_children", root_id=followed, limit=NAMED_MAX)
    named = [f"{number_text(root, first, attempt)} ({status})" for root, first, attempt, status in children]
    return named + ([f"group {dashed(group_id)}, which has not ended"] if group_id else [])


def _plan(db: Db, before: Instant, limit: int, cursor: PurgeCursor | None) -> Plan:
    """Walk on over ends of attempts, oldest first, and see which chains that ended there can go."""
    at, made, number = cursor or START
    plan, jobs = Plan(), 0
    tails: list[int] = []
    rows = db.rows("old_ends", before=before, at=at, made=made, number=number, limit=limit)
    for at, made, number, attempt, ended, needed in rows:
        if ended and not needed:
            # A tail's attempt is the length of its chain: a batch is bounded by jobs, however long the chains are.
            if tails and jobs + attempt > limit:
                break
            tails.append(number)
            jobs += attempt
        plan.kept += bool(ended and needed)
        plan.cursor = (at, made, number)
    else:
        if len(rows) < limit:
            plan.cursor = None
    _add_chains(db, plan, tails)
    return plan


def _add_chains(db: Db, plan: Plan, tails: list[int]) -> None:
    """Add the jobs of chains that can go; those that a webhook or a reservation holds stay."""
    chains: dict[int, list[tuple[int, str | None]]] = {}
    held: set[int] = set()
    for tail, number, run_id, undelivered, reserved in db.rows("chains_of", tails=tails) if tails else ():
        chains.setdefault(tail, []).append((number, run_id))
        if undelivered or reserved:
            held.add(tail)
    plan.kept += len(held)
    for tail, jobs in chains.items():
        if tail not in held:
            plan.tails.append(tail)
            plan.numbers += [number for number, _ in jobs]
            plan.run_ids += [run_id for _, run_id in jobs if run_id]


def _remove_all(db: Db, plan: Plan) -> None:
    """Remove what is planned. If one chain can't be removed they are removed one by one, and that one is kept and named."""
    try:
        with db.savepoint(("chains", *plan.tails)):
            _remove(db, plan.numbers)
            return
    except db.refused as error:
        if is_moved(error):
            raise
        tails, plan.tails, plan.numbers, plan.run_ids = plan.tails, [], [], []
    for tail in tails:
        alone = Plan()
        try:
            with db.savepoint(("chain", tail)):
                _add_chains(db, alone, [tail])
                _remove(db, alone.numbers)
        except db.refused as error:
            plan.kept += 1
            plan.broken[tail] = words_of(error)
            continue
        plan.tails += alone.tails
        plan.numbers += alone.numbers
        plan.run_ids += alone.run_ids


def _remove(db: Db, numbers: list[int]) -> None:
    if not numbers:
        return
    groups = [group_id for (group_id,) in db.rows("groups_of", numbers=numbers)]
    # Their hours keep them; they are no longer counted as being here.
    if db.change("untally", numbers=numbers):
        db.change("forget_zeros")
    db.change("remove_outbox", numbers=numbers)
    db.change("remove_logs", numbers=numbers)
    db.change("remove_endpoints", numbers=numbers)
    db.change("remove_jobs", numbers=numbers)
    if groups:
        db.change("remove_groups", groups=groups)


def _tidy(db: Db, before: Instant, limit: int, now: Instant, *, first: bool, figures_before: Instant | None) -> bool:
    """Forget, a bounded number at a time, what has no use any more; say whether more may be left."""
    full = db.change("forget_dedup", now=now, limit=limit) == limit
    until = (before // 1000).to_bytes(6, "big") + bytes(10)
    full |= db.change("forget_reservations", before=before, until=until, limit=limit) == limit
    if figures_before is not None:
        full |= db.change("forget_hour", before=figures_before) > 0
        full |= db.change("forget_minutes", before=now - MINUTES_KEPT) > 0
    if first:
        db.change("forget_workers", before=before, limit=limit)
        db.change("forget_rates", before=min(before, now - (db.value("longest_window") or 0)))
    return full


def _forget_times(db: Db, before: Instant, limit: int) -> bool:
    """Forget old rows of the ledger and schedules that were dropped long ago; say whether more may be left."""
    full = db.change("forget_occurrences", before=before, limit=limit) == limit
    full |= db.change("forget_versions", limit=limit) == limit
    return full | (db.change("forget_schedules", before=before, limit=limit) == limit)
