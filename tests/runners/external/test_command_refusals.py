"""What a worker does not run, and which files of an operator it does not believe."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rota.compose import command_findings, make_runners
from rota.errors import InvalidOption, NotFound
from rota.model.decide import Failed
from rota.model.findings import State
from rota.model.settings import Settings
from rota.model.stored_settings import STORABLE, storable
from rota.ports.runner import BodyRefused, Runner
from rota.runners.external import ExternalRunner, load_config, probe_isolation
from tests.runners.external.stage import WAYS, Stage, order
from tests.support.command_control import CommandControl
from tests.support.stranger import NOBODY, public_folder

ROOT = os.geteuid() == 0


@pytest.fixture
def stage():
    """As the tests' own user, without namespaces: what is refused is so everywhere."""
    with public_folder() as folder:
        yield Stage(folder, next(way for way in WAYS if way.isolation == "off" and way.root == ROOT))


@pytest.fixture
def refusal(stage):
    runner = stage.runner()

    def refused(body: str) -> str:
        with pytest.raises(BodyRefused) as caught:
            runner.check(body)
        outcome = runner.run(order(body), CommandControl())
        assert outcome == Failed(str(caught.value), permanent=True, exit_code=caught.value.exit_code)
        return f"{caught.value} [{outcome.exit_code}]"

    return refused


# ---- command lines --------------------------------------------------------------------------------------------


def test_a_command_on_the_list_is_taken(stage):
    runner: Runner = stage.runner()
    assert runner.check(stage.script("exit 0") + " with 'some words'") is None


def test_a_file_may_be_listed_by_itself_also_by_a_link(stage):
    listed = stage.folder / "listed"
    listed.symlink_to(stage.script("echo listed", "one"))
    other = stage.script("exit 0", "other")
    runner = stage.runner(f'programs = ["{listed}"]')
    runner.check(str(listed))
    runner.check(str(stage.commands / "one"))
    with pytest.raises(BodyRefused, match="is not a command that this worker runs"):
        runner.check(other)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "the command line is empty: name a program by its absolute path [126]"),
        ("''", "the command line is empty: name a program by its absolute path [126]"),
        ("ls -l", "'ls' is not an absolute path: commands are not looked up, and no shell runs them [126]"),
        ("./command", "'./command' is not an absolute path: commands are not looked up, and no shell runs them [126]"),
        ("/bin/echo 'x", "the command line can't be read: no closing quotation; quote as in a shell [126]"),
        ("/bin/echo \0", "the command line has a NUL character, which no argument can have [126]"),
        ("/bin/echo " + "x" * 70_000, "the command line has 70,010 bytes; at most 65,536 are allowed [126]"),
        ("/nonexistent/x y", "'/nonexistent/x' can't be run: no such file or directory [127]"),
        ("/etc/passwd/x", "'/etc/passwd/x' can't be run: not a directory [127]"),
    ],
)
def test_a_command_line_that_names_no_program_is_refused(refusal, body, text):
    assert refusal(body) == text


