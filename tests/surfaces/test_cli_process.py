"""The real command in a process of its own, against a real file."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from rota import Rota
from tests.support.pace import patient
from tests.support.waiting import eventually
from tests.surfaces.cli_support import ROOT, Cli

FAILURES = 200


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture
def worker(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    process = cli.start("worker", "--app", "shop:rota", "--concurrency", "2")
    try:
        eventually(lambda: cli.store.exists() and cli("workers", "--json").stdout, within=20, what="the worker is up")
        yield process
    finally:
        interrupt(process)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ask until it hears: two signals at once may arrive as one."""
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=0.5)


def test_a_job_is_enqueued_run_and_waited_for(cli, worker):
    done = cli.process("enqueue", "greet", "-p", "name=Ada", "--wait")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"Hello, Ada"' in done.stdout
    assert "COMPLETED" in done.stdout
    with_json = cli.process("enqueue", "greet", "--wait", "--json")
    assert json.loads(with_json.stdout)["run"]["result"] == "Hello, you"


def test_wait_follows_the_retries_and_says_how_a_chain_failed(cli, worker):
    failed = cli.process("enqueue", "fails", "--wait", "--json")
    assert failed.returncode == 1
    tail = json.loads(failed.stdout)
    assert (tail["status"], tail["attempt"]) == ("DEAD_LETTER", 2)
    assert failed.stderr == f"error: {tail['number']} ended DEAD_LETTER: ValueError: no such thing [today] (transient)\n"


def test_a_skipped_chain_did_not_fail(cli, worker):
    skipped = cli.process("enqueue", "skips", "--wait")
    assert (skipped.returncode, skipped.stderr) == (0, "")
    assert "nothing to do" in skipped.stdout


def test_a_wait_that_is_over_exits_with_4_and_the_job_goes_on(cli, worker):
    late = cli.process("enqueue", "sleeps", "--wait-timeout", "300ms")
    assert late.returncode == 4
    assert late.stderr.endswith("(wait_timeout)\n")
    assert cli.process("job", "cancel", "1", "--yes").returncode == 0
    eventually(lambda: cli.json("job", "get", "1")["status"] == "CANCELLED", what="the handler heard of it")


def test_ctrl_c_while_waiting_exits_with_130(cli, worker):
    waiting = cli.start("enqueue", "sleeps", "--wait")
    eventually(lambda: cli.lines("job", "list"), what="the job is there")
    waiting.send_signal(signal.SIGINT)
    out, _ = waiting.communicate(timeout=patient(20))
    # Struck while it runs generated code, as some modules do when they are imported, Python ends itself by the signal: 130, to a shell.
    assert waiting.returncode in {130, -signal.SIGINT}
    assert "Traceback" not in out


def test_waiting_without_a_worker_says_so(cli):
    alone = cli.process("enqueue", "greet", "--app", "shop:rota", "--wait-timeout", "100ms")
    assert alone.returncode == 4
    assert alone.stderr.startswith("note: no worker is running")


def test_a_worker_writes_log_lines_and_ends_cleanly(cli):
    process = cli.start("worker", "--app", "shop:rota")
    eventually(lambda: cli.store.exists() and cli("workers", "--json").stdout, within=20, what="the worker is up")
    cli.ok("enqueue", "greet", "-p", "name=Ada")
    cli.ok("enqueue", "gives_up")
    eventually(lambda: len(cli.lines("job", "list", "--status", "COMPLETED", "--status", "DEAD_LETTER")) == 2, what="both ended")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=patient(20))
    assert process.returncode == 0
    assert " greet " not in out, "completions are logged at DEBUG"
    (failure,) = [line for line in out.splitlines() if "rota.jobs" in line]
    assert " ERROR   rota.jobs  JOB-" in failure
    assert " gives_up failed permanently after " in failure
    assert 'raise PermanentError("never")' in out, "the traceback follows"
    assert out.splitlines()[-1].endswith("stopped")
    assert cli.lines("workers") == []


@pytest.mark.parametrize("app", [(), ("--app", "bare:rota")])
def test_a_worker_without_handlers_exits_with_2_and_says_what_to_do(cli, app):
    (cli.folder / "bare.py").write_text("from rota import Rota\n\nrota = Rota()\n")
    refused = cli.process("worker", *app)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: this worker has no handlers")
    assert "--app MODULE:ATTR" in refused.stderr
    assert "ROTA_HANDLER_MODULES" in refused.stderr
    assert not cli.store.exists()


def test_a_worker_without_handlers_runs_the_jobs_of_connections(cli, monkeypatch):
    monkeypatch.setenv("ROTA_SQL_PATHS", str(cli.folder))
    with contextlib.closing(apsw.Connection(str(cli.folder / "shop.db"))) as raw:
        raw.execute("CREATE TABLE seen (a)")
    cli.ok("template", "load", "--samples")
    cli.ok("sql", "-c", f"CREATE CONNECTION shop URL = 'sqlite:///{cli.folder}/shop.db'")
    cli.ok("sql", "-c", "CREATE JOB note SCHEDULE = EVERY 1 DAY CONNECTION = shop AS 'INSERT INTO seen VALUES (1)'; EXECUTE JOB note")
    process = cli.start("worker", "--type", "kind:sql:*")
    try:
        eventually(lambda: [job["status"] for job in cli.lines("job", "list")] == ["COMPLETED"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=patient(20))
    assert process.returncode == 0


def test_up_without_handlers_starts_and_warns(cli):
    process = cli.start("up", "--no-http")
    said = next(line for line in process.stdout if "no handlers" in line)
    assert "--app MODULE:ATTR" in said
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patient(20))
    assert process.returncode == 0


