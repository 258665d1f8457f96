"""Many ended runs of 500 schedules in three organizations, written by raw SQL: what the speed of queries is measured on."""

from __future__ import annotations

from typing import Any

SCHEDULES = 500
START_US = 1_760_000_000_000_000
STEP_US = 1_000_000
NUMBERED = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
ORGANIZATION = "CASE {i} % 3 WHEN 0 THEN 'default' WHEN 1 THEN 'acme' ELSE 'beta' END"
STATUS = "CASE WHEN {i} % 50 = 0 THEN 'DEAD_LETTER' WHEN {i} % 37 = 0 THEN 'CANCELLED' ELSE 'COMPLETED' END"


def load_sqlite(maker: Any, runs: int) -> None:
    """Write runs into a SQLite store."""
    maker.damage(
        "INSERT INTO organizations (organization_id, display_name, created_at) VALUES ('acme', 'acme', 0), ('beta', 'beta', 0)",
        f"""INSERT INTO templates (template_id, name, job_type, created_by, created_at, updated_at)
        {NUMBERED.format(count=SCHEDULES)} SELECT {_blob("'aaaaaaaa'", "i")}, 'type_' || i, 'type_' || i, 'x', 0, 0 FROM n""",
        f"""INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, cursor_at, created_by,
        created_at, updated_at)
        {NUMBERED.format(count=SCHEDULES)} SELECT {_blob("'bbbbbbbb'", "i")}, {ORGANIZATION.format(i="i")}, {_blob("'aaaaaaaa'", "i")},
        'job_' || i, 'EVERY', 60000000, 0, 'x', 0, 0 FROM n""",
        f"""INSERT INTO jobs (number, job_id, organization_id, template_id, job_type, origin, root_id, status, priority, position, run_at,
        created_at, queued_at, started_at, finished_at, worker_id, schedule_id, due_at, owner, max_retries, max_crashes, timeout,
        executor, backoff, params)
        {NUMBERED.format(count=runs)} SELECT i, {_blob("'cccccccc'", "i")}, {ORGANIZATION.format(i="(i % 500 + 1)")},
        {_blob("'aaaaaaaa'", "(i % 500 + 1)")},
        'type_' || (i % 500 + 1), 'schedule', {_blob("'cccccccc'", "i")}, {STATUS.format(i="i")}, 50, i, {START_US} + i * {STEP_US},
        {START_US} + i * {STEP_US}, {START_US} + i * {STEP_US}, {START_US} + i * {STEP_US} + 1000,
        {START_US} + i * {STEP_US} + 1000 + i % 977 * 5000,
        x'dddddddddddddddddddddddddddddddd', {_blob("'bbbbbbbb'", "(i % 500 + 1)")}, {START_US} + i * {STEP_US}, 'user' || (i % 7), 3, 3,
        300, 'thread', '[60,2,86400,0]', '{{}}' FROM n""",
        f"""INSERT INTO job_runs (job_number, run_id, status, started_at, finished_at, result, error)
        SELECT number, {_blob("'eeeeeeee'", "number")}, CASE status WHEN 'DEAD_LETTER' THEN 'FAILED' ELSE status END, started_at,
        finished_at,
        '{{"rows": 3}}', CASE status WHEN 'DEAD_LETTER' THEN 'ValueError: no' END FROM jobs""",
    )


def _blob(prefix: str, number: str) -> str:
    return f"unhex({prefix} || printf('%024x', {number}))"


def load_postgres(maker: Any, runs: int) -> None:
    """Write runs into a PostgreSQL store."""

    def an_id(prefix: str, number: str) -> str:
        return f"('{prefix}' || lpad(to_hex({number}::bigint), 24, '0'))::uuid"

    facts = f"{START_US}::bigint + i * {STEP_US}::bigint"
    maker.damage(
        "INSERT INTO organizations (organization_id, display_name, created_at) VALUES ('acme', 'acme', 0), ('beta', 'beta', 0)",
        f"""INSERT INTO templates (template_id, name, job_type, created_by, created_at, updated_at)
        SELECT {an_id("aaaaaaaa", "i")}, 'type_' || i, 'type_' || i, 'x', 0, 0 FROM generate_series(1, {SCHEDULES}) AS i""",
        f"""INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, cursor_at, created_by,
        created_at, updated_at)
        SELECT {an_id("bbbbbbbb", "i")}, {ORGANIZATION.format(i="i")}, {an_id("aaaaaaaa", "i")}, 'job_' || i, 'EVERY', 60000000, 0,
        'x', 0, 0 FROM generate_series(1, {SCHEDULES}) AS i""",
        f"""INSERT INTO job_facts (number, job_id, organization_id, template_id, job_type, origin, root_id, schedule_id, due_at, owner,
        max_retries, max_crashes, backoff, timeout, executor, created_at)
        SELECT i, {an_id("cccccccc", "i")}, {ORGANIZATION.format(i="(i % 500 + 1)")}, {an_id("aaaaaaaa", "(i % 500 + 1)")},
        'type_' || (i % 500 + 1),
        'schedule', {an_id("cccccccc", "i")}, {an_id("bbbbbbbb", "(i % 500 + 1)")}, {facts}, 'user' || i % 7, 3, 3,
        '[60,2,86400,0]', 300,
        'thread', {facts} FROM generate_series(1, {runs}) AS i""",
        f"""INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at, queued_at,
        started_at, worker_id, run_id)
        SELECT i, 'type_' || (i % 500 + 1), {STATUS.format(i="i")}, {facts}, {facts} + 1000 + i % 977 * 5000, 50, i, {facts}, {facts},
        {facts} + 1000,
        {an_id("dddddddd", "1")}, {an_id("eeeeeeee", "i")} FROM generate_series(1, {runs}) AS i""",
        "INSERT INTO run_notes (job_number, result, error) SELECT number, '{\"rows\": 3}', "
        "CASE status WHEN 'DEAD_LETTER' THEN 'ValueError: no' END FROM job_ends",
    )
    maker._sql(f"SELECT setval('job_numbers', {runs})")
    # As autovacuum does after a while.
    maker._sql("VACUUM ANALYZE")


