"""The SQL of this store, by name, from the `.sql` files beside this module, with its parameters numbered and typed."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from rota.stores.postgres.parameters import PACKED, PARAMETERS, typed
from rota.stores.verbs.db import load

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)(::)?")


class Statement(msgspec.Struct, frozen=True):
    """One statement as the server takes it, and the names of its values in order."""

    text: str
    names: tuple[str, ...]
    packs: bool
    """Some of the values are many ids in one."""


def compiled(text: str) -> Statement:
    """Give the parameters of a text numbers, the same name the same number, and types."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        number = names.index(name) + 1
        # A type that stands there is the statement's own word.
        return f"${number}::" if match[2] else typed(name, number)

    whole = _PARAMETER.sub(place, text)
    return Statement(whole, tuple(names), any(PARAMETERS.get(name) == PACKED for name in names))


@cache
def texts() -> dict[str, str]:
    """Return every text by its name, pieces put in."""
    return load(__package__)


@cache
def statement(name: str) -> Statement:
    """Return a statement by its name."""
    return compiled(texts()[name])


@cache
def numbered(name: str) -> Statement:
    """Return a statement that adds jobs, and returns their numbers."""
    return compiled(f"{texts()[name]}\nRETURNING number")


@cache
def over_source(name: str, source: str) -> Statement:
    """Return a statement over one source, put together from the pieces in reads.sql."""
    return compiled(texts()[name].replace("{source}", texts()[f"source_{source}"]))


@cache
def candidates(lanes: int, *, slim: bool, suspects: bool = True) -> Statement:
    """Return the claim's query for this many lanes: parameters are `lane_0` and so on, `want` and `spare`."""
    first = texts()["first_of_lane"]
    if lanes > 1:
        arms = " UNION ALL ".join(texts()["arm"].replace(":lane", f":lane_{index}") for index in range(lanes))
        first = texts()["first_of_lanes"].replace("{arms}", arms)
    if not suspects:
        first = first.replace("lane = :lane_", f"{texts()['no_suspect']} AND lane = :lane_")
    return compiled(texts()["candidates_slim" if slim else "candidates"].replace("{first}", first))


@cache
def candidates_of_many(*, slim: bool, suspects: bool = True) -> Statement:
    """Return the claim's query for any number of lanes: parameters are `lanes`, `limits`, `want` and `spare`."""
    arms = texts()["arms_of_many"]
    if not suspects:
        arms = arms.replace("job_live.lane = t.lane", f"{texts()['no_suspect']} AND job_live.lane = t.lane")
    first = texts()["first_of_lanes"].replace("{arms}", arms)
    return compiled(texts()["candidates_slim" if slim else "candidates"].replace("{first}", first))


@cache
def ready_now(*, suspects: bool = True) -> Statement:
    """Return the query for the lanes that have something ready."""
    text = texts()["ready_now"]
    return compiled(text if suspects else text.replace("held IS NULL", f"held IS NULL AND {texts()['no_suspect']}"))
