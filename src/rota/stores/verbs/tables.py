"""Every table in the form that all stores share: what a copy of a store consists of.

A job is one row here, and its run another, as on SQLite and in PostgreSQL's views; how a dialect keeps them is the dialect's
matter. Counters that belong to one store alone (its schema version, for one) are no part of it; the highest number ever given to a
job is, as the counter `numbers`. A test compares this list with the schemas of all dialects.
"""

from __future__ import annotations

from rota.ports.copying import Column, Kind, Table


def _table(name: str, key: str, **columns: str) -> Table:
    kinds = {column: Kind(kind) for kind, names in columns.items() for column in names.split()}
    return Table(name, tuple(Column(column, kind) for column, kind in kinds.items()), tuple(key.split()))


META = _table("meta", "key", text="key", whole="value")

JOBS = _table(
    "jobs",
    "number",
    id="job_id template_id root_id retry_of schedule_id group_id worker_id",
    digest="job_hash",
    whole="number attempt failures crashes snoozes blockers priority position run_at expires_at due_at sequence_number max_retries"
    " max_crashes created_at queued_at started_at finished_at cancel_requested_at lane",
    real="timeout",
    text="organization_id job_type origin status held unique_key params owner run_as backoff executor target_node shard meta tags"
    " cancel_requested_by ended_by reason error_type",
)

RUNS = _table(
    "job_runs",
    "job_number",
    id="run_id template_id",
    whole="job_number started_at finished_at exit_code rows_affected progress",
    text="status error error_type error_code traceback result result_message output_reference artifacts log_path progress_message"
    " checkpoint",
)

# In this order: those first that others refer to.
TABLES: tuple[Table, ...] = (
    META,
    _table(
        "organizations",
        "organization_id",
        text="organization_id display_name state",
        whole="max_running max_queued max_priority created_at signs",
    ),
    _table("users", "name", id="user_id", text="name organization_id role permissions state created_by", whole="created_at updated_at"),
    _table("roles", "role_id", id="role_id", text="organization_id name created_by", whole="created_at"),
    _table(
        "grants",
        "grant_id",
        id="grant_id",
        text="organization_id grantee_kind grantee privilege target_kind target_id granted_by",
        whole="grant_option granted_at",
    ),
    _table(
        "connections",
        "connection_id",
        id="connection_id",
        text="organization_id name url login secret created_by",
        whole="multi version created_at updated_at",
    ),
    _table(
        "templates",
        "template_id",
        id="template_id",
        text="organization_id name display_name description kind job_type body default_params defaults overrides state requires_permission"
        " job_class partition_strategy partition_shard partition_expression run_as created_by",
        whole="max_running concurrency rate_limit rate_window submit_limit submit_window queue_ttl payload_max dedup_window version"
        " created_at updated_at dropped_at",
    ),
    _table("adhoc_types", "job_type", text="job_type handler created_by", whole="created_at"),
    _table(
        "tokens",
        "token_id",
        id="token_id",
        digest="hash",
        text="name user_name permits created_by",
        whole="created_at expires_at revoked_at last_used_at",
    ),
    _table("sessions", "hash", digest="hash", id="token_id", whole="created_at expires_at ended_at"),
    _table("calendars", "organization_id name", text="organization_id name description days created_by", whole="created_at updated_at"),
    _table(
        "schedules",
        "schedule_id",
        id="schedule_id template_id",
        text="organization_id name description kind cron_expression timezone state param_overrides catch_up overlap calendar on_completion"
        " depends_on run_as open_fate declared created_by",
        whole="at interval_us starts_at ends_at priority catch_up_lateness catch_up_count jitter cursor_at last_triggered_at"
        " next_trigger_at ahead_at told_from told_until open_due_at version created_at updated_at dropped_at purging",
    ),
    _table(
        "secrets",
        "secret_id",
        id="secret_id schedule_id",
        digest="wrapped body",
        text="organization_id name key_id created_by",
        whole="version created_at updated_at last_used_at",
    ),
    _table(
        "template_versions",
        "template_id version",
        id="template_id schedule_id",
        text="kind job_type body defaults created_by",
        whole="version created_at",
    ),
    _table(
        "occurrences",
        "schedule_id due_at fate",
        id="schedule_id job_id",
        whole="due_at last_due_at count recorded_at",
        text="fate reason",
    ),
    _table(
        "occurrences_told",
        "schedule_id due_at fate",
        id="schedule_id",
        whole="due_at last_due_at count recorded_at",
        text="fate reason",
    ),
    _table(
        "schedule_reports",
        "report_id",
        id="schedule_id",
        whole="report_id due_at last_due_at count created_at",
        text="event organization_id outcome phase reason",
    ),
    _table("job_groups", "group_id", id="group_id", text="organization_id name mode on_failure created_by", whole="created_at passed"),
    _table("lanes", "lane", whole="lane", text="job_type queue digest"),
    _table("param_digests", "job_type digest", text="job_type digest names schema", whole="recorded_at"),
    _table(
        "workers",
        "worker_id",
        id="worker_id",
        text="host kind job_types queues digests rota_version",
        whole="beat started_at stopping_at ended_at slots pid memory",
    ),
    JOBS,
    RUNS,
    _table("run_logs", "run_id start", id="run_id", whole="start job_number at", digest="data"),
    _table("job_edges", "child parent_root", id="parent_root", whole="child resolved_at until place", text="needs on_failure source"),
    _table("ended_roots", "root_id", id="root_id", text="status"),
    _table(
        "direct_reservations",
        "reservation_id",
        id="reservation_id job_id worker_id",
        text="reserved_by status",
        whole="reserved_at expires_at job_number released_at",
    ),
    _table("dedup", "organization_id template_id hash", id="template_id job_id", digest="hash", text="organization_id", whole="expires_at"),
    _table("rate_log", "key at", text="key", whole="at count"),
    _table(
        "audit",
        "audit_id",
        id="job_uuid job_run_uuid",
        whole="audit_id at",
        text="actor organization_id action subject subject_id before after outcome",
    ),
    _table("settings", "name", text="name value set_by", whole="set_at"),
    _table(
        "outbox",
        "outbox_id",
        id="job_id run_id schedule_id endpoint_id",
        whole="outbox_id attempts next_attempt_at created_at delivered_at last_status last_attempt_at gave_up_at",
        text="event message_key target payload last_error organization_id lane",
    ),
    _table(
        "endpoints",
        "endpoint_id",
        id="endpoint_id root_id",
        text="organization_id url description events job_types state reason last_error created_by",
        whole="with_result failing_since last_status version created_at updated_at dropped_at",
    ),
    _table("hook_secrets", "owner", text="owner secret previous", whole="created_at previous_until"),
    _table(
        "stats_hourly",
        "hour organization_id job_type status bucket",
        whole="hour bucket count total_us",
        text="organization_id job_type status",
    ),
    _table(
        "stats_minutely",
        "minute organization_id job_type status bucket",
        whole="minute bucket count total_us",
        text="organization_id job_type status",
    ),
    _table("stats_total", "organization_id job_type status", text="organization_id job_type status", whole="count"),
    _table("pauses", "kind name", text="kind name paused_by", whole="paused_at"),
    _table("queue_clock", "priority", whole="priority position"),
)
