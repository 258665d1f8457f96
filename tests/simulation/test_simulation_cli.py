"""`rota simulate`: a story for people, one document for programs, an exit code for scripts."""

from __future__ import annotations

import pytest

from rota import Rota
from tests.surfaces.cli_support import Cli

START = "--start=2026-03-02T00:00:00Z"


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    rota = Rota(made.store)

    @rota.job
    def greet(): ...

    rota.schedules.create("hourly", "greet", cron="0 * * * *")
    rota.schedules.create("resting", "greet", cron="30 * * * *")
    rota.schedules.pause("resting")
    rota.close()
    yield made
    made.close()


def test_people_read_a_story_a_table_and_a_conclusion(cli):
    shown = cli.ok("simulate", "--days=1", START, "--limit=100")
    assert "2026-03-02 01:00:00Z   hourly     FIRED" in shown
    assert "24 due times up to 2026-03-02 23:30:00Z: the schedule was paused" in shown
    assert "every hour at 30 past UTC" in shown
    assert "24 SKIPPED_PAUSED" in shown
    assert "2026-03-02 00:00:00Z to 2026-03-03 00:00:00Z, 1 worker, seed 0." in shown
    assert "Every due time has exactly one fate" in shown


def test_programs_read_one_document(cli):
    told = cli.json("simulate", "--days=1", START, "--workers=2", "--faults=crash,sleep")
    assert told["ok"] is True
    assert told["faults"] == ["crash", "sleep"]
    assert {each["schedule"] for each in told["schedules"]} == {"hourly", "resting"}
    assert told["totals"]["due"] == 48
    assert {"at", "what", "words"} <= set(told["story"][0])


def test_a_story_without_room_says_how_much_is_left_out(cli):
    shown = cli.ok("simulate", "--days=1", START, "--limit=0")
    assert "… and 25 lines more: --limit makes room for them" in shown
    assert "hourly" in shown


def test_an_unknown_fault_is_refused_in_one_line(cli):
    refused = cli("simulate", "--faults=flood")
    assert refused.exit_code == 2
    assert "'flood' is not one of crash, clock-step, sleep, or all" in refused.stderr


def test_a_store_that_is_not_there_is_not_made(cli, tmp_path):
    refused = cli("simulate", "--store", str(tmp_path / "nowhere.db"))
    assert refused.exit_code == 3
    assert not (tmp_path / "nowhere.db").exists()


def test_an_application_brings_its_own_schedules(cli, tmp_path):
    (tmp_path / "timed.py").write_text(
        "from rota import Rota\nrota = Rota()\n\n\n@rota.job(every='6h')\ndef sweep():\n    raise SystemExit('never called')\n"
    )
    done = cli.process("simulate", "--app=timed:rota", "--days=1", START, "--json")
    assert done.returncode == 0, done.stderr
    assert '"schedule":"sweep"' in done.stdout
    assert not done.stderr
    assert "sweep" not in cli.ok("schedule", "list")
