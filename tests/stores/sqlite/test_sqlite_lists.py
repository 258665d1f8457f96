"""Each way to look for a page walks its own index: none of them is a scan, and all of them find the same."""

import pytest

from rota.stores.sqlite.db import over_source, statements

SOURCES = {
    "chain": "jobs_retry (retry_of=?)",
    "group": "jobs_group (group_id=?",
    "schedule": "jobs_occurrence (schedule_id=?)",
    "status": "jobs_unhappy (status=? AND rowid>? AND rowid<?)",
    "running": "jobs_running",
    "ready": "jobs_ready",
    "ready_of_type": "jobs_ready (lane=?)",
    "ready_of_queue": "jobs_ready (lane=?)",
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


def plan_of(raw, what):
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {what.text}", [None] * len(what.names))]


def columns_read_from_rows(raw, what):
    """A plan that does not say COVERING may still never touch a row: the program tells."""
    ((root,),) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'")
    program = list(raw.execute(f"EXPLAIN {what.text}", [None] * len(what.names)))
    rows = {cursor for _, step, cursor, page, *_ in program if (step, page) == ("OpenRead", root)}
    return [step for step in program if step[1] == "Column" and step[2] in rows]


OF_SCANS = {"key", "of_schedule", "numbers_of_type", "clock_back"}
"""Sources that only queries over sys.* have: see tests/sql/test_sql_query_speed.py."""


def test_every_source_is_known_here():
    assert {name.removeprefix("source_") for name in statements() if name.startswith("source_")} - OF_SCANS == set(SOURCES)


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
    what = over_source("size", source)
    plan = plan_of(raw, what)
    assert any(SOURCES[source].split(" ")[0] in step for step in plan), plan
    assert columns_read_from_rows(raw, what) == []


@pytest.mark.parametrize("source", sorted(IN_ORDER))
def test_the_newest_of_a_source_is_the_first_from_behind(raw, source):
    plan = plan_of(raw, over_source("newest", source))
    assert not any("TEMP B-TREE" in step for step in plan), plan
