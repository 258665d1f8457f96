"""What the tests of the command line share: an application on disk, the command in this process and as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command
from typer.testing import CliRunner

from rota.surfaces.cli.app import app
from tests.support.pace import patient

ROOT = Path(__file__).parents[2]

APP = """
import time

from rota import Backoff, Context, PermanentError, Rota, Skip

rota = Rota()
not_a_rota = 3


@rota.job
def greet(ctx: Context, name: str = "you") -> str:
    ctx.log.info("greeting %s", name)
    return f"Hello, {name}"


@rota.job(max_retries=1, backoff=Backoff(base=0.01, jitter=0))
def fails() -> None:
    raise ValueError("no such thing [today]")


@rota.job
def gives_up() -> None:
    raise PermanentError("never")


@rota.job
def skips() -> None:
    raise Skip("nothing to do")


@rota.job
def sleeps(ctx: Context, seconds: float = 60) -> None:
    ctx.progress(40, "asleep")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ctx.checkpoint()
        time.sleep(0.02)


def demo(rota: Rota) -> None:
    rota.enqueue("greet", {"name": "demo"})
    rota.enqueue("sleeps", {"seconds": 1}, unique_key="one")
"""


class Cli:
    """Runs commands against one store in one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "rota.db"
        (folder / "shop.py").write_text(APP)
        # The application of an earlier test of this process has that test's store.
        sys.modules.pop("shop", None)
        self._started: list[subprocess.Popen[str]] = []
        self.env = {"ROTA_STORE": str(self.store), "ROTA_ACTOR": "tester", "TERM": "dumb", "COLUMNS": "200", "ROTA_HTTP_PORT": "0"}

    def __call__(self, *args: str, stdin: str | None = None) -> Any:
        """Run in this process."""
        return CliRunner(env=self.env).invoke(app, list(args), input=stdin)

    def asked(self, *args: str, answer: str) -> Any:
        """Run in this process as on a terminal, where somebody answers the question."""
        with patch("rota.surfaces.cli.commands.has_terminal", return_value=True):
            return self(*args, stdin=f"{answer}\n")

    def ok(self, *args: str) -> str:
        """Run in this process and expect success."""
        result = self(*args)
        assert result.exit_code == 0, f"{args}: {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result.stdout

    def json(self, *args: str) -> Any:
        """Run with --json and return the one document."""
        return json.loads(self.ok(*args, "--json"))

    def lines(self, *args: str) -> list[Any]:
        """Run with --json and return the documents, one a line."""
        return [json.loads(line) for line in self.ok(*args, "--json").splitlines()]

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "rota", *args]

    def environment(self) -> dict[str, str]:
        return os.environ | self.env | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}

    def process(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run as a process of its own, to its end."""
        return subprocess.run(
            self.command(*args), cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=patient(50), check=False
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start as a process of its own."""
        process = subprocess.Popen(
            self.command(*args), cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Leave no process behind, not even after a failure."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def commands() -> Iterator[tuple[str, Any]]:
    """Walk the tree of commands: each with its full name, as people type it."""
    yield from _walk(get_command(app), "rota")


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, getattr(command, "whole", command)
        return
    for name, each in inner.items():
        yield from _walk(each, f"{path} {name}")
