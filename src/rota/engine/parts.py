"""What a worker is built from. The composition root fills it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import msgspec

from rota.engine.clock_trust import ClockTrust
from rota.engine.inbox import Serve
from rota.engine.meter import Meter
from rota.engine.registry import Registry
from rota.engine.trigger import Alert
from rota.hooks import On
from rota.middleware import Middleware
from rota.model.handler import Handler
from rota.model.lanes import SERVES_ALL, Serving
from rota.model.settings import Settings
from rota.ports.clock import Clock, Ids
from rota.ports.executor import App, Equipment, Executor
from rota.ports.liveness import Liveness
from rota.ports.sender import Caller, Sender
from rota.ports.store import Store
from rota.ports.tracing import Tracing
from rota.ports.wakeup import Wakeup


class Parts(msgspec.Struct, kw_only=True, frozen=True):
    """The adapters and values of one worker."""

    store: Store
    liveness: Liveness
    clock: Clock
    ids: Ids
    rng: Random
    settings: Settings
    handlers: Mapping[str, Handler]
    registry: Registry
    """The definitions, as far as the process knows them."""
    build_executor: Callable[[str, Equipment], Executor]
    log_dir: str | None
    ships_logs: bool = False
    """Logs of runs are kept in the store: what handlers write to files in `log_dir` is brought there."""
    alerts: Iterable[Alert] = ()
    """Told of due times that did not run."""
    direct_only: bool = False
    """The worker is there for a direct execution alone: it fires no schedules and takes nothing from the queue."""
    check_clock: Callable[[], object] | None = None
    """Compares the clock with the store's own, where it follows that."""
    meter: Meter = msgspec.field(default_factory=Meter)
    """Counts what is done."""
    trust: ClockTrust | None = None
    """The process's trust in its clock; None: the worker has one of its own."""
    tracing: Tracing | None = None
    """How jobs are traced, if they are."""
    app: App | None = None
    """The program's Rota, whose middleware and hooks handler processes have to find."""
    middleware: Middleware = msgspec.field(default_factory=Middleware)
    """Surrounds handlers."""
    on: On = msgspec.field(default_factory=On)
    """Called after attempts are over, and when workers start and stop."""
    wakeup: Callable[[], Wakeup] | None = None
    """Makes the hints that other processes have committed."""
    make_sender: Callable[[], Sender | None] | None = None
    """Makes who sends messages to webhooks, where that is installed; None: this worker sends none."""
    caller: Caller | None = None
    """Calls the URL of the pulse; None: there is none to call."""
    runs_apart: Callable[[Handler], bool] = lambda _: True
    """Says whether a handler process could find a handler, whatever executor it was declared for."""
    serve: Serve | None = None
    """Answers what handlers ask for; None: they may not ask."""
    serving: Serving = SERVES_ALL
    """Which queues and job types it serves."""
    runners: Mapping[str, Callable[[], Any]] = {}
    """What makes the runner of each kind that is not Python: see `Equipment`."""
    inline: bool = False
    """Run every handler in the thread that turns: for tests and for direct execution where there is no worker."""
