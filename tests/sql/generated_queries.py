"""Random SELECTs over sys.*, made so that a difference between two engines shows: see test_sql_query_random.py."""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

COMPARES = ("=", "=", "=", "<", ">", "<=", ">=", "<>", "IS", "IS NOT")
ODD = (
    "NULL",
    "''",
    "'5'",
    "5",
    "-1",
    "0",
    "x'00'",
    "1760000500000.5",
    "9e999",
    "-9223372036854775808",
    "9223372036854775807",
    "'a' || 'b'",
    "1e15",
)
JOINS = (
    ("job_runs", "jobs", "job_uuid"),
    ("jobs", "job_runs", "job_uuid"),
    ("job_runs", "job_runs", "job_name"),
    ("job_runs", "job_runs", "number"),
    ("job_runs", "occurrences", "job_run_uuid"),
    ("occurrences", "jobs", "job_uuid"),
    ("job_dependencies", "jobs", "job_uuid"),
    ("history", "history", "root_id"),
    ("history", "queue", "job_type"),
    ("queue", "history", "root_id"),
    ("queue", "templates", "template_name"),
    ("history", "audit", "number"),
    ("users", "organizations", "organization"),
)
STATES = ("RUNNING", "PENDING", "QUEUED", "COMPLETED", "FAILED", "CANCELLED")
ALIASES = {("queue", "template_name"): "template", ("audit", "number"): "audit_id"}


