"""Every setting, its default, its unit and what it is for: the only place where defaults stand.

Each field can be given to `Rota(..., settings=Settings(...))` or as an environment variable, `ROTA_` and the
field's name in capitals. `rota settings` prints them; `docs/reference/settings.md` is tested against this file.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, get_args, get_type_hints

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import guess
from rota.model.zones import zone_of

MIB = 1024 * 1024


class Doc(msgspec.Struct, frozen=True):
    """What a setting is for and which values it takes."""

    what: str
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and defaults of one Rota. Times are in seconds, sizes in bytes, unless the name says otherwise."""

    max_retries: Annotated[int, Doc("retries after a failed or timed-out attempt", 0, 1000)] = 5
    max_crashes: Annotated[int, Doc("crashes of its worker after which a job is dead-lettered", 1, 1000)] = 3
    max_snoozes: Annotated[int, Doc("times one chain may snooze", 0, 1_000_000)] = 1000
    snooze_floor: Annotated[float, Doc("shortest snooze", 0)] = 1.0
    timeout: Annotated[float, Doc("how long a handler may run; 0 means no limit", 0)] = 300.0
    priority: Annotated[int, Doc("priority of a job that names none", 0, 100)] = 50
    backoff_base: Annotated[float, Doc("delay before the first retry", 0)] = 60.0
    backoff_factor: Annotated[float, Doc("growth of the delay from retry to retry", 1)] = 2.0
    backoff_cap: Annotated[float, Doc("longest delay between retries", 0)] = 86_400.0
    backoff_jitter: Annotated[float, Doc("random spread of the delay, as a share of it", 0, 1)] = 0.2

    concurrency: Annotated[int, Doc("handlers one worker runs at once", 1, 10_000)] = 8
    worker_queues: Annotated[str, Doc("queues that a worker serves, with commas between them; empty: all")] = ""
    worker_types: Annotated[str, Doc("job types that a worker serves, with commas between them; empty: all that it has handlers for")] = ""
    worker_exclude: Annotated[str, Doc("job types that a worker leaves to others, with commas between them; empty: none")] = ""
    misfit_patience: Annotated[
        float, Doc("how long a job waits for a worker whose handler takes its parameters before it is dead-lettered", 0)
    ] = 600.0
    prefetch: Annotated[float, Doc("work claimed ahead of free slots lasts at most this long", 0, 10)] = 0.05
    batch: Annotated[int, Doc("jobs claimed, promoted or ended in one turn, at most", 1, 10_000)] = 500
    linger: Annotated[float, Doc("how long a turn waits for more outcomes while claimed work remains", 0, 1)] = 0.004
    poll: Annotated[float, Doc("how often an idle worker looks for others' jobs where the system gives no hints", 0.001, 60)] = 0.025
    poll_hinted: Annotated[
        float, Doc("the same where the system does (inotify, LISTEN, change streams): a lost hint costs this much", 0.001, 60)
    ] = 0.25

    shutdown_grace: Annotated[float, Doc("how long running jobs may finish after SIGTERM", 0)] = 30.0
    kill_grace: Annotated[float, Doc("between TERM and KILL of a handler process that is cancelled", 0)] = 2.0
    timeout_grace: Annotated[float, Doc("between TERM and KILL of a handler that is over its timeout", 0)] = 0.5
    beat: Annotated[float, Doc("how often a worker shows that it lives; three times in lease_guard if that is more often", 0.1)] = 10.0
    lease_ttl: Annotated[
        float, Doc("a worker whose lock can't be found is lost when its beat has stood still this long; a due time this late is overdue", 1)
    ] = 30.0
    lease_guard: Annotated[
        float,
        Doc("a worker that could not show for so long that it lives stops its handlers; below lease_ttl; 0: two thirds of it", 0),
    ] = 0.0
    recovery_interval: Annotated[float, Doc("how often a worker looks for dead ones", 0.05)] = 1.0
    reservation_ttl: Annotated[float, Doc("longest life of a direct execution's reservation", 1)] = 600.0
    direct_wait: Annotated[float, Doc("how long a direct execution waits for a slot", 0)] = 300.0
    process_jobs_max: Annotated[int, Doc("jobs a handler process runs before a fresh one takes its place", 1)] = 1000

    schedules: Annotated[str, Doc("whether schedules fire", words=("on", "off"))] = "on"
    catch_up: Annotated[str, Doc("catch_up of new schedules that say nothing of it", words=("none", "last", "all"))] = "last"
    schedule_grace: Annotated[
        float, Doc("a due time that is fired this much late was still in time; a clock set back less is no matter", 0)
    ] = 60.0
    schedule_batch: Annotated[int, Doc("schedules fired in one transaction, at most", 1, 10_000)] = 1000
    catch_up_max: Annotated[int, Doc("due times that catch_up=all fires at most, where a schedule has no bound of its own", 1, 10_000)] = (
        100
    )
    catch_up_rate: Annotated[
        str, Doc("late firings of all schedules together become ready at most this often, such as 10/60s; empty: all at once")
    ] = ""
    dependency_wait: Annotated[
        float, Doc("how long the last due time of a schedule waits for schedules it depends on; others wait until the next one", 1)
    ] = 86_400.0
    calendar_max: Annotated[int, Doc("days in one calendar, at most", 1, 1_000_000)] = 10_000
    forecast_max: Annotated[int, Doc("due times in one forecast, at most", 1, 10_000_000)] = 100_000
    forecast_simulated_max: Annotated[
        int, Doc("due times that one forecast simulates, at most; for later ones it assumes that jobs do not meet", 0, 100_000)
    ] = 2000

    retention: Annotated[float, Doc("how long ended chains are kept; 0 keeps them for ever", 0)] = 30 * 86_400.0
    retention_interval: Annotated[float, Doc("how often a worker looks for what is older", 0.05)] = 60.0
    retention_batch: Annotated[int, Doc("jobs removed in one transaction, at most (a longer chain goes whole)", 1, 100_000)] = 200
    stats_retention: Annotated[float, Doc("how long hourly figures are kept", 3600)] = 400 * 86_400.0
    stats_hours: Annotated[int, Doc("hours that averages and failure rates look back", 1, 9600)] = 24
    handler_modules: Annotated[
        str, Doc("modules, by comma, that a worker may import handlers from where a template or a job names one; empty: none")
    ] = ""

    external_file: Annotated[
        str, Doc("TOML file that says which external commands this worker runs, and how they are confined; empty: none")
    ] = ""

    audit_runs: Annotated[
        str,
        Doc(
            "runs whose results are entries of the audit trail: those of jobs that SQL has created, all, or none",
            words=("sql", "all", "none"),
        ),
    ] = "sql"

    payload_max: Annotated[int, Doc("largest params of one job", 2, 16 * MIB)] = MIB
    result_max: Annotated[int, Doc("largest result of one run", 2, 16 * MIB)] = MIB
    error_max: Annotated[int, Doc("an error text or traceback is cut here", 256, 16 * MIB)] = 65_536
    log_max: Annotated[int, Doc("a run's log is cut here", 0, 1024 * MIB)] = MIB
    name_max: Annotated[int, Doc("longest name, in characters", 1, 255)] = 255
    key_max: Annotated[int, Doc("longest unique key, in characters", 1, 1024)] = 1024
    group_max: Annotated[int, Doc("members of one group, at most", 1, 1_000_000)] = 10_000
    queues_max: Annotated[int, Doc("queues of one store, about: a job is refused that names a further one", 1, 1_000_000)] = 1000
    parents_max: Annotated[int, Doc("jobs that one job may depend on, at most", 1, 1_000_000)] = 1000
    graph_max: Annotated[int, Doc("jobs that `graph` shows, at most", 1, 1_000_000)] = 1000
    bulk_chunk: Annotated[int, Doc("jobs per commit in enqueue_many", 1, 100_000)] = 3000
    bulk_sessions: Annotated[
        int,
        Doc(
            "PostgreSQL: connections that enqueue_many writes with at a time, over all callers in one process; always below pool_size",
            1,
            100,
        ),
    ] = 2
    session_ttl: Annotated[float, Doc("how long a browser stays logged in", 60)] = 12 * 3600.0
    login_attempts: Annotated[int, Doc("wrong tokens from one address inside login_window, after which it has to wait", 1)] = 10
    login_window: Annotated[float, Doc("how long a wrong token counts", 1)] = 60.0
    http_host: Annotated[str, Doc("the address that the front door listens on; one that others can reach needs users in the store")] = (
        "127.0.0.1"
    )
    http_port: Annotated[int, Doc("its port; 0: any that is free", 0, 65_535)] = 8420
    http_root_path: Annotated[
        str, Doc("the path below which a proxy serves the dashboard and the API, such as /rota; empty: at the root of a host name")
    ] = ""
    http_hosts: Annotated[
        str, Doc("further names, by comma, that it may be asked for under, beside localhost, http_host and addresses in digits; *: any")
    ] = ""
    http_proxies: Annotated[
        str, Doc("addresses or networks, by comma, of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; empty: nobody's")
    ] = ""
    http_connections: Annotated[int, Doc("connections at a time; beyond that the answer is 503", 1)] = 2000
    http_patience: Annotated[float, Doc("how long the head or the body of one request may take to come", 1)] = 30.0
    http_body_max: Annotated[int, Doc("largest body of one HTTP request", 1024)] = 64 * MIB
    http_direct_wait: Annotated[float, Doc("how long a request for a direct execution is kept waiting for its end", 0, 3600)] = 30.0
    http_direct_max: Annotated[int, Doc("requests for direct executions at a time; beyond that they are refused", 1, 1000)] = 32
    webhook_retries: Annotated[
        str, Doc("seconds before each new attempt to deliver a message, by comma; after the last it is given up")
    ] = "5,15,45"
    webhook_timeout: Annotated[
        float, Doc("how long one attempt to deliver a message may take, from the look-up of the name on", 0.1, 300)
    ] = 10.0
    webhook_lease: Annotated[float, Doc("how long after an attempt should have ended others take its message over", 0.1, 3600)] = 30.0
    webhook_senders: Annotated[int, Doc("messages that one worker sends at a time", 1, 100)] = 8
    webhook_interval: Annotated[float, Doc("how often a worker looks for messages that are due", 0.05, 60)] = 1.0
    webhook_retention: Annotated[float, Doc("how long messages that were delivered or abandoned are kept, and reports of schedules", 0)] = (
        7 * 86_400.0
    )
    webhook_failing: Annotated[float, Doc("a webhook that has failed for so long is reported by doctor", 0)] = 3600.0
    webhook_rotation: Annotated[float, Doc("how long messages are signed with the old secret too after a new one was made", 0)] = 86_400.0
    webhook_max: Annotated[int, Doc("webhooks of one organization, at most; those of single jobs don't count", 1, 100_000)] = 100
    webhook_private: Annotated[
        str, Doc("messages to private, loopback and link-local addresses: refuse, or allow", words=("refuse", "allow"))
    ] = "refuse"
    webhook_http: Annotated[
        str, Doc("messages over http://, which everybody on the way can read: refuse, or allow", words=("refuse", "allow"))
    ] = "refuse"
    pulse_url: Annotated[
        str, Doc("a URL that each worker calls (GET) while all that was due has fired and the store takes writes; empty: none")
    ] = ""
    pulse_every: Annotated[float, Doc("how often it is called", 0.1, 86_400)] = 60.0
    waiting_warn: Annotated[float, Doc("a ready job that waits longer is a concern on the first screen", 0)] = 300.0
    slow_warn: Annotated[float, Doc("a store that takes longer to answer the first screen is a concern", 0)] = 0.5
    events_max: Annotated[
        int, Doc("live events told to one listener in a second, at most; how many were left out is told too", 1, 100_000)
    ] = 100
    events_buffer: Annotated[int, Doc("live events that may wait for a listener who is slow, before it is cut off", 1, 1_000_000)] = 1000
    events_streams: Annotated[int, Doc("listeners to live events in one process, at most", 1, 100_000)] = 1000
    events_poll: Annotated[
        float, Doc("how often live events are looked for where nothing hints at them, while somebody listens", 0.1, 10)
    ] = 0.25
    events_replay: Annotated[float, Doc("how far back live events are told again to a listener who comes back", 0)] = 3600.0
    events_replay_max: Annotated[int, Doc("live events told again to a listener who comes back, at most", 1, 100_000)] = 1000
    events_beat: Annotated[float, Doc("how often a stream of events over HTTP shows that it lives", 0.1)] = 15.0
    traces: Annotated[
        str,
        Doc("whether jobs are traced from enqueue to run, with the program's OpenTelemetry: needs extra traces", words=("off", "on")),
    ] = "off"
    log_format: Annotated[
        str, Doc("how log lines of `rota up`, `worker` and `serve` look: for people, or one JSON document each", words=("text", "json"))
    ] = "text"
    log_level: Annotated[
        str,
        Doc(
            "least level of the log lines of `rota up`, `worker` and `serve`; `debug` adds a line for each completed job",
            words=("debug", "info", "warning", "error"),
        ),
    ] = "info"
    zone: Annotated[
        str, Doc("IANA time zone in which the command line shows times, and reads those without an offset; empty: the machine's")
    ] = ""
    http_log: Annotated[str, Doc("whether each HTTP request is a log line; its query never is", words=("no", "yes"))] = "no"
    metrics_access: Annotated[
        str,
        Doc("who may read /metrics: with a token that may read, or, from this machine itself, anybody", words=("token", "loopback")),
    ] = "token"
    metrics_organizations: Annotated[
        str, Doc("whether metrics of ended jobs tell organizations apart: each makes series of its own", words=("no", "yes"))
    ] = "no"
    metrics_types_max: Annotated[int, Doc("job types that metrics tell apart; further ones are counted together", 1, 10_000)] = 200
    metrics_count_max: Annotated[int, Doc("waiting jobs that metrics count, about: types and priorities share it out", 1)] = 10_000_000
    sql_job_timeout: Annotated[
        int, Doc("how long a run may take of a job that SQL creates without TIMEOUT; 0 means no limit", 0, 365 * 86_400)
    ] = 3600
    sql_job_retries: Annotated[int, Doc("retries of a job that SQL creates without MAX_RETRIES", 0, 1000)] = 3
    sql_job_backoff: Annotated[
        int, Doc("delay before the first retry of a job that SQL creates without RETRY_BACKOFF", 0, 365 * 86_400)
    ] = 60
    sql_timeout: Annotated[float, Doc("how long one query over sys.* may take", 0.01, 3600)] = 5.0
    sql_rows_max: Annotated[int, Doc("rows in the answer to one query, at most; what is left out is reported", 1, 10_000_000)] = 10_000
    sql_bytes_max: Annotated[int, Doc("size of the answer to one query, and of each value in it, at most", 65_536, 1024 * MIB)] = 16 * MIB
    sql_running: Annotated[int, Doc("queries that one process runs at a time; others wait for sql_timeout at most", 1, 100)] = 2
    sql_share: Annotated[
        float, Doc("share of its time that a query computes while a worker of the same process has jobs; it pauses for the rest", 0.01, 1)
    ] = 0.05
    sql_result_rows: Annotated[
        int, Doc("rows of its last result set that a run of a SQL job keeps, at most; result_max bounds their size", 1, 1_000_000)
    ] = 1000
    sql_paths: Annotated[str, Doc("folders and files, with commas between them, whose SQLite databases SQL jobs may use; empty: none")] = ""
    monque_poll: Annotated[float, Doc("how often an idle bridge looks for documents of Monque that are due", 0.01, 3600)] = 1.0
    monque_concurrency: Annotated[int, Doc("documents of one name that a bridge runs at once", 1, 10_000)] = 5
    monque_max_retries: Annotated[int, Doc("failed attempts after which a document of Monque is `failed`", 1, 10_000)] = 10
    monque_retry_base: Annotated[float, Doc("delay before a retry of a document of Monque: twice this, doubled each time", 0)] = 1.0
    monque_retry_max: Annotated[float, Doc("longest delay between attempts of a document of Monque", 0)] = 86_400.0
    monque_heartbeat: Annotated[float, Doc("how often a bridge renews its claims on documents of Monque", 0.1, 3600)] = 30.0
    monque_lock_timeout: Annotated[
        float, Doc("how long a claim on a document of Monque lasts that nobody renews; the same in Monque's processes", 0.5)
    ] = 1800.0
    monque_timezone: Annotated[
        str, Doc("IANA time zone of recurring documents of Monque that name none; Monque's processes use that of their machine")
    ] = "UTC"
    progress_interval: Annotated[float, Doc("shortest time between two stored progress reports of a run", 0)] = 0.5

    master_key_file: Annotated[
        str,
        Doc(
            "file of the keys that secrets are encrypted with, one a line, closed to others (mode 0600); empty: systemd's credential"
            " rota-master-key, or none"
        ),
    ] = ""
    synchronous: Annotated[
        str, Doc("SQLite durability: FULL survives power loss, NORMAL may lose the last commits", words=("FULL", "NORMAL"))
    ] = "FULL"
    store_mode: Annotated[
        str,
        Doc(
            "permissions of the files that Rota creates: 0600 for the owner only, 0660 for workers of several users that share a group",
            words=("0600", "0660"),
        ),
    ] = "0600"
    busy_timeout: Annotated[
        float, Doc("how long a caller waits: for another process's write lock, or for a store that is away while it waits for a job", 0)
    ] = 30.0
    run_logs: Annotated[
        str,
        Doc(
            "where runs' logs are kept: in the store, or in files in log_dir; empty: in the store for PostgreSQL, in files for SQLite",
            words=("", "store", "folder"),
        ),
    ] = ""
    log_dir: Annotated[
        str,
        Doc(
            "folder of the runs' logs, or of those on their way to the store; empty: beside the SQLite file, or for PostgreSQL in the"
            " user's state folder of each machine"
        ),
    ] = ""
    schema: Annotated[str, Doc("PostgreSQL: the schema that holds Rota's tables; it is made if it is not there")] = "rota"
    pool_size: Annotated[int, Doc("PostgreSQL: connections one process has at most, beside three for hints and beats", 2, 1000)] = 10
    wal_pages: Annotated[int, Doc("pages in SQLite's write-ahead log before it is checkpointed", 1)] = 1000

    def __post_init__(self) -> None:
        """Refuse values out of range, naming the setting and what it takes."""
        for name, doc in DOCS.items():
            _check(name, getattr(self, name), doc)
        if self.lease_guard >= self.lease_ttl:
            raise InvalidOption(
                f"setting lease_guard={self.lease_guard:g} is not below lease_ttl={self.lease_ttl:g}: handlers must have stopped"
                " before others take over. Give less, or 0 for two thirds of lease_ttl"
            )

        root_path(self.http_root_path, "setting http_root_path")
        if self.pulse_url:
            from rota.model.targets import check_url  # noqa: PLC0415 - few programs need it

            check_url(self.pulse_url, private=True, plain_http=True, what="setting pulse_url")
        if not all(0 <= delay_s <= 7 * 86_400.0 for delay_s in self.webhook_delays_s):
            raise InvalidOption(f"setting webhook_retries={self.webhook_retries!r} is out of range: give seconds, each at most a week")
        for zone in (self.zone, self.monque_timezone):
            if zone:
                zone_of(zone)
        if self.catch_up_rate:
            self.catch_up_spacing_s  # noqa: B018 - refuses what is not a rate

    @property
    def catch_up_spacing_s(self) -> float | None:
        """The time from one late firing to the next; None: they need not keep apart."""
        if not self.catch_up_rate:
            return None
        from rota.model.templates import rate_of  # noqa: PLC0415 - templates are made from settings

        rate = rate_of("setting catch_up_rate", self.catch_up_rate)
        return rate.seconds / rate.count

    @property
    def webhook_delays_s(self) -> tuple[float, ...]:
        """The pauses before new attempts to deliver a message."""
        try:
            return tuple(float(part) for part in self.webhook_retries.split(",") if part.strip())
        except ValueError:
            raise InvalidOption(f"setting webhook_retries={self.webhook_retries!r} is no list of seconds: give 5,15,45 or such") from None

    @property
    def file_mode(self) -> int:
        """The permission bits of files that Rota creates."""
        return int(self.store_mode, 8)

    @property
    def folder_mode(self) -> int:
        """The permission bits of folders that Rota creates: who may read may also enter."""
        return self.file_mode | (self.file_mode & 0o444) >> 2

    @property
    def guard_s(self) -> float:
        """How long a worker goes on without a beat that the store acknowledged."""
        return self.lease_guard or self.lease_ttl * 2 / 3

    @property
    def bulk_writers(self) -> int:
        """How many connections bulk calls write with at a time: one of the pool is left to others."""
        return min(self.bulk_sessions, self.pool_size - 1)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: object) -> "Settings":
        """Read `ROTA_*` variables; what is `given` wins over them."""
        values: dict[str, object] = {}
        for name in cls.__struct_fields__:
            text = environment.get(f"ROTA_{name.upper()}")
            if text is not None:
                values[name] = parsed(name, text)
        unknown = sorted(set(given) - set(cls.__struct_fields__))
        if unknown:
            raise InvalidOption(f"there is no setting {unknown[0]!r}{guess(unknown[0], cls.__struct_fields__)}: `rota settings` lists them")
        return cls(**(values | given))  # type: ignore[arg-type] # checked in __post_init__


