"""The bridge to Monque: a worker that runs documents of its collection with Rota's handlers, beside workers of the library itself.

The document is the truth: it is ended first, and then the execution is recorded in the store, as a chain that has ended.
`docs/guide/monque.md` says what holds and what does not.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections import Counter, deque
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any

import msgspec
from bson.binary import UuidRepresentation
from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo.errors import PyMongoError

from rota.compat.monque_claims import Claims, End, Rules, fail_count_of
from rota.compat.monque_collection import Fields, check_server, create_indexes, open_collection, translated
from rota.compat.monque_record import record
from rota.engine.background import Ticker
from rota.engine.executor_pool import ExecutorPool
from rota.engine.heartbeat import Guard, Renewal
from rota.engine.inbox import DirectSink, Inbox, Requests
from rota.engine.parts import Parts
from rota.engine.submit import TAG_MAX
from rota.errors import InvalidImport, InvalidInput, InvalidOption, RotaError, StoreBusy, StoreUnavailable
from rota.executors import build
from rota.executors.locate import runs_apart
from rota.faces.monque import Document, job_id_of, read_document
from rota.handler_calls import HandlerCalls
from rota.model.call import NewJob
from rota.model.checks import whole
from rota.model.decide import Completed, Crashed, Failed, Outcome, Released, Skipped, Snoozed, TimedOut
from rota.model.gate import Right
from rota.model.kinds import RUNNER
from rota.model.values import Claimed, Instant, NewRow, moment_of
from rota.operation import View, ask_for
from rota.ports.executor import Ended, Receipt, Report
from rota.ports.store import Adopted
from rota.ports.turns import Turned

log = logging.getLogger("rota.bridge")

TROUBLE_S = (0.1, 5.0)
"""Shortest and longest pause after MongoDB failed."""
UNRECORDED_MAX = 1000
"""Nothing more is claimed while more executions than this are not recorded, because the store is away."""
TICK_S = 0.25
"""How often timeouts are looked at while something runs."""
JSON = RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)


class Running(msgspec.Struct):
    """A document that this bridge holds, and the job that it is here."""

    document: Fields
    row: NewRow
    job: Claimed


class Bridge:
    """Takes documents of one collection of Monque's. `start` returns at once; `stop` lets running handlers finish."""

    def __init__(self, rota: View, url: str, *, concurrency: int | None = None, indexes: bool = True) -> None:
        """Open the collection and prepare; nothing is claimed before `start`. Needs the right to run a worker."""
        ask = ask_for(rota, Right.OPERATE)
        self._session, opened = ask.session, ask.opened
        self._who = ask.who
        settings = self._settings = self._session.settings
        self._store = opened.store
        self._clock = self._session.clock
        self.slots = self._session.current().concurrency if concurrency is None else whole("concurrency", concurrency, least=1)
        handlers = {name: each for name, each in self._session.registry.handlers.items() if each.executor != RUNNER}
        if not handlers:
            raise InvalidOption("the bridge has no handlers, so it cannot run any job: use --app MODULE:ATTR")
        for handler in handlers.values():
            handler.codec.build()
        self.names = tuple(handlers)
        self.documents = open_collection(url, patience_s=settings.busy_timeout)
        self._indexes = indexes
        self.inbox = Inbox(None, Requests(HandlerCalls(self._session, opened.store)))
        app = self._session.app
        parts = Parts(
            store=opened.store,
            liveness=opened.liveness,
            clock=self._clock,
            ids=self._session.ids,
            rng=self._session.rng,
            settings=settings,
            handlers=handlers,
            registry=self._session.registry,
            build_executor=build,
            runs_apart=partial(runs_apart, app=app),
            # Where logs are kept in the store, they would have to be brought there by a worker.
            log_dir=None if opened.ships_logs else opened.log_dir,
            app=app,
            middleware=app.middleware,
            on=app.on,
        )
        self._handlers = handlers
        self._pool = ExecutorPool(parts, self.inbox, DirectSink(self.inbox, self._keep_at_once), slots=self.slots)
        rules = Rules(
            max_retries=settings.monque_max_retries,
            base_s=settings.monque_retry_base,
            max_s=settings.monque_retry_max,
            heartbeat_s=settings.monque_heartbeat,
            lock_timeout_s=settings.monque_lock_timeout,
            timezone=settings.monque_timezone,
        )
        self.id = f"rota-{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._claims = Claims(self.documents, rules, owner=self.id, now=self._now, rng=self._session.rng)
        self._adopter_id = self._session.ids.take(1, self._clock.now())[0]
        self._numbers = count(1)
        self._running: dict[int, Running] = {}
        self._ends: list[tuple[Running, Ended, End]] = []
        """Over, and not written to their documents yet."""
        self._unrecorded: list[Adopted] = []
        self._lost: deque[int] = deque()
        """Jobs whose documents somebody else has taken, as heartbeats saw it."""
        self._warned: set[Any] = set()
        self._trouble_s = 0.0
        # Claims are a lease that lasts for the lock timeout: handlers that outlive it may be running elsewhere too.
        lease = msgspec.structs.replace(settings, lease_ttl=max(1.0, rules.lock_timeout_s), lease_guard=0.0)
        self._renewal = Renewal(self._clock, lease)
        self._guard = Guard(self._renewal, self._pool, self._clock)
        self._stopping, self._hurry = threading.Event(), threading.Event()
        self._closing = threading.Lock()
        # Often enough that two may fail before the guard stops the handlers.
        self._beats = Ticker(self._beat, every_s=min(rules.heartbeat_s, rules.lock_timeout_s / 4), name="monque-beats")
        self._thread = threading.Thread(target=self._run, name="rota-bridge", daemon=True)

    # ---- life -------------------------------------------------------------------------------------------------

    def start(self) -> Bridge:
        """Create missing indexes, recover documents whose process is gone, and begin to claim."""
        try:
            check_server(self.documents)
            with translated(self.documents):
                if self._indexes:
                    create_indexes(self.documents)
                self._sweep()
        except BaseException:
            self._close()
            raise
        self._renewal.watched = True
        self._renewal.begin(self._clock.monotonic())
        self._guard.start()
        self._beats.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Claim nothing more, let running handlers finish within `shutdown_grace`, write everything, and return."""
        self._stopping.set()
        self._wake()
        self._thread.join()

    def hurry(self) -> None:
        """Interrupt the handlers that still run."""
        self._hurry.set()
        self._wake()

    def _wake(self) -> None:
        """Wake the bridge's thread, from another one: an idle one may be closing its inbox at this very moment."""
        with self._closing:
            self.inbox.poke()

    @property
    def place(self) -> tuple[str, str]:
        """The database and the collection that it serves."""
        return self.documents.database.name, self.documents.name

    @property
    def running(self) -> bool:
        """Say whether the bridge is at work."""
        return self._thread.is_alive()

    @property
    def holding(self) -> int:
        """Return how many documents are claimed, or over and not written."""
        return len(self._running) + len(self._ends)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.inbox.wait(self._guarded_turn())
        self._give_back()
        self._drain(self._settings.shutdown_grace, until_hurry=True)
        if self.holding:
            self._pool.interrupt()
            self._drain(self._settings.kill_grace + 1.0, until_hurry=False)
        self._guard.stop()
        self._beats.stop()
        if self.holding:
            log.warning("%d documents are still claimed; they are recovered after the lock timeout", self.holding)
        if self._unrecorded:
            log.warning("%d executions were not recorded, because the store is not available", len(self._unrecorded))
        self._close()

    def _close(self) -> None:
        self._pool.close()
        with self._closing:
            self.inbox.close()
        self.documents.database.client.close()

    def _give_back(self) -> None:
        """Give back what has not started."""
        for job in self._pool.release():
            self._take_end(Ended(job, Released(), self._clock.now(), 0.0))

    def _drain(self, seconds: float, *, until_hurry: bool) -> None:
        end = self._clock.monotonic() + seconds
        while self.holding or self._unrecorded:
            left_s = end - self._clock.monotonic()
            if left_s <= 0 or (until_hurry and self._hurry.is_set()):
                return
            self.inbox.wait(min(left_s, max(0.01, self._guarded_turn())))

    # ---- the cycle --------------------------------------------------------------------------------------------

    def _guarded_turn(self) -> float:
        """Make one turn; return in how many seconds to make the next one unless something arrives before."""
        try:
            delay_s = self._turn()
        except (PyMongoError, StoreBusy, StoreUnavailable) as error:
            if not self._trouble_s:
                log.warning("MongoDB or the store is unavailable; outcomes are kept until it is back: %s", error)
            self._trouble_s = min(TROUBLE_S[1], max(TROUBLE_S[0], self._trouble_s * 2))
            return self._trouble_s
        except Exception:
            log.exception("turn failed; retrying")
            return TROUBLE_S[1]
        if self._trouble_s:
            self._trouble_s = 0.0
            log.warning("MongoDB and the store are available again; the bridge continues")
        return delay_s

    def _turn(self) -> float:
        for ended in self.inbox.take():
            self._take_end(ended)
        self._stop_lost()
        deadline = self._pool.tick(self._clock.monotonic())
        self._keep_checkpoints()
        self._write_ends()
        if self._guard.tripped:
            self._sit_out()
        claimed = 0 if self._stopping.is_set() or self._guard.tripped else self._claim()
        # Last: while the store is away, documents are run all the same.
        self._record()
        if claimed and len(self._running) < self.slots:
            return 0.0
        delay_s = self._settings.monque_poll
        if self._running:
            delay_s = min(delay_s, TICK_S)
        if deadline is not None:
            delay_s = min(delay_s, max(0.0, deadline - self._clock.monotonic()))
        return delay_s

    def _claim(self) -> int:
        free = self.slots - len(self._running) - self._pool.given_up()
        if free <= 0 or len(self._unrecorded) > UNRECORDED_MAX:
            return 0
        busy = Counter(each.job.job_type for each in self._running.values())
        rooms = {name: self._settings.monque_concurrency - busy[name] for name in self.names}
        held = [each.document["_id"] for each in (*self._running.values(), *(running for running, _, _ in self._ends))]
        claimed = self._claims.claim(rooms, free, held)
        self._warn_unreadable()
        for document in claimed:
            self._begin(document)
        return len(claimed)

    def _begin(self, document: Fields) -> None:
        try:
            read = read_document(msgspec.json.decode(dumps(document, json_options=JSON)))
            row = self._row_of(read, document["_id"])
        except (StoreBusy, StoreUnavailable):
            # It stays claimed, and is taken up by the next claim.
            raise
        except (InvalidImport, InvalidInput) as error:
            self._refuse(document, error, permanent=True)
            return
        except RotaError as error:
            self._refuse(document, error, permanent=False)
            return
        except Exception as error:
            # Whatever is in one document, the others must not wait behind it.
            log.exception("document %s can't be read", document["_id"])
            self._refuse(document, error, permanent=True)
            return
        job = self._job_of(document, row, read)
        self._running[job.number] = Running(document, row, job)
        if not self._pool.submit(job.executor, [job]):
            self._take_end(Ended(job, Released(), self._clock.now(), 0.0))

    def _refuse(self, document: Fields, error: Exception, *, permanent: bool) -> None:
        """Fail a document that can't become a job. There is nothing to record: no handler was entered."""
        log.warning("document %s of %s can't be run: %s", document["_id"], document["name"], error)
        self._claims.end([(document, self._claims.failed(document, str(error), permanent=permanent))])

    def _row_of(self, read: Document, document_id: Any) -> NewRow:
        """Return a document as a row of the store: checked against the handler's parameters, under an id of its own."""
        new = NewJob(name=read.name, params=read.params, priority=read.rank, tags=[_tag(document_id)])
        row = self._session.submitter.one(new, self._store, self._who)
        row.meta = read.meta
        # Monque has accepted it already: it is not refused here as a duplicate or by a submit limit.
        row.job_hash = row.dedup_window = row.submit_limit = row.submit_window = None
        return row

    def _job_of(self, document: Fields, row: NewRow, read: Document) -> Claimed:
        # The same for every attempt at one document, as handlers pass it to the outside; one that recurs is another each time.
        running_id = row.job_id if read.repeat_interval else job_id_of(read, row.organization_id)
        now, policy, failures = self._clock.now(), row.policy, fail_count_of(document)
        return Claimed(
            number=next(self._numbers),
            job_id=row.job_id,
            root_id=running_id,
            root_number=0,
            run_id=self._session.ids.take(1, now)[0],
            job_type=row.job_type,
            origin=row.origin,
            organization_id=row.organization_id,
            params=row.params,
            priority=policy.priority,
            position=0,
            attempt=failures + 1,
            failures=failures,
            crashes=0,
            snoozes=0,
            max_retries=max(0, self._claims.rules.max_retries - 1),
            max_crashes=policy.max_crashes,
            backoff=policy.backoff,
            timeout=policy.timeout,
            executor=self._handlers[row.job_type].executor,
            started_at=now,
            checkpoint=document.get("rotaCheckpoint"),
            owner=row.owner,
            meta=row.meta,
        )

    # ---- ends -------------------------------------------------------------------------------------------------

    def _take_end(self, ended: Ended) -> None:
        running = self._running.pop(ended.job.number, None)
        if running is not None:
            self._ends.append((running, ended, self._end_of(running.document, ended.outcome)))

    def _end_of(self, document: Fields, outcome: Outcome) -> End:
        claims = self._claims
        match outcome:
            case Completed() | Skipped():
                return claims.succeeded(document)
            case Failed():
                return claims.failed(document, outcome.error, permanent=outcome.permanent, after_s=outcome.after_s)
            case TimedOut(after_s=after_s):
                return claims.failed(document, f"timed out after {after_s:g} s")
            case Crashed(error=error):
                return claims.failed(document, error)
            case Snoozed(delay_s=delay_s):
                return claims.given_back(max(self._settings.snooze_floor, delay_s))
            case _:
                return claims.given_back()

    def _write_ends(self) -> None:
        if not self._ends:
            return
        ends = self._ends[: self._settings.batch]
        refused = self._claims.end([(running.document, end) for running, _, end in ends])
        stuck = self._claims.unwritable
        # What can't be written now comes last, so that it is not in the way of the others.
        self._ends = [*self._ends[len(ends) :], *(each for each in ends if each[0].document["_id"] in stuck)]
        for running, ended, end in ends:
            if running.document["_id"] in stuck:
                continue
            is_refused = running.document["_id"] in refused
            self._log_end(running, ended, end, refused=is_refused)
            if not isinstance(ended.outcome, Released):
                self._unrecorded.append(record(running.row, ended, end, refused=is_refused, ids=self._session.ids))

    def _record(self) -> None:
        if not self._unrecorded:
            return
        batch = self._unrecorded[: self._settings.batch]
        try:
            self._store.adopt(batch, adopter_id=self._adopter_id, actor=self._who, now=self._clock.now())
        except (StoreBusy, StoreUnavailable):
            raise
        except RotaError as error:
            log.warning("%d executions were not recorded: %s", len(batch), error)
        del self._unrecorded[: len(batch)]
        self._session.poke()

    def _log_end(self, running: Running, ended: Ended, end: End, *, refused: bool) -> None:
        name, document_id = running.job.job_type, running.document["_id"]
        if refused:
            log.warning("outcome of %s (document %s) refused: another process has taken it over", name, document_id)
        elif end.failed is not None:
            again = "no more attempts" if end.next_run_at is None else f"next attempt at {end.next_run_at:%Y-%m-%dT%H:%M:%SZ}"
            log.warning("%s (document %s) failed: %s; %s", name, document_id, end.failed, again)
        else:
            log.debug("%s (document %s) is %s after %.0f ms", name, document_id, end.status, ended.seconds * 1000)

    def _keep_checkpoints(self) -> None:
        self.inbox.take_reports()
        if self.inbox.reports:
            unkept = {each.number: Receipt.REFUSED for each in self.inbox.reports if each.checkpoint is not None and not self._keep(each)}
            self.inbox.written(Turned(unkept=unkept))

    def _keep(self, report: Report) -> bool:
        running = self._running.get(report.number)
        return running is not None and self._claims.keep(running.document["_id"], report.checkpoint or "")

    def _keep_at_once(self, report: Report) -> Receipt:
        return Receipt.WRITTEN if self._keep(report) else Receipt.REFUSED

    # ---- beside the cycle -------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Renew the claims; called by a thread of its own, so that no handler delays it."""
        held = {each.document["_id"]: each.job.number for each in tuple(self._running.values())}
        began = self._clock.monotonic()
        try:
            lost = self._claims.beat(held)
            self._renewal.acknowledged(began)
            self._sweep()
        except PyMongoError as error:
            raise StoreUnavailable(f"could not renew the claims: {error}") from error
        if lost:
            self._lost += [held[document_id] for document_id in lost]
            self._wake()

    def _sweep(self) -> None:
        if back := self._claims.sweep():
            log.warning("recovered %d documents whose process did not renew its claim for %g s", back, self._claims.rules.lock_timeout_s)

    def _stop_lost(self) -> None:
        """Stop the handlers of documents that are not ours any more."""
        while self._lost:
            running = self._running.get(self._lost.popleft())
            if running is not None:
                log.warning("document %s was taken over by another process; its handler is stopped", running.document["_id"])
                self._pool.at(running.job.executor).cancel(running.job.number)

    def _sit_out(self) -> None:
        """Be cut off: give back what has not started; continue when the claims are renewed and every handler that was stopped is over."""
        self._give_back()
        if self._renewal.left_s > 0 and not self._running and not self._pool.occupied():
            log.warning("the claims are renewed again; the bridge claims documents again")
            self._pool.close()
            self._guard.mended()

    def _warn_unreadable(self) -> None:
        for document_id, reason in tuple(self._claims.unreadable.items()):
            if document_id not in self._warned:
                self._warned.add(document_id)
                log.warning("document %s is left to Monque: %s", document_id, reason)
        for document_id, reason in tuple(self._claims.unwritable.items()):
            if document_id not in self._warned:
                self._warned.add(document_id)
                log.error("the outcome of document %s can't be written; it stays claimed while the bridge runs: %s", document_id, reason)

    def _now(self) -> datetime:
        """Return the time as documents have it, in milliseconds."""
        at: Instant = self._clock.now()
        return moment_of(at - at % 1000)


def _tag(document_id: Any) -> str:
    """Return the tag of a document's executions: an id may be a text with characters that a tag can't have."""
    text = f"monque:{document_id}"
    return (text if text.isprintable() else f"monque:{document_id!a}")[:TAG_MAX]
