"""What must never be is refused by the file itself, whoever asks."""

from itertools import product

import apsw
import pytest

from rota.model.decide import Completed, Failed, Skipped, Stopped, TimedOut
from rota.model.states import BORN, Status, is_legal
from rota.ports.executor import Report
from rota.stores.sqlite.db import statements
from tests.stores.desk import ANNA
from tests.stores.timekeeper import Timekeeper

OUTCOMES = {
    "COMPLETED": Completed('"ok"'),
    "FAILED": Failed("x"),
    "TIMED_OUT": TimedOut(1.0),
    "DEAD_LETTER": Failed("x", permanent=True),
    "SKIPPED": Skipped("x"),
    "CANCELLED": Stopped(),
}
ENDED = sorted(OUTCOMES)
COLUMNS = """job_id, root_id, organization_id, job_type, status, priority, run_at, owner, max_retries, max_crashes, backoff, timeout,
             executor, created_at"""
IDENTITY = (
    "number job_id organization_id template_id job_type origin root_id retry_of attempt schedule_id due_at created_at".split()  # noqa: SIM905
)


def in_state(desk, status):
    """Make a job of this status by legal moves; return its number."""
    (made,) = desk.put(desk.row(delay=60 if status == "PENDING" else 0))
    if status not in {"PENDING", "QUEUED"}:
        job = desk.claim_one()
        if status != "RUNNING":
            desk.end(job, OUTCOMES[status])
    assert desk.status(made.job_id) == status
    return made.number


def refused(raw, words, statement, *values):
    with pytest.raises(apsw.ConstraintError) as refusal:
        raw.execute(statement, values)
    assert words in str(refusal.value)


def move(raw, number, status):
    """Try a move as raw SQL would, with everything else that the state needs."""
    raw.execute("BEGIN")
    try:
        if status == "RUNNING":
            raw.execute("INSERT OR IGNORE INTO job_runs (job_number, run_id, started_at) VALUES (?, randomblob(16), 5)", (number,))
            raw.execute("UPDATE jobs SET status = 'RUNNING', started_at = 5, worker_id = randomblob(16) WHERE number = ?", (number,))
        elif status == "QUEUED":
            raw.execute("UPDATE jobs SET status = 'QUEUED', queued_at = 5, finished_at = NULL WHERE number = ?", (number,))
        elif status == "PENDING":
            raw.execute("UPDATE jobs SET status = 'PENDING', finished_at = NULL WHERE number = ?", (number,))
        else:
            raw.execute("UPDATE jobs SET status = ?, finished_at = 9 WHERE number = ?", (status, number))
        return True
    except apsw.ConstraintError:
        return False
    finally:
        raw.execute("ROLLBACK")


@pytest.mark.parametrize("before", Status)
def test_the_triggers_allow_exactly_the_moves_of_the_table(desk, raw, before):
    number = in_state(desk, before)
    # writing the same status again, with nothing else, is no move; from an ended job even that is refused
    allowed = {str(after) for after in Status if after != before and move(raw, number, str(after))}
    assert allowed == {str(after) for after in Status if is_legal(before, after)}


@pytest.mark.parametrize("status", Status)
def test_a_job_is_born_only_where_the_table_says(desk, raw, status):
    values = "?1, ?1, 'default', 't', ?2, 50, 0, 'x', 3, 3, '{}', 1, 'thread', 0"
    extra = {"QUEUED": (", queued_at", ", 1"), "PENDING": ("", "")}.get(
        status, (", queued_at, started_at, finished_at, worker_id", f", 1, 1, {'NULL' if status == 'RUNNING' else 1}, randomblob(16)")
    )
    statement = f"INSERT INTO jobs ({COLUMNS}{extra[0]}) VALUES ({values}{extra[1]})"
    if status in BORN:
        raw.execute(statement, (bytes.fromhex(desk.id()), status))
    else:
        refused(raw, "born", statement, bytes.fromhex(desk.id()), status)


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_job_and_its_run_can_not_change_in_any_column(desk, raw, status):
    number = in_state(desk, status)
    refused(raw, "Cannot modify params after dispatch", "UPDATE jobs SET params = '{\"a\":1}' WHERE number = ?", number)
    for column in ("priority", "position", "reason", "finished_at", "held", "unique_key", "meta", "cancel_requested_at", "ended_by"):
        value = "'direct'" if column == "held" else "7"
        refused(raw, "ended", f"UPDATE jobs SET {column} = {value} WHERE number = ?", number)
    for column in ("status", "error", "result", "finished_at", "artifacts", "log_path", "progress", "checkpoint", "exit_code"):
        value = {"status": "'FAILED'", "artifacts": "'[\"x\"]'"}.get(column, "7")
        refused(raw, "ended", f"UPDATE job_runs SET {column} = {value} WHERE job_number = ?", number)


