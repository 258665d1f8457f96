"""Running a worker, and the front door, under a terminal or a service manager: signals, the live view or log lines, and the way home."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import typer

from rota.admission import Admission
from rota.engine.driver import Driver
from rota.errors import Refused, StoreError
from rota.model.checks import extra
from rota.model.gate import Actor
from rota.operation import session_of
from rota.stop_signals import StopSignals
from rota.surfaces.cli.journal import Summary, set_up
from rota.surfaces.cli.output import console, show_json
from rota.surfaces.cli.session import actor, store_name
from rota.surfaces.cli.watch import LOOK_S, Watch
from rota.surfaces.cli.workers import Where

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.resources.tokens import NewToken
    from rota.surfaces.http.serving import Server

log = logging.getLogger("rota.cli")

LAST_LOOK_S = 0.1
"""How often a worker on its way home is looked after."""
DEMO_S = 3.0
DEMO_WAITING_MAX = 30
"""A demo adds nothing while so many jobs wait: a paused store must not fill up."""
MISSING = f"the HTTP API and the dashboard are not installed here: {extra('server')}"


class Screen(Protocol):
    """Shows what happens."""

    every_s: float

    def update(self, notice: str, *, anew: bool = False) -> None:
        """Show how things are, and what happens to this process just now. `anew`: nothing that was read before is good enough."""


class Stoppable(Protocol):
    """Something that runs jobs on a thread of its own: a driver, or a bridge."""

    @property
    def running(self) -> bool:
        """Say whether its thread is alive."""

    @property
    def holding(self) -> int:
        """Return how many jobs it holds."""

    def stop(self) -> None:
        """Let running jobs finish, and return."""

    def hurry(self) -> None:
        """Interrupt what still runs."""


Run = TypeVar("Run", bound=Stoppable)


class Stopper(Generic[Run]):
    """Listens for SIGINT and SIGTERM: the first lets running jobs finish, the second interrupts them."""

    def __init__(self, start: Callable[[], Run], grace_s: float, *, stop: Callable[[Run], None] | None = None) -> None:
        """Take what starts the driver that will have to be stopped, and what stops it where the process goes on."""
        self._start = start
        self._stop = stop or (lambda running: running.stop())
        self._switching = threading.Lock()
        self._halted = False
        self._grace_s = grace_s
        self._asked = 0
        self.signals = StopSignals()
        self._way_home: threading.Thread | None = None
        self._hurried = False

    def __enter__(self) -> Self:
        """Listen, and only then start: a worker that others can see already hears its signals."""
        self.signals.__enter__()
        try:
            self.driver = self._start()
        except BaseException:
            self.signals.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        self.signals.__exit__()

    @property
    def done(self) -> bool:
        """Say whether the worker is home. One that ends without being asked is an error."""
        if self._way_home is None:
            if not self.driver.running and not self._halted:
                raise StoreError("the worker's thread ended unexpectedly; its last log lines say why")
            return False
        return not self._way_home.is_alive()

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up for a signal, and act on it."""
        if self.signals.wait(seconds if self._way_home is None else min(seconds, LAST_LOOK_S)):
            self._asked += 1
        if self._asked >= 1 and self._way_home is None:
            self._way_home = threading.Thread(target=self.driver.stop, name="rota-way-home", daemon=True)
            self._way_home.start()
            log.info("%s", self.notice)
        if self._asked >= 2 and not self._hurried:
            self._hurried = True
            self.driver.hurry()
            log.info("interrupting the jobs that are still running")

    @property
    def running(self) -> bool:
        """Say whether the worker takes jobs."""
        return self._way_home is None and not self._halted and self.driver.running

    def start(self, *, actor: Actor) -> None:
        """Let a worker that was stopped take jobs again."""
        with self._switching:
            if self._halted and self._way_home is None:
                self.driver = self._start()
                self._halted = False
                log.info("worker started by %s", actor.name)

    def stop(self, *, actor: Actor) -> None:
        """Let the worker take no more jobs, and bring it home; the process stays, and may start one again."""
        with self._switching:
            if not self._halted and self._way_home is None:
                log.info("worker stopped by %s; the process keeps running", actor.name)
                self._halted = True
                self._stop(self.driver)

    @property
    def notice(self) -> str:
        """Say what happens now; nothing special until somebody asks."""
        if self._way_home is None:
            return "the worker is stopped; it claims no jobs until it is started again" if self._halted else ""
        if not self.driver.running:
            return "stopped"
        held = self.driver.holding
        if self._hurried or not held:
            return "stopping"
        jobs = "the running job" if held == 1 else f"{held} running jobs"
        return f"stopping: {jobs} may finish (up to {self._grace_s:g} s); Ctrl-C again interrupts"


