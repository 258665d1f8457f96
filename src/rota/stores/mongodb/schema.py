"""The collections of a store and their indexes: the tables and keys of the other stores, as MongoDB has them.

A document has the columns of a row of the PostgreSQL store, with these rules:

- a column that is NULL is not in the document. A filter `{"column": None}` finds it, and an index has null for it;
- the key of a collection is its `_id`: `KEYS` names the column. A key of several columns is a unique index, and `_id` is the driver's own;
- an id is hexadecimal text, a moment a number of microseconds, a flag 0 or 1, a digest bytes, JSON is text;
- a number that rows are counted with (of jobs, of audit entries) comes from a counter in `counters`, which is written before the
  transaction with no wait for a majority: a document that survives a failover implies that the count before it survived.
"""

from __future__ import annotations

from typing import Any, NamedTuple

VERSION = 1
"""The version of this schema, in `meta` under `schema`."""

KEYS = {
    "adhoc_types": "job_type",
    "audit": "audit_id",
    "connections": "connection_id",
    "direct_reservations": "reservation_id",
    "ended_roots": "root_id",
    "endpoints": "endpoint_id",
    "grants": "grant_id",
    "hook_secrets": "owner",
    "job_ends": "number",
    "job_facts": "number",
    "job_groups": "group_id",
    "job_live": "number",
    "lanes": "lane",
    "meta": "key",
    "organizations": "organization_id",
    "outbox": "outbox_id",
    "queue_clock": "priority",
    "roles": "role_id",
    "run_notes": "job_number",
    "schedule_reports": "report_id",
    "schedules": "schedule_id",
    "secrets": "secret_id",
    "sessions": "hash",
    "settings": "name",
    "templates": "template_id",
    "tokens": "token_id",
    "users": "name",
    "workers": "worker_id",
}
"""The column that is `_id`, by collection."""

OF_SEVERAL = {
    "calendars": ("organization_id", "name"),
    "dedup": ("organization_id", "template_id", "hash"),
    "figures": ("kind", "at", "organization_id", "job_type", "status", "bucket"),
    "job_edges": ("child", "parent_root"),
    "occurrences": ("schedule_id", "due_at", "fate"),
    "occurrences_told": ("schedule_id", "due_at", "fate"),
    "param_digests": ("job_type", "digest"),
    "pauses": ("kind", "name"),
    "rate_log": ("key", "at"),
    "run_logs": ("run_id", "start"),
    "template_versions": ("template_id", "version"),
}
"""The columns of keys that are a unique index, by collection."""

FIGURES = {"stats_hourly": "hour", "stats_minutely": "minute", "stats_total": "total"}
"""Tables whose rows are all in `figures`, so that one command counts into them, and the kind of their documents there.

The column of that name is `at`; it is 0 for totals.
"""

WHEEL, STRIPES = "wheel", 16
"""The document of `locks` that turns write, and the number of those of which an enqueue writes one: see `transaction`."""

DOORS = tuple(f"door_{stripe}" for stripe in range(STRIPES))
GUESTS = tuple(f"guest_{stripe}" for stripe in range(STRIPES))
LOCKS = (WHEEL, *DOORS, *GUESTS)
BELLS = ("bell", *GUESTS)
"""The documents of `bell`: what is written is a hint for other processes. A guest writes its own, so that its commit gives the hint."""
COUNTERS = ("job_numbers", "audit", "outbox", "lanes", "schedules", "schedule_reports")

META = {
    "definitions_version": 1,
    "late_results": 0,
    "recovered_at": 0,
    "clock": 0,
    "tzdata": 0,
    "pulse_at": 0,
    "retention_clock": 0,
}
"""The rows of `meta` in a new store."""

COLLECTIONS = (*KEYS, *OF_SEVERAL, "locks", "counters", "bell")


class Index(NamedTuple):
    """One index: its columns in order, of which documents, and whether a value may be there once only."""

    collection: str
    name: str
    columns: tuple[str, ...]
    """A column that begins with `-` descends."""
    only: dict[str, Any] | None = None
    unique: bool = False

    def keys(self) -> list[tuple[str, int]]:
        """Return the columns as the driver takes them."""
        return [(column.removeprefix("-"), -1 if column.startswith("-") else 1) for column in self.columns]

    def options(self) -> dict[str, Any]:
        """Return the options as the driver takes them."""
        options: dict[str, Any] = {"name": self.name}
        if self.unique:
            options["unique"] = True
        if self.only is not None:
            options["partialFilterExpression"] = self.only
        return options


