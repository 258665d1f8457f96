"""A PostgreSQL of the tests' own: made in a temporary folder, on loopback, never as root, stopped and thrown away at the end.

One server serves a whole test process. Nothing here looks for a server that is there already: a missing package is a failure.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore
from tests.support.memory import in_memory

TUNED = {
    # What is under test is our SQL; what survives a crash is tested by servers of their own.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "128MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "error",
}


class Server:
    """One cluster of our own."""

    def __init__(self, folder: Path, *, replica_of: Server | None = None, **tuned: str) -> None:
        """Make the cluster; `start` starts it. A replica is given everything that the other has, and follows it from then on."""
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.tuned = tuned
        self.host = tuned.get("listen_addresses", "127.0.0.1").split(",")[0]
        # A server does not run as root: where the tests do, it runs as the package's own user.
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(folder, self.user)
        if replica_of is None:
            self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync")
        else:
            # A cold copy: `pg_basebackup` of another version than the server's may refuse, or write what the server does not know.
            replica_of.stop()
            subprocess.run(["cp", "-a", str(replica_of.data), str(self.data)], check=True)
            replica_of.start()
            with (self.data / "postgresql.auto.conf").open("a") as more:
                more.write(f"primary_conninfo = '{replica_of.url()}'\n")
            (self.data / "standby.signal").touch()

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        given = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        # As newer servers have it by themselves.
        given |= {"password_encryption": "scram-sha-256", **self.tuned}
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in given.items())
        self.run("pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-w", "-t", "60", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: fast, or immediate as if the power went."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop", check=False)

    def kill(self) -> None:
        """Kill every process of it at once, as if the machine was gone."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def freeze(self) -> None:
        """Stop every process of it where it is: its kernel goes on acknowledging what is sent to it."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """Let all of them continue."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _processes(self) -> Iterator[psutil.Process]:
        """Give the first process, and only then those that it has started: once it is stopped it starts no more."""
        first = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n")[0]))
        yield first
        yield from first.children(recursive=True)

    def promote(self) -> None:
        """Make a replica the one that is written."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def set(self, name: str, value: str | None) -> None:
        """Change a setting of the running server; None: back to what it was."""
        with self.connect() as raw:
            raw.execute((f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = '{value}'").encode())
            raw.execute(b"SELECT pg_reload_conf()")

    def throw_away(self) -> None:
        """Stop it and remove the folder. One whose processes were stopped where they are leaves them behind."""
        with suppress(OSError, psutil.NoSuchProcess):
            processes = list(self._processes())
            self.stop("immediate")
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def allow(self, *lines: str) -> None:
        """Take connections as these lines of pg_hba.conf say, and no others; passwords are asked for where they say so."""
        (self.data / "pg_hba.conf").write_text("\n".join([*lines, ""]))
        self.run("pg_ctl", "-D", str(self.data), "reload")

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the address that a client uses."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    def socket_url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the address of its socket: a statement costs both sides a third less there than over TCP."""
        return f"postgresql://{user}@{quote(str(self.folder), safe='')}:{self.port}/{database}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """Connect as the superuser, each statement its own transaction."""
        return psycopg.connect(self.url(database), autocommit=True, **options)

    def run(self, program: str, *arguments: str, check: bool = True) -> None:
        """Run one of PostgreSQL's own programs as the server's user."""
        done = subprocess.run(
            [str(binaries() / program), *arguments],
            user=self.user if os.geteuid() == 0 else None,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if check and done.returncode:
            log = self.folder / "log"
            said = done.stdout.decode(errors="replace") + (log.read_text(errors="replace")[-2000:] if log.exists() else "")
            raise AssertionError(f"{program} ended with {done.returncode}: {said}")


def make_server(replica_of: Server | None = None, **tuned: str) -> Server:
    """Make and start a server in a folder of its own; the caller throws it away."""
    folder = Path(tempfile.mkdtemp(prefix="rota-postgres-", dir=in_memory()))
    folder.chmod(0o755)
    server = Server(folder, replica_of=replica_of, **tuned)
    server.start()
    return server


@cache
def shared_server() -> Server:
    """Return the server that all tests of this process share; it goes when the process does."""
    server = make_server(**TUNED)
    atexit.register(server.throw_away)
    return server


@contextmanager
def fresh_database(server: Server | None = None, *, like: str | None = None) -> Iterator[str]:
    """Make a database for the time of a block, on the shared server unless another is named; return its address.

    It has an empty store in it, or is a copy of the database that it is to be like: `EMPTY` has nothing in it.
    """
    server, name = server or shared_server(), f"fresh_{next(_numbers)}"
    like = prepared_database(server) if like is None else like
    with server.connect() as raw:
        raw.execute(f"CREATE DATABASE {name} TEMPLATE {like}".encode())
    yield server.url(name)
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


EMPTY = "template1"
"""The database that new ones are like where nobody says otherwise."""


@cache
def prepared_database(server: Server) -> str:
    """Return a database with an empty store, made once: the schema takes longer than a copy of it does."""
    with server.connect() as raw:
        raw.execute(b"CREATE DATABASE prepared")
    store = PostgresStore(server.url("prepared"), Settings())
    try:
        store.migrate(now=0)
    finally:
        store.close()
    return "prepared"


_numbers = count(1)


@cache
def binaries() -> Path:
    """Return where the server's programs are: where ROTA_TEST_POSTGRES says, else where Debian keeps them, out of the path."""
    named = os.environ.get("ROTA_TEST_POSTGRES")
    if named:
        return Path(named)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    assert initdb, "PostgreSQL's server is not installed: `make test` installs it (on Debian: apt install postgresql)"
    return Path(initdb).resolve().parent


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