def load_mongodb(maker: Any, runs: int) -> None:
    """Write runs into a MongoDB store."""
    hand = maker.hand

    def an_id(prefix: str, number: int) -> str:
        return f"{prefix}{number:024x}"

    def organization(number: int) -> str:
        return ("default", "acme", "beta")[number % 3]

    common = {"created_at": 0, "updated_at": 0, "created_by": "x", "state": "ENABLED", "version": 1}
    hand.insert("organizations", *({"_id": name, "display_name": name, "created_at": 0, "state": "ACTIVE"} for name in ("acme", "beta")))
    names = range(1, SCHEDULES + 1)
    template = {"kind": "python", "defaults": "{}", "overrides": "{}", **common}
    hand.insert("templates", *({"_id": an_id("aaaaaaaa", i), "name": f"type_{i}", "job_type": f"type_{i}", **template} for i in names))
    schedule = {"kind": "EVERY", "interval_us": 60_000_000, "cursor_at": 0, "timezone": "UTC", "catch_up": "last", "overlap": "skip"}
    schedule |= {"on_completion": "PRESERVE", **common}
    hand.insert(
        "schedules",
        *(
            {"_id": an_id("bbbbbbbb", i), "row_id": i, "organization_id": organization(i), "template_id": an_id("aaaaaaaa", i)}
            | {"name": f"job_{i}", **schedule}
            for i in names
        ),
    )
    for first in range(1, runs + 1, 10_000):
        numbers = range(first, min(first + 10_000, runs + 1))
        hand.insert("job_facts", *(_facts(i, an_id, organization) for i in numbers))
        hand.insert("job_ends", *(_end(i, an_id) for i in numbers))
        notes = ({"_id": i, "result": '{"rows": 3}'} | ({"error": "ValueError: no"} if i % 50 == 0 else {}) for i in numbers)
        hand.insert("run_notes", *notes)
    hand.update("counters", {"_id": "job_numbers"}, value=runs)


def _facts(i: int, an_id: Any, organization: Any) -> dict[str, Any]:
    place, at = i % 500 + 1, START_US + i * STEP_US
    ids = {"job_id": an_id("cccccccc", i), "root_id": an_id("cccccccc", i), "template_id": an_id("aaaaaaaa", place)}
    counts = {"attempt": 1, "failures": 0, "crashes": 0, "snoozes": 0, "max_retries": 3, "max_crashes": 3, "timeout": 300.0}
    words = {"origin": "schedule", "owner": f"user{i % 7}", "backoff": "[60,2,86400,0]", "executor": "thread", "params": "{}"}
    whose = {"organization_id": organization(place), "job_type": f"type_{place}", "schedule_id": an_id("bbbbbbbb", place)}
    return {"_id": i, "due_at": at, "created_at": at, **ids, **whose, **counts, **words}


def _end(i: int, an_id: Any) -> dict[str, Any]:
    at = START_US + i * STEP_US
    status = "DEAD_LETTER" if i % 50 == 0 else "CANCELLED" if i % 37 == 0 else "COMPLETED"
    moments = {"created_at": at, "run_at": at, "queued_at": at, "started_at": at + 1000, "finished_at": at + 1000 + i % 977 * 5000}
    ids = {"worker_id": "d" * 32, "run_id": an_id("eeeeeeee", i)}
    return {"_id": i, "job_type": f"type_{i % 500 + 1}", "status": status, "priority": 50, "position": i, **moments, **ids}
