"""The kit: a Rota moved to a store that is thrown away, what was enqueued on it, and running that in the test's thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from rota.app import Rota
from rota.declarations import declare_scheduled
from rota.engine.registry import Known
from rota.errors import InvalidOption, Refused
from rota.hooks import AttemptEvent
from rota.local_workers import inline_worker
from rota.model.checks import whole
from rota.model.gate import SYSTEM
from rota.model.params import decode, encode
from rota.model.schedule_options import TAKEN
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.templates import FIELDS
from rota.model.values import SECOND, Instant, Job, instant, moment, moment_of, undashed
from rota.ports.pages import each_job
from rota.ports.store import Where
from rota.session import Session
from rota.testing.transactions import Recorder

SHOWN = 20
"""Jobs that a failed assertion lists."""
NOBODY = "0" * 32


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, at: datetime | None = None) -> None:
        """Begin at a moment, now unless one is given."""
        self._now = time.time_ns() // 1000 if at is None else _instant(at)
        self._monotonic = 0.0

    def now(self) -> Instant:
        """Return microseconds since 1970 UTC, as Rota asks for them."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._monotonic

    @property
    def at(self) -> datetime:
        """The moment it shows."""
        return moment_of(self._now)

    def advance(self, **duration: float) -> None:
        """Let time pass, in the words of timedelta: minutes=5."""
        self.set(self.at + timedelta(**duration))

    def set(self, at: datetime) -> None:
        """Show this moment. A wall clock may be set back; the time that has passed may not."""
        before, self._now = self._now, _instant(at)
        self._monotonic += max(0, self._now - before) / SECOND


