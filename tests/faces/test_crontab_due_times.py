"""Generated crontabs: every line is due when cron's own rules say, in UTC and in zones whose clock jumps.

Three judges: a walk over the days with the bit sets of Vixie cron, cronsim, and the rule of docs/internals/time.md for the hours that a
clock jumps over or repeats.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import takewhile
from random import Random
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from rota.compat.crontab import CrontabEntry, read_crontab
from rota.model.cron import MACROS, due_times, read_cron
from rota.model.zones import spans
from tests.support.proof import proving, size

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Asia/Kolkata"]
HALF_HOUR = "Australia/Lord_Howe"
"""Where cronsim, which steps by whole hours, loses due times of the rest of the day on which the clock jumps by half an hour."""
FIRST, LAST = datetime.fromisoformat("2026-01-01"), datetime.fromisoformat("2027-01-01")
YEAR = [date(2026, 1, 1) + timedelta(days=day) for day in range(365)]
DUE_MAX = 20_000 if proving() else 1500
"""Due times of a line in a year, at most: cronsim takes a second for 70,000."""
AROUND_S = 4 * 3600
"""How far from a jump of the clock the due times are those of every cron."""
CRONTABS = size(8, prove=200)
NAMES = {
    3: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    4: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]

# ---- generated crontabs -----------------------------------------------------------------------------------------------------


def crontab(rng: Random) -> tuple[str, list[tuple[str, str, str]]]:
    """Return a crontab, and the expression, zone and command of each line that runs something."""
    lines, expected, zone = [], [], "UTC"
    for number in range(rng.randint(1, 6)):
        lines += rng.sample(["", "# a remark", "  # 0 0 * * * x", "A = 'b c'", "MAILTO=''"], rng.randint(0, 2))
        if rng.random() < 0.6:
            zone = rng.choice(ZONES)
            quote = rng.choice(["", "'", '"'])
            lines.append(f"CRON_TZ{rng.choice(['=', ' = '])}{quote}{zone}{quote}")
        times, command = expression(rng), rng.choice(["/bin/run a", "cd / && run", r"date +\%F"])
        blanks = [rng.choice([" ", "\t", "  "]) for _ in times.split()]
        lines.append(rng.choice(["", " "]) + "".join(map("".join, zip(times.split(), blanks, strict=True))) + f"{command} {number}")
        expected.append((times, zone, f"{command} {number}".replace("\\", "")))
    return "\n".join(lines) + rng.choice(["", "\n"]), expected


def expression(rng: Random) -> str:
    """Return an expression of cron that is due, though not too often."""
    if rng.random() < 0.1:
        return rng.choice([each for each in MACROS if DUE_MAX > 8760 or each != "@hourly"])
    while True:
        times = " ".join(field(rng, place) for place in range(5))
        minutes, hours, days = vixie(times)
        if 0 < len(minutes) * len(hours) * len(days) <= DUE_MAX:
            return times


def field(rng: Random, place: int) -> str:
    if rng.random() < (0.15, 0.4, 0.4, 0.6, 0.5)[place]:
        return "*"
    return ",".join(term(rng, place) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def term(rng: Random, place: int) -> str:
    low, high = RANGES[place]
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    # cronsim takes a range of one with a step for one that has no end; Rota does not: see tests/model/test_cron.py.
    step = f"/{rng.randint(1, max(1, last - low))}"
    names = [name.upper() if rng.random() < 0.3 else name for name in NAMES.get(place, ())]

    def value(number: int) -> str:
        return names[number - low] if number - low < len(names) and rng.random() < 0.4 else str(number)

    match rng.randint(0, 4):
        case 0:
            return f"*/{rng.randint(1, high - low)}"
        case 1:
            return f"{value(first)}-{value(last)}" + (step if first < last and rng.random() < 0.5 else "")
        case _:
            return value(first)


# ---- the rules of Vixie cron ------------------------------------------------------------------------------------------------


def vixie(times: str) -> tuple[set[int], set[int], list[date]]:
    """Return the minutes, hours and days of a year of an expression: sets of bits, and a mark for fields that begin with a star."""
    fields = MACROS.get(times.lower(), times).lower().split()
    minutes, hours, doms, months, dows = (bits(text, place) for place, text in enumerate(fields))
    stars = fields[2].startswith("*") or fields[4].startswith("*")

    def is_due(day: date) -> bool:
        dom, dow = day.day in doms, not dows.isdisjoint({day.isoweekday(), day.isoweekday() % 7})
        return day.month in months and ((dom and dow) if stars else (dom or dow))

    return minutes, hours, [day for day in YEAR if is_due(day)]


def bits(text: str, place: int) -> set[int]:
    low, high = RANGES[place]
    found: set[int] = set()
    for each in text.split(","):
        base, _, step = each.partition("/")
        first, _, last = ("", "", "") if base == "*" else base.partition("-")
        numbers = [NAMES[place].index(one) + low if one.isalpha() else int(one) for one in (first, last or first) if one]
        start, stop = numbers or (low, high)
        found.update(range(start, stop + 1, int(step or 1)))
    return found


# ---- due times --------------------------------------------------------------------------------------------------------------


def ours(one: CrontabEntry, zone: ZoneInfo) -> tuple[list[int], list[int]]:
    """Return when Rota says that a line is due in the local year, and the times that it says were jumped over."""
    first, last = (int(at.replace(tzinfo=zone).timestamp()) for at in (FIRST, LAST))
    dues = list(due_times(read_cron(one.cron), zone, first - 1, last - 1))
    return [due.at for due in dues if not due.gap], [due.at for due in dues if due.gap]


def simulated(cron: str, start: datetime) -> Iterator[datetime]:
    """Go through the due times of cronsim in the year."""
    return takewhile(lambda at: at.year == FIRST.year, CronSim(MACROS.get(cron, cron), start - timedelta(minutes=1)))


def by_the_rule(cron: str, zone: ZoneInfo) -> tuple[list[int], list[int]]:
    """Return the due times by the rule for zones: what is jumped over does not happen, what is repeated happens at the first time.

    `*` in the hour field is a cadence: it happens at every such minute that there is.
    """
    cadence = MACROS.get(cron, cron).split()[1] in {"*", "*/1"}
    real, jumped = set(), []
    for local in simulated(cron, FIRST):
        first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == local:
            real |= {int(first.timestamp()), int(second.timestamp())} if cadence else {int(first.timestamp())}
        elif not cadence:
            jumped.append(int(first.timestamp()))
    return sorted(real), sorted(jumped)


def away_from_jumps(moments: list[int], zone: ZoneInfo) -> list[int]:
    edges = [span.start for span in spans(zone, int(FIRST.timestamp()) - 86_400, int(LAST.timestamp()) + 86_400)][1:]

    def near(at: int) -> bool:
        place = bisect_left(edges, at)
        return any(abs(at - edge) <= AROUND_S for edge in edges[max(0, place - 1) : place + 1])

    return [at for at in moments if not near(at)]


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(CRONTABS))
def test_every_line_of_a_generated_crontab_is_due_when_cron_says(seed):
    text, expected = crontab(Random(seed))
    found = read_crontab(text, system=False)
    assert not found.problems
    assert not found.notices
    assert [(one.cron, one.timezone or "UTC", one.command) for one in found.entries] == expected
    for one in found.entries:
        minutes, hours, days = vixie(one.cron)
        times = [time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
        walk = [datetime.combine(day, each) for day in days for each in times]
        assert list(simulated(one.cron, FIRST)) == walk
        assert ours(one, ZoneInfo("UTC")) == ([int(at.replace(tzinfo=UTC).timestamp()) for at in walk], [])
        zone = ZoneInfo(one.timezone or "UTC")
        real, jumped = by_the_rule(one.cron, zone)
        assert ours(one, zone) == (real, jumped)
        if zone.key == HALF_HOUR:
            continue
        aware = [int(at.timestamp()) for at in simulated(one.cron, FIRST.replace(tzinfo=zone))]
        assert away_from_jumps(real, zone) == away_from_jumps(aware, zone)


def test_the_generated_crontabs_have_what_is_read_differently_elsewhere():
    read = [one for seed in range(CRONTABS) for one in read_crontab(crontab(Random(seed))[0], system=False).entries]
    fields = [MACROS.get(one.cron, one.cron).split() for one in read]
    assert any(ours(one, ZoneInfo(one.timezone or "UTC"))[1] for one in read), "no time that a clock jumps over"
    assert any(hour in {"*", "*/1"} for _, hour, *_ in fields), "no cadence"
    assert any(dom.startswith("*/") and dow != "*" for *_, dom, _, dow in fields), "no step in place of the star of days"
