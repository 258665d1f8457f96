"""The tables for people who come from other libraries: every line of Rota's column is run, as printed, by a worker's program."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re

import pytest

from tests.docs.pages import ROOT, blocks, page, rows
from tests.surfaces.cli_support import commands

PAGE = ROOT / "docs/guide/coming-from.md"
SECTIONS = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page("docs/guide/coming-from.md"), re.MULTILINE | re.DOTALL)
(PROGRAM,) = [block for block in blocks(PAGE) if block.info == ("python", "run")]
SYSTEMS = ["Celery", "RQ", "Huey", "Dramatiq", "APScheduler", "Procrastinate"]
NAMES = {"ctx", "@rota.middleware"}
"""Words that a row may use beside a link, where there is no line to run."""


def lines(section: str) -> list[str]:
    """Return the code of Rota's column, row by row."""
    return [code for _, ours, _ in rows(section) for code in re.findall(r"`([^`]+)`", ours)]


def runs(code: str) -> bool:
    return code not in NAMES and not code.startswith("rota ")


def test_the_page_has_a_table_for_each_system():
    assert [name for name, _ in SECTIONS] == SYSTEMS
    assert all(len(rows(section)) >= 10 for _, section in SECTIONS)


def test_rows_name_commands_that_are_there():
    there = dict(commands())
    named = {code for _, section in SECTIONS for code in lines(section) if code.startswith("rota ")}
    assert named
    assert all(" ".join(code.split()[:2]) in there for code in named)


@pytest.mark.parametrize(("name", "section"), SECTIONS, ids=SYSTEMS)
def test_every_line_of_a_table_runs_as_printed(name, section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_STORE", raising=False)
    # A file, because handlers of processes must be importable.
    (tmp_path / f"coming_from_{name.lower()}.py").write_text(PROGRAM.text)
    monkeypatch.syspath_prepend(tmp_path)
    program = vars(importlib.import_module(f"coming_from_{name.lower()}"))
    rota = program["rota"]
    with rota.running():
        for number, code in enumerate(filter(runs, lines(section))):
            # A decorator needs a function.
            text = f"{code}\ndef probe_{number}() -> None: ...\n" if code.startswith("@") else code
            compiled = compile(text, f"{PAGE.name}: {code}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if compiled.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(compiled, program))
            else:
                exec(compiled, program)
    rota.close()
