"""From the clauses of a job to what the store keeps, and back: a schedule with a template of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from rota.errors import ChangedMeanwhile, InvalidInput, InvalidParams, InvalidSchedule
from rota.model.backoff import Backoff
from rota.model.definitions import TemplateState, unfit_for_schedules
from rota.model.gate import Actor, Right, Role, Scope
from rota.model.kinds import EXTERNAL_TYPE, OWNER_ROLE, is_kind, sql_type
from rota.model.schedules import CatchUp, JobKind, Kind, OnCompletion, Overlap, OwnTemplate, Schedule, ScheduleState
from rota.model.secret_params import mentioned_anew
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant, moment_of
from rota.schedule_edits import built, changed, renamed
from rota.session import Session
from rota.sql.execution import Execution, Refusal, not_yet
from rota.sql.job_rights import check_mentions, check_named, check_takes_secrets, check_use, params_refusal, without_connection
from rota.sql.job_statements import lacking
from rota.sql.parser import parse
from rota.sql.render import render
from rota.sql.syntax import (
    AllShards,
    AlterJob,
    Argument,
    AtIntervals,
    Body,
    CallBody,
    Clauses,
    DynamicShards,
    ExecBody,
    JobClass,
    NamedArgument,
    OnceAt,
    OnCronLine,
    Partition,
    ShardSet,
    SingleShard,
    SqlBody,
)
from rota.sql.values import instant_in, timestamp_text

BACKOFF_FACTOR = 2.0

# ---- from clauses -----------------------------------------------------------------------------------------------------


def new_job(run: Execution, name: str, clauses: Clauses, who: Actor) -> Schedule:
    """Return the job that the clauses of a CREATE describe, or refuse it. Nothing is written."""
    session, now = run.ask.session, run.ask.now
    reason = lacking(clauses)
    if reason:
        raise Refusal("", f"there is no job {name} yet, and {reason}", code="sql_invalid", sqlstate="42601")
    session.registry.organization(who.organization, run.ask.store, now)
    _check_parents(run, clauses, who.organization)
    _check_future(clauses, now, clauses.timezone or "UTC")
    own = _new_own(run, clauses, session.ids.take(1, now)[0], who)
    options = options_of(clauses, clauses.timezone or "UTC")
    check_named(options.get("params", {}), own)
    new = built(session, name, {"template": name, **options}, who, now, own=own)
    new = msgspec.structs.replace(new, state=clauses.state or ScheduleState.ENABLED, run_as=clauses.run_as or None)
    new = owned(run, new, who)
    check_use(run, new, who)
    return _in_state(run, new, who)


def alteration(run: Execution, job: Schedule, statement: AlterJob, who: Actor) -> Callable[[Schedule, Instant], Schedule]:
    """Return what an ALTER makes of a job at a moment, or refuse it. What is returned asks the store for nothing, and writes nothing."""
    clauses, session = statement.clauses, run.ask.session
    _check_parents(run, clauses, job.organization)
    if job.own is None:
        _refuse_shared(job, clauses)
    borrows = _borrows(run, job, clauses, who)
    work = None
    if job.own is not None and (clauses.body is not UNSET or clauses.connection is not UNSET):
        body = body_of(job.own) if clauses.body is UNSET else clauses.body
        connection = job.own.defaults.get("connection") if clauses.connection is UNSET else clauses.connection
        work = _work(run, body, connection, job.organization, who)

    def altered(present: Schedule, now: Instant) -> Schedule:
        zone = present.timing.timezone if clauses.timezone is UNSET else clauses.timezone or "UTC"
        _check_future(clauses, now, zone)
        if borrows and _lent(present) != _lent(job):
            # What was checked is not what would be written.
            raise ChangedMeanwhile(f"job {job.name}", has=present.version, given=job.version)
        after = present
        if present.own is not None:
            after = msgspec.structs.replace(present, own=_changed_own(run, present.own, clauses, work))
            if clauses.run_as is not UNSET:
                after = msgspec.structs.replace(after, run_as=clauses.run_as)
            if borrows:
                # It runs with the rights of its owner: nobody borrows those of another by an edit.
                after = owned(run, after, who)
        options = options_of(clauses, zone, present)
        if after.own is not None:
            check_named(options.get("params", after.params), after.own)
        after = _with_options(session, after, options, now)
        _check_completion(after, clauses)
        if clauses.state is not UNSET:
            after = msgspec.structs.replace(after, state=clauses.state)
        if statement.rename_to is not UNSET:
            after = renamed(session, after, statement.rename_to)
        return _in_state(run, after, who)

    if borrows:
        check_use(run, altered(job, run.ask.now), who)
    return altered


def _with_options(session: Session, job: Schedule, options: Mapping[str, Any], now: Instant) -> Schedule:
    try:
        return changed(session, job, options, now) if options else job
    except InvalidParams as error:
        raise params_refusal(error) from None


BORROWED = ("body", "connection", "run_as", "secrets")
"""Clauses by which a job uses rights of its owner: who changes one must have those rights, and becomes the owner.

