"""`/metrics` in the text format of Prometheus: what an operator wants to be told of, and to look back on.

`METRICS` names them all; `docs/operations/metrics.md` and the Grafana dashboard are tested against it.
"""

from __future__ import annotations

import operator
import threading
import time
from bisect import bisect_left
from collections import Counter as Tally
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import accumulate
from math import inf
from typing import TypeAlias

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from starlette.requests import Request
from starlette.responses import Response

from rota.app import Rota
from rota.engine.meter import BOUNDS_S
from rota.model.figures import NO_RUN, PER_OCTAVE
from rota.model.gate import LOCAL, Actor, Right, scope_of
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import SECOND, Instant, moment_of
from rota.ports.overseeing import Figure, Unfired
from rota.resources.measures import Measures, WorkerMeasures

LATENCY_MS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
"""Upper bounds of the latency's buckets, in milliseconds."""
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
FAILED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.DEAD_LETTER})
Labels: TypeAlias = tuple[str, ...]
OTHER = "(other)"
"""The label of what is not told apart."""
HOUR_US: Instant = 3600 * SECOND
LATE_US: Instant = 2 * HOUR_US
"""An end is counted in the hour it happened in: of hours so long ago nothing new is expected."""
GROWTHS_MAX = 256
"""Organizations whose counters are kept apart for their own tokens, at most: those that asked longest ago begin anew."""


class Metric(msgspec.Struct, frozen=True):
    """One metric: its name as it is scraped, its kind, its labels, and what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    what: str

    @property
    def family(self) -> str:
        """Return its name without what the format adds to it."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


METRICS = {
    metric.name: metric
    for metric in (
        Metric("scheduler_queue_depth", "gauge", ("job_type", "state"), "Jobs that are QUEUED: ready, or held by a limit or a pause"),
        Metric("jobs_running", "gauge", ("job_type",), "Jobs in the state RUNNING, those that are claimed ahead included"),
        Metric("jobs_failed_total", "counter", ("job_type",), "Attempts that failed, timed out or were dead-lettered"),
        Metric("job_run_latency_ms", "histogram", ("job_type",), "How long completed runs took, in milliseconds"),
        Metric("rota_jobs_completed_total", "counter", ("job_type",), "Attempts that completed"),
        Metric("rota_pending_jobs", "gauge", ("state",), "Jobs that are PENDING: due later, due by now, or blocked by others"),
        Metric("rota_oldest_waiting_seconds", "gauge", ("job_type",), "How long the longest waiting QUEUED job has waited"),
        Metric("rota_queue_depth", "gauge", ("queue",), "QUEUED jobs by queue, parked ones included"),
        Metric("rota_queue_oldest_waiting_seconds", "gauge", ("queue",), "How long the longest waiting QUEUED job of a queue has waited"),
        Metric("rota_queue_workers", "gauge", ("queue",), "Live workers that serve a queue"),
        Metric("rota_dead_letters", "gauge", ("job_type",), "Jobs in the store that ended DEAD_LETTER"),
        Metric("rota_missed_occurrences_total", "counter", ("fate",), "Due times of schedules that did not fire, by their fate"),
        Metric("rota_overdue_occurrences", "gauge", (), "Due times that should have run and have no recorded outcome for lease_ttl"),
        Metric("rota_next_due_seconds", "gauge", (), "How long it is until a schedule is due; below 0: it is overdue"),
        Metric("rota_pauses", "gauge", (), "Pauses in force"),
        Metric("rota_workers", "gauge", ("state",), "Workers: alive, or lost without having ended"),
        Metric("rota_claimed_ahead_jobs", "gauge", (), "RUNNING jobs that live workers hold beyond their slots: their handlers do not run"),
        Metric("rota_worker_beat_age_seconds", "gauge", (), "For how long the stillest beat of a live worker has stood still"),
        Metric("rota_turns_total", "counter", (), "Turns of the workers in this process"),
        Metric("rota_turn_duration_seconds", "histogram", (), "How long turns of the workers in this process took"),
        Metric("rota_jobs_claimed_total", "counter", (), "Jobs that the workers in this process took up"),
        Metric("rota_http_requests_total", "counter", ("method", "route", "status"), "HTTP requests that this process answered"),
        Metric("rota_http_request_duration_seconds", "histogram", ("method", "route"), "How long this process took to answer them"),
        Metric("rota_scrape_duration_seconds", "gauge", (), "How long it took to find all this out"),
        Metric("rota_build_info", "gauge", ("version",), "Always 1: which Rota this is"),
    )
}


