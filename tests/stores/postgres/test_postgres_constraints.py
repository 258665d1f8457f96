"""What must never be is refused by the schema itself, whoever asks."""

import psycopg
import pytest

from rota.errors import InvalidOption
from rota.model.decide import Completed, Failed, Skipped, Stopped, TimedOut
from rota.model.states import BORN, RUN_END, Status, is_legal
from rota.ports.executor import Report
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
REFUSED = (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError)


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
    with pytest.raises(psycopg.IntegrityError) as refusal:
        raw.execute(statement, values)
    assert words in str(refusal.value)


ENDING = "job_type, %s, created_at, 9, priority, position, run_at, queued_at, started_at, worker_id"
END = f"""
WITH gone AS (DELETE FROM job_live WHERE number = %s RETURNING *)
INSERT INTO job_ends (number, {ENDING.replace("%s", "status").replace("9", "finished_at")}, run_id)
SELECT number, {ENDING}, run_id FROM gone RETURNING number"""


def move(raw, number, status):
    """Try a move as raw SQL would, with everything else that the state needs; say whether it was made."""
    try:
        with raw.transaction(force_rollback=True):
            if status == "RUNNING":
                begun = "status = 'RUNNING', started_at = 5, worker_id = gen_random_uuid(), run_id = gen_random_uuid()"
                done = raw.execute(f"UPDATE job_live SET {begun} WHERE number = %s", (number,))
            elif status == "QUEUED":
                done = raw.execute("UPDATE job_live SET status = 'QUEUED', queued_at = 5 WHERE number = %s", (number,))
            elif status == "PENDING":
                done = raw.execute("UPDATE job_live SET status = 'PENDING' WHERE number = %s", (number,))
            else:
                done = raw.execute(END, (number, status))
            return done.rowcount == 1
    except psycopg.IntegrityError:
        return False


@pytest.mark.parametrize("before", Status)
def test_the_schema_allows_exactly_the_moves_of_the_table(desk, raw, before):
    number = in_state(desk, before)
    allowed = {str(after) for after in Status if after != before and move(raw, number, str(after))}
    assert allowed == {str(after) for after in Status if is_legal(before, after)}


FACTS = "number, job_id, root_id, organization_id, job_type, owner, max_retries, max_crashes, backoff, timeout, executor, created_at"
NEW = f"""
WITH new AS (SELECT nextval('job_numbers') AS number, %s::uuid AS id),
facts AS (INSERT INTO job_facts ({FACTS}) SELECT number, id, id, 'default', 't', 'x', 3, 3, '{{}}', 1, 'thread', 0 FROM new)
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, status, priority, run_at, queued_at,
                      started_at, worker_id)
SELECT number, id, id, 1, 'default', 't', 0, %s, 50, 0, 1, %s, gen_random_uuid() FROM new"""


@pytest.mark.parametrize("status", Status)
def test_a_job_is_born_only_where_the_table_says(desk, raw, status):
    values = (desk.id(), str(status), 1 if status == "RUNNING" else None)
    if status in BORN:
        raw.execute(NEW, values)
    else:
        refused(raw, "born", NEW, *values)


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_job_and_its_run_can_not_change_in_any_column(desk, raw, status):
    number = in_state(desk, status)
    refused(raw, "Cannot modify params after dispatch", "UPDATE job_facts SET params = '{\"a\":1}' WHERE number = %s", number)
    for column in ("priority", "position", "reason", "finished_at", "held", "cancel_requested_at", "ended_by", "status", "run_id"):
        value = {"status": "'CANCELLED'", "run_id": "gen_random_uuid()"}.get(column, "'7'")
        refused(raw, "ended", f"UPDATE job_ends SET {column} = {value} WHERE number = %s", number)
    for column in ("error", "result", "artifacts", "log_path", "progress", "checkpoint", "exit_code"):
        value = "'[\"x\"]'" if column == "artifacts" else "'7'"
        written = (
            f"INSERT INTO run_notes (job_number, {column}) VALUES (%s, {value}) ON CONFLICT (job_number) DO UPDATE SET {column} = {value}"
        )
        refused(raw, "ended", written, number)


