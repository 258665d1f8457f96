"""What `rota doctor` looks at in a PostgreSQL store: the server, who else is in it, time, and what Rota made there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import psycopg

from rota.errors import StoreUnusable
from rota.model.findings import Finding, advice, look_at, ok, problem, size_text, span_text
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.stores import paths, permissions
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import ASIDE
from rota.stores.postgres.db import Db
from rota.stores.postgres.grants import KINDS, MARKS, Right, wanted
from rota.stores.postgres.migrate import expected, latest
from rota.stores.verbs import repair

LOSING = {
    "fsync": ("off", "a crash of the machine can destroy the whole database"),
    "full_page_writes": ("off", "a crash of the machine can destroy pages"),
    "synchronous_commit": ("off", "a crash of the server loses jobs that were acknowledged"),
}
READ = "default_transaction_isolation default_transaction_read_only statement_timeout session_replication_role autovacuum track_counts"
ROOM = "max_connections superuser_reserved_connections reserved_connections"
CROWDED_SHARE = 0.8
IDLE_S = 60.0
"""A transaction that is open and idle this long is forgotten, most likely."""
HOLDING_S = 10.0
"""Nobody holds the store's own locks this long: verbs and turns take milliseconds."""
LONG_S = 3600.0
"""A transaction this old keeps vacuum from removing what has changed since."""
SESSIONS_MAX = 10
AGE_ADVICE, AGE_PROBLEM = 500_000_000, 1_500_000_000
"""Transactions since rows were last frozen; at two thousand million the server stops."""
FAILOVER_GUARD_S, FAILOVER_TTL_S = 40.0, 60.0
"""The shortest `lease_guard` that outlasts a failover, which takes 21 s where a machine is lost, and the `lease_ttl` that goes with it."""
SKEW_S = 1.0
LOCAL = ("", "localhost", "127.0.0.1", "::1")
DEAD_MIN, DEAD_SHARE = 50_000, 0.5
"""So many dead rows, and so large a share of all, are more than autovacuum leaves behind by its own settings."""
LOOSE_MIN_BYTES, ROW_BYTES, LOOSE_TIMES = 64 * 1024 * 1024, 400, 20
"""A table this large, and this many times what its rows take, is mostly air."""
MISSING_SHOWN = 5
ROLES_MAX = 50


def checkup(db: Db, where: Address, settings: Settings, now: Instant, *, machine: Callable[[], Instant], full: bool) -> list[Finding]:
    """Look at everything; nothing is changed."""
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "server": partial(_server, db),
        "durability": partial(_durability, db),
        "connections": partial(_connections, db, settings),
        "failover": partial(_failover, where, settings),
        "encryption": partial(_encryption, db),
        "session": partial(_session, db),
        "transactions": partial(_transactions, db, where),
        "prepared transactions": partial(_prepared, db),
        "replication slots": partial(_slots, db),
        "transaction ids": partial(_ages, db),
        "clock": partial(_clock, db, machine),
        permissions.NAME: partial(_permissions, where, settings),
        "schema": partial(_schema, db, where),
        "indexes": partial(_indexes, db, where),
        "triggers": partial(_triggers, db, where),
        "vacuum": partial(_vacuum, db, where),
        "size": partial(_sizes, db, where),
        "rights": partial(_rights, db, where),
        "due jobs": partial(repair.overdue, db, now),
        "outbox": partial(repair.outbox, db, now),
        "webhooks": partial(repair.webhooks, db, settings, now),
        "rows": partial(repair.rows, db, full=full),
    }
    return look_at(checks, (psycopg.Error, OSError))


def _permissions(where: Address, settings: Settings) -> Iterator[Finding]:
    """Look at what workers keep in files of this machine."""
    try:
        paths.locks(where.name, settings).check()
    except StoreUnusable as error:
        remedy = "remove it, or set XDG_RUNTIME_DIR; `rota repair` closes a folder that is this user's own"
        yield problem(permissions.NAME, str(error), remedy)
    yield from permissions.look(paths.kept(where.name, settings), settings)


