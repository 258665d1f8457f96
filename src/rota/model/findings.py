"""What a check-up finds: one line for each look, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec


class State(StrEnum):
    """How bad it is. Only a problem has to be acted on."""

    OK = "ok"
    REPAIRED = "repaired"
    ADVICE = "advice"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: its name, how it stands, in words, and the remedy if it needs one."""

    name: str
    state: State
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(name, State.OK, text)


def repaired(name: str, text: str) -> Finding:
    """Return a finding that was a problem until `rota repair` repaired it."""
    return Finding(name, State.REPAIRED, text)


def advice(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that somebody should look at one day."""
    return Finding(name, State.ADVICE, text, remedy)


def problem(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that loses jobs, stops them or will do so."""
    return Finding(name, State.PROBLEM, text, remedy)


def look_at(checks: Mapping[str, Callable[[], Iterable[Finding]]], failures: tuple[type[Exception], ...]) -> list[Finding]:
    """Make each look by itself: one that can't be made is a finding of its own, and the others go on."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            found += check()
        except failures as error:
            said = " ".join(str(error).split())
            found.append(problem(name, f"could not be looked at: {said}", "see the other findings, and the rights of this role"))
    return found


def size_text(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def span_text(seconds: float) -> str:
    """Return a length of time for people: 12 ms, 3.4 s, 5 min, 2.5 h, 3 days."""
    for most, divisor, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / divisor:.3g} {unit}"
    return f"{seconds / 86_400:.3g} days"
