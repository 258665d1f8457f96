"""The command line: `rota`, for people and for scripts. Everything it does, it does through the Python surface."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from rota.surfaces.cli.app import app  # noqa: PLC0415 - typer is not needed by programs that import Rota

        app(prog_name="rota")
    except KeyboardInterrupt:
        # Ctrl-C before or after the command itself, which has its own answer to it.
        sys.exit(130)
