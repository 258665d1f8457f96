"""A worker: one process incarnation that claims jobs, has them executed and writes their ends. `turn()` is the wheel."""

from __future__ import annotations

import difflib  # noqa: F401 - see PRELOADED
import graphlib  # noqa: F401 - see PRELOADED
import hashlib  # noqa: F401
import logging
import zoneinfo  # noqa: F401

import cronsim  # noqa: F401

from rota.engine.asking import Asking
from rota.engine.clock_trust import ClockTrust
from rota.engine.crew import Crew
from rota.engine.delivering import Delivering
from rota.engine.dispatch import Slots
from rota.engine.hands import Hands
from rota.engine.holding import Holding
from rota.engine.hook_calls import HookCalls
from rota.engine.knowledge import Knowledge
from rota.engine.misfits import Misfits
from rota.engine.outcome_log import log_completions, log_turn
from rota.engine.pace import Pace
from rota.engine.parts import Parts
from rota.engine.patience import Patience
from rota.engine.recovery import Recovery
from rota.engine.requests import Requests
from rota.engine.retention import Retention
from rota.engine.schemas import Schemas
from rota.engine.sink import DirectSink, Inbox
from rota.engine.standing import Standing
from rota.engine.suspects import Suspects
from rota.engine.tracing import take_up
from rota.engine.trigger import Trigger
from rota.engine.unwritten import UnwrittenReports
from rota.engine.watches import tickers_of
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.decide import Failed, Interrupted, Released
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
        self.retention = Retention(parts.store, clock=parts.clock, settings=parts.settings, log_dir=parts.log_dir, trust=trust)
        self.trigger = Trigger(
            parts.store,
            parts.registry,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            alerts=parts.alerts,
        )
        self._crew = Crew(parts, self.inbox, DirectSink(self.inbox, self._keep_at_once), slots=concurrency)
        self.standing = Standing(parts, self._crew, self.inbox.poke)
        self.calls = HookCalls(parts.on, inline=parts.inline)
        self.recovery = Recovery(
            parts.store,
            parts.liveness,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            renewal=self.standing.renewal,
            tell_dead=self.trigger.tell_dead,
            calls=self.calls,
        )
        self._delivering = Delivering(parts.store, parts.make_sender, clock=parts.clock, settings=parts.settings, trust=trust)
        self._hold = Holding(concurrency, parts.settings)
        self._pace = Pace(self.inbox, parts.clock, parts.settings)
        self._hands = Hands(parts.store, self._hold, self.inbox.wake)
        self._cancelling: set[int] = set()
        self._unwritten = UnwrittenReports()
        self._suspects, self._misfits, self._schemas = Suspects(parts, self._crew), Misfits(parts), Schemas(parts)
        self._know = Knowledge(
            parts.store, parts.registry, parts.handlers, self._suspects.inside, serving=parts.serving, sort=self._misfits.sort
        )
        self._asking = Asking(parts, self._hold, self._know, self._suspects)
        self._parked = False
        self._next_due: Instant | None = None
        self._room_at: Instant | None = None
        """When a rate limit has room again, as of the last turn: a peek does not know it."""
        self._more = True
        self._doubt = False
        self._moved = parts.clock.monotonic()
        """When something last ended or was submitted."""
        self._stalled = False
        """Work that was claimed ahead waited far too long: nothing more is claimed ahead until something ends."""
        self._peeked = -PEEK_S
        self._swept = parts.clock.monotonic()
        self._stopping = False
        self._untold = False
        self.turned_s = parts.clock.monotonic()
        """When the last good turn began, on the monotonic clock."""
        self.tickers = tickers_of(self, parts)
        """What is done beside the wheel by threads of its own, where a driver turns it."""

    # ---- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Show a sign of life, register, and end what dead workers left behind."""
        self.standing.begin(self.id)
        self.recovery.sweep(self.id)
        self.recovery.repair()
        self._schemas.state()
        for place in {handler.executor for handler in self._parts.handlers.values()}:
            self._crew.at(place)

    @property
    def unreadable_until(self) -> Instant:
        """Return until when a schedule that this worker can't read is left alone."""
        return self.trigger.unreadable_until

    @property
    def id(self) -> str:
        """Return the id that others know this worker by; another one after it was given up."""
        return self.standing.id

    def poke(self) -> None:
        """Wake the worker: something may be ready."""
        self.inbox.poke()

    @property
    def holding(self) -> int:
        """Return how many jobs are claimed and not yet written as ended; a claim under way counts as one."""
        return len(self._hold) + self._hands.claiming

    def begin_stop(self) -> None:
        """Claim nothing more and give back what has not started. The next turn records it."""
        if self._stopping:
            return
        self._stopping = self._untold = True
        self._release()

    def _tell_stopping(self) -> None:
        """Record the shutdown, or try again in the next turn: what is lost from now on was interrupted, not crashed."""
        self._store.stopping(self.id, now=self._clock.now())
        self._untold = False

    def interrupt(self) -> None:
        """Stop the handlers that still run: the grace period is over."""
        self._crew.interrupt()

    def abandon(self) -> None:
        """End what could not be stopped (threads) as interrupted; their late results find the run ended."""
        self._collect()
        now = self._clock.now()
        for job in list(self._hold.jobs.values()):
            self._hold.end(Ended(job, Interrupted(), now, 0.0))

    def finish(self) -> None:
        """Write the last ends, record this worker's own end and let go."""
        self._hands.close()
        self.turn()
        self._delivering.close()
        self._crew.close()
        self.standing.rest()
        try:
            clean = not self.holding
            if clean:
                self._store.end_worker(self.id, now=self._clock.now())
            self.standing.let_go(clean=clean)
        finally:
            self._unwritten.refuse()
            self.inbox.close()

    # ---- the wheel --------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Turn the wheel once; return in how many seconds to turn it again unless something arrives before."""
        monotonic = self._clock.monotonic()
        self._collect()
        deadline = self._crew.tick(monotonic)
        if self._hold.ahead and monotonic - self._moved > STALL_S:
            self._give_back()
        if self.standing.guard.tripped:
            self._sit_out()
        try:
            if self._untold:
                self._tell_stopping()
            self._housekeep(monotonic)
            if not self._parts.direct_only and not self._stopping and self.trigger.tick():
                self._more = True
            self._take_what_came()
            if not self._stopping and self._suspects.look():
                self._more = True
            if self._is_due():
                self._turn_once()
            self._pace.well()
            self.turned_s = monotonic
        except (StoreBusy, StoreUnavailable) as error:
            return self._pace.trouble_s(error)
        return self._delay(deadline)

    def _collect(self) -> None:
        if came := self.inbox.take():
            self._moved = self._clock.monotonic()
            self._stalled = False
        for ended in came:
            self._hold.end(ended)
        self._unwritten.take(self.inbox)

    def _give_back(self) -> None:
        """Give back what was claimed ahead of a handler that turned out to be slow: another worker may be free."""
        self._stalled = True
        self._moved = self._clock.monotonic()
        self._release()

    def _release(self) -> None:
        for job in self._crew.release():
            self._hold.end(Ended(job, Released(), self._clock.now(), 0.0))

    def _is_due(self) -> bool:
        if self._hands.claiming:
            # What else there is to do follows in some milliseconds, when that is over.
            return self._hands.may_end
        if self._hold.ended or self._unwritten.reports or self._more or (self._hold.plain and not self._hands.ending):
            return True
        if self.inbox.poked and self._free() > 0:
            return True
        if self._next_due is not None and self._next_due <= self._clock.now():
            return True
        return self._look()

    def _look(self) -> bool:
        """Peek when somebody has committed; say whether a turn is worth it."""
        return self._store.changed() and self._peek()

    def _peek(self) -> bool:
        self._peeked = self._clock.monotonic()
        self.trigger.look()
        here = self._hold.by_type()
        peek = self._store.peek(types=self._know.types(here), lanes=self._know.lanes(here), worker_id=self.id)
        for number in peek.cancelling:
            if number not in self._cancelling:
                self._cancelling.add(number)
                self._cancel(number)
        self._parked = peek.parked
        due = [at for at in (peek.next_due, self._room_at) if at is not None]
        self._next_due = min(due, default=None)
        if peek.definitions != self._know.version:
            self._learn()
            return True
        return (peek.ready and self._free() > 0) or (self._next_due is not None and self._next_due <= self._clock.now())

    def _turn_once(self) -> None:
        if self._know.version < 0:
            self._learn()
        if self._doubt:
            self._adopt()
        handed = self._hand_over()
        if self._hands.claiming:
            return
        self.inbox.poked = False
        turn = self._prepare()
        if (handed and not (turn.want or turn.endings or turn.reports)) or self._hands.claim(turn):
            return
        try:
            turned = self._store.turn(turn)
        except BaseException:
            # The reply may have been lost after the write: ask what we hold before claiming more.
            self._doubt = self._more = True
            raise
        self._settle(turn, turned)

    def _prepare(self) -> Turn:
        turn = self._asking.nothing_yet(self.id)
        if not self._hands.ending:
            turn.done = self._hold.done()
        self._asking.add_endings(turn)
        turn.reports = self._unwritten.reports
        if not self._stopping and not self.standing.guard.tripped:
            self._asking.add_claim(turn, self._slots())
            turn.numbers, self._misfits.ripe = self._misfits.ripe, ()
        return turn

    def _settle(self, turn: Turn, turned: Turned) -> None:
        """Take in what came of a turn."""
        self.inbox.hush()
        log_turn(turn, turned, self._hold.ended, self._hold.plain, self.calls)
        dead = [self._hold.ended[ending.number].job.job_id for ending in turn.endings if ending.transition.status is Status.DEAD_LETTER]
        self._asking.note_suspects()
        self._cancelling.intersection_update(self._hold.jobs)
        self._hold.written(turn)
        if turn.reports:
            self._unwritten.written(turned)
        self._next_due, self._room_at = turned.next_due, turned.room_at
        _tell(turned)
        if turned.told:
            self._delivering.told()
        if turned.given_up:
            self._begin_anew()
            return
        if turn.want:
            self._asking.sweep = turned.unfinished
        self._more = turned.unfinished or turned.definitions != self._know.version
        if turned.definitions != self._know.version:
            self._learn()
        if turn.counting is not None and turn.counting.rates:
            self._note_rates(turned.claimed, turn.start_by)
        by_place = self._take_up(turned.claimed)
        if len(turned.claimed) >= turn.want > 0:
            self._claim_on()
        self._submit(by_place)
        self.trigger.tell_dead(dead)
        if self._hold.jobs and self._clock.monotonic() - self._peeked >= PEEK_S:
            self._peek()

    def _keep_at_once(self, report: Report) -> Receipt:
        """Write a checkpoint of a handler that this thread runs: it can't wait for a turn that comes after it."""
        turn = self._asking.nothing_yet(self.id)
        turn.reports = [report]
        job = self._hold.jobs.get(report.number)
        patience = Patience(outage_s=(job.timeout if job is not None else 0.0) or self._settings.busy_timeout)
        turned = patience.ask(lambda: self._store.turn(turn))
        if turned.told:
            self._delivering.told()
        self._more = True
        return turned.unkept.get(report.number, Receipt.WRITTEN)

    def _take_up(self, claimed: list[Claimed]) -> dict[str, list[Claimed]]:
        """Hold what was claimed, and return what may start, by executor."""
        if claimed:
            self._moved = self._clock.monotonic()
            self.meter.claimed(len(claimed))
            if self._parts.tracing is not None:
                take_up(self._parts.tracing, self._store, claimed)
        by_place: dict[str, list[Claimed]] = {}
        living, guarded, watched = self._know.living, self._know.guarded, self._misfits.watched
        for job in claimed:
            handler = self._parts.handlers.get(job.job_type)
            if handler is not None and not job.crashes:
                job.executor = handler.executor  # the code decides, whatever was known of it when the job was made
            self._hold.add(job)
            barred: Failed | Released | None = (
                None if job.organization_id in living and job.job_type not in guarded else self._know.bars(job)
            )
            if barred is None and job.lane in watched:
                barred = self._misfits.refuse(job)
            if barred is None:
                by_place.setdefault(job.executor, []).append(job)
            else:
                # It is RUNNING, and its handler is never entered.
                self._hold.end(Ended(job, barred, self._clock.now(), 0.0))
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
            self._hold.started_in_time()

    def _submit(self, by_place: dict[str, list[Claimed]]) -> None:
        for place, jobs in by_place.items():
            # What was asked for before the worker began to stop, or was cut off, may arrive after that.
            if self._stopping or self.standing.guard.tripped or not self._crew.submit(place, jobs):
                for job in jobs:
                    self._hold.end(Ended(job, Released(), self._clock.now(), 0.0))
                self._more = True

    # ---- other hands ------------------------------------------------------------------------------------------

    def _hand_over(self) -> bool:
        """Have plain completions written by another hand, if they are many."""
        if not self._hands.may_end:
            return False
        self._hands.end(self._asking.nothing_yet(self.id))
        return True

    def _claim_on(self) -> None:
        """Claim more, as there seems to be more: at once, before what came is handed to its executors, if another hand can."""
        if self._hold.want(self._slots()) >= self._hands.reach:
            self._hand_over()
            self._more = not self._hands.claim(self._prepare()) or self._more
        elif self._free() > 0:
            self._more = True

    def _take_what_came(self) -> None:
        """Take in what other hands have finished."""
        writing = self._hold.writing
        if (ended := self._hands.ended()) is not None:
            self._more = self._more or ended.unfinished
            _tell(ended)
            log_completions((each for number, each in writing.items() if number not in ended.late), self.id, self.calls)
            if ended.told:
                self._delivering.told()
        if (claimed := self._hands.claimed()) is not None:
            turn, turned = claimed
            if isinstance(turned, Exception):
                self._doubt = self._more = True
                raise turned
            # What was claimed for one who was given up since then has been ended by others.
            if turn.worker_id == self.id:
                self._settle(turn, turned)

    # ---- room -------------------------------------------------------------------------------------------------

    def _free(self) -> int:
        return self._hold.free(self._crew.given_up())

    def _slots(self) -> Slots:
        return self._asking.slots(self._crew.given_up(), stalled=self._stalled)

    # ---- beside the wheel -------------------------------------------------------------------------------------

    def _housekeep(self, monotonic: float) -> None:
        self.standing.beat_if_due(monotonic)
        if self.standing.renewal.lost:
            self._begin_anew()
        if monotonic - self._swept >= self._settings.recovery_interval:
            self._swept = monotonic
            if self.recovery.sweep(self.id):
                self._more = True
            self.standing.notice()
            self._look_at_parked()
            self._schemas.state()
            if not self._parts.direct_only and self._misfits.look(monotonic):
                self._more = True
        self.retention.tick(monotonic)
        self._delivering.tick(monotonic)

    def _look_at_parked(self) -> None:
        """See to it that nothing stays parked although there is room: a net under what offers parked rows again."""
        if self._peek():
            self._more = True
        if self._parked:
            self._asking.sweep = self._more = True

    def _learn(self) -> None:
        """Read the definitions anew. What was parked by the old ones may have room now."""
        types = len(self._parts.handlers)
        self._know.learn(self._clock.now())
        self._asking.sweep = True
        if len(self._parts.handlers) != types:
            self.standing.beat_soon()  # it can run more now

    def _begin_anew(self) -> None:
        """Go on as another worker: this one was given up while it could not beat, and what it held was ended by others."""
        log.warning("worker %s was declared lost by other workers while unreachable; continuing under a new id", self.id)
        self.standing.renewal.lost = True  # until it has another id: nothing is claimed under this one
        self.standing.halt()
        # What has ended by now is written, to be refused and counted; the rest is not heard any more.
        self._collect()
        self._hold.lose()
        self.standing.begin_anew()
        self._more = True

    def _sit_out(self) -> None:
        """Be cut off: give back what has not started; go on when the lease is renewed and every handler that was stopped is over."""
        self._release()
        if self.standing.renewal.left_s > 0 and not self._hold.jobs and not self._hands.claiming and not self._crew.occupied():
            log.warning("the store acknowledges heartbeats again; the worker claims jobs again")
            self._crew.close()
            self.standing.guard.mended()
            self._more = True

    def _adopt(self) -> None:
        """Take up jobs that a turn claimed although its reply was lost."""
        known = self._hold.numbers()
        lost = [job for job in self._store.holding(self.id) if job.number not in known]
        self._doubt = False
        by_place = self._take_up(lost)
        for place, jobs in by_place.items():
            # Nobody knows any more until when those of rate-limited types may start.
            late = [job for job in jobs if job.job_type in self._know.world.rates and job.origin != Origin.DIRECT]
            for job in late:
                self._hold.end(Ended(job, Released(), self._clock.now(), 0.0))
            by_place[place] = [job for job in jobs if job not in late] if late else jobs
        self._submit(by_place)

    def _cancel(self, number: int) -> None:
        job = self._hold.jobs.get(number)
        if job is not None:
            self._crew.at(job.executor).cancel(number)

    def _delay(self, deadline: float | None) -> float:
        due = [self._next_due, None if self._parts.direct_only else self.trigger.next_at]
        at_once = self._more and not self._hands.claiming
        return 0.0 if at_once else self._suspects.delay_s(self._pace.delay_s(self._hold, deadline=deadline, due=due))

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        self._pace.wait(seconds)


def _tell(turned: Turned) -> None:
    for number in turned.late:
        log.warning("result of job %d refused: another worker had already recorded an outcome for this run", number)
