"""What commands can see and use, and that the program that was checked is the one that runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rota.errors import InvalidOption
from rota.model.decide import Completed, Failed
from rota.model.settings import Settings
from rota.runners.external import guard_process
from tests.runners.external.stage import (
    BARE,
    ISOLATED,
    OPPOSITE,
    WAYS,
    order,
)
from tests.support.command_control import CommandControl
from tests.support.proof import size
from tests.support.stranger import NOBODY

pytestmark = pytest.mark.paired

SWAP = """
import os, select, sys
good, evil, link = sys.argv[1:]
while not select.select([0], [], [], 0)[0]:
    for target in (evil, good):
        os.symlink(target, link + ".new")
        os.rename(link + ".new", link)
"""


# ---- what it can see ------------------------------------------------------------------------------------------


def test_the_environment_of_its_parent_is_closed_to_a_command(stage):
    ran = stage.run(stage.script("cat /proc/$PPID/environ /proc/$PPID/mem >/dev/null && echo read; echo done"))
    assert "read" not in ran.out
    assert "done" in ran.out


@pytest.mark.parametrize("stage", [way for way in BARE if not way.root], ids=str, indirect=True)
def test_a_guarded_worker_is_closed_to_a_command_of_the_same_user(stage):
    body = stage.script('tr "\\0" "\\n" < /proc/$1/environ >/dev/null && echo read; true')

    def work():
        guard_process()
        control = CommandControl()
        stage.runner().run(order(f"{body} {os.getpid()}"), control)
        return control.out.decode(), control.err.decode()

    with stage.worker(work) as worker:
        out, err = worker.result()
    assert out == ""
    assert "Permission denied" in err


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_a_command_has_its_own_variables_and_no_others(stage, monkeypatch):
    monkeypatch.setenv("SECRET_OF_WORKER", "hidden")
    monkeypatch.setenv("ROTA_STORE", "postgresql://rota:hidden@db/rota")
    monkeypatch.setenv("ALLOWED", "shown")
    ran = stage.run(stage.script("exec env"), config='environment = ["ALLOWED", "ABSENT"]\nset = {FIXED = "a b"}')
    variables = dict(line.split("=", 1) for line in ran.out.splitlines())
    assert variables.pop("PWD", str(stage.work)) == str(stage.work)
    assert variables == {
        "ALLOWED": "shown",
        "FIXED": "a b",
        "ROTA_JOB_UUID": "0190-job",
        "ROTA_JOB_RUN_UUID": ran.run_uuid,
        "ROTA_JOB_NAME": "nightly",
        "ROTA_ATTEMPT": "2",
    }


def test_a_command_inherits_no_descriptor_of_its_worker(stage):
    ours, theirs = socket.socketpair()
    with ours, theirs, (stage.work / "lock").open("w") as lock:
        for each in (ours, theirs, lock):
            os.set_inheritable(each.fileno(), True)
        ran = stage.run(stage.script("ls /proc/self/fd; readlink /proc/self/fd/0"))
    # Those of `ls` itself, and without namespaces the program's own.
    expected = ["0", "1", "2", "3", "/dev/null"] if ran.isolated else ["0", "1", "2", "3", "4", "/dev/null"]
    assert ran.out.split() == expected


def test_the_network_is_closed_in_namespaces_unless_it_is_allowed(stage):
    connect = "use Socket; socket($s, PF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) && print 'connected'"
    body = stage.script(connect, shell="/usr/bin/perl")
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = f"{body} {server.getsockname()[1]}"
        assert stage.run(body).out == ("" if stage.way.isolation == "require" else "connected")
        assert stage.run(body, config="network = true").out == "connected"


def test_only_what_is_shown_is_there_in_namespaces(stage):
    store = stage.folder / "rota.db"
    store.write_bytes(b"SQLite format 3\0")
    store.chmod(0o644)
    shared = stage.folder / "shared"
    shared.mkdir(mode=0o755)
    (shared / "note").write_text("note\n")
    script = stage.script(f"cat {shared}/note; head -c 15 {store}; ls {stage.folder}; ls /etc /root /home")
    ran = stage.run(script, config=f'readable = ["{shared}"]')
    assert ran.out.startswith("note\n")
    assert ("SQLite format 3" in ran.out) == (not ran.isolated)
    if ran.isolated:
        assert ran.out.split()[1:4] == ["commands", "shared", "work"]
        assert "shadow" not in ran.out


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
def test_in_namespaces_only_what_is_writable_can_be_written_and_tmp_has_a_size(stage):
    shelf = stage.folder / "shelf"
    shelf.mkdir()
    shelf.chmod(0o777)
    text = f"""
