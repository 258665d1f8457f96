"""A PostgreSQL of this run's own: Debian's binaries, a temporary folder, loopback, a free port, stopped at the end."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.children import Child, Children, NotMeasured
from harness.server import Server, free_port

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_connections": "200",
}
_TOLD = ("fsync", "synchronous_commit", "shared_buffers")
_START_CAP_S = 30.0
_UNPACK_CAP_S = 300.0


@contextmanager
def serving(children: Children, base: Path, unpacked: Path, more: Mapping[str, str]) -> Iterator[Server]:
    """Run a fresh server with its data under `base` and these settings more; NotMeasured says why there can be none."""
    binaries = _binaries(Path("/usr/lib/postgresql")) or _unpack_debian(children, unpacked)
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-pg-", dir=base))
    identity = _identity(folder)
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, unpacked.glob("usr/lib/*-linux-gnu")))} if unpacked in binaries.parents else {}
    process: Child | None = None
    try:
        initdb = [str(binaries / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "--locale=C", "-E", "UTF8"]
        children.collect(children.start(initdb, environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **identity), cap_s=60)
        port = free_port()
        flags = [part for name, value in (_SETTINGS | dict(more)).items() for part in ("-c", f"{name}={value}")]
        process = children.start([str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port), *flags], environment, **identity)
        _wait_until_ready(children, binaries, port, process)
        version = children.call([str(binaries / "postgres"), "--version"], environment, cap_s=10).split()[2]
        said = ", ".join(f"{name}={_SETTINGS[name]}" for name in _TOLD)
        yield Server(f"postgresql://postgres@127.0.0.1:{port}", version, said, process)
    finally:
        if process is not None:
            children.stop(process, first=signal.SIGINT)  # "fast": sessions are ended, nothing is lost
        shutil.rmtree(folder, ignore_errors=True)


def _identity(folder: Path) -> dict[str, Any]:
    """Return whom the server runs as: PostgreSQL refuses root, so there it is the postgres user (or nobody)."""
    if os.geteuid() != 0:
        return {"cwd": folder}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": folder}


def _binaries(root: Path) -> Path | None:
    found = sorted(root.glob("*/bin/postgres"), key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0))
    return found[-1].parent if found else None


def _unpack_debian(children: Children, target: Path) -> Path:
    """Unpack Debian's packages into a folder of ours: nothing is installed on the machine, no root is needed."""
    inside = target / "usr/lib/postgresql"
    if not _binaries(inside):
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise NotMeasured("PostgreSQL is not installed, and without apt-get it can't be fetched")
        target.mkdir(parents=True, exist_ok=True)
        plan = children.call(["apt-get", "install", "--simulate", "--no-install-recommends", "postgresql"], cap_s=60)
        packages = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        fetch = children.start(["apt-get", "download", *packages], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=target)
        children.collect(fetch, cap_s=_UNPACK_CAP_S)
        for package in target.glob("*.deb"):
            children.call(["dpkg-deb", "-x", str(package), str(target)], cap_s=60)
            package.unlink()
    binaries = _binaries(inside)
    if not binaries:
        raise NotMeasured("PostgreSQL is not installed, and Debian's package could not be unpacked")
    return binaries


def _wait_until_ready(children: Children, binaries: Path, port: int, process: Child) -> None:
    end = time.monotonic() + _START_CAP_S
    while time.monotonic() < end and process.poll() is None:
        try:
            children.call([str(binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)], cap_s=5)
        except NotMeasured:
            time.sleep(0.1)
        else:
            return
    raise NotMeasured("PostgreSQL did not start; its messages are in the log")
