"""Has runners do the work of jobs that are SQL, procedures or commands, each on a thread of its own.

A handler on a thread can only be given up when its time is over. A runner can be stopped: it is told why (`RunControl`), told again with
force when a grace period is over, and given up only if it does not return even then. So an attempt that is reported as timed out or
cancelled has nothing left running, and nothing of it is committed later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import Condition, RLock, Thread, Timer
from traceback import format_exc

import msgspec

from rota.errors import RotaError, SecretUnavailable, StoreBusy, StoreUnavailable
from rota.executors.attempt import Attempt
from rota.executors.capture import LEVEL, pieces_of
from rota.executors.stops import is_late, take_all, take_one
from rota.model.decide import Completed, Failed, Outcome, Released, Stopped
from rota.model.redaction import Redactor
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.model.values import Claimed
from rota.ports.clock import Clock
from rota.ports.executor import Ended, Equipment, Question, Readiness, Request, StopReason, forced
from rota.ports.runner import Order, Runner, Stream

log = logging.getLogger("rota.worker")

GIVE_UP_S = 5.0
"""How long after force a runner may take to return; after that its outcome is reported without it, and its slot stays taken."""
CLOSE_S = 2.0
"""How long `close` waits for runners that were stopped."""
_orders = msgspec.json.Decoder(Order)

MakeRunner = Callable[[], Runner]


class RunControl:
    """Implements `rota.ports.runner.Control`: one attempt as its runner sees it."""

    def __init__(self, job: Claimed, attempt: Attempt, clock: Clock) -> None:
        """Begin to count the job's time."""
        self.job = job
        self.attempt = attempt
        self.started = clock.monotonic()
        self._clock = clock
        self._lock = RLock()
        self._calling = RLock()
        """Held by whoever calls, and by the end of a block, which has to wait for a call that is under way."""
        self._calls: tuple[Callable[[], None], Callable[[], None]] | None = None
        self._reason: StopReason | None = None
        self._done = 0
        """How many of the two were called for: stop, and force."""
        self.asked_at = 0.0
        self._partial = dict.fromkeys(Stream, b"")
        self._redactors: dict[Stream, Redactor] = {}
        self.redactor = Redactor(())

    def reason(self) -> StopReason | None:
        """Return why the attempt is to stop."""
        return self._reason

    def remaining_s(self) -> float | None:
        """Return how long the attempt may still run."""
        if self.job.timeout <= 0:
            return None
        return max(0.0, self.started + self.job.timeout - self._clock.monotonic())

    @contextmanager
    def watch(self, stop: Callable[[], None], force: Callable[[], None]) -> Iterator[None]:
        """Have these called while the block lasts, if the attempt is to stop."""
        with self._lock:
            self._calls = (stop, force)
            late = range(self._done)
        for which in late:
            self._call(which)
        try:
            yield
        finally:
            with self._calling:
                self._calls = None

    def output(self, stream: Stream, data: bytes) -> None:
        """Put complete lines into the log of the run; the rest waits for its end."""
        with self._lock:
            redactor = self._redactors.get(stream)
            self._take(stream, data if redactor is None else redactor.feed(data))

    def redact(self, redactor: Redactor) -> None:
        """Keep secrets out of the log from now on; each stream has its own memory of what came before."""
        self.redactor = redactor
        if redactor:
            self._redactors = {stream: redactor.another() for stream in Stream}

    def report(self, message: str, *args: object) -> None:
        """Log an exception that is being handled, without the values of secrets that its text may have."""
        log.error("%s\n%s", message % args, self.redactor.text(format_exc()))

    def end_output(self) -> None:
        """Put what has no end of line into the log, too."""
        with self._lock:
            for stream, redactor in self._redactors.items():
                self._take(stream, redactor.flush())
            for stream, rest in self._partial.items():
                if rest:
                    self._write(rest)
                self._partial[stream] = b""

    def _take(self, stream: Stream, shown: bytes) -> None:
        """Write the lines that are complete."""
        *lines, rest = (self._partial[stream] + shown).split(b"\n")
        *pieces, self._partial[stream] = pieces_of(rest)
        for piece in chain(chain.from_iterable(map(pieces_of, lines)), pieces):
            self._write(piece)

    def _write(self, line: bytes) -> None:
        self.attempt.log.write(LEVEL, line.decode(errors="backslashreplace"))

    def stop(self, reason: StopReason) -> bool:
        """Tell the runner to stop, if it was not told before; return whether it was not."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason, self._done = reason, 1
            self.asked_at = self._clock.monotonic()
        self.attempt.stop()
        self._call(0)
        return True

    def force(self) -> None:
        """Tell the runner a second time, without mercy."""
        with self._lock:
            if self._done != 1:
                return
            self._done = 2
            self.asked_at = self._clock.monotonic()
        self._call(1)

    @property
    def is_forced(self) -> bool:
        """Say whether the runner was told a second time."""
        return self._done == 2

    def _call(self, which: int) -> None:
        """Call the runner back on a thread of its own: it may have to ask a server that does not answer."""
        Thread(target=self._call_back, args=(which,), name="rota-stop", daemon=True).start()

    def _call_back(self, which: int) -> None:
        with self._calling:
            calls = self._calls
            if calls is None:
                return
            try:
                calls[which]()
            except Exception:  # noqa: BLE001 - whatever it is, the job is given up in the end
                self.report("could not stop job %s; it is given up if it does not end", self.job.number)


def perform(control: RunControl, runners: Mapping[str, MakeRunner], settings: Settings) -> Outcome:
    """Do the work of one attempt, inside a span where runs are traced. Whatever happens is an outcome."""
    if settings.traces == "off":
        return _perform(control, runners, settings)
    from rota.executors.traces import running  # noqa: PLC0415 - OpenTelemetry, which few programs use

    with running(control.job) as ended:
        outcome = _perform(control, runners, settings)
        ended(outcome)
    return outcome


def _perform(control: RunControl, runners: Mapping[str, MakeRunner], settings: Settings) -> Outcome:
    job, attempt = control.job, control.attempt
    try:
        order = _orders.decode(attempt.ask(Request(Question.ORDER, "null")))
    except Cancelled:
        reason = control.reason()
        return Stopped() if reason is None else forced(reason, job.timeout)
    except (StoreBusy, StoreUnavailable, SecretUnavailable) as error:
        # Another worker may have the master key, and this one may get it.
        return Failed(str(error), error_code=error.code)
    except RotaError as error:
        return Failed(str(error)[: settings.error_max], permanent=True, error_code=error.code)
    except Exception as error:  # noqa: BLE001 - whatever happens is an outcome
        control.report("what job %s is to do could not be found out", job.number)
        return Failed(f"what this job does could not be found out: {type(error).__name__}; the log of the worker says more")
    make = runners.get(order.kind)
    if make is None:
        return Failed(f"this worker does not run {order.kind.upper()} jobs", error_code="no_runner")
    redactor = Redactor([*order.secrets.values(), *([] if order.database is None else [order.database.password or ""])])
    control.redact(redactor)
    try:
        return redacted(make().run(order, control), redactor)
    except Exception as error:  # noqa: BLE001 - whatever happens is an outcome
        # A runner's own mistake: its text could have anything in it, so only its class is kept with the run.
        control.report("the runner of %s jobs failed at job %s", order.kind.upper(), job.number)
        return Failed(f"the runner of {order.kind.upper()} jobs failed: {type(error).__name__}; the log of the worker says more")
    finally:
        control.end_output()


def redacted(outcome: Outcome, redactor: Redactor) -> Outcome:
    """Return an outcome without the values of secrets."""
    if not redactor:
        return outcome
    changes = {name: redactor.text(text) for name in ("error", "message", "traceback") if (text := getattr(outcome, name, None))}
    if isinstance(outcome, Completed) and outcome.result is not None:
        changes["result"] = redactor.json(outcome.result)
    return msgspec.structs.replace(outcome, **changes) if changes else outcome


def perform_inline(job: Claimed, attempt: Attempt, equipment: Equipment) -> Outcome:
    """Do the work of one attempt in the caller's thread; a timer keeps its time."""
    control, settings = RunControl(job, attempt, equipment.clock), equipment.settings
    timers: list[Timer] = []

    def late() -> None:
        control.stop(StopReason.TIMEOUT)
        timers.append(Timer(settings.timeout_grace, control.force))
        timers[-1].daemon = True
        timers[-1].start()

    if job.timeout > 0:
        timers.append(Timer(job.timeout, late))
        timers[0].daemon = True
        timers[0].start()
    try:
        return perform(control, equipment.runners, settings)
    finally:
        for timer in timers:
            timer.cancel()