_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


def root_path(given: str, name: str) -> str:
    """Return the path below which HTTP is served, without a slash at its end; refuse what is not a path."""
    if not _ROOT_PATH.fullmatch(given):
        raise InvalidOption(f"{name}={given!r} is not a path: use for example /rota, or nothing for the root of a host name")
    return given.rstrip("/")


OTHER_VARIABLES = frozenset({"ROTA_STORE", "ROTA_ACTOR"})
"""Variables that are no settings: the store's URL, and who acts on the command line."""
TEST_VARIABLES = "ROTA_TEST_"
"""How variables begin that Rota's own tests use."""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each `ROTA_*` variable that sets nothing."""
    known = {f"ROTA_{name.upper()}" for name in Settings.__struct_fields__} | OTHER_VARIABLES
    unknown = [
        name for name in sorted(environment) if name.startswith("ROTA_") and name not in known and not name.startswith(TEST_VARIABLES)
    ]
    return [f"the variable {name} is not a setting and has no effect{guess(name, known)}: `rota settings` lists them" for name in unknown]


def parsed(name: str, text: str) -> object:
    """Return a value of a setting as an environment variable has it."""
    wanted = _TYPES[name]
    try:
        return text if wanted is str else wanted(text)
    except ValueError:
        raise InvalidOption(f"ROTA_{name.upper()}={text!r} is not {'a whole number' if wanted is int else 'a number'}") from None


def checked(name: str, value: object) -> object:
    """Return a value of a setting, or refuse it."""
    _check(name, value, DOCS[name])
    return value


def _check(name: str, value: object, doc: Doc) -> None:
    if _TYPES[name] is str and not doc.words:
        if not isinstance(value, str):
            raise InvalidOption(f"setting {name}={value!r} is not a text")
        return
    if doc.words:
        if value not in doc.words:
            raise InvalidOption(f"setting {name}={value!r} is not one of {', '.join(word or 'empty' for word in doc.words)}")
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise InvalidOption(f"setting {name}={value!r} is not a number")
    if _TYPES[name] is int and not isinstance(value, int):
        raise InvalidOption(f"setting {name}={value!r} is not a whole number")
    if (doc.low is not None and value < doc.low) or (doc.high is not None and value > doc.high):
        allowed = f"at least {doc.low:g}" if doc.high is None else f"between {doc.low:g} and {doc.high:g}"
        raise InvalidOption(f"setting {name}={value!r} is out of range: give {allowed}")


_HINTS = {name: get_args(hint) for name, hint in get_type_hints(Settings, include_extras=True).items()}
DOCS: dict[str, Doc] = {name: doc for name, (_, doc) in _HINTS.items()}
_TYPES: dict[str, type] = {name: wanted for name, (wanted, _) in _HINTS.items()}
