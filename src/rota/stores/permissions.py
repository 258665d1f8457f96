"""What `rota doctor` finds in the permissions of a store's files and folders, and `rota repair` sets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import msgspec

from rota.model.findings import Finding, ok, problem, repaired
from rota.model.settings import Settings
from rota.ports.files import OTHERS, open_to_others

NAME = "permissions"
SHOWN = 5
_LOGS_OF_SOME = re.compile(r"[0-9a-f]{2}")
"""Folders that runs' logs are spread over."""

READ_ALL = "read params, results and webhook secrets"
HOLD_LOG_LOCKS = "hold its locks, so that nobody can write"
HOLD_WORKER_LOCKS = "hold the locks of dead workers, so that their jobs are never recovered"
READ_LOGS = "read what handlers print and log"


class Kept(msgspec.Struct, frozen=True):
    """A file, or a folder with the files in it, that others have no business in, and what they could do if it is open to them."""

    path: str
    risk: str
    ending: str = ""
    """How the names of files in the folder end."""
    ours: bool = True
    """False for a folder that somebody else made: only what Rota keeps in it counts."""

    def paths(self) -> Iterator[str]:
        """Go through everything, a folder before what is in it. Symbolic links are not followed."""
        if self.ours:
            yield self.path
        if self.ending:
            yield from _inside(self.path, self.ending)


class _Open(msgspec.Struct, frozen=True):
    """A path that is more open than it should be."""

    path: str
    bits: int
    wanted: int


def look(places: Iterable[Kept], settings: Settings) -> Iterator[Finding]:
    """Name what is more open than the setting says."""
    sound = True
    for kept in places:
        found = list(_open(kept, settings))
        if found:
            sound = False
            group = "its group" if not any(each.bits & 0o007 for each in found) else "any user of this machine"
            change = ", and change it" if any(each.bits & 0o022 & ~each.wanted for each in found) else ""
            named = ", ".join(f"{each.path} has mode {each.bits:04o}" for each in found[:SHOWN])
            more = f" and {len(found) - SHOWN:,} more are open" if len(found) > SHOWN else ""
            yield problem(
                NAME,
                f"{named}{more}: {group} can {kept.risk}{change}",
                f"run `rota repair` as their owner or root, which applies store_mode ({settings.store_mode})",
            )
    if sound:
        yield ok(NAME, f"no file or folder of the store is more open than store_mode ({settings.store_mode})")


def repair(places: Iterable[Kept], settings: Settings) -> Iterator[Finding]:
    """Take away from others what they have beyond the setting. What belongs to somebody else stays: the check-up will name it."""
    for kept in places:
        done = [each for each in _open(kept, settings) if _close(each)]
        if done:
            named = ", ".join(f"{each.path} (was {each.bits:04o})" for each in done[:SHOWN])
            more = f" and {len(done) - SHOWN:,} more" if len(done) > SHOWN else ""
            yield repaired(NAME, f"closed {named}{more} to others, by store_mode ({settings.store_mode})")


def _open(kept: Kept, settings: Settings) -> Iterator[_Open]:
    for path in kept.paths():
        wanted = settings.folder_mode if os.path.isdir(path) else settings.file_mode  # noqa: PTH112 - there may be very many
        bits = open_to_others(path, mode=wanted)
        if bits is not None:
            yield _Open(path, bits, wanted)


def _close(found: _Open) -> bool:
    try:
        os.chmod(found.path, found.bits & ~(OTHERS & ~found.wanted))  # noqa: PTH101 - as above
    except OSError:
        return False
    return True


def _inside(folder: str, ending: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False) and _LOGS_OF_SOME.fullmatch(entry.name):
            yield entry.path
            yield from _inside(entry.path, ending)
        elif entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
            yield entry.path


def locks(folder: str) -> Kept:
    """Return what is kept in a folder of workers' lock files."""
    return Kept(folder, HOLD_WORKER_LOCKS, ".lock")


def logs(folder: str, settings: Settings) -> Kept:
    """Return what is kept in the folder of runs' logs, which is not ours if the settings name it."""
    return Kept(folder, READ_LOGS, ".log", ours=not settings.log_dir)
