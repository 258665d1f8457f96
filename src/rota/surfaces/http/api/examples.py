"""The values that the API takes and gives, each with an example: what the OpenAPI document shows of them."""

from __future__ import annotations

from typing import Any

from rota.engine.explain import Explanation, Reason
from rota.engine.recovery import Recovered
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry
from rota.lab.forecasts import ForecastItem, Problem, SchedulePlan, Verified, ZoneChange
from rota.model import overview, values
from rota.model.access import Token
from rota.model.backoff import StrictBackoff
from rota.model.dead_letters import DeadLetterGroup, DeadLetterGroups
from rota.model.definitions import Organization, User
from rota.model.dependencies import Dependency, Graph
from rota.model.figures import Stats, TypeStats
from rota.model.findings import Finding
from rota.model.grants import CustomRole, Grant
from rota.model.groups import Follower, Group, Member
from rota.model.lanes import QueueInfo
from rota.model.schedules import Calendar
from rota.model.webhooks import Delivery, Webhook
from rota.resources.stored_settings import SettingView
from rota.resources.tokens import NewToken
from rota.resources.webhooks import NewWebhook, Tested
from rota.results import Acted
from rota.schedule_views import OverdueView, ScheduleView
from rota.surfaces.http.api.jobs import NEW_JOB, BulkJobIn, DirectIn, NewGroupIn, NewJobIn, Taken
from rota.surfaces.http.api.results import ForecastAnswer, HourDensity, NewSecret, Occurrence, Paused, Removed
from rota.surfaces.http.api.sql import SqlIn, SqlNotice, SqlOut, SqlResult
from rota.surfaces.http.api.verbs import LogOut, ProcessHealth, RetentionStatus, SchedulerStatus, StoreHealth
from rota.template_views import TemplateView

AT, SOON, DUE = "2026-03-01T09:00:00Z", "2026-03-01T09:10:00Z", "2026-03-02T08:00:00Z"
ID = "01980c5e-7a10-7000-8000-000000000001"
JOB_ID, RUN_ID, GROUP_ID = (f"019c8a5e-7a00-7{n}-8000-00000000002a" for n in ("000", "001", "002"))