def metrics(request: Request) -> Response:
    """Return every metric that the token may see; of one organization's token, those of its organization."""
    state = request.app.state
    meters: Meters = state.meters
    text = meters.page(LOCAL if state.rota.settings.metrics_access == "loopback" and _is_local(request) else state.door.who(request))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _is_local(request: Request) -> bool:
    """Say whether a request comes from this machine without a token; one that somebody has forwarded comes from elsewhere."""
    if {"authorization", "forwarded", "x-forwarded-for"} & set(request.headers.keys()):
        return False
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False


class Meters:
    """The metrics of one app."""

    def __init__(self, rota: Rota) -> None:
        """Take what is measured."""
        self._rota = rota
        self._lock = threading.Lock()
        self._growths: OrderedDict[str | None, Growth] = OrderedDict()
        self.registry = CollectorRegistry(auto_describe=False)
        """What this process counts by itself; other parts of the front door add theirs."""
        seen, took = METRICS["rota_http_requests_total"], METRICS["rota_http_request_duration_seconds"]
        self._requests = Counter(seen.family, seen.what, seen.labels, registry=self.registry)
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._took = Histogram(took.name, took.what, took.labels, buckets=REQUEST_S, registry=self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        key = method, route, status
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._requests.labels(method, route, str(status)), self._took.labels(method, route)
        known[0].inc()
        known[1].observe(seconds)

    def page(self, actor: Actor) -> bytes:
        """Return all that the actor may see, as text."""
        start = time.perf_counter()
        organization = scope_of(actor, Right.READ_STATS).organization
        # One look at a time: what has grown is known by the look before.
        with self._lock:
            growth = self._growth(organization)
            look = self._rota.acting_as(actor).store.measures(since=growth.since)
            growth.add(look.figures, look.unfired, look.at)
            families = [*_of_jobs(look, self._rota.settings), *_of_growth(growth, self._rota.settings)]
        own: Iterable[Family] = ()
        if look.workers is not None:
            families += [*_of_workers(look.workers), *_of_queues(look, self._rota.settings)]
            own = self.registry.collect()
        families.append(_family("rota_scrape_duration_seconds", {(): time.perf_counter() - start}))
        text: bytes = generate_latest(_Collected([*families, *own]))
        return text

    def _growth(self, organization: str | None) -> Growth:
        found = self._growths.pop(organization, None) or Growth()
        self._growths[organization] = found
        while len(self._growths) > GROWTHS_MAX:
            self._growths.popitem(last=False)
        return found


class Growth:
    """Counters from a store whose own figures may go back: what has grown since this process first looked.

    A store forgets figures of old hours and due times of old days, and counts what is removed no longer. So each look is compared with
    the one before, and only what has grown is added: a counter begins at nothing when the process does, and never goes back. Belongs to
    whoever holds its lock.
    """

    def __init__(self) -> None:
        """Nothing was seen yet: what is there at the first look is where counting begins."""
        self.ends: defaultdict[tuple[str, str, str, int], int] = defaultdict(int)
        """By organization, job type, status and bucket."""
        self.spent_us: defaultdict[tuple[str, str], int] = defaultdict(int)
        """What completed runs took together, by organization and job type."""
        self.unfired: defaultdict[str, int] = defaultdict(int)
        """By fate."""
        self._figures: dict[tuple[Instant, str, str, str, int], Figure] = {}
        self._rows: dict[tuple[str, Instant, str], int] = {}
        self._since: Instant | None = None

    @property
    def since(self) -> Instant | None:
        """Return from when on figures are wanted at the next look: hours before the last look may still have grown. None: any."""
        return None if self._since is None else self._since - LATE_US

    def add(self, figures: Iterable[Figure], unfired: Iterable[Unfired], now: Instant) -> None:
        """Take in a look."""
        latest = {(each.hour, each.organization, each.job_type, each.status, each.bucket): each for each in figures}
        rows = {(each.schedule_id, each.due_at, str(each.fate)): each.count for each in unfired}
        if self._since is None:
            # Series that are there from the beginning, at nothing: what grows from then on is seen as growth.
            self._figures, self._rows = latest, rows
        for key, figure in latest.items():
            before = self._figures.get(key)
            grown = max(0, figure.count - (0 if before is None else before.count))
            self.ends[figure.organization, figure.job_type, figure.status, figure.bucket] += grown
            if grown and figure.status == Status.COMPLETED:
                spent = figure.total_us - (0 if before is None else before.total_us)
                self.spent_us[figure.organization, figure.job_type] += max(0, spent)
        for row, count in rows.items():
            self.unfired[row[2]] += max(0, count - self._rows.get(row, 0))
        self._figures, self._rows, self._since = latest, rows, now


class _Collected:
    """What was collected, to be written."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        return iter(self._families)


def _of_jobs(look: Measures, settings: Settings) -> Iterator[Family]:
    depth: Tally[Labels] = Tally()
    pending: dict[Labels, float] = {("blocked",): 0, ("due",): 0, ("later",): 0}
    waits: dict[Labels, float] = {}
    for lane in look.lanes:
        if lane.status == Status.QUEUED:
            depth[str(lane.job_type), "ready" if lane.held is None else "held"] += lane.count
            label = (str(lane.job_type),)
            waits[label] = max(waits.get(label, 0.0), (look.at - lane.since) / SECOND)
        else:
            pending["blocked" if lane.blocked else "due" if lane.since <= look.at else "later",] += lane.count
    running: Tally[Labels] = Tally()
    for (_, job_type), count in look.running.items():
        running[job_type,] += count
    few = settings.metrics_types_max
    yield _family("scheduler_queue_depth", _bounded(depth, few))
    yield _family("jobs_running", _bounded(running, few))
    yield _family("rota_pending_jobs", pending)
    yield _family("rota_oldest_waiting_seconds", _bounded(waits, few, together=max))
    yield _family("rota_dead_letters", _bounded({(name,): count for name, count in look.dead.items()}, few))
    yield _family("rota_overdue_occurrences", {(): look.overdue})
    yield _family("rota_pauses", {(): look.pauses})
    yield _family("rota_build_info", {(_version(),): 1})


def _of_growth(growth: Growth, settings: Settings) -> Iterator[Family]:
    told = settings.metrics_organizations == "yes"
    kept = _few((job_type for _, job_type, _, _ in growth.ends), settings.metrics_types_max)

    def labels_of(organization: str, job_type: str) -> Labels:
        name = job_type if job_type in kept else OTHER
        return (name, organization) if told else (name,)

    failed: Tally[Labels] = Tally()
    completed: Tally[Labels] = Tally()
    latency: defaultdict[Labels, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_MS) + 1))
    for (organization, job_type, status, bucket), count in growth.ends.items():
        labels = labels_of(organization, job_type)
        if status in FAILED:
            failed[labels] += count
        elif status == Status.COMPLETED:
            completed[labels] += count
            if bucket != NO_RUN:
                latency[labels][_place(bucket)] += count
    spent_ms: defaultdict[Labels, float] = defaultdict(float)
    for (organization, job_type), spent_us in growth.spent_us.items():
        spent_ms[labels_of(organization, job_type)] += spent_us / 1000
    extra = ("organization",) if told else ()
    yield _family("jobs_failed_total", failed, extra)
    yield _family("rota_jobs_completed_total", completed, extra)
    yield _histogram("job_run_latency_ms", latency, LATENCY_MS, spent_ms, extra)
    yield _family("rota_missed_occurrences_total", {(fate,): count for fate, count in growth.unfired.items()})


def _of_workers(workers: WorkerMeasures) -> Iterator[Family]:
    turns = workers.turns
    yield _family("rota_workers", {("alive",): workers.alive, ("lost",): workers.lost})
    yield _family("rota_next_due_seconds", {} if workers.next_due_s is None else {(): workers.next_due_s})
    yield _family("rota_claimed_ahead_jobs", {(): workers.claimed_ahead})
    yield _family("rota_worker_beat_age_seconds", {(): workers.beat_age_s})
    yield _family("rota_turns_total", {(): turns.count})
    yield _histogram("rota_turn_duration_seconds", {(): list(turns.buckets)}, BOUNDS_S, {(): turns.total_s})
    yield _family("rota_jobs_claimed_total", {(): turns.claimed})


def _of_queues(look: Measures, settings: Settings) -> Iterator[Family]:
    few, now = settings.metrics_types_max, moment_of(look.at)
    waits: dict[Labels, float] = {(each.name,): (now - each.oldest).total_seconds() for each in look.queues if each.oldest is not None}
    yield _family("rota_queue_depth", _bounded({(each.name,): each.waiting for each in look.queues}, few))
    yield _family("rota_queue_oldest_waiting_seconds", _bounded(waits, few, together=max))
    yield _family("rota_queue_workers", _bounded({(each.name,): each.workers for each in look.queues}, few, together=max))


def _version() -> str:
    from rota import __version__  # noqa: PLC0415 - this is imported by nobody that `rota` imports

    return __version__


def _place(bucket: int) -> int:
    """Return which of our buckets holds an eighth of an octave of microseconds: the first whose bound is not below its end."""
    return bisect_left(LATENCY_MS, 2 ** ((bucket + 1) / PER_OCTAVE) / 1000)


def _few(names: Iterable[str], most: int) -> frozenset[str]:
    """Return the names that are told apart: the first of them, so that a series that was there stays."""
    return frozenset(list(dict.fromkeys(names))[:most])


def _bounded(values: Mapping[Labels, float], most: int, *, together: Callable[[float, float], float] = operator.add) -> dict[Labels, float]:
    """Return the values of at most this many types, those with the highest ones; `together` makes one of the others'."""
    kept = _few((labels[0] for labels in sorted(values, key=lambda labels: -values[labels])), most)
    found: defaultdict[Labels, float] = defaultdict(float)
    for labels, value in values.items():
        label = (labels[0] if labels[0] in kept else OTHER, *labels[1:])
        found[label] = together(found[label], value)
    return found


def _family(name: str, values: Mapping[Labels, float], extra: Labels = ()) -> Family:
    """Return the values of a gauge or a counter."""
    metric = METRICS[name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(metric.family, metric.what, labels=(*metric.labels, *extra))
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made


def _histogram(
    name: str, values: Mapping[Labels, list[int]], bounds: Sequence[float], sums: Mapping[Labels, float], extra: Labels = ()
) -> Family:
    metric = METRICS[name]
    made = HistogramMetricFamily(name, metric.what, labels=(*metric.labels, *extra))
    for labels, counts in values.items():
        so_far = list(accumulate(counts))
        buckets = [(f"{bound:g}" if bound < inf else "+Inf", count) for bound, count in zip((*bounds, inf), so_far, strict=True)]
        made.add_metric(labels, buckets, sums.get(labels, 0.0))
    return made
