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
        x'dddddddddddddddddddddddddddddddd', {_blob("'bbbbbbbb'", "(i % 500 + 1)")}, {START_US} + i * {STEP_US}, 'user' || i % 7, 3, 3, 300,
        'thread', '[60,2,86400,0]', '{{}}' FROM n""",
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
