"""Connections to SQLite files, for tests of jobs that are SQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from rota import Rota


def create_connection(rota: Rota, name: str, path: Path, *tables: str, multi: bool = False) -> Path:
    """Create a connection to a SQLite file, which has these tables."""
    make_file(path, *tables)
    rota.sql(f"CREATE CONNECTION {name} URL 'sqlite:///{path}'{' MULTI' if multi else ''}")
    return path


def make_file(path: Path, *tables: str) -> Path:
    """Create a database with these tables."""
    with closing(apsw.Connection(str(path))) as raw:
        raw.pragma("journal_mode", "wal")
        for table in tables:
            raw.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    return path


def rows(path: Path, text: str) -> list[tuple[Any, ...]]:
    """Read a database that jobs have written."""
    with closing(apsw.Connection(str(path))) as raw:
        raw.set_busy_timeout(5000)
        return list(raw.execute(text))


def runs_of(rota: Rota, name: str) -> list[dict[str, Any]]:
    """Return the runs of a job as sys.job_runs has them, the oldest first."""
    (result,) = rota.sql(f"SELECT * FROM sys.job_runs WHERE job_name = '{name}' ORDER BY number")
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def executed(rota: Rota, name: str, params: str | None = None) -> dict[str, Any]:
    """Execute a job, turn the worker, and return the last of its runs."""
    rota.sql(f"EXECUTE JOB {name}{'' if params is None else f' WITH PARAMS {params!r}'}")
    rota.turn()
    return runs_of(rota, name)[-1]