for path in / /dev /etc /usr {stage.work} {shelf} /tmp; do touch $path/x 2>/dev/null && echo $path; done
head -c 3000000 /dev/zero > /tmp/big || echo full
echo '# more' >> "$0" || echo kept
unshare -U true || echo no namespaces inside
"""
    ran = stage.run(stage.script(text), config=f'writable = ["{shelf}"]', tmp_bytes=1_000_000)
    assert ran.out == f"{shelf}\n/tmp\nfull\nkept\nno namespaces inside\n"
    assert (shelf / "x").exists()


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
def test_an_older_bubblewrap_isolates_too(stage):
    body = stage.script("echo ran; ls /etc; exit 4")

    def work():
        runner = stage.runner()
        runner.isolation = msgspec.structs.replace(runner.isolation, options=frozenset())
        control = CommandControl()
        return runner.run(order(body), control), control.out.decode().split()

    outcome, printed = stage.do(work)
    assert outcome == Failed("exit code 4", exit_code=4)
    assert printed[0] == "ran"
    assert "shadow" not in printed


def test_a_command_runs_as_its_user_without_groups_and_gains_no_rights(stage):
    ran = stage.run(stage.script("id -u; id -G; grep -E 'NoNewPrivs|CapEff' /proc/self/status; umask; ulimit -c; pwd"))
    uid = 65_534 if os.geteuid() == 0 else os.geteuid()
    gid = 65_534 if os.geteuid() == 0 else os.getegid()
    assert ran.out.splitlines() == [str(uid), str(gid), "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "0077", "0", str(stage.work)]


# ---- the program that was checked is the one that runs ----------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize("stage", [way for way in WAYS if way.root] or WAYS, ids=str, indirect=True)
def test_a_link_that_is_swapped_never_runs_another_program(stage):
    good = stage.script("echo good", "good")
    evil = stage.folder / "evil"
    evil.write_text("#!/bin/sh\necho EVIL\n")
    evil.chmod(0o755)
    link = stage.commands / "link"
    link.symlink_to(good)
    ran = refused = 0
    # A process of its own: a thread would only swap while this one waits.
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, good, evil, link], stdin=subprocess.PIPE) as swapper:
        runner = stage.runner()
        while ran < size(10, prove=1000):
            control = CommandControl()
            outcome = runner.run(order(str(link)), control)
            if isinstance(outcome, Failed):
                assert "is not a command that this worker runs" in outcome.error
                refused += 1
            else:
                assert control.out == b"good\n"
                ran += 1
        assert swapper.poll() is None
        swapper.stdin.close()
    print(f"{stage.way}: {ran} ran, {refused} refused")
    assert refused


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_a_file_that_is_neither_program_nor_script_is_refused_for_good(stage):
    path = stage.commands / "data"
    path.write_text("echo run by a shell\n")
    path.chmod(0o755)
    ran = stage.run(str(path))
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.permanent, ran.outcome.exit_code) == (True, 126)
    assert "exec format error" in ran.outcome.error
    assert ran.out == ""


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_a_script_without_its_interpreter_is_refused_for_good(stage):
    ran = stage.run(stage.script("", shell="/nonexistent/interpreter"))
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.permanent, ran.outcome.exit_code) == (True, 127)


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_words_of_the_command_line_are_arguments_and_no_shell_sees_them(stage):
    ran = stage.run(stage.script('for word; do echo "<$word>"; done') + """ 'a b' "c  d" ; rm -rf / $(id) `id` * > file""")
    assert ran.out.split("\n")[:-1] == ["<a b>", "<c  d>", "<;>", "<rm>", "<-rf>", "</>", "<$(id)>", "<`id`>", "<*>", "<>>", "<file>"]


# ---- secrets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_secrets_come_by_a_descriptor_and_are_nowhere_else(stage):
    text = """
