"""`rota bridge`: the jobs of another system, run with Rota's handlers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.errors import InvalidOption
from rota.model.checks import extra
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.session import actor, session
from rota.surfaces.cli.workers import ConcurrencyOption

if TYPE_CHECKING:
    from rota.compat.monque_bridge import Bridge

log = logging.getLogger("rota.cli")


def monque(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where the jobs are: mongodb://host/database, ?collection=NAME if not monque_jobs.")
    ],
    *,
    no_indexes: Annotated[
        bool, typer.Option("--no-indexes", help="Create no indexes. Default: create those of Monque that are missing.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare the indexes with those of Monque, show the findings, and exit.")] = False,
    app: AppOption = None,
    store: StoreOption = None,
    concurrency: ConcurrencyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run jobs of Monque, a job library for Node.js, with Rota's handlers.

    It claims due documents of Monque's collection, beside workers of Monque itself, and records each execution in the store. SIGTERM lets
    running jobs finish; a second one interrupts them. With --check it exits with 1 if there is a problem.
    """
    try:
        from rota.compat.monque_bridge import Bridge  # noqa: PLC0415 - pymongo, which no other command needs
    except ImportError as error:
        raise InvalidOption(f"the bridge to Monque needs the driver of MongoDB ({error}): {extra('mongodb')}") from error
    if check:
        _check(url, as_json=as_json)
        return
    from rota.surfaces.cli.serving import bridge  # noqa: PLC0415 - threads and signals that no other command needs

    with session(store, app=app, make=True) as rota:
        me = rota.acting_as(actor())

        def start() -> Bridge:
            made = Bridge(me, url, concurrency=concurrency, indexes=not no_indexes).start()
            names = ", ".join(sorted(made.names))
            log.info("bridge %s is up on %s.%s, with %d slots for %s", made.id, *made.place, made.slots, names)
            return made

        bridge(rota, start, as_json=as_json)


def _check(url: str, *, as_json: bool) -> None:
    from rota.compat.monque_collection import check_server, index_findings, open_collection  # noqa: PLC0415 - as above
    from rota.surfaces.cli.output import show_json_lines  # noqa: PLC0415 - as above
    from rota.surfaces.cli.views.store import fail_on_problems, show_findings  # noqa: PLC0415 - as above

    documents = open_collection(url)
    try:
        check_server(documents)
        findings = index_findings(documents)
    finally:
        documents.database.client.close()
    called: Any = None
    if as_json:
        show_json_lines(findings)
    else:
        show_findings(findings, called)
    fail_on_problems(findings)
