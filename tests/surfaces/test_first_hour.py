"""What a newcomer mistypes in the first hour, and how they are answered."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rota import Rota, Settings, __version__
from rota.admission import Admission
from rota.errors import InvalidOption, Unauthenticated, UnknownTemplate
from rota.model.settings import unknown_variables
from rota.surfaces.cli.session import import_app


@pytest.fixture
def app(tmp_path):
    with closing(Rota(tmp_path / "rota.db")) as made:
        for name in ("charge", "send_invoice", *(f"a_job_{number}" for number in range(12))):
            made.job(name=name)(lambda: None)
        yield made


def test_a_misspelt_job_is_answered_with_the_name_that_was_meant_and_no_list_is_cut_in_silence(app):
    with pytest.raises(UnknownTemplate) as caught:
        app.enqueue("send_invoce")
    assert "no template 'send_invoce' (did you mean 'send_invoice'?); known here: a_job_0, a_job_1, " in str(caught.value)
    assert ", a_job_7 and 4 more. Register it" in str(caught.value)


@pytest.mark.parametrize("name", ["zzz", "", "x" * 300])
def test_a_name_that_is_like_no_other_gets_no_guess(app, name):
    with pytest.raises(Exception, match=r"^(?!.*did you mean)"):
        app.enqueue(name)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("@rota.job(timout=3)", "has no option 'timout' (did you mean 'timeout'?)"),
        ("@rota.job(cron='61 * * * *')", "minute 61 is out of range"),
        ("@rota.job(every=60, timezone='Berlin')", "Europe/Berlin"),
        ("@rota.job(executor='thraed')", "executor 'thraed'"),
        ("@rota.job(rate_limit='fast')", "rate_limit"),
    ],
)
def test_a_typo_in_a_decorator_names_the_line_of_the_program(tmp_path, monkeypatch, line, words):
    module = f"shop_{abs(hash(line))}"
    (tmp_path / f"{module}.py").write_text(f"from rota import Rota\nrota = Rota({str(tmp_path / 'r.db')!r})\n\n{line}\ndef f(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption) as caught:
        import_app(f"{module}:rota")
    assert words in str(caught.value)
    assert str(caught.value).endswith(f"({module}.py, line 4)")


def test_a_variable_that_sets_nothing_is_warned_of_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("ROTA_CONCURENCY", "3")
    with caplog.at_level(logging.WARNING, "rota.settings"):
        for _ in range(2):
            Rota(tmp_path / "rota.db").close()
    assert caplog.messages == [
        "the variable ROTA_CONCURENCY is not a setting and has no effect (did you mean 'ROTA_CONCURRENCY'?): `rota settings` lists them"
    ]


def test_variables_that_mean_something_are_not_warned_of():
    known = {f"ROTA_{name.upper()}": "" for name in Settings.__struct_fields__}
    assert unknown_variables(known | {"ROTA_STORE": "", "ROTA_ACTOR": "", "ROTA_TEST_POSTGRES": "", "PATH": "", "ROTATION": ""}) == []


def test_a_setting_that_is_not_there_is_refused_with_the_one_that_was_meant():
    with pytest.raises(InvalidOption, match=r"no setting 'concurency' \(did you mean 'concurrency'\?\)"):
        Settings.from_environment({}, concurency=3)


def run(folder, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "rota", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.parametrize("group", [(), ("job",)])
def test_a_command_without_words_is_help_and_no_mistake(tmp_path, group):
    shown = run(tmp_path, *group)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Usage: rota" in shown.stdout


SCRIPT = """
import os
from rota import Rota
rota = Rota("rota.db")
rota.job(name="echo")(lambda: None)
rota.enqueue("echo")
rota.turn()
if os.fork() == 0:
    raise SystemExit  # a child leaves its parent's worker alone
os.wait()
print(len(rota.workers.list()))
"""


def test_a_script_that_turns_and_ends_without_a_close_has_not_lost_a_worker(tmp_path):
    ended = run(tmp_path, code=SCRIPT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
    with closing(Rota(tmp_path / "rota.db")) as rota:
        assert "lost" not in " ".join(concern.what for concern in rota.overview().health.concerns)
        assert rota.workers.list() == []


def test_a_login_link_logs_in_and_replaces_the_last_one(tmp_path):
    with closing(Rota(tmp_path / "rota.db")) as rota:
        rota.jobs.list()
    links = [run(tmp_path, "login", *more).stdout.strip() for more in ((), ("--url", "https://jobs.example.org/rota/"))]
    assert [link.partition("#token=")[0] for link in links] == ["http://127.0.0.1:8420/login", "https://jobs.example.org/rota/login"]
    first, second = (link.partition("#token=")[2] for link in links)
    with closing(Rota(tmp_path / "rota.db")) as rota:
        assert Admission(rota).authenticate(second).role == "system_manager"
        with pytest.raises(Unauthenticated):
            Admission(rota).authenticate(first)
    assert run(tmp_path / "..", "login").returncode == 3, "a question makes no store"


def test_a_job_that_waits_is_run_now_by_a_command(tmp_path):
    with closing(Rota(tmp_path / "rota.db")) as rota:
        rota.job(name="echo")(lambda: None)
        rota.turn()
        waits = run(tmp_path, "enqueue", "echo", "--in", "1h", "-q").stdout.strip()
        assert rota.jobs.get(waits).status == "PENDING"
        assert run(tmp_path, "job", "run-now", waits).returncode == 0
        rota.turn()
        assert rota.jobs.get(waits).status == "COMPLETED"
    assert run(tmp_path, "job", "run-now", waits).returncode == 1


def test_a_traceback_is_shown_where_it_is_asked_for(tmp_path):
    (tmp_path / "broken.py").write_text("def fails():\n    raise RuntimeError('half way')\nfails()\n")
    plain = run(tmp_path, "stats", "--app", "broken")
    assert (plain.returncode, plain.stderr.count("\n")) == (2, 1)
    whole = run(tmp_path, "stats", "--app", "broken", "--traceback")
    assert whole.returncode == 2
    assert 'broken.py", line 2, in fails' in whole.stderr
    assert whole.stderr.endswith(plain.stderr)


def test_the_version_is_an_option_too():
    environment = {**os.environ, "ROTA_CONCURENCY": "3"}
    rota = str(Path(sys.executable).with_name("rota"))
    done = subprocess.run([rota, "--version"], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"rota {__version__}\n"
    assert done.stderr == ""
