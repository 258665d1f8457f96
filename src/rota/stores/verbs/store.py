"""The store as far as dialects share it: every verb of the port, over the modules beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from rota.errors import NotFound, TransactionMisuse
from rota.model.definitions import Template
from rota.model.findings import Finding
from rota.model.gate import Actor
from rota.model.groups import Group
from rota.model.lanes import Takes
from rota.model.values import Enqueued, Instant, Job, NewRow, PurgeCursor, Purged, dashed
from rota.ports.places import Place
from rota.ports.schedules import Decide, Fired
from rota.ports.store import NewGroup, Store
from rota.ports.turns import Turn, Turned
from rota.stores.verbs import (
    accounts,
    broken,
    chains,
    intake,
    ledger,
    limits,
    lists,
    overview,
    queue,
    reads,
    recovery,
    reports,
    retention,
    run_logs,
    webhooks,
)
from rota.stores.verbs import connections as connection_verbs
from rota.stores.verbs import definitions as definition_verbs
from rota.stores.verbs import grants as grant_verbs
from rota.stores.verbs import groups as group_verbs
from rota.stores.verbs import repair as row_repair
from rota.stores.verbs import schedules as schedule_verbs
from rota.stores.verbs import secrets as secret_verbs
from rota.stores.verbs import turn as turn_verbs
from rota.stores.verbs.db import Db
from rota.stores.verbs.endings import NotLight
from rota.stores.verbs.scan import ScanSnapshot

P = ParamSpec("P")
T = TypeVar("T")

CLAIM_MANY = 32
"""From so many jobs on, claims follow each other; fewer are picked from under each other's hands without harm."""


class Hold(Enum):
    """How much of the store a piece of work keeps others out of. A dialect with one writer keeps everybody out of everything."""

    NOTHING = "nothing"
    """It touches rows that nobody else's work depends on."""
    DOOR = "door"
    """It adds plain jobs: many may do so at once, also while a turn is made."""
    LIGHT = "light"
    """It is a turn that ends what means nothing to others, and claims what nothing limits: many may do so at once."""
    CLAIM = "claim"
    """It is such a turn and claims many: one of these at a time, for two would want the same jobs and be in each other's way."""
    WHEEL = "wheel"
    """It is any other turn: one at a time."""
    ALL = "all"
    """It reads, decides and writes: nobody else does meanwhile."""
    STILL = "still"
    """As ALL, and no caller's own transaction is open that has added jobs, which nobody sees yet."""


