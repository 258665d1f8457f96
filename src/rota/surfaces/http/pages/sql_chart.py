"""A chart of a result: one column of names or times, and columns of numbers beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec
from markupsafe import Markup

from rota.model.local_time import in_zone
from rota.sql.result import Result
from rota.surfaces.http.pages.charts import Drawing, cut_name, round_top, short_number

WIDTH = 960
LEFT, RIGHT = 70, 950
TOP, BASE, HEIGHT = 14, 190, 214
SERIES_MAX = 5
"""Columns of numbers that have a colour."""
ROWS_MAX = 200
BARS_MAX = 40
"""Rows that are bars; more of them are lines."""
LABELS_MAX = 10
TIME_NAME = re.compile(r"(_at|_time|^at)$")
MS_LEAST = 10**11
"""Milliseconds since 1970 are more than this from 1973 on: a smaller number is a length or a count."""


class Chart(msgspec.Struct, frozen=True):
    """What is drawn: a label for each row, and the numbers of each series."""

    label: str
    labels: tuple[str, ...]
    series: dict[str, tuple[float | None, ...]]
    zone: str
    """The zone of labels that are times, else empty."""
    cut: bool
    """Whether there are more rows."""

    @property
    def words(self) -> str:
        """Return what is drawn, in words."""
        return f"{', '.join(self.series)} by {self.label}"

    def draw(self, number: int = 1) -> Markup:
        """Return the picture, with a name of its own on the page."""
        values = [value for series in self.series.values() for value in series if value is not None]
        high, low = round_top(max(0.0, *values)), -round_top(-min(values)) if min(values) < 0 else 0.0
        words = f"{len(self.labels)} rows, from {min(values):g} to {max(values):g}"
        drawing = Drawing(f"chart-{number}", self.words, words, height=HEIGHT, width=WIDTH)
        scale = Scale(low, high, len(self.labels))
        for value in sorted({low, 0.0, (low + high) / 2, high}):
            drawing.line((LEFT, scale.y(value)), (RIGHT, scale.y(value)), "base" if value == 0 else "grid")
            drawing.text((LEFT - 6, scale.y(value) + 4), short_number(value), anchor="end")
        drawing.text((0, HEIGHT - 6), self.zone, kind="hours-of")
        for place in range(0, len(self.labels), -(-len(self.labels) // LABELS_MAX)):
            drawing.text((scale.middle(place), HEIGHT - 6), cut_name(self.labels[place], 14), anchor="middle")
        for rank, (name, numbers) in enumerate(self.series.items()):
            if len(self.labels) <= BARS_MAX:
                self._bars(drawing, scale, rank, name, numbers)
            else:
                self._line(drawing, scale, rank, name, numbers)
        return drawing.done()

    def _bars(self, drawing: Drawing, scale: Scale, rank: int, name: str, numbers: Sequence[float | None]) -> None:
        wide = scale.step * 0.8 / len(self.series)
        for place, value in enumerate(numbers):
            if value is not None:
                top, bottom = sorted((scale.y(value), scale.y(0.0)))
                at = LEFT + place * scale.step + scale.step * 0.1 + rank * wide, top
                drawing.bar(at, (wide, bottom - top), f"fill-type-{rank}", tip=f"{self.labels[place]}: {name} {value:,g}")

    def _line(self, drawing: Drawing, scale: Scale, rank: int, name: str, numbers: Sequence[float | None]) -> None:
        points = [(scale.middle(place), scale.y(value)) for place, value in enumerate(numbers) if value is not None]
        drawing.path(points, f"line own type-{rank}")
        for place, value in enumerate(numbers):
            if value is not None:
                drawing.dot((scale.middle(place), scale.y(value)), f"fill-type-{rank}", tip=f"{self.labels[place]}: {name} {value:,g}")


class Scale:
    """Where rows and values are in the picture."""

    def __init__(self, low: float, high: float, rows: int) -> None:
        """Take the least and the greatest value, and how many rows there are."""
        self._low = low
        self._range = (high - low) or 1.0
        self.step = (RIGHT - LEFT) / rows

    def y(self, value: float) -> float:
        """Return the height of a value."""
        return BASE - (BASE - TOP) * (value - self._low) / self._range

    def middle(self, place: int) -> float:
        """Return the middle of a row."""
        return LEFT + (place + 0.5) * self.step


def chart_of(result: Result, zone: tzinfo = UTC) -> Chart | None:
    """Return the chart of a result that has one column of names or times and some of numbers; None: it has not."""
    if len(result.rows) < 2 or not 2 <= len(result.columns) <= SERIES_MAX + 1:
        return None
    rows = result.rows[:ROWS_MAX]
    columns = list(zip(*rows, strict=True))
    others = [place for place, values in enumerate(columns) if not _is_numeric(values)]
    times = [place for place, values in enumerate(columns) if _is_time(result.columns[place], values)]
    chosen = others or times[:1]
    if len(chosen) != 1 or (not others and len(times) > 1):
        return None
    label = chosen[0]
    is_time = label in times
    labels = tuple(_label(value, zone, is_time=is_time) for value in columns[label])
    series = {result.columns[place]: tuple(values) for place, values in enumerate(columns) if place != label}
    shows_times = is_time or isinstance(columns[label][0], datetime)
    return Chart(result.columns[label], labels, series, str(zone) if shows_times else "", len(result.rows) > len(rows))


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _is_time(name: str, values: Sequence[Any]) -> bool:
    """Say whether a column is one of times, as sys has them: milliseconds since 1970."""
    return bool(TIME_NAME.search(name)) and all(isinstance(value, int) and value > MS_LEAST for value in values)


def _label(value: Any, zone: tzinfo, *, is_time: bool) -> str:
    if is_time and value < 253_402_300_800_000:
        value = datetime.fromtimestamp(value / 1000, UTC)
    if isinstance(value, datetime):
        return f"{in_zone(value, zone):%m-%d %H:%M}"
    return "" if value is None else str(value)
