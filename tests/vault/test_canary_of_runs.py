"""A secret that jobs print, fail with and return is looked for in all that their runs leave behind; and the search is shown to find it."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.executors import runner as runner_executor
from rota.model.redaction import MASK, Redactor
from rota.runners import sql as sql_runner
from rota.runners.external import output as command_output
from rota.surfaces.http import make_app
from tests.runners.external.stage import WAYS, Stage, processes, reachable_python
from tests.sql.sql_support import create_connection, runs_of
from tests.stores.makers import MAKERS, SqliteMaker
from tests.support.keys import key_file
from tests.support.pace import patient
from tests.support.postgres import EMPTY, fresh_database
from tests.support.prepared import prepare
from tests.support.receiver import receiving
from tests.support.stranger import public_folder
from tests.support.waiting import eventually
from tests.surfaces.http.api_support import Caller
from tests.vault.dumps import dump_of
from tests.vault.test_canary import CANARY, found_in

HOURLY = "SCHEDULE = EVERY 1 HOUR MAX_RETRIES = 0"
BARE = next(way for way in WAYS if way.isolation == "off")
SPEAKER = """
import base64, json, os, sys
key = json.load(open(int(os.environ["ROTA_SECRETS_FD"])))["api_key"]
print(key, flush=True)
print("again", key, base64.b64encode(key.encode()).decode(), json.dumps(key), file=sys.stderr, flush=True)
for letter in key:
    sys.stdout.write(letter)
    sys.stdout.flush()
