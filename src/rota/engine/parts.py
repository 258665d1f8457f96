"""What a worker is built from. The composition root fills it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from rota.engine.meter import Meter
from rota.engine.registry import Registry
from rota.engine.trigger import Alert
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.ports.clock import Clock, Ids
from rota.ports.executor import Equipment, Executor
from rota.ports.liveness import Liveness
from rota.ports.sender import Sender
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
    alerts: Sequence[Alert] = ()
    """Told of due times that did not run."""
    fires: bool = True
    """Fire schedules: a worker that is there for one job alone does not."""
    check_clock: Callable[[], object] | None = None
    """Compares the clock with the store's own, where it follows that."""
    meter: Meter = msgspec.field(default_factory=Meter)
    """Counts what is done."""
    tracing: Tracing | None = None
    """How jobs are traced, if they are."""
    wakeup: Callable[[], Wakeup] | None = None
    """Makes the hints that other processes have committed."""
    make_sender: Callable[[], Sender | None] | None = None
    """Makes who sends messages to webhooks, where that is installed; None: this worker sends none."""
    runs_apart: Callable[[Handler], bool] = lambda _: True
    """Says whether a handler process could find a handler, whatever executor it was declared for."""
    inline: bool = False
    """Run every handler in the thread that turns: for tests and for direct execution where there is no worker."""
