"""What a new handler process is told of the program it belongs to, whatever state that program is in."""

import multiprocessing
import sys
from pathlib import Path

import pytest

from rota.executors.child import prepared
from rota.executors.handler_process import introduction
from rota.executors.wire import for_child, frame
from rota.model.decide import Completed, Crashed
from rota.model.settings import Settings
from rota.ports.clock import SystemClock
from rota.ports.executor import Equipment
from tests.executors.conftest import Ear, _handlers


@pytest.fixture
def equipment(tmp_path):
    handlers = _handlers("tests.executors.handlers", "process")
    return Equipment(handlers, Ear(), SystemClock(), Settings(), slots=1, log_dir=str(tmp_path), lock_fd=None)


def told(equipment):
    """Return what arrives at the other end of the wire."""
    [init] = for_child().feed(frame(introduction(equipment)))
    return prepared(init.program)


def test_a_process_is_told_where_modules_are_and_how_the_program_was_called(equipment):
    assert told(equipment) == {"sys_path": sys.path, "sys_argv": sys.argv}


def test_names_that_are_no_valid_text_and_entries_that_are_no_names_do_not_stand_in_the_way(equipment, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["shop.py", "caf\udce9", Path("order")])
    monkeypatch.setattr(sys, "path", [Path("/beside"), "/caf\udce9", ""])
    assert told(equipment) == {
        "sys_path": ["/caf\udce9", multiprocessing.process.ORIGINAL_DIR],
        "sys_argv": ["shop.py", "caf\udce9", "order"],
    }


def test_telling_does_not_settle_how_the_program_itself_starts_processes(equipment, monkeypatch):
    monkeypatch.setattr(multiprocessing.context._default_context, "_actual_context", None)
    told(equipment)
    assert multiprocessing.get_start_method(allow_none=True) is None


def test_a_program_whose_directory_was_removed_starts_processes_all_the_same(make_rig, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert isinstance(make_rig("process").outcome("nothing"), Completed)


def test_what_can_not_be_told_is_told_to_those_who_wait_and_leaves_no_process_behind(make_rig, monkeypatch):
    monkeypatch.setattr("rota.executors.keeper.PAUSE_S", 0.01)
    monkeypatch.setattr("rota.executors.keeper.spawn", lambda _: pytest.fail("nothing to start it with"))
    monkeypatch.setattr(sys, "argv", ["\ud800"])
    outcome = make_rig("process").outcome("nothing")
    assert isinstance(outcome, Crashed)
    assert outcome.error.startswith("handler process could not be started: 'utf-8' codec can't encode")
