"""The master keys of a process over its life: the key file is read again when it has changed, so that keys rotate without a restart."""

from __future__ import annotations

from collections.abc import Mapping

from rota.model.settings import Settings
from rota.vault.keyring import Keyring, key_file


class MasterKeys:
    """Gives the keyring as the key file is now. Thread-safe without a lock: two threads may read the file at once."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """Take where keys may be; nothing is read yet."""
        self._settings = settings
        self._environ = environ
        self._last: tuple[object, Keyring] | None = None

    def keyring(self) -> Keyring:
        """Return the keyring; raise InvalidOption if the key file can't be used."""
        seen, last = self._state(), self._last
        if last is not None and last[0] == seen:
            return last[1]
        keyring = Keyring.load(self._settings, self._environ)
        self._last = seen, keyring
        return keyring

    def _state(self) -> object:
        """Return what is another as soon as the file is another."""
        path = key_file(self._settings, self._environ)
        if path is None:
            return None
        try:
            found = path.stat()
        except OSError as error:
            return error.errno
        return path, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid
