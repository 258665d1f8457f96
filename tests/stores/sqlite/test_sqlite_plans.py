"""Hot statements at 100,000 rows walk the index they should. A plan is judged, not a stopwatch."""

import re
from collections import Counter

import apsw
import pytest

from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from rota.stores.sqlite.db import Db, candidates, candidates_of_many, compiled, statements
from rota.stores.verbs.relations import RELATIONS
from tests.stores.desk import Desk
from tests.stores.filling import fill, fill_schedules
from tests.stores.timekeeper import Timekeeper


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """A file with 100,000 jobs: ended, waiting, due later, keyed, grouped, retried, parked, expiring."""
    path = tmp_path_factory.mktemp("plans") / "rota.db"
    store = SqliteStore(path, Settings(synchronous="NORMAL"))
    store.migrate(now=0)
    fill(Desk(store))
    schedule_id = fill_schedules(Timekeeper(store))
    store.close()
    raw = apsw.Connection(str(path))
    raw.execute(MANY_SCHEDULES, (schedule_id,))
    raw.execute(MANY_OCCURRENCES)
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    Db(raw)  # gives it the functions of ours that statements call
    yield raw
    raw.close()


COUNTED = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
MANY_SCHEDULES = f"""
INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, starts_at, cursor_at, next_trigger_at,
                       created_by, created_at, updated_at)
{COUNTED}
SELECT randomblob(16), organization_id, template_id, 'many' || i, 'EVERY', 60000000, 0, 0, i, 'x', 0, 0
  FROM n, schedules WHERE schedule_id = ?
"""
MANY_OCCURRENCES = """
INSERT INTO occurrences (schedule_id, due_at, last_due_at, fate, recorded_at)
SELECT s.schedule_id, e.value * 60000000, e.value * 60000000, 'MISSED', 0
  FROM schedules AS s, json_each('[1,2,3,4,5,6,7,8,9,10]') AS e WHERE s.name LIKE 'many%'
"""


@pytest.fixture(scope="module", params=["as it grows", "analyzed"])
def raw(request, plans):
    """The plans must not depend on whether somebody ran ANALYZE."""
    if request.param == "analyzed":
        plans.execute("ANALYZE")
    return plans


class Anything(dict):
    def __missing__(self, name):
        return None


def plan_of(raw, text, values=None):
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {text}", Anything() if values is None else values)]


HARMLESS = re.compile(
    r"SCAN (p|oldest|picked|own|busy|begins|job_log|share"
    r"|\(subquery-\d+\)|CONSTANT ROW|line|step|up|back|lane|word|gone|\w+ VIRTUAL TABLE .*)$"
)


def scans(plan):
    """Return the steps that walk a whole table or index; what a step before has made is no table."""
    made = {f"SCAN {step.removeprefix('CO-ROUTINE ')}" for step in plan if step.startswith("CO-ROUTINE ")}
    return [step for step in plan if step.startswith("SCAN") and step not in made and not HARMLESS.match(step)]


