"""Templates: what is in force for each type of job, and whether it takes new jobs."""

from __future__ import annotations

import builtins
import logging
import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec

from rota.declarations import synced
from rota.engine.registry import Known
from rota.errors import ChangedMeanwhile, InvalidOption, NotFound, UnknownTemplate
from rota.model.backoff import Backoff, StrictBackoff
from rota.model.checks import check_name
from rota.model.definitions import Template, TemplateState
from rota.model.gate import Right
from rota.model.kinds import RUNNER, check_type_name
from rota.model.schedules import IN_WORDS, JobKind, Schedule, ScheduleState
from rota.model.secret_params import named_secrets, refuse_unnamed
from rota.model.secrets import check_secret_name
from rota.model.shapes import Params, Priority, Shape, Span
from rota.model.templates import FIELDS, OF_THE_HANDLER, Rate, Spec, as_object, check_defaults, from_object, in_force, spec_of
from rota.operation import Ask, Resource, operation
from rota.task import WorkTask
from rota.template_views import TemplateView, template_view

log = logging.getLogger("rota.templates")

BODY_MAX_CHARS = 1_000_000
"""Characters of an SQL text or a command."""
TemplateName = Annotated[str, Shape("The template's name or id.", "send_email", "TEMPLATE")]
RateLike = Annotated[Rate | str | tuple[int, float], Shape("At most N in a window of time.", "10/60s", "RATE", wire=dict[str, float] | str)]


class WorkOptions(TypedDict, total=False):
    """The fields of any template. None removes a limit."""

    display_name: Annotated[str, Shape("Name shown to people.", "Send an email", "TEXT")]
    description: Annotated[str | None, Shape("What its jobs do.", metavar="TEXT")]
    priority: Priority
    timeout: Annotated[Span, Shape("Longest run of one attempt.")]
    max_retries: Annotated[int, Shape("Retries after a failure.", metavar="N")]
    max_crashes: Annotated[int, Shape("Attempts that may be lost with their worker.", metavar="N")]
    backoff: Annotated[
        Backoff, Shape("The delays between retries.", {"base": 60, "factor": 2, "cap": 86400, "jitter": 0.2}, "JSON", wire=StrictBackoff)
    ]
    queue: Annotated[str, Shape("The queue that its jobs wait in.", "mail", "QUEUE")]
    queue_ttl: Annotated[Span | None, Shape("Longest wait in the queue. Default: no limit.")]
    payload_max: Annotated[int | None, Shape("Largest params, in bytes.", metavar="BYTES")]
    dedup_window: Annotated[Span | None, Shape("How long the same params are refused. Default: never.")]
    requires_permission: Annotated[str | None, Shape("The permission that submitting it requires.", metavar="NAME")]
    max_running: Annotated[int | None, Shape("Jobs that run at the same time, in all workers.", metavar="N")]
    concurrency: Annotated[int | None, Shape("Jobs that run at the same time in one worker.", metavar="N")]
    rate_limit: Annotated[RateLike | None, Shape("Jobs that start in a window of time.")]
    submit_limit: Annotated[RateLike | None, Shape("Jobs that are accepted in a window of time.")]
    default_params: Annotated[Params | None, Shape("Params that a job has unless it sets its own.")]


class TemplateOptions(WorkOptions, total=False):
    """The fields of a template that operators can set. What is left out stays; None removes a limit."""

    handler: Annotated[str, Shape("Where its code is. A new template needs it.", "package.module:function", "PATH")]
    executor: Annotated[Literal["thread", "async", "process", "inline"], Shape("thread, async, process or inline.", "process", "WORD")]


ConnectionName = Annotated[
    str | None, Shape("The connection that its SQL uses. Default: the one called default of the job's organization.", "warehouse", "NAME")
]
SecretNames = Annotated[builtins.list[str] | None, Shape("Secrets that its jobs are given.", ["api_key"], "NAME")]