@pytest.mark.parametrize("before", [None, *ENDED])
@pytest.mark.parametrize("after", ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED", None])
def test_a_run_ends_once(desk, raw, before, after):
    number = in_state(desk, "RUNNING" if before is None else before)
    statement = "UPDATE job_runs SET status = ?, finished_at = ? WHERE job_number = ?"
    if before is not None:
        refused(raw, "ended", statement, after, None if after is None else 5, number)
    elif after is not None:
        raw.execute(statement, (after, 5, number))


def test_a_run_has_an_end_exactly_if_it_has_a_status(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "CHECK", "UPDATE job_runs SET status = 'COMPLETED' WHERE job_number = ?", number)
    refused(raw, "CHECK", "UPDATE job_runs SET finished_at = 5 WHERE job_number = ?", number)
    refused(raw, "CHECK", "UPDATE job_runs SET status = 'TIMED_OUT', finished_at = 5 WHERE job_number = ?", number)


def test_params_can_not_change_after_dispatch(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "Cannot modify params after dispatch", "UPDATE jobs SET params = '{\"a\":1}' WHERE number = ?", number)
    for status in ("PENDING", "QUEUED"):
        raw.execute("UPDATE jobs SET params = '{\"a\":1}' WHERE number = ?", (in_state(desk, status),))


def test_a_job_can_not_be_running_without_a_run(desk, raw):
    number = in_state(desk, "QUEUED")
    refused(raw, "without a run", "UPDATE jobs SET status = 'RUNNING', started_at = 1, worker_id = x'00' WHERE number = ?", number)


def test_a_run_can_not_be_without_its_job(desk, raw):
    refused(raw, "FOREIGN KEY", "INSERT INTO job_runs (job_number, run_id, started_at) VALUES (999, randomblob(16), 1)")


def test_a_running_job_needs_a_worker_and_a_start(desk, raw):
    number = in_state(desk, "QUEUED")
    raw.execute("INSERT INTO job_runs (job_number, run_id, started_at) VALUES (?, randomblob(16), 1)", (number,))
    refused(raw, "CHECK", "UPDATE jobs SET status = 'RUNNING' WHERE number = ?", number)


@pytest.mark.parametrize("status", Status)
def test_ended_rows_can_be_deleted_and_others_can_not(desk, raw, status):
    number = in_state(desk, status)
    raw.execute("DELETE FROM jobs WHERE retry_of IS NOT NULL AND finished_at IS NOT NULL")
    if status.ended and status not in {"FAILED", "TIMED_OUT"}:
        raw.execute("DELETE FROM jobs WHERE number = ?", (number,))
        assert list(raw.execute("SELECT * FROM job_runs WHERE job_number = ?", (number,))) == []
    elif status.ended:
        # its successor refers to it: a chain goes whole, from its tail
        refused(raw, "FOREIGN KEY", "DELETE FROM jobs WHERE number = ?", number)
    else:
        refused(raw, "has not ended", "DELETE FROM jobs WHERE number = ?", number)
        if status == "RUNNING":
            refused(raw, "has not ended", "DELETE FROM job_runs WHERE job_number = ?", number)


@pytest.mark.parametrize("column", IDENTITY)
def test_identity_and_origin_of_a_job_can_not_change(desk, raw, column):
    number = in_state(desk, "QUEUED")
    value = "randomblob(16)" if column in {"job_id", "template_id", "root_id", "retry_of", "schedule_id"} else "7"
    refused(raw, "identity", f"UPDATE jobs SET {column} = {value} WHERE number = ?", number)


@pytest.mark.parametrize("column", ["job_number", "run_id", "template_id", "started_at"])
def test_identity_and_start_of_a_run_can_not_change(desk, raw, column):
    number = in_state(desk, "RUNNING")
    value = "randomblob(16)" if column.endswith("_id") else "7"
    refused(raw, "identity", f"UPDATE job_runs SET {column} = {value} WHERE job_number = ?", number)


def test_a_job_starts_once(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "starts once", "UPDATE jobs SET started_at = 7 WHERE number = ?", number)
    refused(raw, "starts once", "UPDATE jobs SET worker_id = randomblob(16) WHERE number = ?", number)


def test_artifacts_only_grow(desk, raw):
    number = in_state(desk, "RUNNING")
    desk.turn(reports=[Report(number, artifact="a"), Report(number, artifact="b")])
    for shrunk in ("[]", '["a"]', '["b","a"]', '["a","c"]', ""):
        refused(raw, "only grow", "UPDATE job_runs SET artifacts = ? WHERE job_number = ?", shrunk, number)
    raw.execute("UPDATE job_runs SET artifacts = ? WHERE job_number = ?", ('["a","b","c"]', number))


def test_log_path_is_written_once(desk, raw):
    number = in_state(desk, "RUNNING")
    raw.execute("UPDATE job_runs SET log_path = 'one' WHERE job_number = ?", (number,))
    raw.execute("UPDATE job_runs SET log_path = 'one' WHERE job_number = ?", (number,))
    refused(raw, "written once", "UPDATE job_runs SET log_path = 'two' WHERE job_number = ?", number)
    refused(raw, "written once", "UPDATE job_runs SET log_path = NULL WHERE job_number = ?", number)


def test_a_job_joins_one_group_once(desk, raw):
    group = desk.grouped([desk.row()], "parallel")
    other = desk.grouped([desk.row()], "parallel")
    refused(
        raw,
        "joins one group",
        "UPDATE jobs SET group_id = unhex(?) WHERE job_id = unhex(?)",
        other.id.replace("-", ""),
        group.members[0].root_id.replace("-", ""),
    )


SUCCESSOR = """
INSERT INTO jobs (job_id, root_id, retry_of, attempt, organization_id, job_type, status, priority, run_at, owner, max_retries,
                  max_crashes, backoff, timeout, executor, created_at)
SELECT randomblob(16), root_id, job_id, attempt + :step, organization_id, job_type, 'PENDING', 50, 0, 'x', 3,
       3, '{}', 1, 'thread', 0
  FROM jobs WHERE number = :number"""


@pytest.mark.parametrize("status", ["PENDING", "QUEUED", "RUNNING"])
def test_a_chain_has_one_live_job(desk, raw, status):
    number = in_state(desk, status)
    with pytest.raises(apsw.ConstraintError):
        raw.execute(SUCCESSOR, {"number": number, "step": 1})


def test_an_attempt_has_one_successor(desk, raw):
    number = in_state(desk, "FAILED")
    with pytest.raises(apsw.ConstraintError):
        raw.execute(SUCCESSOR, {"number": number, "step": 1})
    tail = in_state(desk, "DEAD_LETTER")
    raw.execute(SUCCESSOR, {"number": tail, "step": 1})
    with pytest.raises(apsw.ConstraintError):
        raw.execute(SUCCESSOR, {"number": tail, "step": 1})


@pytest.mark.parametrize("step", [-1, 0, 2, 7])
def test_a_successor_is_the_next_attempt(desk, raw, step):
    number = in_state(desk, "DEAD_LETTER")
    with pytest.raises(apsw.ConstraintError):
        raw.execute(SUCCESSOR, {"number": number, "step": step})


def test_a_successor_follows_the_tail_of_its_own_chain(desk, raw):
    number = in_state(desk, "DEAD_LETTER")
    refused(
        raw,
        "own chain",
        SUCCESSOR.replace("randomblob(16), root_id,", "randomblob(16), randomblob(16),").replace(":step", "1").replace(":number", "?"),
        number,
    )


def test_a_first_attempt_is_its_own_root(desk, raw):
    with pytest.raises(apsw.ConstraintError):
        raw.execute(
            f"""INSERT INTO jobs ({COLUMNS})
                VALUES (randomblob(16), randomblob(16), 'default', 't', 'PENDING', 50, 0, 'x', 3, 3, '{{}}', 1, 'thread', 0)"""
        )


def test_one_unique_key_has_one_live_holder(desk, raw):
    desk.add(unique_key="k")
    other = in_state(desk, "PENDING")
    refused(raw, "UNIQUE", "UPDATE jobs SET unique_key = 'k' WHERE number = ?", other)


def test_one_reservation_is_active(desk, raw):
    desk.reserve()
    refused(
        raw,
        "UNIQUE",
        """INSERT INTO direct_reservations (reservation_id, reserved_at, reserved_by, status, expires_at, job_id, job_number, worker_id)
           VALUES (randomblob(16), 0, 'x', 'ACTIVE', 0, randomblob(16), 1, randomblob(16))""",
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("priority", 101),
        ("priority", -1),
        ("priority", "'high'"),
        ("position", "'x'"),
        ("blockers", -1),
        ("blockers", 1),
        ("timeout", -1),
        ("max_retries", -1),
        ("max_crashes", 0),
        ("unique_key", "''"),
        ("error_type", "'odd'"),
        ("queued_at", "NULL"),
        ("finished_at", 5),
        ("sequence_number", 1),
        ("run_at", 1.5),
        ("status", "'ODD'"),
    ],
)
def test_a_value_out_of_its_range_is_refused(desk, raw, column, value):
    number = in_state(desk, "QUEUED")
    with pytest.raises((apsw.ConstraintError, apsw.MismatchError)):
        raw.execute(f"UPDATE jobs SET {column} = {value} WHERE number = ?", (number,))


