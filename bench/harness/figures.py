"""Figures and the one table made of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ROTA = "Rota"
DISTURBED = 0.15
"""Of all cores: where processes that the run did not start had more, what waits may have waited for them, and a ratio means nothing."""


class Unit(StrEnum):
    """What a figure counts."""

    PER_SECOND = "/s"
    MS = " ms"
    SECONDS = " s"
    MIB = " MiB"
    CPU = " % of a core"
    US = " µs"


_NOUN = {Unit.PER_SECOND: "rate", Unit.MS: "time", Unit.SECONDS: "time", Unit.MIB: "memory", Unit.CPU: "CPU", Unit.US: "CPU"}
_REASON_MAX = 60
_DECIMALS = {Unit.PER_SECOND: 0, Unit.MS: 2, Unit.SECONDS: 2, Unit.MIB: 0, Unit.CPU: 1, Unit.US: 1}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One row: who did which work, and the figure of every run of it."""

    topic: str
    work: str
    system: str
    unit: Unit
    values: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    baseline: str | None = None
    """The row of the same topic that this one is a ratio of; none: Rota's row is given as a ratio of this one."""
    missing: str | None = None
    others: float | None = None
    """The share of all cores that processes had which the run did not start. None: not measured for this row."""

    @property
    def median(self) -> float:
        """Return the middle of the runs."""
        return statistics.median(self.values)


def table(figures: Sequence[Figure]) -> str:
    """Return all figures as one Markdown table, aligned so that it also reads well in a terminal."""
    heads = ("measured", "work", "system", "median (min–max)", "compared", "notes")
    rows = [heads, *_topics_once([_cells(figure, figures) for figure in figures])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def as_json(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """Return figures as plain values, with the ratio as a number."""
    figures = list(figures)
    return [
        {
            "topic": figure.topic,
            "work": figure.work,
            "system": figure.system,
            "unit": figure.unit.strip(),
            "values": list(figure.values),
            "median": figure.median if figure.values else None,
            "notes": list(figure.notes),
            "compared": _compared(figure, figures),
            "others": figure.others,
            "missing": figure.missing,
        }
        for figure in figures
    ]


def number(value: float, unit: Unit) -> str:
    """Return a figure as people read it."""
    return f"{value:,.{_DECIMALS[unit]}f}"


def _cells(figure: Figure, figures: Sequence[Figure]) -> tuple[str, ...]:
    if figure.missing is not None:
        return figure.topic, figure.work, figure.system, f"not measured: {_short(figure.missing)}", "", ""
    compared = _compared(figure, figures)
    return figure.topic, figure.work, figure.system, _spread(figure), compared, "; ".join(dict.fromkeys(figure.notes))


def _short(reason: str) -> str:
    return reason if len(reason) <= _REASON_MAX else reason[: _REASON_MAX - 1] + "…"


def _spread(figure: Figure) -> str:
    middle = number(figure.median, figure.unit) + figure.unit
    if len(figure.values) == 1:
        return middle
    return f"{middle} ({number(min(figure.values), figure.unit)}–{number(max(figure.values), figure.unit)})"


def _compared(figure: Figure, figures: Sequence[Figure]) -> str:
    other = figure.baseline or ROTA
    rows = [row for row in figures if row.topic == figure.topic and row.system == other and row.values]
    if not rows or not figure.values or figure.system == other:
        return ""
    if not rows[0].median or not figure.median:
        return ""  # less than could be measured: no ratio
    others = max(figure.others or 0.0, rows[0].others or 0.0)
    if others > DISTURBED:
        return f"no ratio: others had {others:.0%} of the cores"
    if figure.baseline:
        return f"{_ratio(figure.median, rows[0].median)} of {other}"
    return f"Rota {_ratio(rows[0].median, figure.median)} its {_NOUN[figure.unit]}"


def _ratio(upper: float, lower: float) -> str:
    ratio = upper / lower
    return f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def _topics_once(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    befores = [("",), *rows]
    return [("", *row[1:]) if row[0] == before[0] else row for before, row in zip(befores, rows, strict=False)]
