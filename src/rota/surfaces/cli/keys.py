"""`rota secret key`: a new master key."""

from __future__ import annotations

import typer

from rota.surfaces.cli.options import JsonOption, StoreOption
from rota.surfaces.cli.output import show_json


def key(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print a new master key, a line for the key file. It is stored nowhere, and a lost key can't be made again."""
    from rota.vault import new_key_line  # noqa: PLC0415 - a page of help needs none

    del store  # every command takes it
    line = new_key_line()
    if as_json:
        show_json({"key": line})
    else:
        typer.echo(line)
