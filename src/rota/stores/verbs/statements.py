"""Named statements from `.sql` files: how every dialect keeps its SQL."""

from __future__ import annotations

import re
from importlib.resources import files

_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PIECE = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_CLAIMED = {
    "candidates",
    "candidates_among",
    "candidates_named",
    "candidate_direct",
    "holding",
    "held_by",
    "held_rows",
    "failed_without_successor",
}


def load(package: str) -> dict[str, str]:
    """Return every statement of a dialect by its name. A name that stands twice is a mistake."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        parts = _HEADING.split(file.read_text())
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise AssertionError(f"statement {name!r} stands twice, again in {file.name}")
            found[name] = _COMMENT.sub("", body).strip().rstrip(";")
    return {name: _expand(name, text, found) for name, text in found.items()}


def _expand(name: str, text: str, found: dict[str, str]) -> str:
    """Put a named piece where a statement says {its name}. Values are never formatted in."""
    columns = found["claimed_columns"] if name in _CLAIMED else found["job_columns"]
    text = text.replace("{columns}", columns)
    while (whole := _PIECE.sub(lambda match: found.get(match[1], match[0]), text)) != text:
        text = whole
    return text
