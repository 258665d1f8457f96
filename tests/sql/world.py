"""A small store with jobs in every state, of three organizations: what queries over sys.* are tried on.

`reference` fills plain tables from it by SQL of its own, inside what an actor may read: no code of the queries under test is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any
from uuid import UUID, uuid5

import apsw

from rota import Rota
from rota.model.audit import EVENTS
from rota.model.gate import Actor, Role
from rota.sql.catalog import TABLES
from rota.sql.private_database import compare_ids
from rota.stores.mongodb.schema import KEYS
from tests.stores.desk import Desk
from tests.support.clock import ManualClock

MANAGER = Actor("mia", role=Role.MANAGER)
ADMIN = Actor("ada", "acme", Role.ADMIN)
USER = Actor("uma", "acme", Role.USER)
STRANGERS = Actor("ben", "beta", Role.ADMIN), Actor("bea", "beta", Role.USER), Actor("eve", "empty", Role.ADMIN)
STATES = {
    "PENDING": "PENDING", "QUEUED": "PENDING", "RUNNING": "RUNNING", "COMPLETED": "COMPLETED", "FAILED": "FAILED", "TIMED_OUT": "FAILED",
    "DEAD_LETTER": "FAILED", "SKIPPED": "CANCELLED", "CANCELLED": "CANCELLED",
}  # fmt: skip


WHOSE = [("default", "mia"), ("acme", "ada"), ("acme", "uma"), ("acme", "bob"), ("beta", "ben"), ("beta", "bea")]
ADMINS = {"default": "mia", "acme": "ada", "beta": "ben"}
NAMES = ["nightly", "hourly", "a.b", "Ünï", "it's", "bad-one"]


def build(rota: Rota, clock: ManualClock, seed: int = 3) -> None:
    """Fill a store through the front door, and leave some jobs running."""
    rng = Random(seed)

    @rota.job(max_retries=1)
    def good(n: int = 0, text: str = "") -> object:
        return {"n": n, "text": text, "half": None if n % 3 else n / 2}

    @rota.job(max_retries=1)
    def bad(n: int = 0) -> None:
        raise ValueError(f"n is {n}")

    _define(rota, rng)
    for step in range(10):
        _submit(rota, rng)
        clock.advance(minutes=rng.choice([1, 7, 61]), microseconds=rng.randrange(2000))
        for job in rota.jobs.list(status="QUEUED", limit=500):
            if rng.random() < 0.1:
                rota.jobs.cancel(job.id)
        if step % 3:
            rota.turn()
            clock.advance(milliseconds=rng.randrange(3))
            rota.turn()
    rota.acting_as(MANAGER).schedules.delete("hourly", organization="beta")
    _fire(rota, "bad-one", "nightly")
    for _ in range(6):
        clock.advance(seconds=61)
        rota.turn()
        rota.turn()
    _fire(rota, "nightly", "it's")
    _leave_running(rota, clock)


def _as(rota: Rota, organization: str, owner: str) -> Rota:
    return rota.acting_as(Actor(owner, organization, Role.ADMIN))


def _define(rota: Rota, rng: Random) -> None:
    for name in ("acme", "beta", "empty"):
        rota.organizations.create(name)
    rota.calendars.update("holidays", ["2026-12-25", "2026-01-01"])
    for organization, owner in ADMINS.items():
        own = _as(rota, organization, owner)
        own.schedules.create("nightly", "good", cron="0 2 * * *", description=f"of {owner}")
        own.schedules.create("hourly", "good", every=3600)
        for name in ("a.b", "Ünï"):
            own.schedules.create(name, "good", every=86_400, description="daily" if rng.random() < 0.5 else None)
        own.schedules.create("bad-one", "bad", every=7200)
        own.schedules.create("it's", "good", every=7200, depends_on=["nightly"])
        own.schedules.pause("a.b")
    _as(rota, "acme", "uma").schedules.create("own", "good", every=1800, priority=70, params={"n": 3})
    rota.templates.update("bad", max_running=3, rate_limit="5/60s")
    rota.schedules.disable("a.b", organization="beta")
    for organization, owner in WHOSE:
        rota.users.create(owner, organization=organization, role="admin" if owner in ADMINS.values() else "user")
    _as(rota, "acme", "ada").calendars.update("acme days", ["2026-05-01"], description="of acme")


def _submit(rota: Rota, rng: Random) -> None:
    for organization, owner in WHOSE:
        own = _as(rota, organization, owner)
        for _ in range(rng.randrange(1, 4)):
            name = "own" if owner == "uma" and rng.random() < 0.2 else rng.choice(NAMES)
            own.schedules.fire(name, {"n": rng.randrange(20)})
        own.enqueue(rng.choice(["good", "bad"]), {"n": rng.randrange(20)})


def _fire(rota: Rota, *names: str) -> None:
    for organization, owner in WHOSE:
        for name in names:
            _as(rota, organization, owner).schedules.fire(name)


def _leave_running(rota: Rota, clock: ManualClock) -> None:
    desk = Desk(rota._session.open().store)
    desk.now = clock.now()
    # A clock that is set back lets some end before they have started.
    began = desk.claim(6, types=("good", "bad"))
    desk.advance(-5000)
    desk.done(*began)
    desk.advance(5000.5)
    _fire(rota, "nightly")
    desk.claim(7, types=("good", "bad"))


# ---- the same rows, read otherwise ---------------------------------------------------------------------------------------


class Raw:
    """The store's own tables, read with plain SQL or as documents; ids are hexadecimal digits."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def rows(self, text: str) -> list[dict[str, Any]]:
        shown, table = text[7 : text.index(" FROM ")].split(","), text.partition(" FROM ")[2].split()[0]
        names = [part.strip().rpartition(" ")[2].rpartition(".")[2] for part in shown]
        if self._maker.name == "mongodb":
            fields = [part.split()[0].rpartition(".")[2] for part in shown]
            return [dict(zip(names, map(row.get, fields), strict=True)) for row in documents(self._maker.hand, table)]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in self._maker._sql(text)]


