"""How large a test is: small in `make test`, full size in `make prove`.

A test that uses it is marked `prove`, so that `make prove` finds it. What was run at full size is kept in docs/internals/proofs.md: a row
for each test, which its next run replaces.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import apsw

from tests.support.postgres import binaries

PAGE = Path(__file__).parents[2] / "docs/internals/proofs.md"
HEAD = "| what | size | cases | seconds | outcome | date | with |\n| --- | --- | --: | --: | --- | --- | --- |\n"
_asked: dict[str, list[int]] = defaultdict(list)


class Run(NamedTuple):
    """One case of a test at full size."""

    test: str
    sizes: tuple[int, ...]
    seconds: float
    passed: bool


def size(usual: int, *, prove: int) -> int:
    """Return the usual size, or the full one where ROTA_TEST_PROVE is set."""
    if not proving():
        return usual
    asked = _asked[sys._getframe(1).f_globals["__name__"]]
    if prove not in asked:
        asked.append(prove)
    return prove


def proving() -> bool:
    """Say whether this run is at full size."""
    return bool(os.environ.get("ROTA_TEST_PROVE"))


def sizes_of(module: str) -> tuple[int, ...]:
    """Return the full sizes that a module has asked for so far."""
    return tuple(sorted(_asked[module], reverse=True))


def rows(runs: Iterable[Run]) -> dict[str, str]:
    """Return a row of the table for each test that was run."""
    cases: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        cases[re.sub(r"\[.*\]$", "", run.test)].append(run)
    return {test: _row(test, found) for test, found in sorted(cases.items())}


def kept(page: str, new: dict[str, str]) -> str:
    """Return the page with these rows in its table, in place of earlier ones of the same tests."""
    before, _, after = page.partition(HEAD)
    table, _, rest = after.partition("\n\n")
    old = {line.split("`")[1]: line for line in table.split("\n") if line.startswith("| `")}
    lines = "\n".join(row for _, row in sorted((old | new).items()))
    return f"{before}{HEAD}{lines}\n" + (f"\n{rest}" if rest else "")


def _row(test: str, runs: list[Run]) -> str:
    sizes = ", ".join(f"{number:,}" for number in runs[-1].sizes if number > 1) or "every one"
    failed = sum(not run.passed for run in runs)
    outcome = f"{failed} failed" if failed else "passed"
    cells = [
        f"`{test}`",
        sizes,
        len(runs),
        f"{sum(run.seconds for run in runs):,.0f}",
        outcome,
        f"{datetime.now(UTC):%Y-%m-%d}",
        _versions(),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _versions() -> str:
    said = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    server = re.search(r"\d+(\.\d+)?", said)
    return f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, PostgreSQL {server[0] if server else '?'}"
