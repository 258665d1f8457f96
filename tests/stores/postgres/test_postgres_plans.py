"""Statements at 100,000 rows walk the index they should. A plan is judged, not a stopwatch."""

import json
import re
from importlib.resources import files

import pytest

from rota.ports.scan import Compares, Order
from rota.stores.postgres.connection import SESSION
from rota.stores.postgres.db import candidates, candidates_of_many, compiled, limited, over_source, scan_of, texts
from rota.stores.verbs.relations import RELATIONS
from tests.stores.desk import Desk
from tests.stores.filling import TYPES, fill, fill_schedules
from tests.stores.makers import PostgresMaker
from tests.stores.timekeeper import Timekeeper

LARGE = {"job_facts", "job_live", "job_ends", "run_notes", "job_edges", "occurrences", "schedules"}
"""What may have a million rows."""


class PlansMaker(PostgresMaker):
    schema = "rota_plans"


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """A schema with 100,000 jobs: ended, waiting, due later, keyed, grouped, retried, parked, expiring."""
    maker = PlansMaker(tmp_path_factory.mktemp("plans"))
    store = maker.open()
    _looked_at_while_small(maker, Desk(store))
    fill(Desk(store))
    fill_schedules(Timekeeper(store))
    maker._sql(MANY_SCHEDULES)
    maker._sql(MANY_OCCURRENCES)
    maker._raw.prepare_threshold = None
    for name, value in SESSION.items():
        maker._sql(f"SET {name} = '{value}'")
    yield maker._raw
    maker.close()


def _looked_at_while_small(maker, desk):
    """Let the server believe that no job has a key, and leave it there: autovacuum would look again when it pleases."""
    desk.put(*(desk.row(job_type) for job_type in TYPES * 20))
    tables = maker._sql("SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'rota_plans'")
    for (table,) in tables:
        maker._sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    maker._sql("ANALYZE")


MANY_SCHEDULES = """
INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, starts_at, cursor_at, next_trigger_at,
                       created_by, created_at, updated_at)
SELECT gen_random_uuid(), organization_id, template_id, 'many' || i, 'EVERY', 60000000, 0, 0, i, 'x', 0, 0
  FROM generate_series(1, 10000) AS i, schedules WHERE name = 'parent'
"""
MANY_OCCURRENCES = """
INSERT INTO occurrences (schedule_id, due_at, last_due_at, fate, recorded_at)
SELECT s.schedule_id, i * 60000000, i * 60000000, 'MISSED', 0 FROM schedules AS s, generate_series(1, 10) AS i WHERE s.name LIKE 'many%'
"""


@pytest.fixture(scope="module", params=["analyzed when small", "never analyzed", "analyzed"])
def raw(request, plans):
    """The plans must not depend on when the server last looked at what the tables hold."""
    if request.param == "never analyzed":
        plans.execute(
            "DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'rota_plans'::regnamespace)"
        )
    if request.param == "analyzed":
        plans.execute("ANALYZE")
    return plans


def plan_of(raw, statement):
    """Return every step of a statement's plan, the plan that is made without looking at values."""
    raw.execute(f"PREPARE one AS {statement.text}")
    values = ", ".join(["NULL"] * len(statement.names))
    ((plan,),) = raw.execute(f"EXPLAIN (FORMAT JSON) EXECUTE one{f'({values})' if values else ''}").fetchall()
    raw.execute("DEALLOCATE one")
    return list(_steps((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]))


def _steps(node):
    yield node
    for child in node.get("Plans", ()):
        yield from _steps(child)


PICKED = {"Tid Scan", "ModifyTable"}
"""Steps at rows that a step before has found."""


def walks(plan):
    """Return the indexes, or tables, of which a step walks all there is."""
    return {
        step.get("Index Name", step["Relation Name"])
        for step in plan
        if step.get("Relation Name") in LARGE and step["Node Type"] not in PICKED and "Index Cond" not in step
    }


