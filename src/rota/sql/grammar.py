"""The language as tables: clauses, statements, what SHOW lists, privileges, units and words.

The parser, the renderer, the suggestions of errors and the reference page all read these tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from enum import Enum, StrEnum, auto

import msgspec

from rota.model.grants import Privilege
from rota.model.schedules import CatchUp, OnCompletion, Overlap
from rota.sql.syntax import JobClass, Listing

Words = tuple[str, ...]


class Reads(Enum):
    """How the value of a clause is read and written."""

    CHOICE = auto()
    DURATION = auto()
    COUNT = auto()
    TEXT = auto()
    NAME = auto()
    NAMES = auto()
    LIST = auto()
    ZONE = auto()
    PRIORITY = auto()
    PARAMS = auto()
    SCHEDULE = auto()
    PARTITION = auto()
    STATE = auto()


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One clause of a job."""

    field: str
    """Its field of `rota.sql.syntax.Clauses`."""
    words: Words
    reads: Reads
    value: str
    """Its value, as the reference writes it."""
    summary: str
    equals: bool = True
    """An = may follow the words, and does in canonical text."""
    removed_by: str = ""
    """The word that removes the value: NONE or NULL. Empty: a job always has one."""
    choices: type[StrEnum] | None = None
    takes: str = ""
    """The value in words, for errors."""
    zero: str = ""
    """The meaning of 0, if that is special."""
    also: tuple[Words, ...] = ()
    """Other words for it."""

    @property
    def heading(self) -> str:
        """Return the words as one text."""
        return " ".join(self.words)

    @property
    def syntax(self) -> str:
        """Return the whole clause, as the reference writes it."""
        return f"{self.heading}{' =' if self.equals else ''} {self.value}"


SCHEDULE_FORMS = "CRON '0 2 * * *', AT '2036-03-01T09:00:00Z' or EVERY 15 MINUTES"
PARTITION_FORMS = "ALL_SHARDS, SINGLE_SHARD 'shard', SHARD_SET ('shard', …) or DYNAMIC 'expression'"
BODY_FORMS = "AS 'sql', CALL procedure() or EXEC 'command'"
MAX_RETRIES_MAX = 1000

