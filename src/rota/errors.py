"""Every error Rota raises, as one tree.

    RotaError
    ├── InvalidInput            the caller's value was refused before anything was written
    │   ├── InvalidName
    │   ├── InvalidParams       not JSON, or not what the handler takes
    │   ├── PayloadTooLarge
    │   ├── InvalidOption       a setting, option or keyword out of its range
    │   ├── InvalidHandler      a handler that could never run
    │   ├── UnknownTemplate
    │   ├── TemplateUnavailable disabled or archived
    │   ├── UnknownOrganization
    │   ├── OrganizationUnavailable suspended or removed
    │   ├── UnknownParent       a dependency on a job that this organization does not have
    │   ├── DependencyCycle     jobs that would wait for each other; names the path
    │   ├── InvalidSchedule     a cron, zone, interval or window that can't be; names the field
    │   ├── InvalidProgress     progress that is not a number
    │   ├── InvalidDefinition   a definitions file that can't be taken; names file and place
    │   ├── InvalidImport       a line of an import that can't be taken; names its number
    │   ├── SqlError            a SQL statement that can't be read or carried out; has its SQLSTATE and its place
    │   └── DuplicateId         an id that belongs to another job already
    ├── Unauthenticated         no token, or one that opens nothing
    ├── TooManyAttempts         too many wrong tokens from one place; says when to try again
    ├── PermissionDenied        this actor may not do that (also a PermissionError)
    ├── NotFound                no job, group or worker of that id, or none that this actor may see
    ├── Refused                 the thing exists, but its state does not allow this
    │   ├── IllegalMove         a move the table of states does not have
    │   ├── AlreadyEnded        the chain has ended; names the end
    │   ├── StillLive           the chain is live; names the live job
    │   ├── KeyTaken            the unique key belongs to another chain
    │   ├── DuplicateJob        the same params inside the template's dedup window; names the job
    │   ├── RateLimited         too many submissions inside the window; says when to try again
    │   │   └── TooManyListeners  as many listen to live events as may at a time
    │   ├── QueueFull
    │   ├── TemplateInUse       a template that has jobs can't be deleted
    │   ├── ScheduleExists      a schedule of that name is there already
    │   ├── ChangedMeanwhile    it has another version than the caller has seen; says which
    │   ├── StillNeeded         a chain that others wait for can't be discarded
    │   ├── ClockInDoubt        a clock far past the one before deletes nothing by age; names both moments
    │   ├── GroupRefused        a job that cannot join this group
    │   ├── ResourceBusy        nobody can run a direct execution now, or it found no slot in time; names the reason or the holder
    │   ├── CopyRefused         a store that can't be copied as it stands, or not to there
    │   ├── SecretUnavailable   no master key to encrypt or open a secret with; names the key
    │   └── TransactionMisuse   a transaction used where it cannot be
    ├── JobFailed               the chain failed permanently, so it has no result; has the job, its run and the traceback
    ├── JobCancelled            the chain was cancelled, so it has no result
    ├── JobSkipped              the chain was skipped, so it has no result
    ├── WaitTimeout             the chain had not ended when the wait was over (also a TimeoutError)
    └── StoreError              the store itself
        ├── StoreUnusable       wrong file, no permission, made by a newer Rota
        │   └── StoreMoved      what it held was moved elsewhere; says where
        ├── StoreBusy           another process held the write lock for too long
        └── StoreUnavailable    disk full, I/O error, a server that is away: nothing was written
            ├── StoreFileLost   the SQLite file was deleted, renamed or replaced while it was open
            └── AnswerLost      the server or the file was lost during a commit: it may be written or not

What a *handler* raises to steer its own end is not an error of ours and stands in `rota.model.signals`.
Each class has a `code`, stable across releases; `docs/reference/errors.md` is tested against this tree.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple


class RotaError(Exception):
    """The root: `except RotaError` catches everything Rota refuses or fails to do."""

    code: ClassVar[str] = "error"
    members: ClassVar[tuple[str, ...]] = ()
    """Attributes that an answer over HTTP has as members of its problem."""
    item: int | None = None
    """Of a bulk call: the first item that it is about."""
    accepted: int | None = None
    """Of a bulk call: how many jobs it had taken in."""


class InvalidInput(RotaError, ValueError):
    """A value from the caller was refused; nothing was written."""

    code = "invalid_input"


class InvalidName(InvalidInput):
    """A name is empty, too long, or has characters that names can't have."""

    code = "invalid_name"


class InvalidParams(InvalidInput):
    """Params that JSON can't hold, or that the handler does not take."""

    code = "invalid_params"


class PayloadTooLarge(InvalidInput):
    """Params over the payload limit."""

    code = "payload_too_large"


class InvalidOption(InvalidInput):
    """An option, setting or keyword has a value that is not allowed."""

    code = "invalid_option"


