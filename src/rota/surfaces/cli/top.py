"""`rota top`: the first screen in the terminal, live."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.errors import RotaError
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import console, show_json
from rota.surfaces.cli.session import actor, session, store_name

if TYPE_CHECKING:
    from rota.app import Rota

NOTICE_S = 4.0

EveryOption = Annotated[float, typer.Option("--every", min=0.1, max=3600, metavar="SECONDS", help="How often to look again.")]


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    every: EveryOption = 1.0,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether all is well, what did not run, what is stuck and why, what is running, and what comes next.

    Live in a terminal, one frame elsewhere. Keys: q quits, p pauses everything (and asks first), r resumes, space looks again.
    """
    with session(store, app=app) as rota:
        if as_json:
            return show_json(rota.acting_as(actor()).overview())
        if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return _print(rota)
        return _live(rota, every)


def _print(rota: Rota) -> None:
    from rota.surfaces.cli.live_view import Shown, top_frame  # noqa: PLC0415 - rich, which --json does not need

    screen = console()
    screen.print(top_frame(rota.acting_as(actor()).overview(), Shown(store=store_name(rota)), width=screen.width, height=None))


def _live(rota: Rota, every_s: float) -> None:
    from rich.live import Live  # noqa: PLC0415 - rich, which --json does not need

    from rota.surfaces.cli.live_view import Shown, top_frame  # noqa: PLC0415 - as above
    from rota.surfaces.cli.watch import Gauge  # noqa: PLC0415 - as above

    screen = console()
    look = rota.acting_as(actor()).overview
    # A store that can't be read at all is an error; later one in trouble leaves the last look.
    looks = Gauge(look, look(), every_s, wait_s=every_s)
    desk = Desk(rota)
    with keys() as pressed, Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as drawing:
        while not desk.over:
            seen = looks.value()
            shown = Shown(store=store_name(rota), notice=desk.notice, trouble=looks.trouble)
            drawing.update(top_frame(seen, shown, width=screen.size.width, height=screen.size.height), refresh=True)
            key = pressed(looks.left_s)
            if key and desk.press(key):
                looks.expire()


class Desk:
    """What keys do. What concerns everybody asks once."""

    def __init__(self, rota: Rota) -> None:
        """Take whose desk it is."""
        self._rota = rota
        self._asked = False
        self._notice = ""
        self._until = 0.0
        self.over = False

    @property
    def notice(self) -> str:
        """Say what is asked, or what was just done."""
        if self._asked:
            return "Pause everything? What runs goes on, nothing new starts. y pauses, any other key does not"
        return self._notice if time.monotonic() < self._until else ""

    def press(self, key: str) -> bool:
        """Do what a key stands for; say whether to look again at once."""
        if self._asked:
            self._asked = False
            return key in {"y", "Y"} and self._do(self._rota.acting_as(actor()).store.pause, "Everything is paused: r resumes")
        match key:
            case "q" | "Q" | "\x03":
                self.over = True
            case "p":
                self._asked = True
            case "r":
                return self._do(self._rota.acting_as(actor()).store.resume, "Nothing is paused as a whole any more")
            case " ":
                return True
            case _:
                pass
        return False

    def _do(self, act: Callable[[], object], done: str) -> bool:
        try:
            act()
            self._notice = done
        except RotaError as error:
            self._notice = str(error)
        self._until = time.monotonic() + NOTICE_S
        return True


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Lend a function that waits so long for a key and returns it, or nothing. The terminal is given back as it was."""
    import termios  # noqa: PLC0415 - not everywhere, and only needed here
    import tty  # noqa: PLC0415

    number = sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(number)
    tty.setcbreak(number)

    left = ""

    def pressed(seconds: float) -> str:
        nonlocal left
        if not left and select.select([number], [], [], seconds)[0]:
            left = os.read(number, 32).decode(errors="replace")
        # What begins with an escape and comes at once, as an arrow's three bytes, is one key.
        key, left = (left, "") if left.startswith("\x1b") else (left[:1], left[1:])
        return key

    try:
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
