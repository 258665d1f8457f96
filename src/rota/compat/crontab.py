"""Crontabs, read line by line as cron reads them: what each line runs and when, what can't be taken, and what is different here.

The rules are those of Vixie cron and its heirs (Debian's cron, cronie, the BSDs). Environment lines hold for the lines below them. Values
are taken as they are written: cron expands nothing. A backslash keeps a percent sign in the command; a bare one ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from rota.compat.import_report import Bad
from rota.errors import InvalidImport, InvalidSchedule
from rota.model.cron import FIELDS, MACROS, read_cron
from rota.model.zones import known_zone

if TYPE_CHECKING:
    from rota.model.cron import CronField

SHELL = "/bin/sh"
CRON_MAX_CHARS = 1000
"""Longest expression that a job may have."""
MAIL = frozenset({"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"})
NOT_CARRIED = MAIL | {"SHELL", "CRON_TZ", "LOGNAME", "RANDOM_DELAY"}
"""Variables that are for cron itself, or that cron sets whatever a crontab says."""
NO_MAIL = "Rota sends no mail; use a webhook (`rota webhook create`) or a hook (`rota.on.failed`)"


class LineNotice(msgspec.Struct, frozen=True):
    """Something to know about lines that are imported all the same."""

    lines: tuple[int, ...]
    text: str


class CrontabEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line that runs a command."""

    line: int
    cron: str
    command: str
    """As the shell gets it."""
    timezone: str | None = None
    """That of CRON_TZ; None: the machine's."""
    user: str | None = None
    """Of a system crontab."""
    shell: str = SHELL
    environment: dict[str, str] = {}
    """The variables set above the line that its command is to see."""


class Crontab(msgspec.Struct, frozen=True):
    """A crontab, read."""

    entries: tuple[CrontabEntry, ...]
    problems: tuple[Bad, ...]
    """Lines that can't be taken."""
    notices: tuple[LineNotice, ...]


def read_crontab(text: str, *, system: bool) -> Crontab:
    """Read a crontab. In a system one (/etc/crontab, /etc/cron.d) each line names a user before its command."""
    reader = _Reader(system=system)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        try:
            reader.take(number, line)
        except InvalidImport as error:
            reader.problems.append(Bad(number, str(error)))
    notices = tuple(LineNotice(tuple(lines), remark) for remark, lines in reader.remarks.items())
    return Crontab(tuple(reader.entries), tuple(reader.problems), notices)


