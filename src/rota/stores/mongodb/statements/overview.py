"""The store from above: what waits, runs and fails. Each walk goes along an index and has a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, rows
from rota.stores.mongodb.schema import PENDING, QUEUED, RUNNING, THERE, UNFIRED
from rota.stores.mongodb.statements.jobs import job_rows, root_numbers, whole_by_number
from rota.stores.mongodb.statements.joining import among, in_chunks
from rota.stores.mongodb.statements.questions import Question, answers

READY = {**QUEUED, "held": None}
IN_LINE = {"priority": -1, "position": 1, "created_at": 1, "job_id": 1}
ABOVE_ALL = 101
"""A priority that no job has."""
COUNT_LEAST = 1000
"""So many of each lane are counted, however many lanes there are."""
NAMES = ("job_id", "root_id", "attempt", "job_type")
ERROR_CHARS = 500
AT_A_TIME = 500
"""Rows of the ledger that are looked at together."""

# ---- what waits ------------------------------------------------------------------------------------------------------


@statement
def ready_lanes(db: Db, *, limit: int, look: int, few: int) -> list[Row]:
    """Return each lane and priority that has ready jobs.

    Its type, its id, its queue, its first job, up to how many are counted, how many there are, and since when its first few wait.
    """
    lanes = {lane["_id"]: lane for lane in db.find("lanes", {}, ("job_type", "queue"), sort=[("_id", 1)])}
    heads = sorted(_heads_of_lanes(db, lanes, limit), key=lambda head: (head["lane"], -head["priority"]))[:limit]
    most = max(COUNT_LEAST, look // max(1, len(heads)))
    counted = _counted(db, [{**READY, "lane": head["lane"], "priority": head["priority"]} for head in heads], most, few)
    named = ((lanes[head["lane"]], head) for head in heads)
    return [
        (lane["job_type"], lane["_id"], lane["queue"], head["_id"], most, *count)
        for (lane, head), count in zip(named, counted, strict=True)
    ]


def _heads_of_lanes(db: Db, lanes: Iterable[int], limit: int) -> Iterator[Document]:
    """Return the first ready job of each priority in each lane: of all lanes at once, from each priority to the next."""
    below = dict.fromkeys(lanes, ABOVE_ALL)
    while below:
        found = answers(db, [_first({**READY, "lane": lane, "priority": {"$lt": priority}}, IN_LINE) for lane, priority in below.items()])
        heads = [head for answer in found for head in answer][:limit]
        yield from heads
        below = {head["lane"]: head["priority"] for head in heads}


def _first(where: Document, order: Document) -> Question:
    columns = {"lane": 1, "priority": 1, "held": 1, "job_type": 1}
    return "job_live", [{"$match": where}, {"$sort": order}, {"$limit": 1}, {"$project": columns}]


def _counted(db: Db, lanes: Sequence[Document], most: int, few: int) -> Iterator[tuple[int, int | None]]:
    """Return how many jobs there are in lanes, as far as that is worth counting, and since when the first few of each wait."""
    counts = answers(db, [("job_live", [{"$match": where}, {"$limit": most}, {"$count": "jobs"}]) for where in lanes])
    since = {"$group": {"_id": None, "since": {"$min": "$queued_at"}}}
    heads = answers(db, [("job_live", [{"$match": where}, {"$sort": IN_LINE}, {"$limit": few}, since]) for where in lanes])
    for count, first in zip(counts, heads, strict=True):
        yield count[0]["jobs"] if count else 0, first[0]["since"] if first else None


@statement
def held_lanes(db: Db, *, limit: int, look: int, few: int) -> list[Row]:
    """Return the same of each word and type that jobs are parked under: these two, and the rest from its first job on."""
    heads = list(islice(_heads_of_words(db), limit))
    most = max(COUNT_LEAST, look // max(1, len(heads)))
    counted = _counted(db, [{**QUEUED, "held": head["held"], "job_type": head["job_type"]} for head in heads], most, few)
    return [(head["held"], head["job_type"], head["_id"], most, *count) for head, count in zip(heads, counted, strict=True)]


def _heads_of_words(db: Db) -> Iterator[Document]:
    """Return the first job of each word and type: the next type of the same word, or else the next word."""
    order = {"held": 1, "job_type": 1} | IN_LINE
    found = answers(db, [_first({**QUEUED, "held": {**THERE, "$gte": ""}}, order)])
    while heads := [answer[0] for answer in found if answer]:
        held, job_type = heads[0]["held"], heads[0]["job_type"]
        yield heads[0]
        behind = ({"held": held, "job_type": {"$gt": job_type}}, {"held": {"$gt": held}})
        found = answers(db, [_first(QUEUED | where, order) for where in behind])


@statement
def line_lanes(db: Db, *, priority: int, organization_id: str, owner: str | None, look: int) -> list[Row]:
    """Return the head of one line of the queue, that of an organization at a priority, sorted into lanes; and whose own they are."""
    where = {**QUEUED, "priority": priority, "organization_id": organization_id}
    columns = ("held", "job_type", "lane", "queued_at")
    jobs = db.find("job_live", where, columns, sort=[("position", 1)], limit=look, hint="live_tail")
    queues = {lane["_id"]: lane["queue"] for lane in among(db, "lanes", "_id", {job["lane"] for job in jobs if "lane" in job}, ("queue",))}
    return [
        (held, job_type, mine, *sums, lane, queues.get(lane))
        for (held, job_type, lane, mine), sums in _grouped(jobs, columns[:3], "queued_at", _own(db, jobs, owner))
    ]


@statement
def blocked_lanes(db: Db, *, look: int) -> list[Row]:
    """Return what waits for other jobs, by type."""
    return _blocked(db, {}, None, look)


@statement
def blocked_lanes_of(db: Db, *, organization_id: str, owner: str | None, look: int) -> list[Row]:
    """Return the same of an organization; and whose own they are."""
    return _blocked(db, {"organization_id": organization_id}, owner, look)


def _blocked(db: Db, where: Document, owner: str | None, look: int) -> list[Row]:
    columns = ("job_type", "created_at")
    jobs = db.find("job_live", {**PENDING, "blockers": {"$gt": 0}, **where}, columns, limit=look, hint="live_blocked")
    return [(job_type, mine, *sums) for (job_type, mine), sums in _grouped(jobs, columns[:1], "created_at", _own(db, jobs, owner))]


def _own(db: Db, jobs: Sequence[Document], owner: str | None) -> set[int]:
    """Return the numbers of the jobs of an owner; None: of anybody."""
    numbers = [job["_id"] for job in jobs]
    return set(numbers) if owner is None else {fact["_id"] for fact in among(db, "job_facts", "_id", numbers, owner=owner)}


def _grouped(jobs: Iterable[Document], columns: Sequence[str], moment: str, own: set[int]) -> Iterator[tuple[Row, Row]]:
    """Return jobs by these columns and whether they are own: how many, the earliest moment, and the lowest number."""
    groups: dict[Row, list[Document]] = defaultdict(list)
    for job in jobs:
        groups[*[job.get(column) for column in columns], job["_id"] in own].append(job)
    for key, group in groups.items():
        moments = [job[moment] for job in group if moment in job]
        yield key, (len(group), min(moments, default=None), min(job["_id"] for job in group))


@statement
def due_lane(db: Db, *, priority: int, after: int, until: int, look: int) -> list[Row]:
    """Return how many PENDING jobs of a priority are due between two moments, twice, the first due time, and whose it is."""
    sums = {"_id": None, "count": {"$sum": 1}, "since": {"$first": "$run_at"}, "number": {"$first": "$_id"}}
    found = db.aggregate(
        "job_live", [{"$match": _due(priority, after, until)}, {"$sort": {"run_at": 1}}, {"$limit": look}, {"$group": sums}]
    )
    return [(lane["count"], lane["count"], lane["since"], lane["number"]) for lane in found] or [(0, 0, None, None)]


@statement
def due_lane_of(db: Db, *, priority: int, after: int, until: int, look: int, organization_id: str, owner: str | None) -> list[Row]:
    """Return how many there are of all, and of an organization and owner; the first due time of these, and their lowest number."""
    columns = ("run_at", "organization_id")
    jobs = db.find("job_live", _due(priority, after, until), columns, sort=[("run_at", 1)], limit=look, hint="live_due")
    near = [job for job in jobs if job["organization_id"] == organization_id]
    own = _own(db, near, owner)
    mine = [job for job in near if job["_id"] in own]
    return [(len(jobs), len(mine), min((job["run_at"] for job in mine), default=None), min((job["_id"] for job in mine), default=None))]


def _due(priority: int, after: int, until: int) -> Document:
    return {**PENDING, "blockers": 0, "priority": priority, "run_at": {"$gt": after, "$lte": until}}


# ---- suspects --------------------------------------------------------------------------------------------------------


@statement
def running_suspects(db: Db) -> list[Row]:
    """Return what runs under which a worker has crashed before, and where."""
    retries = db.find("job_live", {**RUNNING, "attempt": {"$gt": 1}}, ("worker_id", "started_at"), hint="live_running")
    retries.sort(key=lambda job: (job["started_at"], job["_id"]))
    numbers = [job["_id"] for job in retries]
    columns = ("root_id", "attempt", "executor")
    suspects = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", numbers, columns, crashes={"$gt": 0})}
    roots = root_numbers(db, suspects.values())
    return [
        (job["_id"], job["worker_id"], fact["root_id"], roots.get(fact["root_id"]), fact["attempt"], fact["executor"])
        for job in retries
        if (fact := suspects.get(job["_id"])) is not None
    ]


@statement
def waiting_suspects(db: Db, *, lane: int, look: int, organization_id: str | None, owner: str | None) -> list[Row]:
    """Return how many of the first ready jobs of a lane are such: they keep their place, so that they are near the front."""
    heads = db.find("job_live", {**READY, "lane": lane}, ("queued_at",), sort=list(IN_LINE.items()), limit=look, hint="live_ready")
    since = {head["_id"]: head["queued_at"] for head in heads}
    where = document(crashes={"$gt": 0}, organization_id=organization_id, owner=owner)
    numbers = [fact["_id"] for fact in among(db, "job_facts", "_id", since, **where)]
    return [(len(numbers), min((since[number] for number in numbers), default=None), min(numbers, default=None))]


# ---- jobs ------------------------------------------------------------------------------------------------------------


@statement
def shown(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return how jobs are named."""
    facts = list(among(db, "job_facts", "_id", numbers, NAMES))
    return [(fact["_id"], *names) for fact, names in zip(facts, _names(db, facts), strict=True)]


