"""What a measurement works with: the systems, where each runs, and how much work a run gives them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.children import Child, Children, NotMeasured

CALL_CAP_S = 90.0
OWN = {
    "yardstick": "import apsw",
    "rota": "import rota",
    "rota-postgres": "import psycopg, rota",
    "rota-mongodb": "import pymongo, rota",
}
"""What runs on this very interpreter, which stands for the user's, and what must be there for it."""


@dataclass(frozen=True)
class System:
    """One measured system: its file under peers/, what it runs on, and how many jobs keep it busy for a few seconds."""

    name: str
    title: str
    file: str
    runtime: str
    store: str
    enqueue: int = 0
    bulk: int = 0
    drain: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)


SQLITE, POSTGRES, MONGODB = "sqlite", "postgres", "mongodb"
ROTA = System("rota", "Rota", "rota_sqlite.py", "rota", SQLITE, 10_000, 100_000, 100_000)
ROTA_PG = System("rota-pg", "Rota", "rota_postgres.py", "rota-postgres", POSTGRES, 3_000, 100_000, 100_000, {"BENCH_ROTA_DATABASE": "rota"})
ROTA_MONGO = System("rota-mongo", "Rota", "rota_mongodb.py", "rota-mongodb", MONGODB, 1_000, 20_000, 20_000, {"BENCH_ROTA_MONGODB": "rota"})
PLAIN = System("sqlite", "plain SQLite", "plain_sqlite.py", "yardstick", SQLITE, 10_000, 200_000)
SYSTEMS = (
    PLAIN,
    ROTA,
    System("huey", "Huey", "huey_sqlite.py", "python", SQLITE, 5_000, 0, 10_000),
    System("plainjob", "plainjob", "plainjob_sqlite.mjs", "node", SQLITE, 20_000, 100_000, 30_000),
    System("plainjob-full", "plainjob, synced", "plainjob_sqlite.mjs", "node", SQLITE, 5_000, extra={"BENCH_PLAINJOB_SYNC": "FULL"}),
    ROTA_PG,
    System("pgqueuer", "PgQueuer", "pgqueuer_pg.py", "python-postgres", POSTGRES, 3_000, 100_000, 50_000),
    System("procrastinate", "Procrastinate", "procrastinate_pg.py", "python-postgres", POSTGRES, 2_000, 30_000, 5_000),
    System("oban", "Oban for Python", "oban_pg.py", "python-oban", POSTGRES, 2_000, 30_000, 10_000),
    System("chancy", "Chancy", "chancy_pg.py", "python-postgres", POSTGRES, 2_000, 30_000, 10_000),
    System(
        "chancy-2000",
        "Chancy, 2,000 at once",
        "chancy_pg.py",
        "python-postgres",
        POSTGRES,
        drain=20_000,
        extra={"BENCH_CHANCY_CONCURRENCY": "2000"},
    ),
    System("dbos", "DBOS", "dbos_pg.py", "python-postgres", POSTGRES, 1_000, 5_000, 3_000),
    System("graphile-worker", "graphile-worker", "graphile_pg.mjs", "node", POSTGRES, 1_500, 50_000, 60_000),
    System("pg-boss", "pg-boss", "pgboss_pg.mjs", "node", POSTGRES, 1_500, 50_000, 60_000),
    ROTA_MONGO,
    System("agenda-50", "Agenda, 50 at once", "agenda_mongodb.mjs", "node", MONGODB, 500, 2_000, 2_000, {"BENCH_AGENDA_CONCURRENCY": "50"}),
    System(
        "agenda-200",
        "Agenda, 200 at once",
        "agenda_mongodb.mjs",
        "node",
        MONGODB,
        drain=2_000,
        extra={"BENCH_AGENDA_CONCURRENCY": "200"},
    ),
)


class ServerKind(NamedTuple):
    """A kind of server that stores are on: its name, and what of it serves an idle worker."""

    name: str
    idle: str
    address: str
    """The variable in which peers are told where it listens."""
    checkpoint: str
    """What has it write what is dirty, in Python; `sys.argv[1]` is where it listens."""


SERVERS = {
    POSTGRES: ServerKind(
        "PostgreSQL",
        "its sessions of PostgreSQL",
        "BENCH_POSTGRES",
        "import psycopg, sys; psycopg.connect(f'{sys.argv[1]}/postgres', autocommit=True).execute('CHECKPOINT')",
    ),
    MONGODB: ServerKind(
        "MongoDB",
        "the primary of MongoDB, with what that does on its own",
        "BENCH_MONGODB",
        "import pymongo, sys; pymongo.MongoClient(sys.argv[1]).admin.command('fsync')",
    ),
}
PREFIX = {SQLITE: ""} | {store: f"{server.name}: " for store, server in SERVERS.items()}
"""What stands before the topic of a row: systems are compared with those on the same kind of store."""