THERE = {"$exists": True}
QUEUED, PENDING, RUNNING = {"status": "QUEUED"}, {"status": "PENDING"}, {"status": "RUNNING"}
ORDER = ("-priority", "position", "created_at", "job_id")
UNHAPPY = ("FAILED", "TIMED_OUT", "DEAD_LETTER", "SKIPPED", "CANCELLED")
LIVING = {"dropped_at": None}
IN_SQL = {"kind": {"$in": ["external", "procedure", "sql"]}}
"""Templates that are SQL, a procedure or a command: all but those in Python."""
OPEN = {"over_at": 0}
"""Messages that are neither delivered nor given up: see `outbox_lanes`."""
IN_USE = {"state": {"$in": ["ENABLED", "PAUSED"]}}
"""Schedules that have due times: those that are not disabled, as an index can say it."""
UNFIRED = {
    "fate": {
        "$in": [
            "COALESCED",
            "MISSED",
            "REFUSED",
            "SKIPPED_CALENDAR",
            "SKIPPED_DEPENDENCY",
            "SKIPPED_DST_GAP",
            "SKIPPED_OVERLAP",
            "SKIPPED_PAUSED",
        ]
    }
}
"""Due times that did not become a job, as an index can say it."""

INDEXES = (
    *(Index(collection, f"{collection}_key", columns, unique=True) for collection, columns in OF_SEVERAL.items()),
    # ---- jobs: a plain one is in job_id, live_ready, live_tail while it waits, live_running while it runs, ends_finished when it is over
    Index("job_facts", "facts_id", ("job_id",), unique=True),
    Index("job_facts", "facts_retry", ("retry_of",), {"retry_of": THERE}, unique=True),
    Index("job_facts", "facts_chain", ("root_id", "attempt"), {"attempt": {"$gt": 1}}),
    Index("job_facts", "facts_group", ("group_id", "sequence_number"), {"group_id": THERE}),
    Index(
        "job_facts",
        "facts_org",
        ("organization_id", "_id"),
        {"$or": [{"organization_id": {"$lt": "default"}}, {"organization_id": {"$gt": "default"}}]},
    ),
    Index("job_facts", "facts_occurrence", ("schedule_id", "due_at", "attempt"), {"schedule_id": THERE, "due_at": THERE}, unique=True),
    Index("job_facts", "facts_by_hand", ("schedule_id", "attempt", "_id"), {"schedule_id": THERE, "due_at": None}),
    Index("job_facts", "facts_schedule", ("schedule_id", "_id"), {"schedule_id": THERE}),
    Index("job_live", "live_ready", ("lane", *ORDER), {**QUEUED, "held": None}),
    Index("job_live", "live_tail", ("priority", "organization_id", "position"), QUEUED),
    # Only QUEUED jobs are held. Without the status as a condition the index alone tells which words there are, with no look at a document.
    Index("job_live", "live_held", ("held", "job_type", *ORDER), {"held": THERE}),
    Index("job_live", "live_due", ("priority", "run_at", "_id"), {**PENDING, "blockers": 0}),
    Index("job_live", "live_blocked", ("organization_id",), {**PENDING, "blockers": {"$gt": 0}}),
    Index("job_live", "live_running", ("worker_id", "job_type", "organization_id"), RUNNING),
    Index("job_live", "live_expiring", ("expires_at",), {"expires_at": THERE, "started_at": None}),
    Index("job_live", "live_chain", ("root_id",), {"attempt": {"$gt": 1}}, unique=True),
    Index("job_live", "live_unique", ("organization_id", "job_type", "unique_key"), {"unique_key": THERE}, unique=True),
    Index("job_live", "live_schedule", ("schedule_id",), {"schedule_id": THERE}),
    Index("job_live", "live_put_off", ("position",), {**PENDING, "position": {"$lt": 0}}),
    Index("job_live", "live_stray", ("job_type",), {"lane": None}),
    Index("job_ends", "ends_finished", ("job_type", "finished_at", "created_at", "_id")),
    Index("job_ends", "ends_failed", ("finished_at",), {"status": {"$in": ["FAILED", "TIMED_OUT"]}}),
    Index("job_ends", "ends_unhappy", ("status", "_id"), {"status": {"$in": list(UNHAPPY)}}),
    Index("job_ends", "ends_clock_back", ("started_at",), {"clock_back": 1}),
    Index("job_edges", "edges_of_parent", ("parent_root",)),
    Index("job_edges", "edges_open", ("parent_root", "needs", "on_failure", "child"), {"resolved_at": None}),
    Index("job_edges", "edges_until", ("until",), {"resolved_at": None, "until": THERE}),
    Index("direct_reservations", "reservations_active", ("status",), {"status": "ACTIVE"}, unique=True),
    Index("dedup", "dedup_expired", ("expires_at",)),
    Index("workers", "workers_live", ("ended_at",), {"ended_at": None}),
    Index("lanes", "lanes_key", ("job_type", "queue", "digest"), unique=True),
    # ---- definitions
    Index("templates", "templates_name", ("organization_id", "name"), LIVING, unique=True),
    Index("templates", "templates_of_sql", ("kind",), IN_SQL),
    Index("schedules", "schedules_row", ("row_id",), unique=True),
    Index("schedules", "schedules_name", ("organization_id", "name"), LIVING, unique=True),
    Index("schedules", "schedules_due", ("next_trigger_at", "row_id"), LIVING),
    Index("schedules", "schedules_called", ("name",)),
    Index("schedules", "schedules_template", ("template_id",)),
    Index("schedules", "schedules_dropped", ("dropped_at",), {"dropped_at": THERE}),
    Index("schedules", "schedules_depending", ("organization_id",), {"depends_on": THERE, **LIVING}),
    Index("schedules", "schedules_over", ("at",), {"at": THERE, "next_trigger_at": None, **IN_USE, **LIVING}),
    Index("schedules", "schedules_purging", ("purging",), {"purging": THERE}),
    Index("schedules", "schedules_run_as", ("organization_id", "run_as"), {"run_as": THERE, **LIVING}),
    Index("occurrences", "occurrences_time", ("due_at", "schedule_id", "fate")),
    # All rows that are a span of several due times are among these.
    Index("occurrences", "occurrences_unfired", ("last_due_at",), UNFIRED),
    Index("schedule_reports", "reports_key", ("schedule_id", "due_at", "outcome", "phase"), unique=True),
    Index("schedule_reports", "reports_time", ("created_at",)),
    # ---- people
    Index("users", "users_id", ("user_id",), {"user_id": THERE}, unique=True),
    Index("tokens", "tokens_hash", ("hash",), unique=True),
    Index("sessions", "sessions_token", ("token_id",)),
    Index("sessions", "sessions_expired", ("expires_at",)),
    Index("roles", "roles_name", ("organization_id", "name"), unique=True),
    Index(
        "grants",
        "grants_once",
        ("organization_id", "grantee_kind", "grantee", "privilege", "target_kind", "target_id", "granted_by"),
        unique=True,
    ),
    Index("grants", "grants_on", ("target_kind", "target_id"), {"target_id": THERE}),
    Index("connections", "connections_name", ("organization_id", "name"), unique=True),
    Index("secrets", "secrets_of_organization", ("organization_id", "name"), {"schedule_id": None}, unique=True),
    Index("secrets", "secrets_of_job", ("schedule_id", "name"), {"schedule_id": THERE}, unique=True),
    Index("secrets", "secrets_by_key", ("key_id", "_id")),
    Index("audit", "audit_subject", ("subject", "subject_id", "_id")),
    Index("audit", "audit_action", ("action", "_id")),
    Index("audit", "audit_job", ("job_uuid", "_id"), {"job_uuid": THERE}),
    # ---- webhooks
    Index("endpoints", "endpoints_open", ("organization_id", "root_id"), {"state": "ENABLED", **LIVING}),
    Index("endpoints", "endpoints_root", ("root_id",), {"root_id": THERE}),
    # Those of organizations, among any number of those of single jobs.
    Index("endpoints", "endpoints_shared", ("organization_id",), {"root_id": None, **LIVING}),
    Index("endpoints", "endpoints_failing", ("failing_since",), {"failing_since": THERE}),
    Index("outbox", "outbox_job", ("job_id",), {"job_id": THERE}),
    # `over_at`, a column of this store alone, is when a message was delivered or given up, and 0 before. A number that is always there
    # lets the server hop from lane to lane by the index; with a column that may be missing, it reads every open message.
    Index("outbox", "outbox_due", ("next_attempt_at",), OPEN),
    Index("outbox", "outbox_lanes", ("over_at", "lane", "next_attempt_at"), OPEN),
    Index("outbox", "outbox_over", ("over_at",), {"over_at": {"$gt": 0}}),
    Index("outbox", "outbox_endpoint", ("endpoint_id", "_id")),
    Index("outbox", "outbox_organization", ("organization_id", "_id")),
)

