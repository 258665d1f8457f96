"""What becomes of schedules whose template is archived: disabled, each with its ledger closed, and told."""

import logging

import pytest
from typer.testing import CliRunner

from rota import Rota
from rota.errors import InvalidDefinition, PermissionDenied, TemplateInUse, TemplateUnavailable
from rota.model.schedules import ScheduleState
from rota.surfaces.cli.app import app


@pytest.fixture
def scheduled(rota):
    rota.job(lambda: None, name="send")
    rota.job(lambda: None, name="other")
    rota.organizations.create("acme")
    rota.schedules.create("hourly", "send", every="1h", catch_up="none")
    rota.schedules.create("daily", "send", cron="@daily", organization="acme")
    rota.schedules.create("off", "send", every="1h", enabled=False)
    rota.schedules.create("mine", "other", every="1h")
    rota.schedules.pause("daily", organization="acme")
    return rota


def states(rota):
    return {each.name: str(each.state) for each in rota.schedules.list()}


def test_all_of_its_schedules_are_disabled_with_a_warning_that_names_them(scheduled, caplog):
    with caplog.at_level(logging.WARNING, "rota.templates"):
        scheduled.templates.archive("send")
    assert states(scheduled) == {"hourly": "DISABLED", "daily": "DISABLED", "off": "DISABLED", "mine": "ENABLED"}
    assert sorted(caplog.messages) == [
        "schedule daily of organization acme is disabled: its template send is archived",
        "schedule hourly of organization default is disabled: its template send is archived",
    ]


def test_due_times_up_to_that_moment_get_their_fate_and_later_ones_are_none(scheduled, clock):
    clock.advance(hours=30)
    scheduled.templates.archive("send")
    clock.advance(days=3)
    scheduled.turn()
    found = [(each.fate, each.count) for each in scheduled.schedules.occurrences("hourly")]
    assert found == [("FIRED", 1), ("MISSED", 29)]
    assert [(each.fate, each.count) for each in scheduled.schedules.occurrences("daily")] == [("SKIPPED_PAUSED", 1)]


def test_enabling_the_template_again_leaves_its_schedules_to_people(scheduled):
    scheduled.templates.archive("send")
    scheduled.templates.enable("send")
    assert states(scheduled)["hourly"] == "DISABLED"
    assert scheduled.schedules.enable("hourly").next_at is not None


def test_disabling_a_template_leaves_its_schedules_alone(scheduled):
    scheduled.templates.disable("send")
    assert states(scheduled) == {"hourly": "ENABLED", "daily": "PAUSED", "off": "DISABLED", "mine": "ENABLED"}


