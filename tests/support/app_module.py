"""A program's module as a test writes it: handler processes import it by its name, as they import a program's."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.prepared import prepare

HEAD = """\
import os, sys, threading
from contextlib import contextmanager
from rota import Context, Retry, Rota, Skip

rota = Rota({store!r})

"""
_count = iter(range(1_000_000))


def write_app(folder: Path, text: str) -> str:
    """Write a module that begins with a Rota called `rota`, and return the module's name."""
    name = f"app_{next(_count)}"
    (folder / f"{name}.py").write_text(HEAD.format(store=str(prepare(folder / "rota.db"))) + text)
    return name


def import_app(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> ModuleType:
    """Write such a module and import it."""
    name = write_app(folder, text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module(name)