class State(msgspec.Struct, frozen=True, array_like=True):
    """What the server says of itself, this database and this role."""

    version: str
    in_recovery: bool
    role: str
    age: int
    multi_age: int
    size: int
    database_limit: int
    role_limit: int
    connections: int


def _state(db: Db) -> State:
    return State(*db.rows("server_state")[0])


def settings_of(db: Db, names: str) -> dict[str, tuple[str, str]]:
    """Return settings of the server: as they are in this session, and as they would be without what Rota sets."""
    rows = db.rows("server_settings", names=names.split())
    return {name: (value, reset) for name, value, reset in rows}


def _server(db: Db) -> Iterator[Finding]:
    state = _state(db)
    if state.in_recovery:
        yield problem(
            "server", f"PostgreSQL {state.version} is a standby and takes no writes", "promote it, or name the primary in the URL"
        )
    else:
        yield ok("server", f"PostgreSQL {state.version}")


def _durability(db: Db) -> Iterator[Finding]:
    found = settings_of(db, " ".join(LOSING))
    bad = [name for name, (value, _) in LOSING.items() if found[name][0] == value]
    for name in bad:
        yield problem("durability", f"{name} is off: {LOSING[name][1]}", f"set {name} = on for the server, this database and this role")
    if not bad:
        yield ok("durability", f"what is acknowledged is on disk (synchronous_commit is {found['synchronous_commit'][0]})")


def _connections(db: Db, settings: Settings) -> Iterator[Finding]:
    state, found = _state(db), {name: int(value) for name, (value, _) in settings_of(db, ROOM).items()}
    room = found.pop("max_connections") - sum(found.values())
    limits = [limit for limit in (state.database_limit, state.role_limit) if limit >= 0]
    most = min([room, *limits])
    workers = int(db.value("count_workers"))
    need = workers * (settings.pool_size + ASIDE + 1)
    each = f"{settings.pool_size} + {ASIDE + 1} each"
    text = f"{state.connections} in use, room for {most}; {workers} live workers open {need} at most ({each})"
    if need > most:
        yield problem("connections", text, "raise max_connections (or the limit of this role or database), or lower the setting pool_size")
    elif state.connections > CROWDED_SHARE * room:
        yield advice("connections", text, "raise max_connections before the last ones are taken")
    else:
        yield ok("connections", text)


def _failover(where: Address, settings: Settings) -> Iterator[Finding]:
    if not where.several:
        yield ok("failover", "the URL names one server")
    elif settings.guard_s < FAILOVER_GUARD_S:
        text = f"several servers, and workers stop their handlers after {settings.guard_s:g} s without one: a failover may take longer"
        yield advice("failover", text, f"set lease_ttl={FAILOVER_TTL_S:g} and lease_guard={FAILOVER_GUARD_S:g} for every worker")
    else:
        yield ok("failover", f"handlers keep running through {settings.guard_s:g} s without a server")


def _encryption(db: Db) -> Iterator[Finding]:
    host = db.raw.info.host
    if db.raw.pgconn.ssl_in_use:
        yield ok("encryption", "this connection is encrypted")
    elif host in LOCAL or host.startswith("/"):
        yield ok("encryption", "this connection does not leave the machine")
    else:
        yield advice(
            "encryption", f"the connection to {host} is not encrypted: params can be read on the way", "give sslmode=verify-full in the URL"
        )


def _session(db: Db) -> Iterator[Finding]:
    found = settings_of(db, READ)
    if found["session_replication_role"][0] != "origin":
        yield problem(
            "session",
            "session_replication_role is not origin: triggers that refuse illegal moves are off",
            "take that setting from this role",
        )
    if found["default_transaction_read_only"][0] == "on":
        yield problem(
            "session", "default_transaction_read_only is on: nothing can be written", "take that setting from this role or database"
        )
    if found["statement_timeout"][0] != "0":
        text = f"statement_timeout is {int(found['statement_timeout'][0]) / 1000:g} s: long purges and migrations are broken off"
        yield advice("session", text, "set it to 0 for this role, or long enough")
    default = found["default_transaction_isolation"][1]
    if default != "read committed":
        text = (
            f"default_transaction_isolation is {default!r}: enqueueing in a transaction of the caller's own may fail and has to be repeated"
        )
        yield advice("session", text, "set it to 'read committed' for this role; Rota's own connections are not concerned")
    if found["session_replication_role"][0] == "origin" and found["default_transaction_read_only"][0] == "off":
        yield ok("session", "settings of this role stand in nobody's way")