def _names(db: Db, facts: Sequence[Document]) -> Iterator[Row]:
    roots = root_numbers(db, facts)
    for fact in facts:
        yield fact["job_id"], fact["root_id"], roots.get(fact["root_id"]), fact["attempt"], fact["job_type"]


@statement
def running_now(db: Db, *, look: int, limit: int, organization_id: str | None, owner: str | None) -> list[Row]:
    """Return the longest running among the first that are found; with each its progress, how many run, and how many were looked at."""
    where = RUNNING | document(organization_id=organization_id)
    running = db.find("job_live", where, ("started_at",), limit=look, hint="live_running")
    own = _own(db, running, owner)
    mine = sorted((job for job in running if job["_id"] in own), key=lambda job: (job["started_at"], job["_id"]))
    jobs = whole_by_number(db, [job["_id"] for job in mine[:limit]])
    notes = {note["_id"]: note for note in among(db, "run_notes", "_id", [job["_id"] for job in jobs], ("progress", "progress_message"))}
    progress = rows((notes.get(job["_id"], {}) for job in jobs), ("progress", "progress_message"))
    return [(*job, *said, len(mine), len(running)) for job, said in zip(job_rows(db, jobs), progress, strict=True)]


@statement
def dead_lately(db: Db, *, since: int, look: int, limit: int, organization_id: str | None, owner: str | None) -> list[Row]:
    """Return the newest dead letters, among the first that are found, that ended since a moment and were not retried."""
    columns = ("finished_at", "reason")
    newest = db.find("job_ends", {"status": "DEAD_LETTER"}, columns, sort=[("_id", -1)], limit=look, hint="ends_unhappy")
    ends = {end["_id"]: end for end in newest if end["finished_at"] >= since}
    where = document(organization_id=organization_id, owner=owner)
    facts = {fact["_id"]: fact for fact in among(db, "job_facts", "_id", ends, (*NAMES, "organization_id"), **where)}
    retries = among(db, "job_facts", "retry_of", [fact["job_id"] for fact in facts.values()], ("retry_of",))
    retried = {fact["retry_of"] for fact in retries}
    dead = [facts[number] for number in ends if number in facts and facts[number]["job_id"] not in retried][:limit]
    said: dict[int, str] = dict(errors(db, numbers=[fact["_id"] for fact in dead]))
    return [
        (*names, fact["organization_id"], ends[fact["_id"]]["finished_at"], ends[fact["_id"]].get("reason", said.get(fact["_id"])))
        for fact, names in zip(dead, _names(db, dead), strict=True)
    ]


