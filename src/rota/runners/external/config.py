"""The operator's file (`external_file`): which commands this worker runs, as whom and within which limits.

It is read from the machine's disk only. Nothing in a store can allow a command.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import guess
from rota.runners.external.trust import exposure, trusted_users

MIB = 1024 * 1024
FILE_MAX = MIB
VARIABLES_MAX = 32 * 1024
"""Bytes of all fixed variables together."""
FLOOD_TIMES = 10
NOT_SHOWN = ("/proc", "/dev", "/sys")
"""Folders of the namespace's own, which none of the machine may take the place of."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"(\d+)-(\d+)")
Value = TypeVar("Value")


class IsolationMode(StrEnum):
    """Whether commands run in namespaces of their own."""

    REQUIRE = "require"
    """They do, or they do not run."""
    PREFER = "prefer"
    """They do where bubblewrap works."""
    OFF = "off"


class User(msgspec.Struct, frozen=True):
    """The user that commands run as."""

    name: str
    uid: int
    gid: int


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run may use. 0: no limit."""

    cpu_seconds: int = 3600
    """Processor time of each process."""
    memory_bytes: int = 1024 * MIB
    """Address space of each process."""
    file_bytes: int = 1024 * MIB
    """Size of each file that is written."""
    tmp_bytes: int = 64 * MIB
    """Size of the namespace's own /tmp, and of its /dev/shm."""
    processes: int = 256
    """Processes and threads of the user in all, other runs' included."""
    open_files: int = 256
    """Descriptors of each process."""
    output_bytes: int = MIB
    """Output that is kept; the rest is dropped."""
    output_flood: int = 0
    """Output after which the command is killed. 0: ten times output_bytes."""
    grace_seconds: float = 2.0
    """From TERM to KILL."""

    @property
    def flood(self) -> int:
        """The output after which the command is killed, in bytes; 0: never."""
        return self.output_flood or FLOOD_TIMES * self.output_bytes


class ExternalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says, checked."""

    source: str
    """The path of the file."""
    directory: str
    programs: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    user: User | None = None
    """None: the worker's own."""
    isolation: IsolationMode = IsolationMode.REQUIRE
    bubblewrap: str = ""
    """Its program; empty: where systems install it."""
    network: bool = False
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    limits: Limits = Limits()
    retry: frozenset[int] = frozenset({75})
    permanent: frozenset[int] = frozenset()


KEYS = (
    "programs",
    "folders",
    "directory",
    "environment",
    "set",
    "user",
    "isolation",
    "bubblewrap",
    "network",
    "readable",
    "writable",
    "limits",
    "exit_codes",
)
EXIT_CODES = ("retry", "permanent")


def load_config(path: str) -> ExternalConfig:
    """Read the file and check all of it; refuse it, naming the place and the remedy, if others could change it or a value can't be."""
    if sys.platform != "linux":
        raise InvalidOption(f"external_file={path!r}: commands run on Linux only; leave it empty here")
    reader = _Reader(path)
    return reader.config(reader.document())


