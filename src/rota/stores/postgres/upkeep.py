"""What `rota doctor` looks at of what Rota made in a PostgreSQL database: its tables, indexes, triggers, sizes, and who may use them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rota.model.findings import Finding, advice, ok, problem, size_text, span_text
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import Db
from rota.stores.postgres.expected import expected, latest
from rota.stores.postgres.grants import KINDS, wanted

DEAD_MIN, DEAD_SHARE = 50_000, 0.5
"""So many dead rows, and so large a share of all, are more than autovacuum leaves behind by its own settings."""
LOOSE_MIN_BYTES, ROW_BYTES, LOOSE_TIMES = 64 * 1024 * 1024, 400, 20
"""A table this large, and this many times what its rows take, is mostly air."""
MISSING_SHOWN = 5


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


def schema(db: Db, where: Address) -> Iterator[Finding]:
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


def indexes(db: Db, where: Address) -> Iterator[Finding]:
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


def triggers(db: Db, where: Address) -> Iterator[Finding]:
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


def vacuum(db: Db, where: Address) -> Iterator[Finding]:
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


def sizes(db: Db, where: Address) -> Iterator[Finding]:
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


def rights(db: Db, where: Address) -> Iterator[Finding]:
    """Look what this role is able to be."""
    role = str(db.rows("schema_rights", schema=where.schema)[0][0])
    lacks = {kind: _missing(db, where, kind) for kind in KINDS}
    able = [kind for kind, missing in lacks.items() if not missing]
    if "worker" in able:
        yield ok("rights", f"role {role!r} can {'serve, ' if 'server' in able else ''}work, submit and read")
        return
    first = ", ".join(lacks["worker"][:MISSING_SHOWN]) + (", …" if len(lacks["worker"]) > MISSING_SHOWN else "")
    text = (
        f"role {role!r} can {' and '.join({'submitter': 'submit', 'reader': 'read'}[kind] for kind in able) or 'neither submit nor read'}"
    )
    remedy = f"fine if that is what it is for; `rota grants {role} --kind worker` prints what a worker needs"
    yield (advice if able else problem)("rights", f"{text}; a worker would lack {first}", remedy)


def _missing(db: Db, where: Address, kind: str) -> list[str]:
    rows = db.rows("rights_missing", rows=msgspec.json.encode(wanted(kind)).decode(), schema=where.schema)
    found = [msgspec.json.decode(row[0]) for row in rows]
    return [f"{right} on {name}{f' ({column})' if column else ''}" for _, name, right, column in found]