BY_NUMBER = "USING INTEGER PRIMARY KEY (rowid=?)"
HOT = {
    "position_base": ["jobs USING COVERING INDEX jobs_tail (priority=?)", "jobs_tail (priority=? AND organization_id=?)"],
    "due_priorities": ["jobs USING COVERING INDEX jobs_due"],
    "due_jobs": ["jobs USING INDEX jobs_due (priority=? AND run_at<?)"],
    "queue_jobs": [f"jobs {BY_NUMBER}"],
    "finish_jobs_plain": [f"jobs {BY_NUMBER}"],
    "finish_runs_plain": [f"job_runs {BY_NUMBER}"],
    "finish_jobs": [f"jobs {BY_NUMBER}"],
    "finish_runs": [f"job_runs {BY_NUMBER}"],
    "insert_successors": [f"o {BY_NUMBER}"],
    "insert_runs": [f"j {BY_NUMBER}"],
    "start_jobs": [f"jobs {BY_NUMBER}"],
    "park_jobs": [f"jobs {BY_NUMBER}"],
    "open_endings": [f"jobs {BY_NUMBER}"],
    "ended_as": [f"jobs {BY_NUMBER}"],
    "end_waiting": [f"jobs {BY_NUMBER}"],
    "cancelling": ["jobs USING INDEX jobs_cancelling (worker_id=?)"],
    "is_ready": ["jobs_ready (lane=?)"],
    "old_in_lane": ["jobs_ready (lane=?)"],
    "candidates_named": [f"j {BY_NUMBER}"],
    "lane_of": ["lanes USING COVERING INDEX sqlite_autoindex_lanes_1 (job_type=? AND queue=? AND digest=?)"],
    "type_and_queue": [f"j {BY_NUMBER}"],
    "newest_params": ["param_digests USING PRIMARY KEY (job_type=?)"],
    "key_holder": ["jobs_unique (organization_id=? AND job_type=? AND unique_key=?)"],
    "same_id": ["(job_id=?)"],
    "standing": ["(job_id=?)", "jobs_unique (organization_id=? AND job_type=? AND unique_key=?)"],
    "enqueue_gate": ["(job_id=?)"],
    "chains": ["j USING INDEX sqlite_autoindex_jobs_1 (job_id=?)", "jobs_retry (retry_of=?)"],
    "waiting_child": ["(job_id=?)", "jobs_retry (retry_of=?)"],
    "edges_of_child": ["job_edges USING PRIMARY KEY (child=?)"],
    "add_edges": ["SCAN c VIRTUAL TABLE", "SCAN p VIRTUAL TABLE"],
    "block": [f"jobs {BY_NUMBER}"],
    "close_edges": ["job_edges USING PRIMARY KEY (child=?)"],
    "states_of": [f"jobs {BY_NUMBER}"],
    "note_ended": [f"j {BY_NUMBER}", "USING INDEX edges_open (parent_root=?)"],
    "to_satisfy": ["USING INDEX edges_open (parent_root=?)"],
    "to_satisfy_at_end": ["USING INDEX edges_open (parent_root=? AND needs=?)"],
    "to_doom": ["USING INDEX edges_open (parent_root=? AND needs=? AND on_failure=?)"],
    "satisfy": ["job_edges USING INDEX edges_of_parent (parent_root=? AND child=?)"],
    "unblock": [f"jobs {BY_NUMBER}"],
    "forget_ended": ["ended_roots USING PRIMARY KEY (root_id=?)"],
    "is_waited_for": ["USING INDEX edges_open (parent_root=?)"],
    "waits_above": [
        "e USING PRIMARY KEY (child=?)",
        "c USING INDEX sqlite_autoindex_jobs_1 (job_id=?)",
        "c USING INDEX jobs_live (root_id=?)",
    ],
    "numbers_of_roots": ["j USING COVERING INDEX sqlite_autoindex_jobs_1 (job_id=?)"],
    "parents_of": ["e USING PRIMARY KEY (child=?)", "jobs_retry (retry_of=?)"],
    "children_of": ["e USING COVERING INDEX edges_of_parent (parent_root=?)", f"c {BY_NUMBER}"],
    "edges_among": ["e USING PRIMARY KEY (child=? AND parent_root=?)", "jobs_retry (retry_of=?)"],
    "tails_of": ["jobs_retry (retry_of=?)"],
    "duplicate_of": ["dedup USING PRIMARY KEY (organization_id=? AND template_id=? AND hash=?)"],
    "submitted": ["rate_log USING PRIMARY KEY (key=? AND at>? AND at<?)"],
    "submissions": ["rate_log USING PRIMARY KEY (key=? AND at>? AND at<?)"],
    "forget_submissions": ["rate_log USING PRIMARY KEY (key=? AND at<?)"],
    "expired_jobs": ["jobs_expiring (expires_at>? AND expires_at<?)"],
    "next_expiry": ["jobs_expiring"],
    "held_by": ["jobs_running (worker_id=?)"],
    "holding": ["jobs_running (worker_id=?)"],
    "run_ids": ["jobs_running (worker_id=?)"],
    "failed_without_successor": ["jobs_failed (finished_at>?)", "jobs_retry (retry_of=?)"],
    "end_rest_of_group": ["jobs_group (group_id=? AND sequence_number>?)"],
    "group_rule": [f"jobs {BY_NUMBER}"],
    "next_priority": ["jobs_tail (priority<?)"],
    "next_line": ["jobs_tail (priority=? AND organization_id>?)"],
    "line": ["jobs_tail (priority=? AND organization_id=?)"],
    "live_members": ["jobs_group (group_id=?)"],
    "members": ["jobs_group (group_id=?)"],
    "live_of_root": ["(job_id=?)", "jobs_live (root_id=?)"],
    "tail_of": ["jobs_retry (retry_of=?)"],
    "chain": ["jobs_retry (retry_of=?)"],
    "tails": ["j USING INDEX sqlite_autoindex_jobs_1 (job_id=?)", "jobs_retry (retry_of=?)"],
    "runs": ["j USING INDEX sqlite_autoindex_jobs_1 (job_id=?)", f"r {BY_NUMBER}"],
    "blockers": ["e USING PRIMARY KEY (child=?)", "jobs_retry (retry_of=?)"],
    "offer": ["jobs USING COVERING INDEX jobs_held (held=? AND job_type=?)", f"jobs {BY_NUMBER}"],
    "offer_first": ["p USING COVERING INDEX jobs_held (held=? AND job_type=?)", f"jobs {BY_NUMBER}"],
    "offer_one": [f"jobs {BY_NUMBER}"],
    "any_over_limit": ["jobs USING COVERING INDEX jobs_held (held>? AND held<?)"],
    "any_parked": ["jobs USING COVERING INDEX jobs_held (held<?)", "jobs USING COVERING INDEX jobs_held (held>?)"],
    "types_waiting": ["jobs USING COVERING INDEX jobs_held (held=?)"],
    "rates_waiting": ["USING COVERING INDEX jobs_held (held=?)"],
    "lanes": ["p USING COVERING INDEX jobs_held (held=? AND job_type>?)", "p USING COVERING INDEX jobs_held (held>?)"],
    "lanes_of_word": ["jobs USING COVERING INDEX jobs_held (held=?)", "p USING COVERING INDEX jobs_held (held=? AND job_type>?)"],
    "lanes_of_gone": [f"j {BY_NUMBER}", "p USING COVERING INDEX jobs_held (held=? AND job_type>?)"],
    "starts_inside": ["rate_log USING PRIMARY KEY (key=? AND at>? AND at<?)"],
    "forget_starts": ["rate_log USING PRIMARY KEY (key=?)"],
    "end_reservation_of": ["reservations_active (status=?)"],
    "active_reservation": ["reservations_active (status=?)"],
    "candidate_direct": [f"j {BY_NUMBER}"],
    "first_in_line": ["jobs_tail (priority=? AND organization_id=?)"],
    "neighbours_ahead": ["jobs_tail (priority=? AND organization_id=? AND position<?)"],
    "neighbours_behind": ["jobs_tail (priority=? AND organization_id=? AND position>?)"],
    "open_runs": [f"r {BY_NUMBER}", f"j {BY_NUMBER}"],
    "ends": [f"j {BY_NUMBER}"],
    "log": ["jobs_retry (retry_of=?)", "(job_id=?)"],
    "old_ends": [
        "jobs USING COVERING INDEX jobs_finished (job_type>?)",
        "j USING COVERING INDEX jobs_finished (job_type=? AND (finished_at,created_at)>(?,?) AND finished_at<?)",
        f"j {BY_NUMBER}",
        "edges_of_parent (parent_root=?)",
        "jobs_group (group_id=?)",
    ],
    "chains_of": ["(job_id=?)", "outbox_job (job_id=?)", "reservations_active (status=?)"],
    "remove_jobs": [f"jobs {BY_NUMBER}"],
    "count_line": ["jobs USING COVERING INDEX jobs_tail (priority=? AND organization_id=?)"],
    "fared": ["stats_hourly USING PRIMARY KEY (hour>?)"],
    "job": ["(job_id=?)"],
    "run": ["(job_id=?)"],
    "template": ["templates_name (<expr>=? AND name=?)"],
    "newer_job_of_type": ["rowid>?)"],
    "ended_job_of_type": ["jobs USING COVERING INDEX jobs_finished (job_type=?"],
    "span": ["SEARCH jobs"],
    "marks": ["SEARCH jobs", "SEARCH audit"],
    "made_in": ["j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "ended_since": [
        "jobs USING COVERING INDEX jobs_finished (job_type>?)",
        "jobs USING COVERING INDEX jobs_finished (job_type=? AND finished_at>?)",
    ],
    "jobs_now": [f"j {BY_NUMBER}"],
    "definition_changes": ["audit USING INTEGER PRIMARY KEY (rowid>?)"],
    "count_queued_line": ["jobs USING COVERING INDEX jobs_tail (priority=? AND organization_id=?)"],
    "beat_of_schedules": [
        "schedules USING INDEX schedules_due (<expr>=? AND next_trigger_at>?)",
        "job_edges USING INDEX edges_until (until>?)",
        "meta USING PRIMARY KEY (key=?)",
        "jobs USING COVERING INDEX jobs_put_off (position<?)",
        "outbox USING INDEX outbox_due (next_attempt_at>?)",
    ],
    "schedules_due_now": [
        "schedules USING INDEX schedules_due (<expr>=? AND next_trigger_at<?)",
        "jobs USING INDEX jobs_schedule_live (schedule_id=?)",
    ],
    "schedules_overdue": [
        "schedules USING INDEX schedules_due (<expr>=? AND next_trigger_at<?)",
        "jobs USING INDEX jobs_schedule_live (schedule_id=?)",
    ],
    "schedule_due": ["s USING INDEX sqlite_autoindex_schedules_1 (schedule_id=?)", "jobs_schedule_live (schedule_id=?)"],
    "due_before_it": ["s USING INDEX schedules_name (organization_id=? AND name=?)"],
    "live_of": ["jobs USING INDEX jobs_schedule_live (schedule_id=?)"],
    "fired_beyond": ["occurrences USING PRIMARY KEY (schedule_id=? AND due_at>?)"],
    "advance_schedules": [f"schedules {BY_NUMBER}"],
    "advance_alike": [f"schedules {BY_NUMBER}"],
    "insert_fired": ["jobs USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "newest_occurrence": ["occurrences USING PRIMARY KEY (schedule_id=? AND due_at<?)"],
    "extend_occurrence": ["occurrences USING PRIMARY KEY (schedule_id=? AND due_at=? AND fate=?)"],
    "take_back_occurrences": ["occurrences USING PRIMARY KEY (schedule_id=? AND due_at>?)"],
    "fired_in_window": ["o USING PRIMARY KEY (schedule_id=? AND due_at>? AND due_at<?)"],
    "ended_in_window": ["jobs_occurrence (schedule_id=? AND due_at>?)", "jobs_occurrence (schedule_id=? AND due_at=?)", f"j {BY_NUMBER}"],
    "anybody_late": ["job_edges USING INDEX edges_until (until>? AND until<?)"],
    "waited_too_long": ["job_edges USING INDEX edges_until (until>? AND until<?)", f"j {BY_NUMBER}", "e USING PRIMARY KEY (child=?)"],
    "let_any_do": [
        f"j {BY_NUMBER}",
        "w USING INDEX edges_open (parent_root=?)",
        "job_edges USING PRIMARY KEY (child=?",
    ],
    "note_schedules_completed": [f"j {BY_NUMBER}", "USING INDEX edges_open (parent_root=?)"],
    "fate_of_dependency": ["occurrences USING PRIMARY KEY (schedule_id=? AND due_at=? AND fate=?)"],
    "awaited_schedules": ["(job_id=?)", "e USING PRIMARY KEY (child=?)"],
    "occurrences_everywhere": ["o USING INDEX occurrences_time (due_at>? AND due_at<?)", "jobs_retry (retry_of=?)", "(job_id=?)"],
    "occurrences_reaching": ["o USING INDEX occurrences_spans (last_due_at>?)", "jobs_retry (retry_of=?)"],
    "ready_lanes": [
        "p USING INDEX jobs_ready (lane=? AND priority<?)",
        "p USING INDEX jobs_ready (lane>?)",
        "p USING INDEX jobs_ready (lane=? AND priority=?)",
        f"j {BY_NUMBER}",
    ],
    "held_lanes": [
        "p USING COVERING INDEX jobs_held (held=? AND job_type>?)",
        "p USING COVERING INDEX jobs_held (held>?)",
        "p USING COVERING INDEX jobs_held (held=? AND job_type=?)",
    ],
    "line_lanes": ["jobs USING INDEX jobs_tail (priority=? AND organization_id=?)"],
    "blocked_lanes_of": ["jobs USING INDEX jobs_blocked (organization_id=? AND blockers>?)"],
    "due_lane": ["jobs USING COVERING INDEX jobs_due (priority=? AND run_at>? AND run_at<?)"],
    "due_lane_of": ["jobs USING INDEX jobs_due (priority=? AND run_at>? AND run_at<?)"],
    "shown": [f"j {BY_NUMBER}", "r USING COVERING INDEX sqlite_autoindex_jobs_1 (job_id=?)"],
    "dead_lately": ["jobs USING COVERING INDEX jobs_unhappy (status=?)", f"j {BY_NUMBER}", "jobs_retry (retry_of=?)"],
    "unfired": ["o USING INDEX occurrences_unfired (last_due_at>?)", "s USING INDEX sqlite_autoindex_schedules_1 (schedule_id=?)"],
    "figures": ["stats_hourly USING PRIMARY KEY (hour>?)"],
    "hourly": ["stats_hourly USING PRIMARY KEY (hour>?)"],
    "trend_minutes": ["stats_minutely USING PRIMARY KEY (minute>?)"],
    "trend_hours": ["stats_hourly USING PRIMARY KEY (hour>?)"],
    "errors": [f"r {BY_NUMBER}"],
    "metas": [f"j {BY_NUMBER}"],
    "any_audited": ["templates USING INDEX templates_of_sql (template_id>?)"],
    "audit_of_action": ["a USING INDEX audit_action (action=? AND audit_id<?)"],
    "audit_of_job": ["a USING INDEX audit_job (job_uuid=? AND audit_id<?)"],
    "any_endpoints": ["endpoints USING INDEX endpoints_open (organization_id>?)"],
    "hooked_ends": [
        f"j {BY_NUMBER}",
        "h USING INDEX endpoints_open (organization_id=? AND root_id=?)",
        f"r {BY_NUMBER}",
        "jobs_retry (retry_of=?)",
    ],
    "open_lanes": ["outbox USING INDEX outbox_lanes (lane>?)", "o USING INDEX outbox_lanes (lane=?)"],
    "take_mail": ["outbox USING INDEX outbox_lanes (lane=? AND next_attempt_at<?)"],
    "parcels": ["o USING INTEGER PRIMARY KEY (rowid=?)", "h USING INDEX sqlite_autoindex_endpoints_1 (endpoint_id=?)"],
    "settle_mail": ["outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "deliveries_of_endpoint": ["o USING INDEX outbox_endpoint (endpoint_id=? AND outbox_id<?)"],
    "deliveries_of_organization": ["o USING INDEX outbox_organization (organization_id=? AND outbox_id<?)"],
    "forget_deliveries": ["outbox USING COVERING INDEX outbox_over (<expr><?)"],
    "schedules_called": ["schedules USING INDEX schedules_called (name=?)"],
    "occurrences_of_schedule": ["o USING PRIMARY KEY (schedule_id=? AND due_at>? AND due_at<?)", "jobs_retry (retry_of=?)", "(job_id=?)"],
    "forget_occurrences": ["o USING INDEX occurrences_time (due_at<?)", "n USING PRIMARY KEY (schedule_id=? AND due_at>?)"],
    "forget_schedules": [
        "s USING INDEX schedules_dropped (dropped_at>? AND dropped_at<?)",
        "jobs_occurrence (schedule_id=?)",
        "edges_of_parent (parent_root=?)",
    ],
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_walks_its_index_and_scans_nothing(raw, name):
    plan = plan_of(raw, statements()[name])
    assert scans(plan) == []
    for index in HOT[name]:
        assert any(index in step for step in plan), plan


@pytest.mark.parametrize("suspects", [True, False])
@pytest.mark.parametrize("types", [1, 3, 50])
def test_candidates_merge_along_the_ready_index_and_sort_nothing(raw, types, suspects):
    plan = plan_of(raw, candidates(types, slim=False, suspects=suspects), (*range(1, types + 1), 100))
    steps = Counter(plan)
    assert scans(plan) == []
    assert steps["SEARCH jobs USING INDEX jobs_ready (lane=?)"] == types
    assert not any("TEMP B-TREE" in step for step in plan)
    assert steps["MERGE (UNION ALL)"] == types - 1


@pytest.mark.parametrize("slim", [False, True])
def test_candidates_of_many_types_leap_along_the_ready_index_and_sort_nothing(raw, slim):
    plan = plan_of(raw, candidates_of_many(slim=slim), ("[1]", 100))
    ready = [step for step in plan if "jobs_ready" in step]
    assert scans(plan) == []
    assert Counter(re.search(r"\(.*\)", step)[0] for step in ready) == {
        "(lane>?)": 2,
        "(lane=? AND priority=? AND position>?)": 1,
        "(lane=? AND priority<?)": 1,
    }
    assert not any("TEMP B-TREE" in step for step in plan)


def test_a_batch_of_retention_looks_at_a_batch_of_ends_and_not_at_all_that_are_old(raw):
    """30,000 ends of 30 types are old. SQLite leaves a type as soon as the rest of it is too young for the batch."""
    steps = []
    raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]))
    try:
        found = list(raw.execute(statements()["old_ends"], {"before": 2**62, "at": 0, "made": 0, "number": 0, "limit": 100}))
    finally:
        raw.trace_v2(0, None)
    assert len(found) == 100
    assert steps[-1] < 60_000


