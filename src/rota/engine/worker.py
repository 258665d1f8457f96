"""A worker: one process incarnation that claims jobs, has them executed and writes their ends. `turn()` is the wheel."""

from __future__ import annotations

import logging
import socket

from rota.engine.crew import Crew
from rota.engine.dispatch import Dispatcher, Slots
from rota.engine.holding import Holding
from rota.engine.knowledge import Knowledge
from rota.engine.parts import Parts
from rota.engine.recovery import Recovery
from rota.engine.retention import Retention
from rota.engine.sink import Inbox
from rota.engine.trigger import Trigger
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.decide import Completed, Interrupted, Limits, Released, decide, decide_cancelled
from rota.model.states import Status
from rota.model.values import Claimed, Instant
from rota.ports.executor import Ended, Report
from rota.ports.turns import Ending, Turn, Turned

log = logging.getLogger("rota.worker")

PEEK_S = 0.2
"""A worker that is busy turning still looks this often for cancel requests."""
TROUBLE_S = (0.05, 1.0)
"""Shortest and longest pause after the store failed."""
HINT_S = 0.2
"""How long after a hint its commit is looked for."""
STALL_S = 0.5
"""Work claimed ahead should wait 50 ms; when nothing has moved for this long it is given back."""


class Worker:
    """Claims, executes, ends. All methods but `poke` belong to one thread."""

    def __init__(self, parts: Parts, *, concurrency: int) -> None:
        """Prepare; nothing is claimed before `start`."""
        self._parts = parts
        self._store = parts.store
        self._clock = parts.clock
        self._settings = parts.settings
        self.concurrency = concurrency
        self.id = parts.ids.take(1, parts.clock.now())[0]
        self.inbox = Inbox(parts.wakeup() if parts.wakeup is not None else None)
        self.retention = Retention(parts.store, clock=parts.clock, settings=parts.settings, log_dir=parts.log_dir)
        self.trigger = Trigger(
            parts.store,
            parts.registry,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            alerts=parts.alerts,
        )
        self.recovery = Recovery(
            parts.store,
            parts.liveness,
            clock=parts.clock,
            ids=parts.ids,
            rng=parts.rng,
            settings=parts.settings,
            tell_dead=self.trigger.tell_dead,
        )
        self._limits = Limits(parts.settings.snooze_floor, parts.settings.max_snoozes)
        self._crew = Crew(parts, self.inbox, slots=concurrency)
        self._hold = Holding(concurrency, parts.settings)
        self._cancelling: set[int] = set()
        self._unkept: list[Report] = []
        self._know = Knowledge(parts.store, parts.registry, parts.handlers)
        self._dispatcher: Dispatcher | None = None
        self._parked = False
        self._sweep = True
        """The next claim looks at everything that is parked."""
        self._next_due: Instant | None = None
        self._room_at: Instant | None = None
        """When a rate limit has room again, as of the last turn: a peek does not know it."""
        self._more = True
        self._doubt = False
        self._suspect_since: float | None = None
        self._moved = parts.clock.monotonic()
        """When something last ended or was submitted."""
        self._stalled = False
        """Work that was claimed ahead waited far too long: nothing more is claimed ahead until something ends."""
        self._trouble_s = 0.0
        self._hint_at = -HINT_S
        self._peeked = -PEEK_S
        self._beaten = parts.clock.monotonic()
        self._swept = parts.clock.monotonic()
        self._stopping = False
        self._untold = False

    # ---- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Show a sign of life, register, and end what dead workers left behind."""
        self._register()
        self.recovery.sweep(self.id)
        self.recovery.repair()
        for place in {handler.executor for handler in self._parts.handlers.values()}:
            self._crew.at(place)

    def _register(self) -> None:
        self._crew.lease = self._parts.liveness.take(self.id)
        self._store.register(
            self.id, host=socket.gethostname(), kind="worker", job_types=sorted(self._parts.handlers), now=self._clock.now()
        )

    def poke(self) -> None:
        """Wake the worker: something may be ready."""
        self.inbox.poke()

    @property
    def holding(self) -> int:
        """Return how many jobs are claimed and not yet written as ended."""
        return len(self._hold)

    def begin_stop(self) -> None:
        """Claim nothing more and give back what has not started."""
        if self._stopping:
            return
        self._stopping = True
        self._release()
        self._tell_stopping()

    def _tell_stopping(self) -> None:
        """Record the shutdown, or try again in the next turn: what is lost from now on was interrupted, not crashed."""
        self._untold = True
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
        self.turn()
        self._crew.close()
        clean = not self.holding
        if clean:
            self._store.end_worker(self.id, now=self._clock.now())
        if self._crew.lease is not None:
            self._crew.lease.release(clean=clean)
            self._crew.lease = None
        self.inbox.close()

    # ---- the wheel --------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Turn the wheel once; return in how many seconds to turn it again unless something arrives before."""
        monotonic = self._clock.monotonic()
        self._collect()
        deadline = self._crew.tick(monotonic)
        if self._hold.ahead and monotonic - self._moved > STALL_S:
            self._give_back()
        try:
            self._housekeep(monotonic)
            if self._untold:
                self._tell_stopping()
            if self._parts.fires and not self._stopping and self.trigger.tick():
                self._more = True
            if self._is_due():
                self._turn_once()
            self._trouble_s = 0.0
        except (StoreBusy, StoreUnavailable) as error:
            return self._in_trouble(error)
        return self._delay(deadline)

    def _collect(self) -> None:
        for ended in self.inbox.take():
            self._moved = self._clock.monotonic()
            self._stalled = False
            self._hold.end(ended)
        self._unkept += self.inbox.take_reports()

    def _give_back(self) -> None:
        """Give back what was claimed ahead of a handler that turned out to be slow: another worker may be free."""
        self._stalled = True
        self._moved = self._clock.monotonic()
        self._release()

    def _release(self) -> None:
        for job in self._crew.release():
            self._hold.end(Ended(job, Released(), self._clock.now(), 0.0))

    def _is_due(self) -> bool:
        if self._hold.ended or self._unkept or self._more:
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
        peek = self._store.peek(types=self._know.types(self._hold.by_type()), worker_id=self.id)
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
        now = self._clock.now()
        self.inbox.poked = False
        turn = self._prepare(now)
        try:
            turned = self._store.turn(turn)
        except BaseException:
            # The reply may have been lost after the write: ask what we hold before claiming more.
            self._doubt = self._more = True
            raise
        self.inbox.hush()
        dead = [self._hold.ended[ending.number].job.job_id for ending in turn.endings if ending.transition.status is Status.DEAD_LETTER]
        self._settle(turned)
        if turned.given_up:
            self._begin_anew()
            return
        if turn.want:
            self._sweep = turned.unfinished
        self._more = turned.unfinished or turned.definitions != self._know.version
        if turned.definitions != self._know.version:
            self._learn()
        self._submit(turned.claimed)
        if len(turned.claimed) >= turn.want > 0 and self._free() > 0:
            self._more = True
        self.trigger.tell_dead(dead)
        if self._hold.jobs and self._clock.monotonic() - self._peeked >= PEEK_S:
            self._peek()

    def _prepare(self, now: Instant) -> Turn:
        turn = Turn(now=now, worker_id=self.id, limit=self._settings.batch, definitions=self._know.version)
        for each in self._hold.ended.values():
            if type(each.outcome) is Completed and each.outcome.result is None and each.log_path is None:
                turn.done.append((each.job.number, each.at))
            else:
                turn.endings.append(self._ending(each, now))
        turn.reports = self._unkept
        if not self._stopping:
            self._prepare_claim(turn)
        return turn

    def _prepare_claim(self, turn: Turn) -> None:
        slots, here = self._slots(), self._hold.by_type()
        turn.want = self._hold.want(slots)
        turn.types = self._know.types(here)
        self._dispatcher = Dispatcher(self._know.world_with(here), slots, most=turn.want)
        turn.choose = self._dispatcher.choose
        turn.counting = self._know.counting(sweep=self._sweep)
        turn.run_ids = self._parts.ids.take(turn.want + 1, turn.now)

    def _ending(self, each: Ended, now: Instant) -> Ending:
        transition = decide(each.job, each.outcome, now, self._parts.rng, self._limits)
        successor_id = self._parts.ids.take(1, now)[0] if transition.successor else ""
        return Ending(each.job.number, each.at, transition, decide_cancelled(each.outcome), successor_id, each.log_path)

    def _note_suspects(self) -> None:
        """Note since when a suspect waits for this worker to be idle."""
        if self._dispatcher is None or not self._dispatcher.asked:
            return
        if not self._dispatcher.suspect_waits:
            self._suspect_since = None
        elif self._suspect_since is None:
            self._suspect_since = self._clock.monotonic()

    def _settle(self, turned: Turned) -> None:
        self._note_suspects()
        self._cancelling.difference_update(self._hold.ended)
        self._hold.written()
        self._unkept = []
        self._next_due, self._room_at = turned.next_due, turned.room_at
        for number in turned.late:
            log.warning("the result of job %d came late and was refused: its run had been ended by others", number)
        for number, why in turned.refused:
            log.error("job %d: %s", number, why)

    def _submit(self, claimed: list[Claimed]) -> None:
        if claimed:
            self._moved = self._clock.monotonic()
        by_place: dict[str, list[Claimed]] = {}
        living, guarded = self._know.living, self._know.guarded
        for job in claimed:
            handler = self._parts.handlers.get(job.job_type)
            if handler is not None:
                job.executor = handler.executor  # the code decides, whatever was known of it when the job was made
            self._hold.add(job)
            barred = None if job.organization_id in living and job.job_type not in guarded else self._know.bars(job)
            if barred is None:
                by_place.setdefault(job.executor, []).append(job)
            else:
                # It is RUNNING, and its handler is never entered.
                self._hold.end(Ended(job, barred, self._clock.now(), 0.0))
                self._more = True
        for place, jobs in by_place.items():
            self._crew.at(place).submit(jobs)

    # ---- room -------------------------------------------------------------------------------------------------

    def _free(self) -> int:
        return self._hold.free(self._crew.occupied())

    def _slots(self) -> Slots:
        late = self._suspect_since is not None and self._clock.monotonic() - self._suspect_since > self._settings.suspect_patience
        return self._hold.slots(self._crew.occupied(), ahead=not (late or self._stalled), patient=not late)

    # ---- beside the wheel -------------------------------------------------------------------------------------

    def _housekeep(self, monotonic: float) -> None:
        if monotonic - self._beaten >= self._settings.beat:
            self._beaten = monotonic
            self._store.beat(self.id, job_types=sorted(self._parts.handlers))
        if monotonic - self._swept >= self._settings.recovery_interval:
            self._swept = monotonic
            if self.recovery.sweep(self.id):
                self._more = True
            self._look_at_parked()
        self.retention.tick(monotonic)

    def _look_at_parked(self) -> None:
        """See to it that nothing stays parked although there is room: a net under what offers parked rows again."""
        if self._peek():
            self._more = True
        if self._parked:
            self._sweep = self._more = True

    def _learn(self) -> None:
        """Read the definitions anew. What was parked by the old ones may have room now."""
        types = len(self._parts.handlers)
        self._know.learn(self._clock.now())
        self._sweep = True
        if len(self._parts.handlers) != types:
            self._beaten -= self._settings.beat  # shows what it can run now, and does not wait for its next beat

    def _begin_anew(self) -> None:
        """Go on as another worker: this one was given up while it could not beat, and what it held was ended by others."""
        log.warning("worker %s was given up by others while it could not be seen; it goes on under another id", self.id)
        self._crew.interrupt()
        # Built anew when needed: handler processes inherit the lock of the worker that they belong to.
        self._crew.close()
        self._hold.lose()
        if self._crew.lease is not None:
            self._crew.lease.release(clean=True)
        self.id = self._parts.ids.take(1, self._clock.now())[0]
        self._register()
        self._more = True

    def _adopt(self) -> None:
        """Take up jobs that a turn claimed although its reply was lost."""
        known = self._hold.jobs.keys() | self._hold.ended.keys()
        lost = [job for job in self._store.holding(self.id) if job.number not in known]
        self._doubt = False
        if lost:
            self._submit(lost)

    def _cancel(self, number: int) -> None:
        job = self._hold.jobs.get(number)
        if job is not None:
            self._crew.at(job.executor).cancel(number)

    def _in_trouble(self, error: Exception) -> float:
        shortest, longest = TROUBLE_S
        if not self._trouble_s:
            log.warning("the store can't be used now; outcomes are kept and nothing is claimed until it can: %s", error)
        self._trouble_s = min(longest, max(shortest, self._trouble_s * 2))
        return self._trouble_s

    def _delay(self, deadline: float | None) -> float:
        if self._more:
            return 0.0
        ahead = self._hold.ahead
        self.inbox.listens = not ahead
        self.inbox.threshold = max(1, len(self._hold.jobs) // 2) if ahead else 1
        delay = self._settings.linger if ahead else self._poll_s()
        if deadline is not None:
            delay = min(delay, max(0.0, deadline - self._clock.monotonic()))
        if self._next_due is not None:
            delay = min(delay, max(0.0, (self._next_due - self._clock.now()) / 1e6))
        if self._parts.fires and self.trigger.next_at is not None:
            delay = min(delay, max(0.0, (self.trigger.next_at - self._clock.now()) / 1e6))
        return delay

    def _poll_s(self) -> float:
        """Return how long to sleep without a hint. Just after one, look again soon: the log is written before the commit is."""
        if not self.inbox.hinted:
            return self._settings.poll
        since_hint = self._clock.monotonic() - self._hint_at
        if since_hint < HINT_S:
            return min(self._settings.poll, max(0.001, since_hint / 2))
        return self._settings.poll_hinted

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        if self.inbox.wait(seconds):
            self._hint_at = self._clock.monotonic()