@statement
def errors(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return what attempts died of."""
    return [(note["_id"], note["error"][:ERROR_CHARS]) for note in among(db, "run_notes", "_id", numbers, ("error",), error=THERE)]


@statement
def metas(db: Db, *, numbers: Sequence[int]) -> list[Row]:
    """Return what is kept with jobs."""
    return rows(among(db, "job_facts", "_id", numbers, ("meta",), meta=THERE), ("_id", "meta"))


# ---- schedules and pauses --------------------------------------------------------------------------------------------


@statement
def unfired(db: Db, *, since: int, limit: int, organization_id: str | None, owner: str | None) -> list[Row]:
    """Return due times that did not become a job, the last first."""
    where = {**UNFIRED, "last_due_at": {"$gte": since}}
    columns = ("schedule_id", "fate", "due_at", "last_due_at", "count", "reason")
    last_first = db.cursor("occurrences", where, columns, sort=[("last_due_at", -1)], hint="occurrences_unfired")
    of = document(organization_id=organization_id, created_by=owner)
    found = (row for some in in_chunks(last_first, AT_A_TIME) for row in _with_schedules(db, some, of))
    return rows(islice(found, limit), ("name", "schedule_id", "organization_id", *columns[1:]))


def _with_schedules(db: Db, occurrences: Sequence[Document], of: Document) -> Iterator[Document]:
    """Return rows of the ledger with the names and organizations of their schedules, as far as these match."""
    ids = {row["schedule_id"] for row in occurrences}
    schedules = {schedule["_id"]: schedule for schedule in among(db, "schedules", "_id", ids, ("name", "organization_id"), **of)}
    for row in occurrences:
        if row["schedule_id"] in schedules:
            yield schedules[row["schedule_id"]] | row


@statement
def paused(db: Db) -> list[Row]:
    """Return what is paused, since when and by whom."""
    columns = ("kind", "name", "paused_at", "paused_by")
    return rows(db.find("pauses", {}, columns, sort=[("paused_at", 1), ("kind", 1), ("name", 1)]), columns)