JOB: dict[str, Any] = {
    "id": JOB_ID,
    "number": "JOB-2026-00042",
    "status": "QUEUED",
    "job_type": "send_email",
    "organization": "default",
    "priority": 50,
    "position": 100,
    "attempt": 1,
    "root_id": JOB_ID,
    "created_at": AT,
    "params": {"to": "ada@example.com"},
    "owner": "ada",
    "run_at": AT,
    "queued_at": AT,
    "max_retries": 5,
    "timeout": 300.0,
}
RUN: dict[str, Any] = {
    "id": RUN_ID,
    "job_id": JOB_ID,
    "started_at": AT,
    "status": "COMPLETED",
    "params": {"to": "ada@example.com"},
    "finished_at": "2026-03-01T09:00:01Z",
    "result": {"sent": 1},
    "progress": 100,
}
ENTRY = {"at": AT, "attempt": 1, "message": "", "from_status": None, "to_status": "QUEUED", "actor": "ada", "level": None}
NOTICE = {"message": "the run had not ended after 5 s; it continues", "sqlstate": "01000"}
SQL_RESULT = {"tag": "SELECT 1", "columns": ["state", "runs"], "rows": [["COMPLETED", 42]], "notices": [], "truncated": False}
MEMBER = {
    "sequence_number": 1,
    "root_id": JOB_ID,
    "number": "JOB-2026-00042",
    "job_type": "send_email",
    "status": "QUEUED",
    "attempt": 1,
    "started": False,
}
EDGE = {"child": JOB_ID, "parent": RUN_ID, "needs": "success", "on_failure": "wait", "source": "user", "resolved_at": None}
FOLLOWER = {"root_id": JOB_ID, "number": "JOB-2026-00043", "job_type": "report", "status": "PENDING", "on_parent_failure": "wait"}
REASON = {"condition": "what it waits for has ended", "met": False, "detail": "waits for JOB-2026-00041 (RUNNING)"}
TEMPLATE: dict[str, Any] = {
    "name": "send_email",
    "state": "ENABLED",
    "version": 3,
    "display_name": "send_email",
    "description": None,
    "handler": "shop.mail:send_email",
    "handled_here": False,
    "executor": "thread",
    "priority": 50,
    "timeout": 300.0,
    "max_retries": 5,
    "max_crashes": 3,
    "backoff": {"base": 60.0, "factor": 2.0, "cap": 86400.0, "jitter": 0.2},
    "queue": "default",
    "queue_ttl": None,
    "payload_max": 1048576,
    "dedup_window": None,
    "requires_permission": None,
    "max_running": 4,
    "concurrency": None,
    "rate_limit": {"count": 100, "seconds": 60.0},
    "submit_limit": None,
    "default_params": None,
    "sources": {"handler": "code", "max_running": "people", "timeout": "setting"},
    "created_at": AT,
    "updated_at": AT,
}
SCHEDULE: dict[str, Any] = {
    "id": ID,
    "name": "daily",
    "organization": "acme",
    "template": "send_email",
    "kind": "CRON",
    "words": "at 09:00 (Europe/Berlin)",
    "state": "ENABLED",
    "cron": "0 9 * * *",
    "at": None,
    "every": None,
    "timezone": "Europe/Berlin",
    "starts": None,
    "ends": None,
    "params": {"to": "a@b.c"},
    "priority": None,
    "catch_up": "last",
    "catch_up_lateness": None,
    "catch_up_count": None,
    "overlap": "skip",
    "jitter": 0.0,
    "calendar": "holidays",
    "on_completion": "PRESERVE",
    "depends_on": [],
    "run_as": None,
    "description": None,
    "next_at": DUE,
    "last_at": "2026-03-01T08:00:00Z",
    "cursor_at": AT,
    "declared": False,
    "version": 3,
    "created_by": "ada",
    "created_at": AT,
    "updated_at": AT,
}
OCCURRENCE: dict[str, Any] = {
    "schedule": "daily",
    "organization": "acme",
    "due_at": DUE,
    "last_due_at": DUE,
    "count": 1,
    "fate": "FIRED",
    "reason": None,
    "job_id": ID,
    "status": "COMPLETED",
    "ran": True,
    "recorded_at": DUE,
}
ITEM: dict[str, Any] = {
    "schedule": "daily",
    "organization": "acme",
    "template": "send_email",
    "due_at": DUE,
    "fate": "FIRED",
    "note": None,
    "starts_at": DUE,
    "wait_s": 0.0,
}
CHANGE: dict[str, Any] = {
    "at": "2026-03-29T01:00:00Z",
    "timezone": "Europe/Berlin",
    "before": "UTC+1",
    "after": "UTC+2",
    "schedules": ["daily"],
}
DENSITY = {"hour": DUE, "count": 1}
TYPE: dict[str, Any] = {"job_type": "send_email", "completed": 998, "failed": 2, "failure_rate": 0.002, "average_s": 0.4, "p95_s": 1.1}
TOKEN: dict[str, Any] = {
    "id": ID,
    "name": "ci",
    "user": "ada",
    "permits": ["read", "submit"],
    "created_by": "root",
    "created_at": AT,
    **dict.fromkeys(("expires_at", "revoked_at", "last_used_at")),
}
PROBLEM = {"schedule": "daily", "due_at": DUE, "what": "has no fate"}

