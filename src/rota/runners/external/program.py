"""A command line, and the program that it names: opened first, then checked by its descriptor, then run by it.

What was checked is what runs. A link that is swapped in between changes nothing.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from types import TracebackType
from typing import Self

from rota.ports.runner import BodyRefused
from rota.runners.external.config import ExternalConfig, is_below
from rota.runners.external.trust import exposure

COMMAND_MAX = 64 * 1024
"""Bytes of one command line."""
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a command that could not be started, as shells have them."""
MAGIC = (b"\x7fELF", b"#!")
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class CommandRefused(BodyRefused):
    """A command that this worker does not run."""

    def __init__(self, message: str, *, exit_code: int = NOT_RUNNABLE) -> None:
        """Take why, and the exit code that a shell would have for it."""
        super().__init__(message)
        self.exit_code = exit_code


class Program:
    """A program that may run, held by its descriptor, with the words of its command line."""

    def __init__(self, descriptor: int, path: str, words: list[str]) -> None:
        """Take the descriptor over: `close` it, or use a block."""
        self.descriptor = descriptor
        self.path = path
        """Where it really is, without links."""
        self.words = words

    def __enter__(self) -> Self:
        """Lend it."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let go of it."""
        os.close(self.descriptor)

    def has_known_format(self) -> bool:
        """Say whether it is a script with `#!` or a program of this system, or can't be read, which then only a program can be."""
        try:
            descriptor = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            return os.read(descriptor, 4).startswith(MAGIC)
        finally:
            os.close(descriptor)


def open_program(body: str, config: ExternalConfig) -> Program:
    """Return the program of a command line, ready to be run, or refuse it."""
    words = split(body)
    descriptor = _open(words[0])
    try:
        path = _check(words[0], descriptor, config)
    except BaseException:
        os.close(descriptor)
        raise
    return Program(descriptor, path, words)


def split(body: str) -> list[str]:
    """Return the words of a command line. No shell reads it: quotes group words, and nothing else has a meaning."""
    if len(os.fsencode(body)) > COMMAND_MAX:
        raise CommandRefused(f"the command line has {len(os.fsencode(body)):,} bytes; at most {COMMAND_MAX:,} are allowed")
    if "\0" in body:
        raise CommandRefused("the command line has a NUL character, which no argument can have")
    try:
        words = shlex.split(body)
    except ValueError as error:
        raise CommandRefused(f"the command line can't be read: {str(error).lower()}; quote as in a shell") from None
    if not words or not words[0]:
        raise CommandRefused("the command line is empty: name a program by its absolute path")
    if not words[0].startswith("/"):
        raise CommandRefused(f"{words[0]!r:.200} is not an absolute path: commands are not looked up, and no shell runs them")
    return words


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        code = NOT_FOUND if error.errno in _MISSING else NOT_RUNNABLE
        raise CommandRefused(f"{path!r:.200} can't be run: {(error.strerror or 'error').lower()}", exit_code=code) from None


def _check(word: str, descriptor: int, config: ExternalConfig) -> str:
    found = os.fstat(descriptor)
    path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - by descriptor
    named = repr(word) if word == path else f"{word!r} ({path})"
    if not is_allowed(path, config):
        raise CommandRefused(f"{named:.400} is not a command that this worker runs: see `programs` and `folders` in {config.source}")
    if not stat.S_ISREG(found.st_mode):
        raise CommandRefused(f"{named:.400} is not a file")
    if not found.st_mode & 0o111:
        raise CommandRefused(f"{named:.400} is not executable: run `chmod a+x`")
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise CommandRefused(f"{named:.400} would run with the rights of its owner or group (setuid, setgid), which commands never do")
    try:
        reason = exposure(path, found=found)
    except OSError as error:
        raise CommandRefused(f"{named:.400} is gone: {error.strerror}", exit_code=NOT_FOUND) from None
    if reason:
        raise CommandRefused(f"{named:.400} is not trusted: {reason}")
    return path


def is_allowed(path: str, config: ExternalConfig) -> bool:
    """Say whether a path without links is on the operator's list."""
    if any(path == os.path.realpath(program) for program in config.programs):
        return True
    return any(path != (folder := os.path.realpath(each)) and is_below(path, folder) for each in config.folders)
