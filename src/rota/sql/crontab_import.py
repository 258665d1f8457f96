"""The import of crontabs: every line becomes a job that runs a command, all of them in one transaction."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, count

import msgspec
from msgspec import UNSET

from rota.compat.crontab import CrontabEntry, LineNotice, read_crontab
from rota.compat.crontab_commands import ENV, SHELLS, base_name, words_of
from rota.compat.import_report import Bad
from rota.declarations import synced
from rota.model.checks import check_name
from rota.model.cron import gaps, read_cron
from rota.model.gate import Right, Scope
from rota.model.schedule_options import NAME_MAX
from rota.model.schedules import CatchUp, JobKind, Kind, Overlap, Schedule, ScheduleState, Timing
from rota.model.templates import TEXT_MAX
from rota.model.values import SECOND
from rota.model.words import in_words
from rota.model.zones import zone_of
from rota.operation import Ask, View, ask_for
from rota.sql.render import render
from rota.sql.run import run
from rota.sql.syntax import AlterJob, Clauses, CreateJob, ExecBody, OnCronLine

YEAR_S = 366 * 86_400
ALLOWLIST = "ROTA_EXTERNAL_FILE"
"""The variable that names the file of the programs that workers may run."""
AS_CRON = (
    "as in cron, the new jobs are not retried, have no time limit, may overlap and are not caught up after a time without workers: "
    "ALTER JOB … SET MAX_RETRIES, TIMEOUT, OVERLAP or CATCH_UP changes that"
)
ENABLED = (
    "the new jobs are ENABLED, and workers that may run their programs run them from the next due time on: "
    "remove their lines from the crontab before that, or cron runs them too; --disabled creates jobs that are not due"
)
DISABLED = "the new jobs are DISABLED and not due: remove a line from the crontab, then ENABLE JOB its job"


class LineOutcome(StrEnum):
    """What an import does with a line that can be taken."""

    NEW = "new"
    """Its job is not there, and was not created: it is a dry run, or another line can't be taken."""
    CREATED = "created"
    EXISTS = "exists"
    """There is such a job already."""
    DIFFERS = "differs"
    """There is a job of this command that is due at other times. It is left as it is."""