CLAUSES: tuple[Clause, ...] = (
    Clause(
        field="job_class",
        words=("CLASS",),
        reads=Reads.CHOICE,
        choices=JobClass,
        value="LOCAL_SAFE | LEADER_ONLY | QUORUM_REQUIRED",
        summary="Where in a cluster the job may run: on any node, on the leader, or on any node with a quorum's consent.",
    ),
    Clause(
        field="partition",
        words=("PARTITION", "BY"),
        reads=Reads.PARTITION,
        equals=False,
        value="ALL_SHARDS | SINGLE_SHARD 'shard' | SHARD_SET ('shard', …) | DYNAMIC 'expression'",
        summary="On which shards of a cluster the job runs. A shard is given by its name or id.",
    ),
    Clause(
        field="schedule",
        words=("SCHEDULE",),
        reads=Reads.SCHEDULE,
        value="CRON 'expression' | AT 'moment' | EVERY duration [STARTS 'moment'] [ENDS 'moment']",
        summary="When the job is due.",
    ),
    Clause(
        field="timezone",
        words=("TIMEZONE",),
        also=(("TIME", "ZONE"),),
        reads=Reads.ZONE,
        removed_by="NONE",
        value="'zone' | NONE",
        takes="the name of a time zone in single quotes, such as 'Europe/Berlin'",
        summary="The IANA time zone of the cron expression, and of moments without one. Default: UTC.",
    ),
    Clause(
        field="catch_up",
        words=("CATCH_UP",),
        reads=Reads.CHOICE,
        choices=CatchUp,
        value="NONE | LAST | ALL",
        summary="Which due times to make up for after a time without workers. Default: LAST.",
    ),
    Clause(
        field="overlap",
        words=("OVERLAP",),
        reads=Reads.CHOICE,
        choices=Overlap,
        value="ALLOW | QUEUE | SKIP",
        summary="What to do at a due time while the previous run is unfinished. Default: SKIP.",
    ),
    Clause(
        field="jitter",
        words=("JITTER",),
        reads=Reads.DURATION,
        value="duration",
        takes="a duration, such as 30 SECONDS",
        summary="Delay each run by a random time of at most this. At most a day.",
    ),
    Clause(
        field="calendar",
        words=("CALENDAR",),
        reads=Reads.NAME,
        removed_by="NONE",
        value="name | NONE",
        takes="the name of a calendar",
        summary="The calendar on whose days the job is not due.",
    ),
    Clause(
        field="depends_on",
        words=("DEPENDS", "ON"),
        reads=Reads.NAMES,
        equals=False,
        removed_by="NONE",
        value="job, … | NONE",
        takes="names of jobs",
        summary="Jobs that must have completed first.",
    ),
    Clause(
        field="max_retries",
        words=("MAX_RETRIES",),
        reads=Reads.COUNT,
        value="number",
        takes="a number",
        summary=f"How often a failed run is retried: 0 to {MAX_RETRIES_MAX}.",
    ),
    Clause(
        field="retry_backoff",
        words=("RETRY_BACKOFF",),
        reads=Reads.DURATION,
        value="duration",
        takes="a duration, such as 60 SECONDS",
        summary="The wait before the first retry. It doubles with each further one.",
    ),
    Clause(
        field="timeout",
        words=("TIMEOUT",),
        reads=Reads.DURATION,
        value="duration",
        takes="a duration, such as 30 MINUTES",
        zero="no limit",
        summary="How long a run may take. 0 is no limit.",
    ),
    Clause(
        field="on_completion",
        words=("ON", "COMPLETION"),
        reads=Reads.CHOICE,
        choices=OnCompletion,
        equals=False,
        value="PRESERVE | DROP",
        summary="Whether a job with SCHEDULE = AT is kept or dropped once it has completed. Default: PRESERVE.",
    ),
    Clause(
        field="run_as",
        words=("RUN", "AS"),
        reads=Reads.NAME,
        equals=False,
        removed_by="NONE",
        value="role | NONE",
        takes="the name of a role",
        summary="A role of the PostgreSQL database, to which a run is narrowed by SET ROLE. Default: the connection's login.",
    ),
    Clause(
        field="connection",
        words=("CONNECTION",),
        reads=Reads.NAME,
        removed_by="NONE",
        value="name | NONE",
        takes="the name of a connection",
        summary="The connection that SQL runs on, or whose procedure CALL calls. Default for SQL: the connection named default.",
    ),
    Clause(
        field="secrets",
        words=("SECRETS",),
        reads=Reads.LIST,
        equals=False,
        removed_by="NONE",
        value="(name, …) | NONE",
        takes="names of secrets in parentheses, such as SECRETS (api_key)",
        summary="Secrets that its runs are given: SQL as :name, a command by a descriptor.",
    ),
    Clause(
        field="priority",
        words=("PRIORITY",),
        reads=Reads.PRIORITY,
        value="LOW | NORMAL | HIGH | CRITICAL | number",
        takes="0 to 100, LOW, NORMAL, HIGH or CRITICAL",
        summary="Higher priorities run first. The words are 25, 50, 75 and 100.",
    ),
    Clause(
        field="params",
        words=("PARAMS",),
        reads=Reads.PARAMS,
        value="'json'",
        takes='a JSON object in single quotes, such as \'{"region": "eu"}\'',
        summary="Parameters of its runs, as a JSON object.",
    ),
    Clause(
        field="description",
        words=("DESCRIPTION",),
        reads=Reads.TEXT,
        removed_by="NULL",
        value="'text' | NULL",
        takes="a text in single quotes",
        summary="What the job is for.",
    ),
    Clause(
        field="state",
        words=("STATE",),
        also=(("ENABLED",), ("DISABLED",)),
        reads=Reads.STATE,
        value="ENABLED | DISABLED | PAUSED",
        summary="A paused job skips its due times; a disabled one has none. ENABLED and DISABLED may be written alone.",
    ),
)
"""In canonical order."""

CLAUSE_OF: dict[str, Clause] = {words[0]: clause for clause in CLAUSES for words in (clause.words, *clause.also)}
"""By the first word: no two begin alike."""
BODIES = ("AS", "CALL", "EXEC")


