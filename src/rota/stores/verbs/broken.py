"""Rows that are not what they should be: found one by one when a batch fails, and parked, so that their neighbours run.

Nothing here is asked on the way of a healthy turn. When a turn, a firing or a retention batch fails for what a row holds, the rows it was
about are tried in halves, each try undone, until the culprits are alone. A culprit is parked with the reason; `rota doctor` names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from rota.errors import RotaError, StoreBusy, StoreUnavailable, StoreUnusable
from rota.model.decide import Transition
from rota.model.schedules import trouble_of
from rota.model.states import ErrorType, Status
from rota.model.values import BROKEN_ROW, Claimed, Instant, broken_word
from rota.ports.turns import Ending, Turn
from rota.stores.verbs import edges, schedules
from rota.stores.verbs.db import About, Db
from rota.stores.verbs.definitions import lanes_of_types
from rota.stores.verbs.endings import EXPIRED_REASON, end_waiting
from rota.stores.verbs.queue import promote, queue_due
from rota.stores.verbs.turn import active_reservation, whole

log = logging.getLogger("rota.store")
_numbers = msgspec.json.Decoder(list[int]).decode

SPOILT: tuple[type[Exception], ...] = (RotaError, ValueError, TypeError, KeyError, AttributeError)
"""What a batch may fail with because of one of its rows. `is_passing` says which of these have another cause."""
NOBODY = "0" * 32
"""The worker under which jobs are started that are put back at once."""
EXPIRED = "expired, and "
WITH_PARENT = {Status.SKIPPED: "to be skipped with its parent, and ", Status.CANCELLED: "to be cancelled with its parent, and "}
"""How the reason begins with which a job is parked that should have ended."""
LOOKED_AT_MAX = 10_000
"""Schedules that are tried one by one."""


def is_passing(error: Exception) -> bool:
    """Say whether an error is of the store as a whole, and no row's fault."""
    return isinstance(error, StoreBusy | StoreUnavailable | StoreUnusable)


def careful(turn: Turn) -> Turn:
    """Return the turn with nothing but its ends and reports: each completion as an ending, which is replayed alone if it can't be written.

    Nobody expires, is told or is queued by it: what refuses that is met by the next turn, when these ends are written.
    """
    endings = [*turn.endings, *(_completed(number, at) for number, at in turn.done)]
    return Turn(
        now=turn.now,
        worker_id=turn.worker_id,
        endings=endings,
        reports=turn.reports,
        limit=0,
        definitions=turn.definitions,
        counting=turn.counting,
        audit_runs=turn.audit_runs,
        start_by=turn.start_by,
    )


def _completed(number: int, at: Instant) -> Ending:
    end = Transition(Status.COMPLETED)
    return Ending(number, at, end, end, "")


# ---- jobs ------------------------------------------------------------------------------------------------------------


def set_aside(db: Db, turn: Turn) -> dict[int, str]:
    """Park ready jobs that can't be started and due ones that can't be queued; return the reasons by number."""
    news: list[str] = []
    parked = _set_jobs_aside(db, turn, news)
    # At last: a store without savepoints has begun this again for each part that failed.
    for line in news:
        log.error("%s", line)
    return parked


def _set_jobs_aside(db: Db, turn: Turn, news: list[str]) -> dict[int, str]:
    parked = _set_expired_aside(db, turn, news) | _set_children_aside(db, turn, news)
    for priority, earliest in db.rows("due_priorities"):
        if earliest <= turn.now:
            due = queue_due(db, priority, turn.now, turn.limit)
            for number, reason in _culprits(db, ("queue",), list(due), lambda some, due=due: _queue(db, some, due, turn.now)).items():  # type: ignore[misc]
                parked |= _park(db, "park_pending", news, number, reason, reason=f"{BROKEN_ROW}{reason}")
    # What was queued and claimed in the turn that failed is to be tried as well.
    promote(db, turn.now, turn.limit)
    for lane in lanes_of_types(db, turn.types) if turn.lanes is None else turn.lanes:
        ready = [number for (number,) in db.rows("ready_of_lane", lane=lane, limit=turn.limit)]
        for number, reason in _culprits(db, ("start",), ready, lambda some: _start(db, some, turn)).items():
            parked |= _park(db, "park_broken", news, number, reason, held=broken_word(reason))
    return parked | _set_direct_aside(db, turn, news)