def _transactions(db: Db, where: Address) -> Iterator[Finding]:
    rows = db.rows("open_transactions", key=where.key(0)[0] & 0xFFFFFFFF, limit=SESSIONS_MAX)
    seen = 0
    for pid, user, program, state, open_s, holds in rows:
        who = f"session {pid} ({user}{f', {program}' if program else ''})"
        ending = f"find out what it waits for; SELECT pg_terminate_backend({pid}) ends it"
        if holds and open_s > HOLDING_S:
            yield problem("transactions", f"{who} holds a lock of this store for {span_text(open_s)}: others wait for it", ending)
        elif str(state).startswith("idle in transaction") and open_s > IDLE_S:
            yield advice("transactions", f"{who} is idle in a transaction for {span_text(open_s)}: vacuum can't tidy up behind it", ending)
        elif open_s > LONG_S:
            yield advice("transactions", f"{who} has a transaction open for {span_text(open_s)}: vacuum can't tidy up behind it", ending)
        else:
            continue
        seen += 1
    if not seen:
        yield ok("transactions", "none that this role can see is held open for long")


def _prepared(db: Db) -> Iterator[Finding]:
    old = [(gid, age) for gid, age in db.rows("prepared_transactions") if age > IDLE_S]
    for gid, age in old:
        text = f"a prepared transaction {gid!r} is {span_text(age)} old: it holds its locks, and vacuum back"
        yield problem("prepared transactions", text, f"COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'")
    if not old:
        yield ok("prepared transactions", "none is forgotten")


def _slots(db: Db) -> Iterator[Finding]:
    idle = [name for (name,) in db.rows("idle_slots")]
    if idle:
        text = f"nobody reads {', '.join(idle)}: the server keeps its log until somebody does, and the disk fills up"
        yield advice("replication slots", text, f"start the replica, or SELECT pg_drop_replication_slot('{idle[0]}')")
    else:
        yield ok("replication slots", "none is left behind")


def _ages(db: Db) -> Iterator[Finding]:
    state = _state(db)
    age = max(state.age, state.multi_age)
    text = f"the oldest is {age / 1e6:,.0f} million back; the server stops at 2,000 million"
    if age >= AGE_PROBLEM:
        yield problem("transaction ids", text, "VACUUM the whole database now (vacuumdb --all), and see what holds vacuum back")
    elif age >= AGE_ADVICE:
        yield advice("transaction ids", text, "see that autovacuum comes through: long transactions, prepared ones, idle slots")
    else:
        yield ok("transaction ids", text)


def _clock(db: Db, machine: Callable[[], Instant]) -> Iterator[Finding]:
    db.value("server_clock")  # the second answer is not held up by preparing the question
    before = machine()
    there = int(db.value("server_clock"))
    after = machine()
    ahead_s, unsure_s = ((before + after) / 2 - there) / SECOND, (after - before) / 2 / SECOND
    way = "ahead of" if ahead_s > 0 else "behind"
    text = f"this machine's is {span_text(abs(ahead_s))} {way} the server's (give or take {span_text(unsure_s)})"
    if abs(ahead_s) - unsure_s > SKEW_S:
        remedy = "set it by NTP: Rota itself goes by the server's clock on every machine, but log lines and handlers go by this one"
        yield advice("clock", text, remedy)
    else:
        yield ok("clock", text)