@pytest.mark.parametrize("value", [-1, 101])
def test_progress_is_a_percentage(desk, raw, value):
    number = in_state(desk, "RUNNING")
    refused(raw, "CHECK", "UPDATE job_runs SET progress = ? WHERE job_number = ?", value, number)


def test_a_pair_of_states_was_never_left_out():
    assert len(list(product(Status, Status))) == 81


def test_a_cancelled_waiting_job_stays_as_it_is(desk, raw):
    job_id = desk.add()
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    refused(raw, "ended", "UPDATE jobs SET status = 'QUEUED', finished_at = NULL WHERE job_id = unhex(?)", job_id)


def test_a_number_is_not_given_again_after_the_newest_job_was_deleted(desk, raw):
    ids = [desk.add() for _ in range(3)]
    for job_id in ids:
        desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    raw.execute("DELETE FROM jobs")
    assert [each.number for each in desk.put(desk.row())] == [4]
    assert [each.number for each in desk.put(desk.row(), desk.row())] == [5, 6]


# ---- schedules ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fired(store):
    """A schedule that has fired once."""
    desk = Timekeeper(store)
    desk.schedule()
    desk.pass_time(60)
    return desk


def test_a_due_time_has_one_job_whoever_writes_it(fired, raw):
    columns = [row[1] for row in raw.execute("PRAGMA table_info(jobs)") if row[1] not in {"number", "job_id", "root_id"}]
    again = f"INSERT INTO jobs (job_id, root_id, {', '.join(columns)}) SELECT ?1, ?1, {', '.join(columns)} FROM jobs"
    with pytest.raises(apsw.ConstraintError, match="schedule_id"):
        raw.execute(again, (bytes.fromhex(fired.id()),))


