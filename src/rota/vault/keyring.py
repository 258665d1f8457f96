"""Master keys: read from a file that nobody else can read, never from the environment. The first encrypts, all of them decrypt."""

from __future__ import annotations

import hashlib
import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path

from rota.errors import InvalidOption, SecretUnavailable
from rota.model.settings import Settings
from rota.ports.files import OTHERS

KEY_BYTES = 32
FILE_MAX_BYTES = 65_536
CREDENTIAL = "rota-master-key"
NO_KEY = "set master_key_file (ROTA_MASTER_KEY_FILE) to a file with a line of `rota secret key`, which only its owner can read"


class Keyring:
    """The master keys of this process by id."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        """Take the keys, 32 bytes each, the one that encrypts first."""
        self._keys = {key_id(key): key for key in keys}

    @classmethod
    def empty(cls) -> Keyring:
        """Return the keyring of a process without a key: it refuses secrets."""
        return cls()

    @classmethod
    def load(cls, settings: Settings, environ: Mapping[str, str]) -> Keyring:
        """Read the keys from systemd's credential, else from the file that the setting names; without either it is empty."""
        path = key_file(settings, environ)
        return cls.empty() if path is None else cls(_read(path, is_credential=path != Path(settings.master_key_file)))

    def __bool__(self) -> bool:
        """Say whether there is any key."""
        return bool(self._keys)

    def __contains__(self, wanted: str) -> bool:
        """Say whether a key is here."""
        return wanted in self._keys

    def __repr__(self) -> str:
        """Return the ids of the keys, never the keys."""
        return f"Keyring({', '.join(self._keys)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, that of the key which encrypts first."""
        return tuple(self._keys)

    @property
    def current(self) -> str:
        """The id of the key that encrypts."""
        if not self._keys:
            raise SecretUnavailable(f"there is no master key to encrypt with: {NO_KEY}")
        return next(iter(self._keys))

    def key(self, wanted: str) -> bytes:
        """Return a key by its id."""
        if wanted in self._keys:
            return self._keys[wanted]
        if not self._keys:
            raise SecretUnavailable(f"there is no master key here, and {wanted} is needed: {NO_KEY}")
        raise SecretUnavailable(f"the master key {wanted} is not among the keys of this process: add its line to the key file")


def key_id(key: bytes) -> str:
    """Return the id of a key: a digest that says nothing of it."""
    return hashlib.sha256(b"rota master key" + key).hexdigest()[:16]


def new_key_line() -> str:
    """Return a new key as a line of the key file."""
    return b64encode(os.urandom(KEY_BYTES)).decode()


def key_file(settings: Settings, environ: Mapping[str, str]) -> Path | None:
    """Return the file that the keys are read from; None: there is none. It need not exist if the setting names it."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if folder:
        credential = Path(folder) / CREDENTIAL
        if credential.exists():
            return credential
    return Path(settings.master_key_file) if settings.master_key_file else None


def key_files(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return every place where keys may be, whether or not there are any."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return [*([str(Path(folder) / CREDENTIAL)] if folder else []), *([settings.master_key_file] if settings.master_key_file else [])]


def _read(path: Path, *, is_credential: bool) -> list[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidOption(f"the key file {path} can't be read ({error.strerror}): {NO_KEY}") from None
    try:
        found = os.fstat(descriptor)
        # systemd opens a credential to the unit's user with an access list, whose mask looks like rights of a group.
        if not is_credential:
            refuse_open(path, found)
        content = os.read(descriptor, FILE_MAX_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)
    return keys_of(content, path)


def refuse_open(path: Path, found: os.stat_result) -> None:
    """Refuse a key file that others than its owner can read or write, or whose owner could be anybody."""
    bits = stat.S_IMODE(found.st_mode)
    if bits & OTHERS:
        raise InvalidOption(f"the key file {path} has mode {bits:04o}, so that others can use the keys: chmod 600 {path}")
    if found.st_uid not in {0, os.geteuid()}:
        raise InvalidOption(f"the key file {path} belongs to user {found.st_uid}: it has to be yours or root's (chown)")


def keys_of(content: bytes, path: Path) -> list[bytes]:
    """Return the keys of a file, one a line; a message names a line that is not one and never shows it."""
    if len(content) > FILE_MAX_BYTES:
        raise InvalidOption(f"the key file {path} is larger than {FILE_MAX_BYTES:,} bytes: it has one key a line")
    keys = []
    for number, line in enumerate(content.split(b"\n"), 1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            keys.append(_key_of(text, path, number))
    if not keys:
        raise InvalidOption(f"the key file {path} has no key: add a line of `rota secret key`")
    return keys


def _key_of(text: bytes, path: Path, number: int) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidOption(
            f"line {number} of the key file {path} is not a key: it is {KEY_BYTES} bytes in base64, as `rota secret key` prints"
        )
    return key
