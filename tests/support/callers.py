"""Programs with a database connection of their own, each in its library's way: they insert an order and enqueue a job about it.

All have the same gestures, the asynchronous ones too, so that one story is told of each.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connections, transaction
from django.db.backends.postgresql.features import DatabaseFeatures
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota import Rota, enqueue_async
from tests.support.postgres import shared_server

DATABASE = "postgres"


class Psycopg:
    """A connection as psycopg opens one: a transaction begins with the first statement."""

    def __init__(self) -> None:
        self.handle: Any = psycopg.connect(shared_server().url(DATABASE), row_factory=dict_row)

    @property
    def raw(self) -> Any:
        return self.handle

    def begin(self) -> None:
        pass

    def execute(self, text: str) -> list[Any]:
        done = self.raw.execute(text)
        return done.fetchall() if done.description else []

    def enqueue(self, rota: Rota, *arguments: Any, **options: Any) -> Any:
        return rota.enqueue(*arguments, transaction=self.handle, **options)

    def commit(self) -> None:
        self.handle.commit()

    def rollback(self) -> None:
        self.handle.rollback()

    def close(self) -> None:
        self.raw.close()


class PsycopgBlocks(Psycopg):
    """A connection in autocommit mode, with a transaction where it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.handle.autocommit = True

    def begin(self) -> None:
        self.handle.execute("BEGIN")


class PsycopgAsync(Psycopg):
    """An asynchronous connection."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.handle = self.run(psycopg.AsyncConnection.connect(shared_server().url(DATABASE), row_factory=dict_row))

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def execute(self, text: str) -> list[Any]:
        return self.run(self._execute(text))

    async def _execute(self, text: str) -> list[Any]:
        done = await self.raw.execute(text)
        return await done.fetchall() if done.description else []

    def enqueue(self, rota: Rota, *arguments: Any, **options: Any) -> Any:
        return self.run(enqueue_async(rota, *arguments, transaction=self.handle, **options))

    def commit(self) -> None:
        self.run(self.handle.commit())

    def rollback(self) -> None:
        self.run(self.handle.rollback())

    def close(self) -> None:
        self.run(self.handle.close())
        self._runner.close()


class SqlalchemySession(Psycopg):
    """A session, as an application with an ORM has it."""

    def __init__(self) -> None:
        self.engine = sa.create_engine(_url())
        self.handle = Session(self.engine)

    @property
    def raw(self) -> Any:
        return self.handle.connection().connection.driver_connection

    def execute(self, text: str) -> list[Any]:
        done = self.handle.execute(sa.text(text))
        return [dict(row._mapping) for row in done] if done.returns_rows else []

    def close(self) -> None:
        self.handle.close()
        self.engine.dispose()


class SqlalchemyConnection(SqlalchemySession):
    """A connection without the ORM."""

    def __init__(self) -> None:
        self.engine = sa.create_engine(_url())
        self.handle = self.engine.connect()

    @property
    def raw(self) -> Any:
        return self.handle.connection.driver_connection


class SqlalchemyAsyncSession(PsycopgAsync):
    """An asynchronous session."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.engine = create_async_engine(_url())
        self.handle = AsyncSession(self.engine)

    @property
    def raw(self) -> Any:
        async def find() -> Any:
            return (await (await self.handle.connection()).get_raw_connection()).driver_connection

        return self.run(find())

    async def _execute(self, text: str) -> list[Any]:
        done = await self.handle.execute(sa.text(text))
        return [dict(row._mapping) for row in done] if done.returns_rows else []

    def close(self) -> None:
        self.run(self.handle.close())
        self.run(self.engine.dispose())
        self._runner.close()


class SqlalchemyAsyncConnection(SqlalchemyAsyncSession):
    """An asynchronous connection without the ORM."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.engine = create_async_engine(_url())
        self.handle = self.run(self.engine.connect().start())

    @property
    def raw(self) -> Any:
        return self.run(self.handle.get_raw_connection()).driver_connection


class Undone(Exception):  # noqa: N818 - how a block is left without a commit
    """Raised to leave an atomic block."""


class Django(Psycopg):
    """Django's connection in an atomic block."""

    def __init__(self) -> None:
        skip_where_django_refuses()
        configure_django()
        self.handle = connections["default"]
        self._atomic = transaction.atomic()
        self._open = False

    @property
    def raw(self) -> Any:
        self.handle.ensure_connection()
        return self.handle.connection

    def begin(self) -> None:
        if not self._open:
            self._atomic.__enter__()
            self._open = True

    def execute(self, text: str) -> list[Any]:
        self.begin()
        with self.handle.cursor() as cursor:
            cursor.execute(text)
            if not cursor.description:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def commit(self) -> None:
        self._open = False
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        if self._open:
            self._open = False
            with suppress(Undone):
                self._atomic.__exit__(Undone, Undone(), None)

    def close(self) -> None:
        self.rollback()
        self.handle.close()


def configure_django() -> None:
    """Tell Django where its database is; it is told once in a process."""
    if django_settings.configured:
        return
    server = shared_server()
    place = {"NAME": DATABASE, "USER": "postgres", "HOST": "127.0.0.1", "PORT": str(server.port)}
    django_settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}}, USE_TZ=True)
    django.setup()


def skip_where_django_refuses() -> None:
    """Leave out what needs Django on a server that Django itself is too new for; Rota takes older ones."""
    oldest = DatabaseFeatures.minimum_database_version[0]
    with shared_server().connect() as raw:
        found = raw.info.server_version // 10_000
    if found < oldest:
        pytest.skip(f"Django {django.get_version()} wants PostgreSQL {oldest}, this is {found}")


def _url() -> str:
    return shared_server().url(DATABASE).replace("postgresql://", "postgresql+psycopg://")


CALLERS = [
    Psycopg,
    PsycopgBlocks,
    PsycopgAsync,
    SqlalchemySession,
    SqlalchemyConnection,
    SqlalchemyAsyncSession,
    SqlalchemyAsyncConnection,
    Django,
]


def shipped(shop):
    """Return the orders that there are jobs of."""
    return sorted(job.params["order"] for job in shop.jobs.list() if job.params["order"])


def orders(database):
    """Return the orders that are committed."""
    return [row[0] for row in database._raw.execute("SELECT id FROM public.orders ORDER BY id")]


def state_of(caller):
    """Return everything about a session that a guest could leave behind."""
    # Those of the language that triggers are written in come with the first trigger of anybody.
    settings = {
        row["name"]: row["setting"] for row in caller.execute("SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'")
    }
    prepared = caller.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%job_live%'")
    tables = caller.execute("SELECT to_regclass('job_live') IS NULL AS unseen, to_regclass('orders') IS NULL AS gone")
    raw = caller.raw
    return settings, prepared, tables, raw.autocommit, raw.row_factory, raw.cursor_factory, raw.prepare_threshold, raw.info.pipeline_status