def documents(hand: Any, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the other stores, in a MongoDB store."""
    if table not in {"jobs", "job_runs"}:
        return [document | {KEYS[table]: document["_id"]} if table in KEYS else document for document in hand.find(table)]
    states = {state["_id"]: {"blockers": 0} | state for state in [*hand.find("job_live"), *hand.find("job_ends")]}
    if table == "jobs":
        return [fact | states[fact["_id"]] | {"number": fact["_id"]} for fact in hand.find("job_facts")]
    notes = {note["_id"]: note for note in hand.find("run_notes")}
    return [state | notes.get(number, {}) | {"job_number": number} for number, state in states.items() if "run_id" in state]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.hex if type(value).__name__ == "UUID" else value


def dashed(value: str | None) -> str | None:
    return value and "-".join([value[:8], value[8:12], value[12:16], value[16:20], value[20:]])


def ms(value: int | None) -> int | None:
    return None if value is None else value // 1000


@cache
def _sqlite() -> apsw.Connection:
    return apsw.Connection(":memory:")


def ts(value: int | None) -> str | None:
    if value is None:
        return None
    ((text,),) = _sqlite().execute("SELECT strftime('%Y-%m-%dT%H:%M:%S', ?, 'unixepoch')", (value // 1_000_000,))
    return f"{text}.{value % 1_000_000:06d}Z"


JOBS = (
    "SELECT j.number, j.job_id, j.organization_id, j.owner, j.schedule_id, j.status, j.attempt, j.due_at, j.run_at, j.started_at,"
    " j.finished_at, j.error_type, j.reason, j.worker_id, j.target_node, j.shard, j.job_type, j.template_id, j.created_at, j.queued_at,"
    " j.priority, j.origin, j.root_id, j.params, j.max_retries, j.timeout, j.unique_key, j.held, j.ended_by, j.tags, j.group_id,"
    " j.executor, j.expires_at, j.failures, j.crashes, j.lane, j.retry_of, j.position, j.blockers FROM jobs AS j"
)
RUNS = (
    "SELECT job_number, run_id, result, result_message, error, error_code, exit_code, rows_affected, progress, progress_message"
    " FROM job_runs"
)


def visible(row: dict[str, Any], actor: Actor) -> bool:
    if actor.role is Role.MANAGER:
        return True
    return row["organization_id"] == actor.organization and (actor.role is Role.ADMIN or row["owner"] == actor.name)


def job_runs(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    runs = {row["job_number"]: row for row in raw.rows(RUNS)}
    schedules = {row["schedule_id"]: row["name"] for row in raw.rows("SELECT schedule_id, name FROM schedules")}
    found = []
    for job in raw.rows(JOBS):
        if job["schedule_id"] is None or not visible(job, actor):
            continue
        run = runs.get(
            job["number"], dict.fromkeys(["run_id", "result", "result_message", "error", "error_code", "exit_code", "rows_affected"])
        )
        due = job["due_at"] if job["attempt"] == 1 and job["due_at"] is not None else job["run_at"]
        found.append({
            "job_run_uuid": dashed(job["job_id"]), "job_uuid": dashed(job["schedule_id"]), "job_name": schedules[job["schedule_id"]],
            "assigned_node_uuid": None, "shard_uuid": None, "scheduled_time": ms(due), "scheduled_time_ts": ts(due),
            "started_at": ms(job["started_at"]), "started_at_ts": ts(job["started_at"]),
            "completed_at": ms(job["finished_at"]), "completed_at_ts": ts(job["finished_at"]),
            "state": STATES[job["status"]], "status": job["status"], "retry_count": job["attempt"] - 1,
            "result_message": next((each for each in (run["result_message"], run["error"], job["reason"]) if each is not None), None),
            "rows_affected": run["rows_affected"], "result_data": run["result"], "error_code": run["exit_code"], "sqlstate": None,
            "error_type": job["error_type"], "run_id": dashed(run["run_id"]), "worker_id": dashed(job["worker_id"]),
            "number": job["number"], "organization": job["organization_id"], "owner": job["owner"],
        })  # fmt: skip
    return found


def times(row: dict[str, Any], **named: str) -> dict[str, Any]:
    """Return moments twice: in milliseconds, and as text."""
    return {name: ms(row[source]) for name, source in named.items()} | {f"{name}_ts": ts(row[source]) for name, source in named.items()}


def same(row: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: row[name] for name in names.split()}


SCHEDULES = (
    "SELECT schedule_id, template_id, organization_id, created_by AS owner, name, description, kind, cron_expression, interval_us, at,"
    " starts_at, ends_at, timezone, state, next_trigger_at, last_triggered_at, on_completion, run_as, created_at, updated_at, catch_up,"
    " overlap, calendar, priority, param_overrides, version, depends_on, dropped_at FROM schedules"
)
TEMPLATES = (
    "SELECT template_id, organization_id, name, display_name, description, kind, job_type, state, requires_permission, max_running,"
    " concurrency, rate_limit, rate_window, version, created_by, created_at, updated_at, body, job_class, partition_strategy,"
    " partition_shard, partition_expression FROM templates"
)


def name_id(kind: str, name: str) -> str:
    return str(uuid5(UUID("6f1f7e0c-6a0e-5c53-9c80-5d1ad6a2b0e4"), f"{kind}:{name}"))


def jobs(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    people = {row["name"]: dashed(row["user_id"]) for row in raw.rows("SELECT user_id, name FROM users")}
    templates = {row["template_id"]: row for row in raw.rows(TEMPLATES)}
    found = []
    for row in raw.rows(SCHEDULES):
        if row["dropped_at"] is not None or not visible(row, actor):
            continue
        template = templates[row["template_id"]]
        row |= {"next": None if row["state"] == "DISABLED" else row["next_trigger_at"]}
        found.append({
            "job_uuid": dashed(row["schedule_id"]), "job_name": row["name"], "description": row["description"] or template["description"],
            "job_class": None, "job_type": "PROCEDURE", "job_sql": None, "external_command": None,
            "procedure_uuid": name_id("procedure", template["job_type"]), "procedure_name": template["job_type"],
            "schedule_kind": row["kind"], "cron_expression": row["cron_expression"],
            "interval_seconds": None if row["interval_us"] is None else row["interval_us"] // 1_000_000, "schedule_tz": row["timezone"],
            **times(row, starts_at="starts_at", ends_at="ends_at", next_run_time="next", last_run_time="last_triggered_at",
                    created_at="created_at", updated_at="updated_at"),
            **same(row, "on_completion state catch_up overlap calendar priority version"), "partition_strategy": None,
            "partition_shard_uuid": None, "partition_expression": None, "max_retries": 1, "retry_backoff_seconds": 60,
            "timeout_seconds": 300, "created_by": row["owner"],
            "created_by_user_uuid": people.get(row["owner"]) or name_id("user", row["owner"]),
            "run_as_role_uuid": None, "held_by": None,
            "params": row["param_overrides"], "template": template["name"], "organization": row["organization_id"],
        })  # fmt: skip
    return found


def job_rows(raw: Raw, actor: Actor) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Go through all jobs, each with its run and with what sys.queue and sys.history both show."""
    runs = {row["job_number"]: row for row in raw.rows(RUNS)}
    schedules = {row["schedule_id"]: row["name"] for row in raw.rows("SELECT schedule_id, name FROM schedules")}
    templates = {row["template_id"]: row["name"] for row in raw.rows("SELECT template_id, name FROM templates")}
    queues = {row["lane"]: row["queue"] for row in raw.rows("SELECT lane, queue FROM lanes")}
    for job in raw.rows(JOBS):
        if visible(job, actor):
            run = runs.get(
                job["number"], dict.fromkeys(["run_id", "result", "error", "error_code", "exit_code", "progress", "progress_message"])
            )
            ids = {name: dashed(job[name]) for name in ("job_id", "schedule_id", "group_id", "root_id", "retry_of", "worker_id")}
            moments = times(job, **{name: name for name in ("due_at", "run_at", "created_at", "queued_at", "started_at")})
            shown = same(job, "number job_type status priority owner origin attempt max_retries unique_key params tags")
            names = {
                "template": templates.get(job["template_id"]),
                "queue": queues.get(job["lane"], "default"),
                "schedule": schedules.get(job["schedule_id"]),
                "organization": job["organization_id"],
            }
            yield job, run, {**ids, **moments, **shown, **names, "run_id": dashed(run["run_id"])}


def queue(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    return [
        {**both, **same(job, "held blockers position"), **times(job, expires_at="expires_at"), **same(run, "progress progress_message")}
        for job, run, both in job_rows(raw, actor)
        if job["finished_at"] is None
    ]


def history(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    return [
        {
            **both,
            **same(job, "reason ended_by error_type"),
            **times(job, finished_at="finished_at"),
            **same(run, "error error_code exit_code result"),
        }
        for job, run, both in job_rows(raw, actor)
        if job["finished_at"] is not None
    ]


def job_dependencies(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    kept = [row for row in raw.rows(SCHEDULES) if row["dropped_at"] is None]
    by_name = {(row["organization_id"], row["name"]): row["schedule_id"] for row in kept}
    return [
        {
            "job_uuid": dashed(row["schedule_id"]),
            "depends_on_job_uuid": dashed(by_name[row["organization_id"], name]),
            "job_name": row["name"],
            "depends_on_job_name": name,
            "organization": row["organization_id"],
        }
        for row in kept
        if visible(row, actor)
        for name in json.loads(row["depends_on"] or "[]")
    ]


def occurrences(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    schedules = {row["schedule_id"]: row for row in raw.rows(SCHEDULES)}
    found = []
    for row in raw.rows("SELECT schedule_id, due_at, last_due_at, count, fate, reason, job_id, recorded_at FROM occurrences"):
        schedule = schedules[row["schedule_id"]]
        if visible(schedule, actor):
            found.append({
                "job_uuid": dashed(row["schedule_id"]), "job_name": schedule["name"], "organization": schedule["organization_id"],
                "job_run_uuid": dashed(row["job_id"]), **same(row, "count fate reason"),
                **times(row, due_at="due_at", last_due_at="last_due_at", recorded_at="recorded_at"),
            })  # fmt: skip
    return found


def of_organization(raw: Raw, actor: Actor, text: str, *, shared: bool = False) -> Iterator[dict[str, Any]]:
    own = {actor.organization, None} if shared else {actor.organization}
    return (row for row in raw.rows(text) if actor.role is Role.MANAGER or row["organization_id"] in own)


def templates(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    return [
        {
            **same(row, "display_name description state requires_permission max_running concurrency rate_limit version created_by"),
            "template_uuid": dashed(row["template_id"]), "template_name": row["name"], "job_type": "PROCEDURE", "type": row["job_type"],
            "rate_window_seconds": None if row["rate_window"] is None else row["rate_window"] / 1e6, "max_retries": 1,
            "timeout_seconds": 300, "organization": row["organization_id"], **times(row, created_at="created_at", updated_at="updated_at"),
        }
        for row in of_organization(raw, actor, TEMPLATES, shared=True)
    ]  # fmt: skip


def calendars(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    text = "SELECT organization_id, name, description, days, created_by, created_at, updated_at FROM calendars"
    return [
        {
            "organization": row["organization_id"],
            "calendar_name": row["name"],
            **same(row, "description days created_by"),
            **times(row, created_at="created_at", updated_at="updated_at"),
        }
        for row in of_organization(raw, actor, text)
    ]


def audit(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    columns = "audit_id, at, actor, organization_id, action, subject, subject_id, before, after, job_uuid, job_run_uuid, outcome"
    return [
        {
            **same(row, "audit_id actor action subject subject_id before after outcome"),
            **times(row, at="at"),
            "event": EVENTS[row["action"]],
            "job_uuid": dashed(row["job_uuid"]),
            "job_run_uuid": dashed(row["job_run_uuid"]),
            "organization": row["organization_id"],
        }
        for row in of_organization(raw, actor, f"SELECT {columns} FROM audit")
    ]


def users(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    text = "SELECT user_id, name, organization_id, role, permissions, state, created_by, created_at, updated_at FROM users"
    return [
        {
            "user_uuid": dashed(row["user_id"]),
            "user_name": row["name"],
            "organization": row["organization_id"],
            **same(row, "role permissions state created_by"),
            **times(row, created_at="created_at", updated_at="updated_at"),
        }
        for row in of_organization(raw, actor, text)
    ]


def organizations(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    text = "SELECT organization_id, display_name, state, max_running, max_queued, max_priority, created_at FROM organizations"
    return [
        {
            "organization": row["organization_id"],
            **same(row, "display_name state max_running max_queued max_priority"),
            **times(row, created_at="created_at"),
        }
        for row in of_organization(raw, actor, text)
    ]


def workers(raw: Raw, actor: Actor) -> list[dict[str, Any]]:
    columns = "worker_id, host, kind, beat, slots, job_types, queues, started_at, stopping_at, ended_at, pid, memory, rota_version"
    return [
        {
            "worker_id": dashed(row["worker_id"]),
            **same(row, "host kind beat slots job_types queues pid memory"),
            "version": row["rota_version"],
            **times(row, started_at="started_at", stopping_at="stopping_at", ended_at="ended_at"),
        }
        for row in raw.rows(f"SELECT {columns} FROM workers")
    ]


READERS = {
    "job_runs": job_runs, "jobs": jobs, "queue": queue, "history": history, "job_dependencies": job_dependencies,
    "occurrences": occurrences, "templates": templates, "calendars": calendars, "audit": audit, "users": users,
    "organizations": organizations, "workers": workers,
}  # fmt: skip
REFUSED = {Role.MANAGER: (), Role.ADMIN: ("workers",), Role.USER: ("workers", "audit", "users", "organizations")}
"""Tables that nobody of a role may read."""


def reference(maker: Any, actor: Actor) -> apsw.Connection:
    """Return a database with plain tables that hold what the actor may read."""
    plain = apsw.Connection(":memory:")
    plain.create_collation("uuid", compare_ids)
    plain.execute("ATTACH ':memory:' AS sys")
    raw = Raw(maker)
    for name, reader in READERS.items():
        if name in REFUSED[actor.role]:
            continue
        columns = TABLES[name].columns
        plain.execute(f"CREATE TABLE sys.{name} ({', '.join(f'{column.name} {column.type.declared}' for column in columns)})")
        for row in reader(raw, actor):
            assert set(row) == {column.name for column in columns}, (name, set(row) ^ {column.name for column in columns})
            plain.execute(f"INSERT INTO sys.{name} VALUES ({', '.join('?' * len(columns))})", [row[column.name] for column in columns])
    return plain
