"""What a person does to jobs that are there: cancel, retry, change, move, pause; groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.engine.submit import as_new_job, when
from rota.errors import DuplicateId, InvalidOption, UnknownOrganization
from rota.handle import Handle
from rota.model import checks
from rota.model.checks import check_name
from rota.model.gate import Actor, Operation
from rota.model.groups import USUAL_RULE, Mode, OnFailure
from rota.model.lanes import queue_of
from rota.model.ordering import priority_of
from rota.model.params import encode_params
from rota.model.values import Group, Job, JobRef, NewRow, Origin, undashed
from rota.ports.store import Check, NewGroup
from rota.surfaces.python.base import Base
from rota.surfaces.python.permitting import refuse_unfit


class Steering(Base):
    """The part of Rota that changes what waits or runs."""

    def cancel(self, job_id: JobRef, *, reason: str | None = None, check: Check | None = None, actor: Actor | str | None = None) -> Job:
        """Cancel the chain: at once while it waits, by request while it runs. It is never retried.

        `check` is given the chain as it stands, in the transaction of the cancel; if it raises, nothing is done.
        """
        found = self._session.reach(job_id, actor, Operation.CANCEL)
        said = checks.reason(reason)
        job = self._session.open().store.cancel(
            found, actor=self._session.actor(actor), now=self._session.clock.now(), reason=said, check=check
        )
        self._session.poke()
        return job

    def retry(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Job:
        """Give an ended chain (DEAD_LETTER, CANCELLED, SKIPPED) one more attempt with a fresh budget."""
        found, now = self._session.reach(job_id, actor, Operation.STEER), self._session.clock.now()
        job = self._session.open().store.retry(found, new_id=self._session.ids.take(1, now)[0], actor=self._session.actor(actor), now=now)
        self._session.poke()
        return job

    def change(
        self,
        job_id: JobRef,
        *,
        priority: str | int | None = None,
        params: Mapping[str, Any] | None = None,
        run_at: datetime | timedelta | None = None,
        check: Check | None = None,
        actor: Actor | str | None = None,
    ) -> Job:
        """Change priority or params of a job that waits, or the time of one that is PENDING: all that is given, or nothing."""
        found = self._session.reach(job_id, actor, Operation.STEER)
        if priority is None and params is None and run_at is None:
            raise InvalidOption("nothing to change: give priority=…, params=… or run_at=…")
        store, number = self._session.open().store, None if priority is None else priority_of(priority)
        self._session.registry.sync(store, self._session.clock.now())
        job = store.job(found)
        if job is not None and number is not None:
            self._check_priority(job.organization, number)
        if job is not None and params is not None:
            refuse_unfit(self._session.registry, self._session.actor(actor), job.job_type)
        text = None if job is None or params is None else self._checked_params(job.job_type, params)
        now = self._session.clock.now()
        at = None if run_at is None else when(run_at, now)
        put_off = isinstance(run_at, timedelta)
        job = store.change(
            found, actor=self._session.actor(actor), now=now, priority=number, params=text, run_at=at, put_off=put_off, check=check
        )
        self._session.poke()
        return job

    def _check_priority(self, name: str, priority: int) -> None:
        organization = self._session.registry.organizations.get(name)
        if organization is not None and organization.max_priority is not None and priority > organization.max_priority:
            raise InvalidOption(f"priority {priority} is over the max_priority {organization.max_priority} of organization {name!r}")

    def _checked_params(self, job_type: str, params: Mapping[str, Any]) -> str:
        handler = self._session.registry.handlers.get(job_type)
        most = next(
            (known.force.payload_max for known in self._session.registry.known() if known.name == job_type), self.settings.payload_max
        )
        return encode_params(params, limit_bytes=most) if handler is None else handler.codec.encode(params, limit_bytes=most)

    def reschedule(self, job_id: JobRef, run_at: datetime | timedelta, *, actor: Actor | str | None = None) -> Job:
        """Give a PENDING job another time."""
        found, now = self._session.reach(job_id, actor, Operation.STEER), self._session.clock.now()
        at, put_off = when(run_at, now), isinstance(run_at, timedelta)
        job = self._session.open().store.change(found, actor=self._session.actor(actor), now=now, run_at=at, put_off=put_off)
        self._session.poke()
        return job

    def move(
        self,
        job_id: JobRef,
        *,
        before: JobRef | None = None,
        after: JobRef | None = None,
        front: bool = False,
        check: Check | None = None,
        actor: Actor | str | None = None,
    ) -> Job:
        """Reorder a QUEUED job among its own of the same priority: to the front, before or after another."""
        found = self._session.reach(job_id, actor, Operation.STEER)
        if (before is not None) + (after is not None) + front != 1:
            raise InvalidOption("say where to: give exactly one of before=…, after=… or front=True")
        return self._session.open().store.move(
            found,
            actor=self._session.actor(actor),
            now=self._session.clock.now(),
            before=None if before is None else self._session.reach(before, actor, Operation.STEER),
            after=None if after is None else self._session.reach(after, actor, Operation.STEER),
            front=front,
            check=check,
        )

    def pause(
        self,
        *,
        template: str | None = None,
        organization: str | None = None,
        queue: str | None = None,
        actor: Actor | str | None = None,
    ) -> None:
        """Start no jobs of a template, an organization or a queue, or (none given) no jobs at all, until it is resumed."""
        kind, name = _paused(template, organization, queue)
        who = self._who_pauses(kind, name, actor)
        name = self._session.template_name(name) if kind == "template" else name
        self._session.open().store.pause(kind, name, actor=who, now=self._session.clock.now())

    def resume(
        self,
        *,
        template: str | None = None,
        organization: str | None = None,
        queue: str | None = None,
        actor: Actor | str | None = None,
    ) -> None:
        """End a pause."""
        kind, name = _paused(template, organization, queue)
        who = self._who_pauses(kind, name, actor)
        name = self._session.template_name(name) if kind == "template" else name
        self._session.open().store.resume(kind, name, actor=who, now=self._session.clock.now())
        self._session.poke()

    def _who_pauses(self, kind: str, name: str, actor: Actor | str | None) -> Actor:
        """Return who pauses or resumes: an organization its own admin, what concerns all only a system manager."""
        if kind != "organization":
            return self._session.acts(actor, Operation.OPERATE)
        who, store = self._session.acts(actor, Operation.PAUSE, name), self._session.open().store
        self._session.registry.sync(store, self._session.clock.now())
        if name not in self._session.registry.organizations:
            raise UnknownOrganization(f"there is no organization {name!r} in this store")
        return who

    def group(
        self,
        jobs: Sequence[Any],
        *,
        then: Any = None,
        on_parent_failure: str | None = None,
        mode: str = "sequential",
        on_failure: str | None = None,
        name: str | None = None,
        group_id: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> Group:
        """Make a group of new jobs (a call, (name, params) or NewJob) and of jobs that wait already (a Job, its Handle or its id).

        Without `on_failure` a failure stops a sequential group, and a parallel one continues.
        `then` ((name, params) or NewJob) is queued when all of them have ended for good; `on_parent_failure` says what becomes of it
        if one of them ended badly: wait (until it is retried), skip, cancel, or run all the same.
        `group_id` is a UUIDv7 of the caller's own: repeating the call returns the same group.
        """
        who = self._session.acts(actor, Operation.SUBMIT, organization)
        group_mode = _word(Mode, "mode", mode)
        rule = USUAL_RULE[group_mode] if on_failure is None else _word(OnFailure, "on_failure", on_failure)
        if not jobs and then is None:
            raise InvalidOption("a group needs at least one job, or a job that follows it: pass then=…")
        if then is None and on_parent_failure is not None:
            raise InvalidOption(f"on_parent_failure={on_parent_failure!r} is for the job that follows a group: pass then=… too")
        if len(jobs) > self.settings.group_max:
            raise InvalidOption(f"a group of {len(jobs):,} jobs is over the limit of {self.settings.group_max:,} (setting group_max)")
        if name is not None:
            check_name(name, "group", self.settings.name_max)
        now, store = self._session.clock.now(), self._session.open().store
        new = NewGroup(
            group_id=self._session.submitter.id_of(group_id, now, "group_id"),
            name=name,
            mode=group_mode,
            on_failure=rule,
            members=[self._member(item, who) for item in jobs],
            organization_id=who.organization,
            then=None if then is None else self._follower(then, on_parent_failure, who),
        )
        group = store.add_group(new, actor=who, now=self._session.clock.now())
        if (group.organization, group.owner) != (who.organization, who.name):
            raise DuplicateId(f"group_id {group_id!r} is taken already: choose another")
        self._session.poke()
        return group

    def cancel_group(self, group_id: str, *, actor: Actor | str | None = None) -> Group:
        """Cancel every chain of the group that has not ended."""
        found = self._session.reach_group(group_id, actor, Operation.CANCEL)
        group = self._session.open().store.cancel_group(found, actor=self._session.actor(actor), now=self._session.clock.now())
        self._session.poke()
        return group

    def _member(self, item: Any, who: Actor) -> Any:
        if isinstance(item, Job | Handle) or (isinstance(item, str) and undashed(item) is not None):
            return self._session.reach(item, who, Operation.STEER)
        return self._session.submitter.one(as_new_job(item), self._session.open().store, who, origin=Origin.GROUP)

    def _follower(self, then: Any, on_parent_failure: str | None, who: Actor) -> NewRow:
        new = as_new_job(then)
        if on_parent_failure is not None:
            new = msgspec.structs.replace(new, on_parent_failure=on_parent_failure)
        return self._session.submitter.one(new, self._session.open().store, who, origin=Origin.GROUP)


def _paused(template: str | None, organization: str | None, queue: str | None) -> tuple[str, str]:
    asked = {"template": template, "organization": organization, "queue": queue}
    named = [(kind, name) for kind, name in asked.items() if name is not None]
    if len(named) > 1:
        raise InvalidOption(f"use {' or '.join(f'{kind}=…' for kind, _ in named)}, not {'both' if len(named) == 2 else 'all of them'}")
    if queue is not None:
        queue_of("queue", queue)
    return named[0] if named else ("all", "")


def _word(kind: Any, option: str, value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{option}={value!r} is not one of {', '.join(kind)}") from None
