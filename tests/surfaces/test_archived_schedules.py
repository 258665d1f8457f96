"""What becomes of schedules whose template is archived: disabled, each with its ledger closed, and told."""

import logging

import pytest
from typer.testing import CliRunner

from rota.errors import PermissionDenied, TemplateInUse
from rota.surfaces.cli.app import app


@pytest.fixture
def scheduled(rota):
    rota.job(lambda: None, name="send")
    rota.job(lambda: None, name="other")
    rota.create_organization("acme")
    rota.create_schedule("hourly", "send", every="1h", catch_up="none")
    rota.create_schedule("daily", "send", cron="@daily", organization="acme")
    rota.create_schedule("off", "send", every="1h", enabled=False)
    rota.create_schedule("mine", "other", every="1h")
    rota.pause_schedule("daily", organization="acme")
    return rota


def states(rota):
    return {each.name: str(each.state) for each in rota.schedules()}


def test_all_of_its_schedules_are_disabled_with_a_warning_that_names_them(scheduled, caplog):
    with caplog.at_level(logging.WARNING, "rota.templates"):
        scheduled.archive_template("send")
    assert states(scheduled) == {"hourly": "DISABLED", "daily": "DISABLED", "off": "DISABLED", "mine": "ENABLED"}
    assert sorted(caplog.messages) == [
        "schedule daily of organization acme is disabled: its template send is archived",
        "schedule hourly of organization default is disabled: its template send is archived",
    ]


def test_due_times_up_to_that_moment_get_their_fate_and_later_ones_are_none(scheduled, clock):
    clock.advance(hours=30)
    scheduled.archive_template("send")
    clock.advance(days=3)
    scheduled.turn()
    found = [(each.fate, each.count) for each in scheduled.occurrences("hourly")]
    assert found == [("FIRED", 1), ("MISSED", 29)]
    assert [(each.fate, each.count) for each in scheduled.occurrences("daily")] == [("SKIPPED_PAUSED", 1)]


def test_enabling_the_template_again_leaves_its_schedules_to_people(scheduled):
    scheduled.archive_template("send")
    scheduled.enable_template("send")
    assert states(scheduled)["hourly"] == "DISABLED"
    assert scheduled.enable_schedule("hourly").next_at is not None


def test_disabling_a_template_leaves_its_schedules_alone(scheduled):
    scheduled.disable_template("send")
    assert states(scheduled) == {"hourly": "ENABLED", "daily": "PAUSED", "off": "DISABLED", "mine": "ENABLED"}


def test_archiving_by_a_file_disables_them_too(scheduled, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text('[templates.send]\nstate = "archived"\n')
    scheduled.load_definitions(file, dry_run=True)
    assert states(scheduled)["hourly"] == "ENABLED"
    scheduled.load_definitions(file)
    assert states(scheduled)["hourly"] == "DISABLED"


def test_who_may_not_archive_disables_nothing(scheduled):
    scheduled.add_user("ada", organization="acme", role="admin")
    with pytest.raises(PermissionDenied):
        scheduled.archive_template("send", actor="ada")
    assert states(scheduled)["daily"] == "PAUSED"


def test_a_template_that_schedules_use_can_not_be_deleted(scheduled):
    with pytest.raises(TemplateInUse):
        scheduled.delete_template("send")


def test_the_command_names_what_it_disabled(scheduled):
    scheduled.close()
    done = CliRunner().invoke(app, ["template", "archive", "send", "--store", str(scheduled.url)])
    assert done.stdout.splitlines() == [
        "template send is ARCHIVED",
        "schedule daily of organization acme is DISABLED",
        "schedule hourly of organization default is DISABLED",
    ]
