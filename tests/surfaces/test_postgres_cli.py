"""The command line on a PostgreSQL store: one line for what is wrong with it, and never a password."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.pace import patient
from tests.support.postgres import free_port, make_server
from tests.support.waiting import eventually
from tests.surfaces.cli_support import Cli

SECRET = "hush-7f3a"
LOUD = """
import logging
import os
import time

logging.basicConfig(level=logging.DEBUG)
logging.getLogger("psycopg").setLevel(logging.DEBUG)

from rota import Rota

rota = Rota()


@rota.job(executor="process")
def naps(path):
    open(path, "w").close()
    time.sleep(30)


@rota.job
def greet(name="you"):
    return f"Hello, {name}"


@rota.job(max_retries=0)
def fails():
    raise ValueError("no")
"""


@pytest.fixture(scope="module")
def server():
    made = make_server(fsync="off")
    with made.connect() as raw:
        raw.execute(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'")
        raw.execute("CREATE DATABASE jobs OWNER ada")
    made.allow("host postgres postgres 127.0.0.1/32 trust", "host all ada 127.0.0.1/32 scram-sha-256")
    yield made
    made.throw_away()


@pytest.fixture
def cli(server, tmp_path):
    made = Cli(tmp_path)
    made.env |= {
        "ROTA_STORE": place(server),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "ROTA_SHUTDOWN_GRACE": "0.1",
    }
    made.env.pop("ROTA_ACTOR")
    (tmp_path / "loud.py").write_text(LOUD)
    yield made
    made.close()


def place(server, *, password=SECRET, database="jobs", port=None):
    return f"postgresql://ada:{password}@127.0.0.1:{port or server.port}/{database}"


def shown(server, **other):
    return place(server, **other).replace(f":{other.get('password', SECRET)}@", "@")


def quiet(*texts):
    for text in texts:
        assert SECRET not in text


COMMANDS = [
    ("stats",),
    ("settings",),
    ("version",),
    ("doctor",),
    ("workers",),
    ("queue", "jobs"),
    ("job", "list"),
    ("job", "get", "1"),
    ("dead", "list"),
    ("audit",),
    ("schedule", "list"),
    ("template", "list"),
    ("grants", "eve"),
    ("purge", "--dry-run"),
    ("job", "get", "77777"),
    ("enqueue", "nothing"),
]


def test_no_command_shows_the_password_of_a_good_store(cli, server):
    cli.process("enqueue", "greet", "--app", "loud:rota")
    for command in COMMANDS:
        for how in ([], ["--json"]):
            done = cli(*command, *how)
            quiet(done.stdout, done.stderr, repr(done.exception))
    assert shown(server) in cli("settings").stdout
    assert shown(server) in cli("version").stdout


@pytest.mark.parametrize("command", [command for command in COMMANDS if command[0] not in {"settings", "version", "grants"}])
@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"password": f"not-{SECRET}"}, "store_unusable", "password authentication failed"),
        ({"database": "nowhere"}, "store_unusable", 'database "nowhere" does not exist'),
        ({"port": 1}, "store_unavailable", "Connection refused"),
    ],
    ids=["wrong password", "missing database", "nobody listens"],
)
def test_a_bad_store_is_one_line_and_exit_code_1(cli, server, command, changed, code, words):
    cli.env["ROTA_STORE"] = place(server, **changed)
    done = cli(*command)
    quiet(done.output, repr(done.exception))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {shown(server, **changed)} can't be ")
    assert words in line
    assert line.endswith(f"({code})")


def test_a_program_that_fails_shows_a_traceback_without_the_password(cli, server):
    """Also what our own code never prints: the whole chain of errors, as Python shows it at the end of a program."""
    (cli.folder / "program.py").write_text("import loud; loud.rota.enqueue('greet')")
    cli.env["ROTA_STORE"] = place(server, password=f"not-{SECRET}")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=cli.folder, env=cli.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "password authentication failed" in done.stderr
    assert "psycopg.OperationalError" in done.stderr
    assert "DEBUG:psycopg" in done.stderr
    quiet(done.stdout, done.stderr)


def test_a_worker_and_its_handlers_keep_the_password_to_themselves(cli, server, tmp_path):
    worker = cli.start("worker", "--app", "loud:rota")
    eventually(lambda: cli("workers", "--json").stdout != "", within=20)
    running = tmp_path / "runs"
    cli.ok("enqueue", "naps", "-p", f"path={running}")
    cli.ok("enqueue", "fails")
    cli.ok("enqueue", "greet")
    eventually(running.exists, within=20)
    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    assert len(family) >= 2
    for each in family:
        quiet(Path(f"/proc/{each.pid}/cmdline").read_bytes().decode(errors="replace"))
    # What its neighbours see of it in the server.
    with server.connect() as raw:
        for row in raw.execute("SELECT application_name, query FROM pg_stat_activity WHERE usename = 'ada'"):
            quiet(*row)
    server.stop()
    eventually(lambda: "can't be reached" in said(worker), within=20)
    server.start()
    eventually(lambda: cli("stats").exit_code == 0, within=20)
    worker.terminate()
    rest = worker.communicate(timeout=patient(40))[0]
    quiet(rest, "".join(SAID))
    assert shown(server) in "".join(SAID) + rest


SAID: list[str] = []


def said(process):
    """Return what a process has said so far, read without waiting."""
    os.set_blocking(process.stdout.fileno(), False)
    try:
        SAID.append(process.stdout.read() or "")
    except (BlockingIOError, TypeError):
        pass
    finally:
        os.set_blocking(process.stdout.fileno(), True)
    return "".join(SAID)


def test_a_password_on_the_command_line_is_warned_of_once(cli, server):
    done = cli("stats", "--store", place(server))
    assert done.exit_code == 0
    assert done.stderr.count("warning: a password on the command line") == 1
    assert "ROTA_STORE" in done.stderr
    assert "~/.pgpass" in done.stderr
    quiet(done.output)
    assert "warning" not in cli("stats").stderr


@pytest.mark.parametrize(
    "arguments", [("stats", "{}"), ("{}",), ("job", "get", "1", "{}"), ("stats", "--stoer={}"), ("enqueue", "x", "--priority", "{}")]
)
def test_a_command_line_that_is_wrong_is_shown_without_the_password(cli, server, arguments):
    done = cli(*(each.format(place(server)) for each in arguments))
    assert done.exit_code in {1, 2}
    quiet(done.output)


def test_a_url_that_can_not_be_read_is_not_repeated(cli):
    cli.env["ROTA_STORE"] = f"postgresql://ada:{SECRET}@{SECRET}/jobs@{free_port()}"
    done = cli("stats")
    assert done.exit_code == 2
    assert "percent-encoded" in done.stderr
    quiet(done.output)


def test_the_password_may_stand_in_a_file_of_its_own(cli, server, tmp_path):
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"127.0.0.1:{server.port}:jobs:ada:{SECRET}\n")
    passfile.chmod(0o600)
    cli.env |= {"ROTA_STORE": shown(server), "PGPASSFILE": str(passfile)}
    done = cli.process("stats")
    assert done.returncode == 0, done.stderr
    quiet(done.stdout, done.stderr)


def test_a_service_file_may_say_it_all(cli, server, tmp_path):
    services = tmp_path / "services.conf"
    services.write_text(f"[shop]\nhost=127.0.0.1\nport={server.port}\ndbname=jobs\nuser=ada\npassword={SECRET}\n")
    cli.env |= {"ROTA_STORE": "postgresql:///?service=shop", "PGSERVICEFILE": str(services)}
    done = cli.process("doctor", "--json")
    assert '"name":"server","state":"ok"' in done.stdout
    quiet(done.stdout, done.stderr)


def test_grants_are_printed_without_asking_the_server(cli, server):
    cli.env["ROTA_STORE"] = place(server, port=1)
    said = cli.ok("grants", "shop_web", "--kind", "submitter").splitlines()
    assert said[0] == 'GRANT USAGE ON SCHEMA "rota" TO "shop_web";'
    assert all(line.startswith("GRANT ") and line.endswith('TO "shop_web";') for line in said)
    assert cli.json("grants", "shop_web", "--kind", "submitter")["statements"] == said


def test_a_file_has_no_roles(cli, tmp_path):
    done = cli("grants", "shop_web", "--store", str(tmp_path / "rota.db"))
    assert done.exit_code == 2
    assert "SQLite store has no roles" in done.stderr
