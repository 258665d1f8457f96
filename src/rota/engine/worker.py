"""A worker: one process incarnation that claims jobs, has them executed and writes their ends. `turn()` is the wheel."""

from __future__ import annotations

import difflib  # noqa: F401 - see PRELOADED
import graphlib  # noqa: F401 - see PRELOADED
import hashlib  # noqa: F401
import logging
import zoneinfo  # noqa: F401

import cronsim  # noqa: F401

from rota.engine.background import tickers_of
from rota.engine.clock_trust import ClockTrust
from rota.engine.definitions_cache import DefinitionsCache, Misfits
from rota.engine.executor_pool import LOOK_S, ExecutorPool, Suspects
from rota.engine.heartbeat import Heartbeat
from rota.engine.in_flight import START_S, InFlight, ParallelTurns
from rota.engine.inbox import DirectSink, Inbox, Pace, Requests
from rota.engine.log_shipper import LogShipper
from rota.engine.outcome_log import HookCalls, log_completions, log_turn
from rota.engine.parts import Parts
from rota.engine.patience import Patience
from rota.engine.recovery import Recovery
from rota.engine.retention import Retention
from rota.engine.schemas import Schemas
from rota.engine.tracing import take_up
from rota.engine.trigger import Trigger
from rota.engine.turn_request import TurnRequests
from rota.engine.webhook_delivery import WebhookDelivery
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.decide import Failed, Interrupted, Outcome, Released
from rota.model.states import Status
from rota.model.values import Claimed, Instant, Origin
from rota.ports.executor import Ended, Receipt, Report
from rota.ports.turns import Turn, Turned

PRELOADED = ("cronsim", "difflib", "graphlib", "hashlib", "zoneinfo")
"""Modules that others import when they need them. A worker has them from its start: if one of its threads imported a module while the
program forks, the child would wait for ever for the lock of that import."""
log = logging.getLogger("rota.worker")

PEEK_S = 0.2
"""A worker that is busy turning still looks this often for cancel requests."""
STALL_S = 0.5
"""Work claimed ahead should wait 50 ms; when nothing has moved for this long it is given back."""


