"""Webhooks through Python and the command line: who may, what is seen, and that secrets are seen nowhere."""

from __future__ import annotations

import json
import logging
from contextlib import closing

import pytest
from typer.testing import CliRunner

from rota import NewJob, Rota, Settings
from rota.errors import ChangedMeanwhile, InvalidOption, NotFound, OrganizationUnavailable, PermissionDenied
from rota.model.webhooks import Event, WebhookState
from rota.surfaces.cli.app import app
from tests.support.receiver import receiving
from tests.support.waiting import eventually

URL = "https://example.com/hooks"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.fixture
def settings():
    return Settings(webhook_timeout=0.5)


@pytest.fixture
def receiver():
    with receiving() as made:
        yield made


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_an_admin_makes_and_changes_webhooks_of_the_own_organization_and_deletes_none(shared):
    made = shared.acting_as("ada").webhooks.create(URL).webhook
    assert made.organization == "acme"
    assert shared.acting_as("ada").webhooks.update(made.id, events=["run.failed"]).events == (Event.FAILED,)
    with pytest.raises(PermissionDenied):
        shared.acting_as("ada").webhooks.delete(made.id)
    shared.acting_as("root").webhooks.delete(made.id)
    assert shared.acting_as("root").webhooks.list() == []


@pytest.mark.parametrize("who", ["bob", "ben"])
def test_a_user_neither_sees_nor_makes_webhooks(shared, who):
    made = shared.acting_as("ada").webhooks.create(URL).webhook
    for attempt in (
        lambda: shared.acting_as(who).webhooks.create(URL),
        shared.acting_as(who).webhooks.list,
        lambda: shared.acting_as(who).webhooks.get(made.id),
        lambda: shared.acting_as(who).webhooks.update(made.id, url=URL),
        lambda: shared.acting_as(who).webhooks.rotate(made.id),
        lambda: shared.acting_as(who).webhooks.test(made.id),
        shared.acting_as(who).webhooks.deliveries,
        lambda: shared.acting_as(who).webhooks.redeliver(1),
        lambda: shared.acting_as(who).webhooks.delete(made.id),
    ):
        with pytest.raises(PermissionDenied):
            attempt()


def test_for_another_organization_a_webhook_and_its_deliveries_are_not_there(shared):
    made = shared.acting_as("ada").webhooks.create(URL).webhook
    shared.acting_as("bob").enqueue("echo")
    shared.turn()
    (delivery,) = shared.acting_as("ada").webhooks.deliveries()
    assert shared.acting_as("eve").webhooks.list() == []
    assert shared.acting_as("eve").webhooks.deliveries() == []
    assert shared.acting_as("eve").webhooks.deliveries(webhook=made.id) == []
    nobody = "there is no webhook"
    for attempt in (
        lambda: shared.acting_as("eve").webhooks.get(made.id),
        lambda: shared.acting_as("eve").webhooks.update(made.id, url=URL),
        lambda: shared.acting_as("eve").webhooks.rotate(made.id),
        lambda: shared.acting_as("eve").webhooks.test(made.id),
    ):
        with pytest.raises(NotFound, match=nobody):
            attempt()
    with pytest.raises(NotFound, match="there is no delivery"):
        shared.acting_as("eve").webhooks.redeliver(delivery.id)
    with pytest.raises(PermissionDenied):
        shared.acting_as("eve").webhooks.create(URL, organization="acme")


def test_ends_of_another_organization_are_not_told(shared):
    shared.acting_as("ada").webhooks.create(URL)
    shared.acting_as("fay").enqueue("echo")
    shared.turn()
    assert shared.webhooks.deliveries() == []


def test_while_an_organization_is_suspended_its_webhooks_are_only_read(shared):
    made = shared.acting_as("ada").webhooks.create(URL).webhook
    shared.organizations.suspend("acme")
    assert [each.id for each in shared.acting_as("ada").webhooks.list()] == [made.id]
    with pytest.raises(OrganizationUnavailable):
        shared.acting_as("ada").webhooks.update(made.id, url=URL)


def test_an_edit_that_means_another_version_is_refused(rota):
    made = rota.webhooks.create(URL).webhook
    assert rota.webhooks.if_match(1).update(made.id, description="x").version == 2
    with pytest.raises(ChangedMeanwhile):
        rota.webhooks.if_match(1).update(made.id, description="y")


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://example.com/"},
        {"url": "https://127.0.0.1/"},
        {"events": ["nothing"]},
        {"job_types": "echo"},
        {"secret": "short"},
        {"description": "x" * 2000},
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_made(rota, options):
    with pytest.raises(InvalidOption):
        rota.webhooks.create(**({"url": URL} | options))
    assert rota.webhooks.list() == []


def test_ids_that_are_none_are_not_found(rota):
    for wrong in ("x", "", "01980c5e-7a10-7000-8000-000000000001"):
        with pytest.raises(NotFound):
            rota.webhooks.get(wrong)
    with pytest.raises(NotFound):
        rota.webhooks.deliveries(webhook="x")
    for state, limit in (("lost", 5), (None, 0)):
        with pytest.raises(InvalidOption):
            rota.webhooks.deliveries(state=state, limit=limit)