OVERDUE = {
    "schedule": "daily",
    "organization": "acme",
    "due_at": AT,
    "last_due_at": DUE,
    "count": 2,
    "expected": 2,
    "bounded": False,
    "reason": "no outcome is recorded: start a worker, which records 1 COALESCED and 1 FIRED",
}
WEBHOOK: dict[str, Any] = {
    "id": ID,
    "organization": "acme",
    "url": "https://example.com/hooks",
    "events": ["run.dead_lettered"],
    "job_types": [],
    "job": None,
    "with_result": False,
    "description": "alerts the person on call",
    "state": "ENABLED",
    **dict.fromkeys(("reason", "failing_since", "last_status", "last_error")),
    "version": 1,
    "created_by": "ada",
    "created_at": AT,
    "updated_at": AT,
}
EXAMPLE = {"id": "019ca8a1-2c00-7000-8000-00000000002a", "number": "JOB-2026-00042", "job_type": "send_email"}
CONCERN = {"level": "watch", "what": "1 job was dead-lettered in the last hour", "remedy": "`rota dead list` says why"}
HEALTH = {"level": "watch", "sentence": "1 job was dead-lettered in the last hour.", "concerns": [CONCERN]}
COUNTS = {
    "pending": 3,
    "queued": 12,
    "running": 1,
    "claimed_ahead": 0,
    "more": False,
    "completed": 1204,
    "failed": 2,
    "dead": 1,
    "hours": 24,
    "workers": 2,
}
DEAD_GROUP = {
    "job_type": "send_email",
    "error_type": "transient",
    "message": "SMTPRecipientsRefused: mailbox … is full",
    "count": 12,
    "first_at": AT,
    "last_at": SOON,
    "example": EXAMPLE,
    "error": "SMTPRecipientsRefused: mailbox 'ada@example.com' is full",
}
NOT_RUN = {
    "kind": "job",
    "name": "send_email",
    "organization": "default",
    "fate": "DEAD_LETTER",
    "count": 1,
    "first_at": AT,
    "last_at": AT,
    "reason": "ValueError: no such address",
    "more": False,
    "planned": False,
    "example": EXAMPLE,
}
STUCK = {
    "why": "limit",
    "words": "2 of at most 2 send_email jobs run",
    "count": 12,
    "more": False,
    "oldest_s": 420.0,
    "example": EXAMPLE,
    "job_type": None,
}
CURRENT = {
    "id": EXAMPLE["id"],
    "number": EXAMPLE["number"],
    "job_type": "send_email",
    "organization": "default",
    "attempt": 1,
    "started_at": AT,
    "elapsed_s": 3.4,
    "progress": 40,
    "message": "page 4 of 10",
    "usual_s": 8.0,
    "long_s": 12.5,
    "timeout_s": 300.0,
    "stopping": False,
    "slow": False,
}
COMING = {"schedule": "report", "organization": "default", "template": "make_report", "due_at": SOON, "note": None, "more": 0}
HOUR = {"begins_at": AT, "count": 6}
CLOCK_CHANGE = {**CHANGE, "schedules": ["report"]}
AHEAD = {
    "start": AT,
    "end": "2026-03-02T09:00:00Z",
    "items": [COMING],
    "hours": [HOUR],
    "count": 144,
    "more": False,
    "changes": [CLOCK_CHANGE],
}
RUNNING = {"jobs": [CURRENT], "count": 1, "more": False, "claimed_ahead": 0}

