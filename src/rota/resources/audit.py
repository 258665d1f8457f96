"""The audit trail: what people did and changed, what they were refused, and how audited runs ended."""

from __future__ import annotations

from typing import Annotated

from rota.model.audit import actions_of
from rota.model.checks import whole
from rota.model.gate import Right
from rota.model.shapes import TEXT_MAX, Limit, Shape
from rota.model.values import Audited
from rota.operation import Ask, Resource, operation
from rota.resources.filters import LIST_MAX, check_place
from rota.results import Page


class Audit(Resource):
    """The audit trail of the store."""

    __slots__ = ()

    @operation(Right.READ_AUDIT, http="GET /audit", cli="audit")
    def list(
        self,
        ask: Ask,
        *,
        subject: Annotated[
            str | None, Shape("Only changes of a kind of thing, or of one thing.", "job:JOB-2026-00042", "SUBJECT", most=TEXT_MAX)
        ] = None,
        event: Annotated[str | None, Shape("Only one event.", "JOB_DELETED", "EVENT", most=TEXT_MAX)] = None,
        limit: Limit = 100,
        before: Annotated[int | None, Shape("Continue after this place: `next` of the previous page.", metavar="CURSOR")] = None,
    ) -> Page[Audited]:
        """Return what people did, refused attempts and audited runs, newest first.

        `subject` narrows it to a kind of thing (`job`, `template`, …) or to one (`job:JOB-2026-00042`, `template:send_email`), `event` to
        one event, such as `JOB_DELETED`.
        """
        whole("limit", limit, least=1, most=LIST_MAX)
        if before is not None:
            check_place(before)
        wanted = None if subject is None else _subject(ask, subject)
        actions = None if event is None else actions_of(event)
        rows = ask.store.audit(limit=limit + 1, before=before, scope=ask.scope, subject=wanted, actions=actions)
        return Page(rows[:limit], next_=rows[limit - 1].id if len(rows) > limit else None)


def _subject(ask: Ask, subject: str) -> str:
    """Return a subject as the store has it: a job by its id."""
    kind, colon, name = subject.partition(":")
    return f"job:{ask.also(Right.READ).job(name)}" if kind == "job" and colon else subject