def by_store(systems: Sequence[System]) -> Iterator[tuple[str, list[System]]]:
    """Yield the kinds of store that these systems have, each with its systems."""
    for store in PREFIX:
        if members := [system for system in systems if system.store == store]:
            yield store, members


@dataclass(frozen=True)
class Scale:
    """How much of everything a run does."""

    runs: int
    divisor: int
    waiting: int
    front: int
    paced: int
    idle_s: float
    rest_s: float
    waiting_pg: int
    ended_pg: int


FULL = Scale(runs=3, divisor=1, waiting=1_000_000, front=20_000, paced=200, idle_s=10.0, rest_s=15.0, waiting_pg=200_000, ended_pg=200_000)
LONG = replace(FULL, waiting_pg=1_000_000, ended_pg=5_000_000)
QUICK = Scale(runs=1, divisor=10, waiting=50_000, front=5_000, paced=50, idle_s=3.0, rest_s=3.0, waiting_pg=20_000, ended_pg=20_000)


@dataclass
class Lab:
    """The bench itself. `runtimes` says which interpreter runs what; `missing` why one can't be had."""

    children: Children
    bench: Path
    node_peers: Path
    counters: Path
    stores: Path
    scale: Scale
    started_at: float = field(default_factory=time.monotonic)
    runtimes: dict[str, Path] = field(default_factory=lambda: dict.fromkeys(OWN, Path(sys.executable)))
    missing: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    servers: dict[str, int] = field(default_factory=dict)
    """The process of each server whose CPU counts, by kind of store: of a replica set, the primary's."""

    def why_not(self, system: System) -> str | None:
        """Return why a system can't be measured here, or None."""
        return self.missing.get(system.runtime) or self.missing.get(system.store)

    def ask(self, system: System, command: str, *words: object, cap_s: float = CALL_CAP_S, **extra: str) -> dict[str, Any]:
        """Run one command of a system's peer file to its end and return what it answers."""
        return _answer(self.children.call(self._command(system, command, *words), self._extra(system, extra), cap_s=cap_s))

    def start(self, system: System, command: str, *words: object, **extra: str) -> Child:
        """Start a command that goes on, its output being ours to read."""
        return self.children.start(self._command(system, command, *words), self._extra(system, extra), stdout=subprocess.PIPE)

    @contextmanager
    def working(self, system: System, count: int = 1, **extra: str) -> Iterator[list[Child]]:
        """Have worker processes running inside the block."""
        workers = [self.children.start(self._command(system, "work"), self._extra(system, extra)) for _ in range(count)]
        try:
            yield workers
        finally:
            self.children.stop(*workers)

    def answer(self, child: Child, *, cap_s: float) -> dict[str, Any]:
        """Wait for a started command and return what it answers."""
        return _answer(self.children.collect(child, cap_s=cap_s))

    def checkpoint(self, store: str) -> None:
        """Have a server write what is dirty, so that it does not do so later; without a driver here it has only the rest that follows."""
        server = SERVERS[store]
        with suppress(NotMeasured):
            self.children.call([sys.executable, "-c", server.checkpoint, self.environment[server.address]], cap_s=CALL_CAP_S)

    def clear(self) -> None:
        """Forget all counted starts and noted delays."""
        for path in self.counters.iterdir():
            path.unlink()

    def scaled(self, count: int) -> int:
        """Return a count of jobs at this run's scale."""
        return count // self.scale.divisor

    def say(self, text: str) -> None:
        """Tell whoever waits what is going on, with minutes and seconds since the start."""
        passed = int(time.monotonic() - self.started_at)
        print(f"[{passed // 60:2d}:{passed % 60:02d}] {text}", file=sys.stderr, flush=True)

    def _command(self, system: System, command: str, *words: object) -> list[str]:
        folder = self.node_peers if system.runtime == "node" else self.bench / "peers"
        return [str(self.runtimes[system.runtime]), str(folder / system.file), command, *map(str, words)]

    def _extra(self, system: System, extra: Mapping[str, str]) -> dict[str, str]:
        return self.environment | dict(system.extra) | dict(extra)


def _answer(output: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    if not lines:
        raise NotMeasured("it said nothing")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
