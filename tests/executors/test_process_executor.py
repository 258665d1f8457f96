"""Processes: warm, watched, and killed with all they started."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from rota.errors import InvalidHandler
from rota.executors import keeper
from rota.executors.invoke import enter_handlers, leave_handlers
from rota.executors.locate import check_importable, locate, resolve, runs_apart
from rota.executors.process import ProcessExecutor
from rota.model.decide import Completed, Crashed, Failed, Interrupted, Stopped, TimedOut
from rota.model.handler import inspect_handler
from rota.ports.executor import Readiness
from tests.executors import handlers
from tests.support.pace import patient
from tests.support.proof import size

ROOT = Path(__file__).parents[2]


def _alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _gone(*pids):
    return not any(_alive(pid) for pid in pids)


def _pids(path):
    return [int(pid) for pid in Path(path).read_text().split()]


def test_a_timeout_stops_the_process_and_the_programs_it_started(make_rig):
    rig = make_rig("process")
    job = rig.submit("start_program", timeout=1.0, pids=rig.path("pids"))
    rig.until_exists("pids")
    end = rig.end_of(job)
    assert end.outcome == TimedOut(1.0)
    assert end.seconds < 2
    rig.until(lambda: _gone(*_pids(rig.path("pids"))))
    assert rig.outcome("nothing") == Completed(None)


def test_a_handler_deaf_to_term_is_killed_with_its_programs_after_the_grace(make_rig):
    rig = make_rig("process", timeout_grace=0.1)
    job = rig.submit("start_program_deaf", timeout=0.5, pids=rig.path("pids"))
    rig.until_exists("pids")
    assert rig.end_of(job).outcome == TimedOut(0.5)
    rig.until(lambda: _gone(*_pids(rig.path("pids"))))


def test_cancel_ends_the_handler_and_the_programs_it_started(make_rig):
    rig = make_rig("process")
    job = rig.submit("start_program", pids=rig.path("pids"))
    rig.until_exists("pids")
    rig.executor.cancel(job.number)
    assert isinstance(rig.end_of(job).outcome, Stopped)
    rig.until(lambda: _gone(*_pids(rig.path("pids"))))


def test_a_deaf_handler_that_is_cancelled_is_killed_after_the_grace(make_rig):
    rig = make_rig("process", kill_grace=0.1)
    job = rig.submit("start_program_deaf", pids=rig.path("pids"))
    rig.until_exists("pids")
    rig.executor.cancel(job.number)
    assert rig.end_of(job).outcome == Stopped()
    rig.until(lambda: _gone(*_pids(rig.path("pids"))))


def test_a_deaf_handler_that_is_interrupted_is_killed_after_the_grace(make_rig):
    rig = make_rig("process", kill_grace=0.1)
    job = rig.submit("stubborn", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    rig.executor.interrupt()
    assert rig.end_of(job).outcome == Interrupted()


@pytest.mark.parametrize("verb", ["cancel", "timeout", "interrupt"])
def test_finally_blocks_run_when_a_handler_is_stopped(make_rig, verb):
    rig = make_rig("process", timeout_grace=10.0)
    job = rig.submit("tidy", timeout=0.3 if verb == "timeout" else 0.0, started=rig.path("started"), tidied=rig.path("tidied"))
    rig.until_exists("started")
    if verb == "cancel":
        rig.executor.cancel(job.number)
    elif verb == "interrupt":
        rig.executor.interrupt()
    outcome = rig.end_of(job).outcome
    assert type(outcome) is {"cancel": Stopped, "timeout": TimedOut, "interrupt": Interrupted}[verb]
    assert Path(rig.path("tidied")).exists()


def test_a_handler_that_returns_although_it_was_over_its_timeout_is_timed_out(make_rig):
    rig = make_rig("process", timeout_grace=10.0)
    job = rig.submit("until_cancelled_then_return", timeout=0.3, started=rig.path("started"))
    assert rig.end_of(job).outcome == TimedOut(0.3)


def test_a_handler_that_returns_although_interrupted_keeps_its_result(make_rig):
    rig = make_rig("process")
    job = rig.submit("until_cancelled_then_return", started=rig.path("started"))
    rig.until_exists("started")
    rig.executor.interrupt()
    assert rig.end_of(job).outcome == Completed('"finished anyway"')


def test_a_term_from_elsewhere_does_not_stop_a_handler(make_rig):
    others = psutil.Process().children()  # servers of other tests
    rig = make_rig("process")
    job = rig.submit("until_file", started=rig.path("started"), go=rig.path("go"))
    rig.until_exists("started")
    handlers = [child for child in psutil.Process().children() if child not in others]
    assert handlers
    for handler in handlers:
        handler.send_signal(signal.SIGTERM)
    Path(rig.path("go")).touch()
    assert rig.end_of(job).outcome == Completed('"late"')


@pytest.mark.parametrize(("signum", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")])
def test_a_process_that_is_killed_under_its_job_is_a_crash_naming_the_signal(make_rig, signum, name):
    rig = make_rig("process")
    outcome = rig.outcome("kill_self", signum=int(signum))
    assert outcome == Crashed(f"handler process died: signal {int(signum)} ({name})", -int(signum))
    assert rig.outcome("nothing") == Completed(None)


def test_a_process_that_exits_under_its_job_is_a_crash_naming_the_code(make_rig):
    rig = make_rig("process")
    assert rig.outcome("exit_hard", code=3) == Crashed("handler process died: exited with code 3", 3)
    assert rig.outcome("nothing") == Completed(None)


def test_a_handler_that_writes_into_the_workers_socket_is_a_crash_of_its_own(make_rig):
    rig = make_rig("process")
    assert isinstance(rig.outcome("write_into_every_descriptor"), Crashed)
    assert rig.outcome("nothing") == Completed(None)


def test_an_idle_process_that_dies_is_replaced(make_rig):
    rig = make_rig("process")
    before = int(rig.outcome("pid").result)
    os.kill(before, signal.SIGKILL)
    assert int(rig.outcome("pid").result) != before


def test_a_job_given_to_a_process_that_died_idle_goes_to_another(make_rig):
    rig = make_rig("process")
    for _ in range(10):
        pid = int(rig.outcome("pid").result)
        psutil.Process(pid).suspend()
        job = rig.submit("nothing")
        rig.until(lambda: rig.executor.occupied() == 1)
        os.kill(pid, signal.SIGKILL)
        assert rig.end_of(job).outcome == Completed(None)


def test_processes_are_reused_and_then_recycled(make_rig):
    rig = make_rig("process", process_jobs_max=3)
    pids = [int(rig.outcome("pid").result) for _ in range(6)]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4] == pids[5]
    rig.until(lambda: _gone(pids[0]))


def test_what_handlers_and_their_programs_print_is_kept_in_order(make_rig):
    rig = make_rig("process")
    job = rig.submit("print_much")
    assert rig.end_of(job).log_path
    lines = [line.split(" ", 2)[1:] for line in rig.log_of(job).splitlines()]
    assert lines == [
        ["OUTPUT", "from print"],
        ["INFO", "from log"],
        ["OUTPUT", "to stderr"],
        ["OUTPUT", "from a program"],
        ["OUTPUT", "no newline"],
    ]


def test_printing_without_end_is_cut_at_the_logs_bound(make_rig):
    rig = make_rig("process", log_max=10_000)
    job = rig.submit("print_flood")
    assert rig.end_of(job).outcome == Completed(None)
    assert len(rig.log_of(job)) <= 10_000


def test_output_past_the_logs_bound_is_not_decoded():
    """Newlines cost a call each and binary output cost more per byte than text, although nothing of them was kept."""
    done = subprocess.run([sys.executable, "-m", "tests.executors.output_steps"], cwd=ROOT, capture_output=True, check=True)
    for kind, cost in json.loads(done.stdout).items():
        assert cost["calls"] < 10, (kind, cost)
        assert cost["held"] == 0, (kind, cost)
        assert cost["cuts"] == 1, (kind, cost)


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["newlines", "binary", "text", "one line"])
def test_a_handler_that_prints_far_past_the_logs_bound_ends_in_little_memory(make_rig, kind):
    """The pipe is emptied to the end, or the handler would hang; and what it printed is nowhere kept."""
    rig = make_rig("process")
    mebibytes = size(16, prove=64)
    job = rig.submit("print_bytes", kind=kind, mebibytes=mebibytes)
    outcome = rig.end_of(job).outcome
    assert isinstance(outcome, Completed)
    assert int(outcome.result) < mebibytes * 2**20 / 2
    assert rig.log_of(job).count("the log was cut here") == 1
    assert rig.outcome("nothing") == Completed(None)


def test_a_long_printed_line_is_not_cut_inside_a_character(make_rig):
    rig = make_rig("process")
    job = rig.submit("print_characters", count=20_000)
    assert rig.end_of(job).outcome == Completed(None)
    pieces = [line.split(" ", 2)[2] for line in rig.log_of(job).splitlines()]
    assert len(pieces) > 20
    assert "".join(pieces) == "é€😀" * 20_000


def test_a_character_that_was_printed_by_half_is_kept_as_its_bytes(make_rig):
    rig = make_rig("process")
    job = rig.submit("print_half_a_character")
    assert rig.end_of(job).outcome == Completed(None)
    assert rig.log_of(job).endswith("OUTPUT whole \\xc3\n")


def test_the_log_of_a_crashed_handler_is_kept(make_rig):
    rig = make_rig("process")
    job = rig.submit("start_program", pids=rig.path("pids"))
    rig.until_exists("pids")
    rig.until(lambda: "starting" in rig.log_of(job))
    os.kill(_pids(rig.path("pids"))[0], signal.SIGKILL)
    end = rig.end_of(job)
    assert isinstance(end.outcome, Crashed)
    assert end.log_path
    rig.until(lambda: _gone(*_pids(rig.path("pids"))))


def test_a_handler_that_closes_stdout_fails_alone(make_rig):
    rig = make_rig("process")
    job = rig.submit("close_stdout")
    assert rig.end_of(job).outcome.error == "RuntimeError: stdout is gone"
    assert rig.log_of(job).endswith("OUTPUT before\n")
    assert rig.outcome("close_stdout_and_return") == Completed(None)
    after = rig.submit("print_much")
    assert rig.end_of(after).outcome == Completed(None)
    assert "from a program" in rig.log_of(after)


def test_stdin_is_empty(make_rig):
    assert make_rig("process").outcome("read_stdin") == Completed('""')


def test_a_copy_made_by_fork_does_not_answer_for_the_original(make_rig):
    rig = make_rig("process")
    assert rig.outcome("fork_and_return") == Completed('"the original"')
    assert rig.outcome("nothing") == Completed(None)
    assert len(rig.ear.ends) == 2


def test_progress_from_many_threads_of_a_handler_arrives_whole(make_rig):
    rig = make_rig("process", progress_interval=0.0)
    job = rig.submit("report_from_threads")
    assert rig.end_of(job).outcome == Completed(None)
    values = [progress for progress, _ in rig.progress_of(job)]
    assert values == sorted(values)
    assert values[-1] == 49


def test_large_params_and_results_pass(make_rig):
    rig = make_rig("process", result_max=16 * 1024 * 1024)
    text = "é" * 3_000_000
    assert rig.outcome("give", value=text) == Completed(f'"{text}"')


def test_an_async_handler_runs_in_a_process_and_is_stopped_there(make_rig):
    rig = make_rig("process", module="tests.executors.async_handlers", timeout_grace=10.0)
    assert rig.outcome("give", value=5) == Completed("5")
    assert isinstance(rig.outcome("leave"), Failed)
    job = rig.submit("tidy", timeout=0.3, started=rig.path("started"), tidied=rig.path("tidied"))
    assert rig.end_of(job).outcome == TimedOut(0.3)
    assert Path(rig.path("tidied")).exists()


def test_a_job_cancelled_in_the_instant_it_starts_is_stopped(make_rig):
    rig = make_rig("process", slots=2)
    rig.outcome("nothing")
    for number in range(8):
        job = rig.submit("until_cancelled", started=rig.path(f"started{number}"))
        if number % 2:
            rig.until_exists(f"started{number}")
        rig.executor.cancel(job.number)
        assert isinstance(rig.end_of(job).outcome, Stopped)


def test_the_workers_lock_is_held_by_its_handler_processes(make_rig, tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        rig = make_rig("process", lock_fd=lock.fileno())
        assert rig.outcome("hold_files", lock_inode=os.fstat(lock.fileno()).st_ino) == Completed("true")


WORKER = """
    import fcntl, os, sys, time
    from pathlib import Path
    from tests.executors.conftest import Rig

    if __name__ == "__main__":
        folder = Path(sys.argv[1])
        lock = open(folder / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        rig = Rig("process", folder, slots=2, lock_fd=lock.fileno())
        rig.submit(sys.argv[2], pids=rig.path("pids"))
        rig.until_exists("pids")
        time.sleep(600)
"""


def _start(script, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.Popen([sys.executable, script, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _until(fact, seconds=20.0):
    deadline = time.monotonic() + patient(seconds)
    while not fact():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def _can_lock(path):
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("handler", ["start_program", "start_program_deaf"])
def test_when_the_worker_is_killed_its_handlers_and_their_programs_die_and_the_lock_is_free(tmp_path, handler):
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    worker = _start(script, str(tmp_path), handler)
    try:
        _until(lambda: (tmp_path / "pids").exists() or worker.poll() is not None)
        children = [child.pid for child in psutil.Process(worker.pid).children(recursive=True)]
        pids = _pids(tmp_path / "pids")
        assert set(pids) <= set(children)
        assert not _can_lock(tmp_path / "lock")
    finally:
        worker.kill()
    worker.communicate()
    _until(lambda: _gone(*children))
    _until(lambda: _can_lock(tmp_path / "lock"))


SCRIPT = """
    import sys
    from pathlib import Path
    from tests.executors.conftest import Rig

    def double(value):
        return value * 2

    if __name__ == "__main__":
        rig = Rig("process", Path(sys.argv[1]), module="__main__")
        print(rig.outcome("double", value=21).result)
        rig.executor.close()
"""


def test_a_handler_defined_in_the_main_program_is_found(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT))
    program = _start(script, str(tmp_path))
    output, _ = program.communicate(timeout=patient(30))
    assert output.decode().split() == ["42"]
    assert program.returncode == 0


def test_a_main_program_without_its_guard_does_not_start_workers_without_end(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT).replace('__name__ == "__main__"', "True").replace(".result)", ".error)"))
    output, _ = _start(script, str(tmp_path)).communicate(timeout=patient(30))
    assert "handler could not be loaded" in output.decode()
    assert "if __name__ == '__main__':" in output.decode()


def test_a_handler_behind_a_decorator_is_found(make_rig):
    rig = make_rig("process")
    inner = handlers.wrapped.handler
    assert locate(inner).steps == ("handler",)
    assert resolve(locate(inner)) is inner
    rig.equipment.handlers["wrapped"] = inspect_handler("wrapped", inner, "process")
    assert rig.outcome("wrapped") == Completed('"inner"')


def test_a_module_that_only_the_worker_can_import_is_said_by_the_job(make_rig, monkeypatch):
    rig = make_rig("process")

    def impostor():
        pass

    impostor.__module__, impostor.__qualname__ = "made_at_runtime", "impostor"
    monkeypatch.setitem(sys.modules, "made_at_runtime", types.ModuleType("made_at_runtime"))
    rig.equipment.handlers["impostor"] = inspect_handler("impostor", impostor, "process")
    outcome = rig.outcome("impostor")
    assert outcome.error.startswith("handler could not be loaded: ModuleNotFoundError")
    assert not outcome.permanent


def test_a_handler_that_can_not_be_found_fails_its_job_for_good(make_rig):
    rig = make_rig("process")
    rig.equipment.handlers["local"] = inspect_handler("local", handlers.local, "process")
    outcome = rig.outcome("local")
    assert outcome.permanent
    assert "move it to the module level" in outcome.error


def _importable(function):
    check_importable(inspect_handler("work", function, "process"))


def test_handlers_that_no_other_process_could_find_are_refused_with_advice():
    def local():
        pass

    class Holder:
        def method(self):
            pass

    for function in (local, lambda: None, handlers.local, Holder().method):
        with pytest.raises(InvalidHandler, match=r"move it to the module level of an importable module, or use executor='thread'"):
            _importable(function)


def test_a_method_of_an_object_and_a_module_that_is_not_there_are_refused():
    with pytest.raises(InvalidHandler, match="a method of one particular object"):
        _importable(psutil.Process().name)

    def lost():
        pass

    lost.__module__, lost.__qualname__ = "no_such_module", "lost"
    with pytest.raises(InvalidHandler, match="'no_such_module', which can't be imported"):
        _importable(lost)


def test_a_function_at_module_level_is_importable():
    _importable(handlers.nothing)


def test_a_handler_can_not_start_handler_processes_of_its_own(make_rig):
    rig = make_rig("inline")
    token = enter_handlers()
    try:
        with pytest.raises(InvalidHandler, match="__main__"):
            ProcessExecutor(rig.equipment)
    finally:
        leave_handlers(token)


def test_closing_leaves_no_process_behind(make_rig):
    others = psutil.Process().children(recursive=True)  # servers of other tests
    rig = make_rig("process", slots=2)
    job = rig.submit("start_program", pids=rig.path("pids"))
    rig.until_exists("pids")
    children = [child.pid for child in psutil.Process().children(recursive=True) if child not in others]
    assert set(_pids(rig.path("pids"))) <= set(children)
    rig.executor.close()
    _until(lambda: _gone(*children))
    assert job.number not in [end.job.number for end in rig.ear.ends]


def test_processes_that_can_not_start_are_told_to_those_who_wait(make_rig, monkeypatch):
    monkeypatch.setattr("rota.executors.handler_process._BOOT", "raise SystemExit(7)")
    monkeypatch.setattr("rota.executors.keeper.PAUSE_S", 0.01)
    rig = make_rig("process")
    outcome = rig.outcome("nothing")
    assert outcome == Crashed("handler process died before it was ready: exited with code 7")


# ---- handlers that were not declared for processes -------------------------------------------------------------------


def defined_again():
    """Have the name, and not be what the name holds."""


first_definition = defined_again


def defined_again():
    """Hold the name."""


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (handlers.nothing, True),
        (handlers.wrapped.handler, True),
        (defined_again, True),
        (first_definition, False),
        (handlers.local, False),
        (lambda: None, False),
        (handlers.Path("x").exists, False),
    ],
)
def test_what_a_process_would_find_under_its_name_runs_apart_and_nothing_else(function, found):
    assert runs_apart(inspect_handler("work", function, "thread")) is found


def test_what_was_not_declared_for_processes_is_not_looked_for_in_the_main_program(monkeypatch):
    def act():
        """Be defined in a script that may do anything at import."""

    act.__module__, act.__qualname__ = "__main__", "act"
    monkeypatch.setattr(sys.modules["__main__"], "act", act, raising=False)
    assert not runs_apart(inspect_handler("act", act, "thread"))
    assert runs_apart(inspect_handler("act", act, "process"))


def test_a_process_tries_to_import_a_handler_before_it_is_said_to_be_ready_for_it(make_rig, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        "import os, pathlib\nassert os.getpid() == int(pathlib.Path(__file__ + '.pid').read_text())\ndef act(): pass\n"
    )
    (tmp_path / "only_here.py.pid").write_text(str(os.getpid()))
    monkeypatch.syspath_prepend(str(tmp_path))
    rig = make_rig("process")
    rig.equipment.handlers["act"] = inspect_handler("act", import_module("only_here").act, "thread")
    rig.equipment.handlers["give"] = inspect_handler("give", handlers.give, "thread")
    assert rig.executor.readiness("act") is Readiness.LATER
    rig.until(lambda: rig.executor.readiness("act") is Readiness.NEVER)
    rig.until(lambda: rig.executor.readiness("give") is Readiness.NOW)
    assert rig.executor.readiness("unheard of") is Readiness.NEVER
    assert rig.outcome("give", value=3) == Completed("3")


def test_a_module_that_kills_whoever_imports_it_is_given_up_and_others_have_their_processes(make_rig, tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os, pathlib\nif os.getpid() != int(pathlib.Path(__file__ + '.pid').read_text()):\n    os._exit(3)\ndef act(): pass\n"
    )
    (tmp_path / "deadly.py.pid").write_text(str(os.getpid()))
    monkeypatch.syspath_prepend(str(tmp_path))
    rig = make_rig("process")
    rig.equipment.handlers["act"] = inspect_handler("act", import_module("deadly").act, "thread")
    rig.until(lambda: rig.executor.readiness("act") is Readiness.NEVER)
    assert rig.executor._keeper.found["act"].error == "handler process died: exited with code 3"
    assert rig.outcome("give", value=3) == Completed("3")


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """A handler of a module whose import hangs in every other process, and the file in which such a process leaves its pid."""
    (tmp_path / "hangs.py").write_text(
        "import os, pathlib, time\n"
        "if os.getpid() != int(pathlib.Path(__file__ + '.pid').read_text()):\n"
        "    pathlib.Path(__file__ + '.there').write_text(str(os.getpid()))\n"
        "    time.sleep(3600)\n"
        "def act(): pass\n"
    )
    (tmp_path / "hangs.py.pid").write_text(str(os.getpid()))
    monkeypatch.syspath_prepend(str(tmp_path))
    return inspect_handler("act", import_module("hangs").act, "thread"), tmp_path / "hangs.py.there"


def test_a_handler_whose_import_hangs_keeps_no_other_from_its_process(make_rig, hanging):
    rig = make_rig("process")
    handler, there = hanging
    give = inspect_handler("give", handlers.give, "thread")
    rig.equipment.handlers.update(act=handler, give=give)
    assert rig.executor.readiness("act") is Readiness.LATER
    rig.until(there.exists)
    rig.until(lambda: rig.executor.readiness("give") is Readiness.NOW)
    assert rig.executor.readiness("act") is Readiness.LATER


def test_a_handler_whose_import_hangs_is_given_up_and_its_process_is_ended(make_rig, hanging, monkeypatch):
    monkeypatch.setattr(keeper, "SEEK_S", 0.5)
    rig = make_rig("process")
    handler, there = hanging
    rig.equipment.handlers["act"] = handler
    assert rig.executor.readiness("act") is Readiness.LATER
    rig.until(there.exists)
    rig.until(lambda: rig.executor.readiness("act") is Readiness.NEVER)
    assert rig.executor._keeper.found["act"].error == "importing the handler took more than 0.5 s"
    rig.until(lambda: _gone(*_pids(there)))
    assert rig.outcome("give", value=3) == Completed("3")
