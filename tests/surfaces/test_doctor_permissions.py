"""What the doctor says of files that are open to other users, and how it closes them, over both stores."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import closing, contextmanager

import pytest

from rota import Rota, Settings
from rota.model.findings import State
from rota.stores.locks import FileLocks
from tests.support.pace import patient
from tests.support.postgres import fresh_database
from tests.support.stranger import as_stranger, public_folder
from tests.surfaces.cli_support import Cli


@pytest.fixture(params=["file", "server"])
def url(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir(mode=0o700)
    if request.param == "file":
        yield str(tmp_path / "rota.db")
    else:
        with fresh_database() as made:
            yield made


@contextmanager
def used(url, **settings):
    """A store that a worker runs on, which has left a log."""
    with closing(Rota(url, settings=Settings(**settings))) as rota:

        @rota.job
        def speak(ctx):
            ctx.log.info("a secret")

        with rota.running():
            rota.wait(rota.enqueue("speak").id, timeout=patient(60))
            yield rota


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def found(rota, *, repair=False):
    return [each for each in (rota.store.repair() if repair else rota.store.doctor()) if each.name == "permissions"]


def everything(tmp_path):
    """Return what belongs to the store and to its workers on this machine."""
    return [each for each in tmp_path.rglob("*") if ".workers" in str(each) or ".logs" in str(each) or each.name.startswith("rota.db")]


@pytest.mark.parametrize("store_mode", ["0600", "0660"])
def test_a_store_that_is_used_as_it_was_made_is_in_order(url, store_mode):
    with used(url, store_mode=store_mode) as rota:
        (each,) = found(rota)
        assert each.state is State.OK
        assert found(rota, repair=True) == [each]


def test_what_an_earlier_version_left_open_is_named_with_its_mode_and_what_others_could_do(url, tmp_path):
    with used(url) as rota:
        paths = everything(tmp_path)
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
        texts = [each.text for each in found(rota)]
        assert {each.state for each in found(rota)} == {State.PROBLEM}
        for path in paths:
            (text,) = [text for text in texts if f"{path} has mode {mode(path):04o}" in text]
            assert "any user of this machine can " in text
        risks = {
            ".lock": "hold the locks of dead workers",
            ".log": "read what handlers print",
            ".db": "webhook secrets",
            ".db-shm": "nobody can write",
        }
        for path in paths:
            if path.suffix in risks:
                assert risks[path.suffix] in next(text for text in texts if str(path) in text)
        assert all("rota repair" in each.remedy for each in found(rota))


def test_repair_closes_everything_also_of_a_store_that_is_running(url, tmp_path):
    with used(url) as rota:
        paths = everything(tmp_path)
        for path in paths:
            path.chmod(0o2777 if path.is_dir() else 0o666)
        told = found(rota, repair=True)
        assert {each.state for each in told} == {State.REPAIRED, State.OK}
        for path in paths:
            assert any(f"{path} (was " in each.text for each in told)
            # Only what others had is taken away: a folder still passes its group on.
            assert mode(path) == (0o2700 if path.is_dir() else 0o600)
        assert [each.state for each in found(rota, repair=True)] == [State.OK]
        # The store works as before.
        assert rota.wait(rota.enqueue("speak").id, timeout=patient(60)).status == "COMPLETED"


def test_what_a_group_shares_is_in_order_only_where_the_setting_says_so(url, tmp_path):
    with used(url, store_mode="0660") as shared:
        assert [each.state for each in found(shared)] == [State.OK]
        with closing(Rota(url)) as strict:
            told = found(strict)
            assert {each.state for each in told} == {State.PROBLEM}
            assert all("its group can" in each.text for each in told)


def test_a_folder_of_logs_that_the_settings_name_is_left_as_it_is_but_what_is_kept_in_it_is_closed(url, tmp_path):
    logs = tmp_path / "var-log"
    logs.mkdir()
    (logs / "ab").mkdir(mode=0o755)
    (logs / "other.txt").touch(0o644)
    logs.chmod(0o755)
    with used(url, log_dir=str(logs), run_logs="folder") as rota:
        written = list(logs.rglob("*.log"))
        assert {mode(path) for path in written} == {0o600}
        for path in written:
            path.chmod(0o644)
        (problem,) = found(rota)
        assert str(written[0]) in problem.text
        found(rota, repair=True)
    assert mode(logs) == 0o755
    assert mode(logs / "other.txt") == 0o644
    assert {mode(path) for path in written} == {0o600}
    assert mode(logs / "ab") == 0o700


def test_a_symbolic_link_among_the_logs_is_not_followed(url, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "theirs.log").touch(0o644)
    victim.chmod(0o755)
    with used(url) as rota:
        (logs,) = [each for each in everything(tmp_path) if each.name.endswith(".logs")]
        (logs / "zz.log").symlink_to(victim / "theirs.log")
        (logs / "0a").symlink_to(victim) if not (logs / "0a").exists() else None
        found(rota, repair=True)
    assert (mode(victim), mode(victim / "theirs.log")) == (0o755, 0o644)


def test_many_open_logs_are_counted_and_the_first_are_named(tmp_path):
    url = str(tmp_path / "rota.db")
    with closing(Rota(url)) as rota:
        rota.store.stats()
        folder = tmp_path / "rota.db.logs" / "ab"
        folder.mkdir(parents=True, mode=0o700)
        folder.parent.chmod(0o700)
        for number in range(30):
            (folder / f"{number:032x}.log").touch(0o644)
        (problem,) = found(rota)
        assert problem.text.count(" has mode 0644") == 5
        assert "and 25 more are open" in problem.text


def test_who_may_not_close_a_file_is_told_to_ask_its_owner(tmp_path):
    with public_folder() as folder:
        url = folder / "rota.db"
        with closing(Rota(url)) as rota:
            rota.store.stats()
        folder.chmod(0o777)
        url.chmod(0o666)

        def look():
            with closing(Rota(url)) as rota:
                return [(str(each.state), each.remedy) for each in found(rota, repair=True) if str(url) in each.text]

        told = as_stranger(look)
        assert "problem" in told
        assert "as their owner or root" in told
        assert mode(url) == 0o666


def test_the_command_names_the_file_and_repairs_it(tmp_path):
    cli = Cli(tmp_path)
    with closing(Rota(cli.store)) as rota:
        rota.store.stats()
    cli.store.chmod(0o644)
    refused = cli("doctor", "--json")
    assert refused.exit_code == 1
    problem = next(each for each in map(json.loads, refused.stdout.splitlines()) if each["name"] == "permissions")
    assert problem["state"] == "problem"
    assert f"{cli.store} has mode 0644" in problem["text"]
    assert f"closed {cli.store} (was 0644) to others" in cli.ok("repair")
    assert mode(cli.store) == 0o600


# ---- PostgreSQL, where workers keep their locks beside strangers -------------------------------------------------------


def test_a_lock_folder_that_a_stranger_put_there_is_a_problem_and_one_of_ours_that_is_open_is_closed(tmp_path, monkeypatch):
    with fresh_database() as url, public_folder() as temporary:
        temporary.chmod(0o1777)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.setattr(tempfile, "tempdir", None)
        place = temporary / f"rota-{os.getuid()}"
        with closing(Rota(url)) as rota:
            assert [each.state for each in found(rota)] == [State.OK]
            assert as_stranger(place.mkdir) == "None"
            told = found(rota, repair=True)
            assert told[0].state is State.PROBLEM
            assert f"{place}, which can't be trusted: it belongs to user 65534" in told[0].text
            assert "XDG_RUNTIME_DIR" in told[0].remedy
            place.rmdir()
            place.mkdir()
            place.chmod(0o777)
            assert found(rota)[0].state is State.PROBLEM
            assert [each.state for each in found(rota, repair=True)] == [State.REPAIRED, State.OK]
            assert mode(place) == 0o700
            FileLocks(place / "x.workers", Settings(), beside_strangers=True).take("ab").release(clean=True)
