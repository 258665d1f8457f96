"""The page of proofs: its rows are of tests that are there, a run replaces its own rows, and whatever has a full size can be run at it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import proof

TESTS = Path(__file__).parents[1]
SIZED = sorted(path for path in TESTS.rglob("test_*.py") if "import size" in path.read_text())


def test_every_row_is_of_a_test_that_is_there_and_has_a_full_size():
    text = proof.PAGE.read_text()
    named = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    assert named
    for name in named:
        path, _, function = name.partition("::")
        source = (TESTS / path).read_text()
        assert "mark.prove" in source, name
        assert function.split("::")[0] in source, name


@pytest.mark.parametrize("path", SIZED, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_file_that_asks_for_a_size_is_found_by_make_prove(path):
    assert "mark.prove" in path.read_text()


def test_a_run_replaces_its_own_rows_and_leaves_the_others():
    page = f"# Proofs\n\nText.\n\n{proof.HEAD}| `a.py::test_one` | 1 |\n| `b.py::test_two` | 2 |\n\nThe end.\n"
    assert proof.kept(page, {"a.py::test_one": "| `a.py::test_one` | 5 |", "c.py::test_three": "| `c.py::test_three` | 3 |"}) == (
        f"# Proofs\n\nText.\n\n{proof.HEAD}| `a.py::test_one` | 5 |\n| `b.py::test_two` | 2 |\n| `c.py::test_three` | 3 |\n\nThe end.\n"
    )


def test_the_cases_of_a_test_are_one_row():
    runs = [
        proof.Run("a.py::test_one[x]", (5000, 200), 60.4, passed=True),
        proof.Run("a.py::test_one[y-2]", (5000, 200), 30.0, passed=False),
    ]
    ((name, row),) = proof.rows(runs).items()
    assert name == "a.py::test_one"
    assert row.startswith("| `a.py::test_one` | 5,000, 200 | 2 | 90 | 1 failed | ")
    assert re.search(r"\| Python 3\.\d+\.\d+, SQLite 3\.\d+\.\d+, PostgreSQL \d+", row)