@pytest.mark.parametrize("status", Status)
def test_a_run_says_what_its_job_says(desk, raw, status):
    number = in_state(desk, status)
    run = raw.execute("SELECT status, started_at, finished_at, artifacts FROM job_runs WHERE job_number = %s", (number,)).fetchone()
    job = raw.execute("SELECT started_at, finished_at FROM jobs WHERE number = %s", (number,)).fetchone()
    if job[0] is None:
        assert run is None
    else:
        assert run == (RUN_END[status] if status.ended else None, *job, "[]")


def test_the_view_of_runs_is_for_reading(desk, raw):
    number = in_state(desk, "RUNNING")
    for statement in ("UPDATE job_runs SET status = 'FAILED' WHERE job_number = %s", "DELETE FROM job_runs WHERE job_number = %s"):
        with pytest.raises(psycopg.Error, match=r"cannot (update|delete from) view"):
            raw.execute(statement, (number,))


def test_params_can_not_change_after_dispatch(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "Cannot modify params after dispatch", "UPDATE job_facts SET params = '{\"a\":1}' WHERE number = %s", number)
    for status in ("PENDING", "QUEUED"):
        raw.execute("UPDATE job_facts SET params = '{\"a\":1}' WHERE number = %s", (in_state(desk, status),))


@pytest.mark.parametrize("missing", ["started_at", "worker_id", "run_id"])
def test_a_running_job_needs_a_start_a_worker_and_a_run(desk, raw, missing):
    number = in_state(desk, "QUEUED")
    begun = {"status": "'RUNNING'", "started_at": "1", "worker_id": "gen_random_uuid()", "run_id": "gen_random_uuid()"}
    del begun[missing]
    changes = ", ".join(f"{name} = {value}" for name, value in begun.items())
    refused(raw, "check", f"UPDATE job_live SET {changes} WHERE number = %s", number)


def test_a_job_has_ended_with_its_run_exactly_if_it_had_started(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "ends_run", END.replace("worker_id, run_id FROM", "worker_id, NULL FROM"), number, "COMPLETED")
    refused(raw, "ends_run", END.replace("worker_id, run_id FROM", "worker_id, job_id FROM"), in_state(desk, "QUEUED"), "CANCELLED")


@pytest.mark.parametrize("status", ["PENDING", "QUEUED"])
def test_what_has_not_begun_leaves_nothing_behind(desk, raw, status):
    for number in (in_state(desk, status), 999):
        refused(raw, "not begun", "INSERT INTO run_notes (job_number, result) VALUES (%s, '1')", number)


def test_an_edge_can_not_be_without_its_job(desk, raw):
    refused(
        raw,
        "without its job",
        "INSERT INTO job_edges (child, parent_root, needs, on_failure, source) VALUES (999, gen_random_uuid(), 'end', 'wait', 'user')",
    )


REMOVE = """
WITH notes AS (DELETE FROM run_notes WHERE job_number = ANY(%(numbers)s)), ends AS (DELETE FROM job_ends WHERE number = ANY(%(numbers)s))
DELETE FROM job_facts WHERE number = ANY(%(numbers)s)"""


@pytest.mark.parametrize("status", Status)
def test_ended_jobs_can_be_deleted_whole_and_others_can_not(desk, raw, status):
    number = in_state(desk, status)
    if status.ended and status not in {"FAILED", "TIMED_OUT"}:
        raw.execute(REMOVE, {"numbers": [number]})
        assert raw.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        return
    with pytest.raises(psycopg.IntegrityError):
        # of one that has a successor, the chain goes whole
        raw.execute(REMOVE, {"numbers": [number]})
    if status.ended:
        return
    refused(raw, "has not ended", "DELETE FROM job_live WHERE number = %s", number)
    if status == "RUNNING":
        desk.turn(reports=[Report(number, progress=5)])
        refused(raw, "goes with", "DELETE FROM run_notes WHERE job_number = %s", number)


