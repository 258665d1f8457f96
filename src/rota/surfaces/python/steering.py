"""What a person does to jobs that are there: cancel, retry, change, move, pause; groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from rota.engine.registry import check_name, whole
from rota.engine.submit import as_new_job, by, when
from rota.errors import AlreadyEnded, InvalidOption, KeyTaken, StillLive
from rota.model.groups import Mode, OnFailure
from rota.model.ordering import priority_of
from rota.model.params import encode_params
from rota.model.states import Status
from rota.model.values import Actor, Group, Job, Origin, undashed
from rota.ports.store import NewGroup, Where
from rota.surfaces.python.base import Base

PAGE = 500


class Steering(Base):
    """The part of Rota that changes what waits or runs."""

    def cancel(self, job_id: str, *, reason: str | None = None, actor: Actor | str | None = None) -> Job:
        """Cancel the chain: at once while it waits, by request while it runs. It is never retried."""
        job = self._open().store.cancel(self._id(job_id), actor=by(actor), now=self._clock.now(), reason=reason)
        self._poke()
        return job

    def retry(self, job_id: str, *, actor: Actor | str | None = None) -> Job:
        """Give an ended chain (DEAD_LETTER, CANCELLED, SKIPPED) one more attempt with a fresh budget."""
        now = self._clock.now()
        job = self._open().store.retry(self._id(job_id), new_id=self._ids.take(1, now)[0], actor=by(actor), now=now)
        self._poke()
        return job

    def retry_dead(
        self, *, job_type: str | None = None, text: str | None = None, limit: int = 1000, actor: Actor | str | None = None
    ) -> list[Job]:
        """Retry every dead letter that matches, newest first, at most `limit`; return the new jobs. Chains that live on are left alone."""
        store, where = self._open().store, Where(status=(str(Status.DEAD_LETTER),), job_type=job_type, text=text)
        retried: list[Job] = []
        cursor: int | None = None
        whole("limit", limit, least=1)
        while page := store.find(where, limit=PAGE, before=cursor):
            cursor = page[-1][0]
            for _, job in page:
                if len(retried) == limit:
                    return retried
                with suppress(StillLive, AlreadyEnded, KeyTaken):
                    retried.append(self.retry(job.id, actor=actor))
        return retried

    def change(
        self,
        job_id: str,
        *,
        priority: str | int | None = None,
        params: Mapping[str, Any] | None = None,
        actor: Actor | str | None = None,
    ) -> Job:
        """Change priority or params of a job that waits."""
        if priority is None and params is None:
            raise InvalidOption("nothing to change: give priority=… or params=…")
        if params is not None:
            self._check_params(job_id, params)
        text = None if params is None else encode_params(params, limit_bytes=self.settings.payload_max)
        number = None if priority is None else priority_of(priority)
        job = self._open().store.change(self._id(job_id), actor=by(actor), now=self._clock.now(), priority=number, params=text)
        self._poke()
        return job

    def _check_params(self, job_id: str, params: Mapping[str, Any]) -> None:
        job = self._open().store.job(self._id(job_id))
        handler = None if job is None else self._registry.handlers.get(job.job_type)
        if handler is not None and isinstance(params, Mapping):
            handler.check(params.keys())

    def reschedule(self, job_id: str, run_at: datetime | timedelta, *, actor: Actor | str | None = None) -> Job:
        """Give a PENDING job another time."""
        now = self._clock.now()
        job = self._open().store.change(self._id(job_id), actor=by(actor), now=now, run_at=when(run_at, now))
        self._poke()
        return job

    def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        front: bool = False,
        actor: Actor | str | None = None,
    ) -> Job:
        """Reorder a QUEUED job among its own of the same priority: to the front, before or after another."""
        if (before is not None) + (after is not None) + front != 1:
            raise InvalidOption("say where to: give exactly one of before=…, after=… or front=True")
        return self._open().store.move(
            self._id(job_id),
            actor=by(actor),
            now=self._clock.now(),
            before=None if before is None else self._id(before),
            after=None if after is None else self._id(after),
            front=front,
        )

    def pause(self, *, template: str | None = None, organization: str | None = None, actor: Actor | str | None = None) -> None:
        """Let nothing of a template, of an organization or (neither given) at all start until it is resumed."""
        kind, name = _paused(template, organization)
        self._open().store.pause(kind, name, actor=by(actor), now=self._clock.now())

    def resume(self, *, template: str | None = None, organization: str | None = None, actor: Actor | str | None = None) -> None:
        """End a pause."""
        kind, name = _paused(template, organization)
        self._open().store.resume(kind, name, actor=by(actor), now=self._clock.now())
        self._poke()

    def group(
        self,
        jobs: Sequence[Any],
        *,
        mode: str = "sequential",
        on_failure: str = "stop",
        name: str | None = None,
        actor: Actor | str | None = None,
    ) -> Group:
        """Make a group of new jobs ((name, params) or NewJob) and of jobs that wait already (Job, or its id)."""
        group_mode, rule = _word(Mode, "mode", mode), _word(OnFailure, "on_failure", on_failure)
        if not jobs:
            raise InvalidOption("a group needs at least one job")
        if len(jobs) > self.settings.group_max:
            raise InvalidOption(f"a group of {len(jobs):,} jobs is over the limit of {self.settings.group_max:,} (setting group_max)")
        if name is not None:
            check_name(name, "group", self.settings.name_max)
        who, now, store = by(actor), self._clock.now(), self._open().store
        new = NewGroup(
            group_id=self._ids.take(1, now)[0],
            name=name,
            mode=group_mode,
            on_failure=rule,
            members=[self._member(item, who) for item in jobs],
            organization_id=who.organization,
        )
        group = store.add_group(new, actor=who, now=self._clock.now())
        self._poke()
        return group

    def cancel_group(self, group_id: str, *, actor: Actor | str | None = None) -> Group:
        """Cancel every chain of the group that has not ended."""
        group = self._open().store.cancel_group(self._group_id(group_id), actor=by(actor), now=self._clock.now())
        self._poke()
        return group

    def _member(self, item: Any, who: Actor) -> Any:
        if isinstance(item, Job) or (isinstance(item, str) and undashed(item) is not None):
            return self._id(item)
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