class _Reader:
    """Takes the file apart; every refusal names it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def document(self) -> dict[str, Any]:
        """Return what the file holds, read through the descriptor that was checked."""
        if not os.path.isabs(self._path):  # noqa: PTH117 - a text it stays
            raise self._refusal("is not an absolute path")
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise self._refusal(f"can't be opened: {error.strerror}") from None
        try:
            return self._read(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> dict[str, Any]:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise self._refusal("is not a file")
        if reason := exposure(os.readlink(f"/proc/self/fd/{descriptor}"), found=found):  # noqa: PTH115 - by descriptor
            raise self._refusal(f"is not trusted: {reason}")
        if found.st_size > FILE_MAX:
            raise self._refusal(f"has {found.st_size:,} bytes; at most {FILE_MAX:,} are allowed")
        try:
            return tomllib.loads(os.read(descriptor, FILE_MAX).decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise self._refusal(f"is not TOML: {error}") from None

    def config(self, document: Mapping[str, Any]) -> ExternalConfig:
        """Return the values, or refuse the first that can't be."""
        self._known("", document, KEYS)
        codes = self._table("exit_codes", document.get("exit_codes", {}))
        self._known("exit_codes.", codes, EXIT_CODES)
        user = self._user(document.get("user"))
        config = ExternalConfig(
            source=self._path,
            directory=self._directory(document.get("directory"), user),
            programs=self._allowed("programs", document),
            folders=self._allowed("folders", document),
            environment=self._names(document.get("environment", [])),
            variables=self._variables(document.get("set", {})),
            user=user,
            isolation=self._isolation(document.get("isolation", IsolationMode.REQUIRE)),
            bubblewrap=self._bubblewrap(document.get("bubblewrap", "")),
            network=self._of(bool, "network", document.get("network", False), "true or false"),
            readable=self._shown("readable", document),
            writable=self._shown("writable", document),
            limits=self._limits(document.get("limits", {})),
            retry=self._codes("exit_codes.retry", codes.get("retry", [75])),
            permanent=self._codes("exit_codes.permanent", codes.get("permanent", [])),
        )
        self._check_inside(config)
        if not config.programs and not config.folders:
            raise self._refusal("allows no command: list files in `programs`, or folders of them in `folders`")
        return config

    def _check_inside(self, config: ExternalConfig) -> None:
        """Refuse what is in a writable path: a command could replace it, by a link that the next one follows, or by what it allows."""
        inside = {"readable": config.readable, "writable": config.writable, "programs": config.programs, "folders": config.folders}
        inside["external_file"] = (config.source,)
        folders = [os.path.realpath(path) for path in config.writable]
        for key, path in ((key, path) for key, paths in inside.items() for path in paths):
            real = os.path.realpath(path)
            # The same folder as another writable one, by whatever name, is no more than that.
            may_be_it = key in {"readable", "writable"}
            folder = next((folder for folder in folders if is_below(real, folder) and not (may_be_it and real == folder)), None)
            if folder is not None:
                why = f"is in {folder!r}, which is writable, so that a command could replace it: keep it elsewhere"
                raise self._refusal(f"{key}: {path!r} {why}")

    # ---- single keys --------------------------------------------------------------------------------------

    def _directory(self, value: object, user: User | None) -> str:
        if value is None:
            raise self._refusal("has no `directory`: name the working directory of all commands")
        path = self._path_of("directory", value)
        real = os.path.realpath(path)
        if not os.path.isdir(real):  # noqa: PTH112 - a text it stays
            raise self._refusal(f"directory = {path!r} is not a folder: create it")
        if reason := exposure(real, users=trusted_users() | ({user.uid} if user else set())):
            raise self._refusal(f"directory = {path!r} is not trusted: {reason}")
        return real

    def _allowed(self, key: str, document: Mapping[str, Any]) -> tuple[str, ...]:
        """Return paths of programs or of their folders. Links on the way to them must be beyond the reach of others, too."""
        paths = self._paths(key, document)
        for path in paths:
            folder = PurePosixPath(path).parent
            while not os.path.isdir(folder):  # noqa: PTH112 - it may come later
                folder = folder.parent
            for place in {str(folder), os.path.realpath(folder)}:
                if reason := exposure(place):
                    raise self._refusal(f"{key}: {path!r} is not trusted: {reason}")
        return paths

    def _shown(self, key: str, document: Mapping[str, Any]) -> tuple[str, ...]:
        paths = self._paths(key, document)
        for path in paths:
            if path == "/" or any(is_below(path, folder) for folder in NOT_SHOWN):
                raise self._refusal(f"{key}: {path!r} can't be shown to commands: name folders below it, not in {', '.join(NOT_SHOWN)}")
            if not os.path.exists(path):  # noqa: PTH110 - a text it stays
                raise self._refusal(f"{key}: there is no {path!r}: create it, or take it out of the list")
        return paths

    def _user(self, value: object) -> User | None:
        root = os.geteuid() == 0
        if value is None:
            if root:
                raise self._refusal("has no `user`, and this worker runs as root: name the user that commands run as")
            return None
        try:
            entry = pwd.getpwuid(value) if isinstance(value, int) else pwd.getpwnam(self._of(str, "user", value, "a name or a number"))
        except KeyError:
            raise self._refusal(f"user = {value!r} is not a user of this machine: create it, or name another") from None
        if entry.pw_uid == 0:
            raise self._refusal(f"user = {value!r} is root: name a user without rights of its own")
        if not root and entry.pw_uid != os.geteuid():
            raise self._refusal(f"user = {value!r} is another user than the worker's: only a worker that runs as root can switch")
        return User(entry.pw_name, entry.pw_uid, entry.pw_gid) if root else None

    def _isolation(self, value: object) -> IsolationMode:
        try:
            return IsolationMode(self._of(str, "isolation", value, "a text"))
        except ValueError:
            raise self._refusal(f"isolation = {value!r} is not one of {', '.join(IsolationMode)}") from None

    def _bubblewrap(self, value: object) -> str:
        return "" if value == "" else self._path_of("bubblewrap", value)

    def _names(self, value: object) -> tuple[str, ...]:
        names = self._list("environment", value)
        for name in names:
            self._check_variable("environment", name)
        return tuple(names)

    def _variables(self, value: object) -> dict[str, str]:
        table = self._table("set", value)
        for name, text in table.items():
            self._check_variable("set", name)
            if not isinstance(text, str) or "\0" in text:
                raise self._refusal(f"set.{name} = {text!r:.80} is not a text: put it into quotes")
        size = sum(len(name) + len(os.fsencode(text)) + 2 for name, text in table.items())
        if size > VARIABLES_MAX:
            raise self._refusal(f"set has {size:,} bytes of variables; at most {VARIABLES_MAX:,} are allowed: put them into a file")
        return dict(table)

    def _check_variable(self, key: str, name: object) -> None:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise self._refusal(f"{key}: {name!r} is not the name of a variable")
        if name.startswith("ROTA_"):
            raise self._refusal(f"{key}: {name} is Rota's own; commands get ROTA_JOB_UUID and others, and never the worker's")

    def _limits(self, value: object) -> Limits:
        table = self._table("limits", value)
        self._known("limits.", table, Limits.__struct_fields__)
        for name, number in table.items():
            kinds = (int, float) if name == "grace_seconds" else (int,)
            if isinstance(number, bool) or not isinstance(number, kinds) or not 0 <= number < 1 << 62:
                raise self._refusal(f"limits.{name} = {number!r} is not allowed: use a number, 0 or more")
        limits = Limits(**table)
        if 0 < limits.output_flood < limits.output_bytes:
            raise self._refusal(
                f"limits.output_flood = {limits.output_flood} is below limits.output_bytes = {limits.output_bytes}: use more"
            )
        return limits

    def _codes(self, key: str, value: object) -> frozenset[int]:
        codes: set[int] = set()
        for each in self._list(key, value):
            span = _RANGE.fullmatch(each) if isinstance(each, str) else None
            first, last = (int(span[1]), int(span[2])) if span else (each, each)
            if isinstance(first, bool) or not isinstance(first, int) or not isinstance(last, int) or not 1 <= first <= last <= 255:
                raise self._refusal(f"{key}: {each!r} is not an exit code: use 1 to 255, or a range as a text, such as '64-78'")
            codes |= set(range(first, last + 1))
        return frozenset(codes)

    # ---- shapes -------------------------------------------------------------------------------------------

    def _known(self, where: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
        names = list(keys)
        for key in table:
            if key not in names:
                raise self._refusal(f"has no key {where + key!r}{guess(key, names)}: it takes {', '.join(names)}")

    def _paths(self, key: str, document: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(self._path_of(key, each) for each in self._list(key, document.get(key, [])))

    def _path_of(self, key: str, value: object) -> str:
        path = self._of(str, key, value, "a path")
        if not path.startswith("/") or "\0" in path or ".." in PurePosixPath(path).parts:
            raise self._refusal(f"{key}: {path!r} is not an absolute path without `..`")
        return str(Path(path))

    def _list(self, key: str, value: object) -> list[Any]:
        return self._of(list, key, value, "a list")

    def _table(self, key: str, value: object) -> dict[str, Any]:
        return self._of(dict, key, value, "a table")

    def _of(self, kind: type[Value], key: str, value: object, wanted: str) -> Value:
        if not isinstance(value, kind):
            raise self._refusal(f"{key} = {value!r:.80} is not {wanted}")
        return value

    def _refusal(self, why: str) -> InvalidOption:
        return InvalidOption(f"external_file {self._path}: {why}")


def is_below(path: str, folder: str) -> bool:
    """Say whether a path is this folder or inside it: /srv/job-evil is not in /srv/job."""
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")