def test_no_part_of_a_job_goes_without_the_others(desk, raw):
    number = in_state(desk, "COMPLETED")
    refused(raw, "goes with", "DELETE FROM job_ends WHERE number = %s", number)
    refused(raw, "goes with", "DELETE FROM job_facts WHERE number = %s", number)
    live = in_state(desk, "QUEUED")
    refused(raw, "has not ended", "DELETE FROM job_facts WHERE number = %s", live)


def test_a_job_is_live_or_has_ended_and_never_both_or_neither(desk, raw):
    ended, number = in_state(desk, "DEAD_LETTER"), in_state(desk, "QUEUED")
    both = "INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at)"
    refused(raw, "live no longer", f"{both} VALUES (%s, 't', 'CANCELLED', 0, 0, 50, 0, 0)", number)
    refused(raw, "live no longer", f"{both} VALUES (%s, 't', 'CANCELLED', 0, 0, 50, 0, 0)", 999)
    copied = "number, job_id, root_id, attempt, organization_id, job_type, created_at"
    live = f"INSERT INTO job_live ({copied}, status, priority, run_at)"
    refused(raw, "written together", f"{live} VALUES (999, gen_random_uuid(), gen_random_uuid(), 1, 'default', 't', 0, 'PENDING', 50, 0)")
    refused(raw, "written together", f"{live} SELECT {copied}, 'PENDING', 50, 0 FROM job_facts WHERE number = %s", ended)
    new = "SELECT 999, id, id, 'default', 't', 'x', 3, 3, '{}', 1, 'thread', 0 FROM (SELECT gen_random_uuid() AS id) AS new"
    refused(raw, "written together", f"INSERT INTO job_facts ({FACTS}) {new}")


IDENTITY = "number job_id organization_id template_id job_type origin root_id retry_of attempt schedule_id due_at created_at unique_key"


@pytest.mark.parametrize("column", IDENTITY.split())
def test_identity_and_origin_of_a_job_can_not_change(desk, raw, column):
    number = in_state(desk, "QUEUED")
    value = "gen_random_uuid()" if column in {"job_id", "template_id", "root_id", "retry_of", "schedule_id"} else "'7'"
    refused(raw, "identity", f"UPDATE job_facts SET {column} = {value} WHERE number = %s", number)
    if column not in {"template_id", "origin", "retry_of", "due_at"}:
        refused(raw, "identity", f"UPDATE job_live SET {column} = {value} WHERE number = %s", number)


def test_the_owner_of_a_job_can_not_change(desk, raw):
    refused(raw, "owner", "UPDATE job_facts SET owner = 'me' WHERE number = %s", in_state(desk, "QUEUED"))


def test_the_view_of_jobs_is_for_reading(desk, raw):
    number = in_state(desk, "QUEUED")
    for statement in ("UPDATE jobs SET priority = 1 WHERE number = %s", "DELETE FROM jobs WHERE number = %s"):
        with pytest.raises(psycopg.Error, match=r"cannot (update|delete from) view"):
            raw.execute(statement, (number,))


def test_a_job_starts_once(desk, raw):
    number = in_state(desk, "RUNNING")
    refused(raw, "starts once", "UPDATE job_live SET started_at = 7 WHERE number = %s", number)
    for column in ("worker_id", "run_id"):
        refused(raw, "starts once", f"UPDATE job_live SET {column} = gen_random_uuid() WHERE number = %s", number)


def test_what_a_run_left_behind_stays_with_it(desk, raw):
    number, other = in_state(desk, "RUNNING"), in_state(desk, "RUNNING")
    desk.turn(reports=[Report(number, progress=5)])
    refused(raw, "identity", "UPDATE run_notes SET job_number = %s WHERE job_number = %s", other, number)


def test_artifacts_only_grow(desk, raw):
    number = in_state(desk, "RUNNING")
    desk.turn(reports=[Report(number, artifact="a"), Report(number, artifact="b")])
    for shrunk in ("[]", '["a"]', '["b","a"]', '["a","c"]', ""):
        refused(raw, "only grow", "UPDATE run_notes SET artifacts = %s WHERE job_number = %s", shrunk, number)
    raw.execute("UPDATE run_notes SET artifacts = %s WHERE job_number = %s", ('["a","b","c"]', number))


