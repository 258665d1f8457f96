"""Master keys for tests: a key file as an operator would make it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from rota.vault import Keyring, new_key_line

KNOWN = b"known to all tests, no secret...."[:32]
"""The key of stores that tests copy about."""


def credentials(folder: Path) -> Path:
    """Write the known key as systemd would, and return what $CREDENTIALS_DIRECTORY is to be."""
    folder.mkdir(exist_ok=True)
    write_keys(folder / "rota-master-key", [b64encode(KNOWN).decode()])
    return folder


def write_keys(path: Path, lines: Sequence[str]) -> Path:
    """Write a key file in place of the one that is there, as one step."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text("".join(f"{line}\n" for line in lines))
    return new.replace(path)


def key_file(folder: Path, *, keys: int = 1) -> Path:
    """Write a key file with new keys."""
    return write_keys(folder / "master-key", [new_key_line() for _ in range(keys)])


def add_key(path: Path) -> str:
    """Put a new key before those that are there, and return its id."""
    line = new_key_line()
    write_keys(path, [line, *path.read_text().splitlines()])
    return id_of(line)


def id_of(line: str) -> str:
    """Return the id of a key."""
    return Keyring([b64decode(line)]).current
