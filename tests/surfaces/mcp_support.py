"""Clients of the MCP server, by the official package: of a process, and of a server on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.pace import patient
from tests.surfaces.cli_support import Cli

T = TypeVar("T")
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
"""With the newest revision of the protocol, and with a handshake as older clients have it."""


@asynccontextmanager
async def process(cli: Cli, *args: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that starts `rota mcp` and talks to it over its standard input and output."""
    command, *rest = cli.command("mcp", *args)
    started = StdioServerParameters(command=command, args=rest, cwd=cli.folder, env=cli.environment())
    async with Client(stdio_client(started), mode=mode) as client:
        yield client


@asynccontextmanager
async def remote(url: str, secret: str | None, *, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that comes over HTTP with a token."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=patient(30)) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def run(story: Callable[[], Awaitable[T]]) -> T:
    """Run a story of some seconds. What goes wrong in it is raised as it is, without the groups that clients wrap around it."""

    async def bounded() -> T:
        return await asyncio.wait_for(story(), patient(45))

    try:
        return asyncio.run(bounded())
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def ok(client: Client, name: str, /, **arguments: object) -> Any:
    """Call a tool, expect success, and return its structured result."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, name: str, /, **arguments: object) -> str:
    """Call a tool, expect an error, and return its text."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.content
    return result.content[0].text
