"""Jobs that are SQL or a procedure call: one transaction in the database of a connection, as the login of that connection.

The scheme of the connection's URL chooses the module that knows the database; it is imported when it is first asked for.
See docs/operations/sql-jobs.md for what confines a job there, and what does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TypeVar

from rota.model.checks import extra
from rota.model.decide import Completed, Failed, Outcome
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.model.urls import shown
from rota.ports.runner import BodyRefused, Control, Database, Order, UnfitDatabase, Unreachable
from rota.runners.dialect import ConnectFailed, Dialect, Probe, failure

DIALECTS = {
    "postgresql": "rota.runners.postgres",
    "postgres": "rota.runners.postgres",
    "sqlite": "rota.runners.sqlite",
}
"""The module of each scheme. It has a function `dialect(settings, store)`; a program may add its own."""
EXTRAS = {"psycopg": "postgres"}
"""The extra that installs a driver."""
HIDDEN_MIN_CHARS = 4
"""A shorter secret is not looked for in messages: it would be found in any word."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
T = TypeVar("T")


class SqlRunner:
    """Runs jobs of the kinds sql and procedure. Thread-safe; it keeps no connection between runs."""

    def __init__(self, settings: Settings, store: str) -> None:
        """Take the URL of Rota's own store, which no job may use."""
        self._settings = settings
        self._store = store
        self._dialects: dict[str, Dialect] = {}

    def run(self, order: Order, control: Control) -> Outcome:
        """Run the body in one transaction; commit it if all of it succeeded."""
        try:
            outcome = self._run(order, control)
        except (BodyRefused, Unreachable, UnfitDatabase) as refused:
            outcome = failure(refused)
        except Exception as error:  # noqa: BLE001 - whatever happens to an attempt is its outcome
            outcome = Failed(f"{type(error).__name__}: {error}", exception_type=type(error).__name__)
        return _hidden_in(outcome, [*_passwords(order.database), *order.secrets.values()])

    def _run(self, order: Order, control: Control) -> Outcome:
        if order.database is None:
            raise UnfitDatabase(f"job {order.job_name} has no connection: name one with CONNECTION, or create the connection default")
        return self._dialect(order.database).run(order, order.database, control)

    def check(self, database: Database, kind: JobKind, body: str, params: Collection[str], *, run_as: str | None = None) -> None:
        """Ask the database whether it takes the body, without running it. `params` are the names that the body may use.

        Raises BodyRefused with the place in the body, Unreachable after a few seconds, or UnfitDatabase.
        """
        self._asked(database, lambda dialect: dialect.check(database, kind, body, names=params, run_as=run_as))

    def probe(self, database: Database) -> Probe:
        """Connect as a job would, and say who answered; raise Unreachable, saying why, or UnfitDatabase."""
        return self._asked(database, lambda dialect: dialect.probe(database))

    def renew(self, until: float | None) -> None:
        """Do nothing: no run outlives the worker. PostgreSQL ends the session of a client that is gone."""

    def close(self) -> None:
        """Do nothing: no connection is kept between runs."""

    def _asked(self, database: Database, ask: Callable[[Dialect], T]) -> T:
        try:
            return ask(self._dialect(database))
        except BodyRefused as refused:
            message = _hidden(str(refused), _passwords(database))
            hidden: Exception = BodyRefused(message, sqlstate=refused.sqlstate, position=refused.position)
        except Unreachable as unreachable:
            hidden = Unreachable(_hidden(str(unreachable), _passwords(database)))
        except UnfitDatabase as unfit:
            hidden = UnfitDatabase(_hidden(str(unfit), _passwords(database)))
        # Not from inside the `except`: the frames of the driver's error hold the password.
        raise hidden

    def _dialect(self, database: Database) -> Dialect:
        found = _SCHEME.match(database.url)
        scheme = found[0].lower() if found else ""
        name = DIALECTS.get(scheme)
        if name is None:
            raise UnfitDatabase(f"connection {database.name} has the URL {shown(database.url)!r}: {_known_schemes()}")
        if name not in self._dialects:
            self._dialects[name] = _imported(name)(self._settings, self._store)
        return self._dialects[name]


def _known_schemes() -> str:
    *most, last = (f"{scheme}://" for scheme in sorted(DIALECTS))
    return f"use a URL that begins with {', '.join(most)} or {last}"


def _imported(name: str) -> Callable[[Settings, str], Dialect]:
    try:
        made: Callable[[Settings, str], Dialect] = import_module(name).dialect
    except ImportError as error:
        driver = (error.name or "").partition(".")[0]
        remedy = extra(EXTRAS[driver]) if driver in EXTRAS else f"install {driver}"
        # Another worker may have it, and this one may get it.
        raise ConnectFailed(f"this worker has no driver for the connection ({error}): {remedy}") from error
    return made


def _passwords(database: Database | None) -> list[str]:
    return [database.password] if database is not None and database.password else []


def _hidden_in(outcome: Outcome, secrets: Collection[str]) -> Outcome:
    if isinstance(outcome, Failed):
        outcome.error = _hidden(outcome.error, secrets)
    if isinstance(outcome, Completed) and outcome.message:
        outcome.message = _hidden(outcome.message, secrets)
    return outcome


def _hidden(text: str, secrets: Collection[str]) -> str:
    """Return a text without secrets, the longest first: one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= HIDDEN_MIN_CHARS:
            text = text.replace(secret, "…")
    return text