def test_what_runs_is_counted_along_the_index_of_what_runs(raw):
    assert scans(plan_of(raw, statements()["running_by_kind"])) == ["SCAN jobs USING COVERING INDEX jobs_running"]


def test_whether_any_edge_is_open_is_asked_of_the_open_edges_only(raw):
    assert scans(plan_of(raw, statements()["any_open_edges"])) == ["SCAN job_edges USING INDEX edges_open"]


def test_jobs_of_a_template_are_looked_for_in_the_indexes_of_those_that_live(raw):
    plan = plan_of(raw, statements()["live_job_of_type"])
    walked = {"jobs_running", "jobs_held", "jobs_due", "edges_open"}
    assert {step.rpartition("INDEX ")[2].partition(" ")[0] for step in scans(plan)} <= walked
    assert any("jobs_ready (lane=?)" in step for step in plan)


@pytest.mark.parametrize("name", ["occurrences_everywhere", "occurrences_of_schedule"])
def test_pages_of_the_ledger_are_read_in_its_order_and_sorted_by_nobody(raw, name):
    assert not any("TEMP B-TREE" in step for step in plan_of(raw, statements()[name]))


def test_a_page_of_the_ledger_looks_at_a_page_of_rows_however_deep_it_lies(raw):
    """100,000 rows: the page in the middle costs what the first costs."""
    values = dict.fromkeys(["organization_id", "owner", "granted", "before_at", "before_schedule", "before_fate"])
    values |= {"fates": "[]", "not_ran": 0, "limit": 50, "earliest": 0}
    steps = []
    raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]))
    try:
        for latest in (2**62, 8 * 60_000_000, 2 * 60_000_000):
            assert len(list(raw.execute(statements()["occurrences_everywhere"], values | {"latest": latest}))) == 50
    finally:
        raw.trace_v2(0, None)
    first, middle, deep = steps[-3:]
    assert abs(middle - first) + abs(deep - first) < 10_000