class _Reader:
    """A crontab while it is read: the variables that hold, and what was found so far."""

    def __init__(self, *, system: bool) -> None:
        self.system = system
        self.variables: dict[str, str] = {}
        self.entries: list[CrontabEntry] = []
        self.problems: list[Bad] = []
        self.remarks: dict[str, list[int]] = {}

    def take(self, number: int, line: str) -> None:
        """Read one line; raises InvalidImport."""
        text = line.removesuffix("\r").lstrip(_BLANKS)
        if not text or text.startswith("#"):
            return
        if line.endswith("\r"):
            self._remark(number, "the lines end with CR LF: the CR, which cron would pass to the commands, is left out")
        if _UNSTORABLE.search(text):
            raise InvalidImport("it has a NUL character, or is not UTF-8")
        assignment = _ASSIGNMENT.fullmatch(text)
        if assignment is not None:
            name, value = (next(each for each in pair if each is not None) for pair in (assignment.groups()[:3], assignment.groups()[3:]))
            self._set(number, name, value)
        else:
            self.entries.append(self._entry(number, text))

    def _remark(self, number: int, text: str) -> None:
        lines = self.remarks.setdefault(text, [])
        if number not in lines:
            lines.append(number)

    # ---- environment lines ----------------------------------------------------------------------------------------------

    def _set(self, number: int, name: str, value: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidImport(f"{name!r:.60} is not the name of a variable: use letters, digits and underscores")
        self.variables[name] = value
        if name == "CRON_TZ":
            _zone(value)
        elif name == "SHELL" and not value.startswith("/"):
            raise InvalidImport(f"SHELL={value:.60} is not an absolute path, which commands of jobs need, such as {SHELL}")
        for remark in _remarks_on(name, value):
            self._remark(number, remark)

    # ---- lines that run something ---------------------------------------------------------------------------------------

    def _entry(self, number: int, text: str) -> CrontabEntry:
        # cronie: a dash before the line keeps its runs out of the system's log.
        cron, rest = _times_and_rest(text.removeprefix("-"))
        user, written = self._user_and_command(rest)
        command = _unescaped(written)
        zone, shell = _zone(self.variables.get("CRON_TZ", "")), self.variables.get("SHELL", SHELL)
        if not shell.startswith("/"):
            raise InvalidImport(f"its shell is SHELL={shell:.60}, which is not an absolute path")
        for difference in _differences(cron):
            self._remark(number, difference)
        return CrontabEntry(
            line=number,
            cron=cron,
            command=command,
            timezone=zone,
            user=user,
            shell=shell,
            environment={name: value for name, value in self.variables.items() if name not in NOT_CARRIED},
        )

    def _user_and_command(self, rest: str) -> tuple[str | None, str]:
        """Return the user of a line and its command, or refuse it where one is in the place of the other."""
        first, more = _halves(rest)
        _refuse_time_field(first, more)
        if not self.system:
            if first == "root" and more:
                raise InvalidImport("'root' looks like the user of a system crontab: pass --system (system=True) for such a file")
            _refuse_flag(first)
            return None, rest
        if not _USER.fullmatch(first):
            raise InvalidImport(f"{first!r:.60} is not the name of a user: leave out --system (system=True) if the lines name no user")
        if not more:
            raise InvalidImport(f"there is no command after the user {first}")
        _refuse_flag(more)
        return first, more


_BLANKS = " \t"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")
_ASSIGNMENT = re.compile(
    r"""(?: "([^"=]*)" | '([^'=]*)' | ([^\s"'=][^\s=]*) )  \s* = \s*  (?: "([^"]*)" | '([^']*)' | ((?:[^\s"'].*?)?) )  \s*""",
    re.VERBOSE | re.ASCII,
)
_BROKEN_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\s*=", re.ASCII)
_WEEKDAY = "sun|mon|tue|wed|thu|fri|sat"
_TIME_FIELD = re.compile(rf"(?:[*?]|\d+|{_WEEKDAY})(?:[-,/#](?:\*|\d+|{_WEEKDAY}))*", re.IGNORECASE)
_TO_SUNDAY = re.compile(r"([1-6]|mon|tue|wed|thu|fri|sat)-(?:0|sun)", re.IGNORECASE)
_HASHED = re.compile(r"h(?:[(/].*)?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)|%", re.DOTALL)
_SECRET = re.compile(r"PASSW|SECRET|TOKEN|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


def _halves(text: str) -> tuple[str, str]:
    """Return the first word of a text, and what follows the blanks after it."""
    first, *rest = re.split(r"[ \t]+", text, maxsplit=1)
    return first, "".join(rest)


def _zone(value: str) -> str | None:
    """Return the zone that CRON_TZ names, None for the machine's, or refuse it."""
    if not value:
        return None
    zone = known_zone(value.removeprefix(":"))
    if zone is None:
        raise InvalidImport(f"CRON_TZ={value:.60} is not an IANA time zone: use a name such as Europe/Berlin")
    return zone.key


def _remarks_on(name: str, value: str) -> Iterator[str]:
    """Go through what there is to say about a variable."""
    if name == "MAILTO" and value:
        yield f"MAILTO={value}: {NO_MAIL}"
    elif name in MAIL - {"MAILTO"}:
        yield f"{name} is left out: it is for cron's mail"
    elif name == "RANDOM_DELAY" and value.strip("0"):
        yield f"RANDOM_DELAY={value} is left out: ALTER JOB … SET JITTER = {value} MINUTES delays a job in the same way"
    elif name == "TZ":
        yield f"TZ={value} is passed to the commands and does not change when they are due, as in cron: pass --timezone for that"
    if name not in NOT_CARRIED and value and _SECRET.search(name):
        yield f"{name} looks like a secret, and becomes part of the job's command: remove it from the crontab and use a secret of Rota's"


def _times_and_rest(text: str) -> tuple[str, str]:
    """Return the expression of a line, checked, and what follows it."""
    if text.startswith("@"):
        nickname, rest = _halves(text)
        cron = _nickname(nickname)
        if not rest:
            raise InvalidImport(f"there is no command after {nickname}")
        return cron, rest
    words = re.split(r"[ \t]+", text, maxsplit=5)
    if _BROKEN_ASSIGNMENT.match(text):
        raise InvalidImport(f"the quotes of the value of {text.partition('=')[0].strip():.60} do not match")
    if len(words) < 6 or not words[5]:
        raise InvalidImport(f"{text!r:.60} is not a line of a crontab: five fields and a command are needed")
    fields = words[:5]
    for field in fields:
        _refuse_unpredictable(field)
    fields[4] = ",".join(_TO_SUNDAY.sub(r"\1-7", term) if _TO_SUNDAY.fullmatch(term) else term for term in fields[4].split(","))
    cron = " ".join(fields)
    if len(cron) > CRON_MAX_CHARS:
        raise InvalidImport(f"its times take {len(cron):,} characters; at most {CRON_MAX_CHARS:,} are allowed")
    try:
        read_cron(cron)
    except InvalidSchedule as error:
        raise InvalidImport(str(error)) from None
    return cron, words[5]


def _nickname(word: str) -> str:
    known = word.lower()
    if known == "@reboot":
        raise InvalidImport("@reboot is not taken: Rota knows times, not starts of a machine; use a service of the system instead")
    if known not in MACROS:
        raise InvalidImport(f"{word!r:.60} is not one of {', '.join(MACROS)}")
    return known


def _refuse_unpredictable(field: str) -> None:
    """Refuse fields whose value cron chooses."""
    if "~" in field:
        raise InvalidImport(f"{field!r:.60} is a random time, which cron chooses when it starts: use a fixed one; JITTER varies its start")
    if any(_HASHED.fullmatch(term) for term in field.split(",")):
        raise InvalidImport(f"{field!r:.60} is a time that Jenkins chooses from the job's name: use a fixed one")


def _refuse_time_field(word: str, more: str) -> None:
    if _TIME_FIELD.fullmatch(word) and (more or not word.isalpha()):
        raise InvalidImport(f"{word!r:.60} is a sixth field of times: seconds and years are not part of a crontab")


def _refuse_flag(command: str) -> None:
    if command.startswith("-"):
        raise InvalidImport(f"{_halves(command)[0]!r:.60} is an option of another cron, which Rota does not have: remove it")


def _unescaped(command: str) -> str:
    r"""Return a command as the shell gets it: `\%` is a percent sign."""
    if any(found[0] == "%" for found in _ESCAPED.finditer(command)):
        raise InvalidImport(
            "'%' ends the command, and what follows it is its standard input, which jobs do not have: write \\% for a percent sign, "
            "or let the command read a file"
        )
    return _ESCAPED.sub(lambda found: "%" if found[1] == "%" else found[0], command)


# ---- what other readers make of an expression -----------------------------------------------------------------------------


def _differences(cron: str) -> Iterator[str]:
    """Go through the parts of an expression that Rota and cron read differently, or that cron does not know."""
    if cron.startswith("@"):
        return
    for field, text in zip(FIELDS, cron.upper().split(), strict=True):
        for term in text.split(","):
            difference = _difference(field, term)
            if difference is not None:
                yield f"{field.name} {term}: {difference}"


def _difference(field: CronField, term: str) -> str | None:
    base, slash, step = term.partition("/")
    if field.specials and re.fullmatch(f"{field.specials}|({'|'.join(field.words) or '-'})L", base):
        return "Rota understands it, cron does not"
    if not slash:
        return None
    low, dash, high = base.partition("-")
    if base != "*" and not dash:
        return f"Rota takes it as {base}-{field.high}/{step}; cron refuses the step or ignores it"
    first, last = (field.low, field.high) if base == "*" else (field.number(low), field.number(high))
    if first < last and int(step) > last - field.low:
        return f"the step is larger than the range: Rota takes {first} alone, as cronie does; newer Vixie cron takes every value"
    return None