def test_a_program_outside_the_list_is_refused(stage, refusal):
    not_listed = f"is not a command that this worker runs: see `programs` and `folders` in {stage.folder}/external.toml [126]"
    beside = stage.folder / "commands-evil"
    beside.mkdir()
    for path in (beside / "x", stage.folder / "outside"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (stage.commands / "link").symlink_to(stage.folder / "outside")
    assert refusal(f"{beside}/x") == f"'{beside}/x' {not_listed}"
    assert refusal(f"{stage.commands}/../outside") == f"'{stage.commands}/../outside' ({stage.folder}/outside) {not_listed}"
    assert refusal(f"{stage.commands}/link") == f"'{stage.commands}/link' ({stage.folder}/outside) {not_listed}"
    assert refusal(str(stage.commands)) == f"'{stage.commands}' {not_listed}"
    assert refusal("/dev/zero") == f"'/dev/zero' {not_listed}"


def test_what_is_not_an_ordinary_program_is_refused(stage, refusal):
    (stage.commands / "folder").mkdir()
    os.mkfifo(stage.commands / "fifo")
    plain = stage.script("exit 0", "plain")
    Path(plain).chmod(0o644)
    assert "is not a file [126]" in refusal(f"{stage.commands}/folder")
    assert "is not a file [126]" in refusal(f"{stage.commands}/fifo")
    assert refusal(plain) == f"'{plain}' is not executable: run `chmod a+x` [126]"
    for mode in (0o4755, 0o2755):
        Path(plain).chmod(mode)
        assert "would run with the rights of its owner or group" in refusal(plain)


def test_a_program_that_others_could_change_is_refused(stage, refusal):
    script = stage.script("exit 0")
    Path(script).chmod(0o775)
    assert f"is not trusted: {script} can be changed by its group (mode 0775): run `chmod go-w {script}` [126]" in refusal(script)
    Path(script).chmod(0o757)
    assert f"{script} can be changed by every user (mode 0757)" in refusal(script)
    Path(script).chmod(0o755)
    stage.commands.chmod(0o777)
    assert f"{stage.commands} can be changed by every user (mode 0777)" in refusal(script)
    # Nobody can replace what belongs to others in a sticky folder.
    stage.commands.chmod(0o1777)
    stage.runner().check(script)
    stage.folder.chmod(0o775)
    assert f"{stage.folder} can be changed by its group" in refusal(script)
    stage.folder.chmod(0o755)


def test_a_program_of_another_user_is_refused(stage, refusal):
    assert ROOT, "only root gives files away: this test needs it"
    script = stage.script("exit 0")
    os.chown(script, NOBODY, NOBODY)
    assert f"{script} belongs to user {NOBODY}, who could change it: chown it to root [126]" in refusal(script)
    os.chown(script, 0, 0)
    os.chown(stage.commands, NOBODY, NOBODY)
    assert f"{stage.commands} belongs to user {NOBODY}" in refusal(script)


def test_an_environment_that_is_too_large_is_refused(stage, monkeypatch):
    monkeypatch.setenv("LARGE", "x" * 200_000)
    ran = stage.run(stage.script("exit 0"), config='environment = ["LARGE"]')
    assert ran.outcome.permanent
    assert "at most 131,072 are allowed" in ran.outcome.error


# ---- isolation ------------------------------------------------------------------------------------------------


def test_where_isolation_is_required_and_can_not_be_had_nothing_runs(stage):
    script = stage.script("echo ran")
    runner = stage.runner('isolation = "require"\nbubblewrap = "/nonexistent/bwrap"')
    with pytest.raises(
        BodyRefused, match="no command runs here, because isolation is required: there is no bubblewrap at /nonexistent/bwrap"
    ):
        runner.check(script)
    control = CommandControl()
    outcome = runner.run(order(script), control)
    assert not outcome.permanent, "another worker may have it"
    assert "install bubblewrap" in outcome.error
    assert control.out == b""
    assert [finding.state for finding in runner.report()] == [State.OK, State.PROBLEM]


def test_where_isolation_is_preferred_commands_run_without(stage):
    runner = stage.runner('isolation = "prefer"\nbubblewrap = "/nonexistent/bwrap"')
    control = CommandControl()
    runner.run(order(stage.script("echo ran")), control)
    assert control.out == b"ran\n"
    allowed, confined = runner.report()
    assert f"allows {stage.commands}/*" in allowed.text
    assert confined.state is State.ADVICE


def test_bubblewrap_that_does_not_work_is_reported_with_its_own_words(stage):
    fake = stage.script("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "bwrap")
    found = probe_isolation(load_config(stage.config(f'isolation = "require"\nbubblewrap = "{fake}"')))
    assert found.program is None
    assert found.reason == "bubblewrap does not work here: bwrap: No permissions to create new namespace"
    Path(fake).chmod(0o777)
    found = probe_isolation(load_config(stage.config(f'isolation = "require"\nbubblewrap = "{fake}"')))
    assert "bubblewrap is not trusted" in found.reason


def test_bubblewrap_is_here_and_works(stage):
    assert shutil.which("bwrap"), "bubblewrap is missing, which the tests need: `make test` installs it on Debian (apt install bubblewrap)"
    runner = stage.runner('isolation = "require"')
    assert runner.isolation.program is not None, runner.isolation
    assert [finding.state for finding in runner.report()] == [State.OK, State.OK]
    assert "without a network" in runner.report()[1].text


@pytest.mark.parametrize("store", ["{}/shared/rota.db", "sqlite:///{}/shared/deeper/rota.db", "{}/shared"])
def test_a_namespace_that_shows_the_store_is_refused(stage, store):
    (stage.folder / "shared").mkdir()
    text = f'isolation = "require"\nreadable = ["{stage.folder}/shared"]'
    with pytest.raises(InvalidOption, match="would show commands the store's file"):
        stage.runner(text, store=store.format(stage.folder))
    stage.runner(text, store=f"{stage.folder}/shared-rota.db")
    stage.runner(text, store="postgresql://rota@db/shared")


# ---- the operator's file --------------------------------------------------------------------------------------


def test_no_store_can_name_the_file():
    assert not any(each.field == "external_file" for each in STORABLE.values())
    with pytest.raises(NotFound, match="external_file is a setting of the process"):
        storable("external_file")
    assert Settings().external_file == ""


def test_the_file_has_defaults(stage):
    config = load_config(stage.config("[limits]"))
    assert (config.network, config.readable, config.writable, config.environment) == (False, (), (), ())
    assert (config.retry, config.permanent) == (frozenset({75}), frozenset())
    limits = config.limits
    assert (limits.output_bytes, limits.flood, limits.grace_seconds, limits.processes) == (1 << 20, 10 << 20, 2.0, 256)
    path = stage.config("[limits]")
    text = (stage.folder / "external.toml").read_text().replace('isolation = "off"', "")
    (stage.folder / "external.toml").write_text(text)
    assert load_config(path).isolation == "require"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("programms = []\nfolders = []", "has no key 'programms' (did you mean 'programs'?): it takes programs, folders, directory"),
        ("[limits]\ncpu_second = 3", "has no key 'limits.cpu_second' (did you mean 'cpu_second"),
        ("[exit_codes]\nretyr = [3]", "has no key 'exit_codes.retyr' (did you mean 'retry'?): it takes retry, permanent"),
        ("folders = []", "allows no command: list files in `programs`, or folders of them in `folders`"),
        ('folders = ["commands"]', "folders: 'commands' is not an absolute path without `..`"),
        ('folders = ["/srv/../etc"]', "folders: '/srv/../etc' is not an absolute path without `..`"),
        ("folders = '/srv'", "folders = '/srv' is not a list"),
        ("directory = '/nonexistent'", "directory = '/nonexistent' is not a folder: create it"),
        ("directory = 3", "directory = 3 is not a path"),
        ("isolation = 'requrie'", "isolation = 'requrie' is not one of require, prefer, off"),
        ("network = 'no'", "network = 'no' is not true or false"),
        ("environment = ['A B']", "environment: 'A B' is not the name of a variable"),
        ("environment = ['ROTA_STORE']", "environment: ROTA_STORE is Rota's own"),
        ("set = {ROTA_ATTEMPT = '1'}", "set: ROTA_ATTEMPT is Rota's own"),
        ("set = {N = 3}", "set.N = 3 is not a text: put it into quotes"),
        (f"set = {{N = '{'x' * 40_000}'}}", "set has 40,003 bytes of variables; at most 32,768 are allowed"),
        ("readable = ['/']", "readable: '/' can't be shown to commands"),
        ("writable = ['/proc/sys']", "writable: '/proc/sys' can't be shown to commands"),
        ("readable = ['/nonexistent']", "readable: there is no '/nonexistent': create it, or take it out of the list"),
        ("user = 'no-such-user'", "user = 'no-such-user' is not a user of this machine"),
        ("user = 'root'", "user = 'root' is root: name a user without rights of its own"),
        ("[limits]\ngrace_seconds = -1", "limits.grace_seconds = -1 is not allowed: use a number, 0 or more"),
        ("[limits]\nprocesses = 1.5", "limits.processes = 1.5 is not allowed: use a number, 0 or more"),
        ("[limits]\noutput_flood = 5", "limits.output_flood = 5 is below limits.output_bytes = 1048576: use more"),
        (
            "exit_codes = {permanent = [0]}",
            "permanent: 0 is not an exit code: use 1 to 255, or a range as a text, such as '64-78'",
        ),
        ("exit_codes = {retry = ['78-64']}", "exit_codes.retry: '78-64' is not an exit code"),
        ("this is not toml", "is not TOML"),
    ],
)
def test_a_file_that_says_something_wrong_is_refused(stage, text, why):
    path = stage.config(text)
    with pytest.raises(InvalidOption) as caught:
        load_config(path)
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"external_file {path}: ")