class Templates(Resource):
    """The templates of the store."""

    __slots__ = ()

    @operation(Right.READ, http="GET /templates", cli="template list")
    def list(self, ask: Ask, *, archived: Annotated[bool, Shape("Include archived ones.")] = False) -> builtins.list[TemplateView]:
        """Return the templates, sorted by name; archived ones only if asked for."""
        templates = sorted(recorded(ask).values(), key=lambda known: known.name)
        return [template_view(known) for known in templates if archived or known.state != TemplateState.ARCHIVED]

    @operation(Right.READ, http="GET /templates/{name}", cli="template get", etag=True)
    def get(self, ask: Ask, name: TemplateName) -> TemplateView:
        """Return one template, archived or not: what is in force, and where each value comes from."""
        known = _known(ask, name)
        view = template_view(known)
        if known.is_work and known.record is not None and ask.may(Right.MANAGE_TEMPLATES) is not None:
            # Its text may hold a secret.
            view = msgspec.structs.replace(view, body=known.record.body)
        newest = ask.store.newest_params(view.name)
        return view if newest is None else msgspec.structs.replace(view, digest=newest.digest, params_schema=newest.schema)

    @operation(Right.MANAGE_TEMPLATES, http="PATCH /templates/{name}", cli="template update", etag=True)
    def update(self, ask: Ask, name: TemplateName, **options: Unpack[TemplateOptions]) -> TemplateView:
        """Set some fields of a template; they take precedence over its code. Creates the template if there is none. None removes a limit.

        A new one needs a `handler`, as "package.module:function", unless this process has it.
        """
        name = ask.session.template_name(name)
        check_type_name(name, "template", ask.settings.name_max)
        if not options:
            raise InvalidOption(f"nothing to set: give some of {', '.join(FIELDS)}")
        overrides = as_object(spec_of(options))
        check_overrides(ask, name, overrides)
        _put(ask, name, overrides=overrides)
        return template_view(_known(ask, name))

    @operation(Right.MANAGE_TEMPLATES, http="PUT /templates/{name}/work", cli="template define", etag=True)
    def define(
        self,
        ask: Ask,
        name: TemplateName,
        *,
        sql: Annotated[str | None, Shape("The statement that its jobs run. :name stands for a param.", "SELECT 1", "TEXT")] = None,
        command: Annotated[str | None, Shape("The command that its jobs run.", "/usr/bin/backup --all", "TEXT")] = None,
        connection: ConnectionName = None,
        secrets: SecretNames = None,
        **options: Unpack[WorkOptions],
    ) -> TemplateView:
        """Define a template that is SQL or a command: create it, or replace all of its definition. What operators have set stays on top.

        Jobs that were enqueued before a change keep what they were enqueued with.
        """
        work = work_of(ask, sql=sql, command=command, connection=connection, secrets=secrets or ())
        name = ask.session.template_name(name)
        check_type_name(name, "template", ask.settings.name_max)
        # What this process registers counts, too, though no job of it was enqueued yet.
        recorded(ask)
        write_work(ask, work_template(ask, name, work, spec_of(options)))
        return template_view(_known(ask, name))

    def sql(
        self, name: str, sql: str, *, connection: str | None = None, secrets: Iterable[str] = (), **options: Unpack[WorkOptions]
    ) -> WorkTask:
        """Define a template that is SQL, and return its task: `task.enqueue(region="eu")` binds :region."""
        view = self.define(name, sql=sql, connection=connection, secrets=builtins.list(secrets), **options)
        return WorkTask(view.name, self._session.app.acting_as(self._actor))

    def command(self, name: str, command: str, *, secrets: Iterable[str] = (), **options: Unpack[WorkOptions]) -> WorkTask:
        """Define a template that is a command, and return its task."""
        view = self.define(name, command=command, secrets=builtins.list(secrets), **options)
        return WorkTask(view.name, self._session.app.acting_as(self._actor))

    @operation(Right.MANAGE_TEMPLATES, http="POST /templates/{name}/reset", cli="template reset", etag=True)
    def reset(
        self,
        ask: Ask,
        name: TemplateName,
        *fields: Annotated[str, Shape("The fields to reset. Default: all.", "timeout", "FIELD", wire=builtins.list[str])],
    ) -> TemplateView:
        """Remove what operators have set for these fields, or for all: the values of the code or the settings apply again."""
        known = _known(ask, name)
        name = known.name
        unknown = [field for field in fields if field not in FIELDS]
        if unknown:
            raise InvalidOption(f"a template has no field {unknown[0]!r}: it has {', '.join(FIELDS)}")
        homeless = known.code.handler is msgspec.UNSET
        if homeless and "handler" in fields:
            raise InvalidOption(f"nobody else says which handler {name!r} has: set another, or archive the template")
        # A template that only operators have defined would be an empty name without its handler.
        unset = fields or tuple(field for field in FIELDS if not (homeless and field in OF_THE_HANDLER))
        _put(ask, name, unset=unset)
        return template_view(_known(ask, name))

    @operation(Right.MANAGE_TEMPLATES, http="POST /templates/{name}/enable", cli="template enable", etag=True)
    def enable(self, ask: Ask, name: TemplateName) -> TemplateView:
        """Let a template take new jobs again."""
        return _set_state(ask, name, TemplateState.ENABLED)

    @operation(Right.MANAGE_TEMPLATES, http="POST /templates/{name}/disable", cli="template disable", etag=True)
    def disable(self, ask: Ask, name: TemplateName) -> TemplateView:
        """Refuse new jobs of a template. Waiting and running ones continue."""
        return _set_state(ask, name, TemplateState.DISABLED)

    @operation(
        Right.MANAGE_TEMPLATES,
        http="POST /templates/{name}/archive",
        cli="template archive",
        etag=True,
        confirm="Archive template {name}? Its schedules are disabled.",
    )
    def archive(self, ask: Ask, name: TemplateName) -> TemplateView:
        """Refuse new jobs of a template and leave it out of lists. Waiting and running ones continue; its schedules are disabled."""
        return _set_state(ask, name, TemplateState.ARCHIVED)

    @operation(
        Right.MANAGE_TEMPLATES,
        http="DELETE /templates/{name}",
        cli="template delete",
        etag=True,
        status=204,
        confirm="Delete template {name}?",
    )
    def delete(self, ask: Ask, name: TemplateName) -> None:
        """Delete a template that has no jobs and no schedules. Code that still registers it creates it again."""
        ask.store.drop_template(ask.session.template_name(name), actor=ask.who, now=ask.now, version=ask.version)

    @operation(Right.OPERATE, http="POST /templates/{name}/pause", cli="template pause", status=204)
    def pause(self, ask: Ask, name: TemplateName) -> None:
        """Stop new jobs of a template from starting until it is resumed. Running ones continue."""
        ask.store.pause("template", ask.session.template_name(name), actor=ask.who, now=ask.now)

    @operation(Right.OPERATE, http="POST /templates/{name}/resume", cli="template resume", status=204)
    def resume(self, ask: Ask, name: TemplateName) -> None:
        """End the pause of a template."""
        ask.store.resume("template", ask.session.template_name(name), actor=ask.who, now=ask.now)
        ask.session.poke()


