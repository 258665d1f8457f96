"""Runs both type checkers over what readers copy: `python -m tests.typing.check`, a step of `make check`.

mypy --strict and pyright read the Python of the README and of the docs, the examples, `good.py` and `mistakes.py`. Each line that is
marked as a mistake must be reported by both, and nothing else by either.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of

FOLDER = ROOT / "tests" / "typing"
MISTAKES = FOLDER / "mistakes.py"
BLOCKS = FOLDER / "blocks"
"""Where the blocks of pages are written. Always the same, since mypy keeps what it found with its path; and no hidden
folder, which pyright would leave out."""
MARK = "  # mistake: "
PRELUDE = "from datetime import timedelta\nfrom rota import Context, Rota\nrota = Rota()\n"
"""Stands before a block that does not import Rota: it continues an example."""


UNTYPED = {"django_view.py"}
"""Examples with libraries that come without types."""


class Report(NamedTuple):
    """One line that a checker reported."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def programs() -> list[Path]:
    """Write the Python blocks of the pages into the folder, and return them with the other files to check.

    A block marked `fragment` uses names that only its reader has, and is left out.
    """
    pages = [path for path in PAGES if path == ROOT / "README.md" or path.is_relative_to(ROOT / "docs")]
    BLOCKS.mkdir(parents=True, exist_ok=True)
    for left in BLOCKS.glob("*.py"):
        left.unlink()
    written = [_write(block) for path in pages for block in blocks(path) if _is_checked(block)]
    examples = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in UNTYPED)
    return [*written, *examples, FOLDER / "good.py", MISTAKES]


def _is_checked(block: Block) -> bool:
    return block.info[:1] == ("python",) and "fragment" not in block.info


def _write(block: Block) -> Path:
    name = re.sub(r"\W", "_", block.page.removesuffix(".md"))
    path = BLOCKS / f"{name}_{block.line}.py"
    path.write_text(block.text if "rota import" in block.text else PRELUDE + block.text)
    return path


def mypy(files: Iterable[Path]) -> list[Report]:
    """Return the errors that mypy --strict reports."""
    done = _run("mypy", "--strict", "--no-error-summary", "--no-pretty", "--hide-error-context", *map(str, files))
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done, re.MULTILINE)
    return [Report(_shown(file), int(line), message) for file, line, message in found]


def pyright(files: Iterable[Path]) -> list[Report]:
    """Return the errors that pyright reports."""
    done = _run("pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, files))
    return [
        Report(_shown(each["file"]), each["range"]["start"]["line"] + 1, each["message"])
        for each in json.loads(done)["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def _run(program: str, *words: str) -> str:
    # Without this pyright asks for newer versions of itself, over the network.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [sys.executable, "-m", program, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"{program} could not be run: {done.stdout}{done.stderr}")
    return done.stdout


def _shown(file: str) -> str:
    path = (ROOT / file).resolve()
    return path.name if path.parent == BLOCKS else name_of(path)


def planted() -> dict[int, str]:
    """Return the lines of the mistakes, and what is wrong with each."""
    lines = enumerate(MISTAKES.read_text().splitlines(), 1)
    return {number: line.partition(MARK)[2] for number, line in lines if MARK in line}


def missed(reports: Iterable[Report]) -> list[str]:
    """Return the planted mistakes that were not reported."""
    found = {report.line for report in reports if report.file == name_of(MISTAKES)}
    return [f"{name_of(MISTAKES)}:{line}: not reported: {wrong}" for line, wrong in planted().items() if line not in found]


def false_alarms(reports: Iterable[Report]) -> list[str]:
    """Return the reports that are not of planted mistakes."""
    wanted = planted()
    return [str(report) for report in reports if report.file != name_of(MISTAKES) or report.line not in wanted]


def main() -> int:
    """Check, print what is wrong, and return the exit code."""
    files = programs()
    wrong = []
    for checker in (mypy, pyright):
        reports = checker(files)
        wrong += [f"{checker.__name__}: {each}" for each in (*missed(reports), *false_alarms(reports))]
    print("\n".join(wrong) or f"mypy and pyright: {len(files)} files, {len(planted())} planted mistakes found by both, nothing else")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