sha256sum <&$ROTA_SECRETS_FD
cat /proc/self/environ /proc/$PPID/environ /proc/self/cmdline /proc/$PPID/cmdline 2>/dev/null | grep -c TOPSECRET
echo more >> /proc/self/fd/$ROTA_SECRETS_FD || echo sealed
echo "it was TOPSECRET-value" >&2
exit 3
"""
    secrets = {"api": "TOPSECRET-value", "ö": "ü" * 100_000}
    ran = stage.run(stage.script(text), secrets=secrets, config='set = {PATH = "/usr/bin:/bin"}')
    # What is shown of them is redacted, so the command says that it has read all of it.
    assert ran.out.split() == [hashlib.sha256(json.dumps(secrets).encode()).hexdigest(), "-", "0", "sealed"]
    assert ran.outcome == Failed("exit code 3: it was ********", exit_code=3)


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_results_are_cut_and_undecodable_bytes_replaced(stage):
    ran = stage.run(stage.script(r"""printf 'a\377\000b"%s' $(head -c 300 /dev/zero | tr '\0' x)"""), settings=Settings(result_max=100))
    assert isinstance(ran.outcome, Completed)
    assert len(ran.outcome.result.encode()) <= 100
    assert ran.outcome.result.startswith('"a��b\\"xxx')


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_output_comes_while_the_command_runs(stage):
    def work():
        control = CommandControl()
        stage.runner().run(order(stage.script("echo first; sleep 0.4; echo second >&2")), control)
        return control.pieces, bytes(control.out), bytes(control.err), time.monotonic() - control.first_output_at

    pieces, out, err, ago = stage.do(work)
    assert (pieces, out, err) == (2, b"first\n", b"second\n")
    assert ago >= 0.4


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
@pytest.mark.parametrize("what", ["store", "key"])
@pytest.mark.parametrize("place", ["readable", "writable", "directory", "a link", "the file", "beside it", "the system"])
def test_a_namespace_that_shows_the_store_or_a_master_key_is_refused(stage, what, place):
    shared = stage.folder / "shared"
    shared.mkdir()
    (stage.folder / "link").symlink_to(shared)
    file = {"the system": Path("/usr/local/lib/rota.file"), "directory": stage.work / "a.file"}.get(place, shared / "deep" / "a.file")
    if place in {"the file", "beside it"}:
        file.parent.mkdir()
        for made in (file, file.with_name("a.file-wal")):
            made.touch()
    text = {
        "readable": f'readable = ["{shared}"]',
        "writable": f'writable = ["{shared}"]',
        "a link": f'readable = ["{stage.folder}/link"]',
        "the file": f'readable = ["{file}"]',
        "beside it": f'readable = ["{file}-wal"]',
    }.get(place, "")
    shown = {"store": {"store": str(file)}, "key": {"key": file}}[what]
    words = {"store": "the store's file", "key": "the file of the master keys"}[what]
    elsewhere = {"store": {"store": "/nowhere/a.file"}, "key": {"key": Path("/nowhere/a.file")}}[what]

    def work():
        assert stage.runner(text, **elsewhere).isolation.program
        with pytest.raises(InvalidOption) as refused:
            stage.runner(text, **shown)
        return str(refused.value)

    assert re.search(f"would show commands {words}, .*: keep that elsewhere", stage.do(work))


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
def test_a_link_that_leads_to_the_master_key_later_is_found_by_the_next_run(stage):
    shared, keys, link = stage.folder / "shared", stage.folder / "keys", stage.folder / "link"
    for made in (shared, keys):
        made.mkdir()
    key = keys / "master"
    key.write_text("CANARY")
    key.chmod(0o644)
    link.symlink_to(shared)
    body = stage.script(f"ls {link}; cat {link}/master")

    def work():
        runner = stage.runner(f'readable = ["{link}"]', key=key)
        before = runner.run(order(body), CommandControl())
        link.unlink()
        link.symlink_to(keys)
        control = CommandControl()
        return before, runner.run(order(body), control), control.out.decode()

    before, after, out = stage.do(work)
    assert before.exit_code == 1
    assert "would show commands the file of the master keys" in after.error
    assert not after.permanent
    assert out == ""


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
@pytest.mark.parametrize("key", ["readable", "writable", "programs", "folders", "external_file"])
@pytest.mark.parametrize("by", ["its path", "a link"])
def test_what_is_in_a_writable_folder_is_refused(stage, key, by):
    """A command replaced such a folder by a link to /etc, and the next one could read all of that."""
    shelf = stage.folder / "shelf"
    inner = shelf / "a" / "b"
    inner.mkdir(parents=True)
    (stage.folder / "link").symlink_to(inner)
    path = inner if by == "its path" else stage.folder / "link"
    paths = {"writable": [stage.folder if key == "external_file" else shelf]}
    if key != "external_file":
        paths.setdefault(key, []).append(path)
    text = "\n".join(f"{name} = {[str(each) for each in listed]}" for name, listed in paths.items())
    if "programs" not in paths and "folders" not in paths:
        text += f"\nfolders = ['{stage.work}']" if key != "external_file" else "\nfolders = ['/usr/bin']"
    if not stage.way.root:
        for made in (shelf, shelf / "a", inner):
            os.chown(made, NOBODY, NOBODY)

    def work():
        with pytest.raises(InvalidOption) as refused:
            stage.runner(text)
        return str(refused.value)

    assert re.search(f"{key}: '.*' is in '.*', which is writable, so that a command could replace it", stage.do(work))


@pytest.mark.parametrize("stage", WAYS, ids=str, indirect=True)
def test_a_command_can_not_read_the_master_key_or_the_store(stage, monkeypatch):
    """Only a worker that is not root and has no namespaces can't keep its own files from its commands: the doctor says so."""
    keys, store = stage.folder / "keys", stage.folder / "rota.db"
    key = keys / "master"
    keys.mkdir(mode=0o700)
    for file in (key, store):
        file.write_text(f"CANARY of {file.name}")
        file.chmod(0o600)
    if not stage.way.root:
        for made in (keys, key, store):
            os.chown(made, NOBODY, NOBODY)
    monkeypatch.setenv("ROTA_MASTER_KEY_FILE", str(key))
    ways = f"""
for file in {key} {store} /proc/*/root{key} /proc/*/root{store} /proc/*/cwd/keys/master /tmp/../{key}; do cat $file; done
ln -s {key} /tmp/key-$$ && cat /tmp/key-$$; rm -f /tmp/key-$$
ln {key} /tmp/hard-$$ && cat /tmp/hard-$$; rm -f /tmp/hard-$$
unshare -Urm sh -c 'mount --bind {keys} /tmp && cat /tmp/master'
cat /proc/*/environ | tr '\\0' '\\n' | grep MASTER_KEY
exit 0
"""

    def work():
        runner = stage.runner(store=str(store), key=key)
        control = CommandControl()
        outcome = runner.run(order(stage.script(ways)), control)
        return outcome, control.out.decode(), [each.text for each in runner.report()]

    outcome, out, findings = stage.do(work)
    assert isinstance(outcome, Completed)
    if stage.way.isolation == "off" and not stage.way.root:
        assert "CANARY of master" in out
        assert any("they can read what their user can" in finding for finding in findings)
    else:
        assert "CANARY" not in out
        assert "MASTER_KEY" not in out
