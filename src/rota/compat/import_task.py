"""One import from another system under way: what was read, what is bad, and the outcome of each document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import msgspec

from rota.compat.import_report import Bad, Imported, Progress
from rota.compat.import_source import DocumentPlace
from rota.errors import InvalidImport, InvalidInput, UnknownTemplate
from rota.faces.monque import Document, DocumentStatus, job_id_of, read_document, schedule_id_of, schedule_name_of
from rota.model.checks import check_name
from rota.model.values import Enqueued, NewRow

BAD_SHOWN = 100
"""How many bad lines a report names; all are counted."""
LOOK = 1000
"""Documents between two calls of `progress`."""


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
        check_name(name, "template", 255)
    except InvalidInput as error:
        raise InvalidImport(f"{place}: {error}", place.number) from None


def _unknown(missing: dict[str, DocumentPlace]) -> UnknownTemplate:
    names = ", ".join(f"{name!r} (first on {place})" for name, place in list(missing.items())[:10])
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    return UnknownTemplate(
        f"no template for {names}{more}: start a worker that has them, load the application that has them, "
        "or have them made (make_templates=True, --make-templates). Nothing was imported"
    )
