"""Templates as people see and set them: what is in force, whose word it is, and whether it takes new jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from rota.engine.registry import Known
from rota.errors import ChangedMeanwhile, InvalidOption, NotFound, UnknownTemplate
from rota.model.backoff import Backoff
from rota.model.checks import check_name
from rota.model.definitions import Template, TemplateState
from rota.model.gate import Actor, Operation
from rota.model.schedules import Schedule, ScheduleState
from rota.model.templates import (
    FIELDS,
    OF_THE_HANDLER,
    Rate,
    Source,
    Spec,
    as_object,
    check_defaults,
    from_object,
    in_force,
    said_by,
    spec_of,
)
from rota.surfaces.python.declaring import Declaring

log = logging.getLogger("rota.templates")

_backoff = msgspec.json.Decoder(Backoff)


class TemplateView(msgspec.Struct, kw_only=True, frozen=True):
    """One template as it stands for a job made now. Times are in seconds, sizes in bytes; None does not limit."""

    name: str
    state: TemplateState
    version: int
    display_name: str
    description: str | None
    handler: str | None
    handled_here: bool
    """This process has its handler."""
    executor: str
    priority: int
    timeout: float
    max_retries: int
    max_crashes: int
    backoff: Backoff
    queue: str
    queue_ttl: float | None
    payload_max: int
    dedup_window: float | None
    requires_permission: str | None
    max_running: int | None
    concurrency: int | None
    rate_limit: Rate | None
    submit_limit: Rate | None
    default_params: dict[str, object] | None
    sources: dict[str, Source]
    """For each of the fields above: whether it is a setting's word, the code's, or people's."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    digest: str | None = None
    """Of the parameters of its newest handler; None: not recorded, or a list of templates."""
    params_schema: dict[str, Any] | None = None
    """JSON Schema of the params object, as its newest handler has it."""


