"""The schedules of a relational store: schedules, calendars, the ledger."""

from __future__ import annotations

from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.schedules import Calendar, Schedule
from rota.model.values import Instant
from rota.ports.schedules import Beat, Change, Decide, DueSchedule, Fired, Ledger, LedgerCursor, Occurrence
from rota.stores.verbs import broken, firing, ledger, schedules
from rota.stores.verbs.base import Base
from rota.stores.verbs.db import Db


class Timing(Base):
    """Implements `rota.ports.schedules.Schedules`."""

    def fire(self, decide: Decide, *, now: Instant, limit: int, ahead: Instant, definitions: int | None = None) -> Fired:
        """Give due times their fates."""

        def work(db: Db) -> Fired:
            return firing.fire(db, decide, now, limit=limit, ahead=ahead, definitions=definitions)

        try:
            return self._write(work, patient=True)
        except broken.SPOILT as error:
            # One that can't be read keeps no other from firing.
            if broken.is_passing(error) or not self._write(lambda db: broken.set_schedules_aside(db, now)):
                raise
        return Fired(unfinished=True)

    def beat_of_schedules(self) -> Beat:
        """Return when schedules want to be looked at."""
        with self._reading() as db:
            return schedules.beat(db)

    def due_schedules(self, *, until: Instant, limit: int, scope: Scope = EVERYTHING, schedule_id: str | None = None) -> list[DueSchedule]:
        """Return what firing would take up."""
        with self._reading() as db, db.snapshot():
            return firing.due(db, until, limit=limit, organization=scope.organization, schedule_id=schedule_id)
        raise AssertionError  # a context manager may swallow an error, for all that mypy knows

    def follow_zones(self, rules: int) -> int:
        """Work due times out anew if the rules of zones have changed."""
        with self._reading() as db:
            if db.value("zone_rules") == rules:
                return 0
        return self._write(lambda db: schedules.follow_zones(db, rules), patient=True, long=True)

    def add_schedule(self, schedule: Schedule, *, actor: Actor, now: Instant) -> Schedule:
        """Add a schedule."""
        return self._write(lambda db: schedules.add(db, schedule, actor, now))

    def change_schedule(
        self, schedule_id: str, change: Change, decide: Decide, *, actor: Actor, now: Instant, definitions: int | None = None
    ) -> Schedule:
        """Close the ledger and change a schedule."""
        return self._write(
            lambda db: schedules.change(
                db, schedule_id, change, actor, now, close=firing.closing(db, schedule_id, decide, now, definitions)
            )
        )

    def drop_schedule(
        self,
        schedule_id: str,
        decide: Decide,
        *,
        actor: Actor,
        now: Instant,
        definitions: int | None = None,
        version: int | None = None,
    ) -> None:
        """Close the ledger and take a schedule out of sight."""
        self._write(
            lambda db: schedules.drop(
                db, schedule_id, actor, now, close=firing.closing(db, schedule_id, decide, now, definitions), version=version
            )
        )

    def schedules(
        self, *, scope: Scope = EVERYTHING, name: str | None = None, template: str | None = None, dropped: bool = False
    ) -> list[Schedule]:
        """Return schedules."""
        with self._reading() as db:
            return schedules.schedules(db, scope, name=name, template=template, dropped=dropped)

    def schedule(self, schedule_id: str) -> Schedule | None:
        """Return one schedule."""
        with self._reading() as db:
            return schedules.schedule(db, schedule_id)

    def occurrences(self, ledger_: Ledger, /, *, limit: int, before: LedgerCursor | None = None) -> list[Occurrence]:
        """Return rows of the ledger."""
        with self._reading(long=True) as db:
            return ledger.occurrences(db, ledger_, limit, before)

    def awaited(self, job_id: str) -> list[str]:
        """Return the schedules that a job waits for."""
        with self._reading() as db:
            return [row[0] for row in db.rows("awaited_schedules", job_id=job_id)]

    def put_calendar(self, calendar: Calendar, *, organization: str, actor: Actor, now: Instant) -> None:
        """Make or change a calendar."""
        self._write(lambda db: schedules.put_calendar(db, calendar, organization, actor, now))

    def drop_calendar(self, name: str, *, organization: str, actor: Actor, now: Instant) -> None:
        """Remove a calendar."""
        self._write(lambda db: schedules.drop_calendar(db, name, organization, actor, now))

    def calendars(self, *, organization: str | None = None) -> list[tuple[str, Calendar]]:
        """Return calendars."""
        with self._reading() as db:
            return schedules.calendars(db, organization)