def test_log_path_is_written_once(desk, raw):
    number = in_state(desk, "RUNNING")
    raw.execute("INSERT INTO run_notes (job_number, log_path) VALUES (%s, 'one')", (number,))
    raw.execute("UPDATE run_notes SET log_path = 'one' WHERE job_number = %s", (number,))
    refused(raw, "written once", "UPDATE run_notes SET log_path = 'two' WHERE job_number = %s", number)
    refused(raw, "written once", "UPDATE run_notes SET log_path = NULL WHERE job_number = %s", number)


def test_a_job_joins_one_group_once(desk, raw):
    group = desk.grouped([desk.row()], "parallel")
    other = desk.grouped([desk.row()], "parallel")
    refused(
        raw,
        "joins one group",
        "UPDATE job_facts SET group_id = %s WHERE job_id = %s",
        other.id,
        group.members[0].root_id,
    )


SUCCESSOR = """
WITH new AS (SELECT nextval('job_numbers') AS number, gen_random_uuid() AS id),
facts AS (
    INSERT INTO job_facts (number, job_id, root_id, retry_of, attempt, organization_id, job_type, owner, max_retries, max_crashes, backoff,
                           timeout, executor, created_at)
    SELECT new.number, new.id, root_id, job_id, attempt + %(step)s, organization_id, job_type, 'x', 3, 3, '{}', 1, 'thread', 0
      FROM new, job_facts WHERE job_facts.number = %(number)s RETURNING *)
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, status, priority, run_at)
SELECT number, job_id, root_id, attempt, organization_id, job_type, 0, 'PENDING', 50, 0 FROM facts"""


@pytest.mark.parametrize("status", ["PENDING", "QUEUED", "RUNNING"])
def test_a_chain_has_one_live_job(desk, raw, status):
    number = in_state(desk, status)
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(SUCCESSOR, {"number": number, "step": 1})


def test_an_attempt_has_one_successor(desk, raw):
    number = in_state(desk, "FAILED")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(SUCCESSOR, {"number": number, "step": 1})
    tail = in_state(desk, "DEAD_LETTER")
    raw.execute(SUCCESSOR, {"number": tail, "step": 1})
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(SUCCESSOR, {"number": tail, "step": 1})


@pytest.mark.parametrize("step", [-1, 0, 2, 7])
def test_a_successor_is_the_next_attempt(desk, raw, step):
    number = in_state(desk, "DEAD_LETTER")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(SUCCESSOR, {"number": number, "step": step})


def test_a_successor_follows_the_tail_of_its_own_chain(desk, raw):
    number = in_state(desk, "DEAD_LETTER")
    other = SUCCESSOR.replace("new.id, root_id, job_id,", "new.id, gen_random_uuid(), job_id,")
    with pytest.raises(psycopg.IntegrityError, match="own chain"):
        raw.execute(other, {"number": number, "step": 1})


def test_one_unique_key_has_one_live_holder(desk, raw):
    desk.add(unique_key="k")
    refused(
        raw,
        "live_unique",
        NEW.replace("facts AS (INSERT INTO job_facts (", "facts AS (INSERT INTO job_facts (unique_key, ")
        .replace("SELECT number, id, id, 'default', 't', 'x'", "SELECT 'k', number, id, id, 'default', 't', 'x'")
        .replace("INSERT INTO job_live (", "INSERT INTO job_live (unique_key, ")
        .replace("SELECT number, id, id, 1,", "SELECT 'k', number, id, id, 1,"),
        desk.id(),
        "QUEUED",
        None,
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_that_postgresql_can_not_hold_is_the_callers_error(desk, count):
    rows = [desk.row(unique_key=f"{number}\0") for number in range(count)]
    with pytest.raises(InvalidOption, match=r"NUL \(U\+0000\), which PostgreSQL can't hold"):
        desk.put(*rows)
    assert desk.store.queue(limit=10) == []


def test_keys_of_a_thousand_letters_are_told_apart(desk):
    long = "\N{PILE OF POO}" * 1023
    first, second = desk.add(unique_key=f"{long}a"), desk.add(unique_key=f"{long}b")
    assert first != second
    assert desk.put(desk.row(unique_key=f"{long}a"))[0].job_id == first


def test_one_reservation_is_active(desk, raw):
    desk.reserve()
    refused(
        raw,
        "reservations_active",
        """INSERT INTO direct_reservations (reservation_id, reserved_at, reserved_by, status, expires_at, job_id, job_number, worker_id)
           VALUES (gen_random_uuid(), 0, 'x', 'ACTIVE', 0, gen_random_uuid(), 1, gen_random_uuid())""",
    )


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("live", "priority", 101),
        ("live", "priority", -1),
        ("live", "priority", "'high'"),
        ("live", "position", "'x'"),
        ("live", "blockers", -1),
        ("live", "blockers", 1),
        ("live", "queued_at", "NULL"),
        ("live", "status", "'ODD'"),
        ("live", "status", "'COMPLETED'"),
        ("facts", "timeout", -1),
        ("facts", "max_retries", -1),
        ("facts", "max_crashes", 0),
        ("facts", "sequence_number", 1),
    ],
)
def test_a_value_out_of_its_range_is_refused(desk, raw, table, column, value):
    number = in_state(desk, "QUEUED")
    with pytest.raises(REFUSED):
        raw.execute(f"UPDATE job_{table} SET {column} = {value} WHERE number = %s", (number,))


