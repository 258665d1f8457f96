"""Extended JSON, as document databases export it: types that JSON lacks, written as objects of one `$` name."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from rota.model.values import SECOND, Instant, instant, moment_of

MILLISECOND: Instant = SECOND // 1000


def plain(value: Any) -> object:
    """Return it as plain JSON: ids, times and decimals as text, numbers as numbers. What can't be read is a ValueError."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name in _TYPES:
            return _read(name, inner)
    return {name: plain(inner) for name, inner in value.items()}


def has_types(value: Any) -> bool:
    """Say whether it has values that plain JSON has only as text: ids, times, decimals, binary."""
    if isinstance(value, list):
        return any(has_types(each) for each in value)
    if not isinstance(value, dict):
        return False
    return (len(value) == 1 and not _TEXTS.isdisjoint(value)) or any(has_types(each) for each in value.values())


def object_id(job_id: str) -> dict[str, str]:
    """Return the ObjectId that stands for an id of Rota's, always the same: the second of its time, and a hash of it."""
    digits = job_id.replace("-", "")
    second = int(digits[:12], 16) // 1000
    return {"$oid": f"{second:08x}{blake2b(bytes.fromhex(digits), digest_size=8).hexdigest()}"}


def instant_of(given: Any) -> Instant:
    """Return a moment: {"$date": …} with ISO-8601 or milliseconds, or plain ISO-8601. It must say its zone."""
    if isinstance(given, dict) and given.keys() == {"$date"}:
        given = given["$date"]
    if isinstance(given, str):
        at = datetime.fromisoformat(given)
        if at.tzinfo is None:
            raise ValueError(f"{given} has no time zone")
        return instant(at)
    milliseconds = plain(given)
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        raise ValueError(f"{given!r:.60} is no time")  # noqa: TRY004 - all that is wrong with a text from outside is its value
    return milliseconds * MILLISECOND


def date_of(at: datetime | None) -> dict[str, str] | None:
    """Return a moment as a document has it, to the millisecond."""
    return None if at is None else {"$date": _iso(at)}


def _read(name: str, inner: Any) -> object:
    try:
        return _TYPES[name](inner)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ValueError(f"{{{name!r}: {inner!r:.60}}}, which can't be read") from None


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _finite(inner: Any) -> float:
    number = float(inner)
    if not math.isfinite(number):
        raise ValueError(f"{inner} is nothing that JSON can hold")
    return number


_TYPES: dict[str, Callable[[Any], object]] = {
    "$oid": str,
    "$uuid": str,
    "$symbol": str,
    "$numberDecimal": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": _finite,
    "$date": lambda inner: _iso(moment_of(instant_of(inner))),
    "$binary": lambda inner: str(inner["base64"]),
    "$undefined": lambda _: None,
}
_TEXTS = frozenset(("$oid", "$uuid", "$symbol", "$numberDecimal", "$date", "$binary"))
"""Types that become text."""
