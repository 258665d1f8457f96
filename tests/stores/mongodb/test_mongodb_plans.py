"""No statement walks a large collection: what the server is asked while all kinds of work are done, explained afterwards.

The server walks a collection only if no index fits, however few documents there are: so a small store tells.
"""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from pymongo import MongoClient, monitoring

from rota import NewJob, Rota, Settings
from rota.model.decide import Failed
from rota.operation import Ask, Right
from rota.sql.query import select
from rota.stores.mongodb import MongoStore, connection
from rota.stores.mongodb.db import STATEMENTS
from tests.sql.test_sql_query_speed import QUERIES
from tests.sql.world import MANAGER, build
from tests.stores.desk import Desk
from tests.stores.filling import TYPES, fill_schedules
from tests.stores.timekeeper import Timekeeper
from tests.support.clock import ManualClock
from tests.support.mongodb import shared_set

SMALL = {
    *(
        "meta",
        "locks",
        "counters",
        "bell",
        "queue_clock",
        "lanes",
        "organizations",
        "roles",
        "pauses",
        "settings",
        "templates",
        "calendars",
    ),
    *("users", "tokens", "connections", "adhoc_types", "hook_secrets", "workers", "endpoints", "param_digests", "grants"),
    *("secrets", "template_versions"),
}
"""What has as many documents as people make, or as there are types and workers."""
WALKS = {
    "scan": {"job_live", "schedules", "occurrences", "audit"},  # what a query asks for without a bound
    "schedules": {"schedules"},
    "schedules_too_far": {"schedules"},
    "enabled_schedules": {"schedules"},
    "zoned_schedules": {"schedules"},
    "unknown_statuses": {"job_live", "job_ends"},  # `rota doctor --full`
}
"""Statements that look at all there is."""
LEAST = 250
"""Statements that the work below runs, at least."""


class Recorder(monitoring.CommandListener):
    """Keeps each kind of question once, with the statement that asked it."""

    def __init__(self):
        self.asked = {}
        self.statement = ""
        self.run = set()

    def started(self, event):
        name, command = event.command_name, event.command
        if (
            not self.statement
            or name not in {"find", "aggregate", "update", "delete", "findAndModify"}
            or not isinstance(command[name], str)
        ):
            return
        for part in command.get(f"{name}s", [None]):
            only = {field: command[field] for field in KEPT if field in command} | ({f"{name}s": [part]} if part is not None else {})
            explained = {name: command[name], **only} | ({"cursor": {}} if name == "aggregate" else {})
            self.asked.setdefault((self.statement, repr(shape(explained))), explained)

    def succeeded(self, event): ...

    def failed(self, event): ...


KEPT = ("filter", "sort", "projection", "limit", "hint", "pipeline", "query", "update")


