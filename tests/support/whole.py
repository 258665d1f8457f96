"""A store that has something in every table, and what stands in a store, read raw."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw

from rota import Backoff, PermanentError, Rota, Settings, Skip
from rota.admission import Admission
from rota.compose import open_place
from rota.model.decide import Completed, Failed, TimedOut
from rota.model.gate import LOCAL
from rota.model.secrets import Put, SecretPlace
from rota.ports.executor import Report
from rota.ports.run_logs import Piece
from rota.stores.sqlite import SqliteStore
from rota.stores.verbs.tables import TABLES
from rota.vault import Keyring, seal
from tests.stores.desk import Desk
from tests.support.clock import ManualClock
from tests.support.keys import KNOWN

ODD = "Ünï☂ 😀 'quo\"te' \\N \\. \\u0000 %s ${x}"
"""What dialects and drivers might trip over: other letters, quotes, backslashes, words of COPY and of JSON."""
LONG = "lörem ☂ " * 3000


def fill(path: Path) -> None:
    """Make a store with jobs in every state, on a clock of its own, and leave it as a killed worker would."""
    clock = ManualClock()
    work(path, clock)
    _break_off(path, clock)
    _add_raw(path)


def work(url: str | Path, clock: ManualClock, **settings: Any) -> None:
    """Do the same with any store: define what there is to define, run jobs to every end, and leave some waiting."""
    rota = Rota(url, clock=clock, settings=Settings(backoff_jitter=0, **settings), seed=11)
    _define(rota)
    _share(rota)
    _let_run(rota, clock)
    _leave_waiting(rota)
    rota.close()


def _define(rota: Rota) -> None:
    @rota.job
    def works(n: int = 0, text: str = "") -> int:
        return n

    @rota.job(max_retries=2, backoff=Backoff(base=60, jitter=0))
    def fails() -> None:
        raise ValueError(ODD)

    @rota.job
    def dies() -> None:
        raise PermanentError(LONG)

    @rota.job
    def skips() -> None:
        raise Skip(ODD)

    @rota.job(max_running=0)
    def limited() -> None: ...

    @rota.job(rate_limit="1/1h", dedup_window=3600, submit_limit="9/60s")
    def rated(n: int = 0) -> None: ...

    @rota.job(priority=80)
    def paused() -> None: ...


def _share(rota: Rota) -> None:
    rota.organizations.create("acme ☂", display_name=ODD, max_queued=1000)
    rota.users.create("root", role="system_manager")
    rota.users.create("bob", organization="acme ☂", permissions=["reports"])
    rota.templates.update("works", timeout=12.5, description=ODD)
    rota.calendars.update("holidays", ["2026-12-25"], description=ODD)
    made = rota.tokens.create(ODD, user="bob", permits=["read", "submit"], expires_in=timedelta(days=30))
    Admission(rota).close_session(Admission(rota).open_session(made.secret).secret)
    Admission(rota).open_session(rota.tokens.create("operator").secret)
    rota.tokens.revoke(made.token.id)
    hook = rota.webhooks.create("https://example.org/x?y=%20", job_types=["works", ODD], description=ODD, organization="acme ☂").webhook
    rota.webhooks.rotate(hook.id)
    rota.webhooks.rotate(organization="acme ☂")
    rota.webhooks.update(hook.id, enabled=False)
    rota.templates.pause("paused")
    rota.stored_settings.set("scheduler.default_max_retries", "4")
    rota.schedule("often", "works", every=60, catch_up="all", overlap="queue", params={"text": ODD})
    rota.schedule("nightly 🌙", "works", cron="0 3 * * *", timezone="Europe/Berlin", calendar="holidays")
    rota.schedule("after", "works", cron="0 4 * * *", depends_on=["nightly 🌙"])
    rota.webhooks.create("https://example.org/reports", events=["schedule.missed", "schedule.skipped_planned"])
    rota.schedule("missed ☂", "works", every=60, catch_up="none")
    rota.schedule("still", "works", every=60)
    rota.schedules.pause("still")
    rota.roles.create(ODD, organization="acme ☂")
    rota.grants.create("ROLE", "bob", role=ODD, grant_option=True, organization="acme ☂")
    rota.connections.create(ODD, f"sqlite:///{ODD}", multi=True, organization="acme ☂")
    rota.grants.create("USE", "bob", connection=ODD, organization="acme ☂")
    rota.grants.create("VIEW JOB HISTORY", "PUBLIC", organization="acme ☂")
    rota.grants.create("ALL", "root", job="often")
    _seal(rota, SecretPlace("acme ☂", "PASSWORD"))
    rota.sql("CREATE JOB by_sql SCHEDULE = CRON '0 5 * * *' DISABLED AS 'SELECT 1'; ALTER JOB by_sql SET AS 'SELECT 2'")


def _seal(rota: Rota, place: SecretPlace) -> None:
    """Keep a secret under the key that tests know."""
    keyring, session = Keyring([KNOWN]), rota._session
    session.open().store.put_secret(
        place,
        lambda version: seal(keyring, place, version, ODD),
        put=Put.NEW,
        secret_id=session.ids.take(1, session.clock.now())[0],
        actor=LOCAL,
        now=session.clock.now(),
    )


def _let_run(rota: Rota, clock: ManualClock) -> None:
    clock.advance(minutes=3, seconds=1)
    for name in ("works", "fails", "dies", "skips", "limited", "rated", "limited"):
        rota.enqueue(name)
    rota.enqueue("works", {"text": LONG}, priority="high")
    rota.enqueue("rated", {"n": 2})
    rota.jobs.direct("works", {"n": 7})
    rota.turn()
    clock.advance(seconds=61)
    rota.turn()
    clock.step(days=-1)
    rota.turn()
    clock.step(days=1)
    for number in (3, 4, 5):
        rota.enqueue("rated", {"n": number})
    rota.turn()


def _leave_waiting(rota: Rota) -> None:
    first = rota.enqueue("paused", unique_key=ODD)
    rota.enqueue("works", {"n": 1}, depends_on=[first])
    rota.enqueue("works", {"n": 2}, run_at=timedelta(hours=5))
    rota.group(["works", "paused", "works"], name=ODD)
    rota.jobs.cancel(rota.enqueue("works").id, reason=ODD)
    for number in range(5):
        rota.enqueue("works", {"n": number, "text": ODD}, organization="acme ☂", priority=40 + number % 2 * 20)
    last = rota.enqueue("works", {"n": 99})
    rota.jobs.move(last.id, front=True)
    rota.jobs.update(last.id, params={"n": 98})


def _break_off(path: Path, clock: ManualClock) -> None:
    """End some as a worker does, and hold some for ever."""
    store = SqliteStore(path, Settings(synchronous="NORMAL"))
    desk = Desk(store)
    desk.now = clock.now()
    store.register(desk.worker, host="gone.example", kind="worker", job_types=("t",), now=desk.now)
    for outcome in (TimedOut(300.0), Failed("x", exit_code=3, error_code="E1", traceback=LONG), Completed('{"a": 1}')):
        desk.add("t", params='{"text": "☂"}')
        desk.run_to(outcome)
    desk.several(2, "t")
    held = desk.claim(1)
    desk.turn(reports=[Report(held[0].number, progress=40, message=ODD, checkpoint='{"a": "☂"}', artifact="/tmp/ü")])
    store.append_logs(
        [Piece(held[0].run_id, held[0].number, 0, LONG.encode()), Piece(held[0].run_id, held[0].number, len(LONG.encode()), b"\xe2")], now=2
    )
    store.close()


def _add_raw(path: Path) -> None:
    """Add what nothing here makes by itself."""
    raw = apsw.Connection(str(path))
    raw.execute("INSERT INTO ended_roots SELECT root_id, status FROM jobs WHERE status = 'DEAD_LETTER' LIMIT 1")
    raw.execute(
        "INSERT INTO outbox (event, job_id, run_id, target, payload, next_attempt_at, last_error, created_at)"
        " SELECT 'job.ended', j.job_id, r.run_id, 'https://example.org/ü', '{\"a\": \"☂\"}', 1, 'refused', 2"
        " FROM jobs AS j JOIN job_runs AS r ON r.job_number = j.number LIMIT 3"
    )
    raw.execute(
        "INSERT OR IGNORE INTO occurrences_told SELECT schedule_id, due_at, last_due_at, count, fate, reason, recorded_at FROM occurrences"
    )
    raw.execute("INSERT INTO adhoc_types (job_type, handler, created_by, created_at) VALUES ('tidy ☂', 'shop.jobs:tidy', 'ada', 3)")
    # As after a purge of the newest: its number is not given again.
    raw.execute("UPDATE meta SET value = (SELECT max(number) + 40 FROM jobs) WHERE key = 'number_floor'")
    raw.close()


def neutral(url: str | Path, settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of any store in the form that all stores share, and the queue in its order."""
    with open_place(str(url), settings).depot.snapshot() as reading:
        found = {table.name: list(reading.rows(table)) for table in TABLES}
        return found | {"order of the queue": list(reading.order())}


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of a file, read raw, without what belongs to one store alone."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = {}
        for table in TABLES:
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table.name})")]
            found[table.name] = sorted(raw.execute(f"SELECT {', '.join(sorted(columns))} FROM {table.name}"), key=repr)
        own = {"schema", "number_floor", "definitions_version"}
        found["meta"] = [row for row in found["meta"] if row[0] not in own]
        return found
    finally:
        raw.close()


def schema(path: Path) -> list[tuple[str, str]]:
    """Return how a file's tables, indexes, views and triggers are made."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return sorted(raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    finally:
        raw.close()