class LiveView:
    """Shows snapshots as frames in the terminal, four a second."""

    every_s = LOOK_S

    def __init__(self, live: Any, rota: Rota, slots: int, url: str) -> None:
        """Take the rich Live that draws."""
        self._live = live
        self._watch = Watch(rota)
        self._url = url
        self._store = store_name(rota)
        self._slots = slots
        self._start = time.monotonic()

    def update(self, notice: str, *, anew: bool = False) -> None:
        """Draw one frame."""
        from rota.surfaces.cli.live_view import About, up_frame  # noqa: PLC0415 - rich, which log lines don't need

        if anew:
            self._watch.expire()
        up_s = time.monotonic() - self._start
        about = About(store=self._store, up_s=up_s, slots=self._slots, url=self._url, notice=notice)
        size = self._live.console.size
        self._live.update(up_frame(self._watch.look(), about, width=size.width, height=size.height), refresh=True)


def work(
    rota: Rota,
    where: Where | None,
    *,
    concurrency: int | None,
    as_json: bool,
    live: bool = False,
    demo: Callable[[Rota], object] | None = None,
    serving: Mapping[str, str | None] | None = None,
) -> None:
    """Run a worker until it is asked to stop, and show what happens. The front door, if there is one, is open until the worker is home."""
    with opened(rota, where, as_json=as_json, needed=False) as server:
        slots = concurrency or session_of(rota).current().concurrency
        url = "" if server is None else server.url
        with _screen(rota, slots, url, live=live, as_json=as_json) as screen:
            screen.update("starting")
            start = partial(rota.acting_as(actor()).start, concurrency=concurrency, **(serving or {}))
            stop = partial(rota.acting_as(actor()).stop)
            with Stopper(start, rota.settings.shutdown_grace, stop=stop) as stopper, _feeding(rota, demo):
                if server is not None:
                    server.show(stopper)
                _announce(rota, stopper.driver, url)
                screen.update(stopper.notice, anew=True)
                while not stopper.done:
                    screen.update(stopper.notice)
                    stopper.wait(screen.every_s)
                screen.update(stopper.notice, anew=True)
    log.info("stopped")


def bridge(rota: Rota, start: Callable[[], Run], *, as_json: bool) -> None:
    """Run what brings jobs of another system here until it is asked to stop."""
    _set_up_lines(rota, as_json=as_json)
    with Stopper(start, rota.settings.shutdown_grace) as stopper:
        while not stopper.done:
            stopper.wait(Summary.every_s)
    log.info("stopped")


def serve_only(rota: Rota, where: Where, *, as_json: bool) -> None:
    """Keep the front door open until somebody asks to stop."""
    _set_up_lines(rota, as_json=as_json)
    with StopSignals() as signals, opened(rota, where, as_json=as_json, needed=True) as server:
        assert server is not None  # noqa: S101 - it is needed
        _announce_door(server.url)
        while not signals.wait(Summary.every_s):
            if not server.running:
                raise Refused("the HTTP server ended unexpectedly; its last log lines say why")
        log.info("stopping")
    log.info("stopped")


# ---- the front door -------------------------------------------------------------------------------------------------


