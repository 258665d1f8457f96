"""The front door of `rota up` and `rota serve`: opened, told of, closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rota.admission import Admission
from rota.errors import Refused
from rota.surfaces.cli.output import show_json
from rota.surfaces.cli.session import actor

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.resources.tokens import NewToken
    from rota.surfaces.http.serving import Server

HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Listen on this address. Else $ROTA_HTTP_HOST, else 127.0.0.1.")
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65_535, help="Listen on this port; 0 takes any that is free. Else $ROTA_HTTP_PORT, else 8420."),
]
MISSING = "the HTTP API and the dashboard are not installed here: `pip install 'rota[server]'` adds them"


class Where(msgspec.Struct, frozen=True):
    """Where to listen, as the command line says it; None: as the settings say."""

    host: str | None = None
    port: int | None = None


@contextmanager
def opened(rota: Rota, where: Where | None, *, as_json: bool, needed: bool) -> Iterator[Server | None]:
    """Serve a Rota for the time of the block, unless nobody wants that. Say how to log in, if nobody could know it yet."""
    if where is None or not _installed(needed=needed):
        yield None
        return
    from rota.surfaces.http.serving import Address, Server  # noqa: PLC0415 - half a second that nobody else needs

    host = rota.settings.http_host if where.host is None else where.host
    port = rota.settings.http_port if where.port is None else where.port
    address = Address(host, port)
    try:
        first = Admission(rota.acting_as(actor())).welcome(local=address.local)
        server = Server(rota, address)
        server.start()
    except BaseException:
        address.close()
        raise
    try:
        if first is not None:
            _show_first(address.url, first, as_json=as_json)
        with rota.acting_as(actor()).store.minder():
            yield server
    finally:
        server.stop()


def _installed(*, needed: bool) -> bool:
    """Say whether the server's parts are there; without them `rota up` goes on, and says what is missing."""
    from importlib.util import find_spec  # noqa: PLC0415 - only here

    if all(find_spec(name) for name in ("starlette", "uvicorn", "jinja2")):
        return True
    if needed:
        raise Refused(MISSING)
    typer.echo(f"note: {MISSING}", err=True)
    return False


def _show_first(url: str, first: NewToken, *, as_json: bool) -> None:
    # Behind the #: a browser sends that to nobody, so the secret stands in no request line and no log.
    login = f"{url}/login#token={first.secret}"
    if as_json:
        # Not a log line, though it looks like the others: a log may be kept.
        said = {"at": datetime.now(UTC), "level": "INFO", "logger": "rota.cli", "message": "the first start: this token is shown once"}
        show_json(said | {"url": url, "login": login, "token": first.secret})
        return
    typer.echo(f"Log in with this link. It is shown once, now:\n\n    {login}\n")
