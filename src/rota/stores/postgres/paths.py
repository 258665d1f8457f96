"""Where a worker of a PostgreSQL store keeps what belongs to its machine: lock files, and the logs of its runs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from rota.model.settings import Settings
from rota.stores import permissions
from rota.stores.locks import FileLocks
from rota.stores.postgres.address import Address


def workers_folder(where: Address) -> Path:
    """Return the folder of lock files: they let neighbours on this machine see at once that a worker is gone. Elsewhere only beats tell."""
    runtime = runtime_folder()
    base = Path(tempfile.gettempdir()) / f"rota-{os.getuid()}" if runtime is None else runtime / "rota"
    return base / f"{_name(where)}.workers"


def runtime_folder() -> Path | None:
    """Return the user's own folder for what lasts as long as the machine runs (XDG_RUNTIME_DIR), where there is one."""
    named = os.environ.get("XDG_RUNTIME_DIR")
    return Path(named) if named and Path(named).is_dir() else None


def locks(where: Address, settings: Settings) -> FileLocks:
    """Return the lock files of this machine's workers; those in the folder for temporary files stand beside strangers'."""
    return FileLocks(workers_folder(where), settings, beside_strangers=runtime_folder() is None)


def log_dir(where: Address, settings: Settings) -> str:
    """Return the folder of runs' logs."""
    if settings.log_dir:
        return settings.log_dir
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return str(base / "rota" / f"{_name(where)}.logs")


def kept(where: Address, settings: Settings) -> list[permissions.Kept]:
    """Return the files and folders of this store on this machine."""
    return [permissions.locks(str(workers_folder(where))), permissions.logs(log_dir(where, settings), settings)]


def shared_folder(where: Address) -> list[permissions.Kept]:
    """Return the folder of this user's own that stands beside strangers', if there is one."""
    folder = workers_folder(where).parent
    if runtime_folder() is not None or not folder.exists() or folder.lstat().st_uid != os.geteuid():
        return []
    return [permissions.Kept(str(folder), permissions.HOLD_WORKER_LOCKS)]


def _name(where: Address) -> str:
    """Return a name that each store has to itself on this machine."""
    return f"{where.schema}-{hashlib.sha256(f'{where.shown}#{where.schema}'.encode()).hexdigest()[:16]}"
