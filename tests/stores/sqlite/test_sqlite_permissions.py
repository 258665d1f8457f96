"""Who may read a store's files: the owner, whatever the umask is; the group, where the setting says so; nobody else."""

from __future__ import annotations

import os
import stat
from contextlib import closing, contextmanager

import apsw
import pytest

from rota import Rota, Settings
from rota.errors import InvalidOption, StoreUnusable
from rota.ports.liveness import Life
from rota.stores.locks import FileLocks
from rota.stores.sqlite import SqliteStore
from tests.support.pace import patient

UMASKS = pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids="{:03o}".format)
MODES = pytest.mark.parametrize(("store_mode", "file_mode", "folder_mode"), [("0600", 0o600, 0o700), ("0660", 0o660, 0o770)])


@contextmanager
def masked(umask):
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def fill(path, **settings):
    """Let a store make everything that it makes: its file, its log, a lock, a run's log. Return the modes while it is open."""
    rota = Rota(path, settings=Settings(**settings))

    @rota.job
    def speak(ctx):
        ctx.log.info("a secret")

    with closing(rota):
        rota.enqueue("speak")
        with rota.running():
            rota.wait(rota.enqueue("speak").id, timeout=patient(60))
            return {str(each.relative_to(path.parent)): mode(each) for each in path.parent.rglob("*")}


@UMASKS
@MODES
def test_everything_that_a_store_makes_has_the_mode_of_the_setting_whatever_the_umask_is(
    tmp_path, umask, store_mode, file_mode, folder_mode
):
    with masked(umask):
        modes = fill(tmp_path / "rota.db", store_mode=store_mode)
    kinds = {name: bits for name, bits in modes.items() if name.count("/") == 0}
    assert kinds == {
        "rota.db": file_mode,
        "rota.db-wal": file_mode,
        "rota.db-shm": file_mode,
        "rota.db.workers": folder_mode,
        "rota.db.logs": folder_mode,
    }
    inside = {name: bits for name, bits in modes.items() if "/" in name}
    assert {bits for name, bits in inside.items() if name.endswith((".log", ".lock"))} == {file_mode}
    assert {bits for name, bits in inside.items() if not name.endswith((".log", ".lock"))} == {folder_mode}
    assert any(name.endswith(".log") for name in inside)
    assert any(name.endswith(".lock") for name in inside)


def test_the_file_is_closed_to_others_before_sqlite_opens_it(tmp_path, monkeypatch):
    path, seen = tmp_path / "rota.db", []
    original = apsw.Connection

    def watched(name, *args, **options):
        seen.append(mode(path))
        return original(name, *args, **options)

    monkeypatch.setattr(apsw, "Connection", watched)
    with masked(0):
        store = SqliteStore(path, Settings())
        store.migrate(now=0)
        store.close()
    assert seen[0] == 0o600


@pytest.mark.parametrize("before", [0o644, 0o666, 0o640])
def test_the_mode_of_a_store_that_is_there_is_never_changed_by_opening_it(tmp_path, before):
    path = tmp_path / "rota.db"
    SqliteStore(path, Settings()).close()
    path.chmod(before)
    fill(path)
    assert mode(path) == before


def test_a_new_log_and_shared_memory_take_the_mode_of_the_file(tmp_path):
    path = tmp_path / "rota.db"
    with masked(0):
        SqliteStore(path, Settings()).close()
        path.chmod(0o640)
        with closing(SqliteStore(path, Settings())) as store:
            store.migrate(now=0)
            assert {ending: mode(tmp_path / f"rota.db{ending}") for ending in ("-wal", "-shm")} == {"-wal": 0o640, "-shm": 0o640}


def test_a_store_behind_a_symbolic_link_is_made_where_the_link_leads_and_is_closed_to_others(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "rota.db").symlink_to(tmp_path / "disk" / "jobs.db")
    with masked(0):
        fill(tmp_path / "rota.db")
    assert mode(tmp_path / "disk" / "jobs.db") == 0o600


def test_a_folder_that_passes_its_group_on_still_does_so(tmp_path):
    tmp_path.chmod(0o2770)
    with masked(0o022):
        modes = fill(tmp_path / "rota.db", store_mode="0660")
    assert modes["rota.db.workers"] == modes["rota.db.logs"] == 0o2770


@UMASKS
def test_a_copy_that_promote_writes_is_closed_to_others(tmp_path, umask):
    source, target = tmp_path / "rota.db", tmp_path / "copy.db"
    fill(source)
    for path in (source, target):
        if path.exists():
            path.chmod(0o644)
    # What a copy that was killed left behind is not written into.
    (tmp_path / "copy.db.promoting").touch(0o644)
    with masked(umask), closing(Rota(source)) as rota:
        rota.store.promote(str(target))
    assert mode(target) == 0o600
    assert mode(source) == 0o644
    assert not (tmp_path / "copy.db.promoting").exists()


@pytest.mark.parametrize("value", ["0644", "600", "0666", 0o600])
def test_another_mode_is_refused(value):
    with pytest.raises(InvalidOption, match=r"store_mode=.* is not one of 0600, 0660"):
        Settings(store_mode=value)


# ---- lock files ------------------------------------------------------------------------------------------------------


def test_a_symbolic_link_in_the_place_of_a_lock_file_is_refused_and_what_it_leads_to_is_left_alone(tmp_path):
    folder = tmp_path / "rota.db.workers"
    folder.mkdir()
    (tmp_path / "victim").write_text("precious")
    (folder / "ab.lock").symlink_to(tmp_path / "victim")
    (folder / "cd.lock").symlink_to(tmp_path / "nowhere")
    locks = FileLocks(folder, Settings())
    for name in ("ab", "cd"):
        with pytest.raises(StoreUnusable, match="lock files"):
            locks.take(name)
        with locks.seize(name) as life:
            assert life is Life.UNKNOWN
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_lock_is_not_inherited_by_programs_that_are_started(tmp_path):
    lease = FileLocks(tmp_path, Settings()).take("ab")
    assert not os.get_inheritable(lease.fd)
    lease.release(clean=True)
