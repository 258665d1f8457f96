"""The values that the API of definitions and operation gives, each with an example: what the OpenAPI document shows of them."""

from __future__ import annotations

from typing import Any

from rota.engine.recovery import Recovered
from rota.lab.forecasts import ForecastItem, Problem, SchedulePlan, Verified, ZoneChange
from rota.model.access import Token
from rota.model.definitions import Organization, User
from rota.model.figures import Stats, TypeStats
from rota.model.findings import Finding
from rota.model.lanes import QueueInfo
from rota.model.schedules import Calendar
from rota.model.values import Audited, WorkerInfo
from rota.model.webhooks import Delivery, Webhook
from rota.resources.tokens import NewToken
from rota.resources.webhooks import NewWebhook, Tested
from rota.schedule_views import OverdueView, ScheduleView
from rota.surfaces.http.api import shapes
from rota.surfaces.http.api.results import ForecastAnswer, HourDensity, NewSecret, Occurrence, Paused, Removed
from rota.surfaces.http.api.scheduler import RetentionStatus, SchedulerStatus
from rota.template_views import TemplateView

AT = "2026-03-01T09:00:00Z"
DUE = "2026-03-02T08:00:00Z"
ID = "01980c5e-7a10-7000-8000-000000000001"

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
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
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
    "reason": None,
    "failing_since": None,
    "last_status": None,
    "last_error": None,
    "version": 1,
    "created_by": "ada",
    "created_at": AT,
    "updated_at": AT,
}
SHAPES: dict[type, Any] = {
    **shapes.SHAPES,
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
    User: {"name": "ada", "organization": "acme", "role": "admin", "permissions": [], "removed": False, "created_at": AT},
    Token: TOKEN,
    NewToken: {"token": TOKEN, "secret": "rota_" + "0123456789abcdef" * 4},
    WorkerInfo: {
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
    Audited: {
        "id": 17,
        "at": AT,
        "actor": "ada",
        "organization": "acme",
        "action": "schedule.edit",
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
    "tokens.create": {"name": "ci", "user": "ada", "permits": ["read", "submit"], "expires_in": "30d"},
    "webhooks.create": {"url": "https://example.com/hooks", "events": ["run.dead_lettered"]},
    "webhooks.update": {"enabled": False},
    "webhooks.rotate": {},
}
"""Examples of bodies, by operation; of others, the examples of their parameters are enough."""
