"""The SQL of this store, by name, from the `.sql` files beside this module."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PIECE = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Return every statement by its name. A name that stands twice is a mistake."""
    found: dict[str, str] = {}
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda file: file.name):
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
    return _PIECE.sub(lambda match: found.get(match[1], match[0]), text)


_CLAIMED = {"candidates", "candidates_among", "candidate_direct", "holding", "held_by", "failed_without_successor"}


@cache
def over_source(statement: str, source: str) -> str:
    """Return a statement over one source, put together from the pieces in reads.sql."""
    text = statements()
    return text[statement].replace("{source}", text[f"source_{source}"])


@cache
def candidates(types: int) -> str:
    """Return the claim's query for so many job types: parameters are the types in order, then :want."""
    return _with_arms("candidates", types)


@cache
def candidates_slim(types: int) -> str:
    """Return the same query without the columns that may be large."""
    return _with_arms("candidates_slim", types)


def _with_arms(name: str, types: int) -> str:
    text = statements()
    arms = " UNION ALL ".join([text["candidates_arm"]] * types)
    return text[name].replace("{arms}", arms).replace(":want", "?")
