"""The command line: `rota`, for people and for scripts. Everything it does, it does through the Python surface."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from rota.surfaces.cli.app import app  # noqa: PLC0415 - typer is not needed by programs that import Rota

    app(prog_name="rota")
