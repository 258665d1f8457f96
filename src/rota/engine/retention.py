"""Retention: ended chains, their runs and logs go when they are old enough and nothing needs them any more; so do browsers' sessions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from rota.engine.clock_trust import ClockTrust
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

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: Settings,
        log_dir: str | None,
        trust: ClockTrust | None = None,
        current: Callable[[], Settings] | None = None,
    ) -> None:
        """Take what it removes from, the folder of the runs' logs, if they are kept, and the process's trust in its clock.

        `current` returns the settings that hold now, where the store may keep other ones.
        """
        self._current = current or (lambda: settings)
        self._store = store
        self._clock = clock
        self._settings = settings
        self._log_dir = log_dir
        self._trust = trust or ClockTrust(store, clock, settings)
        self.next_s = clock.monotonic() + min(FIRST_S, settings.retention_interval)
        """When `tick` has something to do (monotonic)."""
        self._cursor: PurgeCursor | None = None
        self._round = Purged()
        self._broken: set[int] = set()
        """Chains that can't be removed and were logged."""

    def tick(self, monotonic: float) -> None:
        """Remove one batch, if it is time: soon again while there is more, after `retention_interval` otherwise."""
        if monotonic < self.next_s:
            return
        # Before anything can fail: a store in trouble is not asked again at once.
        self.next_s = monotonic + self._settings.retention_interval
        # Read once: the moment that was judged is the one that ages are counted from.
        now = self._clock.now()
        if self._trust.doubt(now) is not None:
            return
        self._store.forget_sessions(before=now, limit=self._settings.retention_batch)
        more = self._remove_dropped()
        if self._current().retention:
            more = self._remove_old(now) or more
        if more:
            took_s = self._clock.monotonic() - monotonic
            self.next_s = monotonic + min(self._settings.retention_interval, (1 + SHARE) * took_s)

    def _remove_dropped(self) -> bool:
        """Remove a batch of the history of jobs that DROP JOB removed; say whether there may be more."""
        dropped = self._store.purge_dropped(limit=self._settings.retention_batch)
        if self._log_dir is not None:
            remove_logs(self._log_dir, dropped.run_ids)
        return dropped.chains > 0

    def _remove_old(self, now: Instant) -> bool:
        """Remove a batch of what is too old; say whether there is more."""
        older_than_s = self._current().retention
        batch = self._batch(now, before=now - round(older_than_s * SECOND), cursor=self._cursor)
        self._cursor = batch.cursor
        add(self._round, batch)
        if batch.cursor is not None:
            return True
        if self._round.chains:
            log.info("removed %d chains (%d jobs) that ended more than %g s ago", self._round.chains, self._round.jobs, older_than_s)
        self._round = Purged()
        return False

    def purge(
        self,
        *,
        older_than: Instant,
        dry_run: bool = False,
        trust_clock: bool = False,
        progress: Callable[[Purged], object] | None = None,
    ) -> Purged:
        """Remove all that ended longer ago than this, batch by batch, telling `progress` after each what was done so far.

        Raise ClockInDoubt, unless somebody vouches for the clock; workers trust it then, too.
        """
        done, now = Purged(), self._clock.now()
        if not trust_clock:
            self._trust.demand(now)
        elif not dry_run:
            self._trust.trust(now)
        while True:
            batch = self._batch(now, before=now - older_than, cursor=done.cursor, dry_run=dry_run)
            add(done, batch)
            done.cursor = batch.cursor
            if progress is not None:
                progress(done)
            if batch.cursor is None:
                return done

    def _batch(self, now: Instant, *, before: Instant, cursor: PurgeCursor | None, dry_run: bool = False) -> Purged:
        """Remove one batch and its logs. The rows go first: a log that is left behind by a crash is litter, a row without one is a lie."""
        batch = self._store.purge(
            before=before,
            limit=self._settings.retention_batch,
            now=now,
            dry_run=dry_run,
            cursor=cursor,
            figures_before=now - round(self._settings.stats_retention * SECOND),
        )
        for number, reason in batch.broken.items():
            if number not in self._broken:
                log.error(
                    "the chain of job %d is old enough to be removed and can't be: %s. `rota repair` repairs what it can",
                    number,
                    reason,
                )
        self._broken |= batch.broken.keys()
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
            with suppress(FileNotFoundError):
                os.unlink(log_path(log_dir, run_id))  # noqa: PTH108 - see `log_path`
        except OSError as error:
            # Not ours, or the disk is in trouble: the rows are gone, and a file too many harms nobody.
            log.warning("could not delete the log of run %s: %s", run_id, error)
