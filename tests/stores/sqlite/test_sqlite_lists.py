"""Each way to look for a page walks its own index: none of them is a scan, and all of them find the same."""

from itertools import product

import pytest

from rota.model.decide import Failed, TimedOut
from rota.model.values import SECOND
from rota.ports.store import Adopted, Where
from rota.ports.turns import Choice
from rota.stores.relational import lists
from rota.stores.sqlite.statements import over_source, statements
from tests.stores.desk import ANNA, START

SOURCES = {
    "chain": "jobs_retry (retry_of=?)",
    "group": "jobs_group (group_id=?",
    "schedule": "jobs_occurrence (schedule_id=?)",
    "status": "jobs_unhappy (status=? AND rowid>? AND rowid<?)",
    "running": "jobs_running",
    "ready": "jobs_ready",
    "ready_of_type": "jobs_ready (job_type=?)",
    "held": "jobs_held",
    "held_of_type": "jobs_held (held=? AND job_type=?)",
    "due": "jobs_due",
    "blocked": "jobs_blocked",
    "ended": "jobs_finished",
    "ended_of_type": "jobs_finished (job_type=?",
    "organization": "jobs_org (organization_id=? AND rowid>? AND rowid<?)",
    "all": "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
}
IN_ORDER = {"status", "organization", "all"}


class Anything(dict):
    def __missing__(self, name):
        return None


def plan_of(raw, text):
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {text}", Anything())]


def columns_read_from_rows(raw, text):
    """A plan that does not say COVERING may still never touch a row: the program tells."""
    ((root,),) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'")
    program = list(raw.execute(f"EXPLAIN {text}", Anything()))
    rows = {cursor for _, step, cursor, page, *_ in program if (step, page) == ("OpenRead", root)}
    return [step for step in program if step[1] == "Column" and step[2] in rows]


def test_every_source_is_known_here():
    assert {name.removeprefix("source_") for name in statements() if name.startswith("source_")} == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_a_page_is_looked_for_along_its_index(raw, source):
    plan = plan_of(raw, over_source("find", source))
    assert any(SOURCES[source] in step for step in plan), plan
    assert not any(step.startswith(("SCAN jobs", "SCAN j ")) and "INDEX" not in step for step in plan), plan
    sorts = [step for step in plan if "TEMP B-TREE FOR ORDER BY" in step]
    # The last sort is of the page itself, which is small.
    assert len(sorts) <= (1 if source in IN_ORDER else 2), plan


@pytest.mark.parametrize("source", [source for source in SOURCES if source not in {"all", "chain"}])
def test_a_source_is_counted_without_a_look_at_its_rows(raw, source):
    text = over_source("size", source)
    plan = plan_of(raw, text)
    assert any(SOURCES[source].split(" ")[0] in step for step in plan), plan
    assert columns_read_from_rows(raw, text) == []


# ---- whichever way, the same page ------------------------------------------------------------------------------------


@pytest.fixture
def mixed(desk):
    """Jobs in every state and of several types; the clock steps back and forth, and some are imported with times long past."""

    def park_some(jobs, _reservation, _usage):
        return Choice(take=jobs[2:], park=[(job.number, f"organization:{job.organization_id}") for job in jobs[:2]])

    for round_, minute in enumerate((5, 3, 0, 9, 1, 8)):
        desk.now = START + minute * 60 * SECOND
        for job_type, organization in product(("common", "common", "other"), ("default", "acme")):
            desk.add(job_type, organization_id=organization, owner=("anna", "bob")[round_ % 2], max_retries=1)
        desk.add("common", delay=9e6)
        desk.add("other", depends_on=(desk.add("parent"),))
        desk.claim(2, types=["common", "other"], choose=park_some)
        jobs = desk.claim(3, types=["common", "other"])
        desk.end(jobs[0], Failed("x", permanent=round_ % 2 == 0))
        desk.end(jobs[1], TimedOut(1.0))
        desk.done(jobs[2])
        old = Adopted(row=desk.row("other", chosen=True), created_at=START - 3600 * SECOND)
        desk.store.adopt([old], adopter_id=desk.worker, actor=ANNA, now=desk.now)
    desk.done(*desk.claim(1, types=["parent"]))
    desk.store.cancel(desk.add("rare"), actor=ANNA, now=desk.now)
    desk.claim(3, types=["common", "other"])
    return desk


QUESTIONS = [
    Where(status=status, job_type=job_type, organization=organization, owner=owner, created_from=since, created_until=until)
    for status, job_type, (organization, owner), (since, until) in product(
        [(), ("PENDING",), ("QUEUED", "RUNNING"), ("COMPLETED",), ("DEAD_LETTER", "TIMED_OUT"), ("QUEUED", "FAILED"), ("CANCELLED",)],
        [None, "common", "other", "rare", "nobody's"],
        [(None, None), ("acme", None), ("default", "bob")],
        [(None, None), (START + 180 * SECOND, None), (None, START + 180 * SECOND), (START - 9999 * SECOND, START)],
    )
]


@pytest.mark.parametrize(
    ("probe", "dearer"),
    [(20_000, 8), (1, 1), (1, 10**9), (7, 1), (7, 3), (40, 10**9)],
    ids=["all is small", "all is large", "the walk goes on", "a short walk, then an index", "by size", "a long walk"],
)
def test_a_page_is_the_same_whichever_way_it_is_looked_for(mixed, monkeypatch, probe, dearer):
    def pages(limit):
        return [mixed.store.find(where, limit=limit, before=before) for where in QUESTIONS for before in (None, 50)]

    with monkeypatch.context() as plain:
        plain.setattr(lists, "_sources", lambda *_: iter(()))
        walked = {limit: pages(limit) for limit in (3, 1000)}
    assert sum(map(bool, walked[1000])) > 100
    monkeypatch.setattr(lists, "PROBE", probe)
    monkeypatch.setattr(lists, "DEARER", dearer)
    for limit, wanted in walked.items():
        assert pages(limit) == wanted