So does who changes PARAMS, if they mention a secret in another place than before.
"""


def _borrows(run: Execution, job: Schedule, clauses: Clauses, who: Actor) -> bool:
    """Say whether these clauses change what a job of its own has of its owner; refuse secrets that the author may not use."""
    params = {} if clauses.params is UNSET else msgspec.json.decode(clauses.params)
    known = run.ask.registry.find(job.job_type)
    is_work = is_kind(job.job_type) or (known is not None and known.is_work)
    mentioned = mentioned_anew(params, job.params) if is_work else set()
    if job.own is not None:
        return bool(mentioned) or any(getattr(clauses, part) is not UNSET for part in BORROWED)
    check_mentions(run, job, mentioned, who)
    return False


def owned(run: Execution, job: Schedule, who: Actor) -> Schedule:
    """Return a job that runs with the rights of an actor; the role of one who is not a user of the store is kept with it."""
    assert job.own is not None  # noqa: S101 - the caller looked
    defaults = {name: value for name, value in job.own.defaults.items() if name != OWNER_ROLE}
    if is_kind(job.own.job_type) and who.role is not Role.MANAGER and who.name not in run.ask.registry.users:
        defaults[OWNER_ROLE] = str(who.role)
    own = msgspec.structs.replace(job.own, defaults=defaults)
    return msgspec.structs.replace(job, created_by=who.name, own=own)


def _lent(job: Schedule) -> tuple[object, ...]:
    """Return what a job has of its owner, and whose it is."""
    return job.own, job.run_as, job.params, job.created_by


def options_of(clauses: Clauses, zone: str, before: Schedule | None = None) -> dict[str, Any]:
    """Return clauses as options of a schedule; `zone` is that of moments without one."""
    options: dict[str, Any] = {}
    for field in ("timezone", "calendar", "depends_on", "priority", "description", "on_completion", "jitter", "catch_up", "overlap"):
        value = getattr(clauses, field)
        if value is not UNSET:
            options[field] = value
    overlap = Overlap.SKIP if before is None else before.overlap
    if clauses.catch_up is CatchUp.ALL and clauses.overlap is UNSET and overlap is Overlap.SKIP:
        # What is caught up would be skipped otherwise.
        options["overlap"] = Overlap.QUEUE
    if clauses.params is not UNSET:
        options["params"] = msgspec.json.decode(clauses.params)
    rule = clauses.schedule
    if isinstance(rule, OnCronLine):
        options |= {"cron": rule.cron, "starts": None, "ends": None}
    elif isinstance(rule, OnceAt):
        options["at"] = moment_of(instant_in(rule.at, zone))
    elif isinstance(rule, AtIntervals):
        options |= {"every": rule.every, "ends": None if rule.ends is None else moment_of(instant_in(rule.ends, zone))}
        if rule.starts is not None:
            options["starts"] = moment_of(instant_in(rule.starts, zone))
    return options


def _check_parents(run: Execution, clauses: Clauses, organization: str) -> None:
    """Refuse a dependency that is not there, naming which."""
    for place, name in enumerate(clauses.depends_on or ()):
        if not run.ask.store.schedules(scope=Scope(organization), name=name):
            raise Refusal(f"depends_on.{place}", f"there is no job {name} that you may see", code="unknown_job", sqlstate="42704")


def _check_future(clauses: Clauses, now: Instant, zone: str) -> None:
    """Refuse a moment or an end that has passed: the job would never be due."""
    rule = clauses.schedule
    try:
        if isinstance(rule, OnceAt) and instant_in(rule.at, zone) <= now:
            message = f"{timestamp_text(rule.at)} has passed: use a moment to come, or EXECUTE JOB after creating it"
            raise Refusal("schedule.at", message, code="invalid_schedule", sqlstate="22008")
        if isinstance(rule, AtIntervals) and rule.ends is not None and instant_in(rule.ends, zone) <= now:
            message = f"the job would never be due: ENDS {timestamp_text(rule.ends)} has passed"
            raise Refusal("schedule.ends", message, code="invalid_schedule", sqlstate="22023")
    except InvalidSchedule as error:
        part = "schedule.at" if isinstance(rule, OnceAt) else "schedule.starts"
        raise Refusal(part, str(error), code="invalid_schedule", sqlstate="22023") from None


def _check_completion(job: Schedule, clauses: Clauses) -> None:
    if job.on_completion is OnCompletion.DROP and job.timing.kind is not Kind.AT:
        part = "on_completion clause" if clauses.on_completion is not UNSET else "schedule"
        message = f"ON COMPLETION DROP is for AT: a job with {job.timing.kind} does not complete"
        raise Refusal(part, message, code="sql_invalid", sqlstate="42601")


def _refuse_shared(job: Schedule, clauses: Clauses) -> None:
    """Refuse what only a job with a template of its own can have."""
    for field in ("job_class", "partition", "max_retries", "retry_backoff", "timeout", *BORROWED):
        if getattr(clauses, field) is not UNSET:
            message = f"job {job.name} is a schedule of template {job.template}: change {field.upper()} with `rota template update`"
            raise not_yet(field, message)


def _in_state(run: Execution, job: Schedule, who: Actor) -> Schedule:
    """Return the job in a state that it can have: one that nothing can run is disabled."""
    own = job.own
    if own is None or job.state is ScheduleState.DISABLED:
        return job
    if is_kind(own.job_type):
        return without_connection(run, job)
    registry = run.ask.registry
    known = registry.find(own.job_type)
    if known is None:
        raise _no_procedure(own.job_type)
    if known.state != TemplateState.ENABLED:
        raise unfit_for_schedules(own.job_type, known.state)
    registry.refuse_unfit(who, own.job_type)
    return job


def _no_procedure(name: str) -> Refusal:
    message = f"there is no procedure {name} here: register a handler of that name, or create the job DISABLED with arguments by name"
    return Refusal("body", message, code="unknown_procedure", sqlstate="42883")


# ---- the template -----------------------------------------------------------------------------------------------------


class _Work(NamedTuple):
    """What a body makes of a template."""

    kind: JobKind
    job_type: str
    text: str
    arguments: dict[str, Any] | None = None


def _new_own(run: Execution, clauses: Clauses, template_id: str, who: Actor) -> OwnTemplate:
    assert clauses.body is not UNSET  # noqa: S101 - the parser looked
    settings = run.ask.session.current()
    usual = Clauses(max_retries=settings.sql_job_retries, retry_backoff=settings.sql_job_backoff, timeout=settings.sql_job_timeout)
    empty = OwnTemplate(id=template_id, kind=JobKind.SQL, job_type="", defaults=_defaults(run, usual, {}))
    return _changed_own(run, empty, clauses, _work(run, clauses.body, clauses.connection or None, who.organization, who))


def _changed_own(run: Execution, own: OwnTemplate, clauses: Clauses, work: _Work | None) -> OwnTemplate:
    defaults = _defaults(run, clauses, own.defaults)
    fields: dict[str, Any] = {}
    for part in ("connection", "secrets"):
        named = getattr(clauses, part)
        if named is not UNSET:
            defaults.pop(part, None)
            if named:
                defaults[part] = named if isinstance(named, str) else list(named)
    if work is not None:
        fields |= {"kind": work.kind, "job_type": work.job_type, "body": work.text}
        defaults.pop("default_params", None)
        if work.arguments:
            defaults["default_params"] = work.arguments
    if clauses.job_class is not UNSET:
        fields["job_class"] = str(clauses.job_class)
    if clauses.partition is not UNSET:
        fields |= _partition(clauses.partition)
    after = msgspec.structs.replace(own, defaults=defaults, **fields)
    if work is not None or clauses.secrets is not UNSET:
        check_takes_secrets(after)
    return after


def _defaults(run: Execution, clauses: Clauses, before: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(before)
    if clauses.max_retries is not UNSET:
        said["max_retries"] = clauses.max_retries
    if clauses.timeout is not UNSET:
        said["timeout"] = float(clauses.timeout)
    if clauses.retry_backoff is not UNSET:
        base = float(clauses.retry_backoff)
        backoff = Backoff(base=base, factor=BACKOFF_FACTOR, cap=max(base, run.ask.settings.backoff_cap), jitter=0.0)
        said["backoff"] = msgspec.to_builtins(backoff)
    return said


def _partition(rule: Partition) -> dict[str, str | None]:
    fields: dict[str, str | None] = {"partition_shard": None, "partition_expression": None}
    if isinstance(rule, AllShards):
        return fields | {"partition_strategy": "ALL_SHARDS"}
    if isinstance(rule, SingleShard):
        return fields | {"partition_strategy": "SINGLE_SHARD", "partition_shard": rule.shard}
    if isinstance(rule, ShardSet):
        # A list has no column of its own.
        return fields | {"partition_strategy": "SHARD_SET", "partition_expression": msgspec.json.encode(rule.shards).decode()}
    return fields | {"partition_strategy": "DYNAMIC", "partition_expression": rule.expression}


def _work(run: Execution, body: Body, connection: str | None, organization: str, who: Actor) -> _Work:
    if isinstance(body, SqlBody):
        return _Work(JobKind.SQL, sql_type(organization, connection), body.sql)
    if isinstance(body, ExecBody):
        run.also(Right.EXTERNAL)
        if connection is not None:
            raise Refusal("connection", "a command uses no connection: leave CONNECTION out", code="sql_invalid", sqlstate="42601")
        return _Work(JobKind.EXTERNAL, EXTERNAL_TYPE, body.command)
    if connection is not None:
        # A procedure of the database, with its arguments as literals.
        return _Work(JobKind.PROCEDURE, sql_type(organization, connection), _call_text(_literal(run, body)))
    handler = ".".join(body.procedure)
    if is_kind(handler):
        raise _no_procedure(handler)
    run.ask.registry.sync(run.ask.store, run.ask.now)
    run.ask.registry.refuse_unfit(who, handler)
    call = _literal(run, body)
    return _Work(JobKind.PROCEDURE, handler, _call_text(call), _arguments(run, handler, call))


def _literal(run: Execution, body: CallBody) -> CallBody:
    """Return a call with the values of its parameters in their places."""

    def literal(argument: Argument) -> Argument:
        value = run.value(argument)
        return Decimal(str(value)) if isinstance(value, float) else value

    named = tuple(NamedArgument(each.name, literal(each.value)) for each in body.named)
    return CallBody(body.procedure, tuple(map(literal, body.arguments)), named)


def _arguments(run: Execution, handler: str, call: CallBody) -> dict[str, Any]:
    """Return the arguments of a call by the names of the handler's parameters, checked as far as they are known here."""
    arguments: dict[str, Any] = {}
    if call.arguments:
        names = _parameters(run, handler)
        if len(call.arguments) > len(names):
            raise Refusal(
                "body", f"{handler} takes {len(names)} arguments; found {len(call.arguments)}", code="invalid_params", sqlstate="42883"
            )
        arguments = {name: run.value(value) for name, value in zip(names, call.arguments, strict=False)}
    for each in call.named:
        if each.name in arguments:
            raise Refusal("body", f"the argument {each.name} is given by place and by name", code="invalid_params", sqlstate="42601")
        arguments[each.name] = run.value(each.value)
    known = run.ask.registry.handlers.get(handler)
    if known is not None and arguments:
        unknown = next((name for name in arguments if known.allowed is not None and name not in known.allowed), None)
        try:
            if unknown is not None:
                raise InvalidInput(f"{handler} has no parameter {unknown}; it takes: {', '.join(sorted(known.allowed or ())) or 'none'}")
            known.check_context(arguments)
            known.codec.check_some(arguments, handler)
        except InvalidInput as error:
            raise Refusal("body", str(error), code="invalid_params", sqlstate="22023") from None
    return arguments