class Table(msgspec.Struct, frozen=True, array_like=True):
    """One table as the server keeps it."""

    name: str
    persistence: str
    options: str
    bytes: int
    index_bytes: int
    live: int
    dead: int
    vacuumed_s: float | None


def _tables(db: Db, where: Address) -> list[Table]:
    ours = expected().tables
    return [table for row in db.rows("tables_kept", schema=where.schema) if (table := Table(*row)).name in ours]


def _schema(db: Db, where: Address) -> Iterator[Finding]:
    """Look whether all tables are there, and will be after a crash."""
    tables = _tables(db, where)
    missing = sorted(expected().tables - {table.name for table in tables})
    loose = [table.name for table in tables if table.persistence != "p"]
    if missing:
        yield problem("schema", f"there is no table {', '.join(missing)}", "restore it from a backup")
    if loose:
        remedy = f'ALTER TABLE "{where.schema}".{loose[0]} SET LOGGED'
        yield problem("schema", f"{', '.join(loose)} is unlogged: it is emptied by a crash of the server", remedy)
    if not missing and not loose:
        yield ok("schema", f"{where.schema!r} is at version {db.value('schema_version')} of {latest()}")


def _indexes(db: Db, where: Address) -> Iterator[Finding]:
    """Look whether every index of the migrations is there and in use."""
    there = dict(db.rows("indexes_kept", schema=where.schema))
    missing = {name: made for name, made in expected().indexes.items() if name not in there}
    broken = sorted(name for name in expected().indexes if there.get(name) is False)
    for name, (table, made) in sorted(missing.items()):
        remedy = f'SET search_path TO "{where.schema}"; {made}' if made else f"make it anew, as the migrations have it for {table}"
        yield problem("indexes", f"index {name} of {table} is missing: what it is for walks the whole table, or goes unchecked", remedy)
    for name in broken:
        yield problem("indexes", f"index {name} is invalid and is not used", f'REINDEX INDEX CONCURRENTLY "{where.schema}".{name}')
    if not missing and not broken:
        yield ok("indexes", f"all {len(expected().indexes)} are there")


def _triggers(db: Db, where: Address) -> Iterator[Finding]:
    """Look whether every trigger that refuses illegal moves is there and on."""
    there = dict(db.rows("triggers_kept", schema=where.schema))
    wrong = {name: made for name, made in expected().triggers.items() if there.get(name) not in {"O", "A"}}
    for name, (table, made) in sorted(wrong.items()):
        if name in there:
            remedy = f'ALTER TABLE "{where.schema}".{table} ENABLE TRIGGER {name}'
            yield problem("triggers", f"trigger {name} of {table} is off: what it refuses can happen", remedy)
        else:
            remedy = f'SET search_path TO "{where.schema}"; {made}'
            yield problem("triggers", f"trigger {name} of {table} is missing: what it refuses can happen", remedy)
    if not wrong:
        yield ok("triggers", f"all {len(expected().triggers)} are there and on")


def _vacuum(db: Db, where: Address) -> Iterator[Finding]:
    """Look whether dead rows are cleared away."""
    found = {name: value for name, value, _ in db.rows("server_settings", names='["autovacuum", "track_counts"]')}
    off = [name for name, value in found.items() if value == "off"]
    for name in off:
        yield problem(
            "vacuum", f"{name} is off: dead rows are never cleared away, and the queue gets slower and slower", f"set {name} = on"
        )
    tables = _tables(db, where)
    kept = [table for table in tables if "autovacuum_enabled=false" in table.options or "autovacuum_enabled=off" in table.options]
    for table in kept:
        remedy = f'ALTER TABLE "{where.schema}".{table.name} RESET (autovacuum_enabled)'
        yield problem("vacuum", f"autovacuum leaves {table.name} out", remedy)
    behind = [table for table in tables if table.dead > DEAD_MIN and table.dead > DEAD_SHARE * (table.live + table.dead)]
    for table in behind:
        last = "never" if table.vacuumed_s is None else f"{span_text(table.vacuumed_s)} ago"
        text = f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones; autovacuum was there {last}"
        yield advice(
            "vacuum", text, f'VACUUM "{where.schema}".{table.name}; if that does not help, see what holds it back: transactions, slots'
        )
    if not off and not kept and not behind:
        live = next((table for table in tables if table.name == "job_live"), None)
        said = "never yet" if live is None or live.vacuumed_s is None else f"{span_text(live.vacuumed_s)} ago"
        yield ok("vacuum", f"dead rows are few; autovacuum was at job_live {said}")


