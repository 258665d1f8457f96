"""A purge that is killed, or whose disk fails, at every single write of it: what is left is whole, and the rest goes later."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

import pytest

from rota.errors import StoreUnavailable
from tests.faults import purging
from tests.faults.broken_disk import BrokenDisk, Fault
from tests.support.proof import size


@pytest.fixture
def folder(tmp_path_factory):
    """In memory where there is such a place: every sync is counted here, and none is waited for."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path_factory.mktemp("purge")
        return
    with tempfile.TemporaryDirectory(prefix="rota-purge-", dir=memory) as name:
        yield Path(name)


@pytest.fixture
def template(folder):
    path = folder / "template.db"
    purging.prepare(path)
    return path


@pytest.mark.prove
@pytest.mark.parametrize(("kind", "step"), [("crash", size(3, prove=1)), ("torn crash", size(4, prove=1))], ids=["crash", "torn crash"])
def test_a_purge_that_is_killed_at_any_write_leaves_a_whole_store_and_goes_on_later(file_stage, folder, template, kind, step):
    program = file_stage.start("crash_purge", folder, kind, step, template)
    died = program.says("died", within=50)
    assert "violation" not in program.text, program.text
    assert int(died) * step > 30
    assert program.says("kept") == "5 of 20"


@pytest.mark.parametrize("kind", ["ioerr", "full", "torn"])
def test_a_purge_whose_disk_fails_at_any_write_says_so_and_can_be_repeated(folder, template, kind):
    before = purging.roots(template)
    shutil.copy(template, folder / "clean.db")
    with purging.opened(folder / "clean.db") as rota:
        purging.purge(rota)
    after = purging.roots(folder / "clean.db")
    disk = BrokenDisk(f"purge-{kind}")
    try:
        for at in count(1):
            path = folder / f"{kind}-{at}.db"
            shutil.copy(template, path)
            with purging.opened(path, vfs=disk.name) as rota:
                disk.count, disk.fired, disk.fault = 0, 0, Fault(kind, at)
                try:
                    purging.purge(rota)
                except StoreUnavailable:
                    assert disk.fired
                disk.fault = None
            purging.look(path, before=before, after=after)
            path.unlink()
            if not disk.fired:
                return
    finally:
        disk.unregister()
