"""The store as a whole: pause it, recover, purge, check and move it, and read its statistics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from rota.compat.import_report import Imported, Progress
from rota.compose import command_findings, grants_for, make_sender
from rota.engine.recovery import Recovered
from rota.engine.retention import Retention
from rota.errors import InvalidOption
from rota.model.checks import age_us, whole
from rota.model.figures import Stats
from rota.model.findings import Finding
from rota.model.gate import Right
from rota.model.shapes import Organization, Shape
from rota.model.values import SECOND, Instant, Purged
from rota.operation import Ask, Resource, operation
from rota.ports.clock import SystemClock

if TYPE_CHECKING:
    from rota.engine.background import Minder
    from rota.engine.store_copy import Promoted, Tell
    from rota.resources.definitions import Loaded
    from rota.resources.measures import Measures

Hours = Annotated[int, Shape("How many hours to look back.", 24, "N")]


Full = Annotated[bool, Shape("Include checks that take long on a large store.")]


class StoreOperations(Resource):
    """Work on the store as a whole."""

    __slots__ = ()

    @property
    def url(self) -> str:
        """The store's address, without its password."""
        return str(self._session.where)

    @operation(Right.OPERATE, http="POST /scheduler/pause", cli="pause", status=204)
    def pause(self, ask: Ask) -> None:
        """Stop new jobs from starting until the store is resumed. Running ones continue."""
        ask.store.pause("all", "", actor=ask.who, now=ask.now)

    @operation(Right.OPERATE, http="POST /scheduler/resume", cli="resume", status=204)
    def resume(self, ask: Ask) -> None:
        """End the pause of the store.

        Pauses of single templates, organizations and queues stay.
        """
        ask.store.resume("all", "", actor=ask.who, now=ask.now)
        ask.session.poke()

    @operation(Right.READ, http="GET /scheduler/pauses", cli="pauses")
    def pauses(self, ask: Ask) -> list[tuple[str, str]]:
        """Return what is paused.

        Each as a kind and a name: ("all", ""), ("template", …), ("organization", …), ("queue", …).
        """
        pauses = ask.store.pauses()
        return [(kind, name) for kind, name in pauses if kind != "organization" or ask.scope.organization in {None, name}]

    @operation(Right.OPERATE, http="POST /scheduler/recover", cli="recover")
    def recover(self, ask: Ask) -> Recovered:
        """Recover the jobs of dead workers now. Workers do this automatically."""
        from rota.local_workers import recover  # noqa: PLC0415 - few programs need it

        return recover(ask)

    @operation(Right.DELETE, cli="purge", confirm="Delete old chains with their runs and logs for good?")
    def purge(
        self,
        ask: Ask,
        *,
        older_than: Annotated[
            timedelta | float | None,
            Shape("Age since the end of a chain. Default: the setting `retention`.", "7d", "SPAN", wire=float | str),
        ] = None,
        dry_run: Annotated[bool, Shape("Only count; delete nothing.")] = False,
        trust_clock: Annotated[bool, Shape("Confirm that the clock is right although it is in doubt.")] = False,
        progress: Callable[[Purged], object] | None = None,
    ) -> Purged:
        """Delete chains that ended long ago, with their runs and logs.

        Long ago is what `older_than` says, by default the setting `retention`. Chains that others need stay. It works batch by batch,
        so workers continue. If the clock is far past the last moment at which it was trusted, nothing is deleted and the error
        (ClockInDoubt) names both; `trust_clock` confirms that it is right, and workers then trust it, too.
        """
        settings = ask.session.current()
        if older_than is None and not settings.retention:
            raise InvalidOption("retention is off (setting retention=0): say what is old with older_than=…")
        age = round(settings.retention * SECOND) if older_than is None else age_us("older_than", older_than)
        opened = ask.opened
        opened.store.crowd(crowded=bool(opened.store.workers()))
        retention = Retention(opened.store, clock=ask.session.clock, settings=settings, log_dir=opened.log_dir, trust=opened.trust)
        return retention.purge(older_than=age, dry_run=dry_run, trust_clock=trust_clock, progress=progress)

    @operation(Right.OPERATE, http="GET /doctor", cli="doctor")
    def doctor(self, ask: Ask, *, full: Full = False) -> list[Finding]:
        """Check the store, its server or file, and its workers; return the findings. Changes nothing.

        `full` includes checks that take long. Workers of other machines are watched for up to one and a half heartbeats.
        """
        return _findings(ask, full=full, repair=False)

    @operation(Right.OPERATE, http="POST /doctor/repair", cli="repair")
    def repair(self, ask: Ask, *, full: Full = False) -> list[Finding]:
        """Repair what can be repaired without a guess, then check as `doctor` does. What was repaired has the state `repaired`."""
        return _findings(ask, full=full, repair=True)

    def promote(
        self,
        target: str | os.PathLike[str],
        *,
        keep: bool = False,
        replace: bool = False,
        mend: bool = False,
        without_secrets: bool = False,
        progress: Tell | None = None,
    ) -> Promoted:
        """Copy everything to another store, verify it there, and close this one, which from then on names the new one. For system managers.

        No worker may be alive on either. With `keep` this store stays open. `replace` deletes what the target holds; a target that holds
        the same already is only verified. `mend` replaces NUL characters where the target can't hold them.
        Secrets are copied as they are encrypted. If this process does not have their master key the copy is refused; `without_secrets`
        leaves those secrets out.
        """
        # The right is asked for inside, because a store that is not there, or was moved, is not opened to ask.
        from rota.ops.promotion import promote  # noqa: PLC0415 - few programs need it

        return promote(
            self._session,
            self._actor,
            target,
            keep=keep,
            replace=replace,
            mend=mend,
            without_secrets=without_secrets,
            progress=progress,
        )

    def reopen(self) -> None:
        """Open a store again that was moved, when the one it was moved to is lost with all later changes. For system managers."""
        from rota.ops.promotion import reopen  # noqa: PLC0415 - few programs need it

        reopen(self._session, self._actor)

    @operation(Right.OPERATE, cli="grants")
    def grants(
        self,
        ask: Ask,
        name: Annotated[str, Shape("The role in the database.", "shop_worker", "ROLE")],
        *,
        kind: Annotated[str, Shape("worker, submitter, reader or server; on MongoDB also owner.", "submitter", "KIND")] = "worker",
    ) -> list[str]:
        """Return the statements that let a role of PostgreSQL or MongoDB be a worker, a submitter, a reader or a server of this store."""
        return grants_for(ask.session.where, ask.settings, name, kind=kind)

    @operation(Right.READ_STATS, http="GET /stats", cli="stats")
    def stats(
        self,
        ask: Ask,
        *,
        hours: Annotated[int | None, Shape("How many hours averages look back. Default: the setting `stats_hours`.", 24, "N")] = None,
    ) -> Stats:
        """Return counts by state, priority and type, ages, and averages by type over the last hours."""
        back = ask.settings.stats_hours if hours is None else whole("hours", hours, least=1, most=9600)
        return ask.store.stats(now=ask.now, hours=back, scope=ask.scope)

    @operation(Right.READ_STATS)
    def measures(self, ask: Ask, *, since: Instant | None = None) -> Measures:
        """Return the values of metrics; finished attempts since the hour of a moment, or of the last hours. Bounded, as `overview` is."""
        from rota.resources.measures import measures  # noqa: PLC0415 - few programs need it

        return measures(ask, since=since)

    @operation(Right.OPERATE)
    def minder(self, ask: Ask) -> Minder:
        """Report overdue schedules and send webhook messages from this process for the time of a `with` block, while it runs no worker.

        `rota serve` and `rota up` do so. Use it in a program that serves the HTTP app itself.
        """
        from rota.local_workers import minder  # noqa: PLC0415 - few programs need it

        return minder(ask)

    @operation(Right.MANAGE_TEMPLATES, cli="template load")
    def load(
        self,
        ask: Ask,
        path: Annotated[
            str | os.PathLike[str] | None, Shape("A file of definitions, .toml or .json.", "jobs.toml", "FILE", wire=str)
        ] = None,
        *,
        samples: Annotated[bool, Shape("Load the template of rota.samples, a job to try things with.")] = False,
        dry_run: Annotated[bool, Shape("Check the file and report; change nothing.")] = False,
    ) -> Loaded:
        """Load templates, schedules, calendars, connections, organizations and users from a file, .toml or .json.

        What it does not name stays.
        """
        from rota.resources.definitions import load, load_samples  # noqa: PLC0415 - few programs need it

        if (path is None) != samples:
            raise InvalidOption("pass a file of definitions, or samples=True")
        return load_samples(ask, dry_run=dry_run) if path is None else load(ask, path, dry_run=dry_run)

    @operation(Right.STEER, cli="import monque")
    def import_monque(
        self,
        ask: Ask,
        source: Annotated[
            str | os.PathLike[str] | Iterable[Any],
            Shape("A file of one document a line, or one JSON array; - is standard input.", "jobs.jsonl", "FILE", wire=str),
        ],
        *,
        max_retries: Annotated[int | None, Shape("Retries of these jobs. Default: those of their templates.", 9, "N")] = None,
        timezone: Annotated[
            str | None, Shape("IANA time zone of recurring documents that name none. Default: UTC.", "Europe/Berlin", "ZONE")
        ] = None,
        skip_bad: Annotated[
            bool, Shape("Leave bad documents out. Default: import nothing if one is bad.", option="skip-bad/all-or-nothing")
        ] = False,
        make_templates: Annotated[bool, Shape("Create templates for names that have none.")] = False,
        with_completed: Annotated[bool, Shape("Import completed jobs, too, as history.")] = False,
        dry_run: Annotated[bool, Shape("Check every document; write nothing.")] = False,
        organization: Organization = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Import the jobs of a Monque collection, from a file, lines or documents. Importing again adds nothing.

        Waiting jobs wait here, running ones are recovered as after a crash, failed ones become dead letters, and recurring ones become
        schedules. Nothing is written if a document is bad, unless `skip_bad`.
        """
        from rota.compat.monque_import import import_monque  # noqa: PLC0415 - few programs need it

        return import_monque(
            ask,
            source,
            max_retries=max_retries,
            timezone=timezone,
            skip_bad=skip_bad,
            make_templates=make_templates,
            with_completed=with_completed,
            dry_run=dry_run,
            organization=organization,
            progress=progress,
        )


def _findings(ask: Ask, *, full: bool, repair: bool) -> list[Finding]:
    from rota.engine.doctor import Doctor  # noqa: PLC0415 - few programs need it

    opened, session = ask.opened, ask.session
    # Without a clock of its own a session follows the store's. The machine's is to be checked.
    machine = session.clock if session.follows is None else SystemClock()
    checkup = Doctor(
        opened.store,
        opened.liveness,
        clock=session.clock,
        machine=machine,
        settings=ask.settings,
        pause=time.sleep,
        registry=ask.registry,
        make_sender=partial(make_sender, ask.settings),
        key_ids=lambda: session.keyring().ids,
        command_findings=partial(command_findings, ask.settings, opened.store.url),
        trust=opened.trust,
    )
    return checkup.findings(full=full, repair=repair)
