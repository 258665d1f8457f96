"""`rota up`, `rota worker` and `rota serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rota.errors import InvalidOption
from rota.operation import session_of
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.session import demo_of, path_of, session

if TYPE_CHECKING:
    from rota.app import Rota

ConcurrencyOption = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, max=10_000, help="Handlers to run at once. Else $ROTA_CONCURRENCY, else 8."),
]
QueuesOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAMES", help="Serve only these queues, with commas between them. Else $ROTA_WORKER_QUEUES, else all."),
]
TypesOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="NAMES",
        help="Run only jobs of these types, with commas; kind:sql:* means all that begin so. Else $ROTA_WORKER_TYPES, else all.",
    ),
]
ExcludeOption = Annotated[
    str | None,
    typer.Option("--exclude", metavar="NAMES", help="Run no jobs of these types, with commas between them. Else $ROTA_WORKER_EXCLUDE."),
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Listen on this address. Else $ROTA_HTTP_HOST, else 127.0.0.1.")
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65_535, help="Listen on this port; 0 takes any that is free. Else $ROTA_HTTP_PORT, else 8420."),
]
RootPathOption = Annotated[
    str | None,
    typer.Option("--root-path", metavar="PATH", help="Serve below this path, as a proxy in front does. Else $ROTA_HTTP_ROOT_PATH, else /."),
]


class Where(msgspec.Struct, frozen=True):
    """Where to listen, as the command line says it; None: as the settings say."""

    host: str | None = None
    port: int | None = None
    root_path: str | None = None


def up(
    *,
    app: AppOption = None,
    store: StoreOption = None,
    concurrency: ConcurrencyOption = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Call the function demo(rota) beside the application's Rota every few seconds.")
    ] = False,
    host: HostOption = None,
    port: PortOption = None,
    root_path: RootPathOption = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Without the HTTP API and the dashboard.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start Rota here: a worker, the HTTP API, the dashboard, and a live view.

    All of it runs in this process. In a terminal a view shows what happens; elsewhere there are log lines. Ctrl-C stops it: running jobs
    may finish, a second Ctrl-C interrupts them.
    """
    if demo and app is None:
        raise typer.BadParameter("--demo needs --app: the demo is a function beside the application's Rota")
    from rota.surfaces.cli.serving import work  # noqa: PLC0415 - threads, signals and views that no other command needs

    where = None if no_http else Where(host, port, root_path)
    with session(store, app=app, make=True) as rota:
        feed = demo_of(app) if demo and app else None
        work(rota, where, concurrency=concurrency, live=sys.stdout.isatty() and not as_json, as_json=as_json, demo=feed)


def worker(
    *,
    app: AppOption = None,
    store: StoreOption = None,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    types: TypesOption = None,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a worker with plain log lines, for servers.

    SIGTERM lets running jobs finish; a second one interrupts them.
    """
    from rota.surfaces.cli.serving import work  # noqa: PLC0415 - as in `up`

    with session(store, app=app, make=True) as rota:
        if not session_of(rota).registry.handlers and not rota.settings.handler_modules and not _has_other_work(rota):
            raise InvalidOption(
                "this worker has no handlers, so it cannot run any job: pass --app MODULE:ATTR, the Rota on which your jobs are declared,"
                " or set $ROTA_HANDLER_MODULES to the modules that templates may name; for SQL jobs create a connection, and for"
                " commands set $ROTA_EXTERNAL_FILE"
            )
        work(rota, None, concurrency=concurrency, as_json=as_json, serving={"queues": queues, "types": types, "exclude": exclude})


def _has_other_work(rota: Rota) -> bool:
    """Say whether a worker without handlers can run something: commands, or SQL on a connection. A store is not made for the question."""
    path = path_of(session_of(rota).where)
    return bool(rota.settings.external_file) or ((path is None or path.exists()) and bool(rota.connections.list()))


def serve(
    *,
    app: AppOption = None,
    store: StoreOption = None,
    host: HostOption = None,
    port: PortOption = None,
    root_path: RootPathOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API and the dashboard, without a worker.

    An application is needed only for what it says of its jobs (--app): they run in workers elsewhere.
    """
    from rota.surfaces.cli.serving import serve_only  # noqa: PLC0415 - as in `up`

    with session(store, app=app, make=True) as rota:
        serve_only(rota, Where(host, port, root_path), as_json=as_json)
