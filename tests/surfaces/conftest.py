"""Fixtures that tests of surfaces share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing

from rota import Rota, Settings
from tests.stores.makers import PostgresMaker

# The tree of commands is made once, and not for each command that is run in this process.
typer.testing._get_command = cache(typer.testing._get_command)


@pytest.fixture
def shared(rota: Rota) -> Rota:
    """Two organizations with an admin and a user or two each, and a system manager."""

    @rota.job
    def echo(text: str = "hi") -> str:
        return text

    rota.organizations.create("acme")
    rota.organizations.create("beta")
    rota.users.create("root", role="system_manager")
    for name, organization, role in [
        ("ada", "acme", "admin"),
        ("bob", "acme", "user"),
        ("ben", "acme", "user"),
        ("eve", "beta", "admin"),
        ("fay", "beta", "user"),
    ]:
        rota.users.create(name, organization=organization, role=role)
    return rota


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresMaker]:
    """A PostgreSQL database that has orders in it, and an empty store."""
    made = PostgresMaker(tmp_path)
    made._raw.execute("DROP TABLE IF EXISTS public.orders; CREATE TABLE public.orders (id integer PRIMARY KEY)")
    yield made
    made.close()


@pytest.fixture
def shop(database: PostgresMaker, settings: Settings) -> Iterator[Rota]:
    """A Rota on that database, and the real clock."""
    made = Rota(database.server.url(), settings=settings)

    @made.job
    def ship(order: int) -> int:
        return order

    @made.job
    def once(order: int) -> int:
        return order

    # Templates are there from now on, and the clock of this priority has gone on from its beginning.
    made.enqueue("ship", {"order": 0})
    made.turn()
    yield made
    made.close()