class Defining(Declaring):
    """The part of Rota that keeps templates."""

    def templates(self, *, archived: bool = False, actor: Actor | str | None = None) -> list[TemplateView]:
        """Return the templates in the order of their names; archived ones only if asked for."""
        self._session.scope(actor, Operation.READ)
        found = sorted(self._recorded().values(), key=lambda known: known.name)
        return [_view(known) for known in found if archived or known.state != TemplateState.ARCHIVED]

    def template(self, name: str, *, actor: Actor | str | None = None) -> TemplateView:
        """Return one template, archived or not: what is in force, and whose word each field is."""
        self._session.scope(actor, Operation.READ)
        view = _view(self._known_template(name))
        newest = self._session.open().store.newest_params(view.name)
        if newest is None:
            return view
        return msgspec.structs.replace(view, digest=newest.digest, params_schema=newest.schema)

    def set_template(self, name: str, *, version: int | None = None, actor: Actor | str | None = None, **options: Any) -> TemplateView:
        """Set some fields of a template on top of what its code says, making it if it is not there. None takes a limit away.

        A new one needs a `handler`, as "package.module:function", unless this process has it. With a `version` (0: it is not there)
        nothing is written if it has another one by now.
        """
        who = self._session.acts(actor, Operation.MANAGE_TEMPLATES)
        name = self._session.template_name(name)
        check_name(name, "template", self.settings.name_max)
        if not options:
            raise InvalidOption(f"nothing to set: give some of {', '.join(FIELDS)}")
        overrides = as_object(spec_of(options))
        self._check_overrides(name, overrides)
        self._put(self._new(name), who, overrides=overrides, version=version)
        return self.template(name)

    def reset_template(self, name: str, *fields: str, version: int | None = None, actor: Actor | str | None = None) -> TemplateView:
        """Take back what people have set of these fields, or (none given) of all: what the code or the settings say holds again."""
        who = self._session.acts(actor, Operation.MANAGE_TEMPLATES)
        known = self._known_template(name)
        name = known.name
        unknown = [field for field in fields if field not in FIELDS]
        if unknown:
            raise InvalidOption(f"a template has no field {unknown[0]!r}: it has {', '.join(FIELDS)}")
        homeless = known.code.handler is msgspec.UNSET
        if homeless and "handler" in fields:
            raise InvalidOption(f"nobody else says which handler {name!r} has: set another, or archive the template")
        # Without its handler a template that only people have made would be an empty name.
        taken = fields or tuple(field for field in FIELDS if not (homeless and field in OF_THE_HANDLER))
        self._put(self._new(name), who, unset=taken, version=version)
        return self.template(name)

    def enable_template(self, name: str, *, version: int | None = None, actor: Actor | str | None = None) -> TemplateView:
        """Let a template take new jobs again."""
        return self._set_template_state(name, TemplateState.ENABLED, version, actor)

    def disable_template(self, name: str, *, version: int | None = None, actor: Actor | str | None = None) -> TemplateView:
        """Refuse new jobs of a template. Those that wait or run go on."""
        return self._set_template_state(name, TemplateState.DISABLED, version, actor)

    def archive_template(self, name: str, *, version: int | None = None, actor: Actor | str | None = None) -> TemplateView:
        """Refuse new jobs of a template and leave it out of lists. Those that wait or run go on; its schedules are disabled."""
        return self._set_template_state(name, TemplateState.ARCHIVED, version, actor)

    def delete_template(self, name: str, *, version: int | None = None, actor: Actor | str | None = None) -> None:
        """Remove a template that has no jobs and no schedules. Code that still registers it makes it anew."""
        who = self._session.acts(actor, Operation.MANAGE_TEMPLATES)
        self._session.open().store.drop_template(
            self._session.template_name(name), actor=who, now=self._session.clock.now(), version=version
        )

    # ---- inside -----------------------------------------------------------------------------------------------

    def _recorded(self) -> dict[str, Known]:
        """Return the templates that are in the store, this process's own among them."""
        self._session.registry.sync(self._session.open().store, self._session.clock.now())
        return {known.name: known for known in self._session.registry.known() if known.record is not None}

    def _known_template(self, name: str) -> Known:
        found = self._recorded().get(self._session.registry.name_of(name))
        if found is None:
            raise UnknownTemplate(f"there is no template {name!r}: `rota template list` shows them")
        return found

    def _new(self, name: str, state: TemplateState = TemplateState.ENABLED) -> Template:
        """Return the template as it is made if it is not there."""
        return Template(id=self._session.ids.take(1, self._session.clock.now())[0], name=name, job_type=name, state=state)

    def _check_overrides(self, name: str, overrides: dict[str, object]) -> None:
        """Refuse what the template, as it would be then, can't be."""
        known = self._recorded().get(name)
        if "handler" not in overrides and known is None:
            raise InvalidOption(
                f"template {name!r} is not there yet and needs a handler: give handler='package.module:function', "
                "or register its function with @rota.job"
            )
        if "default_params" in overrides or "payload_max" in overrides:
            code, people = (Spec(), {}) if known is None else (known.code, as_object(known.people))
            check_defaults(
                in_force(name, self.settings, code, from_object(people | overrides)), handler=None if known is None else known.handler
            )

    def _put(
        self,
        template: Template,
        who: Actor,
        *,
        overrides: dict[str, object] | None = None,
        unset: Iterable[str] = (),
        version: int | None = None,
    ) -> None:
        self._session.open().store.set_template(
            template, actor=who, now=self._session.clock.now(), overrides=overrides or {}, unset=tuple(unset), version=version
        )
        self._session.poke()

    def _set_template_state(self, name: str, state: TemplateState, version: int | None, actor: Actor | str | None) -> TemplateView:
        who = self._session.acts(actor, Operation.MANAGE_TEMPLATES)
        known = self._known_template(name)
        name, record = known.name, known.record
        if version is not None and record is not None and record.version != version:
            # The store looks again; this is before the schedules of one that is archived are disabled.
            raise ChangedMeanwhile(f"template {name!r}", has=record.version, given=version)
        self._write_state(name, state, who, version=version)
        return self.template(name)

    def _write_state(self, name: str, state: TemplateState, who: Actor, *, version: int | None = None) -> None:
        if state is TemplateState.ARCHIVED:
            self._disable_schedules_of(name, who)
        self._session.open().store.set_template_state(name, state, actor=who, now=self._session.clock.now(), version=version)
        if state is TemplateState.ARCHIVED:
            # Those that others have made since the first look; from now on nobody can.
            self._disable_schedules_of(name, who)

    def _disable_schedules_of(self, template: str, who: Actor) -> None:
        """Disable the schedules of a template, of all organizations: none of them could make a job any more."""
        for schedule in self._open_synced().schedules(template=template):
            if schedule.state is ScheduleState.DISABLED:
                continue
            try:
                self._disable_schedule(schedule.id, who)
            except NotFound:
                continue  # deleted meanwhile, or an AT that is over
            log.warning(
                "schedule %s of organization %s is disabled: its template %s is archived", schedule.name, schedule.organization, template
            )

    def _disable_schedule(self, schedule_id: str, who: Actor) -> None:
        def disable(schedule: Schedule) -> Schedule:
            return msgspec.structs.replace(schedule, state=ScheduleState.DISABLED)

        self._deciding(
            lambda decide, store, now, version: store.change_schedule(schedule_id, disable, decide, actor=who, now=now, definitions=version)
        )


def _view(known: Known) -> TemplateView:
    force, record = known.force, known.record
    assert record is not None  # noqa: S101 - only recorded ones are shown
    sources = said_by(known.code, known.people)
    if known.handler is not None:
        sources |= dict.fromkeys(OF_THE_HANDLER, Source.CODE)
    return TemplateView(
        name=known.name,
        state=record.state,
        version=record.version,
        display_name=force.display_name,
        description=force.description,
        handler=force.handler,
        handled_here=known.handler is not None,
        executor=force.policy.executor,
        priority=force.policy.priority,
        timeout=force.policy.timeout,
        max_retries=force.policy.max_retries,
        max_crashes=force.policy.max_crashes,
        backoff=_backoff.decode(force.policy.backoff),
        queue=force.queue,
        queue_ttl=force.queue_ttl,
        payload_max=force.payload_max,
        dedup_window=force.dedup_window,
        requires_permission=force.requires_permission,
        max_running=force.max_running,
        concurrency=force.concurrency,
        rate_limit=force.rate_limit,
        submit_limit=force.submit_limit,
        default_params=force.default_params,
        sources=sources,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
