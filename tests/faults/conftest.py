"""The stages on which processes are killed: one on each store, and one for what is about a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.support.postgres import fresh_database


@pytest.fixture
def file_stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage on a SQLite file, for what is about the file itself."""
    made = Stage(tmp_path, tmp_path / "rota.db")
    yield made
    made.close()


@pytest.fixture
def server_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage on a PostgreSQL database of its own."""
    # What a machine keeps to itself, lock files and logs, goes with the test.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fresh_database() as url:
        made = Stage(tmp_path, url)
        yield made
        made.close()


@pytest.fixture(params=["file", "server"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage on each store in turn."""
    return request.getfixturevalue(f"{request.param}_stage")