class Generator:
    """Queries over tables whose values are known, by seed."""

    def __init__(self, plain: apsw.Connection, keys: dict[str, tuple[str, ...]], seed: int) -> None:
        """Take the reference's tables, and the columns of each that tell its rows apart."""
        self.rng = Random(seed)
        self.keys = keys
        self.columns: dict[str, list[str]] = {}
        self.values: dict[tuple[str, str], list[Any]] = {}
        for table in keys:
            names = [row[1] for row in plain.execute(f"PRAGMA sys.table_info({table})")]
            self.columns[table] = names
            for name in names:
                self.values[table, name] = [row[0] for row in plain.execute(f"SELECT DISTINCT {name} FROM sys.{table} LIMIT 50")]

    def query(self) -> tuple[str, bool]:
        """Return a query, and whether the order of its rows is part of the answer."""
        makers = [self._listed] * 5 + [self._single_order] * 4 + [self._grouped] * 3 + [self._joined] * 3
        makers += [self._of_states] * 2
        makers += [self._window, self._nested, self._union, self._distinct, self._counted]
        return self.rng.choice(makers)()

    # ---- kinds ----------------------------------------------------------------------------------------------

    def _listed(self) -> tuple[str, bool]:
        table = self._table()
        keys, first = self.keys[table], self._column(table)
        shown = ", ".join([*self._some(table, 2), *keys])
        order = ", ".join(f"{name} {self._way()}" for name in (first, *keys))
        return f"SELECT {shown} FROM sys.{table}{self._where(table)} ORDER BY {order}{self._limit()}", True

    def _single_order(self) -> tuple[str, bool]:
        table = self._table()
        ordered = [
            name
            for name in ("completed_at", "completed_at_ts", "finished_at", "number", "started_at", "due_at", "audit_id")
            if name in self.columns[table]
        ]
        column = self.rng.choice([*ordered, *ordered, self._column(table)])
        return f"SELECT {column} FROM sys.{table}{self._where(table)} ORDER BY {column} {self._way()}{self._limit()}", True

    def _of_states(self) -> tuple[str, bool]:
        """Return a query for jobs in one state or two, those that run more often than others."""
        rng = self.rng
        table, column = rng.choice([("job_runs", "state"), ("job_runs", "status"), ("queue", "status"), ("job_runs", "state")])
        states = [rng.choice(["RUNNING", *STATES]) for _ in range(rng.randrange(1, 3))]
        condition = " OR ".join(f"{column} = '{state}'" for state in states)
        more = f" AND {self._condition(table)}" if rng.random() < 0.5 else ""
        order = ", ".join(f"{name} {self._way()}" for name in (self._column(table), *self.keys[table]))
        shown = ", ".join([column, "started_at", *self.keys[table]])
        return f"SELECT {shown} FROM sys.{table} WHERE ({condition}){more} ORDER BY {order}{self._limit()}", True

    def _grouped(self) -> tuple[str, bool]:
        table, rng = self._table(), self.rng
        column, counted = self._column(table), self._column(table)
        shown = f"count(*), count({counted}), min({counted}), max({counted})"
        having = f" HAVING count(*) > {rng.randrange(4)}" if rng.random() < 0.3 else ""
        return (
            f"SELECT {column}, {shown} FROM sys.{table}{self._where(table)} GROUP BY 1{having}",
            False,
        )

    def _joined(self) -> tuple[str, bool]:
        rng = self.rng
        left, right, on = rng.choice([join for join in JOINS if join[0] in self.keys and join[1] in self.keys])
        kind = rng.choice(["JOIN", "LEFT JOIN"])
        key = self.keys[left][0]
        bound = f"a.{key} {rng.choice(['<', '>', '='])} {self._literal(left, key)}"
        more = f" AND {self._condition(right, 'b.')}" if rng.random() < 0.5 else ""
        ons = ALIASES.get((left, on), on), ALIASES.get((right, on), on)
        shown = [f"a.{name}" for name in self.keys[left]] + [f"b.{name}" for name in self.keys[right]]
        shown += [f"a.{self._column(left)}", f"b.{self._column(right)}"]
        text = f"SELECT {', '.join(shown)} FROM sys.{left} AS a {kind} sys.{right} AS b ON a.{ons[0]} = b.{ons[1]}{more}"
        return f"{text} WHERE {bound} AND {self._condition(left, 'a.')}", False

    def _window(self) -> tuple[str, bool]:
        table = self._table()
        key = ", ".join(self.keys[table])
        text = f"row_number() OVER (PARTITION BY {self._column(table)} ORDER BY {key}), lag({self._column(table)}) OVER (ORDER BY {key})"
        return f"SELECT {key}, {text} FROM sys.{table}{self._where(table)}", False

    def _nested(self) -> tuple[str, bool]:
        table, other = self._table(), self._table()
        column = self._column(table)
        inner = f"SELECT {self._column(other)} FROM sys.{other}{self._where(other)}"
        form = self.rng.choice(
            [
                f"{column} IN ({inner})",
                f"{column} NOT IN ({inner})",
                f"EXISTS ({inner} LIMIT 1)",
                f"{column} = ({inner} ORDER BY 1 LIMIT 1)",
            ]
        )
        return f"SELECT {', '.join(self.keys[table])} FROM sys.{table} WHERE {form}", False

    def _union(self) -> tuple[str, bool]:
        table, word = self._table(), self.rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        column = self._column(table)
        return f"SELECT {column} FROM sys.{table}{self._where(table)} {word} SELECT {column} FROM sys.{table}{self._where(table)}", False

    def _distinct(self) -> tuple[str, bool]:
        table = self._table()
        return f"SELECT DISTINCT {', '.join(self._some(table, 2))} FROM sys.{table}{self._where(table)}", False

    def _counted(self) -> tuple[str, bool]:
        table = self._table()
        return f"SELECT count(*) FROM sys.{table}{self._where(table)}", False

    # ---- parts ----------------------------------------------------------------------------------------------

    def _table(self) -> str:
        # Half of the queries are about jobs, whose scans are put together from several.
        return self.rng.choice(
            [*self.keys, *(name for name in ("job_runs", "history", "job_runs", "history", "queue") if name in self.keys)]
        )

    def _column(self, table: str) -> str:
        return self.rng.choice(self.columns[table])

    def _some(self, table: str, count: int) -> list[str]:
        return self.rng.sample(self.columns[table], min(count, len(self.columns[table])))

    def _way(self) -> str:
        return self.rng.choice(["ASC", "DESC"])

    def _limit(self) -> str:
        rng = self.rng
        return (
            "" if rng.random() < 0.3 else f" LIMIT {rng.randrange(1, 40)}" + (f" OFFSET {rng.randrange(5)}" if rng.random() < 0.3 else "")
        )

    def _where(self, table: str) -> str:
        rng = self.rng
        if rng.random() < 0.2:
            return ""
        if rng.random() < 0.25:
            # Several values of one column: SQLite takes this apart into several scans.
            column = self._column(table)
            return " WHERE " + " OR ".join(f"{column} = {self._literal(table, column)}" for _ in range(rng.randrange(2, 5)))
        parts = [rng.choice(["", "", "NOT "]) + self._condition(table) for _ in range(rng.randrange(1, 4))]
        text = parts[0]
        for part in parts[1:]:
            text = f"({text}) {rng.choice(['AND', 'OR'])} {part}"
        return f" WHERE {text}"

    def _condition(self, table: str, prefix: str = "") -> str:
        rng, column = self.rng, self._column(table)
        kind = rng.random()
        name = f"{prefix}{column}"
        if kind < 0.55:
            return f"({name} {rng.choice(COMPARES)} {self._literal(table, column)})"
        if kind < 0.65:
            values = ", ".join(self._literal(table, column) for _ in range(rng.randrange(0, 4)))
            return f"({name} {rng.choice(['IN', 'NOT IN'])} ({values}))"
        if kind < 0.75:
            return f"({name} BETWEEN {self._literal(table, column)} AND {self._literal(table, column)})"
        if kind < 0.82:
            pattern = rng.choice(["'%a%'", "'n*'", "'_'", self._literal(table, column)])
            return f"({name} {rng.choice(['LIKE', 'NOT LIKE', 'GLOB'])} {pattern})"
        if kind < 0.9:
            return f"({name} {rng.choice(['IS NULL', 'IS NOT NULL'])})"
        if kind < 0.95:
            return f"({name} = {self._literal(table, column)} COLLATE {rng.choice(['NOCASE', 'RTRIM', 'BINARY'])})"
        return f"({name} {rng.choice(COMPARES)} {prefix}{self._column(table)})"

    def _literal(self, table: str, column: str) -> str:
        rng = self.rng
        if rng.random() < 0.15:
            return rng.choice(ODD)
        value = rng.choice(self.values[table, column] or [None])
        if value is None:
            return "NULL"
        if isinstance(value, int | float):
            return repr(value + rng.choice([0, 0, 0, 1, -1, 0.5]))
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        text = rng.choice([value, value, value, value.upper(), value.lower(), value.replace("-", ""), value + " ", value[:5]])
        return "'" + text.replace("'", "''") + "'"