def shape(value):
    """Return a question without its values."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted({repr(shape(inner)) for inner in value[:5]})
    return type(value).__name__


@pytest.fixture(scope="module")
def recorded():
    """All kinds of work done, and what the server was asked for it."""
    recorder, database = Recorder(), f"plans_{uuid4().hex[:8]}"
    with pytest.MonkeyPatch.context() as patch:
        for name, function in list(STATEMENTS.items()):
            patch.setitem(STATEMENTS, name, noting(recorder, name, function))
        patch.setattr(connection, "MongoClient", partial(MongoClient, event_listeners=[recorder]))
        work(shared_set().url(database))
    with shared_set().client() as client:
        yield recorder, client[database]
        client.drop_database(database)


def noting(recorder, name, function):
    """Return a statement that says which one it is while it asks. One that streams is read at once."""

    def noted(*given, **values):
        before, recorder.statement = recorder.statement, name
        recorder.run.add(name)
        try:
            found = function(*given, **values)
            return iter(list(found)) if name == "scan" else found
        finally:
            recorder.statement = before

    return noted


def work(url):
    clock = ManualClock()
    with closing(Rota(url, clock=clock, settings=Settings(sql_timeout=60.0, retention=60), seed=7)) as rota:
        build(rota, clock)
        people(rota.acting_as(MANAGER))
        jobs(rota, clock)
        looks(rota)
        clock.advance(hours=2)
        rota.store.purge()
    with closing(MongoStore(url, Settings())) as store:
        desk = Timekeeper(store)
        fill_schedules(desk, templates=5, schedules=20)
        queue(desk)


def people(rota):
    """Let users, tokens and webhooks come and go."""
    rota.users.create("zoe", organization="acme")
    token = rota.tokens.create("laptop", user="zoe")
    rota.tokens.list()
    rota.tokens.revoke(token.token.id)
    hook = rota.webhooks.create("https://example.com/hook").webhook
    rota.webhooks.list()
    rota.webhooks.deliveries(webhook=hook.id)
    rota.webhooks.delete(hook.id)
    rota.webhooks.rotate(organization="default")
    rota.users.list()
    rota.users.delete("zoe")


def jobs(rota, clock):
    """Enqueue in every way, change, move, cancel and retry."""
    first = rota.enqueue("good", {"n": 1})
    rota.enqueue_many([NewJob(name="good", params={"n": number}) for number in range(50)])
    rota.enqueue("good", {"n": 2}, unique_key="only", tags=["a"])
    rota.enqueue("good", {"n": 3}, run_at=timedelta(minutes=1), webhook="https://example.com/one")
    child = rota.enqueue("good", {"n": 4}, depends_on=[first.id])
    rota.jobs.move(rota.enqueue("good", {"n": 5}).id, before=first.id)
    rota.jobs.update(child.id, priority=70)
    rota.jobs.cancel(child.id)
    rota.enqueue("bad", {"n": 1})
    for _ in range(4):
        clock.advance(hours=1)
        rota.turn()
    rota.jobs.retry(rota.jobs.list(status="DEAD_LETTER", limit=1)[0].id)
    rota.queues.pause("default")
    rota.turn()
    rota.queues.resume("default")
    rota.store.recover()


def looks(rota):
    """Look at everything."""
    bounds = ({"status": "COMPLETED"}, {"status": "DEAD_LETTER"}, {"status": "RUNNING"}, {"job_type": "good"}, {"organization": "acme"})
    for where in ({}, *bounds, {"tag": "a"}, {"queue": "default"}):
        rota.jobs.list(limit=20, **where)
    for job in rota.jobs.list(limit=3):
        rota.jobs.get(job.id)
        rota.jobs.attempts(job.id)
        rota.jobs.runs(job.id)
        rota.jobs.graph(job.id)
        rota.jobs.log(job.id)
    rota.schedules.list()
    rota.schedules.occurrences()
    rota.schedules.overdue()
    rota.overview()
    rota.workers.list()
    rota.workers.jobs()
    rota.queues.list()
    rota.queues.jobs()
    rota.dead_letters.list()
    rota.groups.list()
    rota.store.stats()
    rota.store.doctor()
    for text, _ in QUERIES.values():
        select(Ask(rota._session, MANAGER, Right.READ), text)


def queue(desk):
    """Have turns with everything in them."""
    desk.grouped([desk.row(TYPES[0], unique_key=desk.id()) for _ in range(5)])
    desk.put(*(desk.row(TYPES[index % 5], expires_at=desk.now + 10**9) for index in range(200)))
    desk.put(*(desk.row(TYPES[1], depends_on=(desk.add(TYPES[0], delay=3600),)) for _ in range(5)))
    while claimed := desk.claim(100, types=TYPES):
        desk.turn(
            done=[(job.number, desk.now) for job in claimed if job.number % 5],
            endings=[desk.ending(job, Failed("x")) for job in claimed if not job.number % 5],
        )
    reservation = desk.reserve(TYPES[0])
    assert reservation is not None
    Desk.recover(desk, desk.id(), Failed("x"))


def stages(plan):
    """Go through the steps of a plan, those of arms and of later stages included."""
    if isinstance(plan, dict):
        if "stage" in plan:
            yield plan
        for inner in plan.values():
            yield from stages(inner)
    elif isinstance(plan, list):
        for inner in plan:
            yield from stages(inner)


def test_the_work_runs_most_statements(recorded):
    recorder, _ = recorded
    assert len(recorder.run) >= LEAST, sorted(STATEMENTS.keys() - recorder.run)


def test_no_statement_walks_a_large_collection(recorded):
    recorder, database = recorded
    wrong = []
    for (statement, _), command in recorder.asked.items():
        plan = database.command("explain", command, verbosity="queryPlanner")
        collection = next(iter(command.values()))
        # Some of all there are: the first ones are read, and no more.
        is_part = "limit" in command and not command["filter"]
        is_walked = any(step["stage"] == "COLLSCAN" for step in stages(plan))
        if is_walked and not is_part and collection not in SMALL | WALKS.get(statement, set()):
            wrong.append(f"{statement}: {command}")
    assert "\n".join(wrong) == ""
