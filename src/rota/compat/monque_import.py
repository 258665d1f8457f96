"""The import of jobs from Monque. Documents are read twice, so that nothing is written before every one has been checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from rota.compat.import_report import Imported, Progress
from rota.compat.import_source import documents_of
from rota.compat.import_task import Found, Import
from rota.declarations import synced
from rota.errors import ScheduleExists
from rota.faces.monque import Document, adopted, schedule_of
from rota.model.call import NewJob
from rota.model.checks import whole
from rota.model.definitions import Template
from rota.model.gate import Actor, Right, Scope, scope_of
from rota.model.values import NewRow, dashed
from rota.model.zones import zone_of
from rota.operation import Ask
from rota.schedule_edits import added


def import_monque(
    ask: Ask,
    source: str | os.PathLike[str] | Iterable[Any],
    *,
    max_retries: int | None = None,
    timezone: str | None = None,
    skip_bad: bool = False,
    make_templates: bool = False,
    with_completed: bool = False,
    dry_run: bool = False,
    organization: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Import a collection of Monque: see `StoreOperations.import_monque`."""
    if max_retries is not None:
        whole("max_retries", max_retries, least=0)
    zone_of(timezone or "UTC")
    who = ask.within(organization)
    scope_of(who, Right.SCHEDULE)
    if make_templates:
        scope_of(who, Right.MANAGE_TEMPLATES)
    store = synced(ask.session)
    known = frozenset(known.name for known in ask.registry.known())
    ask.registry.organization(who.organization, store, ask.now)
    task = Import(_row_builder(ask, who, max_retries), who.organization, progress or _silent, with_completed=with_completed)
    task.taken = {schedule.name for schedule in store.schedules(scope=Scope(who.organization))}
    documents = documents_of(source)
    task.check(documents, known, skip_bad=skip_bad, make_templates=make_templates)
    task.report.dry_run = dry_run
    if dry_run:
        task.rehearse(documents, lambda job_id: store.job(job_id) is not None, lambda each: store.schedule(each) is not None)
        return task.report
    _create_templates(ask, task.report.templates_made, who, {} if max_retries is None else {"max_retries": max_retries})
    adopter_id = ask.session.ids.take(1, ask.now)[0]
    for chunk in task.chunks(documents, ask.settings.bulk_chunk):
        _adopt_chunk(ask, task, chunk, adopter_id, who, timezone or "UTC")
    return task.report


def _row_builder(ask: Ask, who: Actor, max_retries: int | None) -> Callable[[Document, str], NewRow]:
    def row_of(document: Document, job_id: str) -> NewRow:
        job = NewJob(
            name=document.name,
            params=document.params,
            priority=document.rank,
            unique_key=document.unique_key,
            max_retries=max_retries,
            job_id=dashed(job_id),
        )
        row = ask.session.submitter.one(job, ask.store, who)
        # Monque has accepted it already: it is not refused here as a duplicate or by a submit limit.
        row.job_hash = row.dedup_window = row.submit_limit = row.submit_window = None
        return row

    return row_of


def _create_templates(ask: Ask, names: list[str], who: Actor, overrides: dict[str, Any]) -> None:
    now = ask.now
    ids = ask.session.ids.take(len(names), now)
    for name, template_id in zip(names, ids, strict=True):
        ask.store.set_template(Template(id=template_id, name=name, job_type=name), actor=who, now=now, overrides=overrides)


def _adopt_chunk(ask: Ask, task: Import, chunk: list[Found], adopter_id: str, who: Actor, timezone: str) -> None:  # noqa: PLR0917
    for each in chunk:
        if each.document.recurs:
            _create_schedule(ask, task, each, who, timezone)
    begun = [each for each in chunk if not each.document.is_only_due]
    now = ask.now
    ids = iter(ask.session.ids.take(2 * len(begun), now))
    jobs = [adopted(each.document, task.row(each), fresh_ids=(next(ids), next(ids)), now=now) for each in begun]
    entered = ask.store.adopt(jobs, adopter_id=adopter_id, actor=who, now=now) if jobs else []
    for each, one in zip(begun, entered, strict=True):
        task.count(each, one)
    ask.session.poke()


def _create_schedule(ask: Ask, task: Import, each: Found, who: Actor, timezone: str) -> None:
    """Create the schedule of a document that recurs, under a name that is free, unless it is or was here."""
    is_here = ask.store.schedule(each.schedule_id) is not None
    while True:
        name = task.count_schedule(each, is_here=is_here)
        if name is None:
            return
        new = schedule_of(each.document, name, timezone=timezone, organization=who.organization, owner=who.name, now=ask.now)
        try:
            added(ask.session, new, who)
        except ScheduleExists:
            # Somebody else took the name in the meantime.
            task.withdraw_schedule(name)
            continue
        return


def _silent(_what: str, _done: int, _total: int | None) -> None:
    """Report nothing."""