sys.exit(CODE)
"""
_exporter = InMemorySpanExporter()


class Story:
    """Jobs that have a secret and tell it in every way, and all that was seen of them."""

    def __init__(self, maker: SqliteMaker, folder: Path, commands: Stage, warehouse: str, run_logs: str, keys: Path) -> None:
        self.folder, self.maker, self.keys = folder, maker, keys
        self.seen: dict[str, str] = {}
        options = {"sql_paths": str(folder.parent), "external_file": commands.config(), "master_key_file": str(keys), "traces": "on"}
        given = Settings(
            **options,
            run_logs=run_logs,
            webhook_private="allow",
            webhook_http="allow",
            http_log="yes",
            synchronous="NORMAL",
            log_level="debug",
        )
        self.rota = Rota(maker.url, settings=given)
        python = reachable_python()
        self.speaks, self.fails = (commands.script(SPEAKER.replace("CODE", str(code)), f"speaker{code}", python) for code in (0, 3))
        self.warehouse = warehouse
        self.target = folder.parent / "target.db"

    def define(self) -> None:
        rota = self.rota
        rota.secrets.create("api_key", CANARY)
        create_connection(rota, "data", self.target, "t (x)")
        rota.sql(f"CREATE CONNECTION ware URL '{self.warehouse}' USER 'canary'")
        bodies = {
            "returns": "CONNECTION data SECRETS (api_key) AS 'SELECT :api_key AS k, hex(:api_key), ''x'' || :api_key'",
            "places": 'CONNECTION data SECRETS (api_key) PARAMS = \'{"p": {"$secret": "api_key"}}\' AS \'SELECT :p\'',
            "breaks": "CONNECTION ware SECRETS (api_key) AS 'SELECT (:api_key)::text::int'",
            "notices": "CONNECTION ware SECRETS (api_key) AS 'SELECT tell(:api_key)'",
            "speaks": f"SECRETS (api_key) EXEC '{self.speaks}'",
            "fails": f"SECRETS (api_key) EXEC '{self.fails}'",
        }
        self.names = list(bodies)
        for name, body in bodies.items():
            rota.sql(f"CREATE JOB {name} {HOURLY} {body}")

    def tell(self) -> None:
        rota = self.rota
        with receiving() as receiver:
            rota.webhooks.create(receiver.url())
            self.define()
            with rota.events() as events, rota.running():
                for name in self.names:
                    rota.sql(f"EXECUTE JOB {name}")
                ends = eventually(self.ended, within=30, what="the ends of all runs")
                states = {name: run["state"] for name, run in ends.items()}
                assert states == dict.fromkeys(self.names, "COMPLETED") | {"breaks": "FAILED", "fails": "FAILED"}, ends
                eventually(lambda: len(receiver.received) >= len(self.names), within=20, what="messages")
                told = []
                while (event := events.next(timeout=0.3)) is not None:
                    told.append(repr(event))
            self.seen |= {
                "webhooks": "\n".join(each.body.decode() + str(each.headers) for each in receiver.received),
                "events": "\n".join(told),
            }
        self.seen["spans"] = "\n".join(span.to_json() for span in _exporter.get_finished_spans())
        self.look(ends)
        assert all(self.seen.values()), {place for place, text in self.seen.items() if not text}

    def ended(self) -> dict[str, dict[str, Any]] | None:
        runs = {name: runs_of(self.rota, name)[-1] for name in self.names}
        return runs if all(run["state"] not in {"PENDING", "RUNNING"} for run in runs.values()) else None

    def look(self, runs: dict[str, dict[str, Any]]) -> None:
        rota = self.rota
        shown = [
            rota.sql("SELECT * FROM sys.job_runs; SELECT * FROM sys.history; SELECT * FROM sys.audit; SHOW JOBS; SHOW CREATE JOB places")
        ]
        logs, views = [], []
        for run in runs.values():
            logs.append(str(rota.jobs.log(run["job_run_uuid"]).text))
            views += [rota.jobs.get(run["job_run_uuid"]), rota.jobs.runs(run["job_run_uuid"]), rota.explain(run["job_run_uuid"])]
            shown.append(rota.sql(f"SHOW JOB RUNS FOR {run['job_name']}; EXPLAIN JOB RUN '{run['job_run_uuid']}'"))
        self.seen |= {"sql": repr(shown), "run logs": "\n".join(logs), "python": repr(views)}
        with TestClient(make_app(rota), raise_server_exceptions=False) as client:
            token = rota.tokens.create("all", permits=["manage", "read"]).secret
            caller = Caller(client, token)
            paths = [
                "/jobs",
                "/audit",
                "/overview",
                *(f"/jobs/{run['job_run_uuid']}{more}" for run in runs.values() for more in ("", "/runs", "/log")),
            ]
            self.seen["http"] = "\n".join(caller("GET", path).text for path in paths)
            metrics = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert metrics.status_code == 200
            self.seen["http"] += metrics.text
        assert "OUTPUT NOTICE: told" in self.seen["run logs"]
        assert "run kind:external" in self.seen["spans"]

    def places(self, caplog: pytest.LogCaptureFixture) -> dict[str, bytes]:
        """Return all that was left behind."""
        formatter = logging.Formatter()
        lines = "\n".join(formatter.format(record) + repr(record.args) for record in caplog.records)
        files = {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        seen = {name: text.encode() for name, text in self.seen.items()}
        return {"log lines": lines.encode(errors="replace"), "dump": dump_of(self.maker)} | seen | files


@pytest.fixture(scope="module")
def warehouse() -> Iterator[str]:
    with fresh_database(like=EMPTY) as url:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute("DO $$ BEGIN CREATE ROLE canary LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
            raw.execute("CREATE FUNCTION tell(t text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'told %', t; RETURN 1; END $$")
        yield url.replace("postgres@", "")


@pytest.fixture(params=["sqlite-folder", "sqlite-store", "postgres-store", "mongodb-store"])
def story(request, tmp_path, warehouse) -> Iterator[Story]:
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        # A process has one provider, for good.
        trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(_exporter))
    _exporter.clear()
    store, _, run_logs = request.param.partition("-")
    folder = tmp_path / "store"
    folder.mkdir()
    with ExitStack() as stack:
        maker = next(kind for kind in MAKERS if kind.name == store)(folder)
        stack.callback(maker.close)
        commands = Stage(stack.enter_context(public_folder()), BARE)
        made = Story(maker, folder, commands, warehouse, run_logs, key_file(tmp_path))
        stack.enter_context(closing(made.rota))
        yield made


def test_the_secret_of_a_run_is_nowhere_that_the_run_leaves_anything(story, caplog):
    with caplog.at_level(0):
        story.tell()
        places = story.places(caplog)
    assert {"log lines", "webhooks", "events", "spans", "sql", "run logs", "python", "http", "dump"} <= places.keys()
    assert found_in(places) == set()
    assert MASK.encode() in places["dump"]


def test_the_search_finds_it_where_nothing_is_redacted(story, caplog, monkeypatch):
    monkeypatch.setattr(runner_executor, "redacted", lambda outcome, _redactor: outcome)
    monkeypatch.setattr(runner_executor.RunControl, "redact", lambda _control, _redactor: None)
    monkeypatch.setattr(sql_runner, "_hidden", lambda text, _secrets: text)
    monkeypatch.setattr(command_output, "Redactor", lambda _values: Redactor(()))
    with caplog.at_level(0):
        story.tell()
        found = found_in(story.places(caplog))
    assert {"sql", "run logs", "python", "http", "dump", "log lines", "webhooks", "spans"} <= found


# ---- the processes ----------------------------------------------------------------------------------------------------

WORKER = """
import json, sys
from rota import Rota, Settings
Rota(sys.argv[1], settings=Settings(**json.loads(sys.argv[2]))).run(concurrency=2)
"""
SLEEPER = """
import json, os, time
key = json.load(open(int(os.environ["ROTA_SECRETS_FD"])))["api_key"]
print("ready", flush=True)
time.sleep(600)
"""


def test_no_process_shows_the_secret_and_a_worker_that_dies_leaves_no_core(tmp_path):
    """While a command and a worker hold it: neither environments nor command lines have it; the worker's memory is not written to disk."""
    folder, keys = tmp_path / "store", key_file(tmp_path)
    folder.mkdir()
    with public_folder() as public:
        commands = Stage(public, BARE)
        options = {"external_file": commands.config(), "master_key_file": str(keys), "synchronous": "NORMAL"}
        where = str(prepare(folder / "rota.db"))
        with closing(Rota(where, settings=Settings(**options))) as rota:
            rota.secrets.create("api_key", CANARY)
            rota.sql(f"CREATE JOB sleeper {HOURLY} SECRETS (api_key) EXEC '{commands.script(SLEEPER, 'sleeper', reachable_python())}'")
            rota.sql("EXECUTE JOB sleeper")
            worker = _with_cores([sys.executable, "-c", WORKER, where, json.dumps(options)], tmp_path)
            try:
                run = eventually(lambda: next((each for each in runs_of(rota, "sleeper") if each["state"] == "RUNNING"), None), within=20)
                pids = eventually(lambda: processes(run["job_run_uuid"]), what="the command")
                eventually(lambda: "ready" in rota.jobs.log(run["job_run_uuid"]).text or _is_sleeping(pids), what="its first words")
                assert found_in(_proc()) == set()
                assert worker.pid in {int(name.split()[0]) for name in _proc()}, "it was looked at"
            finally:
                worker.send_signal(signal.SIGABRT)
                worker.wait(patient(10))
            assert worker.returncode == -signal.SIGABRT
            assert list(tmp_path.glob("core*")) == []
            eventually(lambda: processes(run["job_run_uuid"]) == [], what="the end of the command")


def test_the_search_finds_a_core_where_a_process_may_leave_one(tmp_path):
    plain = _with_cores([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path)
    plain.send_signal(signal.SIGABRT)
    plain.wait(patient(10))
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    assert list(tmp_path.glob("core*")) or pattern != "core", "a core file is written here unless the kernel hands it to a program"


def _with_cores(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    def allow() -> None:
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    environment = os.environ | {"PYTHONPATH": str(Path(sys.modules["rota"].__file__).parents[1])}
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, preexec_fn=allow)  # noqa: PLW1509


def _proc() -> dict[str, bytes]:
    """Return the environments and command lines of all processes but this one, which has the value in its code."""
    found: dict[str, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for name in ("environ", "cmdline"):
                with suppress(OSError):
                    found[f"{entry.name} {name}"] = (entry / name).read_bytes()
    return found


def _is_sleeping(pids: list[int]) -> bool:
    time.sleep(0.2)
    return any(Path(f"/proc/{pid}").exists() for pid in pids)
