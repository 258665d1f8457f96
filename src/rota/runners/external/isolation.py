"""Namespaces of a command's own, made by bubblewrap: whether they can be had here, and what is in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator

import msgspec

from rota.runners.external.config import ExternalConfig, IsolationMode, is_below
from rota.runners.external.trust import exposure
from rota.runners.external.warden import PROGRAM_FD, STATUS_FD

PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
PROBE_S = 20.0
REMEDY = "install bubblewrap (on Debian: apt install bubblewrap) and allow user namespaces, or set isolation = 'prefer' or 'off'"

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders beside /usr that programs and libraries are in; today they are links into it."""
CONFIGURATION = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
)
"""What programs look up in /etc; the rest of it is not shown."""
OPTIONAL = ("--disable-userns", "--ro-bind-fd", "--size")
"""Options that not every version has."""


class Isolation(msgspec.Struct, frozen=True):
    """What was found out about bubblewrap here."""

    program: str | None
    """None: commands run without namespaces, or not at all."""
    reason: str = ""
    """Why there are none."""
    options: frozenset[str] = frozenset()
    """Those of `OPTIONAL` that it has."""


def probe_isolation(config: ExternalConfig) -> Isolation:
    """Try bubblewrap once, as the user and with the arguments of a real run; say what came of it."""
    if config.isolation is IsolationMode.OFF:
        return Isolation(None, f"isolation = 'off' in {config.source}")
    program = _find(config)
    if program is None:
        return Isolation(None, f"there is no bubblewrap at {config.bubblewrap or ', '.join(PLACES)}")
    try:
        if reason := exposure(os.path.realpath(program)):
            return Isolation(None, f"bubblewrap is not trusted: {reason}")
        known = _ask(config, [program, "--help"])
        found = Isolation(program, options=frozenset(option for option in OPTIONAL if f"{option} " in known.stdout))
        tried = _ask(config, [*arguments(config, found, None), "--", os.path.realpath("/bin/true")])
    except (OSError, subprocess.SubprocessError) as error:
        return Isolation(None, f"bubblewrap could not be tried: {error}")
    if tried.returncode != 0:
        return Isolation(None, f"bubblewrap does not work here: {' '.join(tried.stderr.split()) or f'exit code {tried.returncode}'}")
    return found


def arguments(config: ExternalConfig, isolation: Isolation, path: str | None) -> list[str]:
    """Return bubblewrap's own arguments; the command's follow after `--`. `path`: the program to show, by its descriptor; None: a trial."""
    found = [isolation.program or "", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if "--disable-userns" in isolation.options:
        found.append("--disable-userns")
    if config.network:
        found.append("--share-net")
    found += _system()
    # Each has a size of its own: what is written there is memory.
    found += ["--proc", "/proc", "--dev", "/dev", *_memory(config, isolation, "/dev/shm"), "--remount-ro", "/dev"]  # noqa: S108 - its own
    found += _memory(config, isolation, "/tmp")  # noqa: S108 - its own
    found += _shown(config)
    if path is not None:
        by_descriptor = "--ro-bind-fd" in isolation.options
        found += ["--ro-bind-fd", str(PROGRAM_FD), path] if by_descriptor else ["--ro-bind", path, path]
        found += ["--json-status-fd", str(STATUS_FD)]
    return [*found, "--remount-ro", "/", "--chdir", config.directory]


def _find(config: ExternalConfig) -> str | None:
    places = (config.bubblewrap,) if config.bubblewrap else PLACES
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _ask(config: ExternalConfig, command: list[str]) -> subprocess.CompletedProcess[str]:
    user = config.user
    return subprocess.run(  # noqa: S603 - a program of the operator's, with our own arguments
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_S,
        check=False,
        env={},
        cwd="/",
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
    )


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for path in SYSTEM:
        if os.path.islink(path):  # noqa: PTH114 - texts, as arguments are
            yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115 - as above
        elif os.path.isdir(path):  # noqa: PTH112 - as above
            yield from ("--ro-bind", path, path)
    for path in CONFIGURATION:
        if os.path.exists(path):  # noqa: PTH110 - as above
            yield from ("--ro-bind", path, path)


def _memory(config: ExternalConfig, isolation: Isolation, path: str) -> Iterator[str]:
    if config.limits.tmp_bytes and "--size" in isolation.options:
        yield from ("--size", str(config.limits.tmp_bytes))
    yield from ("--tmpfs", path)


def _shown(config: ExternalConfig) -> Iterator[str]:
    """Go through the operator's paths, those outside first, so that what is inside of a readable one lies on top of it."""
    wanted = dict.fromkeys(config.readable, "--ro-bind") | dict.fromkeys(config.writable, "--bind")
    if not any(is_below(config.directory, path) for path in wanted):
        wanted[config.directory] = "--ro-bind"
    for path in sorted(wanted, key=lambda path: path.count("/")):
        yield from (wanted[path], path, path)


def exposed(config: ExternalConfig, store: str, key_files: Iterable[str]) -> str | None:
    """Say which path would show commands the store's file, or one of the master keys; None: there is none."""
    files = {} if "://" in store and not store.startswith("sqlite:///") else {store.removeprefix("sqlite:///"): "the store's file"}
    files |= dict.fromkeys(key_files, "the file of the master keys")
    for file, what in files.items():
        if path := _in_view(config, os.path.realpath(file)):
            return f"{path!r} would show commands {what}, {file}: keep that elsewhere"
    return None


def _in_view(config: ExternalConfig, file: str) -> str | None:
    """Return the path that would show a file, or what is kept beside it under a longer name. Folders of the system are shown, too."""
    for path in (*config.readable, *config.writable, config.directory, "/usr", *SYSTEM, *CONFIGURATION):
        real = os.path.realpath(path)
        if is_below(file, real) or real.startswith(file):
            return path
    return None