class Kit:
    """What a test holds: the Rota under test, its clock, and what was enqueued on it. Made by `use`."""

    def __init__(self, app: Rota, clock: Clock, recorder: Recorder | None = None) -> None:
        """Take the Rota that has been moved."""
        self.app = app
        self.clock = clock
        self._recorder = recorder

    # ---- looking ----------------------------------------------------------------------------------------------

    def jobs(self, name: str | None = None, params: Mapping[str, Any] | None = None, *, status: str | None = None) -> list[Job]:
        """Return what was enqueued, first to last, as it stands now: a job that was retried is its last attempt.

        `params` matches jobs that have at least these, objects inside them likewise.
        """
        if status is not None and status not in set(Status):
            raise InvalidOption(f"status {status!r} is not one of {', '.join(Status)}")
        wanted = None if params is None else decode(encode(params, "params"))
        tails = {job.root_id: job for job in self._attempts(name)}
        return [job for job in tails.values() if status in {None, job.status} and (wanted is None or _has(job.params, wanted))]

    def assert_enqueued(self, name: str, params: Mapping[str, Any] | None = None, *, count: int | None = None) -> Job:
        """Fail unless such a job was enqueued (exactly `count` of them); return it, the newest of several."""
        __tracebackhide__ = True
        found = self.jobs(name, params)
        if count is not None and len(found) != whole("count", count, least=1):
            raise AssertionError(f"{_wish(name, params)} was enqueued {_times(len(found))}, not {_times(count)}.{self._instead()}")
        if not found:
            raise AssertionError(f"{_wish(name, params)} was not enqueued.{self._instead()}")
        return found[-1]

    def assert_not_enqueued(self, name: str | None = None, params: Mapping[str, Any] | None = None) -> None:
        """Fail if such a job (of any name, if none is given) was enqueued."""
        __tracebackhide__ = True
        found = self.jobs(name, params)
        if found:
            raise AssertionError(f"{_wish(name, params)} was enqueued {_times(len(found))}:{_list(found)}")

    # ---- running ----------------------------------------------------------------------------------------------

    def run_next(self) -> Job:
        """Run the job whose turn it is, in this thread, and return it as it ended."""
        __tracebackhide__ = True
        before = self._run_ids()
        with self._worker() as worker:
            worker.turn()
        ran = self._ran_since(before)
        if not ran:
            raise AssertionError(f"nothing is ready to run.{self._instead()}")
        return ran[0]

    def drain(self, until: datetime | timedelta | None = None, *, limit: int = 1000, raise_errors: bool = False) -> list[Job]:
        """Run what is ready, and what that makes ready, in this thread; return the attempts that ran, in their order.

        With `until` the clock then goes from one due time to the next, up to that moment: what waits for its time or its
        retry runs too, and schedules fire. More than `limit` attempts are taken for jobs that enqueue each other for ever.

        With `raise_errors` the first failure ends it: what the handler raised is raised here. The job after it may have run by then.
        """
        __tracebackhide__ = True
        end = None if until is None else self.clock.at + until if isinstance(until, timedelta) else until
        before = self._run_ids()
        with self._failures(raise_errors=raise_errors) as failures:
            left = self._turn(whole("limit", limit, least=1), limit, failures)
            while end is not None and (due := self._next_due()) is not None and self.clock.at < due <= end:
                self.clock.set(due)
                left = self._turn(left, limit, failures)
        if end is not None and end > self.clock.at:
            self.clock.set(end)
        return self._ran_since(before)

    @contextmanager
    def _failures(self, *, raise_errors: bool) -> Iterator[list[AttemptEvent]]:
        """Collect the attempts that fail, or none."""
        failures: list[AttemptEvent] = []
        hook = self.app.on.failed
        before = hook.functions
        if raise_errors:
            hook(failures.append)
        try:
            yield failures
        finally:
            hook.functions = before

    def advance_to_next(self) -> datetime | None:
        """Set the clock to the moment when the next waiting job or schedule is due, and return it; None if none waits for its time."""
        due = self._next_due()
        if due is not None and due > self.clock.at:
            self.clock.set(due)
        return due

    def _turn(self, left: int, limit: int, failures: list[AttemptEvent]) -> int:
        """Turn the wheel until nothing is ready; a turn runs one job at most, because there is one slot and no prefetch."""
        __tracebackhide__ = True
        with self._worker() as worker:
            while worker.turn() == 0.0 or worker.holding:
                if failures:
                    break
                left -= 1
                if left < 0:
                    raise AssertionError(f"{limit:,} attempts ran and more are ready: do jobs enqueue each other?{self._instead()}")
        if failures:
            raise _failure(failures[0])
        return left

    @contextmanager
    def _worker(self) -> Iterator[Any]:
        app = self.app
        app._session.registry.sync(app._session.open().store, self.clock.now())
        with inline_worker(app._session, direct_only=False) as worker:
            yield worker

    def _next_due(self) -> datetime | None:
        """Return when a waiting job or a schedule is due."""
        store = self.app._session.open().store
        wanted = (store.peek(types=(), worker_id=NOBODY).next_due, store.beat_of_schedules().next_at)
        return moment(min((at for at in wanted if at is not None), default=None))

    # ---- inside -----------------------------------------------------------------------------------------------

    def _attempts(self, name: str | None = None) -> list[Job]:
        """Return every attempt, first to last."""
        return list(each_job(self.app._session.open().store, Where(job_type=name)))[::-1]

    def _run_ids(self) -> dict[str, Job]:
        """Return the attempts that have run, by the ids of their runs, which ascend."""
        store = self.app._session.open().store
        runs = ((store.run(undashed(job.id) or ""), job) for job in self._attempts() if job.started_at is not None)
        return {run.id: job for run, job in runs if run is not None}

    def _ran_since(self, before: dict[str, Job]) -> list[Job]:
        after = self._run_ids()
        return [after[run_id] for run_id in sorted(after) if run_id not in before]

    def _instead(self) -> str:
        jobs, waiting = self.jobs(), self._recorder.count() if self._recorder is not None else 0
        words = f" There are:{_list(jobs)}" if jobs else " Nothing was enqueued."
        return words if not waiting else f"{words}\n{_times_of(waiting)} for the commit of the transaction they were enqueued in."


