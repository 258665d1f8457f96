"""Rota: what a program holds. Its nouns (`rota.jobs`, `rota.schedules`, …) hold what is done to each kind of thing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, Unpack, cast, overload

from msgspec import UNSET, UnsetType

from rota.errors import InvalidOption, InvalidParams
from rota.executors import check_handler
from rota.handle import Handle
from rota.hooks import On
from rota.middleware import Middleware
from rota.model.call import Call
from rota.model.gate import Actor, Right
from rota.model.groups import Group
from rota.model.lanes import Names
from rota.model.schedule_options import TAKEN, ScheduleOptions
from rota.model.settings import Settings
from rota.model.shapes import Shape
from rota.model.templates import FIELDS
from rota.model.values import JobRef, Run, moment_of
from rota.operation import Ask, Noun, Seat, View, operation
from rota.ports.clock import Clock, Ids
from rota.results import Bulk
from rota.session import Session
from rota.submission import submit, submit_async, submit_many
from rota.task import EnqueueOptions, Home, JobDecorator, JobSet, Span, Task, refuse_unknown

if TYPE_CHECKING:
    from rota.engine.driver import Driver
    from rota.engine.explain import Explanation
    from rota.lab.forecasts import Forecast, SchedulePlan
    from rota.live import Events
    from rota.model.events import EventType
    from rota.model.overview import Overview
    from rota.model.states import Status
    from rota.resources.audit import Audit
    from rota.resources.calendars import Calendars
    from rota.resources.connections import Connections
    from rota.resources.dead_letters import DeadLetters
    from rota.resources.grants import Grants
    from rota.resources.groups import Groups
    from rota.resources.jobs import Jobs
    from rota.resources.organizations import Organizations
    from rota.resources.queues import Queues
    from rota.resources.roles import Roles
    from rota.resources.schedules import Schedules
    from rota.resources.secrets import Secrets
    from rota.resources.store import StoreOperations
    from rota.resources.stored_settings import StoredSettings
    from rota.resources.templates import Templates
    from rota.resources.tokens import Tokens
    from rota.resources.users import Users
    from rota.resources.webhooks import Webhooks
    from rota.resources.workers import Workers
    from rota.schedule_views import ScheduleView
    from rota.simulation import Simulated
    from rota.sql.result import Result

R = TypeVar("R")


class Rota(View):
    """A durable job queue on one store. Nothing is opened before it is used; one object serves all threads."""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        seed: int | None = None,
    ) -> None:
        """Name the store: a path, sqlite:///path, postgresql://user@host/database or mongodb://user@host/database.

        None is $ROTA_STORE, else ./rota.db.
        """
        super().__init__(Seat(Session(self, store, settings=settings, clock=clock, ids=ids, seed=seed)))

    def acting_as(self, actor: Actor | str | None) -> Rota:
        """Return a view of the same Rota whose calls are made by this user. Closing it closes nothing."""
        view = Rota.__new__(Rota)
        View.__init__(view, self._seat, actor)
        return view

    # ---- nouns ------------------------------------------------------------------------------------------------

    jobs: Noun[Jobs] = Noun("Jobs: find, read and change them.")
    groups: Noun[Groups] = Noun("Groups of jobs.")
    dead_letters: Noun[DeadLetters] = Noun("Jobs that failed permanently.")
    schedules: Noun[Schedules] = Noun("Schedules, and the outcomes of their due times.")
    calendars: Noun[Calendars] = Noun("Calendars: days on which schedules are not due.")
    templates: Noun[Templates] = Noun("Templates: what is in force for each type of job.")
    queues: Noun[Queues] = Noun("Queues of jobs.")
    workers: Noun[Workers] = Noun("Workers that are registered with the store.")
    organizations: Noun[Organizations] = Noun("Organizations that share the store.")
    users: Noun[Users] = Noun("Users and their roles.")
    roles: Noun[Roles] = Noun("Roles of organizations, which privileges are granted to.")
    grants: Noun[Grants] = Noun("Privileges: who was granted what.")
    connections: Noun[Connections] = Noun("Connections: databases that jobs in SQL use.")
    secrets: Noun[Secrets] = Noun("Secrets: values that jobs are given, encrypted in the store.")
    tokens: Noun[Tokens] = Noun("Tokens for the HTTP API and the dashboard.")
    webhooks: Noun[Webhooks] = Noun("Webhooks and their deliveries.")
    audit: Noun[Audit] = Noun("The audit trail.")
    stored_settings: Noun[StoredSettings] = Noun("Settings that the store keeps for all processes.")
    store: Noun[StoreOperations] = Noun("The store itself: pause, recover, purge, check, move it.")

    # ---- handlers ---------------------------------------------------------------------------------------------

    @property
    def job(self) -> JobDecorator:
        """Register a handler and return its Task: `@rota.job` or `@rota.job(max_retries=3)`. See `JobOptions`.

        An option that is None is left to the settings. What operators have set for the template takes precedence over the values given
        here. `cron` or `every` declares a schedule too, named like the template, as `schedule` would; the options after them are about it.
        """
        return cast("JobDecorator", Home(self, self._register).job)

    def include(self, jobs: JobSet, *, prefix: str = "") -> None:
        """Register the tasks of a JobSet, under names that begin with the prefix. A JobSet is included once."""
        registry = self._session.registry
        before = frozenset(registry.handlers)
        try:
            jobs.join(self, self._register, prefix)
        except BaseException:
            registry.remove(registry.handlers.keys() - before)
            raise

    def _register(self, task: Task[..., Any], options: Mapping[str, Any]) -> None:
        given = {option: value for option, value in options.items() if option in FIELDS and option != "executor" and value is not None}
        times = {option: options.get(option) for option in (*TAKEN, "at")}
        self._session.registry.add(
            task.name,
            task.__wrapped__,
            executor=options.get("executor"),
            options=given,
            check=check_handler,
            schedule=times,
            rules=task.handler.rules,
        )

    @property
    def middleware(self) -> Middleware:
        """Registers functions that surround every handler: `@rota.middleware`."""
        return self._session.middleware

    @property
    def on(self) -> On:
        """Registers functions that workers call: `@rota.on.failed`."""
        return self._session.on

    # ---- enqueueing -------------------------------------------------------------------------------------------

    @overload
    def enqueue(self, name: Call[R], /, **options: Unpack[EnqueueOptions]) -> Handle[R]: ...
    @overload
    def enqueue(self, name: Task[..., R], params: Mapping[str, Any] | None = None, /, **options: Unpack[EnqueueOptions]) -> Handle[R]: ...
    @overload
    def enqueue(
        self,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        handler: str | None = None,
        job_type: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[Any]: ...
    def enqueue(
        self,
        name: str | Task[..., Any] | Call[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        handler: str | None = None,
        job_type: str | None = None,
        **options: Any,
    ) -> Handle[Any]:
        """Accept one job; when this returns it is on disk (or, with `transaction`, will be when that commits).

        `handler` ("module:function") creates one without a template, of the type `job_type` or of that path. For actors who may manage
        templates.
        """
        if options:
            refuse_unknown("enqueue", options)
        if handler is not None or job_type is not None:
            options |= {"handler": handler, "job_type": job_type}
        if type(name) is str or name is None:
            return submit(self._seat.session, self._actor, name, params, **options).handle(self)
        return self._enqueue_call(name, params, options)

    def _enqueue_call(self, target: Any, params: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Handle[Any]:
        """Enqueue a task or a call here; options that are given here replace its own."""
        if isinstance(target, str):
            return self.enqueue(str(target), params, **options)
        if isinstance(target, Call) and params is not None:
            raise InvalidParams(f"{target!r} has its params already: enqueue it without others, or bind its task to other arguments")
        if not isinstance(target, Call | Task):
            raise InvalidOption(f"{target!r:.80} can't be enqueued: pass the name of a template, a task, or a call made by task.bind(…)")
        call = target if isinstance(target, Call) else target.bind()
        call.task.check_included()
        rota = self if call.actor is None else self.acting_as(call.actor)
        said = call.params if call is target else params
        accepted = submit(self._session, rota._actor, call.name, said, **{**call.options, **options})  # noqa: SLF001 - a view of this one
        return accepted.handle(rota, call.task)

    def enqueue_many(self, jobs: Iterable[Any], *, organization: str | None = None, transaction: Any = None) -> Bulk:
        """Accept many jobs: calls, (name, params) pairs or NewJob, any number, in bounded memory, a chunk to a commit.

        If an item is bad, those before it are accepted and the error says how many; with `transaction`, none is.
        """
        return submit_many(self._session, self._actor, jobs, organization=organization, transaction=transaction)

    @operation(Right.SUBMIT)
    def group(
        self,
        ask: Ask,
        jobs: Sequence[Any],
        *,
        then: Any = None,
        on_parent_failure: str | None = None,
        mode: str = "sequential",
        on_failure: str | None = None,
        name: str | None = None,
        group_id: str | None = None,
        organization: str | None = None,
    ) -> Group:
        """Create a group of new jobs (a call, (name, params) or NewJob) and of waiting jobs (a Job, its Handle or its id).

        Without `on_failure` a failure stops a sequential group, and a parallel one continues.
        `then` ((name, params), a call or NewJob) is queued when every member has finished permanently; `on_parent_failure` says what
        happens to it if one of them failed: wait (until it is retried), skip, cancel, or run anyway.
        `group_id` is a UUIDv7 of the caller's own: repeating the call returns the same group.
        """
        from rota.resources.groups import create  # noqa: PLC0415 - few programs need it

        return create(
            ask,
            jobs,
            then=then,
            on_parent_failure=on_parent_failure,
            mode=mode,
            on_failure=on_failure,
            name=name,
            group_id=group_id,
            organization=organization,
        )

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a transaction on the store for the caller's own writes and enqueues: all happen, or none."""
        session = self._session
        session.scope(self._actor, Right.OPERATE)
        store = session.open().store
        session.registry.sync(store, session.clock.now())
        with store.transaction() as transaction:
            yield transaction
        session.poke()

    def wait(self, job: JobRef, timeout: float | None = None) -> Run:
        """Wait for the end of the chain and return its last run: of a chain that completed, or that failed permanently.

        Raises JobCancelled or JobSkipped for a chain that ended so, and WaitTimeout when the time is over.
        A store that becomes unavailable is waited for: until the timeout, or for `busy_timeout` where there is none.
        """
        from rota.waits import wait  # noqa: PLC0415 - a program that only enqueues does not wait

        return wait(self._session, self._actor, job, timeout)

    async def _wait_async(self, job: JobRef, timeout: float | None = None) -> Run:  # noqa: ASYNC109 - the same word as in wait()
        from rota.waits import wait_async  # noqa: PLC0415 - only async programs need it

        return await wait_async(self._session, self._actor, job, timeout)

    # ---- schedules --------------------------------------------------------------------------------------------

    @operation(Right.SCHEDULE)
    def schedule(
        self,
        ask: Ask,
        name: str,
        template: str | Task[..., Any] | Call[Any],
        *,
        cron: str | None = None,
        at: datetime | str | None = None,
        every: Span | None = None,
        timezone: str | None = None,
        starts: datetime | str | None = None,
        ends: datetime | str | None = None,
        params: Mapping[str, Any] | None = None,
        priority: str | int | None = None,
        catch_up: str | None = None,
        catch_up_lateness: Span | None = None,
        catch_up_count: int | None = None,
        overlap: str | None = None,
        jitter: Span | None = None,
        calendar: str | None = None,
        on_completion: str | None = None,
        depends_on: Sequence[str] | str | None = None,
        run_as: str | None = None,
        description: str | None = None,
        organization: str | None = None,
    ) -> ScheduleView:
        """Declare when a template becomes jobs: `cron`, `at` or `every`. For programs, which declare it again at each start.

        The first call creates the schedule. Later calls change what the program declares differently from last time; what operators have
        changed in the meantime stays. Due times up to now get their outcome by the previous definition.
        """
        from rota.resources.schedules import declare  # noqa: PLC0415 - few programs need it

        said = locals()
        options = {option: said[option] for option in ScheduleOptions.__annotations__ if said[option] is not None}
        return declare(ask, name, template, options, organization=organization)

    @operation(Right.READ, http="GET /forecast", cli="forecast")
    def forecast(
        self,
        ask: Ask,
        hours: float | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        schedule: str | None = None,
        skipped: bool = False,
        organization: str | None = None,
        limit: int | None = None,
    ) -> Forecast:
        """Return what will run in the next hours (24), or between two moments: after `start`, up to and including `end`.

        With `skipped` also what will not run: days of calendars, times that a clock jumps over, pauses, overlaps, dependencies that are
        not met, templates that take no jobs. It uses the present definitions, also for a window in the past, and assumes that workers
        are there at every due time (those that are alive now, one at least) and that every job takes its usual time and completes.
        Schedules whose jobs would meet, because they overlap, depend on each other or share a limit or slots that do not suffice,
        are simulated together, up to the setting `forecast_simulated_max`; the others start at their due times.
        """
        from rota.lab.forecast import forecast  # noqa: PLC0415 - few programs need it

        return forecast(ask, hours, start=start, end=end, schedule=schedule, skipped=skipped, organization=organization, limit=limit)

    @operation(Right.READ, http="POST /schedules/{name}/plan", cli="schedule plan")
    def plan(
        self,
        ask: Ask,
        /,
        name: Annotated[str, Shape("The schedule's name.", "daily", "NAME")],
        *,
        days: Annotated[int, Shape("How many days to look ahead.", 30, "N")] = 90,
        template: Annotated[str | UnsetType, Shape("The template of its jobs.", "send_email", "TEMPLATE", wire=str)] = UNSET,
        organization: Annotated[
            str | None, Shape("Whose schedule, where several organizations have one of that name.", "default", "NAME")
        ] = None,
        **options: Unpack[ScheduleOptions],
    ) -> SchedulePlan:
        """Return the due times of the coming days that a change would add and remove; options as for `schedules.update`.

        Nothing is changed. Calendars count, the schedule's state does not: it is planned as if it were enabled.
        """
        from rota.lab.forecast import plan  # noqa: PLC0415 - few programs need it

        wanted: Mapping[str, Any] = {**options} if template is UNSET else {**options, "template": template}
        return plan(ask, name, days=days, organization=organization, **wanted)

    def simulate(
        self,
        days: float = 7.0,
        *,
        seed: int = 0,
        start: datetime | None = None,
        workers: int = 1,
        concurrency: int | None = None,
        faults: str | Iterable[str] = (),
        faults_per_day: float = 2.0,
        failures: bool = False,
        limit: int = 1000,
        progress: Callable[[datetime], object] | None = None,
    ) -> Simulated:
        """Run the schedules of this store through some days, on the real engine with a simulated clock, and report what happened.

        Definitions are copied into a temporary store; this one is only read. No handler is called: jobs take as long as
        those of their type did lately and, with `failures`, fail as often. `faults` are crash, clock-step and sleep, or all, each
        `faults_per_day` times a day on average. The same definitions, start and seed give the same result.
        """
        from rota.lab.simulate import simulate  # noqa: PLC0415 - few programs need it

        return simulate(
            self._session,
            self._actor,
            days,
            seed=seed,
            start=start,
            workers=workers,
            concurrency=concurrency,
            faults=faults,
            faults_per_day=faults_per_day,
            failures=failures,
            limit=limit,
            progress=progress,
        )

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, atomic: bool = False) -> list[Result]:
        """Carry out SQL statements, with semicolons between them, and return a result for each.

        All are read before the first is carried out. The first that fails raises SqlError, which has its SQLSTATE and its place; those
        before it stay carried out. `params` are the values of `?` (a sequence) or of `:name` (a mapping).
        `atomic`: the script is one transaction, so that a failure changes nothing. Only statements that change definitions are allowed
        in it: CREATE, ALTER, DROP, PAUSE, RESUME, ENABLE and DISABLE JOB, and those of rights and roles.
        """
        from rota.sql.run import run  # noqa: PLC0415 - few programs need it

        return run(self, text, params, atomic=atomic)

    # ---- looking ----------------------------------------------------------------------------------------------

    @operation(Right.READ, http="GET /jobs/{job}/explain", cli="job explain")
    def explain(self, ask: Ask, job: Annotated[JobRef, Shape("The job's id or number.", "JOB-2026-00042", "JOB")]) -> Explanation:
        """Say why the live job of this chain does not run yet, or how the chain ended."""
        from rota.engine.explain import explain  # noqa: PLC0415 - few programs need it

        return explain(ask.store, ask.job(job), ask.now, registry=ask.registry, scope=ask.scope)

    def overview(self) -> Overview:
        """Return the first screen as one value, without what the actor may not see.

        It is cheap however many jobs there are: large numbers are counted up to a bound, and marked as more.
        """
        from rota.resources.overview import overview  # noqa: PLC0415 - few programs need it

        return overview(self._session, self._actor)

    @operation(Right.READ)
    def events(
        self,
        ask: Ask,
        *,
        types: Iterable[EventType | str] | str | None = None,
        status: Iterable[Status | str] | str | None = None,
        job_type: str | None = None,
        job: JobRef | None = None,
        after: str | None = None,
    ) -> Events:
        """Listen to what happens to jobs and definitions that the actor may see: each event as it is noticed, within a second.

        With `job` only the chain of this one, first as it is now, until it has ended. `after` is the id of an event: what came after it
        is repeated first, as far as the store still shows it; a `gap` says where it does not.
        """
        from rota.live import Events, listen  # noqa: PLC0415 - few programs need it

        return Events(listen(ask, types=types, status=status, job_type=job_type, job=job, after=after))

    # ---- workers ----------------------------------------------------------------------------------------------

    @contextmanager
    def running(
        self, *, concurrency: int | None = None, queues: Names = None, types: Names = None, exclude: Names = None
    ) -> Iterator[Self]:
        """Run a worker inside this process for the time of the block. The options are those of `start`."""
        driver = self.start(concurrency=concurrency, queues=queues, types=types, exclude=exclude)
        try:
            yield self
        finally:
            self._session.stop(driver)

    @operation(Right.OPERATE)
    def start(
        self, ask: Ask, *, concurrency: int | None = None, queues: Names = None, types: Names = None, exclude: Names = None
    ) -> Driver:
        """Start a worker on a thread of its own and return its driver.

        It serves these queues, and these job types except those to exclude; None: as the settings say, by default all.
        """
        from rota.local_workers import start  # noqa: PLC0415 - a program that only enqueues has no worker

        return start(ask.session, concurrency, ask.session.serving(queues, types, exclude))

    @operation(Right.OPERATE)
    def stop(self, ask: Ask, driver: Driver) -> None:
        """Stop a worker that `start` has returned: it takes no more jobs, and those that run may finish in `shutdown_grace`."""
        ask.session.stop(driver)

    @operation(Right.OPERATE)
    def run(self, ask: Ask, *, concurrency: int | None = None, queues: Names = None, types: Names = None, exclude: Names = None) -> None:
        """Run a worker until SIGTERM or SIGINT; a second one interrupts what still runs. The options are those of `start`."""
        from rota.local_workers import run  # noqa: PLC0415 - a program that only enqueues has no worker

        run(ask.session, concurrency, ask.session.serving(queues, types, exclude))

    @operation(Right.OPERATE)
    def turn(self, ask: Ask) -> None:
        """Turn the worker's cycle in this thread until nothing more is ready now: for tests and for simple scripts."""
        from rota.local_workers import turn  # noqa: PLC0415 - a program that only enqueues has no worker

        turn(ask.session)

    def close(self) -> None:
        """Stop local workers and close the store. It opens again when it is used again."""
        session = self._seat.session
        if self is session.app:
            session.close()

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self._session.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._session.settings = settings

    @property
    def now(self) -> datetime:
        """The time, by the clock that everything here goes by."""
        return moment_of(self._session.clock.now())


async def enqueue_async(rota: Rota, name: str, params: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]) -> Handle[Any]:
    """Accept one job by name without blocking the event loop. Of a task, use `task.enqueue_async`."""
    refuse_unknown("enqueue", options)
    return (await submit_async(rota._session, rota._actor, name, params, **options)).handle(rota)  # noqa: SLF001 - of this module's class
