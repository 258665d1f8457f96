"""What those who watch ask, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.model.events import JobNow
from rota.model.gate import EVERYTHING, Scope
from rota.model.reports import ScheduleReport
from rota.model.states import Status
from rota.model.values import Instant
from rota.ports.events import DefinitionChange, Marks, NumberedReport, ProgressNow, Span
from rota.stores.verbs.base import Base
from rota.stores.verbs.db import Db
from rota.stores.verbs.queue import numbers_json
from rota.stores.verbs.reads import lines

_numbers = msgspec.json.Decoder(list[int])


class Watched(Base):
    """Implements `rota.ports.events.Watching`."""

    def marks(self) -> Marks:
        """Return how far the store has come."""
        with self._reading() as db:
            return Marks(*db.rows("marks")[0])

    def made_in(self, spans: Sequence[Span], *, limit: int) -> list[JobNow]:
        """Return the jobs with these numbers."""
        ordered = msgspec.json.encode(sorted(spans, key=lambda span: span.first)).decode()
        with self._reading() as db:
            return [JobNow(*row) for row in db.rows("made_in", spans=ordered, limit=limit)]

    def progress_now(self, *, limit: int) -> list[ProgressNow]:
        """Return what runs."""
        with self._reading() as db:
            return [ProgressNow(*row) for row in db.rows("progress_now", limit=limit)]

    def ended_since(self, since: Instant, *, limit: int) -> list[list[int]]:
        """Return the numbers of what ended, type by type."""
        with self._reading() as db:
            found = [_numbers.decode(text) for (text,) in db.rows("ended_since", since=since, limit=limit)]
            return [numbers for numbers in found if numbers]

    def jobs_now(self, numbers: Sequence[int]) -> list[JobNow]:
        """Return jobs as they stand."""
        with self._reading() as db:
            return [JobNow(*row) for row in db.rows("jobs_now", numbers=numbers_json(sorted(numbers)))]

    def definition_changes(self, *, after: int, limit: int) -> list[DefinitionChange]:
        """Return what people changed."""
        with self._reading() as db:
            return [DefinitionChange(*row) for row in db.rows("definition_changes", after=after, limit=limit)]

    def reports_after(self, report_id: int, *, limit: int) -> list[NumberedReport]:
        """Return the reports after one."""
        with self._reading() as db:
            return [_numbered(row) for row in db.rows("reports_after", after=report_id, limit=limit)]

    def reports_since(self, since: Instant, *, limit: int) -> list[NumberedReport]:
        """Return the reports since a moment."""
        with self._reading() as db:
            return [_numbered(row) for row in db.rows("reports_since", since=since, limit=limit)]

    def counts(self, *, scope: Scope = EVERYTHING) -> dict[str, int]:
        """Return how many jobs there are in each state."""
        with self._reading(long=True) as db, db.snapshot():
            found = _counts(db, scope)
        return found  # noqa: RET504 - a context manager may swallow an error, for all that mypy knows


def _numbered(row: tuple[Any, ...]) -> NumberedReport:
    number, *fields = row
    return NumberedReport(number, msgspec.convert(dict(zip(ScheduleReport.__struct_fields__, fields, strict=True)), ScheduleReport))


def _counts(db: Db, scope: Scope) -> dict[str, int]:
    organization = {"organization_id": scope.organization}
    if scope.organization is None:
        pending, queued = db.value("count_pending"), db.value("count_queued")
    else:
        pending = db.value("count_pending_of", **organization)
        queued = sum(db.value("count_queued_line", **line) for line in lines(db, scope))
    live = {"PENDING": pending, "QUEUED": queued, "RUNNING": db.value("count_running", **organization)}
    return dict.fromkeys(map(str, Status), 0) | live | dict(db.rows("count_ended", **organization))