def test_archiving_by_a_file_disables_them_too(scheduled, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text('[templates.send]\nstate = "archived"\n')
    scheduled.store.load(file, dry_run=True)
    assert states(scheduled)["hourly"] == "ENABLED"
    scheduled.store.load(file)
    assert states(scheduled)["hourly"] == "DISABLED"


def test_who_may_not_archive_disables_nothing(scheduled):
    scheduled.users.create("ada", organization="acme", role="admin")
    with pytest.raises(PermissionDenied):
        scheduled.acting_as("ada").templates.archive("send")
    assert states(scheduled)["daily"] == "PAUSED"


def test_a_template_that_schedules_use_can_not_be_deleted(scheduled):
    with pytest.raises(TemplateInUse):
        scheduled.templates.delete("send")


def test_the_command_names_what_it_disabled(scheduled):
    scheduled.close()
    done = CliRunner().invoke(app, ["template", "archive", "send", "--yes", "--store", str(scheduled.store.url)])
    assert done.stdout.splitlines() == [
        "template send is ARCHIVED",
        "schedule daily of organization acme is DISABLED",
        "schedule hourly of organization default is DISABLED",
    ]


# ---- a schedule of a template that takes no jobs -----------------------------------------------------------------------


@pytest.fixture(params=["archive", "disable"])
def closed(request, scheduled):
    """The template `send` takes no jobs; two of its schedules are disabled."""
    scheduled.schedules.disable("hourly")
    getattr(scheduled.templates, request.param)("send")
    return scheduled


def test_none_is_made_enabled_or_moved_there_and_the_error_says_what_to_do(closed):
    before = closed.schedules.list()
    state = str(closed.templates.get("send").state).lower()
    for refused in (
        lambda: closed.schedules.create("new", "send", every="1h"),
        lambda: closed.schedules.create("new", "send", every="1h", enabled=False),
        lambda: closed.schedules.enable("hourly"),
        lambda: closed.schedules.update("mine", template="send"),
    ):
        with pytest.raises(TemplateUnavailable, match=f"template 'send' is {state}.*`rota template enable send`"):
            refused()
    assert closed.schedules.list() == before
    closed.schedules.update("off", description="what it is for")
    closed.templates.enable("send")
    assert states(closed)["hourly"] == "DISABLED"
    assert closed.schedules.enable("hourly").state is ScheduleState.ENABLED


def test_an_at_that_is_over_is_not_given_another_time_there(rota, clock):
    rota.job(lambda: None, name="send")
    rota.schedules.create("once", "send", at="2026-03-01T13:00:00Z")
    clock.advance(hours=2)
    rota.turn()
    rota.templates.disable("send")
    with pytest.raises(TemplateUnavailable):
        rota.schedules.update("once", at="2027-03-01T13:00:00Z")


@pytest.mark.parametrize(
    "table",
    [
        '[schedules.new]\ntemplate = "send"\nevery = "1h"',
        '[schedules.new]\ntemplate = "send"\nevery = "1h"\nenabled = false',
        '[schedules.hourly]\nstate = "enabled"',
        '[schedules.mine]\ntemplate = "send"',
    ],
)
def test_a_file_that_wants_one_is_refused_whole(closed, tmp_path, table):
    before, file = closed.schedules.list(), tmp_path / "jobs.toml"
    file.write_text(f'[templates.fresh]\nhandler = "shop:fresh"\n\n{table}\n')
    for dry_run in (True, False):
        with pytest.raises(InvalidDefinition, match=r"jobs.toml, \[schedules\.\w+\]: template 'send' is .*`rota template enable send`"):
            closed.store.load(file, dry_run=dry_run)
    assert closed.schedules.list() == before
    assert "fresh" not in {each.name for each in closed.templates.list()}


def test_a_file_may_enable_the_template_and_its_schedules_at_once(closed, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text('[schedules.hourly]\nenabled = true\n\n[templates.send]\nstate = "enabled"\n')
    closed.store.load(file)
    assert (states(closed)["hourly"], states(closed)["off"]) == ("ENABLED", "DISABLED")


def test_a_file_that_disables_a_template_makes_no_schedule_of_it(scheduled, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text('[schedules.new]\ntemplate = "other"\nevery = "1h"\n\n[templates.other]\nstate = "disabled"\n')
    with pytest.raises(InvalidDefinition, match="template 'other' is disabled"):
        scheduled.store.load(file)
    assert scheduled.templates.get("other").state == "ENABLED"


def test_a_file_loaded_again_leaves_disabled_what_archiving_disabled(closed, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text('[schedules.hourly]\ntemplate = "send"\nevery = "1h"\ncatch_up = "none"\n')
    assert closed.store.load(file).unchanged == ("schedule hourly",)


def test_a_program_that_declares_one_starts_and_is_warned(closed, caplog):
    with caplog.at_level(logging.WARNING, "rota.schedules"):
        made = closed.schedule("declared", "send", every="1h")
    assert (made.state, made.declared, made.next_at) == (ScheduleState.DISABLED, True, None)
    state = str(closed.templates.get("send").state).lower()
    remedy = "`rota template enable send` changes that, and `rota schedule enable declared` after it"
    why = f"template 'send' is {state}, and a schedule needs one that is enabled"
    assert caplog.messages == [f"schedule declared of organization default is disabled: {why}; {remedy}"]
    caplog.clear()
    assert closed.schedule("declared", "send", every="1h").state is ScheduleState.DISABLED
    assert caplog.messages == []
    # Code that moves another schedule there takes it out of use, and keeps its word.
    closed.schedule("moved", "other", every="1h")
    assert closed.schedule("moved", "send", every="2h").state is ScheduleState.DISABLED
    assert closed.schedules.get("moved").every == 7200
    closed.templates.enable("send")
    assert closed.schedule("declared", "send", every="1h").state is ScheduleState.DISABLED
    assert closed.schedules.enable("declared").next_at is not None


def test_a_worker_starts_although_its_decorator_declares_one(rota, caplog):
    rota.job(lambda: None, name="send")
    rota.templates.disable("send") if rota.enqueue("send") else None
    rota.close()
    again = Rota(rota.store.url, clock=rota._session.clock, settings=rota.settings)
    again.job(lambda: None, name="send", every="1h")
    with caplog.at_level(logging.WARNING, "rota.schedules"):
        again.turn()
    assert [str(each.state) for each in again.schedules.list()] == ["DISABLED"]
    assert len([each for each in caplog.messages if "is disabled: template 'send' is disabled" in each]) == 1
    again.close()


def test_the_command_line_refuses_one_with_the_remedy(closed):
    closed.close()
    for words in (["create", "new", "send", "--every", "1h"], ["enable", "hourly"], ["update", "mine", "--template", "send"]):
        done = CliRunner().invoke(app, ["schedule", *words, "--store", str(closed.store.url)])
        assert (done.exit_code, "(template_unavailable)" in done.stderr, "`rota template enable send`" in done.stderr) == (1, True, True)


def test_a_schedule_made_while_its_template_is_archived_is_disabled_too(scheduled, monkeypatch):
    """Between the look at the schedules and the archiving another program may make one."""
    store = scheduled._session.open().store
    archive = store.set_template_state

    def later(*args, **options):
        scheduled.schedules.create("between", "send", every="1h")
        return archive(*args, **options)

    monkeypatch.setattr(store, "set_template_state", later)
    scheduled.templates.archive("send")
    assert states(scheduled)["between"] == "DISABLED"
