"""The command line: `rota`, for people and for scripts. Everything it does, it does through the Python surface."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Terminated(BaseException):
    """SIGTERM came, and the command has no answer of its own to it."""


def main() -> None:
    """Run the command line."""
    _take_any_text()
    before = signal.signal(signal.SIGTERM, _on_term)
    try:
        _loaded()(prog_name="rota")
    except KeyboardInterrupt:
        # Ctrl-C before or after the command itself, which has its own answer to it.
        sys.exit(130)
    except Terminated:
        # The terminal is as it was and nothing is left half-made: now it may end as it was told to.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def _loaded() -> Callable[..., Any]:
    """Return the tree of commands. What is loaded for it stays: to look for garbage in it meanwhile would cost a tenth of a start."""
    gc.disable()
    try:
        from rota.surfaces.cli.app import app  # noqa: PLC0415 - typer is not needed by programs that import Rota

        if not sys.argv[1:] or {"-h", "--help"} & set(sys.argv):
            from rota.surfaces.cli.help_page import load_help_page  # noqa: PLC0415 - rich is not needed by every command

            load_help_page()
    finally:
        gc.freeze()
        gc.enable()
    return app


def _on_term(_number: int, _frame: object) -> None:
    raise Terminated


def _take_any_text() -> None:
    """Let a terminal that has no sign for a character show a question mark, and one that was closed take all: that is no failure."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open as long as the process is there
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
