"""Where a worker of a store on servers keeps what belongs to its machine: lock files, and the logs of its runs.

A store is told from others on this machine by the name of its address.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from rota.model.settings import Settings
from rota.stores import permissions
from rota.stores.locks import FileLocks


def workers_folder(store: str) -> Path:
    """Return the folder of lock files: they let neighbours on this machine see at once that a worker is gone. Elsewhere only beats tell."""
    runtime = runtime_folder()
    base = Path(tempfile.gettempdir()) / f"rota-{os.getuid()}" if runtime is None else runtime / "rota"
    return base / f"{store}.workers"


def runtime_folder() -> Path | None:
    """Return the user's own folder for what lasts as long as the machine runs (XDG_RUNTIME_DIR), where there is one."""
    named = os.environ.get("XDG_RUNTIME_DIR")
    return Path(named) if named and Path(named).is_dir() else None


def locks(store: str, settings: Settings) -> FileLocks:
    """Return the lock files of this machine's workers; those in the folder for temporary files stand beside strangers'."""
    return FileLocks(workers_folder(store), settings, beside_strangers=runtime_folder() is None)


def log_dir(store: str, settings: Settings) -> str:
    """Return the folder of runs' logs."""
    if settings.log_dir:
        return settings.log_dir
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return str(base / "rota" / f"{store}.logs")


def kept(store: str, settings: Settings) -> list[permissions.Kept]:
    """Return the files and folders of this store on this machine."""
    return [permissions.locks(str(workers_folder(store))), permissions.logs(log_dir(store, settings), settings)]


def shared_folder(store: str) -> list[permissions.Kept]:
    """Return the folder of this user's own that stands beside strangers', if there is one."""
    folder = workers_folder(store).parent
    if runtime_folder() is not None or not folder.exists() or folder.lstat().st_uid != os.geteuid():
        return []
    return [permissions.Kept(str(folder), permissions.HOLD_WORKER_LOCKS)]


def name_of(readable: str, shown: str) -> str:
    """Return a name that each store has to itself on this machine, from a word that people know it by and its address."""
    return f"{readable}-{hashlib.sha256(shown.encode()).hexdigest()[:16]}"