def test_up_without_a_terminal_writes_lines_and_with_json_documents(cli):
    cli.env["ROTA_LOG_LEVEL"] = "debug"
    process = cli.start("up", "--app", "shop:rota", "--demo", "--json")
    eventually(lambda: cli.store.exists() and cli.lines("job", "list", "--status", "COMPLETED"), within=20, what="the demo ran")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=patient(20))
    assert process.returncode == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"url", "login", "token"} <= set(lines[0])
    assert any("worker" in line["message"] for line in lines)
    assert lines[-1]["message"] == "stopped"
    assert {line["template"] for line in lines if "job" in line} >= {"greet"}
    assert all(line["at"].endswith("Z") for line in lines)


@pytest.mark.paired
def test_two_hundred_failures_under_two_workers_are_two_hundred_records_each_by_its_own_worker(cli):
    rota = Rota(cli.store)
    workers = [cli.start("worker", "--app", "shop:rota", "--concurrency", "2", "--json") for _ in range(2)]
    with ThreadPoolExecutor(2) as readers:
        # Read all along: a worker whose log nobody reads waits as soon as the pipe is full.
        outputs = [readers.submit(process.stdout.read) for process in workers]
        eventually(lambda: len(rota.workers.list()) == 2, within=50, what="both are up")
        jobs = rota.enqueue_many([("gives_up", {})] * FAILURES)
        eventually(lambda: rota.store.stats().by_status.get("DEAD_LETTER") == FAILURES, within=50, what="all failed")
        for process in workers:
            process.send_signal(signal.SIGTERM)
        logged = [_failures(output.result(timeout=patient(50))) for output in outputs]
    ran = {job.id: job.worker_id for job in rota.jobs.list(status="DEAD_LETTER", limit=FAILURES)}
    assert sorted(line["job"] for lines in logged for line in lines) == sorted(jobs) == sorted(ran)
    for lines in logged:
        assert len({line["worker"] for line in lines}) <= 1
        assert all(ran[line["job"]] == line["worker"] for line in lines)
        assert all(line["level"] == "ERROR" and "PermanentError: never" in line["traceback"] for line in lines)


def _failures(out: str) -> list[dict[str, Any]]:
    """Return what a worker logged of jobs."""
    lines = [json.loads(line) for line in out.splitlines()]
    return [line for line in lines if line.get("logger") == "rota.jobs"]


def test_a_second_ctrl_c_interrupts_what_runs(cli):
    process = cli.start("worker", "--app", "shop:rota")
    eventually(lambda: cli.store.exists() and cli("workers", "--json").stdout, within=20, what="the worker is up")
    cli.ok("enqueue", "sleeps")
    eventually(lambda: cli.json("job", "get", "1")["status"] == "RUNNING", what="it runs")
    process.send_signal(signal.SIGINT)
    eventually(lambda: any(worker["stopping_at"] for worker in cli.lines("workers")), what="the worker is stopping")
    assert process.poll() is None, "the running job may finish"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=patient(20))
    assert process.returncode == 0
    assert "Ctrl-C again interrupts" in out
    assert cli.json("job", "get", "1")["error_type"] == "interrupted"
    assert cli.json("job", "get", "1.2")["status"] == "QUEUED"


def test_a_demo_that_fails_says_so_and_the_worker_goes_on(cli):
    (cli.folder / "shop.py").write_text("from rota import Rota\nrota = Rota()\ndef demo(rota):\n    raise ValueError('no demo today')\n")
    process = cli.start("up", "--app", "shop:rota", "--demo")
    eventually(lambda: cli.store.exists() and cli("workers", "--json").stdout, within=20, what="the worker is up")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=patient(20))
    assert process.returncode == 0
    assert "no demo today" in out


def test_an_application_without_a_demo_is_refused(cli):
    (cli.folder / "shop.py").write_text("from rota import Rota\nrota = Rota()\n")
    refused = cli.process("up", "--app", "shop", "--demo")
    assert refused.returncode == 2
    assert "no function demo(rota)" in refused.stderr


def test_a_store_given_wins_over_the_application_s_own(cli):
    assert cli.process("enqueue", "greet", "--app", "shop:rota", "--store", "other.db").returncode == 0
    assert (cli.folder / "other.db").exists()
    assert not cli.store.exists()


def test_a_pipe_that_closes_early_is_no_traceback(cli):
    assert cli.process("enqueue", "greet", "--app", "shop:rota").returncode == 0
    listing = subprocess.run(
        f"{sys.executable} -m rota settings --json | true",
        shell=True,
        cwd=cli.folder,
        env=cli.environment(),
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in listing.stderr


def test_the_quickstart_runs_as_printed_in_an_empty_directory(tmp_path):
    script = tmp_path / "quickstart.py"
    script.write_text((ROOT / "examples/quickstart.py").read_text())
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "quickstart.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=patient(50), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("['Hello, Ada', 'Hello, Ada']\n")
    assert (tmp_path / "rota.db").exists()


def test_completion_offers_commands_and_states(cli):
    def offered(words: str) -> list[str]:
        environment = cli.environment() | {
            "_ROTA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        done = subprocess.run(cli.command(), env=environment, capture_output=True, text=True, timeout=patient(50), check=False)
        return done.stdout.split()

    assert {"up", "enqueue", "job"} <= set(offered("rota "))
    assert {"list", "explain"} <= set(offered("rota job "))
    assert offered("rota job list --status RUN") == ["RUNNING"]


def test_what_is_not_needed_is_not_imported():
    code = "import sys, {0}; print(*({{'rich', 'typer', 'asyncio', 'apsw', 'multiprocessing', 'pydantic'}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code.format("rota")], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