class Work(msgspec.Struct, frozen=True):
    """What a template does that is not Python."""

    kind: JobKind
    body: str
    defaults: dict[str, object]


def work_of(ask: Ask, *, sql: str | None, command: str | None, connection: str | None, secrets: Iterable[str]) -> Work:
    """Return what a template is to do, or refuse it."""
    body, kind = (sql, JobKind.SQL) if command is None else (command, JobKind.EXTERNAL)
    if (sql is None) == (command is None) or body is None:
        raise InvalidOption("a template is SQL or a command: pass one of sql and command")
    if not body.strip() or "\x00" in body or len(body) > BODY_MAX_CHARS:
        raise InvalidOption(f"{'sql' if kind is JobKind.SQL else 'command'} is empty or too long: at most {BODY_MAX_CHARS:,} characters")
    names = [check_secret_name(name) for name in secrets]
    defaults: dict[str, object] = {"secrets": names} if names else {}
    if kind is JobKind.EXTERNAL:
        ask.also(Right.EXTERNAL)
        if connection is not None:
            raise InvalidOption(f"connection={connection!r} is not allowed: a command uses no connection")
        _check_command(body)
    elif connection is not None:
        check_name(connection, "connection", ask.settings.name_max)
        defaults["connection"] = connection
    return Work(kind, body, defaults)


def _check_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidOption(f"command has a quote or an escape that is not closed: {error}") from None
    if not words or not words[0].startswith("/"):
        raise InvalidOption(f"command begins with {words[0] if words else ''!r:.60}: use the absolute path of a program")


def work_template(ask: Ask, name: str, work: Work, spec: Spec) -> Template:
    """Return a template that is SQL or a command, or refuse what it can't have."""
    said = as_object(spec)
    refuse_handler(name, work.kind, said)
    defaults = said | {"executor": RUNNER} | work.defaults
    force = in_force(name, ask.settings, from_object(defaults), Spec())
    check_defaults(force, handler=None)
    refuse_unnamed(force.default_params, named_secrets(defaults))
    return msgspec.structs.replace(new_template(ask, name), kind=work.kind, body=work.body, defaults=defaults)