class Worker:
    """Claims, executes, ends. All methods but `poke` belong to one thread."""

    def __init__(self, parts: Parts, *, concurrency: int) -> None:
        """Prepare; nothing is claimed before `start`."""
        self._parts = parts
        self._store, self._clock, self._settings = parts.store, parts.clock, parts.settings
        self.concurrency = concurrency
        self.meter = parts.meter
        self.inbox = Inbox(parts.wakeup() if parts.wakeup is not None else None, Requests(parts.serve))
        trust = parts.trust or ClockTrust(parts.store, parts.clock, parts.settings)
        self.retention = Retention(
            parts.store,
            clock=parts.clock,
            settings=parts.settings,
            log_dir=parts.log_dir,
            trust=trust,
            current=lambda: parts.registry.settings,
        )
        self.trigger = Trigger(
            parts.store,
            parts.registry,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            alerts=parts.alerts,
        )
        self._pool = ExecutorPool(parts, self.inbox, DirectSink(self.inbox, self._keep_at_once), slots=concurrency)
        self.heartbeat = Heartbeat(parts, self._pool, self.inbox.poke)
        self.calls = HookCalls(parts.on, inline=parts.inline)
        self._jobs = InFlight(concurrency, parts.settings)
        self.logs = LogShipper(parts.store, parts.log_dir if parts.ships_logs else None, clock=parts.clock, running=self._jobs.held)
        self.recovery = Recovery(
            parts.store,
            parts.liveness,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            renewal=self.heartbeat.renewal,
            tell_dead=self.trigger.tell_dead,
            calls=self.calls,
            logs=self.logs,
        )
        self._delivery = WebhookDelivery(parts.store, parts.make_sender, clock=parts.clock, settings=parts.settings, trust=trust)
        self._pace = Pace(self.inbox, parts.clock, parts.settings)
        self._parallel = ParallelTurns(parts.store, self._jobs, self.inbox.wake)
        self._cancelling: set[int] = set()
        self._suspects, self._misfits, self._schemas = Suspects(parts, self._pool), Misfits(parts), Schemas(parts)
        self._definitions = DefinitionsCache(parts, self._misfits, self._suspects.inside)
        self._requests = TurnRequests(parts, self._jobs, self._definitions, self._suspects)
        self._parked = self._doubt = self._stopping = self._untold = False
        self._next_due: Instant | None = None
        self._room_at: Instant | None = None
        """When a rate limit has room again, as of the last turn: a peek does not know it."""
        self._more = True
        self._moved = parts.clock.monotonic()
        """When something last ended or was submitted."""
        self._stalled = False
        """Work that was claimed ahead waited far too long: nothing more is claimed ahead until something ends."""
        self._peeked = -PEEK_S
        self._swept = parts.clock.monotonic()
        self.turned_s = parts.clock.monotonic()
        """When the last good turn began, on the monotonic clock."""
        self.tickers = tickers_of(self, parts)
        """What is done beside the wheel by threads of its own, where a driver turns it."""

    # ---- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Show a sign of life, register, and end what dead workers left behind."""
        self.heartbeat.begin(self.id)
        self.recovery.sweep(self.id)
        self.recovery.repair()
        self._schemas.state()
        for place in {handler.executor for handler in self._parts.handlers.values()}:
            self._pool.at(place)
        self.logs.start()

    @property
    def id(self) -> str:
        """Return the id that others know this worker by; another one after it was given up."""
        return self.heartbeat.id

    def poke(self) -> None:
        """Wake the worker: something may be ready."""
        self.inbox.poke()

    @property
    def holding(self) -> int:
        """Return how many jobs are claimed and not yet written as ended; a claim under way counts as one."""
        return len(self._jobs) + self._parallel.claiming

    def begin_stop(self) -> None:
        """Claim nothing more and give back what has not started. The next turn records it."""
        if not self._stopping:
            self._stopping = self._untold = True
            self._release()

    def interrupt(self) -> None:
        """Stop the handlers that still run: the grace period is over."""
        self._pool.interrupt()

    def abandon(self) -> None:
        """End what could not be stopped (threads) as interrupted; their late results find the run ended."""
        self._collect()
        self._end_unrun(list(self._jobs.jobs.values()), Interrupted())

    def finish(self) -> None:
        """Write the last ends, record this worker's own end and let go."""
        self._parallel.close()
        try:
            self.turn()
        finally:
            self.logs.stop()
        self._delivery.close()
        self._pool.close()
        self.heartbeat.rest()
        try:
            clean = not self.holding
            if clean:
                self._store.end_worker(self.id, now=self._clock.now())
            self.heartbeat.let_go(clean=clean)
        finally:
            self.inbox.close()

    # ---- the wheel --------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Turn the wheel once; return in how many seconds to turn it again unless something arrives before."""
        monotonic = self._clock.monotonic()
        self._collect()
        deadline = self._pool.tick(monotonic)
        if self._jobs.ahead and monotonic - self._moved > STALL_S:
            # What was claimed ahead of a handler that turned out to be slow is given back: another worker may be free.
            self._stalled = True
            self._moved = self._clock.monotonic()
            self._release()
        if self.heartbeat.guard.tripped:
            self._sit_out()
        try:
            if self._untold:
                # Recorded, or tried again in the next turn: what is lost from now on was interrupted, not crashed.
                self._store.stopping(self.id, now=self._clock.now())
                self._untold = False
            self._housekeep(monotonic)
            if not self._parts.direct_only and not self._stopping and self.trigger.tick():
                self._more = True
            if self._parallel.ending or self._parallel.claiming:
                self._take_what_came()
            if self._suspects.waiting and not self._stopping and self._suspects.look():
                self._more = True
            if self._is_due():
                self._turn_once()
            if self._pace.trouble_s:
                # A turn need not ask the store for anything: this makes sure that it answers.
                self._more = self._peek() or self._more
                self._pace.recovered()
            self.turned_s = monotonic
        except (StoreBusy, StoreUnavailable) as error:
            return self._pace.failed(error)
        if self._more and not self._parallel.claiming:
            return 0.0
        due = [self._next_due, None if self._parts.direct_only else self.trigger.next_at]
        delay = self._pace.delay_s(len(self._jobs.jobs), ahead=self._jobs.ahead, deadline=deadline, due=due)
        return min(delay, LOOK_S) if self._suspects.awaits_process else delay

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        self._pace.wait(seconds)

    def _collect(self) -> None:
        if came := self.inbox.take():
            self._moved = self._clock.monotonic()
            self._stalled = False
            self._jobs.end(came)
        self.inbox.take_reports()

    def _release(self) -> None:
        """Give back what has not started."""
        self._end_unrun(self._pool.release(), Released())

    def _end_unrun(self, jobs: list[Claimed], outcome: Outcome) -> None:
        """End jobs without, or before, the word of their executors."""
        now = self._clock.now()
        self._jobs.end([Ended(job, outcome, now, 0.0) for job in jobs])

    def _is_due(self) -> bool:
        jobs = self._jobs
        if self._parallel.claiming:
            # What else there is to do follows in some milliseconds, when that is over.
            return self._parallel.may_end
        if jobs.ended or self.inbox.reports or self._more or (jobs.plain and not self._parallel.ending):
            return True
        if self.inbox.poked and self._free() > 0:
            return True
        if self._next_due is not None and self._next_due <= self._clock.now():
            return True
        # Somebody has committed: is a turn worth it?
        return self._store.changed() and self._peek()

    def _peek(self) -> bool:
        self._peeked = self._clock.monotonic()
        self.trigger.look()
        types, lanes = self._definitions.wanted(self._jobs.by_type())
        peek = self._store.peek(types=types, lanes=lanes, worker_id=self.id)
        for number in peek.cancelling:
            if number not in self._cancelling:
                self._cancelling.add(number)
                if (job := self._jobs.jobs.get(number)) is not None:
                    self._pool.at(job.executor).cancel(number)
        self._parked = peek.parked
        due = [at for at in (peek.next_due, self._room_at) if at is not None]
        self._next_due = min(due, default=None)
        if peek.definitions != self._definitions.version:
            self._learn()
            return True
        return (peek.ready and self._free() > 0) or (self._next_due is not None and self._next_due <= self._clock.now())

    def _turn_once(self) -> None:
        if self._definitions.version < 0:
            self._learn()
        if self._doubt:
            self._adopt()
        if self.logs.ships and self._jobs.ended:
            self.logs.finish(self._jobs.ended.values())
        parallel = self._parallel
        handed = parallel.able and parallel.may_end
        if handed:
            parallel.end(self._requests.begin(self.id))
        if parallel.claiming:
            return
        self.inbox.poked = False
        turn = self._prepare()
        if (handed and not (turn.want or turn.endings or turn.reports)) or (parallel.able and parallel.claim(turn)):
            return
        try:
            turned = self._store.turn(turn)
        except BaseException:
            # The reply may have been lost after the write: ask what we hold before claiming more.
            self._doubt = self._more = True
            raise
        if self.logs.ships and turn.endings:
            self.logs.written()
        self._settle(turn, turned)

    def _prepare(self) -> Turn:
        turn = self._requests.begin(self.id)
        if self._jobs.plain and not self._parallel.ending:
            self._jobs.add_done(turn)
        if self._jobs.ended:
            self._requests.add_endings(turn)
        turn.reports = self.inbox.reports
        if not self._stopping and not self.heartbeat.guard.tripped:
            self._requests.add_claim(turn, self._jobs.slots(self._pool.given_up(), ahead=not self._stalled))
            turn.numbers, self._misfits.ripe = self._misfits.ripe, ()
        return turn

    def _settle(self, turn: Turn, turned: Turned) -> None:
        """Take in what came of a turn."""
        jobs, definitions = self._jobs, self._definitions
        self.inbox.hush()
        dead: list[str] = []
        if turn.endings or turn.done:
            log_turn(turn, turned, jobs.ended, jobs.plain, self.calls)
            dead = [jobs.ended[ending.number].job.job_id for ending in turn.endings if ending.transition.status is Status.DEAD_LETTER]
        self._requests.note_suspects()
        self._cancelling.intersection_update(jobs.jobs)
        jobs.written(turn)
        if turn.reports:
            self.inbox.written(turned)
        self._next_due, self._room_at = turned.next_due, turned.room_at
        _warn_late(turned)
        if turned.told:
            self._delivery.told()
        if turned.given_up:
            self._begin_anew()
            return
        if turn.want:
            self._requests.sweep = turned.unfinished
        self._more = turned.unfinished or turned.definitions != definitions.version
        if turned.definitions != definitions.version:
            self._learn()
        if turn.counting is not None and turn.counting.rates:
            self._note_rates(turned.claimed, turn.start_by)
        if turned.claimed:
            by_place = self._take_up(turned.claimed)
            if len(turned.claimed) >= turn.want > 0:
                self._claim_on()
            self._submit(by_place)
        if dead:
            self.trigger.tell_dead(dead)
        if jobs.jobs and self._clock.monotonic() - self._peeked >= PEEK_S:
            self._peek()

    def _keep_at_once(self, report: Report) -> Receipt:
        """Write a checkpoint of a handler that this thread runs: it can't wait for a turn that comes after it."""
        turn = self._requests.begin(self.id)
        turn.reports = [report]
        job = self._jobs.jobs.get(report.number)
        patience = Patience(outage_s=(job.timeout if job is not None else 0.0) or self._settings.busy_timeout)
        turned = patience.ask(lambda: self._store.turn(turn))
        if turned.told:
            self._delivery.told()
        self._more = True
        return turned.unkept.get(report.number, Receipt.WRITTEN)

    def _take_up(self, claimed: list[Claimed]) -> dict[str, list[Claimed]]:
        """Hold what was claimed, and return what may start, by executor."""
        self._moved = self._clock.monotonic()
        self.meter.claimed(len(claimed))
        if self._parts.tracing is not None:
            take_up(self._parts.tracing, self._store, claimed)
        by_place: dict[str, list[Claimed]] = {}
        handlers, watched = self._parts.handlers, self._misfits.watched
        living, guarded = self._definitions.living, self._definitions.guarded
        for job in claimed:
            handler = handlers.get(job.job_type)
            if handler is not None and not job.crashes:
                job.executor = handler.executor  # the code decides, whatever was known of it when the job was made
        self._jobs.add(claimed)
        for job in claimed:
            barred: Failed | Released | None = None
            if job.organization_id not in living or job.job_type in guarded:
                barred = self._definitions.bars(job)
            if barred is None and job.lane in watched:
                barred = self._misfits.refuse(job)
            if barred is None:
                by_place.setdefault(job.executor, []).append(job)
            else:
                # It is RUNNING, and its handler is never entered.
                self._end_unrun([job], barred)
                self._more = True
        return by_place

    def _note_rates(self, claimed: list[Claimed], start_by: float) -> None:
        """Have jobs of rate-limited types start soon or not at all: their starts are counted by their claims.

        A direct execution starts in any case: it has no successor that could start instead.
        """
        counted = [job for job in claimed if job.counted_at and job.origin != Origin.DIRECT]
        for job in counted:
            job.start_by = start_by
        if counted:
            self._jobs.start_s = max(START_S[0], self._jobs.start_s / 2)  # back towards the rule

    def _submit(self, by_place: dict[str, list[Claimed]]) -> None:
        for place, jobs in by_place.items():
            # What was asked for before the worker began to stop, or was cut off, may arrive after that.
            if self._stopping or self.heartbeat.guard.tripped or not self._pool.submit(place, jobs):
                self._end_unrun(jobs, Released())
                self._more = True

    # ---- parallel turns ---------------------------------------------------------------------------------------

    def _claim_on(self) -> None:
        """Claim more, as there seems to be more: at once, before what came is handed to its executors, if a parallel turn can."""
        jobs, parallel = self._jobs, self._parallel
        if parallel.able and jobs.want(jobs.slots(self._pool.given_up(), ahead=not self._stalled)) >= parallel.reach:
            if parallel.may_end:
                parallel.end(self._requests.begin(self.id))
            self._more = not parallel.claim(self._prepare()) or self._more
        elif self._free() > 0:
            self._more = True

    def _take_what_came(self) -> None:
        """Take in what parallel turns have finished."""
        writing = self._jobs.writing
        if (ended := self._parallel.ended()) is not None:
            self._more = self._more or ended.unfinished
            _warn_late(ended)
            log_completions((each for number, each in writing.items() if number not in ended.late), self.id, self.calls)
            if ended.told:
                self._delivery.told()
        if (claimed := self._parallel.claimed()) is not None:
            turn, turned = claimed
            if isinstance(turned, Exception):
                self._doubt = self._more = True
                raise turned
            # What was claimed for one who was given up since then has been ended by others.
            if turn.worker_id == self.id:
                self._settle(turn, turned)

    def _free(self) -> int:
        return self._jobs.free(self._pool.given_up())

    # ---- beside the wheel -------------------------------------------------------------------------------------

    def _housekeep(self, monotonic: float) -> None:
        if monotonic >= self.heartbeat.due_s:
            self.heartbeat.beat()
        if self.heartbeat.renewal.lost:
            self._begin_anew()
        if monotonic - self._swept >= self._settings.recovery_interval:
            self._swept = monotonic
            if self.recovery.sweep(self.id):
                self._more = True
            self.heartbeat.notice()
            # Nothing stays parked although there is room: a net under what offers parked rows again.
            if self._peek():
                self._more = True
            if self._parked:
                self._requests.sweep = self._more = True
            self._schemas.state()
            if not self._parts.direct_only and self._misfits.look(monotonic):
                self._more = True
        if monotonic >= self.retention.next_s:
            self.retention.tick(monotonic)
        if monotonic >= self._delivery.next_s:
            self._delivery.tick(monotonic)

    def _learn(self) -> None:
        """Read the definitions anew. What was parked by the old ones may have room now."""
        types = len(self._parts.handlers)
        self._definitions.learn(self._clock.now())
        self._requests.sweep = True
        if len(self._parts.handlers) != types:
            self.heartbeat.beat_soon()  # it can run more now

    def _begin_anew(self) -> None:
        """Go on as another worker: this one was given up while it could not beat, and what it held was ended by others."""
        log.warning("worker %s was declared lost by other workers while unreachable; continuing under a new id", self.id)
        self.heartbeat.renewal.lost = True  # until it has another id: nothing is claimed under this one
        self.heartbeat.halt()
        # What has ended by now is written, to be refused and counted; the rest is not heard any more.
        self._collect()
        self._jobs.lose()
        self.heartbeat.begin_anew()
        self.logs.look_back()
        self._more = True

    def _sit_out(self) -> None:
        """Be cut off: give back what has not started; go on when the lease is renewed and every handler that was stopped is over."""
        self._release()
        if self.heartbeat.renewal.left_s > 0 and not self._jobs.jobs and not self._parallel.claiming and not self._pool.occupied():
            log.warning("the store acknowledges heartbeats again; the worker claims jobs again")
            self._pool.close()
            self.heartbeat.guard.mended()
            self._more = True

    def _adopt(self) -> None:
        """Take up jobs that a turn claimed although its reply was lost."""
        known = self._jobs.numbers()
        lost = [job for job in self._store.holding(self.id) if job.number not in known]
        self._doubt = False
        by_place = self._take_up(lost) if lost else {}
        for place, jobs in by_place.items():
            # Nobody knows any more until when those of rate-limited types may start.
            late = [job for job in jobs if job.job_type in self._definitions.world.rates and job.origin != Origin.DIRECT]
            self._end_unrun(late, Released())
            by_place[place] = [job for job in jobs if job not in late] if late else jobs
        self._submit(by_place)


def _warn_late(turned: Turned) -> None:
    for number in turned.late:
        log.warning("result of job %d refused: another worker had already recorded an outcome for this run", number)