@contextmanager
def opened(rota: Rota, where: Where | None, *, as_json: bool, needed: bool) -> Iterator[Server | None]:
    """Serve a Rota for the time of the block, unless nobody wants that. In a terminal, and on the first start, print how to log in."""
    if where is None or not _installed(needed=needed):
        yield None
        return
    from rota.surfaces.http.serving import Address, Server  # noqa: PLC0415 - half a second that nobody else needs

    host = rota.settings.http_host if where.host is None else where.host
    port = rota.settings.http_port if where.port is None else where.port
    address = Address(host, port)
    try:
        # Output that is not a terminal may be kept in a log, so it gets a link only where nobody could log in otherwise.
        at_terminal = sys.stdout.isatty() and not as_json
        link = Admission(rota.acting_as(actor())).welcome(local=address.local, fresh=at_terminal)
        server = Server(rota, address, where.root_path)
        server.start()
    except BaseException:
        address.close()
        raise
    try:
        if link is not None:
            _show_link(server.url, link, as_json=as_json)
        with rota.acting_as(actor()).store.minder():
            yield server
    finally:
        server.stop()


def _installed(*, needed: bool) -> bool:
    """Say whether the server's parts are there; without them `rota up` goes on, and says what is missing."""
    if all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn", "jinja2")):
        return True
    if needed:
        raise Refused(MISSING)
    typer.echo(f"note: {MISSING}", err=True)
    return False


def _show_link(url: str, link: NewToken, *, as_json: bool) -> None:
    # Behind the #: a browser sends that to nobody, so the secret stands in no request line and no log.
    login = f"{url}/login#token={link.secret}"
    if as_json:
        # Not a log line, though it looks like the others: a log may be kept.
        said = {"at": datetime.now(UTC), "level": "INFO", "logger": "rota.cli", "message": "the first start: this token is shown once"}
        show_json(said | {"url": url, "login": login, "token": link.secret})
        return
    typer.echo(f"Log in with this link. It is shown once, now:\n\n    {login}\n")


# ---- what is shown --------------------------------------------------------------------------------------------------


@contextmanager
def _screen(rota: Rota, slots: int, url: str, *, live: bool, as_json: bool) -> Iterator[Screen]:
    if not live:
        _set_up_lines(rota, as_json=as_json)
        yield Summary(rota)
        return
    from rich.live import Live  # noqa: PLC0415 - log lines don't need it

    screen = console()
    # The view shows the jobs itself: only failures and what else is unusual is printed above it.
    set_up(lambda line: screen.print(line, markup=False), level=logging.WARNING)
    with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as drawing:
        yield LiveView(drawing, rota, slots, url)


def _set_up_lines(rota: Rota, *, as_json: bool) -> None:
    set_up(as_json=as_json or rota.settings.log_format == "json", level=logging.getLevelNamesMapping()[rota.settings.log_level.upper()])


@contextmanager
def _feeding(rota: Rota, demo: Callable[[Rota], object] | None) -> Iterator[None]:
    """Call a demo every few seconds beside the worker."""
    if demo is None:
        yield
        return
    over = threading.Event()

    def feed() -> None:
        try:
            while not over.is_set():
                if len(rota.queues.jobs(limit=DEMO_WAITING_MAX)) < DEMO_WAITING_MAX:
                    demo(rota)
                over.wait(DEMO_S)
        except Exception:
            log.exception("the demo failed and enqueues no more jobs")

    thread = threading.Thread(target=feed, name="rota-demo", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _announce_door(url: str) -> None:
    log.info("dashboard at %s, HTTP API at %s/api/v1", url, url)


def _announce(rota: Rota, driver: Driver, url: str) -> None:
    if url:
        _announce_door(url)
    worker = driver.worker
    types = next((each.job_types for each in rota.workers.list() if each.id == worker.id), ())
    log.info(
        "worker %s is up on %s with %d slots for %s", worker.id, rota.store.url, worker.concurrency, ", ".join(types) or "no job types"
    )
    if not types:
        log.warning("no handlers are loaded, so this worker cannot run any job; pass --app MODULE:ATTR")