def test_a_job_keeps_its_schedule_and_its_due_time(fired, raw):
    for column, value in (("schedule_id", "randomblob(16)"), ("due_at", "due_at + 1")):
        with pytest.raises(apsw.ConstraintError):
            raw.execute(f"UPDATE jobs SET {column} = {value}")


@pytest.mark.parametrize(
    "change",
    ["fate = 'LOST'", "count = 0", "schedule_id = randomblob(16)", "due_at = NULL", "due_at = 'soon'"],
)
def test_a_row_of_the_ledger_is_of_a_schedule_counts_something_and_has_a_known_fate(fired, raw, change):
    with pytest.raises(apsw.ConstraintError):
        raw.execute(f"UPDATE occurrences SET {change}")


@pytest.mark.parametrize(
    "change",
    [
        "state = 'ASLEEP'",
        "kind = 'SOMETIMES'",
        "catch_up = 'some'",
        "overlap = 'maybe'",
        "interval_us = 0",
        "priority = 101",
        "jitter = -1",
        "param_overrides = '{'",
        "depends_on = '['",
        "declared = 'x'",
        "template_id = randomblob(16)",
        "organization_id = 'nobody'",
        "name = ''",
    ],
)
def test_a_schedule_says_only_what_can_be_said(fired, raw, change):
    with pytest.raises(apsw.ConstraintError):
        raw.execute(f"UPDATE schedules SET {change}")


