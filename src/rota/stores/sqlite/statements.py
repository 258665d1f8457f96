"""The SQL of this store, by name, from the `.sql` files beside this module."""

from __future__ import annotations

from functools import cache

from rota.stores.relational.statements import load


@cache
def statements() -> dict[str, str]:
    """Return every statement by its name."""
    return load(__package__)


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
