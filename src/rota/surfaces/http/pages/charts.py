"""Pictures as SVG: bars and lines of the last hours, the next 24 hours, and the attempts of a chain.

Each has a title and a description for those who hear it; every page that shows one has its figures as a table too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

import msgspec
from markupsafe import Markup

from rota.model.local_time import in_zone
from rota.model.overview import Ahead, Coming
from rota.resources.trend import Period, Trend
from rota.surfaces.cli.output import span

WIDTH = 960
HALF = 560
LEFT = 54
NAMES = 170
"""Where the hours begin in the timeline: names stand before them."""
BASE = 78
"""On what the bars of the timeline stand."""
DAY_S = 86_400
LABELS_S = {"15m": 180, "1h": 600, "6h": 3600, "24h": 6 * 3600, "7d": DAY_S}
"""How far the times below a chart are apart."""
LANES_MAX = 8
"""Schedules with a line of their own in the timeline; the bars count all."""


class Drawing:
    """An SVG being drawn; whatever is written into it is escaped."""

    def __init__(self, name: str, title: str, description: str, *, height: float, width: float = WIDTH) -> None:
        """Begin with what it shows, in words."""
        self._parts: list[Markup] = []
        self._add('<svg viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">', width, height, name, name)
        self._add('<title id="{}-t">{}</title><desc id="{}-d">{}</desc>', name, title, name, description)

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        """Draw a straight line."""
        self._add('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>', kind, *start, *end)

    def bar(self, at: tuple[float, float], size: tuple[float, float], kind: str, *, tip: str = "") -> None:
        """Draw a rectangle that says what it stands for."""
        if size[0] > 0 and size[1] > 0:
            self._add('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5">{}</rect>', kind, *at, *size, _tip(tip))

    def ticks(self, places: Sequence[float], top: float, tall: float, *, tip: str) -> None:
        """Draw a tick at each place, all as one shape: hundreds of them must not make the page heavy."""
        shape = "".join(f"M{_n(x - 1.5)} {_n(top)}h3v{_n(tall)}h-3z" for x in places)
        self._add('<path class="tick" d="{}">{}</path>', shape, _tip(tip))

    def dot(self, at: tuple[float, float], kind: str, *, tip: str = "") -> None:
        """Draw a point that says what it stands for."""
        self._add('<circle class="{}" cx="{}" cy="{}" r="3">{}</circle>', kind, *at, _tip(tip))

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        self._add('<polyline class="{}" points="{}"/>', kind, " ".join(f"{_n(x)},{_n(y)}" for x, y in points))

    def text(self, at: tuple[float, float], words: str, *, anchor: str = "start", kind: str = "") -> None:
        """Write. What SVG takes for granted is not said: the first page has to stay small."""
        said = {"text-anchor": "" if anchor == "start" else anchor, "class": kind}
        self._add('<text x="{}" y="{}"', *at)
        for name, value in said.items():
            if value:
                self._add(' {}="{}"', name, value)
        self._add(">{}</text>", words)

    def done(self) -> Markup:
        """Return the picture."""
        return Markup("").join([*self._parts, Markup("</svg>")])

    def _add(self, element: str, *values: float | str) -> None:
        self._parts.append(Markup(element).format(*(value if isinstance(value, str) else _n(value) for value in values)))  # noqa: S704 - of this class alone


def throughput(trend: Trend, zone: tzinfo = UTC) -> Markup:
    """Draw how many attempts completed and failed in each period."""
    periods = trend.periods
    done, failed = sum(each.completed for each in periods), sum(each.failed for each in periods)
    words = f"{done:,} completed and {failed:,} failed in {trend.range.words}"
    drawing = Drawing("throughput", f"Attempts {trend.range.step_words}", words, height=190, width=HALF)
    top = round_top(max((each.completed + each.failed for each in periods), default=0))
    step = _axes(drawing, trend, zone, [(top * part, short_number(top * part)) for part in (0, 0.5, 1)], top)
    for place, each in enumerate(periods):
        x, tip = LEFT + place * step + 2, f"{_at(trend, each, zone)}: {each.completed:,} completed, {each.failed:,} failed"
        good, bad = 140 * each.completed / top, 140 * each.failed / top
        drawing.bar((x, 160 - good), (step - 4, good), "fill-good", tip=tip)
        drawing.bar((x, 160 - good - bad), (step - 4, bad), "fill-bad", tip=tip)
    return drawing.done()


def by_type(trend: Trend, zone: tzinfo = UTC) -> Markup:
    """Draw how many attempts of each type ended in each period: the types with most of them, and all others together."""
    periods = trend.periods
    totals = {name: sum(each.by_type.get(name, 0) for each in periods) for name in trend.types}
    words = ", ".join(f"{name} {count:,}" for name, count in totals.items()) or "no attempt has ended"
    drawing = Drawing("by-type", f"Attempts by type, {trend.range.step_words}", words, height=190, width=HALF)
    top = round_top(max((each.completed + each.failed for each in periods), default=0))
    step = _axes(drawing, trend, zone, [(top * part, short_number(top * part)) for part in (0, 0.5, 1)], top)
    for place, each in enumerate(periods):
        others = each.completed + each.failed - sum(each.by_type.values())
        at, y = _at(trend, each, zone), 160.0
        for kind, name, count in [
            *((f"fill-type-{rank}", name, each.by_type.get(name, 0)) for rank, name in enumerate(trend.types)),
            ("fill-soft", "others", others),
        ]:
            y -= 140 * count / top
            drawing.bar((LEFT + place * step + 2, y), (step - 4, 140 * count / top), kind, tip=f"{at}: {count:,} {name}")
    return drawing.done()


def latency(trend: Trend, zone: tzinfo = UTC) -> Markup:
    """Draw how long runs took in each period, on a scale where each line is ten times the one below."""
    periods = trend.periods
    known = [value for each in periods for value in (each.p50_s, each.p95_s) if value]
    words = f"between {span(min(known))} and {span(max(known))}" if known else "no run has completed"
    drawing = Drawing("latency", f"How long runs took, {trend.range.step_words}", words, height=190, width=HALF)
    low = math.floor(math.log10(max(1e-5, min(known, default=0.01))))
    high = max(low + 1, math.ceil(math.log10(max(1e-5, max(known, default=1.0)))))
    step = _axes(drawing, trend, zone, [(power - low, span(10.0**power)) for power in range(low, high + 1)], high - low)

    def y(value: float) -> float:
        return 160 - 140 * (math.log10(max(1e-5, value)) - low) / (high - low)

    for kind, words, values in (
        (" second", "95 % within", [each.p95_s for each in periods]),
        ("", "half within", [each.p50_s for each in periods]),
    ):
        points = [None if value is None else (LEFT + (place + 0.5) * step, y(value)) for place, value in enumerate(values)]
        for one, other in pairwise(points):
            if one is not None and other is not None:
                drawing.path([one, other], f"line{kind}")
        for each, point, value in zip(periods, points, values, strict=True):
            if point is not None:
                drawing.dot(point, f"dot{kind}", tip=f"{_at(trend, each, zone)}: {words} {span(value)}")
    return drawing.done()


def timeline(ahead: Ahead, zone: tzinfo = UTC) -> Markup:
    """Draw the hours to come: how many due times each has, when the first schedules are due, and where clocks change."""
    lanes: dict[tuple[str, str], list[Coming]] = {}
    for each in ahead.items:
        lanes.setdefault((each.organization, each.schedule), []).append(each)
    shown = list(lanes.values())[:LANES_MAX]
    height = BASE + 26 + 22 * len(shown) + (16 if ahead.changes else 0)
    words = f"{ahead.count:,} due times{' or more' if ahead.more else ''}; the first: " + ", ".join(
        f"{each.schedule} {_hour(each.due_at, zone)}" for each in ahead.items[:5]
    )
    drawing = Drawing("timeline", "The next 24 hours", words, height=height)
    whole = (ahead.end - ahead.start).total_seconds() or 1.0

    def x(at: datetime) -> float:
        return NAMES + (WIDTH - NAMES - 6) * (at - ahead.start).total_seconds() / whole

    _density(drawing, ahead, x, height, zone)
    for place, due in enumerate(shown):
        _lane(drawing, due, x, BASE + 12 + 22 * place, zone)
    for change in ahead.changes:
        at = x(change.at)
        near_end = at > WIDTH - 200
        drawing.line((at, 14), (at, height - 14), "change")
        label = f"{change.timezone}: {change.before} → {change.after}"
        drawing.text((at - 4 if near_end else at + 4, height - 4), label, kind="change-text", anchor="end" if near_end else "start")
    return drawing.done()


def _density(drawing: Drawing, ahead: Ahead, x: Callable[[datetime], float], height: float, zone: tzinfo) -> None:
    """Draw how many due times each hour has, and the hours themselves."""
    top = max((each.count for each in ahead.hours), default=1) or 1
    drawing.text((0, 10), str(zone), kind="hours-of")
    drawing.text((0, BASE - 34), "due times", kind="name")
    drawing.text((0, BASE - 19), f"up to {top:,} an hour{', or more' if ahead.more else ''}")
    for hour in ahead.hours:
        begins, ends = max(hour.begins_at, ahead.start), min(hour.begins_at + timedelta(hours=1), ahead.end)
        tall = 54 * hour.count / top
        tip = f"{_hour(hour.begins_at, zone)}: {hour.count:,} due{' or more' if ahead.more else ''}"
        kind = "hour partial" if ahead.more else "hour"
        drawing.bar((x(begins) + 1, BASE - tall), (x(ends) - x(begins) - 2, tall), kind, tip=tip)
        local = in_zone(hour.begins_at, zone)
        if hour.begins_at >= ahead.start and local.hour % 3 == 0:
            drawing.line((x(begins), 14), (x(begins), height - 4), "grid")
            anchor = "end" if x(begins) > WIDTH - 24 else "middle"
            drawing.text((x(begins), 10), f"{local:%H:%M}", anchor=anchor)
    drawing.line((NAMES, BASE), (WIDTH, BASE), "base")


def _lane(drawing: Drawing, due: Sequence[Coming], x: Callable[[datetime], float], y: float, zone: tzinfo) -> None:
    """Draw the first due times of one schedule, and that more follow."""
    name, last = due[0].schedule, due[-1]
    drawing.text((0, y + 11), cut_name(name), kind="name")
    drawing.bar((NAMES, y), (WIDTH - NAMES - 6, 14), "lane")
    if last.more:
        drawing.bar((x(last.due_at), y + 1), (WIDTH - 6 - x(last.due_at), 12), "rest", tip=f"{name}: {last.more:,} more follow")
        drawing.text((WIDTH - 12, y + 11), f"{last.more:,} more", anchor="end", kind="name")
    times = ", ".join(_hour(each.due_at, zone) for each in due[:12])
    drawing.ticks([x(each.due_at) for each in due], y + 1, 12, tip=f"{name}: {times}")


class Attempt(msgspec.Struct, frozen=True):
    """One bar of a chain: when it was made, began and ended, and in which colour."""

    name: str
    made: datetime
    began: datetime | None
    ended: datetime | None
    status: str


COLOURS = {
    "COMPLETED": "fill-good",
    "FAILED": "fill-warn",
    "TIMED_OUT": "fill-warn",
    "DEAD_LETTER": "fill-bad",
    "CANCELLED": "fill-violet",
    "SKIPPED": "fill-soft",
    "RUNNING": "bar",
}


def chain(attempts: Sequence[Attempt], now: datetime, zone: tzinfo = UTC) -> Markup:
    """Draw the attempts of a chain one below the other: how long each waited, how long it ran."""
    start = min(each.made for each in attempts)
    end = max([each.ended or now for each in attempts] + [start + timedelta(milliseconds=1)])
    whole = (end - start).total_seconds()
    left, height = 90, 22 * len(attempts) + 24
    words = "; ".join(f"{each.name}: {each.status.lower().replace('_', ' ')}" for each in attempts[-5:])
    drawing = Drawing("chain", f"Attempts over {span(whole)}", words, height=height)

    def x(at: datetime) -> float:
        return left + (WIDTH - left - 6) * max(0.0, (at - start).total_seconds()) / whole

    for place, each in enumerate(attempts):
        y = 4 + 22 * place
        begins, ends = each.began or each.ended or now, each.ended or now
        drawing.text((0, y + 11), each.name, kind="name")
        drawing.bar((left, y), (WIDTH - left - 6, 14), "lane")
        waited = (begins - each.made).total_seconds()
        drawing.bar((x(each.made), y + 4), (max(1.0, x(begins) - x(each.made)), 6), "wait", tip=f"waited {span(waited)}")
        if each.began is not None:
            tip = f"{each.status.lower().replace('_', ' ')} after {span((ends - begins).total_seconds())}"
            drawing.bar((x(begins), y), (max(3.0, x(ends) - x(begins)), 14), COLOURS.get(each.status, "bar"), tip=tip)
    for part in range(5):
        at = start + (end - start) * part / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        drawing.text((x(at), height - 3), f"+{span(whole * part / 4)}" if part else f"{in_zone(start, zone):%H:%M:%S %Z}", anchor=anchor)
    return drawing.done()


def _axes(drawing: Drawing, trend: Trend, zone: tzinfo, marks: Sequence[tuple[float, str]], top: float) -> float:
    """Draw a scale with these marks, and times below it; return the width of a period."""
    for value, words in marks:
        y = 160 - 140 * value / top
        drawing.line((LEFT, y), (HALF, y), "base" if value == 0 else "grid")
        drawing.text((LEFT - 6, y + 4), words, anchor="end")
    step = (HALF - LEFT) / max(1, len(trend.periods))
    every_s = LABELS_S[trend.range.name]
    for place, each in enumerate(trend.periods):
        local = in_zone(each.begins_at, zone)
        if local.replace(tzinfo=UTC).timestamp() % every_s == 0:
            words = f"{local:%m-%d}" if every_s >= DAY_S else f"{local:%H:%M}"
            drawing.text((min(LEFT + (place + 0.5) * step, HALF - 18), 176), words, anchor="middle")
    drawing.text((0, 176), "/".join(dict.fromkeys(f"{in_zone(each.begins_at, zone):%Z}" for each in trend.periods)), kind="hours-of")
    return step


def _at(trend: Trend, period: Period, zone: tzinfo) -> str:
    at = period.begins_at
    return f"{in_zone(at, zone):%m-%d %H:%M %Z}" if trend.range.length_s > DAY_S else _hour(at, zone)


def _hour(at: datetime, zone: tzinfo) -> str:
    """Return the time of day of a moment."""
    return f"{in_zone(at, zone):%H:%M %Z}"


def round_top(value: float) -> float:
    """Return a round number that is not below this one."""
    power = 10.0 ** math.floor(math.log10(max(1.0, value)))
    return next(power * factor for factor in (1, 2, 5, 10) if value <= power * factor)


def short_number(value: float) -> str:
    """Return a number that fits beside a scale."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def cut_name(name: str, most: int = 24) -> str:
    """Return a name that fits into a picture."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _tip(words: str) -> Markup:
    return Markup("<title>{}</title>").format(words) if words else Markup("")


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