HOT = {
    "position_base": {"live_tail"},
    "due_priorities": {"live_due"},
    "due_jobs": {"live_due"},
    "queue_jobs": {"job_live_pkey"},
    "end_plain": {"job_live_pkey"},
    "finish_jobs": {"job_live_pkey"},
    "insert_successors": {"job_facts_pkey", "job_ends_pkey", "facts_retry"},
    "start": {"job_live_pkey"},
    "park_jobs": {"job_live_pkey"},
    "open_endings": {"job_live_pkey"},
    "ended_as": {"job_facts_pkey"},
    "end_waiting": {"job_live_pkey"},
    "cancelling": {"live_cancelling"},
    "is_ready": {"live_ready"},
    "ready_now": {"live_ready"},
    "key_holder": {"live_unique"},
    "insert_job_at_once": {"live_tail"},
    "insert_job_with_key_at_once": {"live_unique", "live_tail"},
    "same_id": {"job_facts_job_id_key"},
    "standing": {"live_unique", "job_facts_job_id_key"},
    "enqueue_gate": {"job_facts_job_id_key", "live_tail"},
    "chains": {"job_facts_job_id_key", "facts_retry"},
    "tails": {"job_facts_job_id_key", "facts_retry", "job_live_pkey", "job_ends_pkey"},
    "runs": {"job_facts_job_id_key", "job_live_pkey", "job_ends_pkey", "run_notes_pkey"},
    "edges_of_child": {"job_edges_pkey"},
    "close_edges": {"job_edges_pkey"},
    "note_ended": {"edges_open"},
    "to_satisfy": {"edges_open"},
    "to_satisfy_at_end": {"edges_open"},
    "to_doom": {"edges_open"},
    "is_waited_for": {"edges_open"},
    "expired_jobs": {"live_expiring"},
    "held_by": {"live_running"},
    "holding": {"live_running"},
    "run_ids": {"live_running"},
    "failed_without_successor": {"ends_failed", "facts_retry"},
    "end_rest_of_group": {"facts_group"},
    "live_of_root": {"job_facts_job_id_key", "live_chain"},
    "line": {"live_tail"},
    "offer": {"live_held"},
    "offer_first": {"live_held"},
    "any_over_limit": {"live_held"},
    "lanes": {"live_held"},
    "ready_lanes": {"live_ready"},
    "held_lanes": {"live_held"},
    "line_lanes": {"live_tail"},
    "blocked_lanes_of": {"live_blocked"},
    "due_lane": {"live_due"},
    "due_lane_of": {"live_due"},
    "shown": {"job_facts_pkey"},
    "running_now": {"live_running", "job_facts_pkey"},
    "dead_lately": {"ends_unhappy", "job_facts_pkey", "facts_retry"},
    "unfired": {"occurrences_unfired", "schedules_pkey"},
    "errors": {"run_notes_pkey"},
    "metas": {"job_facts_pkey"},
    "old_ends": {"ends_finished"},
    "made_in": {"job_facts_pkey", "job_live_pkey", "job_ends_pkey"},
    "ended_since": {"ends_finished"},
    "jobs_now": {"job_facts_pkey", "job_live_pkey", "job_ends_pkey"},
    "schedules_due_now": {"schedules_due", "live_schedule"},
    "schedules_overdue": {"schedules_due", "live_schedule"},
    "beat_of_schedules": {"schedules_due", "edges_until", "live_put_off", "outbox_due"},
    "live_of": {"live_schedule"},
    "occurrences_everywhere": {"occurrences_time"},
    "occurrences_of_schedule": {"occurrences_pkey"},
    "forget_occurrences": {"occurrences_time"},
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_walks_its_index(raw, name):
    plan = plan_of(raw, compiled(texts()[name]))
    assert {step.get("Index Name") for step in plan} >= HOT[name]


@pytest.mark.parametrize("suspects", [True, False])
@pytest.mark.parametrize("types", [1, 3, 50])
def test_candidates_merge_along_the_ready_index_and_sort_nothing_but_the_answer(raw, types, suspects):
    plan = plan_of(raw, candidates(types, slim=False, suspects=suspects))
    walked = [step for step in plan if step.get("Index Name") == "live_ready"]
    assert len(walked) == types
    assert all("Index Cond" in step for step in walked)
    assert [step["Node Type"] for step in plan].count("Merge Append") == (types > 1)


@pytest.mark.parametrize("suspects", [True, False])
def test_candidates_of_very_many_types_walk_the_ready_index_of_each(raw, suspects):
    plan = plan_of(raw, candidates_of_many(slim=False, suspects=suspects))
    [walked] = [step for step in plan if step.get("Index Name") == "live_ready"]
    assert "lane" in walked["Index Cond"]
    assert walks(plan) == set()


@pytest.mark.parametrize("source", sorted(name.removeprefix("source_") for name in texts() if name.startswith("source_")))
def test_a_list_walks_only_what_its_source_names(raw, source):
    whole = {
        "all": {"job_facts_pkey"},
        "running": {"live_running"},
        "ready": {"live_ready"},
        "held": {"live_held"},
        "held_of_type": {"live_held"},
        "due": {"live_due"},
        "blocked": {"live_blocked"},
        "ended": {"ends_finished"},
        "ends": {"job_ends_pkey"},
    }
    assert walks(plan_of(raw, over_source("find", source))) <= whole.get(source, set())


@pytest.mark.parametrize(("source", "index"), [("all", "job_facts_pkey"), ("ends", "job_ends_pkey"), ("status", "ends_unhappy")])
def test_the_newest_of_a_source_is_the_first_from_behind(raw, source, index):
    plan = plan_of(raw, over_source("newest", source))
    assert [step["Node Type"] for step in plan if "Sort" in step["Node Type"]] == []
    assert index in {step.get("Index Name") for step in plan}


WALKS_WHAT_LIVES = {
    "any_open_edges": {"edges_open"},
    "ends_look": {"edges_open"},
    "count_pending": {"live_due", "live_blocked"},
    "count_pending_of": {"live_due", "live_blocked"},
    "count_running": {"live_running"},
    "count_types": {"live_ready", "live_held", "live_tail"},
    "queued_count": {"live_tail"},
    "running_by_kind": {"live_running"},
    "running_by_lane": {"live_running"},  # the same, when somebody asks for the queues
    "stray_types": {"live_stray"},  # empty but for a moment
    "held_by_lane": {"live_held"},  # of what is parked, up to a bound
    "running_suspects": {"live_running"},
    "ahead": {"live_ready", "live_tail", "live_held"},
    "live_job_of_type": {"live_running", "live_held", "live_due", "edges_open", "live_blocked"},
    "due_priorities": {"live_due"},
    "next_expiry": {"live_expiring"},
    "lanes": {"live_held"},
    "next_priority": {"live_tail"},
    "wait_as_long": {"live_due", "live_blocked", "live_put_off"},
    "send_as_soon": {"outbox_due"},
    "wait_as_long_edges": {"edges_until"},
    "beat_of_schedules": {"edges_until", "schedules_due", "schedules_over", "live_put_off", "outbox_due"},
    "ids_over": {"schedules_over"},  # jobs for one moment whose chains are under way
    # Jobs that were dropped with their history, until that is gone.
    "any_purging": {"schedules_purging"},
    "purging_ends": {"schedules_purging"},
    "end_purge": {"schedules_purging"},
    "forget_ledger_of_purged": {"schedules_purging"},
    "source_held_of_type": {"live_held"},
    "old_ends": {"ends_finished"},
    "newest_job": {"job_facts_pkey"},
    "retention_clock": {"job_facts_pkey"},
    "furthest": {"live_put_off", "outbox_due"},
    "span": {"job_facts_pkey"},
    "marks": {"job_facts_pkey"},
    "ended_since": {"ends_finished"},
    "progress_now": {"live_running"},
    "count_queued": {"live_tail"},
    "schedules": {"schedules_name", "schedules_pkey", "schedules_called", "schedules"},
    "schedules_too_far": {"schedules_due", "schedules_name", "schedules_called", "schedules_template"},
    "zoned_schedules": {"schedules_due", "schedules_name", "schedules_called", "schedules_template"},
    "all_depending": {"schedules_name", "schedules_template"},
    "users_of_calendar": {"schedules_name", "schedules_template"},
    "users_of_connection": {"schedules_template"},
    "users_of_secret": {"schedules_template"},
    "peek": {"live_expiring", "live_due"},
    "turn_look": {"live_expiring", "live_due", "edges_open"},
    "next_due": {"live_due"},
    "workers": {"live_running"},
    "unregistered": {"live_running"},
    "both_live_and_ended": {"live_running"},
    "enabled_schedules": {"schedules_due", "schedules_name", "schedules_called", "schedules_template"},
    # Up to a bound.
    "ready_lanes": {"live_ready"},
    "held_lanes": {"live_held"},
    "blocked_lanes": {"live_blocked"},
    "wrong_blockers": {"live_blocked", "edges_open"},
    "bereft": {"edges_open"},
    "schedule_ids": {"schedules_name", "schedules_pkey", "schedules_called", "schedules"},  # as `schedules`, when that can't be read whole
    "running_now": {"live_running"},
    "scan_ended_types": {"ends_finished"},
    "scan_first_ends": {"ends_finished"},
}
"""Statements that may walk an index whole: it holds what is under way, or its first entry is all that is asked for."""


STATEMENTS_AS_PIECES = {
    *("position_base", "furthest", "is_given_up", "any_ended", "next_expiry", "next_due", "is_ready", "any_parked", "cancelling"),
    *("any_over_limit", "any_open_edges"),
}


CLAIMS = {"candidates", "candidates_slim", "first_of_lane", "first_of_lanes", "arm", "arms_of_many", "no_suspect"}
"""What `statements.candidates` and `candidates_of_many` put together."""


def pieces():
    """Return the texts that are put into others and are no statements of their own."""
    folder = files("rota.stores.postgres").joinpath("sql")
    named = {name for file in folder.iterdir() for name in re.findall(r"\{(\w+)\}", file.read_text())}
    return (named & set(texts())) - STATEMENTS_AS_PIECES | {"claimed_columns", "job_columns"}


def test_no_statement_walks_a_large_table(raw):
    unrunnable = pieces() | CLAIMS | {"find", "newest", "size"} | {name for name in texts() if name.startswith("source_")}
    # These are to look at everything there is: at the end of a copy, and when somebody asks whether all is well.
    unrunnable |= {"broken_rules", "queue_order", "make_copied", "broken_runs"}
    unrunnable |= {name for name in texts() if name.startswith("scan_jobs_")} | {f"scan_{relation}" for relation in RELATIONS}
    unrunnable |= {"orphan_runs", "orphan_edges", "orphan_ends", "orphan_live", "lost_facts"}
    wrong = {}
    for name in sorted(set(texts()) - unrunnable):
        found = walks(plan_of(raw, compiled(texts()[name]))) - WALKS_WHAT_LIVES.get(name, set())
        if found:
            wrong[name] = found
    assert wrong == {}


EQUAL = Compares.EQUAL
NEWEST, LATEST, LAST_STARTED = Order("number", descending=True), Order("finished_at", descending=True), Order("started_at", descending=True)
SCANS = {
    "by id": (("job_id", EQUAL), None, set()),
    "by number": (("number", EQUAL), None, set()),
    "by schedule, newest": (("schedule_id", EQUAL), NEWEST, set()),
    "by schedule and end": (("schedule_id", EQUAL), LATEST, set()),
    "by schedule and start": (("schedule_id", EQUAL), LAST_STARTED, set()),
    "some numbers": (("number", Compares.AMONG), None, set()),
    "of a type, by end": (("job_type", EQUAL), LATEST, set()),
    "newest": (("schedule_id", Compares.GIVEN), NEWEST, {"job_ends_pkey"}),
}
"""What queries over sys.* pass on to the store, and the index that may be walked, in order, until enough rows are found."""


@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_of_ended_jobs_walks_no_large_table(raw, name, scoped):
    shape, order, walked = SCANS[name]
    shapes = (shape, ("organization_id", EQUAL)) if scoped else (shape,)
    plan = plan_of(raw, scan_of("jobs", "ended", ("number", "job_id", "schedule_name", "error"), shapes, order))
    assert walks(plan) <= walked
    if walked:
        assert [step["Node Type"] for step in plan if "Sort" in step["Node Type"]] == []


def test_the_ends_of_a_type_come_in_order_from_its_index(raw):
    plan = plan_of(raw, limited(scan_of("ends", None, ("finished_at", "number"), (("job_type", EQUAL),), LATEST)))
    assert {step.get("Index Name") for step in plan} >= {"ends_finished"}
    assert walks(plan) == set()
    assert [step["Node Type"] for step in plan if "Sort" in step["Node Type"]] == []
