"""Tables in a terminal that is narrow: what names a thing can be read and copied, long texts give way."""

from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from rota import Rota
from rota.surfaces.cli.output import Table, status
from tests.surfaces.cli_support import Cli

LONG = "n" * 255
LISTS = ("template list", "schedule list", "queue list", "group list", "workers")


@pytest.fixture
def shown(monkeypatch, capsys):
    """Return a function that shows rows of jobs in so many columns, as lines."""

    def show(columns, *rows, gives=("type", "params"), soft=()):
        monkeypatch.setenv("COLUMNS", str(columns))
        made = Table("number", "status", "type", "priority", "created", "params", right=("priority",), gives=gives, soft=soft)
        for row in rows:
            made.add_row(*row)
        made.show()
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return show


def job(kind="send_receipt", params='{"order":7,"to":"ada@example.org"}'):
    return ("JOB-2026-00001", status("DEAD_LETTER"), kind, "50", "12m 05s ago", params)


def test_number_state_and_times_are_whole_at_80_columns(shown):
    *_, line = shown(80, job(params="x" * 200))
    assert cell_len(line) <= 80
    assert line.split()[:2] == ["JOB-2026-00001", "DEAD_LETTER"]
    assert "50  12m 05s ago  xxxxxxxx" in line


def test_what_fits_is_not_touched(shown):
    head, _, line = shown(120, job())
    assert head.split("   ")[0] == "number"
    assert line == 'JOB-2026-00001   DEAD_LETTER   send_receipt         50   12m 05s ago   {"order":7,"to":"ada@example.org"}'


def test_the_longest_text_gives_way_first(shown):
    assert "send_receipt" in shown(80, job())[-1]
    *_, line = shown(80, job(kind="a_handler_with_quite_a_long_name", params="x" * 200))
    assert "a_handler_wi…" in line
    assert cell_len(line) <= 80


def test_headings_give_way_before_cells(shown):
    head = shown(70, job(params="x" * 200))[0]
    assert "priority" not in head
    assert "prio…" in head


def test_wide_characters_are_counted_as_wide(shown):
    lines = shown(80, job(kind="領収書を送る仕事の名前", params="🎉" * 50))
    assert all(cell_len(line) <= 80 for line in lines)
    assert "JOB-2026-00001  DEAD_LETTER" in lines[-1]


def test_where_there_is_no_room_at_all_lines_go_on_and_nothing_that_names_a_thing_is_cut(shown):
    *_, line = shown(40, job(params="x" * 200))
    assert "JOB-2026-00001  DEAD_LETTER" in line
    assert "12m 05s ago" in line
    assert line.endswith("xxxxxxxxx…")


def test_a_soft_column_goes_on_in_the_next_line_instead(shown):
    lines = shown(80, job(params="word " * 30), soft=("params",), gives=())
    assert "".join(lines).count("word") == 30
    assert all(cell_len(line) <= 80 for line in lines)


@pytest.mark.parametrize("columns", [80, 60, 20])
def test_no_column_is_ever_left_out(shown, columns):
    assert len(shown(columns, job(params="x" * 200))[0].split()) == 6


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """Return the command on a store in which all that has a name has one of 255 characters, beside a worker."""
    cli = Cli(tmp_path_factory.mktemp("names"))
    rota = Rota(cli.store)
    rota.job(name=LONG, queue=LONG)(lambda: None)
    rota.schedule(LONG, LONG, cron="0 9 * * MON-FRI", timezone="America/Argentina/Buenos_Aires")
    rota.store.pause()
    rota.group([LONG, LONG], name=LONG)
    with rota.running():
        yield cli
    rota.close()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", LISTS)
def test_long_names_make_no_list_wider_than_the_terminal(long_names, words, columns):
    long_names.env["COLUMNS"] = str(columns)
    lines = long_names.ok(*words.split()).splitlines()
    assert len(lines) > 2
    assert max(map(cell_len, lines)) <= columns
    assert any("n…" in line for line in lines), "it is cut where everybody sees it"


@pytest.mark.parametrize("words", LISTS)
def test_json_has_long_names_whole(long_names, words):
    assert LONG in json.dumps(long_names.lines(*words.split()))