@pytest.mark.parametrize("value", [-1, 101])
def test_progress_is_a_percentage(desk, raw, value):
    number = in_state(desk, "RUNNING")
    refused(raw, "check", "INSERT INTO run_notes (job_number, progress) VALUES (%s, %s)", number, value)


def test_a_number_is_not_given_again_after_the_newest_job_was_deleted(desk, raw):
    numbers = [desk.put(desk.row())[0].number for _ in range(3)]
    for job in desk.store.queue(limit=10):
        desk.store.cancel(job.id.replace("-", ""), actor=ANNA, now=desk.now)
    raw.execute(REMOVE, {"numbers": numbers})
    assert [each.number for each in desk.put(desk.row())] == [numbers[-1] + 1]
    assert [each.number for each in desk.put(desk.row(), desk.row())] == [numbers[-1] + 2, numbers[-1] + 3]


def test_the_rules_hold_for_somebody_with_another_search_path(desk, raw, maker):
    number = in_state(desk, "QUEUED")
    with maker.server.connect() as other:
        refused(other, "has not ended", f"DELETE FROM {maker.schema}.job_live WHERE number = %s", number)
        refused(other, "not begun", f"INSERT INTO {maker.schema}.run_notes (job_number) VALUES (%s)", number)


# ---- the guards of ends, by batches ------------------------------------------------------------------------------------

BATCHES = {"alone": (1, 1), "few": (3, 1), "close": (120, 1), "close with gaps": (120, 3), "scattered": (120, 1000)}
"""How many jobs end together, and how far apart their numbers are."""
MOVE = f"""
WITH gone AS (DELETE FROM job_live WHERE number = ANY(%(numbers)s) AND number <> %(left)s RETURNING *)
INSERT INTO job_ends (number, {ENDING.replace("%s", "status").replace("9", "finished_at")}, run_id)
SELECT number, {ENDING.replace("%s", "'CANCELLED'")}, run_id FROM gone"""
STILL_LIVE = MOVE + MOVE[MOVE.rindex("SELECT") :].replace("SELECT", " UNION ALL SELECT").replace("gone", "job_live WHERE number = %(left)s")
UNKNOWN = f"{MOVE} UNION ALL SELECT %(unknown)s, 't', 'CANCELLED', 0, 9, 50, 0, 0, NULL, NULL, NULL, NULL"
NO_LONGER, NOT_ENDED = "a job that ends is live no longer", "a job that has not ended cannot be deleted"


