"""What a line of a crontab runs: its words, and a name for it."""

from __future__ import annotations

import re
import shlex
from itertools import dropwhile

from rota.compat.crontab import CrontabEntry

ENV = "/usr/bin/env"
SHELLS = frozenset({"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "tcsh", "zsh"})
"""Shells that run a command of plain words as it is written."""
NAME_MAX_CHARS = 60
UNNAMED = "command"


def words_of(entry: CrontabEntry) -> list[str]:
    """Return the words of the command that a job runs for this line.

    cron passes the line to a shell. A program whose arguments need none is run itself; variables are set by env.
    """
    words = _plain_words(entry) or [entry.shell, "-c", entry.command]
    assignments = [f"{name}={value}" for name, value in entry.environment.items()]
    return [ENV, *assignments, *words] if assignments else words


def _plain_words(entry: CrontabEntry) -> list[str] | None:
    """Return the words of a line that means the same without a shell; None if it needs one."""
    if not _PLAIN.fullmatch(entry.command) or entry.shell.rpartition("/")[2] not in SHELLS:
        return None
    words = shlex.split(entry.command)
    # env would take a path with an equals sign for a variable.
    return words if words and words[0].startswith("/") and "=" not in words[0] else None


_PLAIN = re.compile(r"""(?:[\w@%+=:,./ \t-]|'[^']*'|"[^"$`\\]*")+""")
"""Words, and quotes in which a shell replaces nothing."""


def base_name(entry: CrontabEntry) -> str:
    """Return a name for the job of a line: that of the program that it runs, as a plain name of SQL where that is possible."""
    program = next(filter(None, map(_program, _STEP.split(entry.command))), "")
    stem = _SCRIPT.sub("", program.rstrip("/").rpartition("/")[2])
    return re.sub(r"\W+", "_", stem).strip("_")[:NAME_MAX_CHARS] or UNNAMED


def _program(step: str) -> str:
    """Return the program that a step of a command line runs; "" for one that only prepares the next."""
    try:
        words = shlex.split(step)
    except ValueError:
        words = step.split()
    words = list(dropwhile(_LEAD.fullmatch, words))
    if not words or words[0] in PREPARE:
        return ""
    script = next((word for word in words[1:2] if not word.startswith("-") and _SCRIPT.search(word)), None)
    return script if script and _INTERPRETER.fullmatch(words[0].rpartition("/")[2]) else words[0]


PREPARE = frozenset({"[", "[[", "test", "cd", "sleep", "umask", "ulimit", "export", "set", ".", "source", "command", "fi", "}", ")"})
"""Commands that come before the one that a line is for, or that end a block."""
_STEP = re.compile(r"&&|\|\||[;|&]")
_LEAD = re.compile(r"[A-Za-z_]\w*=.*|[({!]+|if|then|else|do|exec|nohup|time", re.DOTALL)
"""Words before a program's: variables, and words of the shell."""
_SCRIPT = re.compile(r"\.(?:sh|bash|py|pl|rb|php|js)$", re.IGNORECASE)
_INTERPRETER = re.compile(r"(?:python|perl|php|ruby|node|bash|dash|sh|zsh)[\d.]*")
