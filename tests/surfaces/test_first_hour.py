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
from rota.errors import InvalidOption, UnknownTemplate
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


def test_the_version_is_an_option_too():
    environment = {**os.environ, "ROTA_CONCURENCY": "3"}
    rota = str(Path(sys.executable).with_name("rota"))
    done = subprocess.run([rota, "--version"], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"rota {__version__}\n"
    assert done.stderr == ""
