"""Write each store's `schema.sql`, the schema of a new store, from its migrations: `make schema`.

SQLite keeps the text of every table, index, trigger and view, so its schema is what the migrations leave in an empty file.
PostgreSQL does not: its schema is the migrations' own statements, without those that a later migration takes back. An added column is
written into its table; a dropped index, trigger, function or view is left out; a statement of any other kind is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw

from rota.stores.postgres import migrate as postgres_migrate
from rota.stores.sqlite import migrate

STORES = Path(migrate.__file__).parents[1]
FILES = {name: STORES / name / "schema.sql" for name in ("sqlite", "postgres")}
HEAD = "-- Schema {version}, generated from the migrations by `make schema`. Do not edit it: add a migration.\n\n"

_PIECE = re.compile(r"(?P<comment>--[^\n]*)|'[^']*'|\$\$.*?\$\$|(?P<end>;[ \t]*(?:--[^\n]*)?)", re.DOTALL)
_CREATE = re.compile(r"CREATE (?:OR REPLACE )?(?:UNIQUE )?(TABLE|INDEX|TRIGGER|VIEW|FUNCTION) (\w+)")
_DROP = re.compile(r"DROP (INDEX|TRIGGER|VIEW|FUNCTION) (\w+)[^,]*;")
_COLUMN = re.compile(r"ALTER TABLE (\w+) ADD COLUMN ((?:(?! ADD COLUMN ).)*);[ \t]*(--.*)?", re.DOTALL)


def generated(name: str) -> str:
    """Return what `schema.sql` of a store should be."""
    return {"sqlite": sqlite_schema, "postgres": postgres_schema}[name]()


def main() -> None:
    """Write the files."""
    for name, path in FILES.items():
        path.write_text(generated(name))


# ---- SQLite ------------------------------------------------------------------------------------------------------------


def sqlite_schema() -> str:
    """Return the statements that make what the migrations make, in the order in which SQLite keeps them: plans depend on it."""
    raw = apsw.Connection(":memory:")
    migrated(raw)
    made = [f"{text};" for (text,) in raw.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
    rows = [line for (table,) in list(raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")) for line in _inserts(raw, table)]
    raw.close()
    return HEAD.format(version=migrate.latest()) + "\n\n".join([*made, "\n".join(rows)]) + "\n"


def migrated(raw: apsw.Connection, version: int | None = None) -> None:
    """Make the schema of a version by the migrations up to it, in an empty file."""
    version = version or migrate.latest()
    for number, text in sorted(migrate.migrations().items()):
        if number <= version:
            raw.execute(text)
    raw.execute("INSERT INTO meta (key, value) VALUES ('schema', ?)", (version,))


def _inserts(raw: apsw.Connection, table: str) -> Iterator[str]:
    names = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
    for row in raw.execute(f"SELECT {', '.join(names)} FROM {table}"):
        given = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        yield f"INSERT INTO {table} ({', '.join(given)}) VALUES ({', '.join(map(apsw.format_sql_value, given.values()))});"


# ---- PostgreSQL --------------------------------------------------------------------------------------------------------


def postgres_schema() -> str:
    """Return the migrations' statements without those that a later one takes back."""
    kept: list[str] = []
    for _, text in sorted(postgres_migrate.migrations().items()):
        for statement in _statements(text):
            _add(kept, statement)
    kept.append(f"\nINSERT INTO meta (key, value) VALUES ('schema', {postgres_migrate.latest()});")
    return HEAD.format(version=postgres_migrate.latest()) + "\n".join(kept).strip() + "\n"


def _statements(text: str) -> Iterator[str]:
    """Yield each statement with the blank lines and comments before it and the comment on its last line."""
    start = 0
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            yield text[start : piece.end()].removeprefix("\n")
            start = piece.end()
    assert not _bare(text[start:]), f"a statement without its semicolon: {text[start:]}"


def _add(kept: list[str], statement: str) -> None:
    bare = _bare(statement)
    if column := _COLUMN.fullmatch(bare.rstrip()):
        table, said, _ = column.groups()
        place = _place(kept, "TABLE", table)
        if place is not None and _may_go_into(kept, table, said):
            comment = statement.rpartition(";")[2].strip()
            kept[place] = _with_column(kept[place], said, comment)
            return
    if drop := _DROP.fullmatch(bare):
        place = _place(kept, *drop.groups())
        if place is not None:
            del kept[place]
            return
    if bare.startswith("CREATE OR REPLACE FUNCTION") and "LANGUAGE plpgsql" in bare:
        place = _place(kept, "FUNCTION", _CREATE.match(bare)[2])  # type: ignore[index]
        if place is not None:
            kept[place] = statement.replace("CREATE OR REPLACE", "CREATE", 1)
            return
    kept.append(statement)


def _bare(statement: str) -> str:
    """Return a statement without its comments and the room around it."""
    return _PIECE.sub(lambda piece: "" if piece["comment"] else ";" if piece["end"] else piece[0], statement).strip()


def _place(kept: list[str], kind: str, name: str) -> int | None:
    """Return where a thing is made, if it is."""
    for place, statement in enumerate(kept):
        made = _CREATE.match(_bare(statement))
        if made and made.groups() == (kind, name):
            return place
    return None


def _may_go_into(kept: list[str], table: str, said: str) -> bool:
    """Say whether a column can be written into its table: it needs nothing that is made later, and comes after all the others."""
    bare = [_bare(statement) for statement in kept]
    ours = {made[2] for each in bare if (made := _CREATE.match(each)) and made[1] == "FUNCTION"}
    altered = any(each.startswith(f"ALTER TABLE {table} ") and "ADD PRIMARY KEY" not in each for each in bare)
    return not altered and "REFERENCES" not in said and not ours & set(re.findall(r"(\w+)\(", said))


def _with_column(table: str, said: str, comment: str) -> str:
    """Return the statement of a table with one more column at its end."""
    body, close, rest = table.rpartition("\n)")
    before, newline, last = body.rpartition("\n")
    said_last, dashes, comment_last = last.partition("--")
    last = f"{said_last.rstrip()}," + (f"   {dashes}{comment_last}" if dashes else "")
    return f"{before}{newline}{last}\n    {' '.join(said.split())}{f'   {comment}' if comment else ''}{close}{rest}"


if __name__ == "__main__":
    main()