def _set_expired_aside(db: Db, turn: Turn, news: list[str]) -> dict[int, str]:
    """Park jobs that have expired and can't be ended. They keep no time to expire at, or each turn would come upon them."""
    parked: dict[int, str] = {}
    expired = _numbers(db.value("expired_jobs", now=turn.now, limit=turn.limit))
    for number, reason in _culprits(db, ("expire",), expired, lambda some: end_owed(db, some, EXPIRED, turn.now)).items():
        parked |= _park_waiting(db, news, number, f"{EXPIRED}{reason}", lambda number=number: db.change("unset_expiry", number=number))  # type: ignore[misc]
    return parked


def _set_children_aside(db: Db, turn: Turn, news: list[str]) -> dict[int, str]:
    """Park jobs that can't be released, or ended, when a chain they wait for has ended."""
    parked: dict[int, str] = {}
    for ended in edges.some_ended(db, turn.limit):
        told = edges.to_tell(db, ended, turn.limit)
        stuck = _culprits(db, ("release", ended.root_id), told.satisfied, lambda some: db.change("unblock", children=some))
        # It still waits for one more than it has open edges, and needs no other word.
        db.change("satisfy", root_id=ended.root_id, children=list(stuck), now=turn.now)
        for number, reason in stuck.items():
            news.append(f"job {number} can't be released and stays PENDING: {reason}. `rota repair` counts what it waits for")
        parked |= stuck
        for status, numbers in told.by_end():
            word = WITH_PARENT[status]
            about = ("end", word, ended.root_id)
            for number, reason in _culprits(db, about, numbers, lambda some, word=word: end_owed(db, some, word, turn.now)).items():  # type: ignore[misc]
                values = {"number": number, "root_id": ended.root_id}
                parked |= _park_waiting(db, news, number, f"{word}{reason}", lambda values=values: db.change("let_wait", **values))  # type: ignore[misc]
    return parked


def end_owed(db: Db, numbers: list[int], word: str, now: Instant) -> None:
    """End waiting jobs as the word says that they should have ended."""
    if word == EXPIRED:
        end_waiting(db, numbers, Status.SKIPPED, now, reason=EXPIRED_REASON, actor="system", tell=False)
    else:
        (status,) = (status for status, each in WITH_PARENT.items() if each == word)
        reason = "a parent did not complete"
        end_waiting(db, numbers, status, now, reason=reason, actor="system", error_type=ErrorType.DEPENDENCY, tell=False)


def owed_of(text: str) -> str | None:
    """Return the word for how a parked job should have ended, from what it is parked with."""
    return next((word for word in (EXPIRED, *WITH_PARENT.values()) if text.startswith(word)), None)


def _park_waiting(db: Db, news: list[str], number: int, why: str, also: Callable[[], object]) -> dict[int, str]:
    """Park a job that waits in either state and can't be ended."""
    try:
        with db.savepoint(("park waiting", number)):
            db.change("park_broken", number=number, held=broken_word(why))
            db.change("park_pending", number=number, reason=f"{BROKEN_ROW}{why}")
            also()
    except db.refused as error:
        news.append(f"job {number} can't be ended ({why}) and can't be parked either ({words_of(error)}): remove what refuses it")
        return {}
    news.append(f"job {number} can't be ended and was parked: {why}. `rota repair` ends it when nothing refuses that")
    return {number: why}


def _set_direct_aside(db: Db, turn: Turn, news: list[str]) -> dict[int, str]:
    active = active_reservation(db)
    if active is None or db.value("is_waiting", number=active.job_number) is None:
        return {}
    parked: dict[int, str] = {}
    for number, reason in _culprits(db, ("start directly",), [active.job_number], lambda some: _start(db, some, turn)).items():
        parked |= _park(db, "park_broken", news, number, reason, held=broken_word(reason))
        # It would keep the next slot for a job that can't start.
        db.change("end_reservation", reservation_id=active.id, status="EXPIRED", now=turn.now)
    return parked


def _start(db: Db, numbers: list[int], turn: Turn) -> None:
    jobs: list[Claimed] = whole(db, numbers)
    if len(jobs) != len(numbers):
        raise ValueError("a part of the job is missing")
    for job in jobs:
        job.run_id = job.job_id  # it is undone: any id does that no other run has
    db.start(jobs, {}, now=turn.now, worker_id=bytes.fromhex(turn.worker_id))


def _queue(db: Db, numbers: list[int], due: dict[int, int], now: Instant) -> None:
    db.change("queue_jobs", now=now, positions={number: due[number] for number in numbers})


