"""Tables of sys that are not scanned: settings, metrics, roles, grants, connections and secrets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from rota.model.figures import NO_RUN, percentile_s
from rota.model.grants import TargetKind
from rota.model.settings import DOCS
from rota.model.states import Status
from rota.model.urls import hide
from rota.model.values import SECOND, instant
from rota.operation import Ask
from rota.resources.connections import visible_connections
from rota.resources.grants import visible_grants
from rota.resources.measures import HOUR_US, Measures, measures
from rota.resources.roles import visible_roles
from rota.resources.secrets import job_secrets, visible_secrets
from rota.resources.stored_settings import last_read
from rota.sql.catalog import id_shown, moment_shown, ms_shown
from rota.sql.secret_commands import source_of

Row = dict[str, Any]
FAILED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})


def report(ask: Ask, name: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table."""
    make = REPORTS.get(name)
    if make is not None:
        for row in make(ask):
            yield tuple(row[column] for column in columns)


def settings_rows(ask: Ask) -> Iterator[Row]:
    """Go through the settings that hold in this process, then those that the store may keep."""
    holds = ask.registry.in_force()
    for name, doc in DOCS.items():
        value = getattr(holds.settings, name)
        shown = hide(value) if isinstance(value, str) else f"{value:.15g}"
        yield {"name": name, "value": shown, "source": str(holds.words[name]), "description": doc.what}
    for view in last_read(ask.registry):
        yield {"name": view.name, "value": view.value, "source": str(view.source), "description": view.what}


def performance_rows(ask: Ask) -> Iterator[Row]:
    """Go through the metrics, from the same look as /metrics."""
    look = measures(ask, since=ask.now - ask.settings.stats_hours * HOUR_US)
    values = [*_of_jobs(look), *_of_attempts(ask, look), *_of_workers(look)]
    for metric, labels, value, unit in values:
        text = msgspec.json.encode(labels, order="sorted").decode()
        yield {
            "metric": metric,
            "labels": text,
            "value": float(value),
            "unit": unit,
            "at": ms_shown(look.at),
            "at_ts": moment_shown(look.at),
        }


Value = tuple[str, dict[str, str], float, str]


def _of_jobs(look: Measures) -> Iterator[Value]:
    depth: Counter[tuple[str, str]] = Counter()
    pending = Counter({"blocked": 0, "due": 0, "later": 0})
    waits: dict[str, float] = {}
    for lane in look.lanes:
        job_type = str(lane.job_type)
        if lane.status == Status.QUEUED:
            depth[job_type, "ready" if lane.held is None else "held"] += lane.count
            waits[job_type] = max(waits.get(job_type, 0.0), (look.at - lane.since) / SECOND)
        else:
            pending["blocked" if lane.blocked else "due" if lane.since <= look.at else "later"] += lane.count
    running: Counter[str] = Counter()
    for (_, job_type), count in look.running.items():
        running[job_type] += count
    for (job_type, state), count in depth.items():
        yield "scheduler_queue_depth", {"job_type": job_type, "state": state}, count, "jobs"
    for job_type, count in running.items():
        yield "jobs_running", {"job_type": job_type}, count, "jobs"
    for state, count in pending.items():
        yield "rota_pending_jobs", {"state": state}, count, "jobs"
    for job_type, wait_s in waits.items():
        yield "rota_oldest_waiting_seconds", {"job_type": job_type}, wait_s, "seconds"
    for job_type, count in look.dead.items():
        yield "rota_dead_letters", {"job_type": job_type}, count, "jobs"
    yield "rota_overdue_occurrences", {}, look.overdue, "due times"
    yield "rota_pauses", {}, look.pauses, "pauses"


def _of_attempts(ask: Ask, look: Measures) -> Iterator[Value]:
    """Count attempts as far back as figures are kept; how long they took is that of the last `stats_hours`."""
    failed: Counter[str] = Counter()
    completed: Counter[str] = Counter()
    for figure in ask.store.figures(since=0, scope=ask.scope):
        if figure.status in FAILED:
            failed[figure.job_type] += figure.count
        elif figure.status == Status.COMPLETED:
            completed[figure.job_type] += figure.count
    buckets: dict[str, Counter[int]] = {}
    for figure in look.figures:
        if figure.status == Status.COMPLETED and figure.bucket != NO_RUN:
            buckets.setdefault(figure.job_type, Counter())[figure.bucket] += figure.count
    for name, counts in (("jobs_failed_total", failed), ("rota_jobs_completed_total", completed)):
        for job_type, count in counts.items():
            yield name, {"job_type": job_type}, count, "attempts"
    for job_type, found in buckets.items():
        for quantile in (0.5, 0.95):
            took_s = percentile_s(found, quantile)
            if took_s is not None:
                yield "job_run_latency_ms", {"job_type": job_type, "quantile": f"{quantile:g}"}, took_s * 1000, "ms"


