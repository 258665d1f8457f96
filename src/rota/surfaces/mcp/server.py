"""The server: lists the tools that an actor may use, and calls them on threads; and its way over standard input and output."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import anyio
import msgspec
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from rota.app import Rota
from rota.errors import RotaError, StoreError
from rota.model.gate import Actor
from rota.operation import session_of
from rota.surfaces.mcp.tools import Tool, all_tools

log = logging.getLogger("rota.mcp")

T = TypeVar("T")
Who = Callable[[Any], Actor | str | None]
"""Returns the actor of a request, given its context."""

INSTRUCTIONS = (
    "Rota is a durable job scheduler. Begin with `overview`. Jobs are named by id or by number, such as JOB-2026-00042. "
    "Times are ISO 8601 with a zone, lengths of time are text such as 90s or 2h. "
    "A list that has more returns `next`: pass it as `before` to get the next page."
)
THREADS = 8
LONG = frozenset({"jobs_direct", "sql_query", "store_doctor", "store_repair", "webhooks_test"})
"""Tools that wait for something outside of the store, or run for seconds. They have threads of their own, so that no other tool waits."""
AWAY = "the store can't be used now; the server's log has the reason"
FAILED = "the call failed because of an error in Rota; the server's log has the details"


class Threads:
    """The threads on which calls run. None is started before it is needed."""

    def __init__(self) -> None:
        """Make room for a few calls at a time, and for a few of those that take long."""
        self._short = ThreadPoolExecutor(THREADS, "rota-mcp")
        self._long = ThreadPoolExecutor(THREADS, "rota-mcp-long")

    async def call(self, function: Callable[[], T], *, long: bool = False) -> T:
        """Call a function on a thread, in a copy of the caller's context. A caller that is cancelled does not wait for it."""
        pool = self._long if long else self._short
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, function)

    def close(self) -> None:
        """Wait for the calls that have begun; the others are dropped."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=True, cancel_futures=True)


def make_server(rota: Rota, who: Who, threads: Threads) -> Server[Any]:
    """Return a server of a Rota; each request is made by the actor that `who` returns for it."""
    from rota import __version__  # noqa: PLC0415 - `rota` imports the surfaces

    session = session_of(rota)

    async def list_tools(context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await threads.call(lambda: _listed(rota, lambda: session.actor(who(context)))))

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await threads.call(lambda: _called(rota, lambda: session.actor(who(context)), params), long=params.name in LONG)

    return Server("rota", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def _listed(rota: Rota, who: Callable[[], Actor]) -> list[types.Tool]:
    try:
        actor = who()
        return [_described(tool) for tool in all_tools().values() if tool.is_open_to(rota, actor)]
    except StoreError as error:
        log.error("tools/list: %s: %s", error.code, error)  # noqa: TRY400 - its message says what is wrong
        raise MCPError(types.INTERNAL_ERROR, AWAY) from None
    except RotaError as error:
        raise MCPError(types.INVALID_REQUEST, str(error)) from None
    except Exception:
        log.exception("tools/list failed")
        raise MCPError(types.INTERNAL_ERROR, FAILED) from None


def _described(tool: Tool) -> types.Tool:
    operation = tool.operation
    hints = types.ToolAnnotations(
        read_only_hint=operation.reads,
        destructive_hint=operation.destroys,
        idempotent_hint=True if operation.reads else None,
        open_world_hint=False,
    )
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


def _called(rota: Rota, who: Callable[[], Actor], params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = all_tools().get(params.name)
    if tool is None:
        return _refused(f"there is no tool {params.name!r:.80}: tools/list shows them", "not_found")
    try:
        actor = who()
        return _answered(tool.call(rota, actor, params.arguments or {}))
    except StoreError as error:
        log.error("tool %s: %s: %s", tool.name, error.code, error)  # noqa: TRY400 - its message says what is wrong
        return _refused(AWAY, error.code)
    except RotaError as error:
        return _refused(str(error).replace(str(session_of(rota).where), "this store"), error.code)
    except Exception:
        log.exception("tool %s failed", tool.name)
        return _refused(FAILED, "error")


def _answered(result: dict[str, Any]) -> types.CallToolResult:
    text = msgspec.json.encode(result).decode()
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=result)


def _refused(message: str, code: str) -> types.CallToolResult:
    shown = message.encode("utf-8", "backslashreplace").decode()
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=shown)]
    return types.CallToolResult(content=content, structured_content={"code": code, "message": shown}, is_error=True)


# ---- over standard input and output: one client, which has started this process ----------------------------------------


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
