"""`rota top`: the first screen in the terminal, whatever its size; live with keys, once, or as JSON."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from rota.errors import StoreUnavailable
from rota.model.overview import (
    Ahead,
    ClockChange,
    Coming,
    Concern,
    Counts,
    Current,
    Example,
    Health,
    Hour,
    Level,
    NotRun,
    Overview,
    Running,
    Stuck,
    Why,
)
from rota.surfaces.cli.live_view import Shown, share, top_frame
from rota.surfaces.cli.watch import Gauge
from tests.surfaces.cli_support import ROOT, Cli
from tests.surfaces.test_cli_live import Terminal

AT = datetime(2026, 3, 28, 12, 30, tzinfo=UTC)
JOB = Example(id="0", number="JOB-2026-00042", job_type="send_email")


def overview(rows: int = 3) -> Overview:
    concern = Concern(
        level=Level.TROUBLE, what="no worker is running, and 12 jobs wait", remedy="start one with `rota up` or `rota worker`"
    )
    return Overview(
        at=AT,
        organization=None,
        health=Health(
            level=Level.TROUBLE,
            sentence="No worker is running, and 12 jobs wait (and 1 more concern).",
            concerns=(
                concern,
                Concern(level=Level.WATCH, what="1 job was dead-lettered in the last hour", remedy="`rota dead list` says why"),
            ),
        ),
        counts=Counts(pending=3, queued=12, running=2, completed=1204, workers=2),
        not_run=tuple(
            NotRun(
                kind="job",
                name=f"send_email_{index}",
                organization="default",
                fate="DEAD_LETTER",
                count=7,
                first_at=AT - timedelta(hours=1),
                last_at=AT - timedelta(minutes=5),
                reason="ValueError: \x1b[31m [bold]no such address[/] " + "x" * 300,
                example=JOB,
            )
            for index in range(rows)
        ),
        stuck=tuple(
            Stuck(why=why, words=f"because of {why}", count=4021, more=True, oldest_s=185, example=JOB, job_type="send_email")
            for why in list(Why)[:rows]
        ),
        running=Running(
            jobs=tuple(
                Current(
                    id="0",
                    number="JOB-2026-00043",
                    job_type="resize_images",
                    organization="default",
                    attempt=1,
                    started_at=AT,
                    elapsed_s=12.0,
                    progress=40 if index % 2 else None,
                    message="page 4 of 10",
                    usual_s=8.0,
                    long_s=11.0,
                    slow=True,
                )
                for index in range(rows)
            ),
            count=rows,
        ),
        ahead=Ahead(
            start=AT,
            end=AT + timedelta(hours=24),
            items=tuple(
                Coming(schedule=f"report {index}", organization="default", template="make_report", due_at=AT + timedelta(minutes=index + 1))
                for index in range(rows)
            ),
            hours=tuple(Hour(begins_at=AT.replace(minute=0) + timedelta(hours=index), count=index % 7) for index in range(25)),
            count=48,
            changes=(
                ClockChange(
                    at=datetime(2026, 3, 29, 1, tzinfo=UTC),
                    timezone="Europe/Berlin",
                    before="UTC+1",
                    after="UTC+2",
                    schedules=("report 1",),
                ),
            ),
        ),
    )


def drawn(width: int, height: int | None, rows: int = 3, shown: Shown | None = None) -> list[str]:
    screen = Console(file=StringIO(), width=width, height=height, force_terminal=False, highlight=False)
    with screen.capture() as capture:
        screen.print(top_frame(overview(rows), shown or Shown(store="/var/lib/shop/rota.db"), width=width, height=height))
    return capture.get().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (120, 40), (200, 60)])
@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_a_frame_fits_its_terminal(width, height, rows):
    lines = drawn(width, height, rows)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


@pytest.mark.parametrize("width", [80, 200])
def test_the_five_questions_are_answered_from_top_to_bottom(width):
    text = "\n".join(drawn(width, None))
    places = [text.index(words) for words in ("No worker is running", "Did not run", "Stuck, and why", "Running", "Next 24 hours")]
    assert places == sorted(places)
    for words in (
        "start one with",
        "7 x",
        "dead letter",
        "4,021+",
        "oldest 3m 05s",
        "of ~8.0s",
        "40%",
        "12:31:00",
        "Europe/Berlin goes from UTC+1 to UTC+2",
    ):
        assert words in text


def test_wide_terminals_show_more():
    narrow, wide = "\n".join(drawn(80, None)), "\n".join(drawn(200, None))
    for words in ("95 % within 11.0s", "12 queued", "JOB-2026-00042"):
        assert words in wide
        assert words not in narrow


def test_nothing_that_is_shown_steers_the_terminal_or_is_taken_for_markup():
    text = "\n".join(drawn(200, None))
    assert "\x1b" not in text
    assert "[bold]no such address[/]" in text


def test_empty_answers_say_so():
    text = "\n".join(drawn(80, None, 0))
    for words in ("everything that was due did run", "nothing waits longer than usual", "nothing runs"):
        assert words in text


def test_lines_are_shared_out_in_turn_and_each_answer_has_one():
    assert share((10, 10, 10, 10), 0) == [1, 1, 1, 1]
    assert share((10, 0, 1, 10), 12) == [5, 1, 1, 5]
    assert share((1, 1, 1, 1), 100) == [1, 1, 1, 1]


def test_a_store_in_trouble_leaves_the_last_look_and_says_so():
    looks = iter([overview(), StoreUnavailable("the server is gone"), overview()])

    def look() -> Overview:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    taken = Gauge(look, look(), every_s=0.0)
    taken.expire()
    assert taken.value() == overview()
    assert taken.trouble == "the server is gone"
    assert "store in trouble: the server is gone" in drawn(80, 30, shown=Shown(store="x", trouble=taken.trouble))[-1]
    taken.expire()
    taken.value()
    assert taken.trouble == ""


def test_once_prints_one_frame_and_json_one_document(tmp_path):
    cli = Cli(tmp_path)
    assert cli("top").exit_code == 3
    cli.process("enqueue", "greet", "--app", "shop:rota")
    text = cli.ok("top", "--once")
    assert "No worker is running, and 1 job waits." in text
    assert cli.json("top")["health"]["level"] == "trouble"


def press(terminal: Terminal, key: bytes) -> None:
    os.write(terminal._master, key)


@pytest.mark.serial
def test_live_it_pauses_when_asked_twice_resumes_and_quits(tmp_path):
    cli = Cli(tmp_path)
    assert cli.process("enqueue", "greet", "--app", "shop:rota").returncode == 0
    env = cli.environment() | {"TERM": "xterm-256color"}
    del env["COLUMNS"], env["PYTHONUNBUFFERED"]
    with Terminal([sys.executable, "-m", "rota", "top", "--every", "0.1"], cwd=ROOT, env=env, columns=80, rows=24) as terminal:
        terminal.read_until(lambda written: b"q quits" in written)
        press(terminal, b"p")
        terminal.read_until(lambda written: b"Pause everything?" in written)
        press(terminal, b"n")
        press(terminal, b"p")
        press(terminal, b"y")
        terminal.read_until(lambda written: b"Everything is paused: r resumes" in written)
        assert cli.json("stats")["paused"] == ["everything"]
        press(terminal, b"r")
        terminal.read_until(lambda written: b"Nothing is paused as a whole any more" in written)
        assert cli.json("stats")["paused"] == []
        press(terminal, b"q")
        assert terminal.finish() == 0
    assert b"Traceback" not in terminal.written


@pytest.mark.serial
def test_ended_by_sigterm_it_gives_the_terminal_back(tmp_path):
    cli = Cli(tmp_path)
    cli.ok("user", "create", "ada")
    env = cli.environment() | {"TERM": "xterm-256color"}
    del env["COLUMNS"], env["PYTHONUNBUFFERED"]
    with Terminal([sys.executable, "-m", "rota", "top", "--as", "ada"], cwd=ROOT, env=env, columns=80, rows=24) as terminal:
        terminal.read_until(lambda written: b"q quits" in written)
        terminal.process.terminate()
        assert terminal.finish() == -signal.SIGTERM
    assert terminal.written.rfind(b"\x1b[?1049l") > terminal.written.rfind(b"\x1b[?1049h")
    assert terminal.written.rfind(b"\x1b[?25h") > terminal.written.rfind(b"\x1b[?25l")
    assert b"Traceback" not in terminal.written