def _sizes(db: Db, where: Address) -> Iterator[Finding]:
    """Look how much room things take, and whether that is what they hold."""
    tables = sorted(_tables(db, where), key=lambda table: -(table.bytes + table.index_bytes))
    loose = [table for table in tables if table.bytes > LOOSE_MIN_BYTES and table.bytes > LOOSE_TIMES * ROW_BYTES * (table.live + 1)]
    for table in loose:
        text = f"{table.name} takes {size_text(table.bytes)} (indexes {size_text(table.index_bytes)}) for about {table.live:,} rows"
        remedy = f'REINDEX TABLE CONCURRENTLY "{where.schema}".{table.name}; in a quiet minute, for it stops everything: VACUUM FULL'
        yield advice("size", text, remedy)
    if not loose:
        total = sum(table.bytes + table.index_bytes for table in tables)
        largest = ", ".join(f"{table.name} {size_text(table.bytes)} + {size_text(table.index_bytes)}" for table in tables[:3])
        yield ok("size", f"{size_text(total)} in all; the largest, with their indexes: {largest}")


def _rights(db: Db, where: Address) -> Iterator[Finding]:
    """Look what this role is able to be."""
    role = str(db.rows("schema_rights", schema=where.schema)[0][0])
    lacks = {kind: _missing(db, where, kind, role) for kind in KINDS}
    able = [kind for kind, missing in lacks.items() if not missing]
    if "worker" in able:
        outdated = list(_outdated(db, where))
        yield from outdated
        if not outdated:
            yield ok("rights", f"role {role!r} can {'serve, ' if 'server' in able else ''}work, submit and read")
        return
    first = ", ".join(lacks["worker"][:MISSING_SHOWN]) + (", …" if len(lacks["worker"]) > MISSING_SHOWN else "")
    text = (
        f"role {role!r} can {' and '.join({'submitter': 'submit', 'reader': 'read'}[kind] for kind in able) or 'neither submit nor read'}"
    )
    remedy = f"fine if that is what it is for; `rota grants {role} --kind worker` prints what a worker needs"
    yield (advice if able else problem)("rights", f"{text}; a worker would lack {first}", remedy)


def _outdated(db: Db, where: Address) -> Iterator[Finding]:
    """Look for other roles that lack a part of what their kind needs: an upgrade adds tables, and grants have to be given again."""
    for (role,) in db.rows("roles_with_grants", schema=where.schema, limit=ROLES_MAX):
        kind = next((kind for kind, right in MARKS.items() if not _without(db, where, [right], role)), "reader")
        lacks = _missing(db, where, kind, role)
        # A role that lacks most of it was never meant to be one of that kind.
        if lacks and 2 * len(lacks) < len(wanted(kind)):
            first = ", ".join(lacks[:MISSING_SHOWN]) + (", …" if len(lacks) > MISSING_SHOWN else "")
            remedy = f"as the owner, after each upgrade: `rota grants {role} --kind {kind}`, piped into psql"
            yield advice("rights", f"role {role!r} has the grants of a {kind}, but lacks {first}", remedy)


def _missing(db: Db, where: Address, kind: str, role: str) -> list[str]:
    return _without(db, where, wanted(kind), role)


def _without(db: Db, where: Address, rights: Sequence[Right], role: str) -> list[str]:
    rows = db.rows("rights_missing", rows=rights, schema=where.schema, role=role)
    found = [msgspec.json.decode(row[0]) for row in rows]
    return [f"{right} on {name}{f' ({column})' if column else ''}" for _, name, right, column in found]
