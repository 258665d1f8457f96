"""What `doctor` looks at beyond the store itself: workers, whom they serve, what they left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rota.engine.clock_trust import ClockTrust
from rota.engine.definitions_cache import fleet_of
from rota.engine.overdue import overdue
from rota.engine.predicates import PARAMS_TAKEN, Waiting, World
from rota.engine.registry import Registry
from rota.errors import RotaError
from rota.model.checks import extra
from rota.model.definitions import TemplateState
from rota.model.figures import Stats
from rota.model.findings import Finding, advice, look_at, ok, problem
from rota.model.kinds import is_kind, unserved
from rota.model.local_time import written
from rota.model.schedules import ScheduleState
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import WorkerInfo, moment_of
from rota.ports.clock import Clock
from rota.ports.liveness import Life, Liveness
from rota.ports.sender import Sender
from rota.ports.store import Store

BEATS = 1.5
"""A worker is silent if its beat stands still for so many times the time between two."""
LOOK_S = 0.1
SHOWN = 5
QUEUES_LOOK = 10_000
"""Waiting jobs that are counted by queue."""


class Doctor:
    """Looks at a store and at those who work on it. Changes nothing unless it is asked to repair."""

    def __init__(
        self,
        store: Store,
        liveness: Liveness,
        *,
        clock: Clock,
        machine: Clock,
        settings: Settings,
        pause: Callable[[float], object],
        registry: Registry,
        make_sender: Callable[[], Sender | None] | None = None,
        key_ids: Callable[[], Sequence[str]] = tuple,
        command_findings: Callable[[], Sequence[Finding]] = tuple,
        trust: ClockTrust | None = None,
    ) -> None:
        """Take what it looks with; `machine` is this machine's own clock, `pause` waits between two looks at a beat.

        `make_sender` makes who sends to webhooks, if that is installed; `key_ids` returns the master keys, the one that encrypts first;
        `command_findings` describes which commands a worker with these settings runs.
        """
        self._store = store
        self._liveness = liveness
        self._clock = clock
        self._machine = machine
        self._settings = settings
        self._pause = pause
        self._registry = registry
        self._make_sender = make_sender
        self._key_ids = key_ids
        self._command_findings = command_findings
        self._trust = trust or ClockTrust(store, clock, settings)

    def findings(self, *, full: bool, repair: bool = False) -> list[Finding]:
        """Look at everything, after repairing what can be repaired if that is asked for.

        Beats of workers on other machines are watched for a moment, where there are any.
        """
        found = self._store.fix(now=self._clock.now()) if repair else []
        found += self._store.checkup(now=self._clock.now(), machine=self._machine.now, full=full)
        return found + look_at(
            {
                "workers": self._workers,
                "left behind": self._left_behind,
                "schedules": self._schedules,
                "retention": self._retention,
                "queue": self._queue,
                "parameters": self._parameters,
                "pauses": self._pauses,
                "dead letters": self._dead_letters,
                "sending": self._sending,
                "secrets": self._secrets,
                "runners": self._runners,
            },
            (RotaError,),
        )

    def _workers(self) -> Iterator[Finding]:
        live = [worker for worker in self._store.workers() if worker.ended_at is None]
        lives = {worker.id: self._life(worker) for worker in live}
        dead = [worker for worker in live if lives[worker.id] is Life.DEAD]
        silent = self._silent([worker for worker in live if lives[worker.id] is Life.UNKNOWN])
        for worker in dead:
            yield _lost(worker, "is gone and still registered", "any worker recovers its jobs in a second: start one, or `rota recover`")
        for worker in silent:
            remedy = f"see that machine and its network; a worker gives it up after {self._settings.lease_ttl:g} s: see that one runs"
            yield _lost(worker, "has not shown a sign of life", remedy)
        well = [worker for worker in live if worker not in dead and worker not in silent and worker.kind == "worker"]
        if not well:
            yield advice("workers", "none is running", "start one: `rota worker --app MODULE:ATTR`")
        else:
            hosts = {worker.host for worker in well}
            yield ok("workers", f"{len(well)} on {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'} are alive")

    def _life(self, worker: WorkerInfo) -> Life:
        with self._liveness.seize(worker.id) as life:
            return life

    def _silent(self, watched: Sequence[WorkerInfo]) -> list[WorkerInfo]:
        """Return those whose beat stands still while we look. Clocks are not asked: only the counter."""
        still = {worker.id: worker for worker in watched}
        for _ in range(round(self._settings.beat * BEATS / LOOK_S)):
            if not still:
                break
            self._pause(LOOK_S)
            now = {worker.id: worker.beat for worker in self._store.workers() if worker.ended_at is None}
            still = {key: worker for key, worker in still.items() if now.get(key) == worker.beat}
        return list(still.values())

    def _left_behind(self) -> Iterator[Finding]:
        left = [worker for worker in self._store.workers(live=False) if worker.ended_at is not None and worker.holds]
        jobs = sum(worker.holds for worker in left)
        if jobs:
            text = f"{jobs:,} jobs are RUNNING under workers that have ended"
            yield problem("left behind", text, "any worker ends them within a second: start one, or `rota recover`")
        else:
            yield ok("left behind", "no job is RUNNING under a worker that has ended")

    def _schedules(self) -> Iterator[Finding]:
        backlog = overdue(self._store, self._registry, self._settings, now=self._clock.now())
        late = backlog.alarming
        if late:
            named = ", ".join(f"{each.schedule} ({each.expected:,})" for each in late[:SHOWN])
            least = "at least " if backlog.more else ""
            text = (
                f"{least}{backlog.expected:,} due times have no outcome, the first since {written(moment_of(late[0].due_at))}:"
                f" {named}{', …' if len(late) > SHOWN else ''}"
            )
            yield problem("schedules", text, "start a worker: `rota worker --app MODULE:ATTR`; if one runs, see its log")
        else:
            yield ok("schedules", "no due time is overdue")
        yield from self._unfit_schedules()

    def _unfit_schedules(self) -> Iterator[Finding]:
        """Look for schedules that are in use although their template takes no jobs: their due times are REFUSED."""
        closed = {each.name: each.state for each in self._store.templates() if each.state is not TemplateState.ENABLED}
        used = self._store.schedules() if closed else []
        unfit = [each for each in used if each.state is not ScheduleState.DISABLED and each.job_type in closed]
        if unfit:
            named = ", ".join(f"{each.name} ({each.job_type} is {closed[each.job_type].lower()})" for each in unfit[:SHOWN])
            text = f"the template of {named}{', …' if len(unfit) > SHOWN else ''} takes no jobs, so due times are recorded as REFUSED"
            yield advice("schedules", text, "enable the template: `rota template enable NAME`; or `rota schedule disable NAME`")

    def _retention(self) -> Iterator[Finding]:
        doubt = self._trust.look(self._clock.now())
        if doubt is None:
            yield ok("retention", "its clock is trusted")
        else:
            remedy = "correct the clock if it is wrong; if it is right, run a worker for an hour, or `rota purge --trust-clock`"
            yield advice("retention", f"workers delete nothing by age: {doubt}", remedy)

    def _queue(self) -> Iterator[Finding]:
        stats = self._stats()
        live = [worker for worker in self._store.workers() if worker.ended_at is None and self._life(worker) is not Life.DEAD]
        served = {name for worker in live for name in worker.job_types}
        alone = {name: count for name, count in stats.waiting_by_type.items() if name not in served}
        for name in [name for name in alone if is_kind(name)]:
            yield problem("queue", f"{alone.pop(name):,} jobs wait: {unserved(name)}", "or cancel them: `rota job list --status QUEUED`")
        if alone:
            said = ", ".join(f"{name} ({count:,})" for name, count in list(alone.items())[:SHOWN])
            text = f"no live worker has the handler of {said}{', …' if len(alone) > SHOWN else ''}: these jobs wait"
            remedy = "start a worker with the application that has it, or cancel them: `rota job list --status QUEUED`"
            if alone.keys() & self._store.adhoc_types().keys():
                remedy += "; of those without a template the module must be under the worker's setting handler_modules"
            yield problem("queue", text, remedy)
        elif without := [each for each in self._store.queues(look=QUEUES_LOOK) if each.waiting and not _serves(live, each.name)]:
            said = ", ".join(f"{each.name} ({'at least ' if each.at_least else ''}{each.waiting:,})" for each in without[:SHOWN])
            text = f"no live worker serves queue {said}{', …' if len(without) > SHOWN else ''}: these jobs wait"
            yield problem("queue", text, f"start a worker that does: `rota worker --queue {without[0].name}`")
        else:
            waiting = stats.by_status.get(Status.QUEUED, 0)
            yield ok("queue", f"{waiting:,} jobs wait, each for a handler that a live worker has" if waiting else "nobody waits")

    def _parameters(self) -> Iterator[Finding]:
        """Look for jobs that no live worker's handler takes."""
        now = self._clock.now()
        self._registry.sync(self._store, now)
        live = [each for each in self._store.workers() if each.kind == "worker" and self._life(each) is not Life.DEAD]
        world = World(types=frozenset(), fleet=fleet_of(live, self._registry))
        names = {lane.id: lane.names for lane in self._registry.lanes.values()}
        counts: dict[str, int] = {}
        for lane in self._store.waiting(now=now, look=QUEUES_LOOK):
            job = Waiting(str(lane.job_type), queue=lane.queue, names=names.get(lane.lane or 0))
            blocker = PARAMS_TAKEN.blocked_by(job, world)
            if blocker is not None:
                counts[blocker.removeprefix("params:")] = counts.get(blocker.removeprefix("params:"), 0) + lane.count
        if not counts:
            yield ok("parameters", "no job waits for a handler that takes its parameters")
            return
        said = [(*words.split(", and live workers have ", 1), count) for words, count in counts.items()][:SHOWN]
        named = ", ".join(f"{asked} ({count:,}); live workers have {takes}" for asked, takes, count in said)
        yield problem(
            "parameters",
            f"jobs wait for a worker that takes their parameters: {named}{', …' if len(counts) > SHOWN else ''}",
            f"start a worker of the version that enqueued them; they are dead-lettered after {self._settings.misfit_patience:g} s"
            " (setting misfit_patience)",
        )

    def _pauses(self) -> Iterator[Finding]:
        from shlex import quote  # noqa: PLC0415 - nobody else needs it, and every start of a command would pay for it

        pauses = self._store.pauses()
        if pauses:
            paused = ", ".join("everything" if kind == "all" else f"{kind} {name}" for kind, name in pauses[:SHOWN])
            ends = ", ".join("`rota resume`" if kind == "all" else f"`rota {kind} resume {quote(name)}`" for kind, name in pauses[:SHOWN])
            yield advice("pauses", f"paused: {paused}{', …' if len(pauses) > SHOWN else ''}", f"if it was forgotten: {ends}")
        else:
            yield ok("pauses", "nothing is paused")

    def _dead_letters(self) -> Iterator[Finding]:
        count = self._stats().by_status.get(Status.DEAD_LETTER, 0)
        if count:
            yield advice(
                "dead letters",
                f"{count:,} jobs ended DEAD_LETTER",
                "`rota dead list` says what of; `rota dead retry --all` tries them again",
            )
        else:
            yield ok("dead letters", "there are none")

    def _sending(self) -> Iterator[Finding]:
        if self._store.mail().next_at is None and not self._store.endpoints():
            yield ok("sending", "there are no webhooks")
        elif self._make_sender is None or self._make_sender() is None:
            yield advice("sending", "messages to webhooks can't be sent by a worker that is installed as this is", extra("webhooks"))
        else:
            yield ok("sending", "what it takes to send messages to webhooks is installed")

    def _runners(self) -> Iterator[Finding]:
        """Look for jobs in use that no live worker could run: their due times will wait."""
        yield from self._command_findings()
        used = {each.job_type: each for each in self._store.schedules() if each.state is ScheduleState.ENABLED and is_kind(each.job_type)}
        live = {name for worker in self._store.workers() if self._life(worker) is not Life.DEAD for name in worker.job_types}
        alone = [name for name in used if name not in live]
        for name in alone[:SHOWN]:
            yield advice("runners", f"job {used[name].name} and others like it can't run: {unserved(name)}", "or disable them: DISABLE JOB")
        if not alone:
            yield ok("runners", "live workers serve every connection and command that jobs in use need" if used else "no job needs one")

    def _secrets(self) -> Iterator[Finding]:
        try:
            keys = self._key_ids()
        except RotaError as error:
            yield problem("secrets", f"no secret can be opened by this process: {error}", "correct the key file: its owner, mode and lines")
            return
        uses = self._store.master_keys()
        sound = True
        for use in uses:
            count = use.secrets + use.webhooks
            if use.key_id and use.key_id not in keys:
                text = f"{count:,} secrets are encrypted with the master key {use.key_id}, which this process does not have"
                yield problem(
                    "secrets", text, "add its line to the key file (setting master_key_file); without it they are lost: set them again"
                )
            elif use.key_id in keys[1:]:
                text = f"rotation is not finished: {count:,} secrets are still encrypted with the old master key {use.key_id}"
                yield advice("secrets", text, "run `rota secret rotate`, and keep the old key until nothing is left under it")
            elif not use.key_id and keys:
                yield advice(
                    "secrets", f"{count:,} webhook secrets are not encrypted, and there is a master key", "run `rota secret rotate`"
                )
            else:
                continue
            sound = False
        if sound:
            count = sum(use.secrets for use in uses)
            yield ok("secrets", f"{count:,} are encrypted with the master key {keys[0]}" if count and keys else "there are none")

    def _stats(self) -> Stats:
        return self._store.stats(now=self._clock.now())


def _lost(worker: WorkerInfo, what: str, remedy: str) -> Finding:
    text = f"{worker.kind} {worker.id} on {worker.host} {what}; it holds {worker.holds:,} jobs"
    return (problem if worker.holds else advice)("workers", text, remedy)


def _serves(live: list[WorkerInfo], queue: str) -> bool:
    return any(worker.kind == "worker" and (worker.queues is None or queue in worker.queues) for worker in live)
