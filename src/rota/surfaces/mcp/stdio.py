"""MCP over standard input and output: one client, which has started this process."""

from __future__ import annotations

import anyio
from mcp.server.stdio import stdio_server

from rota.app import Rota
from rota.model.gate import Actor
from rota.operation import session_of
from rota.surfaces.mcp.server import make_server


def serve(rota: Rota, actor: Actor | str | None) -> None:
    """Serve a Rota to the client until it closes standard input. All calls are the actor's; raises PermissionDenied for one unknown."""
    session_of(rota).actor(actor)
    anyio.run(_serve, rota, actor)


async def _serve(rota: Rota, actor: Actor | str | None) -> None:
    server = make_server(rota, lambda _context: actor)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
