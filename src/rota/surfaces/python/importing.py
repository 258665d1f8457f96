"""Taking over the jobs of another system: read twice, so that nothing is written before everything has been looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rota.engine.submit import NewJob
from rota.errors import ScheduleExists
from rota.model.checks import whole
from rota.model.definitions import Template
from rota.model.gate import Actor, Right, Scope, act_in, scope_of
from rota.model.values import NewRow, dashed
from rota.model.zones import zone_of
from rota.surfaces.python.declaring import Declaring

if TYPE_CHECKING:
    from rota.compat.import_report import Imported, Progress
    from rota.compat.import_task import Found, Import
    from rota.faces.monque import Document


class Importing(Declaring):
    """The part of Rota that takes over from others."""

    def import_monque(
        self,
        source: str | os.PathLike[str] | Iterable[Any],
        *,
        max_retries: int | None = None,
        timezone: str | None = None,
        skip_bad: bool = False,
        make_templates: bool = False,
        with_completed: bool = False,
        dry_run: bool = False,
        organization: str | None = None,
        actor: Actor | str | None = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Take over a collection of Monque: a file of one document a line (or one JSON array), or lines, or documents.

        Nothing is written if one of them is bad, unless `skip_bad`. Importing again adds nothing. `timezone` is for documents that
        recur and name none; without it they are UTC, and the report lists them.
        """
        from rota.compat.import_source import documents_of  # noqa: PLC0415
        from rota.compat.import_task import Import  # noqa: PLC0415 - few programs need it

        if max_retries is not None:
            whole("max_retries", max_retries, least=0)
        zone_of(timezone or "UTC")
        who = act_in(self._session.actor(actor), Right.STEER, organization)
        scope_of(who, Right.SCHEDULE)
        if make_templates:
            scope_of(who, Right.MANAGE_TEMPLATES)
        known = self._known_names()
        self._session.registry.organization(who.organization, self._session.open().store, self._session.clock.now())
        task = Import(self._import_row(who, max_retries), who.organization, progress or _silent, with_completed=with_completed)
        task.taken = {each.name for each in self._open_synced().schedules(scope=Scope(who.organization))}
        documents = documents_of(source)
        task.check(documents, known, skip_bad=skip_bad, make_templates=make_templates)
        task.report.dry_run = dry_run
        if dry_run:
            store = self._session.open().store
            task.rehearse(documents, lambda job_id: store.job(job_id) is not None, lambda each: store.schedule(each) is not None)
            return task.report
        self._make_missing(task.report.templates_made, who, {} if max_retries is None else {"max_retries": max_retries})
        adopter_id = self._session.ids.take(1, self._session.clock.now())[0]
        for chunk in task.chunks(documents, self.settings.bulk_chunk):
            self._adopt_chunk(task, chunk, adopter_id, who, timezone or "UTC")
        return task.report

    def _import_row(self, who: Actor, max_retries: int | None) -> Callable[[Document, str], NewRow]:
        def row_of(document: Document, job_id: str) -> NewRow:
            job = NewJob(
                name=document.name,
                params=document.params,
                priority=document.rank,
                unique_key=document.unique_key,
                max_retries=max_retries,
                job_id=dashed(job_id),
            )
            row = self._session.submitter.one(job, self._session.open().store, who)
            # What was accepted there is neither a duplicate nor too much here.
            row.job_hash = row.dedup_window = row.submit_limit = row.submit_window = None
            return row

        return row_of

    def _known_names(self) -> frozenset[str]:
        self._session.registry.sync(self._session.open().store, self._session.clock.now())
        return frozenset(known.name for known in self._session.registry.known())

    def _make_missing(self, names: list[str], who: Actor, overrides: dict[str, Any]) -> None:
        now = self._session.clock.now()
        made = [
            Template(id=each, name=name, job_type=name) for name, each in zip(names, self._session.ids.take(len(names), now), strict=True)
        ]
        for template in made:
            self._session.open().store.set_template(template, actor=who, now=now, overrides=overrides)

    def _adopt_chunk(self, task: Import, chunk: list[Found], adopter_id: str, who: Actor, timezone: str) -> None:
        from rota.faces.monque import adopted  # noqa: PLC0415 - as in `import_monque`

        for each in chunk:
            if each.document.recurs:
                self._take_schedule(task, each, who, timezone)
        begun = [each for each in chunk if not each.document.is_only_due]
        now = self._session.clock.now()
        ids = iter(self._session.ids.take(2 * len(begun), now))
        jobs = [adopted(each.document, task.row(each), fresh_ids=(next(ids), next(ids)), now=now) for each in begun]
        entered = self._session.open().store.adopt(jobs, adopter_id=adopter_id, actor=who, now=now) if jobs else []
        for each, one in zip(begun, entered, strict=True):
            task.count(each, one)
        self._session.poke()

    def _take_schedule(self, task: Import, each: Found, who: Actor, timezone: str) -> None:
        """Make the schedule of a document that recurs, under a name that is free, unless it is or was here."""
        from rota.faces.monque import schedule_of  # noqa: PLC0415 - as in `import_monque`

        is_here = self._session.open().store.schedule(each.schedule_id) is not None
        while True:
            name = task.count_schedule(each, is_here=is_here)
            if name is None:
                return
            new = schedule_of(
                each.document, name, timezone=timezone, organization=who.organization, owner=who.name, now=self._session.clock.now()
            )
            try:
                self._add_schedule(new, who)
            except ScheduleExists:
                # Somebody else took the name meanwhile.
                task.withdraw_schedule(name)
                continue
            return


def _silent(_what: str, _done: int, _total: int | None) -> None:
    """Tell nobody."""
