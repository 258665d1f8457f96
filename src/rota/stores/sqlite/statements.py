"""The SQL of this store, by name, from the `.sql` files beside this module."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import msgspec

from rota.stores.verbs.db import load

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


class Statement(msgspec.Struct, frozen=True):
    """One statement with its parameters numbered: the driver would look each name up, at every call, and takes twice as long for it."""

    text: str
    names: tuple[str, ...]
    values: Callable[[dict[str, Any]], Sequence[Any]]
    """Puts values that are given by name into the parameters' order."""


@cache
def statement(name: str) -> Statement:
    """Return a statement by its name."""
    return compiled(statements()[name])


def compiled(text: str) -> Statement:
    """Give the parameters of a text numbers, the same name the same number. At every call the driver reads the text: it is kept short."""
    text = "\n".join(line.strip() for line in text.splitlines())
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"?{names.index(match[1]) + 1}", text)
    if len(names) > 1:
        return Statement(numbered, names, itemgetter(*names))
    return Statement(numbered, names, lambda values: [values[name] for name in names])


@cache
def statements() -> dict[str, str]:
    """Return every statement by its name."""
    return load(__package__)


@cache
def over_source(name: str, source: str) -> Statement:
    """Return a statement over one source, put together from the pieces in reads.sql."""
    text = statements()
    return compiled(text[name].replace("{source}", text[f"source_{source}"]))


@cache
def candidates(lanes: int, *, slim: bool, suspects: bool = True) -> str:
    """Return the claim's query for this number of lanes: parameters are the lanes in order, then :want."""
    arms = " UNION ALL ".join([statements()["arm"]] * lanes)
    return _over_first(statements()["first_of_lanes"].replace("{arms}", arms), slim=slim, suspects=suspects)


@cache
def candidates_of_many(*, slim: bool, suspects: bool = True) -> str:
    """Return the same query for any number of lanes: parameters are a JSON array of the lanes, then :want."""
    return _over_first(statements()["first_of_many_lanes"], slim=slim, suspects=suspects)


def _over_first(first: str, *, slim: bool, suspects: bool) -> str:
    if not suspects:
        first = first.replace("held IS NULL", f"held IS NULL AND {statements()['no_suspect']}")
    text = statements()["candidates_slim" if slim else "candidates"].replace("{first}", first)
    return text.replace(":want", "?")