class RunnerExecutor:
    """At most `slots` runners at once, each on a thread of its own."""

    def __init__(self, equipment: Equipment) -> None:
        """Start nothing yet."""
        self._equipment = equipment
        self._clock = equipment.clock
        self._waiting: deque[Claimed] = deque()
        self._running: dict[int, RunControl] = {}
        self._given_up: set[int] = set()
        self._change = Condition(RLock())
        """Guards all of this; notified when there is something to take up, or when it is over."""
        self._threads = self._idle = 0
        self._until: float | None = None
        self._cut_at: float | None = None
        self._cut = self._closed = False
        self._made: dict[str, Runner] = {}
        self._runners: dict[str, MakeRunner] = {kind: self._keeper_of(kind, make) for kind, make in equipment.runners.items()}

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Queue these, and have threads take them."""
        with self._change:
            self._waiting.extend(jobs)
            for _ in range(min(len(self._waiting) - self._idle, self._equipment.slots - self._threads)):
                self._threads += 1
                Thread(target=self._live, name=f"rota-runner-{self._threads}", daemon=True).start()
            self._change.notify_all()

    def readiness(self, job_type: str) -> Readiness:  # noqa: ARG002 - every kind alike
        """Say whether a slot is free."""
        return Readiness.NOW if self.occupied() + len(self._waiting) < self._equipment.slots else Readiness.LATER

    def occupied(self) -> int:
        """Return how many runners are at work, those given up included."""
        return len(self._running) + len(self._given_up)

    def given_up(self) -> int:
        """Return how many runners were given up and have not returned."""
        return len(self._given_up)

    def cancel(self, number: int) -> None:
        """Drop a waiting job, or stop a running one."""
        with self._change:
            job, control = take_one(self._waiting, number), self._running.get(number)
        if job is not None:
            self._equipment.sink.ended(Ended(job, Stopped(), self._clock.now(), 0.0))
        elif control is not None:
            control.stop(StopReason.CANCEL)

    def tick(self, monotonic: float) -> float | None:
        """Stop what is over its time, force what does not stop, and give up what does not return."""
        with self._change:
            controls = list(self._running.values())
        return min((due for control in controls if (due := self._look(control, monotonic)) is not None), default=None)

    def release(self) -> list[Claimed]:
        """Give back what no thread has taken."""
        with self._change:
            return take_all(self._waiting)

    def interrupt(self) -> None:
        """Stop every runner; `tick` forces those that are not over within `kill_grace`."""
        for control in self._controls():
            control.stop(StopReason.SHUTDOWN)

    def renew(self, until: float | None) -> None:
        """Pass the lease on to what outlives its worker."""
        self._until = until
        for runner in tuple(self._made.values()):
            runner.renew(until)

    def cut(self, grace_s: float) -> None:
        """Stop every runner and start none any more; a timer forces those that are not over within the grace."""
        with self._change:
            if self._cut:
                return
            self._cut = True
        controls = self._controls()
        for control in controls:
            control.stop(StopReason.LEASE)

        def force() -> None:
            for control in controls:
                control.force()

        timer = Timer(grace_s, force)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """Stop what still runs, and let threads end; nothing is reported after this."""
        with self._change:
            self._closed = True
            self._waiting.clear()
            controls, self._running = list(self._running.values()), {}
            # Those that do not stop in time count as occupied until they return.
            self._given_up |= {control.job.number for control in controls}
            self._change.notify_all()
        for control in controls:
            control.stop(StopReason.SHUTDOWN)
            control.force()
        with self._change:
            self._change.wait_for(lambda: not self._threads, CLOSE_S if controls else 0)
        for runner in tuple(self._made.values()):
            runner.close()

    def _controls(self) -> list[RunControl]:
        with self._change:
            return list(self._running.values())

    def _look(self, control: RunControl, monotonic: float) -> float | None:
        """Do what is due for one attempt; return when the next thing is."""
        settings, reason = self._equipment.settings, control.reason()
        if reason is None:
            flush = control.attempt.flush(monotonic)
            if control.job.timeout <= 0:
                return flush
            late_at = control.started + control.job.timeout
            if monotonic < late_at:
                return late_at if flush is None else min(flush, late_at)
            control.stop(StopReason.TIMEOUT)
            return monotonic + settings.timeout_grace
        if not control.is_forced:
            grace_s = settings.timeout_grace if reason is StopReason.TIMEOUT else settings.kill_grace
            if monotonic < control.asked_at + grace_s:
                return control.asked_at + grace_s
            control.force()
            return monotonic + GIVE_UP_S
        if monotonic < control.asked_at + GIVE_UP_S:
            return control.asked_at + GIVE_UP_S
        self._give_up(control, reason, monotonic)
        return None

    def _give_up(self, control: RunControl, reason: StopReason, monotonic: float) -> None:
        job = control.job
        with self._change:
            if self._running.pop(job.number, None) is None:
                return
            self._given_up.add(job.number)
        log.error("job %s did not stop and was given up; its slot stays taken until it ends", job.number)
        path = control.attempt.abandon()
        self._equipment.sink.ended(Ended(job, forced(reason, job.timeout), self._clock.now(), monotonic - control.started, path))

    # ---- the threads --------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while (control := self._take()) is not None:
                self._run(control)
        finally:
            with self._change:
                self._threads -= 1
                self._change.notify_all()

    def _take(self) -> RunControl | None:
        """Wait for a job and enter it; None: it is over."""
        with self._change:
            while True:
                self._idle += 1
                self._change.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if self._closed:
                    return None
                job = self._waiting.popleft()
                if self._cut or is_late(job, self._clock):
                    self._equipment.sink.ended(Ended(job, Released(), self._clock.now(), 0.0))
                    continue
                control = self._running[job.number] = RunControl(job, Attempt(job, self._equipment), self._clock)
                return control

    def _run(self, control: RunControl) -> None:
        job, sink = control.job, self._equipment.sink
        outcome = perform(control, self._runners, self._equipment.settings)
        seconds = self._clock.monotonic() - control.started
        path = control.attempt.end()
        with self._change:
            heard = self._running.pop(job.number, None) is not None
            self._given_up.discard(job.number)
        if heard:
            sink.ended(Ended(job, outcome, self._clock.now(), seconds, path))

    def _keeper_of(self, kind: str, make: MakeRunner) -> MakeRunner:
        """Return what makes a runner once, and has it know until when the worker's lease lasts."""

        def runner() -> Runner:
            with self._change:
                made = self._made.get(kind)
                if made is None:
                    made = self._made[kind] = make()
                    made.renew(self._until)
                return made

        return runner