COUNTS_FOR_PEOPLE = {"ahead", "queued_count", "count_pending", "count_pending_of", "count_running", "count_types", "count_queued"}
SMALL_INDEXES = {
    "live_job_of_type",  # asked once, before a template is dropped, and outside of the transaction; see above
    "running_suspects",  # of what runs, when somebody asks why a job waits
    "running_by_lane",  # the same, when somebody asks for the queues
    "held_by_lane",  # of what is parked, up to a bound
    "stray_types",  # an index of jobs that an earlier version has written: empty but for a moment
    "running_by_kind",  # limits count what runs: as many rows as there are slots; see above
    "wait_as_long",  # of what is PENDING, and only when the clock has come back
    "zoned_schedules",  # of schedules, and only when the zones' own rules have changed
    "queue_order",  # the whole line, at the end of a copy
    "beat_of_schedules",  # of jobs for one moment whose chains are under way
    "ids_over",  # the same
    "purging_ends",  # of jobs that were dropped with their history, until that is gone
    "workers",  # of what runs: as many rows as there are slots
    "running_now",  # of what runs too, and up to a bound
    "blocked_lanes",  # of what is blocked, up to a bound
    "progress_now",  # the same
    "unregistered",  # of what runs: as many rows as there are slots
    "wrong_blockers",  # of what is blocked, up to a bound
    "bereft",  # of open edges, up to a bound
    "schedule_ids",  # of all schedules, as `schedules`, when those can't be read whole
    "stray_runs",  # of the queue, up to a bound
    "stored_secret",  # of secrets, before one is changed
    "stored_secrets",  # the same, when somebody lists them
    "users_of_connection",  # of definitions, before a connection is dropped
    "users_of_secret",  # the same, before a secret is
    # `rota doctor` with --full, or `rota repair`
    "open_runs_of_ended",
    "unknown_statuses",
    "orphan_runs",
    "orphan_edges",
}
FRAGMENTS = {
    *(
        "audit_columns",
        "token_columns",
        "hooked_columns",
        "is_told",
        "endpoint_columns",
        "is_open",
        "written_at",
        "made_ahead",
        "delivery_columns",
        "of_state",
        "report_columns",
    ),
    *(
        "candidates",
        "candidates_slim",
        "first_of_lanes",
        "first_of_many_lanes",
        "own_lane",
        "queue_of",
        "arm",
        "no_suspect",
        "claimed_columns",
        "claimed_head",
        "claimed_rest",
        "checkpoint_before",
    ),
    *("job_columns", "run_columns", "watched_columns", "worker_columns", "role_columns", "grant_columns"),
    *(
        "tail",
        "new_columns",
        "new_values",
        "template_columns",
        "stored_secret_columns",
        "sealed_columns",
        "connection_columns",
        "this_template",
        "find",
        "newest",
        "size",
        "made",
        "matching",
    ),
    *("own_template", "due_template", "jobs_over"),
    *("schedule_columns", "due_columns", "due_surroundings", "occurrence_columns", "occurrence_filter", "occurrence_outcome"),
    # Scans are put together from these: see tests/sql/test_sql_query_speed.py.
    *(f"scan_{relation}" for relation in RELATIONS),
}


def test_no_statement_scans_jobs_or_runs_but_the_counts_for_people(raw):
    for name, text in statements().items():
        if name in COUNTS_FOR_PEOPLE | SMALL_INDEXES | FRAGMENTS or name.startswith("source_"):
            continue
        found = [step for step in scans(plan_of(raw, text)) if re.match(r"SCAN (j|jobs|job_runs|r|o|f|s|next)\b", step)]
        assert found == [], name


def test_one_name_stands_for_one_statement():
    assert len(statements()) > 60
    assert all(text for text in statements().values())


def test_parameters_are_numbered_as_sqlite_itself_finds_them(raw):
    for name, text in statements().items():
        if name in FRAGMENTS or name.startswith("source_"):
            continue
        cursor = raw.cursor()
        cursor.execute(f"EXPLAIN {text}", Anything())
        what = compiled(text)
        assert what.names == cursor.bindings_names, name
        cursor.execute(f"EXPLAIN {what.text}", [None] * len(what.names))
        assert len(cursor.bindings_names) == len(what.names), name