def _parameters(run: Execution, handler: str) -> list[str]:
    """Return the names of a handler's parameters in their order, where they are known."""
    known = run.ask.registry.handlers.get(handler)
    if known is not None:
        parameters = inspect.signature(known.function).parameters.values()
        return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != known.context]
    if run.ask.registry.find(handler) is None:
        raise _no_procedure(handler)
    recorded = run.ask.store.newest_params(handler)
    if recorded is None or recorded.schema is None:
        message = f"the order of {handler}'s parameters is not known here: pass arguments by name, such as {handler}(region => 'eu')"
        raise Refusal("body", message, code="invalid_params", sqlstate="42883")
    return list(recorded.schema.get("properties", {}))


def _call_text(call: CallBody) -> str:
    """Return a call as text, without the word CALL."""
    return render(AlterJob("j", Clauses(body=call))).partition("SET CALL ")[2].removesuffix(";")


# ---- and back ---------------------------------------------------------------------------------------------------------


def clauses_of(job: Schedule, own: OwnTemplate, settings: Settings) -> Clauses:
    """Return the clauses that create a job like this one; those that say no more than the defaults are left out."""
    timing, plain = job.timing, Schedule(id="", name="", organization="", template="", timing=job.timing)
    plain = msgspec.structs.replace(plain, catch_up=CatchUp(settings.catch_up))
    fields: dict[str, Any] = {"schedule": _rule(job), "body": body_of(own)}
    if own.job_class is not None:
        fields["job_class"] = JobClass(own.job_class)
    if own.partition_strategy is not None:
        fields["partition"] = partition_of(own)
    if timing.timezone != "UTC":
        fields["timezone"] = timing.timezone
    for field in ("catch_up", "overlap", "calendar", "on_completion", "priority", "description"):
        if getattr(job, field) != getattr(plain, field):
            fields[field] = getattr(job, field)
    if job.jitter:
        fields["jitter"] = job.jitter // SECOND
    if job.depends_on:
        fields["depends_on"] = job.depends_on
    fields |= {part: own.defaults[part] for part in ("connection", "secrets") if part in own.defaults}
    if "secrets" in fields:
        fields["secrets"] = tuple(fields["secrets"])
    if job.run_as is not None:
        fields["run_as"] = job.run_as
    if job.params:
        fields["params"] = msgspec.json.encode(job.params, order="sorted").decode()
    if job.state is not ScheduleState.ENABLED:
        fields["state"] = job.state
    return Clauses(**fields | _said_of_retries(own, settings))


