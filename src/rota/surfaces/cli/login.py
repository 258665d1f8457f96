"""`rota login`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.admission import Admission
from rota.model.settings import Settings, root_path
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import show_json
from rota.surfaces.cli.session import actor, session

EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - nothing listens here


def login(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The address of the dashboard. Default: by the settings http_host, http_port and http_root_path."
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a link that logs a browser in to the dashboard.

    A server must run: `rota up` or `rota serve`. The link replaces your last one: browsers that used that have to log in again.
    """
    with session(store, app=app) as rota:
        link = Admission(rota.acting_as(actor())).login_link()
        address = f"{(url or _usual(rota.settings)).rstrip('/')}/login#token={link.secret}"
    if as_json:
        show_json({"login": address, "token": link.secret})
    else:
        typer.echo(address)


def _usual(settings: Settings) -> str:
    host = "127.0.0.1" if settings.http_host in EVERY_ADDRESS else settings.http_host
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{settings.http_port}{root_path(settings.http_root_path, 'setting http_root_path')}"