@pytest.fixture(params=BATCHES)
def batch(desk, raw, request):
    """Return the numbers of jobs that wait; before them, behind them and in their middle are numbers that no job has."""
    count, step = BATCHES[request.param]
    raw.execute(f"ALTER SEQUENCE job_numbers INCREMENT BY {step}")
    for part in (count // 2, count - count // 2):
        raw.execute("SELECT nextval('job_numbers')")
        desk.several(part)
    yield [number for (number,) in raw.execute("SELECT number FROM job_live ORDER BY number").fetchall()]
    # The tests of a process share a schema.
    raw.execute("ALTER SEQUENCE job_numbers INCREMENT BY 1")


def places(batch):
    """Return the first, one in the middle, and the last, each once."""
    return dict.fromkeys([batch[0], batch[len(batch) // 2], batch[-1]])


def test_no_job_of_a_batch_ends_that_is_still_live(batch, raw):
    for left in places(batch):
        with pytest.raises(psycopg.errors.CheckViolation, match=NO_LONGER):
            raw.execute(STILL_LIVE, {"numbers": batch, "left": left})
    assert raw.execute("SELECT count(*) FROM job_live").fetchone() == (len(batch),)


def test_no_end_of_a_batch_is_of_a_job_that_nobody_knows(batch, raw):
    known, unknown = set(batch), [batch[0] - 1, batch[-1] + 1]
    unknown += [number for number in range(batch[0], batch[-1]) if number not in known][:1]
    for number in unknown:
        with pytest.raises(psycopg.errors.CheckViolation, match=NO_LONGER):
            raw.execute(UNKNOWN, {"numbers": batch, "left": 0, "unknown": number})
    assert raw.execute("SELECT count(*) FROM job_live").fetchone() == (len(batch),)


def test_no_job_of_a_batch_goes_that_has_not_ended(batch, raw):
    written = MOVE.replace("FROM gone", "FROM gone WHERE number <> %(lost)s")
    for lost in places(batch):
        with pytest.raises(psycopg.errors.CheckViolation, match=NOT_ENDED):
            raw.execute(written, {"numbers": batch, "left": 0, "lost": lost})
    with pytest.raises(psycopg.errors.CheckViolation, match=NOT_ENDED):
        raw.execute("DELETE FROM job_live WHERE number = ANY(%s)", (batch,))
    assert raw.execute("SELECT count(*) FROM job_live").fetchone() == (len(batch),)


def test_a_batch_that_is_whole_ends(batch, raw):
    # One stays, in the middle of the others: what lies between them is no obstacle.
    left = batch[len(batch) // 2]
    raw.execute(MOVE, {"numbers": batch, "left": left})
    assert raw.execute("SELECT array_agg(number) FROM job_live").fetchone() == ([left],)
    assert raw.execute("SELECT count(*) FROM job_ends").fetchone() == (len(batch) - 1,)


def test_ends_can_be_copied_in_no_more_than_inserted(batch, raw):
    """Another statement, the same guard: as a tool that loads a dump would write."""
    with pytest.raises(psycopg.errors.CheckViolation, match=NO_LONGER):
        copy_ends(raw, batch)


def copy_ends(raw, numbers):
    columns = "number, job_type, status, created_at, finished_at, priority, position, run_at"
    with raw.cursor() as cursor, cursor.copy(f"COPY job_ends ({columns}) FROM STDIN") as copy:
        for number in numbers:
            copy.write_row((number, "t", "CANCELLED", 0, 9, 50, 0, 0))


IDENTITY_WORDS, MOVE_WORDS, START_WORDS = (
    "identity and origin of a job cannot change",
    "illegal move of a job: see the table",
    "a job starts once",
)
CHANGES = [
    ("QUEUED", "job_id = gen_random_uuid()", IDENTITY_WORDS),
    ("QUEUED", "job_id = gen_random_uuid(), status = 'PENDING'", IDENTITY_WORDS),
    ("QUEUED", "status = 'PENDING'", MOVE_WORDS),
    ("PENDING", "status = 'RUNNING', unique_key = 'k'", IDENTITY_WORDS),
    ("PENDING", "status = 'RUNNING'", MOVE_WORDS),
    ("RUNNING", "status = 'QUEUED'", MOVE_WORDS),
    ("RUNNING", "status = 'PENDING', worker_id = NULL, run_id = NULL, started_at = NULL", MOVE_WORDS),
    ("RUNNING", "started_at = NULL", START_WORDS),
    ("RUNNING", "worker_id = NULL, held = 'x'", START_WORDS),
    ("RUNNING", "run_id = gen_random_uuid(), priority = 9", START_WORDS),
    ("RUNNING", "run_id = gen_random_uuid(), schedule_id = gen_random_uuid()", IDENTITY_WORDS),
    ("RUNNING", "started_at = 7, status = 'QUEUED', created_at = 7", IDENTITY_WORDS),
]


@pytest.mark.parametrize(("status", "change", "words"), CHANGES)
def test_a_change_that_breaks_several_rules_is_refused_by_the_first(desk, raw, status, change, words):
    refused(raw, words, f"UPDATE job_live SET {change} WHERE number = %s", in_state(desk, status))


@pytest.mark.parametrize("column", ["number", "job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "status"])
def test_what_a_live_job_must_have_can_not_be_taken_from_it(desk, raw, column):
    number = in_state(desk, "QUEUED")
    with pytest.raises(psycopg.errors.NotNullViolation):
        raw.execute(f"UPDATE job_live SET {column} = NULL WHERE number = %s", (number,))


# ---- schedules ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fired(store):
    """A schedule that has fired once."""
    desk = Timekeeper(store)
    desk.schedule()
    desk.pass_time(60)
    return desk


def test_a_due_time_has_one_job_whoever_writes_it(fired, raw):
    every = raw.execute("SELECT column_name FROM information_schema.columns WHERE table_schema = 'rota' AND table_name = 'job_facts'")
    columns = [name for (name,) in every if name not in {"number", "job_id", "root_id"}]
    again = f"INSERT INTO job_facts (job_id, root_id, {', '.join(columns)}) SELECT %(id)s, %(id)s, {', '.join(columns)} FROM job_facts"
    with pytest.raises(psycopg.IntegrityError, match="facts_occurrence"):
        raw.execute(again, {"id": fired.id()})


@pytest.mark.parametrize("change", ["fate = 'LOST'", "count = 0", "schedule_id = gen_random_uuid()", "due_at = NULL", "due_at = 'soon'"])
def test_a_row_of_the_ledger_is_of_a_schedule_counts_something_and_has_a_known_fate(fired, raw, change):
    with pytest.raises(REFUSED):
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
        "template_id = gen_random_uuid()",
        "organization_id = 'nobody'",
        "name = ''",
    ],
)
def test_a_schedule_says_only_what_can_be_said(fired, raw, change):
    with pytest.raises(REFUSED):
        raw.execute(f"UPDATE schedules SET {change}")


def test_a_name_belongs_to_one_schedule_that_is_there(fired, raw):
    other = fired.schedule("other")
    with pytest.raises(psycopg.IntegrityError, match="name"):
        raw.execute("UPDATE schedules SET name = 's' WHERE name = 'other'")
    fired.drop(other.id)
    raw.execute("UPDATE schedules SET name = 's' WHERE name = 'other'")


def test_a_schedule_with_rows_of_the_ledger_can_not_be_deleted(fired, raw):
    with pytest.raises(psycopg.IntegrityError, match="foreign key"):
        raw.execute("DELETE FROM schedules")


@pytest.mark.parametrize("change", ["job_class = 'ANYWHERE'", "partition_strategy = 'SOME_SHARDS'"])
def test_a_template_has_only_the_classes_and_the_strategies_that_there_are(fired, raw, change):
    raw.execute("UPDATE templates SET job_class = 'LEADER_ONLY', partition_strategy = 'SHARD_SET'")
    raw.execute("UPDATE templates SET job_class = NULL, partition_strategy = NULL")
    with pytest.raises(psycopg.IntegrityError):
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
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(f"INSERT INTO grants ({columns}) VALUES (gen_random_uuid(), 'default', 'root', 1, {values})")
    good = "'USER', 'ada', 'CREATE JOB', NULL, NULL, 0"
    raw.execute(f"INSERT INTO grants ({columns}) VALUES (gen_random_uuid(), 'default', 'root', 1, {good})")
    with pytest.raises(psycopg.IntegrityError):
        raw.execute(f"INSERT INTO grants ({columns}) VALUES (gen_random_uuid(), 'default', 'root', 1, {good})")
