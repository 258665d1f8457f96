"""`rota settings` and `rota version`."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rota.errors import RotaError
from rota.model.settings import DOCS, Settings
from rota.model.stored_settings import InForceSettings, Word
from rota.operation import session_of
from rota.surfaces.cli.options import AppOption, JsonOption, StoreOption
from rota.surfaces.cli.output import Table, coloured, escaped, show_json, show_json_lines
from rota.surfaces.cli.session import path_of, rota_of, store_name

if TYPE_CHECKING:
    from rota import Rota


def settings(*, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print every setting: its value and what it is for."""
    rota = rota_of(store, app)
    try:
        holds, unread = _in_force(rota)
    finally:
        rota.close()
    rows = [
        {
            "name": name,
            "value": getattr(holds.settings, name),
            "source": str(holds.words[name]),
            "default": getattr(_DEFAULTS, name),
            "variable": f"ROTA_{name.upper()}",
            "what": doc.what,
        }
        for name, doc in DOCS.items()
    ]
    if as_json:
        return show_json_lines(
            [
                {
                    "name": "store",
                    "value": rota.store.url,
                    "source": str(Word.ENVIRONMENT if "ROTA_STORE" in os.environ else Word.DEFAULT),
                    "default": "rota.db",
                    "variable": "ROTA_STORE",
                    "what": _STORE,
                },
                *rows,
            ]
        )
    made = Table("setting", "value", "source", "what it is for", right=("value",), soft=("source", "what it is for"))
    made.add_row("store", rota.store.url, "", _STORE)
    for row in rows:
        value = escaped(f"{row['value']:.15g}" if isinstance(row["value"], float) else row["value"])
        changed = row["value"] != row["default"]
        made.add_row(row["name"], coloured(value, "bold") if changed else value, row["source"] if changed else "", row["what"])
    made.show()
    if unread:
        typer.echo(f"\nSettings that the store keeps are not shown: {unread}")
    return typer.echo("\nEach is also an environment variable: ROTA_ and its name in capitals. Times are in seconds, sizes in bytes.")


def _in_force(rota: Rota) -> tuple[InForceSettings, str]:
    """Return the settings that hold, those of the store among them where there is one, and why these could not be read."""
    session, unread, path = session_of(rota), "", path_of(rota.store.url)
    try:
        if path is None or Path(path).exists():
            session.current()
    except RotaError as error:
        unread = str(error)
    return session.registry.in_force(), unread


def version(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print versions and which store is meant: what a bug report needs."""
    import apsw  # noqa: PLC0415 - 20 ms that no other command's help needs

    from rota import __version__  # noqa: PLC0415 - the package is complete by now

    rota = rota_of(store)
    path = path_of(rota.store.url)
    found = {
        "rota": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "platform": platform.platform(),
        "store": store_name(rota),
        # Whether a server is there is for `rota doctor` to say.
        "store_exists": None if path is None else Path(path).exists(),
    }
    if as_json:
        return show_json(found)
    typer.echo(f"rota {found['rota']}, Python {found['python']}, SQLite {found['sqlite']}, {found['platform']}")
    return typer.echo(f"store {found['store']}{' (not there yet)' if found['store_exists'] is False else ''}")


_DEFAULTS = Settings()
_STORE = "where jobs are kept"
