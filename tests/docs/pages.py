"""The pages, as the tests about them read them: their tables, code blocks and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: where it stands, what it says it is, and its text."""

    page: str
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    return [
        Block(name_of(path), text.count("\n", 0, found.start()) + 1, tuple(found[1].split()), found[2]) for found in _FENCE.finditer(text)
    ]


def without_code(text: str) -> str:
    """Return a page without its fenced blocks and its `code`, which may hold anything."""
    return re.sub(r"`[^`\n]*`", "``", _FENCE.sub("", text))


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of every table, the headings and their rules left out."""
    found = []
    lines = text.splitlines()
    for index, line in enumerate(lines):
        is_heading = index + 1 < len(lines) and re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", lines[index + 1])
        if line.startswith("|") and not is_heading and not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line):
            found.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return found