# ---- one job's own ---------------------------------------------------------------------------------------------------


def test_a_job_with_a_webhook_needs_a_secret_of_its_organization(shared):
    with pytest.raises(InvalidOption, match="rota webhook rotate"):
        shared.acting_as("bob").enqueue("echo", webhook=URL)
    shared.acting_as("ada").webhooks.rotate()
    job = shared.acting_as("bob").enqueue("echo", webhook=URL)
    shared.acting_as("bob").enqueue("echo")
    shared.turn()
    (told,) = shared.webhooks.deliveries()
    assert (told.job, told.url, told.organization) == (job.id, URL, "acme")
    assert shared.webhooks.list() == []


def test_of_many_jobs_each_may_have_its_own(shared):
    shared.webhooks.rotate()
    shared.enqueue_many([NewJob(name="echo", webhook=f"https://{name}.example/") for name in "ab"] + [("echo", {})])
    shared.turn()
    assert {each.url for each in shared.webhooks.deliveries()} == {"https://a.example/", "https://b.example/"}


def test_a_bad_url_of_a_job_is_refused_before_anything_is_written(shared):
    with pytest.raises(InvalidOption, match="webhook_http"):
        shared.enqueue("echo", webhook="http://example.com/")
    assert shared.queues.jobs() == []


# ---- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_is_shown_when_it_is_made_and_nowhere_else(tmp_path, receiver, caplog):
    settings = Settings(webhook_private="allow", webhook_http="allow", webhook_retries="", webhook_interval=0.05)
    caplog.set_level(logging.DEBUG)
    with closing(Rota(tmp_path / "rota.db", settings=settings)) as rota:
        rota.job(name="echo")(lambda: None)
        made = rota.webhooks.create(receiver.url("/500"), secret=SECRET)
        assert made.secret == SECRET
        rotated = rota.webhooks.rotate(made.webhook.id)
        own = rota.webhooks.rotate()
        rota.webhooks.test(made.webhook.id)
        with rota.running():
            rota.wait(rota.enqueue("echo", webhook=receiver.url()).id)
            eventually(
                lambda: all(each.state != "waiting" for each in rota.webhooks.deliveries()) and rota.webhooks.deliveries(), what="delivery"
            )
        seen = [
            rota.webhooks.list(),
            rota.webhooks.deliveries(),
            rota.audit.list(limit=100),
            rota.store.doctor(),
            rota.webhooks.get(made.webhook.id),
            caplog.text,
        ]
        seen += [came.body + str(came.headers).encode() for came in receiver.received]
    for secret in (SECRET, rotated, own):
        assert secret not in repr(seen)
        assert secret.removeprefix("whsec_") not in repr(seen)


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch):
    path = tmp_path / "rota.db"
    monkeypatch.setenv("ROTA_STORE", str(path))
    with closing(Rota(path)) as made:
        made.store.pauses()
    return path


def run(*arguments):
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, list(arguments))


def said(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done


def test_the_commands_make_show_change_and_delete_a_webhook(store):
    made = json.loads(said("webhook", "create", URL, "--event", "run.failed", "--type", "mail", "--json").stdout)
    assert made["secret"].startswith("whsec_")
    hook = made["webhook"]["id"]
    (line,) = said("webhook", "list", "--json").stdout.splitlines()
    assert json.loads(line)["events"] == ["run.failed"]
    assert made["secret"] not in said("webhook", "list").output
    changed = json.loads(said("webhook", "update", hook, "--disabled", "--type", "none", "--json").stdout)
    assert (changed["state"], changed["job_types"]) == (WebhookState.DISABLED, [])
    assert "disabled by hand" in said("webhook", "list").output
    assert said("webhook", "rotate", hook).stdout.startswith("whsec_")
    assert json.loads(said("webhook", "rotate", "--json").stdout)["secret"].startswith("whsec_")
    said("webhook", "delete", hook, "--yes")
    assert "No webhooks" in said("webhook", "list").output


def test_the_commands_show_deliveries_and_send_one_again(store):
    with closing(Rota(store)) as rota:
        rota.job(name="echo")(lambda: None)
        rota.webhooks.create(URL)
        rota.enqueue("echo")
        rota.turn()
    (line,) = said("webhook", "deliveries", "--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["event"], found["state"]) == ("run.completed", "waiting")
    assert "run.completed" in said("webhook", "deliveries", "--state", "waiting").output
    assert "waits" in said("webhook", "redeliver", str(found["id"])).output
    assert run("webhook", "redeliver", "999").exit_code != 0


def test_the_command_that_tests_a_webhook_says_what_came_of_it(store, receiver, monkeypatch):
    monkeypatch.setenv("ROTA_WEBHOOK_PRIVATE", "allow")
    monkeypatch.setenv("ROTA_WEBHOOK_HTTP", "allow")
    good, bad = (json.loads(said("webhook", "create", receiver.url(path), "--json").stdout) for path in ("/204", "/500"))
    assert "it answered 204" in said("webhook", "test", good["webhook"]["id"]).output
    receiver.received[0].verify(good["secret"])
    refused = run("webhook", "test", bad["webhook"]["id"])
    assert refused.exit_code != 0
    assert "it answered 500" in refused.output
