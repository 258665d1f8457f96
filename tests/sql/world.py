"""A small store with jobs in every state, of three organizations: what queries over sys.* are tried on.

`reference` fills plain tables from it by SQL of its own, inside what an actor may read: no code of the queries under test is used.
"""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

from rota import Rota
from rota.model.gate import Actor, Role
from rota.sql.catalog import TABLES
from rota.sql.query import _compare_ids
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


def build(rota: Rota, clock: ManualClock, seed: int = 3) -> None:
    """Fill a store through the front door, and leave some jobs running."""
    rng = Random(seed)

    @rota.job(max_retries=1)
    def good(n: int = 0, text: str = "") -> object:
        return {"n": n, "text": text, "half": None if n % 3 else n / 2}

    @rota.job(max_retries=1)
    def bad(n: int = 0) -> None:
        raise ValueError(f"n is {n}")

    for name in ("acme", "beta", "empty"):
        rota.organizations.create(name)
    rota.calendars.update("holidays", ["2026-12-25", "2026-01-01"])
    whose = [("default", "mia"), ("acme", "ada"), ("acme", "uma"), ("acme", "bob"), ("beta", "ben"), ("beta", "bea")]
    names = ["nightly", "hourly", "a.b", "Ünï", "it's", "bad-one"]
    for organization, owner in whose:
        own = rota.acting_as(Actor(owner, organization, Role.ADMIN))
        for name in names[:4] if owner in {"mia", "ada", "ben"} else ():
            every = {"hourly": {"every": 3600}, "nightly": {"cron": "0 2 * * *"}}.get(name, {"every": 86_400})
            own.schedules.create(name, "good", description=f"of {owner}" if rng.random() < 0.5 else None, **every)
    for organization in ("acme", "beta", "default"):
        owner = {"acme": "ada", "beta": "ben", "default": "mia"}[organization]
        own = rota.acting_as(Actor(owner, organization, Role.ADMIN))
        own.schedules.create("bad-one", "bad", every=7200)
        own.schedules.create("it's", "good", every=7200, depends_on=["nightly"])
        own.schedules.pause("a.b")
    for step in range(10):
        for organization, owner in whose:
            own = rota.acting_as(Actor(owner, organization, Role.ADMIN))
            for _ in range(rng.randrange(1, 4)):
                own.schedules.fire(rng.choice(names), {"n": rng.randrange(20)})
            own.enqueue(rng.choice(["good", "bad"]), {"n": rng.randrange(20)}, run_at=None)
        clock.advance(minutes=rng.choice([1, 7, 61]), microseconds=rng.randrange(2000))
        for job in rota.jobs.list(status="QUEUED", limit=500):
            if rng.random() < 0.1:
                rota.jobs.cancel(job.id)
        if step % 3:
            rota.turn()
            clock.advance(milliseconds=rng.randrange(3))
            rota.turn()
    rota.acting_as(MANAGER).schedules.delete("hourly", organization="beta")
    for name in ("bad-one", "nightly"):
        for organization, owner in whose:
            rota.acting_as(Actor(owner, organization, Role.ADMIN)).schedules.fire(name)
    rota.turn()
    rota.turn()
    for organization, owner in whose:
        rota.acting_as(Actor(owner, organization, Role.ADMIN)).schedules.fire("nightly")
        rota.acting_as(Actor(owner, organization, Role.ADMIN)).schedules.fire("it's")
    desk = Desk(rota._session.open().store)
    desk.now = clock.now()
    desk.claim(7, types=("good", "bad"))


# ---- the same rows, read otherwise ---------------------------------------------------------------------------------------


class Raw:
    """The store's own tables, read with plain SQL; ids are hexadecimal digits."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def rows(self, text: str) -> list[dict[str, Any]]:
        names = [part.strip().rpartition(" ")[2].rpartition(".")[2] for part in text[7 : text.index(" FROM ")].split(",")]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in self._maker._sql(text)]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.hex if type(value).__name__ == "UUID" else value


def dashed(value: str | None) -> str | None:
    return value and "-".join([value[:8], value[8:12], value[12:16], value[16:20], value[20:]])


def ms(value: int | None) -> int | None:
    return None if value is None else value // 1000


def ts(value: int | None) -> str | None:
    if value is None:
        return None
    ((text,),) = apsw.Connection(":memory:").execute("SELECT strftime('%Y-%m-%dT%H:%M:%S', ?, 'unixepoch')", (value // 1_000_000,))
    return f"{text}.{value % 1_000_000:06d}Z"


JOBS = (
    "SELECT j.number, j.job_id, j.organization_id, j.owner, j.schedule_id, j.status, j.attempt, j.due_at, j.run_at, j.started_at,"
    " j.finished_at, j.error_type, j.reason, j.worker_id, j.target_node, j.shard, j.job_type, j.template_id, j.created_at, j.queued_at,"
    " j.priority, j.origin, j.root_id, j.params, j.max_retries, j.timeout, j.unique_key, j.held, j.ended_by, j.tags, j.group_id, j.executor,"
    " j.expires_at, j.failures, j.crashes, j.lane, j.retry_of, j.position FROM jobs AS j"
)
RUNS = "SELECT job_number, run_id, result, result_message, error, error_code, exit_code, rows_affected, progress FROM job_runs"


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
        run = runs.get(job["number"], dict.fromkeys(["run_id", "result", "result_message", "error", "error_code", "exit_code", "rows_affected"]))
        due = job["due_at"] if job["attempt"] == 1 and job["due_at"] is not None else job["run_at"]
        found.append({
            "job_run_uuid": dashed(job["job_id"]), "job_uuid": dashed(job["schedule_id"]), "job_name": schedules[job["schedule_id"]],
            "assigned_node_uuid": None, "shard_uuid": None, "scheduled_time": ms(due), "scheduled_time_ts": ts(due),
            "started_at": ms(job["started_at"]), "started_at_ts": ts(job["started_at"]),
            "completed_at": ms(job["finished_at"]), "completed_at_ts": ts(job["finished_at"]),
            "state": STATES[job["status"]], "status": job["status"], "retry_count": job["attempt"] - 1,
            "result_message": next((each for each in (run["result_message"], run["error"], job["reason"]) if each is not None), None),
            "rows_affected": run["rows_affected"], "result_data": run["result"], "error_code": run["exit_code"], "sqlstate": None,
            "error_type": job["error_type"], "run_id": dashed(run["run_id"]), "worker_id": dashed(job["worker_id"]), "number": job["number"],
            "organization": job["organization_id"], "owner": job["owner"],
        })  # fmt: skip
    return found


READERS = {"job_runs": job_runs}


def reference(maker: Any, actor: Actor) -> apsw.Connection:
    """Return a database with plain tables that hold what the actor may read."""
    plain = apsw.Connection(":memory:")
    plain.create_collation("uuid", _compare_ids)
    plain.execute("ATTACH ':memory:' AS sys")
    raw = Raw(maker)
    for name, reader in READERS.items():
        columns = TABLES[name].columns
        plain.execute(f"CREATE TABLE sys.{name} ({', '.join(f'{column.name} {column.type.declared}' for column in columns)})")
        for row in reader(raw, actor):
            assert set(row) == {column.name for column in columns}, (name, set(row) ^ {column.name for column in columns})
            plain.execute(f"INSERT INTO sys.{name} VALUES ({', '.join('?' * len(columns))})", [row[column.name] for column in columns])
    return plain