def test_a_name_belongs_to_one_schedule_that_is_there(fired, raw):
    other = fired.schedule("other")
    with pytest.raises(apsw.ConstraintError, match="name"):
        raw.execute("UPDATE schedules SET name = 's' WHERE name = 'other'")
    fired.drop(other.id)
    raw.execute("UPDATE schedules SET name = 's' WHERE name = 'other'")


def test_a_schedule_with_rows_of_the_ledger_can_not_be_deleted(fired, raw):
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
        raw.execute("DELETE FROM schedules")


@pytest.mark.parametrize("verb", ["INSERT OR REPLACE INTO jobs SELECT * FROM jobs", "UPDATE OR REPLACE jobs SET number = number + 1"])
def test_a_live_job_is_not_replaced_by_one_whose_triggers_are_asked(desk, raw, verb):
    desk.several(2)
    before = list(raw.execute("SELECT * FROM jobs"))
    raw.pragma("recursive_triggers", 1)
    with pytest.raises(apsw.ConstraintError):
        raw.execute(verb)
    assert list(raw.execute("SELECT * FROM jobs")) == before


@pytest.mark.parametrize("name", ["insert_runs", "start_jobs", "finish_jobs_plain", "finish_runs_plain"])
def test_starts_and_plain_ends_pay_nothing_for_the_rules_about_what_can_not_change(raw, name):
    def program():
        return [row[1:] for row in raw.execute(f"EXPLAIN {statements()[name]}", Anything())]

    with_rules = len(program())
    for rule in ("jobs_place_frozen", "jobs_queued_once", "runs_outcome_with_end"):
        raw.execute(f"DROP TRIGGER {rule}")
    assert len(program()) == with_rules


@pytest.mark.parametrize("change", ["job_class = 'ANYWHERE'", "partition_strategy = 'SOME_SHARDS'"])
def test_a_template_has_only_the_classes_and_the_strategies_that_there_are(fired, raw, change):
    raw.execute("UPDATE templates SET job_class = 'LEADER_ONLY', partition_strategy = 'SHARD_SET'")
    raw.execute("UPDATE templates SET job_class = NULL, partition_strategy = NULL")
    with pytest.raises(apsw.ConstraintError):
        raw.execute(f"UPDATE templates SET {change}")


@pytest.mark.parametrize(
    "values",
    [
        "'GROUP', 'ops', 'CREATE JOB', NULL, NULL, 0",
        "'PUBLIC', 'ada', 'CREATE JOB', NULL, NULL, 0",
        "'USER', '', 'CREATE JOB', NULL, NULL, 0",
        "'USER', 'ada', 'ALL', NULL, NULL, 0",
        "'USER', 'ada', 'EXECUTE', 'JOB', NULL, 0",
        "'USER', 'ada', 'EXECUTE', 'TABLE', 'x', 0",
        "'USER', 'ada', 'CREATE JOB', NULL, NULL, 2",
    ],
)
def test_a_grant_says_only_what_can_be_said(fired, raw, values):
    columns = "grant_id, organization_id, granted_by, granted_at, grantee_kind, grantee, privilege, target_kind, target_id, grant_option"
    with pytest.raises(apsw.ConstraintError):
        raw.execute(f"INSERT INTO grants ({columns}) VALUES (randomblob(16), 'default', 'root', 1, {values})")
    good = "'USER', 'ada', 'CREATE JOB', NULL, NULL, 0"
    raw.execute(f"INSERT INTO grants ({columns}) VALUES (randomblob(16), 'default', 'root', 1, {good})")
    with pytest.raises(apsw.ConstraintError):
        raw.execute(f"INSERT INTO grants ({columns}) VALUES (randomblob(16), 'default', 'root', 1, {good})")


class Anything(dict):
    def __missing__(self, name):
        return None