def test_a_file_without_a_directory_or_for_root_without_a_user_is_refused(stage):
    path = stage.folder / "external.toml"
    path.write_text(f'folders = ["{stage.commands}"]\nuser = "nobody"\n' if ROOT else f'folders = ["{stage.commands}"]\n')
    with pytest.raises(InvalidOption, match="has no `directory`: name the working directory of all commands"):
        load_config(str(path))
    if ROOT:
        path.write_text(f'folders = ["{stage.commands}"]\ndirectory = "{stage.work}"\n')
        with pytest.raises(InvalidOption, match="has no `user`, and this worker runs as root"):
            load_config(str(path))


def test_a_file_that_others_could_change_is_refused(stage):
    path = stage.config()
    Path(path).chmod(0o646)
    with pytest.raises(InvalidOption, match=r"is not trusted: .*external.toml can be changed by every user .mode 0646.: run `chmod go-w"):
        load_config(path)
    Path(path).chmod(0o644)
    stage.folder.chmod(0o777)
    with pytest.raises(InvalidOption, match="is not trusted"):
        load_config(path)
    stage.folder.chmod(0o755)
    stage.work.chmod(0o777)
    with pytest.raises(InvalidOption, match=r"directory = .* is not trusted"):
        load_config(path)
    stage.work.chmod(0o755)
    stage.commands.chmod(0o777)
    with pytest.raises(InvalidOption, match=r"folders: .* is not trusted"):
        load_config(stage.config(f'folders = ["{stage.commands}/deeper"]'))
    stage.commands.chmod(0o755)
    load_config(path)