def write(
    work: Callable[Concatenate[Db, P], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False
) -> Callable[Concatenate[VerbStore, P], T]:
    """Return the method that does a piece of work in a transaction of its own. For the options see `VerbStore._write`."""

    @wraps(work)
    def verb(self: VerbStore, /, *args: P.args, **options: P.kwargs) -> T:
        return self._write(lambda db: work(db, *args, **options), hold=hold, patient=patient, long=long)

    return verb


def read(work: Callable[Concatenate[Db, P], T], *, long: bool = False, snapshot: bool = False) -> Callable[Concatenate[VerbStore, P], T]:
    """Return the method that reads. Long: its work grows with the store. Snapshot: all it reads is of one moment."""

    @wraps(work)
    def verb(self: VerbStore, /, *args: P.args, **options: P.kwargs) -> T:
        with self._reading(long=long) as db:
            if not snapshot:
                return work(db, *args, **options)
            with db.snapshot():
                return work(db, *args, **options)
        raise AssertionError  # a context manager may swallow an error, for all that mypy knows

    return verb


class VerbStore(ABC):
    """Implements `rota.ports.store.Store`, but for how a dialect opens, writes, reads and hears of others."""

    url: str
    beside = False
    _shares = False
    """Several may write at once where `Hold` lets them."""
    _calm = False
    """The last turn found nothing that asks for a turn with the wheel to itself: the next may try to be a light one."""

    @abstractmethod
    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        """Do one piece of work in a transaction of its own. Patient: others may go first. Long: its work grows with the store.

        The work may run more than once: a store may undo the transaction, because of a conflict with another or because a part has
        failed and there are no savepoints, and begin again. So work changes nothing outside of the store: what it returns is built
        anew, and neither its arguments nor what it closes over are changed. A line that it logs may be logged again.
        A turn is not begun again once `Turn.choose` was asked, for it is the chooser that counts what it has taken: such a failure is
        the caller's, and the worker's next turn chooses anew. All savepoints of a turn come before that.
        """

    @abstractmethod
    def _reading(self, *, long: bool = False) -> AbstractContextManager[Db]:
        """Lend a connection for a block of reads. Long: their work grows with the store."""

    @abstractmethod
    def _of(self, transaction: Any) -> AbstractContextManager[Db]:
        """Lend the connection of the caller's own transaction."""

    def together(self, work: Callable[[Store], T]) -> T:
        """Do several verbs in one transaction."""
        return self._write(lambda db: work(cast("Store", Joined(db, self.url))))

    # ---- the queue --------------------------------------------------------------------------------------------

    def enqueue(
        self,
        rows: Sequence[NewRow],
        *,
        now: Instant,
        definitions: int | None = None,
        transaction: Any = None,
        place: Place | None = None,
    ) -> list[Enqueued]:
        """Add jobs, all or none."""
        if transaction is None:
            if self._shares and (place is not None or all(map(queue.is_plain, rows))):
                with suppress(intake.MustBeAlone):
                    return self._write(lambda db: intake.enqueue(db, rows, now, definitions, alone=False, place=place), hold=Hold.DOOR)
            return self._write(lambda db: intake.enqueue(db, rows, now, definitions, place=place))
        # A savepoint: a caller who catches the refusal and goes on keeps nothing of a batch that was refused.
        with self._of(transaction) as db, transaction.savepoint():
            return intake.enqueue(db, rows, now, definitions)

    def side_by_side(self, rows: Sequence[NewRow], *, now: Instant) -> bool:
        """Say whether the place of rows in the queue can be told from the rows before them."""
        return self._shares and queue.are_in_line(rows, now)

    fire_now = write(intake.fire_now)
    pour = write(intake.pour, hold=Hold.DOOR)
    adopt = write(intake.adopt)

    def turn(self, turn_: Turn) -> Turned:
        """Make one turn. If a row can't be started, or can't be queued, it is parked, and the next turn claims its neighbours."""
        try:
            return self._turn(turn_)
        except broken.SPOILT as error:
            if broken.is_passing(error):
                raise
            parked = self._write(lambda db: broken.set_aside(db, turn_))
            if not (parked or turn_.done or turn_.endings):
                raise
        turned = self._turn(broken.careful(turn_))
        turned.unfinished = turned.unfinished or bool(parked)
        return turned

    def _turn(self, turn_: Turn) -> Turned:
        """Make one turn: beside others' turns, where all that is asked for and all that is there lets it."""
        if self._shares and self._calm and turn_verbs.may_be_light(turn_):
            with suppress(NotLight):
                return self._write(lambda db: turn_verbs.lightly(db, turn_), hold=Hold.CLAIM if turn_.want >= CLAIM_MANY else Hold.LIGHT)
        turned = self._write(lambda db: turn_verbs.turn(db, turn_), hold=Hold.WHEEL, patient=True)
        self._calm = turned.calm
        return turned

    peek = read(turn_verbs.peek)
    old_in_lanes = read(turn_verbs.old_in_lanes)
    holding = read(recovery.holding)
    cancel = write(chains.cancel)
    change = write(chains.change)
    move = write(chains.move)
    retry = write(chains.retry)
    add_dependencies = write(chains.add_dependencies)
    discard = write(retention.discard, long=True)

    def purge(
        self,
        *,
        before: Instant,
        limit: int,
        now: Instant,
        dry_run: bool,
        cursor: PurgeCursor | None = None,
        figures_before: Instant | None = None,
    ) -> Purged:
        """Remove what is old and not needed."""
        if dry_run:
            with self._reading() as db:
                return retention.look(db, before, limit, cursor)
        return self._write(
            lambda db: retention.purge(db, before, limit, now, cursor, figures_before=figures_before), patient=True, long=True
        )

    def purge_dropped(self, *, limit: int) -> Purged:
        """Remove the history of jobs that were dropped with it."""
        with self._reading() as db:
            if not db.value("any_purging"):
                return Purged()
        return self._write(lambda db: retention.purge_dropped(db, limit=limit), patient=True, long=True)

    retention_clock = read(retention.retention_clock)
    set_retention_clock = write(retention.set_retention_clock, hold=Hold.NOTHING, patient=True)

    # ---- groups -----------------------------------------------------------------------------------------------

    def add_group(self, group: NewGroup, *, actor: Actor, now: Instant) -> Group:
        """Make a group."""
        self._write(lambda db: group_verbs.add_group(db, group, actor=actor, now=now))
        return self._group(group.group_id)

    def cancel_group(self, group_id: str, *, actor: Actor, now: Instant) -> Group:
        """Cancel a group's chains."""
        self._write(lambda db: group_verbs.cancel_group(db, group_id, actor=actor, now=now), long=True)
        return self._group(group_id)

    def _group(self, group_id: str) -> Group:
        group = self.group(group_id)
        if group is None:
            raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return group

    group = read(group_verbs.group)
    groups = read(group_verbs.groups)

    # ---- direct execution -------------------------------------------------------------------------------------

    reserve = write(recovery.reserve)
    reservation = read(turn_verbs.active_reservation)
    give_up = write(recovery.give_up)
    give_up_waiting = write(recovery.give_up_waiting)

    # ---- workers and recovery ---------------------------------------------------------------------------------

    register = write(recovery.register, hold=Hold.NOTHING)
    beat = write(recovery.beat, hold=Hold.NOTHING)
    stopping = write(recovery.stopping, hold=Hold.NOTHING)
    end_worker = write(recovery.end_worker)
    give_up_worker = write(recovery.give_up_worker)
    workers = read(reads.workers)
    unregistered = read(recovery.unregistered)
    held_by = read(recovery.held_by)
    repair = read(recovery.failed_without_successor)
    recover = write(recovery.recover)
    add_successors = write(recovery.add_successors)
    recovered = write(recovery.recovered)

    def _fix_rows(self, *, now: Instant) -> list[Finding]:
        """Repair what is wrong with rows, and return what was done."""
        return self._write(lambda db: row_repair.repair(db, now))

    # ---- reads ------------------------------------------------------------------------------------------------

    def job(self, job_id: str, *, transaction: Any = None) -> Job | None:
        """Return one job."""
        with self._reading() if transaction is None else self._of(transaction) as db:
            return reads.job(db, job_id)

    by_number = read(reads.by_number)
    chain = read(reads.chain)
    tails = read(reads.tails)
    run = read(reads.run)
    find = read(lists.find, long=True)
    queue = read(reads.queue)
    ahead = read(reads.ahead, long=True)
    blockers = read(reads.blockers)
    awaited_groups = read(group_verbs.awaited_groups)
    results_before = read(group_verbs.results_before)
    log = read(reads.log)
    append_logs = write(run_logs.append_logs, hold=Hold.LIGHT, patient=True)
    read_log = read(run_logs.read_log)
    ended_logs = read(run_logs.ended_logs)
    graph = read(reads.graph)
    usage = read(limits.usage)
    audit = read(reads.audit, long=True)
    stored_settings = read(accounts.stored_settings)
    put_setting = write(accounts.put_setting)
    record_denial = write(accounts.record_denial, hold=Hold.NOTHING)
    stats = read(overview.stats, long=True, snapshot=True)

    @contextmanager
    def snapshot(self, *, timeout_s: float) -> Iterator[ScanSnapshot]:
        """Hold one moment for a block of scans."""
        with self._reading(long=True) as db, db.snapshot(), db.limit_steps(timeout_s):
            yield ScanSnapshot(db)

    # ---- definitions ------------------------------------------------------------------------------------------

    definitions = read(definition_verbs.definitions)

    def put_templates(self, templates: Sequence[Template], *, actor: Actor, now: Instant) -> None:
        """Make or update templates."""
        with self._reading() as db:
            news = definition_verbs.news(db, templates)
            unrecorded = definition_verbs.unrecorded(db, definition_verbs.stated_by(templates))
        # Most processes say what is there already: that needs no lock, and no right to write.
        if news:
            self._write(lambda db: definition_verbs.put_templates(db, news, actor, now))
        if unrecorded:
            self._write(lambda db: definition_verbs.record(db, unrecorded, now))

    set_template = write(definition_verbs.set_template)
    set_template_state = write(definition_verbs.set_template_state)
    define_template = write(definition_verbs.define_template)

    def drop_template(self, name: str, *, actor: Actor, now: Instant, version: int | None = None) -> None:
        """Remove a template that has no jobs."""
        with self._reading(long=True) as db:
            newest = definition_verbs.look_for_jobs(db, name)
        self._write(
            lambda db: definition_verbs.drop_template(db, name, actor, now, newest=newest, version=version), hold=Hold.STILL, long=True
        )

    templates = read(definition_verbs.templates)

    def put_params(self, stated: Mapping[str, Takes], *, now: Instant) -> None:
        """Record what handlers take."""
        with self._reading() as db:
            unrecorded = definition_verbs.unrecorded(db, stated)
        if unrecorded:
            self._write(lambda db: definition_verbs.record(db, unrecorded, now))

    newest_params = read(definition_verbs.newest_params)
    schemas_of_live_workers = read(definition_verbs.schemas_of_live_workers)
    lanes = read(definition_verbs.lanes)

    def place_strays(self) -> int:
        """Put live jobs without a lane into the lane of their type."""
        with self._reading() as db:
            if not definition_verbs.has_strays(db):
                return 0
        return self._write(definition_verbs.place_strays)

    queues = read(definition_verbs.queues, snapshot=True)

    def put_adhoc_type(self, job_type: str, handler: str, *, actor: Actor, now: Instant) -> None:
        """Record the handler of a type without a template."""
        with self._reading() as db:
            is_here = definition_verbs.has_adhoc_type(db, job_type, handler)
        if not is_here:
            self._write(lambda db: definition_verbs.put_adhoc_type(db, job_type, handler, actor, now))

    adhoc_types = read(definition_verbs.adhoc_types)
    pause = write(definition_verbs.pause)
    resume = write(definition_verbs.resume)
    pauses = read(definition_verbs.pauses)

    # ---- organizations, users, tokens -------------------------------------------------------------------------

    put_organization = write(accounts.put_organization)
    set_organization_state = write(accounts.set_organization_state)
    organizations = read(accounts.organizations)
    put_user = write(accounts.put_user)
    remove_user = write(accounts.remove_user)
    users = read(accounts.users)
    add_role = write(grant_verbs.add_role)
    drop_role = write(grant_verbs.drop_role)
    roles = read(grant_verbs.roles)
    change_grants = write(grant_verbs.change_grants)
    grants = read(grant_verbs.grants)
    put_connection = write(connection_verbs.put_connection)
    drop_connection = write(connection_verbs.drop_connection)
    connections = read(connection_verbs.connections)
    add_token = write(accounts.add_token)
    tokens = read(accounts.tokens)
    token_by = read(accounts.token_by)
    revoke_token = write(accounts.revoke_token)
    note_use = write(accounts.note_use, hold=Hold.NOTHING)
    add_session = write(accounts.add_session, hold=Hold.NOTHING)
    session = read(accounts.session)
    tokens_behind = read(accounts.tokens_behind)
    end_session = write(accounts.end_session, hold=Hold.NOTHING)
    forget_sessions = write(accounts.forget_sessions, hold=Hold.NOTHING)

    # ---- secrets ----------------------------------------------------------------------------------------------

    put_secret = write(secret_verbs.put_secret)
    drop_secret = write(secret_verbs.drop_secret)
    stored_secrets = read(secret_verbs.stored_secrets)
    sealed_secrets = read(secret_verbs.sealed_secrets)
    note_secrets_used = write(secret_verbs.note_secrets_used, hold=Hold.NOTHING)
    secrets_to_rewrap = read(secret_verbs.secrets_to_rewrap)
    rewrap_secrets = write(secret_verbs.rewrap_secrets, hold=Hold.NOTHING, patient=True)
    signing_secrets = read(secret_verbs.signing_secrets)
    reseal_signing = write(secret_verbs.reseal_signing, hold=Hold.NOTHING, patient=True)
    master_keys = read(secret_verbs.master_keys)

    # ---- schedules --------------------------------------------------------------------------------------------

    def fire(self, decide: Decide, *, now: Instant, limit: int, ahead: Instant, definitions: int | None = None) -> Fired:
        """Give due times their fates."""
        try:
            return self._write(lambda db: ledger.fire(db, decide, now, limit=limit, ahead=ahead, definitions=definitions), patient=True)
        except broken.SPOILT as error:
            # One that can't be read keeps no other from firing.
            if broken.is_passing(error) or not self._write(lambda db: broken.set_schedules_aside(db, now)):
                raise
        return Fired(unfinished=True)

    beat_of_schedules = read(schedule_verbs.beat_of_schedules)
    due_schedules = read(ledger.due_schedules, snapshot=True)

    def follow_zones(self, rules: int) -> int:
        """Work due times out anew if the rules of zones have changed."""
        with self._reading() as db:
            if db.value("zone_rules") == rules:
                return 0
        return self._write(lambda db: schedule_verbs.follow_zones(db, rules), patient=True, long=True)

    add_schedule = write(schedule_verbs.add_schedule)
    change_schedule = write(ledger.change_schedule)
    replace_schedule = write(ledger.replace_schedule)
    drop_schedule = write(ledger.drop_schedule)
    drop_job = write(ledger.drop_job)
    template_version = read(schedule_verbs.template_version)
    work_of = read(schedule_verbs.work_of)
    live_chains = read(schedule_verbs.live_chains)
    schedules = read(schedule_verbs.schedules)
    schedule = read(schedule_verbs.schedule)
    occurrences = read(ledger.occurrences, long=True)
    awaited = read(ledger.awaited)
    put_calendar = write(schedule_verbs.put_calendar)
    drop_calendar = write(schedule_verbs.drop_calendar)
    calendars = read(schedule_verbs.calendars)

    # ---- the overview, and what is new ------------------------------------------------------------------------

    waiting = read(overview.waiting, snapshot=True)
    shown = read(overview.shown)
    suspects = read(overview.suspects)
    running = read(overview.running)
    dead_lately = read(overview.dead_lately)
    unfired = read(overview.unfired)
    figures = read(overview.figures, long=True)
    hourly = read(overview.hourly, long=True)
    kept = read(overview.kept, long=True)
    trend = read(overview.trend)
    errors = read(overview.errors)
    metas = read(overview.metas)
    paused = read(overview.paused)
    marks = read(overview.marks)
    made_in = read(overview.made_in)
    progress_now = read(overview.progress_now)
    ended_since = read(overview.ended_since)
    jobs_now = read(overview.jobs_now)
    definition_changes = read(overview.definition_changes)
    reports_after = read(overview.reports_after)
    reports_since = read(overview.reports_since)
    counts = read(overview.counts, long=True, snapshot=True)

    # ---- webhooks ---------------------------------------------------------------------------------------------

    add_endpoint = write(webhooks.add_endpoint)
    endpoint = read(webhooks.endpoint)
    endpoints = read(webhooks.endpoints)
    change_endpoint = write(webhooks.change_endpoint)
    drop_endpoint = write(webhooks.drop_endpoint)
    set_secret = write(webhooks.set_secret)
    secrets = read(webhooks.secrets)
    mail = read(webhooks.mail)
    take_mail = write(webhooks.take_mail, hold=Hold.NOTHING, patient=True)
    deliveries = read(webhooks.deliveries)
    redeliver = write(webhooks.redeliver)
    forget_deliveries = write(webhooks.forget_deliveries, hold=Hold.NOTHING, patient=True)
    report_overdue = write(reports.report_overdue)
    write_pulse = write(webhooks.write_pulse)
    forget_reports = write(webhooks.forget_reports, hold=Hold.NOTHING, patient=True)


class Joined(VerbStore):
    """The verbs of a store inside one of its transactions, which is another's to end: see `VerbStore.together`."""

    def __init__(self, db: Db, url: str) -> None:
        """Take the connection that the transaction is on."""
        self._db = db
        self.url = url

    def transacting(self) -> bool:
        """Say that a transaction is open here."""
        return True

    def _write(self, work: Callable[[Db], T], *, hold: Hold = Hold.ALL, patient: bool = False, long: bool = False) -> T:
        # The transaction holds everything, for as long as it lasts.
        del hold, patient, long
        return work(self._db)

    def _reading(self, *, long: bool = False) -> AbstractContextManager[Db]:
        del long
        return nullcontext(self._db)

    def _of(self, transaction: Any) -> AbstractContextManager[Db]:
        del transaction
        raise TransactionMisuse("a transaction is open in this thread already: use it, or close it first")