def _park(db: Db, statement: str, news: list[str], number: int, why: str, /, **values: str) -> dict[int, str]:
    try:
        with db.savepoint((statement, number)):
            db.change(statement, number=number, **values)
    except db.refused as error:
        news.append(f"job {number} can't be started ({why}) and can't be parked either ({words_of(error)}): remove what refuses it")
        return {}
    news.append(f"job {number} can't be started and was parked: {why}. `rota repair` repairs what can be repaired")
    return {number: why}


# ---- schedules -------------------------------------------------------------------------------------------------------


def unreadable_schedules(db: Db) -> list[tuple[str, str, str]]:
    """Return schedules that can't be read: their id, a name for people, and why."""
    found = []
    for schedule_id, organization, name in db.rows("enabled_schedules", limit=LOOKED_AT_MAX):
        why = trouble(db, ("read schedule", schedule_id), lambda schedule_id=schedule_id: schedules.schedule(db, schedule_id))  # type: ignore[misc]
        if why is not None:
            found.append((schedule_id, f"{name} of {organization}", why))
    return found


def unfireable_schedules(db: Db, unreadable: Collection[str]) -> list[tuple[str, str]]:
    """Return schedules, besides unreadable ones, whose due times can't be computed here: a name for people, and why."""
    found = []
    for schedule_id, organization, name in db.rows("enabled_schedules", limit=LOOKED_AT_MAX):
        schedule = None if schedule_id in unreadable else schedules.schedule(db, schedule_id)
        why = None if schedule is None else trouble_of(schedule.timing)
        if why is not None:
            found.append((f"{name} of {organization}", why))
    return found


def set_schedules_aside(db: Db, now: Instant) -> int:
    """Disable schedules that can't be read; return how many."""
    disabled = 0
    for schedule_id, name, why in unreadable_schedules(db):
        try:
            with db.savepoint(("disable schedule", schedule_id)):
                params, depends_on, declared = raw = db.rows("schedule_raw", schedule_id=schedule_id)[0]
                db.change(
                    "disable_schedule",
                    schedule_id=schedule_id,
                    now=now,
                    description=f"{BROKEN_ROW}{why}",
                    params=_if_json(params, dict[str, object]),
                    depends_on=_if_json(depends_on, list[str]),
                    declared=_if_json(declared, dict[str, object]),
                )
        except db.refused:
            continue
        disabled += 1
        log.error(
            "schedule %s can't be read and was disabled: %s. Edit it and enable it again. Its params, depends_on and declaration were: %s",
            name,
            why,
            raw,
        )
    return disabled


def _if_json(text: str | None, kind: Any) -> str | None:
    """Return a text if it is JSON of a kind."""
    try:
        if text is not None:
            msgspec.json.decode(text, type=kind)
    except ValueError:
        return None
    return text


# ---- one by one ------------------------------------------------------------------------------------------------------


class _Undo(Exception):  # noqa: N818 - a signal to undo a try, not an error of anybody
    pass


def trouble(db: Db, about: About, work: Callable[[], object]) -> str | None:
    """Do something and undo it; return why it could not be done."""
    try:
        with db.savepoint(about):
            work()
            raise _Undo
    except _Undo:
        return None
    except (*db.unwritable, *db.refused, *SPOILT) as error:
        if is_passing(error):
            raise
        return words_of(error)


def culprits_among(db: Db, numbers: Sequence[int], now: Instant) -> dict[int, str]:
    """Return those of some QUEUED jobs that can't be started, with the reasons."""
    return _culprits(db, ("start",), numbers, lambda some: _start(db, some, Turn(now=now, worker_id=NOBODY)))


def _culprits(db: Db, what: About, numbers: Sequence[int], attempt: Callable[[list[int]], object]) -> dict[int, str]:
    """Return the numbers that can't be done, with the reasons: halves are tried until the culprits are alone."""
    if not numbers:
        return {}
    why = trouble(db, (*what, *numbers), lambda: attempt(list(numbers)))
    if why is None:
        return {}
    if len(numbers) == 1:
        return {numbers[0]: why}
    half = len(numbers) // 2
    return _culprits(db, what, numbers[:half], attempt) | _culprits(db, what, numbers[half:], attempt)


def words_of(error: Exception) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split()).removeprefix("ConstraintError: ").partition(" CONTEXT:")[0] or type(error).__name__
