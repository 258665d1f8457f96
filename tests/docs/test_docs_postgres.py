"""Code in the docs and the examples that need PostgreSQL run as printed, each on a database of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count, pairwise
from pathlib import Path

import pytest

import rota
from tests.docs.pages import PAGES, ROOT, blocks
from tests.support.callers import skip_where_django_refuses
from tests.support.pace import patient
from tests.support.postgres import shared_server

BLOCKS = [block for path in PAGES for block in blocks(path)]
RUNNABLE = [(block, after) for block, after in pairwise(BLOCKS) if block.info == ("python", "postgres")]
EXAMPLES = {
    "postgres_transaction.py": "there is no second order, and no second job\none coffee on its way\none tea on its way\n",
    "sqlalchemy_session.py": "jobs: 1\none tea on its way\n",
    "django_view.py": '{"order": 1}\nthere is none left\njobs: 1\norder 1 is on its way\n',
}
numbers = count(1)


@pytest.fixture
def run(tmp_path):
    """Run a script on an empty database, warnings as errors; return what it printed."""
    server, name = shared_server(), f"printed_{next(numbers)}"
    with server.connect() as raw:
        raw.execute(f"CREATE DATABASE {name}")

    def start(script: Path) -> str:
        environment = {**os.environ, "ROTA_STORE": server.url(name), "PYTHONPATH": str(Path(rota.__file__).parents[1])}
        environment |= {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        command = [sys.executable, "-W", "error", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=patient(50), check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    yield start
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(("block", "after"), RUNNABLE, ids=[block.name for block, _ in RUNNABLE])
def test_python_marked_postgres_in_the_docs_runs_as_printed(block, after, run, tmp_path):
    script = tmp_path / "printed.py"
    script.write_text(block.text)
    assert after.info == ("text", "output")
    assert run(script) == after.text


def test_there_is_such_code():
    assert len(RUNNABLE) >= 3


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_is_to_print(name, run):
    if name == "django_view.py":
        skip_where_django_refuses()
    assert run(ROOT / "examples" / name) == EXAMPLES[name]