class CrontabJob(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a crontab and its job."""

    line: int
    name: str
    cron: str
    timezone: str
    when: str
    """In words."""
    command: str
    user: str | None
    """The user that cron ran it as, in a system crontab."""
    outcome: LineOutcome = LineOutcome.NEW
    remark: str = ""


class ImportedCrontab(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an import, or the one that it would have."""

    jobs: list[CrontabJob]
    problems: list[Bad]
    """Lines that can't be taken."""
    notices: list[LineNotice]
    timezone: str
    zoneless: list[int]
    """New lines without CRON_TZ, which are due in `timezone`."""
    written: bool
    """False: a dry run, or lines that can't be taken and were not to be left out."""
    dry_run: bool

    @property
    def complete(self) -> bool:
        """Whether everything in the crontab is now, or would be, in the store."""
        return not self.problems and not any(job.outcome is LineOutcome.DIFFERS for job in self.jobs)


def import_crontab(
    view: View,
    text: str,
    *,
    source: str,
    timezone: str,
    system: bool = False,
    prefix: str = "",
    user: str | None = None,
    disabled: bool = False,
    skip: bool = False,
    dry_run: bool = False,
) -> ImportedCrontab:
    """Create a job for each line of a crontab that has none yet: all of them, or none.

    `source` is what the jobs' descriptions call the crontab, `timezone` the zone of lines without CRON_TZ, `user` the one that workers
    run commands as. Nothing is written if a line can't be taken, unless `skip`.
    """
    zone = zone_of(timezone).key
    ask = ask_for(view, Right.CREATE_JOBS)
    ask.also(Right.EXTERNAL)
    crontab = read_crontab(text, system=system)
    jobs = _matched([_job(entry, zone) for entry in crontab.entries], ask, prefix)
    new = [job for job in jobs if job.outcome is LineOutcome.NEW]
    writes = not dry_run and (skip or not crontab.problems)
    notices = [*crontab.notices, *_notices(new, ask.now // SECOND, user, disabled=disabled)]
    if writes and new:
        script = "\n".join(render(_statement(job, source, disabled=disabled)) for job in new)
        results = run(view, script, atomic=True)
        notices += [LineNotice((), notice.message) for result in results for notice in result.notices]
        jobs = [msgspec.structs.replace(job, outcome=LineOutcome.CREATED) if job.outcome is LineOutcome.NEW else job for job in jobs]
    bare = {entry.line for entry in crontab.entries if entry.timezone is None}
    return ImportedCrontab(
        jobs=jobs,
        problems=list(crontab.problems),
        notices=notices,
        timezone=zone,
        zoneless=[job.line for job in new if job.line in bare],
        written=writes,
        dry_run=dry_run,
    )


def _job(entry: CrontabEntry, zone: str) -> CrontabJob:
    zone = entry.timezone or zone
    when = in_words(Timing(kind=Kind.CRON, cron=entry.cron, timezone=zone))
    command = shlex.join(words_of(entry))
    return CrontabJob(line=entry.line, name=base_name(entry), cron=entry.cron, timezone=zone, when=when, command=command, user=entry.user)


def _statement(job: CrontabJob, source: str, *, disabled: bool) -> CreateJob:
    """Return the statement that creates a job which runs as it did in cron."""
    where = f", line {job.line}" + (f", user {job.user}" if job.user else "")
    clauses = Clauses(
        schedule=OnCronLine(job.cron),
        timezone=job.timezone,
        catch_up=CatchUp.NONE,
        overlap=Overlap.ALLOW,
        max_retries=0,
        timeout=0,
        # Not the line itself: it may hold passwords, and descriptions are seen by all who may see the job.
        description=f"Imported from {source[: TEXT_MAX // 2]}{where}",
        state=ScheduleState.DISABLED if disabled else UNSET,
        body=ExecBody(job.command),
    )
    return CreateJob(job.name, clauses)


# ---- what is there ----------------------------------------------------------------------------------------------------------


def _matched(jobs: Sequence[CrontabJob], ask: Ask, prefix: str) -> list[CrontabJob]:
    """Return the jobs under the names of those that are there, or else under free names that begin with the prefix."""
    store = synced(ask.session)
    here = store.schedules(scope=Scope(ask.within(None).organization))
    commands = [each for each in here if each.name.startswith(prefix) and _shows_command(ask, each)]
    same = _paired(jobs, commands, same_times=True)
    used = {each.id for each in same.values()}
    left, unused = [job for job in jobs if job.line not in same], [each for each in commands if each.id not in used]
    other = _paired(left, unused, same_times=False)
    taken = {each.name for each in here} | {known.name for known in ask.registry.known()}
    return [_named(job, same.get(job.line), other.get(job.line), prefix, taken) for job in jobs]


def _shows_command(ask: Ask, schedule: Schedule) -> bool:
    """Say whether a job is a command that the actor may see: one that it may change."""
    if schedule.own is None or schedule.own.kind is not JobKind.EXTERNAL:
        return False
    scope = ask.may(Right.ALTER_JOBS)
    return scope is not None and scope.holds(schedule.organization, schedule.created_by, schedule.id)


def _paired(jobs: Iterable[CrontabJob], there: Iterable[Schedule], *, same_times: bool) -> dict[int, Schedule]:
    """Return by line the job that is there for it, each of them once."""
    waiting: dict[tuple[str | None, ...], list[Schedule]] = {}
    for each in there:
        command = each.own.body if each.own is not None else None
        times = _times(each.timing.cron, each.timing.timezone) if same_times else ()
        waiting.setdefault((command, *times), []).append(each)
    found: dict[int, Schedule] = {}
    for job in jobs:
        candidates = waiting.get((job.command, *(_times(job.cron, job.timezone) if same_times else ())))
        if candidates:
            found[job.line] = candidates.pop(0)
    return found


def _times(cron: str | None, timezone: str) -> tuple[str | None, str]:
    """Return what tells two crons apart, however their letters are written."""
    return (None if cron is None else read_cron(cron).plain), timezone


def _named(job: CrontabJob, same: Schedule | None, other: Schedule | None, prefix: str, taken: set[str]) -> CrontabJob:
    """Return a job with its name and its outcome; a new name is taken from then on."""
    if same is not None:
        return msgspec.structs.replace(job, name=same.name, outcome=LineOutcome.EXISTS)
    if other is not None:
        change = render(AlterJob(other.name, Clauses(schedule=OnCronLine(job.cron), timezone=job.timezone))).replace("\n ", "")
        remark = f"job {other.name} runs this command {in_words(other.timing)} and was left as it is; to change it: {change}"
        return msgspec.structs.replace(job, name=other.name, outcome=LineOutcome.DIFFERS, remark=remark)
    wanted = f"{prefix}{job.name}"
    check_name(wanted, "job", NAME_MAX)
    name = next(name for name in chain([wanted], (f"{wanted}_{number}" for number in count(2))) if name not in taken)
    taken.add(name)
    return msgspec.structs.replace(job, name=name)


# ---- what there is to know --------------------------------------------------------------------------------------------------


def _notices(new: Sequence[CrontabJob], now_s: int, user: str | None, *, disabled: bool) -> Iterator[LineNotice]:
    """Go through what differs from cron, and what workers need to run the new jobs."""
    yield from _gap_notices(new, now_s)
    for each, theirs in _by(new, lambda job: job.user or "").items():
        if each not in {"", user}:
            yield LineNotice(theirs, f"run as {each} by cron: Rota runs all commands as the user that its workers are configured with")
    for program, theirs in _by(new, lambda job: shlex.split(job.command)[0]).items():
        yield LineNotice(theirs, f"{program} must be on the allowlist of the workers ({ALLOWLIST}){_extent(program)}")
    if new:
        yield LineNotice((), AS_CRON)
        yield LineNotice((), DISABLED if disabled else ENABLED)


def _extent(program: str) -> str:
    """Say how much a program on the allowlist allows."""
    if program == ENV or program.rpartition("/")[2] in SHELLS:
        return ": it runs the rest of the line, so every user who may create commands can run anything"
    return ""


def _gap_notices(new: Iterable[CrontabJob], now_s: int) -> Iterator[LineNotice]:
    """Name the lines with times that the clock of their zone jumps over within a year."""
    jumped = [job for job in new if next(gaps(read_cron(job.cron), zone_of(job.timezone), now_s, now_s + YEAR_S), None) is not None]
    for zone, lines in _by(jumped, lambda job: job.timezone).items():
        text = (
            f"due at times that the clock of {zone} jumps over: Rota skips and records these, cron runs most of them right after the jump"
        )
        yield LineNotice(lines, text)


def _by(jobs: Iterable[CrontabJob], key: Callable[[CrontabJob], str]) -> dict[str, tuple[int, ...]]:
    """Return the lines of jobs by something that they have."""
    lines: dict[str, tuple[int, ...]] = {}
    for job in jobs:
        lines[key(job)] = (*lines.get(key(job), ()), job.line)
    return lines