class InvalidHandler(InvalidInput):
    """A handler that is not callable, not importable or of a signature that can't be called."""

    code = "invalid_handler"


class UnknownTemplate(InvalidInput):
    """No template of this name is known here."""

    code = "unknown_template"


class TemplateUnavailable(InvalidInput):
    """The template exists but takes no new jobs: it is disabled or archived."""

    code = "template_unavailable"


class UnknownOrganization(InvalidInput):
    """No organization of this name is in this store."""

    code = "unknown_organization"


class OrganizationUnavailable(InvalidInput):
    """The organization exists but takes no new jobs: it is suspended or removed."""

    code = "organization_unavailable"


class UnknownParent(InvalidInput):
    """A job can only wait for jobs of its own organization; this one has no such job."""

    code = "unknown_parent"


class DependencyCycle(InvalidInput):
    """Jobs that would wait for each other for ever; `path` names them in the order of waiting."""

    code = "dependency_cycle"
    members = ("path",)

    def __init__(self, message: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class InvalidSchedule(InvalidInput):
    """A cron expression, zone, interval or window that can't be; the message names the field and what is allowed."""

    code = "invalid_schedule"


class InvalidProgress(InvalidInput):
    """Progress is a number from 0 to 100."""

    code = "invalid_progress"


class InvalidDefinition(InvalidInput):
    """A file of definitions has something that can't be taken; nothing of it was."""

    code = "invalid_definition"


class InvalidImport(InvalidInput):
    """A line of an import can't be taken; `line` is its number."""

    code = "invalid_import"
    members = ("line",)

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class SqlPlace(NamedTuple):
    """A place in a SQL text: line, column and position in characters, each counted from 1."""

    line: int = 1
    column: int = 1
    position: int = 1


START = SqlPlace()


class SqlError(InvalidInput):
    """A SQL statement that can't be read or carried out; `rota.sql.errors` has its kinds. No text in it is ever the value of a secret.

    `sqlstate` is its code in SQL; `line` is where it is, `column` is the place in that line, and `position` is that in the whole text,
    each counted from 1. `expected` names what could have been there, `found` is what was there, and `suggestion` is the word that was
    probably meant. `statement` is the number of the statement that failed, counted from 1, None if the script could not be read, and
    `executed` is the number of statements before it that were executed, and stay so.
    """

    code = "sql_error"
    usual_sqlstate: ClassVar[str] = "42601"
    members: ClassVar[tuple[str, ...]] = (
        "sqlstate",
        "line",
        "column",
        "position",
        "expected",
        "found",
        "suggestion",
        "statement",
        "executed",
    )

    def __init__(
        self,
        message: str,
        place: Any = START,
        *,
        sqlstate: str = "",
        expected: tuple[str, ...] = (),
        found: str = "",
        suggestion: str = "",
        excerpt: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line: int = place.line
        self.column: int = place.column
        self.position: int = place.position
        self.sqlstate = sqlstate or self.usual_sqlstate
        self.expected = expected
        """Words and kinds of values that could have been there."""
        self.found = found
        self.suggestion = suggestion
        """The word that was probably meant."""
        self.excerpt = excerpt
        """The line up to the error, strings left out, and a caret below it. Empty where a secret may be near."""
        self.statement: int | None = None
        """Which statement of the script failed, counted from 1; None: the script could not be read."""
        self.executed = 0

    def __str__(self) -> str:
        """Return the message after its line and column."""
        return f"{self.line}:{self.column}: {self.message}"

    def report(self) -> str:
        """Return the error as a terminal shows it: code, SQLSTATE, place, message, and the line with a caret."""
        head = f"{self.code} [{self.sqlstate}] {self}"
        return f"{head}\n{self.excerpt}" if self.excerpt else head


class DuplicateId(InvalidInput):
    """The id was chosen before for another job."""

    code = "duplicate_id"


class Unauthenticated(RotaError):
    """Nobody is known by this token: it is missing, mistyped, expired or revoked. Which of these is not said."""

    code = "unauthenticated"


class TooManyAttempts(RotaError):
    """Too many wrong tokens came from one place; `after_s` says when the next is looked at."""

    code = "too_many_attempts"
    members = ("after_s",)

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class PermissionDenied(RotaError, PermissionError):
    """The gate said no. What is asked for may exist or not: the message does not tell."""

    code = "permission_denied"


class NotFound(RotaError, LookupError):
    """Nothing of that id is in this store, or nothing that this actor may see."""

    code = "not_found"


class Refused(RotaError):
    """The state of the thing does not allow what was asked."""

    code = "refused"


class IllegalMove(Refused):
    """A move that the table of legal moves does not have."""

    code = "illegal_move"


class AlreadyEnded(Refused):
    """The chain has ended; the message names its end."""

    code = "already_ended"


class StillLive(Refused):
    """The chain still has a live job; the message names it."""

    code = "still_live"


class KeyTaken(Refused):
    """The unique key is held by another live chain; the message names it."""

    code = "key_taken"


class DuplicateJob(Refused):
    """The same params were submitted inside the template's dedup window; `job_id` is that job's."""

    code = "duplicate_job"
    members = ("job_id",)

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class RateLimited(Refused):
    """Too many submissions inside the window; `retry_after_s` says how long to wait."""

    code = "rate_limited"
    members = ("retry_after_s",)

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyListeners(RateLimited):
    """As many listen to live events in this process as the setting events_streams allows."""

    code = "too_many_listeners"


class TemplateInUse(Refused):
    """The template has jobs: it can be archived, not deleted."""

    code = "template_in_use"


class ScheduleExists(Refused):
    """There is a schedule of this name already: edit it, or choose another name."""

    code = "schedule_exists"


class ChangedMeanwhile(Refused):
    """It has another version than the caller said: somebody changed it meanwhile, and nothing was written."""

    code = "changed_meanwhile"

    def __init__(self, what: str, *, has: int | None, given: int | str) -> None:
        by_now = "another version" if has is None else f"version {has}"
        super().__init__(f"{what} has {by_now} by now, not {given}: read it again, and change what you find")


class StillNeeded(Refused):
    """It is needed by others, which the message names: it can't be removed yet."""

    code = "still_needed"


class QueueFull(Refused):
    """The organization's queue is at its limit."""

    code = "queue_full"


class ClockInDoubt(Refused):
    """The clock is far past the last moment at which it was trusted: nothing is deleted by age until it is trusted again."""

    code = "clock_in_doubt"


class GroupRefused(Refused):
    """A job that is grouped already, or is past waiting, can't join a group."""

    code = "group_refused"


class ResourceBusy(Refused):
    """Nobody can run a direct execution now, or no slot for it became free within its timeout; the message says why."""

    code = "resource_busy"


class CopyRefused(Refused):
    """The store can't be copied as it stands, or not to there; nothing was changed on either side."""

    code = "copy_refused"


class SecretUnavailable(Refused):
    """A secret can't be encrypted or opened here: the master key is missing, or what is stored was changed outside Rota."""

    code = "secret_unavailable"


class TransactionMisuse(Refused):
    """A transaction was used where it can't be: closed, of another store, not passed on; or there is none."""

    code = "transaction_misuse"


class JobFailed(RotaError):
    """The chain failed permanently (DEAD_LETTER), so it has no result."""

    code = "job_failed"

    def __init__(self, message: str, job: Any = None, run: Any = None) -> None:
        super().__init__(message)
        self.job = job
        """Its last attempt."""
        self.run = run
        """The run of that attempt."""
        self.traceback: str | None = None if run is None else run.traceback
        if self.traceback:
            self.add_note(f"In the worker:\n{self.traceback.rstrip()}")


class JobCancelled(RotaError):
    """The chain was cancelled, so it has no result."""

    code = "job_cancelled"

    def __init__(self, message: str, job: Any = None, run: Any = None) -> None:
        super().__init__(message)
        self.job = job
        """Its last attempt."""
        self.run = run
        """The run of that attempt; None if it never started."""


class JobSkipped(RotaError):
    """The chain was skipped, so it has no result."""

    code = "job_skipped"

    def __init__(self, message: str, job: Any = None, run: Any = None) -> None:
        super().__init__(message)
        self.job = job
        """Its last attempt."""
        self.run = run
        """The run of that attempt; None if it never started."""


class WaitTimeout(RotaError, TimeoutError):
    """The chain had not ended when the wait was over. It goes on; wait again."""

    code = "wait_timeout"


class StoreError(RotaError):
    """The store failed or can't be used."""

    code = "store_error"


class StoreUnusable(StoreError):
    """The store can't be opened as it is; nothing in it was changed."""

    code = "store_unusable"


class StoreMoved(StoreUnusable):
    """Everything in this store was moved to another place, which the message names; this one is closed."""

    code = "store_moved"


class StoreBusy(StoreError):
    """Another process held the write lock longer than `busy_timeout`."""

    code = "store_busy"


class StoreUnavailable(StoreError):
    """The store could not be read or written (disk full, I/O error, a server that is away); nothing was half-written."""

    code = "store_unavailable"


class StoreFileLost(StoreUnavailable):
    """The SQLite file was deleted, renamed or replaced while it was open; nothing was written to the file that is gone."""

    code = "store_file_lost"


class AnswerLost(StoreUnavailable):
    """The connection broke, or the file was moved away, while a COMMIT was under way: whether it was written is not known."""

    code = "answer_lost"