SHAPES: dict[type, Any] = {
    values.Job: JOB,
    values.Run: RUN,
    values.LogEntry: ENTRY,
    Member: MEMBER,
    Group: {
        "id": GROUP_ID,
        "name": "newsletter",
        "mode": "sequential",
        "on_failure": "stop",
        "status": "QUEUED",
        "created_at": AT,
        "members": [MEMBER],
        "organization": "default",
        "owner": "ada",
        "then": FOLLOWER,
    },
    Follower: FOLLOWER,
    Reason: REASON,
    Explanation: {"job": JOB, "summary": REASON["detail"], "reasons": [REASON]},
    Dependency: EDGE,
    Graph: {"root_id": JOB_ID, "jobs": {JOB_ID: JOB}, "edges": [EDGE], "cut": False},
    BackgroundJob: {
        "naming_series": "JOB-.YYYY.-",
        "name": "JOB-2026-00042",
        "job_type": "send_email",
        "organization": "default",
        "owner_user": "ada",
        "status": "Queued",
        "priority": "Normal",
        "progress": 0,
        "progress_message": None,
        "input_parameters": {"to": "ada@example.com"},
        **dict.fromkeys(("output_reference", "error_message", "error_type")),
        "retry_count": 0,
        "max_retries": 5,
        **dict.fromkeys(("next_retry_at", "depends_on", "job_hash")),
        "timeout_seconds": 300,
        "created_at": AT,
        **dict.fromkeys(("started_at", "completed_at", "canceled_at", "canceled_by")),
    },
    ExecutionLogEntry: {
        "background_job": "JOB-2026-00042",
        "from_status": None,
        "to_status": "Queued",
        "timestamp": AT,
        "actor": "ada",
        "message": None,
        "retry_attempt": None,
    },
    StrictBackoff: {"base": 60.0, "factor": 2.0},
    BulkJobIn: NEW_JOB,
    NewJobIn: NEW_JOB,
    NewGroupIn: {"jobs": [NEW_JOB, "JOB-2026-00042"], "mode": "sequential"},
    DirectIn: {**NEW_JOB, "timeout": 5},
    SqlIn: {"sql": "SELECT state, count(*) AS runs FROM sys.job_runs WHERE state = :state", "params": {"state": "COMPLETED"}},
    SqlNotice: NOTICE,
    SqlResult: SQL_RESULT,
    SqlOut: {"results": [SQL_RESULT]},
    Acted: {"done": 1000, "left": 250, "more": False},
    DeadLetterGroup: DEAD_GROUP,
    DeadLetterGroups: {"groups": [DEAD_GROUP], "count": 12, "more": False},
    Taken: {"accepted": 2, "existing": 0, "ids": [JOB_ID, RUN_ID]},
    LogOut: {"items": [ENTRY], "cut": False},
    TemplateView: TEMPLATE,
    ScheduleView: SCHEDULE,
    Occurrence: OCCURRENCE,
    ForecastItem: ITEM,
    ZoneChange: CHANGE,
    HourDensity: DENSITY,
    ForecastAnswer: {
        "items": [ITEM],
        "start": AT,
        "end": DUE,
        "cut": False,
        "exact_until": None,
        "changes": [CHANGE],
        "density": [DENSITY],
    },
    SchedulePlan: {
        "schedule": "daily",
        "start": AT,
        "end": "2026-03-03T09:00:00Z",
        "added": ["2026-03-02T07:00:00Z"],
        "removed": [DUE],
        "kept": 0,
        "words_before": "at 09:00 (Europe/Berlin)",
        "words_after": "at 08:00 (Europe/Berlin)",
    },
    Problem: PROBLEM,
    OverdueView: OVERDUE,
    Verified: {"schedules": 1, "due": 30, "matched": 30, "problems": [], "overdue": [], "since": None, "until": AT},
    Calendar: {"name": "holidays", "days": ["2026-12-25", "2026-12-26"], "description": "public holidays"},
    Organization: {
        "name": "acme",
        "display_name": "Acme Ltd",
        "state": "ACTIVE",
        "max_running": 10,
        "max_queued": None,
        "max_priority": None,
        "created_at": AT,
    },
    CustomRole: {"id": ID, "organization": "acme", "name": "operators", "created_by": "root", "created_at": AT},
    Grant: {
        "id": ID,
        "organization": "acme",
        "grantee_kind": "USER",
        "grantee": "bob",
        "privilege": "EXECUTE",
        "target_kind": "JOB",
        "target_id": ID.replace("-", ""),
        "target": "nightly",
        "target_owner": "ada",
        "grant_option": False,
        "granted_by": "ada",
        "granted_at": AT,
    },
    SettingView: {
        "name": "scheduler.enabled",
        "value": "false",
        "source": "store",
        "setting": "schedules",
        "stored": "false",
        "set_by": "root",
        "set_at": AT,
        "notice": None,
        "what": "whether schedules fire",
    },
    User: {"id": ID, "name": "ada", "organization": "acme", "role": "admin", "permissions": [], "removed": False, "created_at": AT},
    Token: TOKEN,
    NewToken: {"token": TOKEN, "secret": "rota_" + "0123456789abcdef" * 4},
    values.WorkerInfo: {
        "id": ID,
        "host": "app-1",
        "kind": "worker",
        "beat": 42,
        "job_types": ["send_email"],
        "started_at": AT,
        "stopping_at": None,
        "ended_at": None,
        "running": 3,
        "claimed_ahead": 0,
        "slots": 8,
        "queues": None,
        "digests": {"send_email": "9f86d081884c7d65"},
        "pid": 4711,
        "version": "0.1.0",
        "memory": 58_720_256,
    },
    QueueInfo: {"name": "mail", "waiting": 12, "at_least": False, "oldest": AT, "running": 3, "workers": 1, "paused": False},
    TypeStats: TYPE,
    Stats: {
        "by_status": {"QUEUED": 12, "RUNNING": 3, "COMPLETED": 998},
        "by_priority": {"50": 12},
        "waiting_by_type": {"send_email": 12},
        "oldest_waiting_s": 1.5,
        "workers": 1,
        "late_results": 0,
        "claimed_ahead": 0,
        "hours": 24,
        "by_type": [TYPE],
        "average_s": 0.4,
        "p95_s": 1.1,
        "failure_rate": 0.002,
    },
    Paused: {"kind": "template", "name": "send_email"},
    SchedulerStatus: {"paused": False, "pauses": [{"kind": "template", "name": "send_email"}], "workers": 1, "here": True},
    RetentionStatus: {"retention_s": 2592000.0, "chains": 120, "jobs": 130, "kept": 2},
    Recovered: {"workers": 1, "jobs": 3, "successors": 3, "reservations": 0},
    values.Audited: {
        "id": 17,
        "at": AT,
        "actor": "ada",
        "organization": "acme",
        "event": "JOB_MODIFIED",
        "action": "schedule.edit",
        "outcome": "ok",
        "job_uuid": "019a6b2c-0b1d-7c31-8a55-1d2f3a4b5c6d",
        "job_run_uuid": None,
        "subject": "schedule",
        "subject_id": "daily",
        "before": {"cron": "0 9 * * *"},
        "after": {"cron": "0 8 * * *"},
    },
    Webhook: WEBHOOK,
    NewWebhook: {"webhook": WEBHOOK, "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
    NewSecret: {"secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
    Tested: {"accepted": True, "status": 204, "error": None, "took_s": 0.08},
    Delivery: {
        "id": 42,
        "webhook": ID,
        "organization": "acme",
        "event": "run.dead_lettered",
        "key": ID,
        "job": ID,
        "schedule": None,
        "url": "https://example.com/hooks",
        "state": "delivered",
        "attempts": 1,
        "next_attempt_at": None,
        "last_attempt_at": AT,
        "last_status": 200,
        "last_error": None,
        "created_at": AT,
        "delivered_at": AT,
        "gave_up_at": None,
    },
    Removed: {"chains": 12, "jobs": 14, "kept": 0},
    Finding: {"name": "workers", "state": "ok", "text": "1 worker is up", "remedy": ""},
    overview.Overview: {
        "at": AT,
        "organization": None,
        "health": HEALTH,
        "counts": COUNTS,
        "not_run": [NOT_RUN],
        "stuck": [STUCK],
        "running": RUNNING,
        "ahead": AHEAD,
        "took_ms": 12.5,
    },
    overview.Health: HEALTH,
    overview.Concern: CONCERN,
    overview.Counts: COUNTS,
    overview.NotRun: NOT_RUN,
    overview.Stuck: STUCK,
    overview.Running: RUNNING,
    overview.Current: CURRENT,
    overview.Ahead: AHEAD,
    overview.Coming: COMING,
    overview.Hour: HOUR,
    overview.ClockChange: CLOCK_CHANGE,
    overview.Example: EXAMPLE,
    ProcessHealth: {"status": "ok"},
    StoreHealth: {"status": "ok", "overdue": 0},
}
"""Every value, with an example that its description allows."""

BODIES: dict[str, dict[str, Any]] = {
    "jobs.update": {"priority": "high"},
    "jobs.move": {"front": True},
    "jobs.cancel": {"reason": "not wanted any more"},
    "jobs.cancel_all": {"status": ["QUEUED"], "job_type": "send_email", "reason": "not wanted any more"},
    "jobs.depend": {"on": ["JOB-2026-00041"]},
    "jobs.again": {"params": {"to": "ada@example.com"}},
    "dead_letters.retry": {"job_type": "send_email", "error_type": "permanent", "limit": 100},
    "dead_letters.delete": {"job_type": "send_email", "error_type": "permanent", "limit": 100},
    "schedules.create": {"name": "daily", "template": "send_email", "cron": "0 9 * * *", "timezone": "Europe/Berlin"},
    "schedules.update": {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "calendar": None},
    "plan": {"cron": "0 8 * * *", "days": 30},
    "calendars.update": {"days": ["2026-12-25", "2026-12-26"], "description": "public holidays"},
    "templates.update": {"max_running": 4, "timeout": "5m", "rate_limit": None},
    "templates.reset": {"fields": ["timeout", "max_running"]},
    "organizations.create": {"name": "acme", "display_name": "Acme Ltd", "max_running": 10},
    "organizations.update": {"max_running": 10, "max_queued": None},
    "users.create": {"name": "ada", "organization": "acme", "role": "admin"},
    "users.update": {"role": "admin"},
    "roles.create": {"name": "operators"},
    "grants.create": {"privilege": "EXECUTE", "grantee": "bob", "job": "nightly"},
    "tokens.create": {"name": "ci", "user": "ada", "permits": ["read", "submit"], "expires_in": "30d"},
    "webhooks.create": {"url": "https://example.com/hooks", "events": ["run.dead_lettered"]},
    "webhooks.update": {"enabled": False},
    "webhooks.rotate": {},
}
"""Examples of bodies, by operation; of others, the examples of their parameters are enough."""
