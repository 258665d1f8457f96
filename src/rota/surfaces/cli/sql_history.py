"""What a person typed at the prompt of `rota sql`, kept in a file that only this person can read; and completion of words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rota.model.urls import has_password
from rota.sql.catalog import TABLES
from rota.sql.grammar import KEYWORDS

readline: ModuleType | None
try:
    import readline
except ImportError:  # not everywhere
    readline = None

ENTRIES_MAX = 1000
_SECRET = re.compile(r"\bsecret\b|passw(or)?d", re.IGNORECASE)
_ESCAPES = {"\\": "\\\\", "\n": "\\n"}
_UNESCAPED = re.compile(r"\\(.)")


class History:
    """The statements of earlier sessions and of this one. One that may hold a secret or a password is not kept, not even in memory."""

    def __init__(self, file: Path | None = None) -> None:
        """Take the file; the usual one if none is given."""
        self._file = file or state_folder() / "sql_history"

    def load(self) -> None:
        """Let the arrow keys find what was kept, and the Tab key complete words."""
        if readline is None:
            return
        readline.set_auto_history(False)
        for entry in self._entries():
            readline.add_history(entry)
        words = sorted({*KEYWORDS, *_names()})
        readline.set_completer_delims(" \t\n\"',;()=<>+-*/|")
        readline.set_completer(Completer(words))
        readline.parse_and_bind("tab: complete")

    def add(self, text: str) -> None:
        """Keep a statement, unless it may hold a secret."""
        if not text or _SECRET.search(text) or has_password(text):
            return
        if readline is not None:
            readline.add_history(text)
        line = "".join(_ESCAPES.get(each, each) for each in text) + "\n"
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = [*self._lines(), line][-ENTRIES_MAX:]
            whole = len(kept) == ENTRIES_MAX
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if whole else os.O_APPEND)
            with os.fdopen(os.open(self._file, flags, 0o600), "w", encoding="utf-8", errors="replace") as stream:
                os.fchmod(stream.fileno(), 0o600)
                stream.writelines(kept if whole else [line])
        except OSError:
            # A home that can't be written to is no reason to refuse statements.
            return

    def _entries(self) -> Iterator[str]:
        for line in self._lines():
            yield _UNESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], line.rstrip("\n"))

    def _lines(self) -> list[str]:
        try:
            return self._file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError:
            return []


class Completer:
    """Completes the word before the cursor: keywords in the case that was typed, tables and columns as they are."""

    def __init__(self, words: list[str]) -> None:
        """Take all words."""
        self._words = words
        self._found: list[str] = []

    def __call__(self, typed: str, number: int) -> str | None:
        """Return the next word that begins like what was typed."""
        if number == 0:
            fits = [word for word in self._words if word.lower().startswith(typed.lower())]
            self._found = [word.lower() if word.isupper() and typed.islower() else word for word in fits]
        return self._found[number] if number < len(self._found) else None


def _names() -> Iterator[Any]:
    for table in TABLES.values():
        yield f"sys.{table.name}"
        yield from (column.name for column in table.columns)


def state_folder() -> Path:
    """Return where programs of this person keep what is neither settings nor data (XDG)."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # The standard asks that a relative path be ignored.
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "rota"
