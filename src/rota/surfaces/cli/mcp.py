"""`rota mcp`."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack, redirect_stdout
from importlib.util import find_spec

import typer

from rota.errors import Refused
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.session import actor, session
from rota.surfaces.mcp import MISSING


def mcp(*, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Serve Rota's operations to a language model, as MCP tools on standard input and output.

    An MCP client starts this command itself. Its tools are those that the user of --as may use. Log lines go to standard error; with
    --json each is a JSON document.
    """
    if find_spec("mcp") is None:
        raise Refused(MISSING)
    from rota.surfaces.cli.journal import set_up  # noqa: PLC0415 - no page of help needs it
    from rota.surfaces.mcp.server import serve  # noqa: PLC0415 - a second that no other command needs

    with ExitStack() as stack:
        # Standard output belongs to the protocol, also while an application is imported that prints something.
        with redirect_stdout(sys.stderr):
            rota = stack.enter_context(session(store, app=app))
        level = logging.getLevelNamesMapping()[rota.settings.log_level.upper()]
        set_up(lambda line: typer.echo(line, err=True), as_json=as_json or rota.settings.log_format == "json", level=level)
        serve(rota, actor())