def _of_workers(look: Measures) -> Iterator[Value]:
    workers = look.workers
    if workers is None:
        return
    yield "rota_workers", {"state": "alive"}, workers.alive, "workers"
    yield "rota_workers", {"state": "lost"}, workers.lost, "workers"
    yield "rota_claimed_ahead_jobs", {}, workers.claimed_ahead, "jobs"
    if workers.next_due_s is not None:
        yield "rota_next_due_seconds", {}, workers.next_due_s, "seconds"
    for queue in look.queues:
        yield "rota_queue_depth", {"queue": queue.name}, queue.waiting, "jobs"


def role_rows(ask: Ask) -> Iterator[Row]:
    """Go through the roles that the actor may see."""
    for role in visible_roles(ask):
        yield {
            "role_uuid": role.id,
            "role_name": role.name,
            "organization": role.organization,
            "created_by": role.created_by,
            **_moment("created_at", role.created_at),
        }


def grant_rows(ask: Ask) -> Iterator[Row]:
    """Go through the grants that the actor may see."""
    for grant in visible_grants(ask):
        has_id = grant.target_kind in {TargetKind.JOB, TargetKind.ROLE}
        yield {
            "grant_uuid": grant.id,
            "grantee": grant.grantee or str(grant.grantee_kind),
            "grantee_kind": str(grant.grantee_kind),
            "privilege": str(grant.privilege),
            "object_kind": None if grant.target_kind is None else str(grant.target_kind),
            "object": grant.target,
            "object_uuid": id_shown(grant.target_id) if has_id else None,
            "grantable": int(grant.grant_option),
            "organization": grant.organization,
            "granted_by": grant.granted_by,
            **_moment("granted_at", grant.granted_at),
        }


def connection_rows(ask: Ask) -> Iterator[Row]:
    """Go through the connections that the actor may use."""
    for connection in visible_connections(ask):
        yield {
            "connection_uuid": connection.id,
            "connection_name": connection.name,
            "kind": str(connection.kind),
            "url": connection.url,
            "login": connection.login,
            "secret_key": connection.secret_name,
            "multi": int(connection.multi),
            "organization": connection.organization,
            "created_by": connection.created_by,
            **_moment("created_at", connection.created_at),
            **_moment("updated_at", connection.updated_at),
        }


def secret_rows(ask: Ask) -> Iterator[Row]:
    """Go through the secrets that the actor may see."""
    for secret in visible_secrets(ask):
        yield {
            "secret_uuid": secret.id,
            "secret_name": secret.name,
            "organization": secret.organization,
            "job_uuid": secret.job_id,
            "job_name": secret.job,
            "version": secret.version,
            "key_id": secret.key_id,
            "created_by": secret.created_by,
            **_moment("created_at", secret.created_at),
            **_moment("updated_at", secret.updated_at),
            **_moment("last_used_at", secret.last_used_at),
        }


def job_secret_rows(ask: Ask) -> Iterator[Row]:
    """Go through the secrets of jobs that the actor may read."""
    for each in job_secrets(ask):
        yield {
            "job_uuid": id_shown(each.job.id),
            "secret_key": each.name,
            "job_name": each.job.name,
            "source": source_of(is_own=each.is_own),
            "organization": each.job.organization,
        }


def _moment(name: str, at: datetime | None) -> Row:
    """Return the two columns of a moment."""
    when = None if at is None else instant(at)
    return {name: ms_shown(when), f"{name}_ts": moment_shown(when)}


REPORTS: dict[str, Callable[[Ask], Iterator[Row]]] = {
    "settings": settings_rows,
    "performance": performance_rows,
    "roles": role_rows,
    "grants": grant_rows,
    "connections": connection_rows,
    "secrets": secret_rows,
    "job_secrets": job_secret_rows,
}
"""How the rows of each are made."""