def refuse_handler(name: str, kind: JobKind, said: Mapping[str, object]) -> None:
    """Refuse fields that only a template in Python has."""
    field = next((field for field in OF_THE_HANDLER if field in said), None)
    if field is not None:
        raise InvalidOption(f"{field}={said[field]!r} is not allowed: template {name!r} is {IN_WORDS[kind]}, and only Python has a {field}")


def write_work(ask: Ask, template: Template) -> None:
    """Write the definition of a template that is SQL or a command."""
    ask.store.define_template(template, actor=ask.who, now=ask.now, version=ask.version)
    ask.session.poke()


def recorded(ask: Ask) -> dict[str, Known]:
    """Return the templates that are in the store, those of this process among them."""
    ask.registry.sync(ask.store, ask.now)
    return {known.name: known for known in ask.registry.known() if known.record is not None}


def check_overrides(ask: Ask, name: str, overrides: dict[str, object]) -> None:
    """Refuse values that the template can't have together with those it has."""
    known = recorded(ask).get(name)
    if "handler" not in overrides and known is None:
        raise InvalidOption(
            f"template {name!r} is not there yet and needs a handler: pass handler='package.module:function', "
            "or register its function with @rota.job"
        )
    if known is not None and known.is_work and known.record is not None:
        refuse_handler(name, known.record.kind, overrides)
    if "default_params" in overrides or "payload_max" in overrides:
        code, people = (Spec(), {}) if known is None else (known.code, as_object(known.people))
        force = in_force(name, ask.settings, code, from_object(people | overrides))
        check_defaults(force, handler=None if known is None else known.handler)
        if known is not None and known.is_work and known.record is not None:
            refuse_unnamed(force.default_params, named_secrets(known.record.defaults))


def new_template(ask: Ask, name: str, state: TemplateState = TemplateState.ENABLED) -> Template:
    """Return the template as it is created if there is none of this name."""
    return Template(id=ask.session.ids.take(1, ask.now)[0], name=name, job_type=name, state=state)


def write_state(ask: Ask, name: str, state: TemplateState) -> None:
    """Write a template's state; the schedules of one that is archived are disabled."""
    if state is TemplateState.ARCHIVED:
        _disable_schedules(ask, name)
    ask.store.set_template_state(name, state, actor=ask.who, now=ask.now, version=ask.version)
    if state is TemplateState.ARCHIVED:
        # Schedules may have been created since they were first listed; from now on none can be.
        _disable_schedules(ask, name)


def _known(ask: Ask, name: str) -> Known:
    templates = recorded(ask)
    known = templates.get(ask.registry.name_of(name))
    if known is None:
        raise UnknownTemplate(f"there is no template {name!r}: `rota template list` shows them")
    return known


def _put(ask: Ask, name: str, *, overrides: dict[str, object] | None = None, unset: Iterable[str] = ()) -> None:
    template = new_template(ask, name)
    ask.store.set_template(template, actor=ask.who, now=ask.now, overrides=overrides or {}, unset=tuple(unset), version=ask.version)
    ask.session.poke()


def _set_state(ask: Ask, name: str, state: TemplateState) -> TemplateView:
    known = _known(ask, name)
    name, record, version = known.name, known.record, ask.version
    if version is not None and record is not None and record.version != version:
        # The store compares again; this is before the schedules of one that is archived are disabled.
        raise ChangedMeanwhile(f"template {name!r}", has=record.version, given=version)
    write_state(ask, name, state)
    return template_view(_known(ask, name))


def _disable_schedules(ask: Ask, template: str) -> None:
    """Disable the schedules of a template, of all organizations: none of them could create a job any more."""
    for schedule in synced(ask.session).schedules(template=template):
        if schedule.state is ScheduleState.DISABLED:
            continue
        try:
            _disable_schedule(ask, schedule.id)
        except NotFound:
            continue  # deleted in the meantime, or an AT schedule that is over
        log.warning(
            "schedule %s of organization %s is disabled: its template %s is archived", schedule.name, schedule.organization, template
        )


def _disable_schedule(ask: Ask, schedule_id: str) -> None:
    from rota.schedule_edits import edited  # noqa: PLC0415 - only archiving needs it

    def disable(schedule: Schedule) -> Schedule:
        return msgspec.structs.replace(schedule, state=ScheduleState.DISABLED)

    edited(ask.session, schedule_id, disable, ask.who)