ABSENT = {"started_at": None, "run_id": None}
PRESENT = {"$ne": None}
ENDS = ("COMPLETED", *UNHAPPY)
RULES: dict[str, dict[str, Any]] = {
    "job_facts": {
        **{column: {"$gte": 0} for column in ("failures", "crashes", "snoozes", "max_retries", "timeout")},
        **{column: {"$gte": 1} for column in ("attempt", "max_crashes")},
        "origin": {"$in": ["api", "direct", "schedule", "group"]},
    },
    "job_live": {
        "priority": {"$gte": 0, "$lte": 100},
        "blockers": {"$gte": 0},
        "$or": [
            {**PENDING, **ABSENT, "held": None},
            {**QUEUED, **ABSENT, "queued_at": PRESENT, "blockers": 0},
            {**RUNNING, "started_at": PRESENT, "run_id": PRESENT, "worker_id": PRESENT},
        ],
    },
    "job_ends": {
        "finished_at": PRESENT,
        "$or": [
            {"status": {"$in": list(ENDS)}, "started_at": PRESENT, "run_id": PRESENT},
            {"status": {"$in": ["SKIPPED", "CANCELLED"]}, **ABSENT},
        ],
    },
    "job_edges": {
        "needs": {"$in": ["success", "end"]},
        "on_failure": {"$in": ["wait", "skip", "cancel"]},
        "source": {"$in": ["user", "group", "overlap", "schedule"]},
    },
    "direct_reservations": {"status": {"$in": ["ACTIVE", "RELEASED", "EXPIRED"]}},
}
"""What every document of a collection must match: the server refuses others, whichever program writes them.

A rule sees the new document alone, so it can't refuse a move. These cost a drain nothing that can be measured.
"""


def collection_options(collection: str) -> dict[str, Any]:
    """Return how a collection is created."""
    return {"validator": RULES[collection]} if collection in RULES else {}
