"""`rota doctor` and `rota repair`: broken rows named, and those repaired that can be repaired without a guess.

What is removed points at nothing, or is the run of a job that never started; its content is logged. What somebody could still want is kept:
a job that nobody can run is ended CANCELLED, with the reason, and can be retried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import msgspec

from rota.model.findings import Finding, advice, ok, problem, repaired, span_text
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import BROKEN_ROW, SECOND, Claimed, Instant, Origin, broken_word, dashed
from rota.stores.verbs.broken import (
    EXPIRED,
    culprits_among,
    end_owed,
    owed_of,
    set_schedules_aside,
    trouble,
    unfireable_schedules,
    unreadable_schedules,
)
from rota.stores.verbs.db import Db, is_moved
from rota.stores.verbs.definitions import templates
from rota.stores.verbs.endings import end_waiting
from rota.stores.verbs.turn import whole
from rota.stores.verbs.webhooks import set_endpoints_aside, unreadable_endpoints

log = logging.getLogger("rota.doctor")

NAME = "rows"
ROWS_MAX = 10_000
"""Rows of one kind that one repair takes up; the next takes up the rest."""
LOOK_MAX = 10_000
"""Jobs that wait for others and are looked at without --full."""
EVERY = 2**62
SHOWN = 5
OVERDUE_S = 60
"""A job whose time has come is queued within a second where a worker turns: this late, none does."""
LOST_WORD = broken_word("its job is gone")
REPAIR = "run `rota repair`"


def rows(db: Db, *, full: bool) -> Iterator[Finding]:
    """Name broken rows. Without `full` only what an index leads to is looked at, or the first so many."""
    with db.snapshot():
        found = [*_by_index(db)]
        if full:
            found += _by_scan(db)
    yield from found
    if not found:
        yield ok(NAME, "none is broken" if full else "none of those that are live is broken (`--full` looks at history too)")


def _by_index(db: Db) -> Iterator[Finding]:
    parked = db.rows("parked_broken", limit=ROWS_MAX)
    if parked:
        said = _listed([f"job {number} ({held.partition(':')[2]})" for number, held in parked])
        yield problem(NAME, f"{len(parked):,} jobs can't be started and are parked: {said}", REPAIR)
    if wrong := db.rows("wrong_blockers", look=LOOK_MAX, limit=ROWS_MAX):
        said = _listed([f"job {number} ({_blockers_text(blockers, edges, reason)})" for number, blockers, edges, reason in wrong])
        yield problem(NAME, f"{len(wrong):,} PENDING jobs can't be queued: {said}", REPAIR)
    if bereft := db.rows("bereft", look=LOOK_MAX, limit=ROWS_MAX):
        yield problem(NAME, f"{len(bereft):,} PENDING jobs wait for a job that is gone: {_numbered(bereft)}", REPAIR)
    if stray := db.rows("stray_runs", look=LOOK_MAX, limit=ROWS_MAX):
        yield problem(NAME, f"{len(stray):,} QUEUED jobs have a run already: {_numbered(stray)}", REPAIR)
    if both := db.rows("both_live_and_ended", limit=ROWS_MAX):
        yield problem(NAME, f"{len(both):,} jobs are RUNNING and have ended as well: {_numbered(both)}", REPAIR)
    if lost := db.rows("unregistered", limit=ROWS_MAX):
        jobs = sum(count for _, count in lost)
        names = _listed([worker_id or "none" for worker_id, _ in lost])
        text = f"{jobs:,} jobs are RUNNING under workers that are not registered: {names}"
        yield problem(NAME, text, "any worker recovers them within a second: start one, or `rota recover`")
    unreadable = unreadable_schedules(db)
    for _, name, why in unreadable:
        yield problem(
            NAME, f"schedule {name} can't be read: {why}", "run `rota repair`, which disables it; then edit it and enable it again"
        )
    for name, why in unfireable_schedules(db, [schedule_id for schedule_id, _, _ in unreadable]):
        yield problem(NAME, f"schedule {name} can't fire: {why}", "edit it: `rota schedule update`; its due times are recorded then")
    for template in templates(db):
        if template.broken is not None:
            remedy = (
                f"start a worker that has its code, to record its defaults; then set its overrides: `rota template update {template.name}`"
            )
            yield problem(NAME, f"template {template.name} can't be used, and its jobs wait: {template.broken}", remedy)
    for endpoint_id, organization, why in unreadable_endpoints(db):
        remedy = f"{REPAIR}, which disables it; then change its url, events and job_types and enable it, or delete it"
        yield problem(NAME, f"webhook {dashed(endpoint_id)} of {organization} can't be read and gets no messages: {why}", remedy)


def _by_scan(db: Db) -> Iterator[Finding]:
    if still_open := db.rows("open_runs_of_ended", limit=ROWS_MAX):
        yield problem(NAME, f"{len(still_open):,} jobs have ended and their runs have not: {_numbered(still_open)}", REPAIR)
    for number, status, ended in db.rows("unknown_statuses", limit=ROWS_MAX):
        remedy = "set its status by hand, with the trigger jobs_ended off" if ended else REPAIR
        yield problem(NAME, f"job {number} has the status {status!r}, which is not one", remedy)
    for kind, (table, what, _) in _ORPHANS.items():
        if orphans := db.rows(kind, limit=ROWS_MAX):
            yield problem(NAME, f"{len(orphans):,} rows of {table} {what}: {_numbered(orphans)}", REPAIR)
    if orphans := db.rows("orphan_live", limit=ROWS_MAX):
        text = f"{len(orphans):,} rows of job_live have lost their job: {_numbered(orphans)}"
        yield problem(NAME, text, "restore job_facts from a backup")
    if lost := db.rows("lost_facts", limit=ROWS_MAX):
        yield problem(NAME, f"{len(lost):,} jobs have no status: {_numbered(lost)}", REPAIR)


_ORPHANS = {
    "orphan_runs": ("runs", "belong to no job", "remove_orphan_runs"),
    "orphan_edges": ("job_edges", "belong to no job", "remove_orphan_edges"),
    "orphan_ends": ("job_ends", "belong to no job", "remove_orphan_ends"),
}


# ---- repair ----------------------------------------------------------------------------------------------------------


def repair(db: Db, now: Instant) -> list[Finding]:
    """Repair what can be repaired without a guess, and say what was done."""
    steps: tuple[Callable[[Db, Instant], Iterator[Finding]], ...] = (
        _remove_orphans,
        _end_lost,
        _remove_live,
        _close_runs,
        _end_unknown,
        _remove_stray_runs,
        _end_owed,
        _end_bereft,
        _count_blockers,
        _release,
        _park_lost,
        _disable_schedules,
        _disable_endpoints,
    )
    found: list[Finding] = []
    for step in steps:
        try:
            with db.savepoint(("repair", step.__name__)):
                found += list(step(db, now))
        except db.refused as error:
            if is_moved(error):
                raise
            # Something refuses the repair: the look that follows names what is left.
            log.error("a repair was refused: %s", error)  # noqa: TRY400 - it says all
    return found


def _remove_orphans(db: Db, now: Instant) -> Iterator[Finding]:
    del now
    for kind, (table, what, remove) in _ORPHANS.items():
        if orphans := db.rows(kind, limit=ROWS_MAX):
            numbers = [number for number, _ in orphans]
            if kind == "orphan_runs":
                db.change("end_orphan_runs", numbers=numbers)
            db.change(remove, numbers=numbers)
            _log_removed(table, orphans)
            yield repaired(NAME, f"removed {len(orphans):,} rows of {table} that {what}: {_contents(orphans)}")


def _end_lost(db: Db, now: Instant) -> Iterator[Finding]:
    lost = db.rows("lost_facts", limit=ROWS_MAX)
    for number, _ in lost:
        db.change("end_lost", number=number, now=now, reason=f"{BROKEN_ROW}it was neither live nor ended")
    if lost:
        yield repaired(NAME, f"ended {len(lost):,} jobs CANCELLED that had no status: {_numbered(lost)}; `rota job retry` runs one again")


def _remove_live(db: Db, now: Instant) -> Iterator[Finding]:
    del now
    both = db.rows("both_live_and_ended", limit=ROWS_MAX)
    for number, _ in both:
        db.change("remove_live", number=number)
    if both:
        yield repaired(NAME, f"{len(both):,} jobs that had ended are not RUNNING any more: {_numbered(both)}")


def _close_runs(db: Db, now: Instant) -> Iterator[Finding]:
    del now
    still_open = db.rows("open_runs_of_ended", limit=ROWS_MAX)
    for number, _ in still_open:
        db.change("close_open_run", number=number)
    if still_open:
        yield repaired(NAME, f"ended {len(still_open):,} runs as their jobs had: {_numbered(still_open)}")


def _end_unknown(db: Db, now: Instant) -> Iterator[Finding]:
    for number, status, ended in db.rows("unknown_statuses", limit=ROWS_MAX):
        if not ended:
            db.change("end_unknown", number=number, now=now, reason=f"{BROKEN_ROW}its status was {status!r}")
            yield repaired(NAME, f"ended job {number} CANCELLED, whose status was {status!r}; `rota job retry` runs it again")


def _remove_stray_runs(db: Db, now: Instant) -> Iterator[Finding]:
    """Remove the run of a job that has not started. One that has ended is a record: then the job ends instead."""
    suspects = [*db.rows("stray_runs", look=EVERY, limit=ROWS_MAX), *db.rows("parked_broken", limit=ROWS_MAX)]
    for number in dict.fromkeys(number for number, *_ in suspects):
        run = db.row("run_of_waiting", number=number)
        if run is None:
            continue
        status, content = run
        if status is None:
            log.warning("removed the run of job %d, which has not started: %s", number, content)
            db.change("end_stray_run", number=number, now=now)
            db.change("remove_run", number=number)
            yield repaired(NAME, f"removed the run of job {number}, which had not started: {content}")
        else:
            _cancel(db, number, f"it has a run that ended {status}", now)
            yield repaired(NAME, f"ended job {number} CANCELLED: it was QUEUED and has a run that ended {status}")


def _end_owed(db: Db, now: Instant) -> Iterator[Finding]:
    """End jobs that should have ended when something refused it."""
    for number, word in _owed(db).items():
        if trouble(db, ("end", number), lambda number=number, word=word: end_owed(db, [number], word, now)) is None:  # type: ignore[misc]
            end_owed(db, [number], word, now)
            yield repaired(NAME, f"ended job {number}, which was {word.removesuffix(', and ')} and was refused that")


def _owed(db: Db) -> dict[int, str]:
    """Return parked jobs that should have ended, with the word that says how. A parent that completed in the meantime dooms nobody."""
    parked = [(number, held.partition(":")[2]) for number, held in db.rows("parked_broken", limit=ROWS_MAX)]
    for number, _, edges, reason in db.rows("wrong_blockers", look=EVERY, limit=ROWS_MAX):
        text = (reason or "").removeprefix(BROKEN_ROW)
        if edges or owed_of(text) == EXPIRED:
            parked.append((number, text))
    return {number: word for number, text in parked if (word := owed_of(text))}


def _end_bereft(db: Db, now: Instant) -> Iterator[Finding]:
    bereft = db.rows("bereft", look=EVERY, limit=ROWS_MAX)
    for (number,) in bereft:
        _cancel(db, number, "it waits for a job that is gone", now)
    if bereft:
        text = (
            f"ended {len(bereft):,} jobs CANCELLED that waited for a job that is gone: {_numbered(bereft)}; `rota job retry` runs one again"
        )
        yield repaired(NAME, text)


def _count_blockers(db: Db, now: Instant) -> Iterator[Finding]:
    del now
    owed = _owed(db)
    wrong = [row for row in db.rows("wrong_blockers", look=EVERY, limit=ROWS_MAX) if row[0] not in owed]
    for number, _, edges, _ in wrong:
        db.change("set_blockers", number=number, blockers=edges)
    if wrong:
        yield repaired(NAME, f"{len(wrong):,} PENDING jobs wait for what their edges say again: {_numbered(wrong)}")


def _release(db: Db, now: Instant) -> Iterator[Finding]:
    """Release parked jobs that are whole again; end those that can't be read. What refuses the others is somebody's to remove."""
    owed = _owed(db)
    parked = [number for number, held in db.rows("parked_broken", limit=ROWS_MAX) if held != LOST_WORD and number not in owed]
    if not parked:
        return
    broken = culprits_among(db, parked, now)
    for number in parked:
        if number not in broken and whole(db, [number])[0].origin == Origin.DIRECT:
            # Its caller was told long ago that it can't start, or is gone.
            _cancel(db, number, "it was a direct execution that could not start", now)
            yield repaired(NAME, f"ended job {number} CANCELLED: nobody waits for this direct execution any more")
        elif number not in broken:
            db.change("release_broken", number=number)
            yield repaired(NAME, f"released job {number}: it can be started again")
        elif not _is_readable(db, number):
            _cancel(db, number, broken[number], now)
            yield repaired(NAME, f"ended job {number} CANCELLED, which can't be read: {broken[number]}")


def _park_lost(db: Db, now: Instant) -> Iterator[Finding]:
    """Park what is ready and has lost its job, so that no claim comes upon it."""
    del now
    lost = [number for number, _ in db.rows("orphan_live", limit=ROWS_MAX) if db.change("park_lost", number=number, held=LOST_WORD)]
    if lost:
        yield repaired(NAME, f"parked {len(lost):,} rows of job_live that have lost their job: {_listed([str(each) for each in lost])}")


def _disable_schedules(db: Db, now: Instant) -> Iterator[Finding]:
    names = [name for _, name, _ in unreadable_schedules(db)]
    if names and set_schedules_aside(db, now):
        yield repaired(NAME, f"disabled {len(names):,} schedules that can't be read: {_listed(names)}")


def _disable_endpoints(db: Db, now: Instant) -> Iterator[Finding]:
    if disabled := set_endpoints_aside(db, now):
        yield repaired(NAME, f"disabled {len(disabled):,} webhooks that can't be read: {_listed(disabled)}")


def _is_readable(db: Db, number: int) -> bool:
    try:
        return bool(msgspec.json.decode(db.value("candidates_among", numbers=[number], want=1), type=list[Claimed]))
    except (*db.unwritable, *db.refused):
        return False


def _cancel(db: Db, number: int, reason: str, now: Instant) -> None:
    end_waiting(db, [number], Status.CANCELLED, now, reason=f"{BROKEN_ROW}{reason}", actor="system")


# ---- words -----------------------------------------------------------------------------------------------------------


def _blockers_text(blockers: int, edges: int, reason: str | None) -> str:
    if reason is not None and reason.startswith(BROKEN_ROW):
        return reason.removeprefix(BROKEN_ROW)
    return f"it waits for {blockers} jobs and has {edges} open edges"


def _log_removed(table: str, removed: list[tuple[int, str]]) -> None:
    for _, content in removed:
        log.warning("removed a row of %s that belongs to no job: %s", table, content)


def _contents(found: list[tuple[int, str]]) -> str:
    more = f"; and {len(found) - SHOWN:,} more, see the log" if len(found) > SHOWN else ""
    return "; ".join(content for _, content in found[:SHOWN]) + more


def _numbered(found: list[tuple[int, ...]]) -> str:
    return _listed([str(row[0]) for row in found])


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def overdue(db: Db, now: Instant) -> Iterator[Finding]:
    """Look for PENDING jobs whose time came long ago, and that nothing holds up."""
    earliest = min((at for _, at in db.rows("due_priorities")), default=now)
    late_s = (now - earliest) / SECOND
    if late_s <= OVERDUE_S:
        yield ok("due jobs", "each is queued when its time comes")
    else:
        yield problem(
            "due jobs",
            f"a PENDING job was due {span_text(late_s)} ago and was not queued",
            "start a worker (`rota workers` lists those that run); if there are some, see their logs and clocks",
        )


def outbox(db: Db, now: Instant) -> Iterator[Finding]:
    """Look for messages that should have been delivered."""
    count, oldest = db.rows("outbox_backlog", before=now - OVERDUE_S * SECOND)[0]
    if not count:
        yield ok("outbox", "no message is overdue")
    else:
        late = span_text((now - oldest) / SECOND)
        yield advice("outbox", f"{count:,} messages are overdue, the oldest by {late}", "see whether their targets answer, and worker logs")


def webhooks(db: Db, settings: Settings, now: Instant) -> Iterator[Finding]:
    """Look for webhooks that have failed for long."""
    failing = db.rows("failing_endpoints", before=now - round(settings.webhook_failing * SECOND), limit=SHOWN)
    for endpoint_id, organization, since, error in failing:
        text = f"webhook {dashed(endpoint_id)} of {organization} has failed for {span_text((now - since) / SECOND)}: {error or 'no answer'}"
        yield advice("webhooks", text, "see its receiver; `rota webhook deliveries` says more, `rota webhook update ID --disabled` ends it")
    if not failing:
        yield ok("webhooks", "none has failed for long")