def test_a_file_that_is_none_or_not_there_is_refused(stage):
    for path, why in (
        (f"{stage.folder}/none", "can't be opened"),
        (str(stage.folder), "is not a file"),
        ("here", "is not an absolute path"),
    ):
        with pytest.raises(InvalidOption, match=why):
            load_config(path)


def test_a_worker_that_is_not_root_switches_to_nobody_else():
    with public_folder() as folder:
        stage = Stage(folder, next(way for way in WAYS if not way.root))

        def work():
            try:
                load_config(stage.config('user = "daemon"'))
            except InvalidOption as error:
                return str(error)

        assert "user = 'daemon' is another user than the worker's: only a worker that runs as root can switch" in stage.do(work)


def test_a_runner_keeps_nothing_between_runs(stage):
    runner = stage.runner()
    assert isinstance(runner, ExternalRunner)
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        runner.run(order(stage.script("exit 0")), CommandControl())
        runner.run(order("/nonexistent"), CommandControl())
    assert set(Path("/proc/self/fd").iterdir()) == before
    runner.renew(1.0)
    runner.close()


def test_the_doctor_reports_a_file_with_which_no_worker_starts(stage):
    (shared := stage.folder / "shared").mkdir()
    shown = stage.config(f'isolation = "require"\nreadable = ["{shared}"]')
    for file, words in {"/nowhere/external.toml": "can't be opened", shown: "would show commands the store's file"}.items():
        settings = Settings(external_file=file)
        (finding,) = command_findings(settings, f"{shared}/rota.db")
        assert (finding.state, words in finding.text) == (State.PROBLEM, True)
        with pytest.raises(InvalidOption, match=words):
            make_runners(settings, f"{shared}/rota.db")