@contextmanager
def use(
    app: Rota, *, at: datetime | None = None, settings: Settings | None = None, seed: int = 0, store: str | None = None
) -> Iterator[Kit]:
    """Move a Rota with its handlers to a store that is thrown away, for the time of the block; its own is not touched.

    Its clock stands still, at `at` (now, if not given); its settings are its own, with retention off, unless others are given; chance comes
    from `seed`. What the program enqueues meanwhile, on the same object, goes to that store. Not for two threads at once.

    The store is a file. `enqueue(transaction=session)` is recorded: a job is there once the transaction of SQLAlchemy's session or
    connection, or of Django's connection, is committed, whatever database that is. With `store="postgresql://…"` the store is a new
    schema of that database, and such jobs are written by the transaction itself.
    """
    own = app._session
    if own.drivers:
        raise Refused("a worker of this Rota is running: stop it first, its jobs would enqueue into the store of the test")
    clock = Clock(at)
    # A test wants its jobs one by one, and to find them afterwards, whatever the clock is set to.
    chosen = settings or msgspec.structs.replace(app.settings, retention=0.0)
    quick = msgspec.structs.replace(chosen, prefetch=0.0, synchronous="NORMAL")
    handlers = [known for known in own.registry.known() if known.handler is not None]
    scheduled = own.registry.scheduled
    works = [known.record for known in own.registry.known() if known.is_work and known.record is not None]
    with TemporaryDirectory(prefix="rota-testing-") as folder, _place(store, Path(folder), quick) as (place, fitted):
        app._seat.session = Session(app, place, settings=fitted, clock=clock, seed=seed)
        app._session.middleware, app._session.on = own.middleware, own.on
        recorder = Recorder(app._session.open().store) if store is None else None
        try:
            for known in handlers:
                _register(app, known, scheduled.get(known.name))
            for work in works:
                app._session.open().store.define_template(work, actor=SYSTEM, now=clock.now())
            # What is due after this moment is due in the test, whatever it does first.
            declare_scheduled(app._session)
            yield Kit(app, clock, recorder)
        finally:
            try:
                if recorder is not None:
                    recorder.close()
                app.close()
            finally:
                app._seat.session = own


@contextmanager
def _place(store: str | None, folder: Path, settings: Settings) -> Iterator[tuple[Path | str, Settings]]:
    """Lend a place for the store: a file, or a new schema of a PostgreSQL database, which is dropped."""
    if store is None:
        yield folder / "rota.db", settings
        return
    if not store.startswith(("postgresql://", "postgres://")):
        raise InvalidOption(f"store={store!r} is not a PostgreSQL URL: pass one, such as postgresql://localhost/test, or leave it out")
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg import sql  # noqa: PLC0415

    schema = f"rota_test_{token_hex(6)}"
    try:
        yield store, msgspec.structs.replace(settings, schema=schema, log_dir=str(folder))
    finally:
        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _failure(event: AttemptEvent) -> BaseException:
    """Return what a handler raised, with a note of whose handler it was."""
    which = f"{event.number} ({event.template}), attempt {event.attempt}"
    if event.exception is None:
        return AssertionError(f"{which} failed: {event.error}")
    event.exception.add_note(f"raised by {which}")
    return event.exception


def _register(app: Rota, known: Known, schedule: Mapping[str, Any] | None) -> None:
    """Register a handler anew, with what the code says of it; what people have set belongs to the other store."""
    assert known.handler is not None  # noqa: S101 - the caller looked
    said = {field: getattr(known.code, field) for field in FIELDS if field not in {"executor", "handler"}}
    options = {field: value for field, value in said.items() if value is not msgspec.UNSET}
    times = None if schedule is None else {option: schedule.get(option) for option in TAKEN}
    app._session.registry.add(
        known.name, known.handler.function, executor=known.handler.executor, options=options, schedule=times, rules=known.handler.rules
    )


def _instant(at: datetime) -> Instant:
    if getattr(at, "tzinfo", None) is None:
        raise InvalidOption(f"{at!r} is not a moment for a clock: give an aware datetime, such as datetime(2026, 3, 1, tzinfo=UTC)")
    return instant(at.astimezone(UTC))


def _has(params: object, wanted: object) -> bool:
    if isinstance(params, dict) and isinstance(wanted, dict):
        return all(name in params and _has(params[name], value) for name, value in wanted.items())
    return params == wanted


def _wish(name: str | None, params: Mapping[str, Any] | None) -> str:
    what = "a job" if name is None else f"a job {name!r}"
    return what if params is None else f"{what} with {_json(params)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _times_of(waiting: int) -> str:
    return "1 more job waits" if waiting == 1 else f"{waiting} more jobs wait"


def _list(jobs: list[Job]) -> str:
    lines = [f"\n  {job.number}  {job.job_type}  {_json(job.params)}  {job.status}" for job in jobs[:SHOWN]]
    return "".join(lines) + (f"\n  and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else "")


def _json(value: object) -> str:
    text = encode(value, "params")
    return text if len(text) <= 200 else f"{text[:199]}…"
