"""Where a worker of a PostgreSQL store keeps what belongs to its machine: lock files, and the logs of its runs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from rota.stores.postgres.address import Address


def workers_folder(where: Address) -> Path:
    """Return the folder of lock files: they let neighbours on this machine see at once that a worker is gone.

    Elsewhere, and where this folder is somebody else's, only beats tell.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "rota" if runtime and Path(runtime).is_dir() else Path(tempfile.gettempdir()) / f"rota-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        base = Path(tempfile.mkdtemp(prefix="rota-"))
    return base / f"{_name(where)}.workers"


def log_folder(where: Address) -> Path:
    """Return the folder of runs' logs."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "rota" / f"{_name(where)}.logs"


def _name(where: Address) -> str:
    """Return a name that each store has to itself on this machine."""
    return f"{where.schema}-{hashlib.sha256(f'{where.shown}#{where.schema}'.encode()).hexdigest()[:16]}"
