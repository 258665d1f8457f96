"""MCP over standard input and output: one client, which has started this process."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from rota.app import Rota
from rota.model.gate import Actor
from rota.operation import session_of
from rota.surfaces.mcp.server import Threads, make_server


def serve(rota: Rota, actor: Actor | str | None) -> None:
    """Serve a Rota to the client until it closes standard input. All calls are the actor's; raises PermissionDenied for one unknown."""
    session_of(rota).actor(actor)
    threads = Threads()
    try:
        anyio.run(_serve, make_server(rota, lambda _context: actor, threads))
    finally:
        # Before the store is closed under calls that have begun.
        threads.close()


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