def _said_of_retries(own: OwnTemplate, settings: Settings) -> dict[str, int]:
    said = own.defaults
    facts = {
        "max_retries": (said.get("max_retries", settings.sql_job_retries), settings.sql_job_retries),
        "retry_backoff": (said.get("backoff", {}).get("base", settings.sql_job_backoff), settings.sql_job_backoff),
        "timeout": (said.get("timeout", settings.sql_job_timeout), settings.sql_job_timeout),
    }
    return {name: int(value) for name, (value, usual) in facts.items() if value != usual}


def _rule(job: Schedule) -> OnCronLine | OnceAt | AtIntervals:
    timing = job.timing
    if timing.kind is Kind.CRON:
        return OnCronLine(timing.cron or "")
    if timing.kind is Kind.AT:
        return OnceAt(moment_of(timing.at or 0))
    bounds = [None if at is None else moment_of(at) for at in (timing.starts_at, timing.ends_at)]
    return AtIntervals((timing.interval or SECOND) // SECOND, *bounds)


def partition_of(own: OwnTemplate) -> Partition:
    """Return the partition of a job."""
    match own.partition_strategy:
        case "SINGLE_SHARD":
            return SingleShard(own.partition_shard or "")
        case "SHARD_SET":
            return ShardSet(msgspec.json.decode(own.partition_expression or "[]", type=tuple[str, ...]))
        case "DYNAMIC":
            return DynamicShards(own.partition_expression or "")
        case _:
            return AllShards()


def body_of(own: OwnTemplate) -> Body:
    """Return what a job does."""
    if own.kind is JobKind.SQL:
        return SqlBody(own.body or "")
    if own.kind is JobKind.EXTERNAL:
        return ExecBody(own.body or "")
    statement = parse(f"ALTER JOB j SET CALL {own.body}")
    assert isinstance(statement, AlterJob)  # noqa: S101 - as written
    assert statement.clauses.body is not UNSET  # noqa: S101 - the same
    return statement.clauses.body
