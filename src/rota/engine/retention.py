"""Retention: ended chains, their runs and logs go when they are old enough and nothing needs them any more; so do browsers' sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from rota.model.settings import Settings
from rota.model.values import SECOND, Instant, PurgeCursor, Purged, log_path
from rota.ports.clock import Clock
from rota.ports.store import Store

log = logging.getLogger("rota.retention")

SHARE = 10
"""After a batch that took a second nothing is removed for ten: the wheel has nine tenths of the time, however much is to go."""
FIRST_S = 1.0
"""How soon after a worker's start it looks first: its own jobs come before old ones."""


class Retention:
    """Removes what is old, one bounded batch at a time. Several workers may do it at once: what one has removed, others don't find."""

    def __init__(self, store: Store, *, clock: Clock, settings: Settings, log_dir: str | None) -> None:
        """Take what it removes from, and the folder of the runs' logs, if they are kept."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._log_dir = log_dir
        self._next = clock.monotonic() + min(FIRST_S, settings.retention_interval)
        self._cursor: PurgeCursor | None = None
        self._round = Purged()

    def tick(self, monotonic: float) -> None:
        """Remove one batch, if it is time: soon again while there is more, after `retention_interval` otherwise."""
        if monotonic < self._next:
            return
        # Before anything can fail: a store in trouble is not asked again at once.
        self._next = monotonic + self._settings.retention_interval
        self._store.forget_sessions(before=self._clock.now(), limit=self._settings.retention_batch)
        if not self._settings.retention:
            return
        older_than_s = self._settings.retention
        batch = self.batch(before=self._clock.now() - round(older_than_s * SECOND), cursor=self._cursor)
        self._cursor = batch.cursor
        add(self._round, batch)
        if batch.cursor is not None:
            took_s = self._clock.monotonic() - monotonic
            self._next = monotonic + min(self._settings.retention_interval, (1 + SHARE) * took_s)
            return
        if self._round.chains:
            log.info("removed %d chains (%d jobs) that ended more than %g s ago", self._round.chains, self._round.jobs, older_than_s)
        self._round = Purged()

    def purge(self, *, before: Instant, dry_run: bool = False, progress: Callable[[Purged], object] | None = None) -> Purged:
        """Remove all that ended before a moment, batch by batch, telling `progress` after each what was done so far."""
        done = Purged()
        while True:
            batch = self.batch(before=before, cursor=done.cursor, dry_run=dry_run)
            add(done, batch)
            done.cursor = batch.cursor
            if progress is not None:
                progress(done)
            if batch.cursor is None:
                return done

    def batch(self, *, before: Instant, cursor: PurgeCursor | None, dry_run: bool = False) -> Purged:
        """Remove one batch and its logs. The rows go first: a log that is left behind by a crash is litter, a row without one is a lie."""
        now = self._clock.now()
        batch = self._store.purge(
            before=before,
            limit=self._settings.retention_batch,
            now=now,
            dry_run=dry_run,
            cursor=cursor,
            figures_before=now - round(self._settings.stats_retention * SECOND),
        )
        if self._log_dir is not None:
            remove_logs(self._log_dir, batch.run_ids)
        return batch


def add(done: Purged, batch: Purged) -> None:
    """Add what a batch did to what was done before. The ids are not gathered: there may be millions."""
    done.chains += batch.chains
    done.jobs += batch.jobs
    done.kept += batch.kept


def remove_logs(log_dir: str, run_ids: Sequence[str]) -> None:
    """Remove the log files of runs; most runs have written none."""
    for run_id in run_ids:
        try:
            Path(log_path(log_dir, run_id)).unlink(missing_ok=True)
        except OSError as error:
            # Not ours, or the disk is in trouble: the rows are gone, and a file too many harms nobody.
            log.warning("could not delete the log of run %s: %s", run_id, error)
