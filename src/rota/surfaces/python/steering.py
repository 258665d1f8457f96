"""What a person does to jobs that are there: cancel, retry, change, move, pause; groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.engine.submit import as_new_job, when
from rota.errors import DuplicateId, InvalidOption, UnknownOrganization
from rota.model import checks
from rota.model.checks import check_name
from rota.model.gate import Actor, Operation
from rota.model.groups import Mode, OnFailure
from rota.model.ordering import priority_of
from rota.model.params import encode_params
from rota.model.values import Group, Job, JobRef, Origin, undashed
from rota.ports.store import Check, NewGroup
from rota.surfaces.python.base import Base
from rota.surfaces.python.permitting import refuse_unfit


class Steering(Base):
    """The part of Rota that changes what waits or runs."""

    def cancel(self, job_id: JobRef, *, reason: str | None = None, check: Check | None = None, actor: Actor | str | None = None) -> Job:
        """Cancel the chain: at once while it waits, by request while it runs. It is never retried.

        `check` is given the chain as it stands, in the transaction of the cancel; if it raises, nothing is done.
        """
        found = self._reach(job_id, actor, Operation.CANCEL)
        said = checks.reason(reason)
        job = self._open().store.cancel(found, actor=self._actor(actor), now=self._clock.now(), reason=said, check=check)
        self._poke()
        return job

    def retry(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Job:
        """Give an ended chain (DEAD_LETTER, CANCELLED, SKIPPED) one more attempt with a fresh budget."""
        found, now = self._reach(job_id, actor, Operation.STEER), self._clock.now()
        job = self._open().store.retry(found, new_id=self._ids.take(1, now)[0], actor=self._actor(actor), now=now)
        self._poke()
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
        found = self._reach(job_id, actor, Operation.STEER)
        if priority is None and params is None and run_at is None:
            raise InvalidOption("nothing to change: give priority=…, params=… or run_at=…")
        store, number = self._open().store, None if priority is None else priority_of(priority)
        self._registry.sync(store, self._clock.now())
        job = store.job(found)
        if job is not None and number is not None:
            self._check_priority(job.organization, number)
        if job is not None and params is not None:
            refuse_unfit(self._registry, self._actor(actor), job.job_type)
        text = None if job is None or params is None else self._checked_params(job.job_type, params)
        now = self._clock.now()
        at = None if run_at is None else when(run_at, now)
        job = store.change(found, actor=self._actor(actor), now=now, priority=number, params=text, run_at=at, check=check)
        self._poke()
        return job

    def _check_priority(self, name: str, priority: int) -> None:
        organization = self._registry.organizations.get(name)
        if organization is not None and organization.max_priority is not None and priority > organization.max_priority:
            raise InvalidOption(f"priority {priority} is over the max_priority {organization.max_priority} of organization {name!r}")

    def _checked_params(self, job_type: str, params: Mapping[str, Any]) -> str:
        handler = self._registry.handlers.get(job_type)
        if handler is not None and isinstance(params, Mapping):
            handler.check(params.keys())
        most = next((known.force.payload_max for known in self._registry.known() if known.name == job_type), self.settings.payload_max)
        return encode_params(params, limit_bytes=most)

    def reschedule(self, job_id: JobRef, run_at: datetime | timedelta, *, actor: Actor | str | None = None) -> Job:
        """Give a PENDING job another time."""
        found, now = self._reach(job_id, actor, Operation.STEER), self._clock.now()
        job = self._open().store.change(found, actor=self._actor(actor), now=now, run_at=when(run_at, now))
        self._poke()
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
        found = self._reach(job_id, actor, Operation.STEER)
        if (before is not None) + (after is not None) + front != 1:
            raise InvalidOption("say where to: give exactly one of before=…, after=… or front=True")
        return self._open().store.move(
            found,
            actor=self._actor(actor),
            now=self._clock.now(),
            before=None if before is None else self._reach(before, actor, Operation.STEER),
            after=None if after is None else self._reach(after, actor, Operation.STEER),
            front=front,
            check=check,
        )

    def pause(self, *, template: str | None = None, organization: str | None = None, actor: Actor | str | None = None) -> None:
        """Let nothing of a template, of an organization or (neither given) at all start until it is resumed."""
        kind, name = _paused(template, organization)
        who = self._who_pauses(kind, name, actor)
        self._open().store.pause(kind, name, actor=who, now=self._clock.now())

    def resume(self, *, template: str | None = None, organization: str | None = None, actor: Actor | str | None = None) -> None:
        """End a pause."""
        kind, name = _paused(template, organization)
        who = self._who_pauses(kind, name, actor)
        self._open().store.resume(kind, name, actor=who, now=self._clock.now())
        self._poke()

    def _who_pauses(self, kind: str, name: str, actor: Actor | str | None) -> Actor:
        """Return who pauses or resumes: an organization its own admin, what concerns all only a system manager."""
        if kind != "organization":
            return self._acts(actor, Operation.OPERATE)
        who, store = self._acts(actor, Operation.PAUSE, name), self._open().store
        self._registry.sync(store, self._clock.now())
        if name not in self._registry.organizations:
            raise UnknownOrganization(f"there is no organization {name!r} in this store")
        return who

    def group(
        self,
        jobs: Sequence[Any],
        *,
        mode: str = "sequential",
        on_failure: str = "stop",
        name: str | None = None,
        group_id: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> Group:
        """Make a group of new jobs ((name, params) or NewJob) and of jobs that wait already (Job, or its id).

        `group_id` is a UUIDv7 of the caller's own: repeating the call returns the same group.
        """
        who = self._acts(actor, Operation.SUBMIT, organization)
        group_mode, rule = _word(Mode, "mode", mode), _word(OnFailure, "on_failure", on_failure)
        if not jobs:
            raise InvalidOption("a group needs at least one job")
        if len(jobs) > self.settings.group_max:
            raise InvalidOption(f"a group of {len(jobs):,} jobs is over the limit of {self.settings.group_max:,} (setting group_max)")
        if name is not None:
            check_name(name, "group", self.settings.name_max)
        now, store = self._clock.now(), self._open().store
        new = NewGroup(
            group_id=self._submit.id_of(group_id, now, "group_id"),
            name=name,
            mode=group_mode,
            on_failure=rule,
            members=[self._member(item, who) for item in jobs],
            organization_id=who.organization,
        )
        group = store.add_group(new, actor=who, now=self._clock.now())
        if (group.organization, group.owner) != (who.organization, who.name):
            raise DuplicateId(f"group_id {group_id!r} is taken already: choose another")
        self._poke()
        return group

    def cancel_group(self, group_id: str, *, actor: Actor | str | None = None) -> Group:
        """Cancel every chain of the group that has not ended."""
        found = self._reach_group(group_id, actor, Operation.CANCEL)
        group = self._open().store.cancel_group(found, actor=self._actor(actor), now=self._clock.now())
        self._poke()
        return group

    def _member(self, item: Any, who: Actor) -> Any:
        if isinstance(item, Job) or (isinstance(item, str) and undashed(item) is not None):
            return self._reach(item, who, Operation.STEER)
        return self._submit.one(as_new_job(item), self._open().store, who, origin=Origin.GROUP)


def _paused(template: str | None, organization: str | None) -> tuple[str, str]:
    if template is not None and organization is not None:
        raise InvalidOption("give template=… or organization=…, not both")
    if template is not None:
        return "template", template
    return ("organization", organization) if organization is not None else ("all", "")


def _word(kind: Any, option: str, value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{option}={value!r} is not one of {', '.join(kind)}") from None