class StatementForm(msgspec.Struct, frozen=True):
    """One statement: the words it begins with, how it is written, what it does."""

    words: Words
    syntax: str
    summary: str


class Of(Enum):
    """The jobs or grantees that SHOW … takes."""

    NOTHING = auto()
    MAY_FOR = auto()
    """FOR job, if wanted."""
    MAY = auto()
    """A job, with or without FOR, if wanted."""
    MUST = auto()
    """A job, without FOR."""
    GRANTEE = auto()
    """FOR a grantee, or FOR JOB job, if wanted."""
    MAY_FOR_JOB = auto()
    """FOR JOB job, if wanted."""


OF_SYNTAX = {
    Of.NOTHING: "",
    Of.MAY_FOR: " [FOR job]",
    Of.MAY: " [FOR job]",
    Of.MUST: " job",
    Of.GRANTEE: " [FOR [USER | ROLE] name | FOR JOB job]",
    Of.MAY_FOR_JOB: " [FOR JOB job]",
}


class ShowForm(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that SHOW lists, and what may narrow it."""

    of: Of = Of.NOTHING
    like: bool = False
    limit: bool = False
    summary: str

    def form(self, what: Listing) -> StatementForm:
        """Return the statement."""
        like, limit = " [LIKE 'pattern']" if self.like else "", " [LIMIT number]" if self.limit else ""
        return StatementForm(("SHOW", *what.split()), f"SHOW {what}{OF_SYNTAX[self.of]}{like}{limit}", self.summary)


SHOWS: dict[Listing, ShowForm] = {
    Listing.JOBS: ShowForm(like=True, limit=True, summary="List jobs."),
    Listing.JOB: ShowForm(of=Of.MUST, summary="Show one job."),
    Listing.CREATE_JOB: ShowForm(of=Of.MUST, summary="Show the statement that creates a job."),
    Listing.JOB_RUNS: ShowForm(of=Of.MAY, limit=True, summary="List runs, the newest first."),
    Listing.OCCURRENCES: ShowForm(of=Of.MAY_FOR, limit=True, summary="List due times and their outcomes."),
    Listing.DEPENDENCIES: ShowForm(of=Of.MAY_FOR, summary="List which job depends on which."),
    Listing.GRANTS: ShowForm(of=Of.GRANTEE, summary="List privileges and who has them."),
    Listing.ROLES: ShowForm(summary="List roles."),
    Listing.SECRETS: ShowForm(of=Of.MAY_FOR, summary="List the names of secrets, never their values."),
    Listing.CONNECTIONS: ShowForm(summary="List connections."),
    Listing.SETTINGS: ShowForm(like=True, summary="List settings."),
    Listing.AUDIT: ShowForm(of=Of.MAY_FOR_JOB, limit=True, summary="List audit events, the newest first."),
    Listing.SCHEDULER: ShowForm(summary="Show the state of the scheduler."),
    Listing.METRICS: ShowForm(summary="Show the figures of the scheduler."),
    Listing.NODES: ShowForm(summary="List the nodes of the cluster."),
    Listing.SHARDS: ShowForm(summary="List the shards of the cluster."),
}

FORMS: tuple[StatementForm, ...] = (
    StatementForm(("CREATE", "JOB"), "CREATE JOB [IF NOT EXISTS] job clause … body", "Create a job."),
    StatementForm(
        ("CREATE", "OR", "ALTER", "JOB"),
        "CREATE OR ALTER JOB job clause … [body]",
        "Create a job, or change an existing one: clauses that are left out stay as they are.",
    ),
    StatementForm(
        ("RECREATE", "JOB"), "RECREATE JOB job clause … body", "Create a job in place of an existing one, of which only the history stays."
    ),
    StatementForm(("ALTER", "JOB"), "ALTER JOB job {[SET] clause | [SET] body | RENAME TO job} …", "Change a job, all of it or nothing."),
    StatementForm(("DROP", "JOB"), "DROP JOB [IF EXISTS] job [KEEP HISTORY]", "Delete a job and, without KEEP HISTORY, its history."),
    StatementForm(("EXECUTE", "JOB"), "EXECUTE JOB job [WITH PARAMS 'json'] [WAIT [duration]]", "Run a job now, whatever its state."),
    StatementForm(("RUN", "JOB"), "RUN JOB job [WITH PARAMS 'json'] [WAIT [duration]]", "The same as EXECUTE JOB."),
    StatementForm(("CANCEL", "JOB", "RUN"), "CANCEL JOB RUN uuid", "Cancel one run."),
    StatementForm(("CANCEL", "JOB"), "CANCEL JOB job", "Cancel all unfinished runs of a job."),
    StatementForm(("PAUSE", "JOB"), "PAUSE JOB job", "Skip the due times of a job until it is resumed."),
    StatementForm(("RESUME", "JOB"), "RESUME JOB job", "Resume a paused job."),
    StatementForm(("ENABLE", "JOB"), "ENABLE JOB job", "Enable a disabled job."),
    StatementForm(("DISABLE", "JOB"), "DISABLE JOB job", "Disable a job: it has no due times."),
    *(form.form(what) for what, form in SHOWS.items()),
    StatementForm(("EXPLAIN", "JOB"), "EXPLAIN JOB job", "Say why a job runs or does not run."),
    StatementForm(("EXPLAIN", "JOB", "RUN"), "EXPLAIN JOB RUN uuid", "Say why a run is where it is."),
    StatementForm(
        ("PLAN",), "PLAN statement", "Show the due times that a CREATE, ALTER or DROP JOB would add and remove. Nothing is written."
    ),
    StatementForm(("FORECAST",), "FORECAST [JOB job] [FOR duration | FROM 'moment' TO 'moment']", "List due times to come."),
    StatementForm(("SELECT",), "SELECT …", "Query the tables of sys."),
    StatementForm(("WITH",), "WITH … SELECT …", "Query the tables of sys."),
    StatementForm(("GRANT",), "GRANT privileges TO grantee, … [WITH GRANT OPTION]", "Grant privileges, or a role."),
    StatementForm(
        ("REVOKE",),
        "REVOKE [GRANT OPTION FOR] privileges FROM grantee, … [CASCADE | RESTRICT]",
        "Revoke privileges, or only the right to grant them further.",
    ),
    StatementForm(("CREATE", "ROLE"), "CREATE ROLE role", "Create a role."),
    StatementForm(("DROP", "ROLE"), "DROP ROLE role", "Delete a role."),
    StatementForm(("CREATE", "SECRET"), "CREATE SECRET secret VALUE {'text' | ? | :name}", "Create a secret."),
    StatementForm(("ALTER", "SECRET"), "ALTER SECRET secret VALUE {'text' | ? | :name}", "Change the value of a secret."),
    StatementForm(("DROP", "SECRET"), "DROP SECRET secret", "Delete a secret."),
    StatementForm(
        ("CREATE", "CONNECTION"),
        "CREATE CONNECTION connection URL = 'url' [USER = 'user'] [SECRET = secret] [MULTI | SINGLE]",
        "Create a connection to a database. Its password is a secret. With MULTI the text of a job may have several statements.",
    ),
    StatementForm(
        ("ALTER", "CONNECTION"),
        "ALTER CONNECTION connection {[SET] URL = 'url' | [SET] USER = {'user' | NONE} | [SET] SECRET = {secret | NONE}"
        " | [SET] {MULTI | SINGLE}} …",
        "Change a connection.",
    ),
    StatementForm(("DROP", "CONNECTION"), "DROP CONNECTION connection", "Delete a connection."),
    StatementForm(
        ("ALTER", "SYSTEM"), "ALTER SYSTEM {SET scheduler.name = value | RESET scheduler.name}", "Change a setting of the scheduler."
    ),
)

JOB_SECRET_FORMS = (
    StatementForm(("ALTER", "JOB"), "ALTER JOB job SET SECRET key = {'text' | ? | :name}", "Set a secret of one job."),
    StatementForm(("ALTER", "JOB"), "ALTER JOB job DROP SECRET key", "Delete a secret of one job."),
)
"""They begin as ALTER JOB does."""

NEXT: dict[Words, tuple[str, ...]] = {}
"""The words that may follow the first words of a statement, in the order of FORMS."""
for _form in FORMS:
    for _length, _word in enumerate(_form.words):
        _prefix = _form.words[:_length]
        if _word not in NEXT.get(_prefix, ()):
            NEXT[_prefix] = (*NEXT.get(_prefix, ()), _word)

WRITES = {
    "INSERT": "use CREATE JOB or EXECUTE JOB",
    "UPDATE": "use ALTER JOB … SET",
    "DELETE": "retention deletes history, and so does DROP JOB",
    "TRUNCATE": "retention deletes history, and so does DROP JOB",
    "MERGE": "use CREATE OR ALTER JOB",
    "REPLACE": "use CREATE OR ALTER JOB",
}
"""Statements of SQL that would change the tables of sys, and what to do instead."""
UNSAFE = frozenset(
    {
        *(word for word in WRITES if word != "REPLACE"),  # which is also a function that only reads
        "ALTER", "ATTACH", "CALL", "COPY", "CREATE", "DETACH", "DO", "DROP", "EXECUTE", "GRANT", "LOCK", "PRAGMA", "REINDEX", "REVOKE",
        "SET", "VACUUM",
    }
)  # fmt: skip
"""Words that an expression which only reads has no use for."""
SYS_TABLES = (
    "jobs",
    "job_runs",
    "queue",
    "history",
    "job_dependencies",
    "job_secrets",
    "occurrences",
    "performance",
    "audit",
    "settings",
    "workers",
    "users",
    "roles",
    "grants",
    "connections",
    "secrets",
    "organizations",
    "templates",
    "calendars",
)

UNIT_WORDS = ("SECONDS", "MINUTES", "HOURS", "DAYS")
UNEQUAL_UNITS = {
    "WEEK": "use 7 DAYS",
    "MONTH": "months differ in length; use CRON '0 0 1 * *'",
    "YEAR": "years differ in length; use CRON '0 0 1 1 *'",
}
"""Units that are not taken, and what to write instead."""

RESERVED = frozenset(
    {
        "AS", "ON", "SET", "BY", "FROM", "TO", "FOR", "WITH", "NONE", "NULL", "SCHEDULE",
        "DEPENDS", "PARTITION", "CALL", "EXEC", "SELECT", "KEEP", "LIKE", "LIMIT",
    }
)  # fmt: skip
"""Words that are names only in double quotes."""
OTHER_WORDS = frozenset(
    {
        "ALL_SHARDS", "AT", "CASCADE", "CRON", "DYNAMIC", "ENDS", "EVERY", "EXISTS", "FALSE", "GRANT", "HISTORY",
        "IF", "INTERVAL", "NOT", "OPTION", "PRIVILEGES", "PUBLIC", "RENAME", "RESET", "RESTRICT", "SHARD", "SHARD_SET",
        "SINGLE_SHARD", "STARTS", "TRUE", "URL", "USER", "VALUE", "WAIT",
    }
)  # fmt: skip
KEYWORDS: frozenset[str] = frozenset(
    {
        *RESERVED,
        *OTHER_WORDS,
        *(word for clause in CLAUSES for words in (clause.words, *clause.also) for word in words),
        *(word for form in FORMS for word in form.words),
        *(word for privilege in Privilege for word in privilege.split()),
    }
)
"""Words with a meaning where a name could be: canonical text has a name that is one of them in double quotes."""
FOLLOWERS = frozenset({*CLAUSE_OF, *BODIES, "STARTS", "ENDS", "SET", "RENAME", "WAIT", "WITH"})
"""Words that may come right after a duration without a unit."""

WORD_MAX_CHARS = 40
"""Longer words resemble nothing."""


def nearest(word: str, candidates: tuple[str, ...]) -> str:
    """Return the candidate that a word was probably meant to be, or an empty text."""
    if len(word) > WORD_MAX_CHARS:
        return ""
    singles = list(dict.fromkeys(part for candidate in candidates for part in candidate.split() if part.isupper()))
    near = get_close_matches(word, singles, 1, 0.7)
    return near[0] if near and near[0] != word else ""


def any_of(words: Sequence[str]) -> str:
    """Return words as a choice: A, B or C."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
