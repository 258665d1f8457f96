"""The import of jobs from Monque. Documents are read twice, so that nothing is written before every one has been checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import msgspec

from rota.compat.import_report import Bad, Imported, Progress
from rota.compat.import_source import DocumentPlace, documents_of
from rota.declarations import synced
from rota.errors import InvalidImport, InvalidInput, ScheduleExists, UnknownTemplate
from rota.faces.monque import (
    Document,
    DocumentStatus,
    adopted,
    job_id_of,
    read_document,
    schedule_id_of,
    schedule_name_of,
    schedule_of,
)
from rota.model.backoff import DAY_S, Backoff
from rota.model.call import NewJob
from rota.model.checks import whole
from rota.model.definitions import Template
from rota.model.gate import Actor, Right, Scope, scope_of
from rota.model.kinds import check_type_name
from rota.model.values import Enqueued, NewRow, dashed
from rota.model.zones import zone_of
from rota.operation import Ask
from rota.schedule_edits import added

BAD_SHOWN = 100
"""How many bad lines a report names; all are counted."""
BACKOFF = Backoff(base=2, factor=2, cap=DAY_S, jitter=0.25)
"""The delays of the library, for templates that the import creates."""
LOOK = 1000
"""Documents between two calls of `progress`."""


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
    task = Import(_row_builder(ask, who, max_retries), who.organization, progress or (lambda *_: None), with_completed=with_completed)
    task.taken = {schedule.name for schedule in store.schedules(scope=Scope(who.organization))}
    documents = documents_of(source)
    task.check(documents(), known, skip_bad=skip_bad, make_templates=make_templates)
    task.report.dry_run = dry_run
    if dry_run:
        task.rehearse(documents(), lambda job_id: store.job(job_id) is not None, lambda each: store.schedule(each) is not None)
        return task.report
    overrides = {"backoff": msgspec.to_builtins(BACKOFF)} | ({} if max_retries is None else {"max_retries": max_retries})
    _create_templates(ask, task.report.templates_made, who, overrides)
    adopter_id = ask.session.ids.take(1, ask.now)[0]
    for chunk in task.chunks(documents(), ask.settings.bulk_chunk):
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


# ---- one import -----------------------------------------------------------------------------------------------------


class Found(msgspec.Struct):
    """A document and where it stood."""

    place: DocumentPlace
    document: Document
    job_id: str
    schedule_id: str


class Import:
    """One import under way."""

    def __init__(self, row_of: Callable[[Document, str], NewRow], organization: str, progress: Progress, *, with_completed: bool) -> None:
        self._row_of = row_of
        self._organization = organization
        self._progress = progress
        self._with_completed = with_completed
        self._fields: dict[str, None] = {}
        self._bad: set[int] = set()
        self._total = 0
        self.taken: set[str] = set()
        """Names of schedules that are not free."""
        self.report = Imported()

    def check(self, documents: Iterable[tuple[DocumentPlace, Any]], known: frozenset[str], *, skip_bad: bool, make_templates: bool) -> None:
        """Look at every document before anything is written: what is bad, and which templates are missing."""
        missing: dict[str, DocumentPlace] = {}
        for place, raw in documents:
            self._total += 1
            try:
                document = self._look(place, raw)
                if document.name in known:
                    self._build(place, document)
                elif make_templates:
                    _check_template_name(place, document.name)
                elif skip_bad:
                    raise InvalidImport(f"{place}: there is no template {document.name!r}", place.number)
                missing |= {} if document.name in known else {document.name: place}
            except InvalidImport as error:
                if not skip_bad:
                    raise
                self._note_bad(error)
            self._tell("checking", self._total, None)
        self._progress("checking", self._total, self._total)
        if make_templates:
            self.report.templates_made = list(missing)
        elif missing and not skip_bad:
            raise _unknown(missing)
        self.report.unknown_fields = list(self._fields)

    def chunks(self, documents: Iterable[tuple[DocumentPlace, Any]], size: int) -> Iterator[list[Found]]:
        """Go through the good documents a commit at a time."""
        found = self._found(documents)
        while chunk := list(islice(found, size)):
            yield chunk

    def rehearse(
        self, documents: Iterable[tuple[DocumentPlace, Any]], is_here: Callable[[str], bool], is_scheduled: Callable[[str], bool]
    ) -> None:
        """Count what an import would do. Keys are not looked at: they may be free by then."""
        for each in self._found(documents):
            if each.document.recurs:
                self.count_schedule(each, is_here=is_scheduled(each.schedule_id))
            if not each.document.is_only_due:
                self.count(each, Enqueued(each.job_id, each.job_id, 0, "", 0, existing=is_here(each.job_id)))

    def row(self, each: Found) -> NewRow:
        """Build the row of a document that was checked before."""
        row = self._build(each.place, each.document)
        row.schedule_id = each.schedule_id if each.document.recurs else None
        return row

    def count_schedule(self, each: Found, *, is_here: bool) -> str | None:
        """Count the schedule of a document and return the name it gets; None if it is here."""
        if is_here:
            self.report.already += each.document.is_only_due
            return None
        wanted = schedule_name_of(each.document)
        names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        self.report.schedules[name] = each.document.repeat_interval or ""
        if each.document.timezone is None:
            self.report.zone_assumed.append(name)
        return name

    def withdraw_schedule(self, name: str) -> None:
        """Take back a schedule that was counted under a name that is taken."""
        del self.report.schedules[name]
        self.report.zone_assumed = [each for each in self.report.zone_assumed if each != name]

    def count(self, each: Found, entered: Enqueued) -> None:
        """Count the outcome of one document."""
        report, document = self.report, each.document
        if entered.existing:
            report.already += entered.job_id == each.job_id
            report.key_taken += entered.job_id != each.job_id
            return
        match document.status:
            case DocumentStatus.PENDING:
                report.waiting += 1
            case DocumentStatus.PROCESSING:
                report.recovered += 1
            case DocumentStatus.FAILED:
                report.dead += 1
            case DocumentStatus.CANCELLED:
                report.cancelled += 1
            case DocumentStatus.COMPLETED:
                report.completed += 1

    def _found(self, documents: Iterable[tuple[DocumentPlace, Any]]) -> Iterator[Found]:
        for place, raw in documents:
            self.report.documents += 1
            self._tell("importing", self.report.documents, self._total)
            if place.number in self._bad:
                continue
            document = self._look(place, raw)
            if document.status is DocumentStatus.COMPLETED and not self._with_completed:
                self.report.left_out += 1
                continue
            home = self._organization
            yield Found(place, document, job_id_of(document, home), schedule_id_of(document, home))
        self._progress("importing", self.report.documents, self._total)

    def _look(self, place: DocumentPlace, raw: Any) -> Document:
        try:
            document = read_document(raw() if callable(raw) else raw)
        except InvalidImport as error:
            raise InvalidImport(f"{place}: {error}", place.number) from None
        self._fields |= dict.fromkeys(document.unknown)
        return document

    def _build(self, place: DocumentPlace, document: Document) -> NewRow:
        try:
            return self._row_of(document, job_id_of(document, self._organization))
        except InvalidInput as error:
            raise InvalidImport(f"{place}: {error}", place.number) from error

    def _note_bad(self, error: InvalidImport) -> None:
        self._bad.add(error.line)
        self.report.bad_count += 1
        if len(self.report.bad) < BAD_SHOWN:
            self.report.bad.append(Bad(error.line, str(error)))

    def _tell(self, what: str, done: int, total: int | None) -> None:
        if done % LOOK == 0:
            self._progress(what, done, total)


def _check_template_name(place: DocumentPlace, name: str) -> None:
    try:
        check_type_name(name, "template", 255)
    except InvalidInput as error:
        raise InvalidImport(f"{place}: {error}", place.number) from None


def _unknown(missing: dict[str, DocumentPlace]) -> UnknownTemplate:
    names = ", ".join(f"{name!r} (first on {place})" for name, place in list(missing.items())[:10])
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    return UnknownTemplate(
        f"no template for {names}{more}: start a worker that has them, load the application that has them, "
        "or have them made (make_templates=True, --make-templates). Nothing was imported"
    )
