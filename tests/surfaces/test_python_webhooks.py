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
    made = shared.create_webhook(URL, actor="ada").webhook
    assert made.organization == "acme"
    assert shared.change_webhook(made.id, events=["run.failed"], actor="ada").events == (Event.FAILED,)
    with pytest.raises(PermissionDenied):
        shared.delete_webhook(made.id, actor="ada")
    shared.delete_webhook(made.id, actor="root")
    assert shared.webhooks(actor="root") == []


@pytest.mark.parametrize("who", ["bob", "ben"])
def test_a_user_neither_sees_nor_makes_webhooks(shared, who):
    made = shared.create_webhook(URL, actor="ada").webhook
    for attempt in (
        lambda: shared.create_webhook(URL, actor=who),
        lambda: shared.webhooks(actor=who),
        lambda: shared.webhook(made.id, actor=who),
        lambda: shared.change_webhook(made.id, url=URL, actor=who),
        lambda: shared.rotate_webhook_secret(made.id, actor=who),
        lambda: shared.test_webhook(made.id, actor=who),
        lambda: shared.deliveries(actor=who),
        lambda: shared.redeliver(1, actor=who),
        lambda: shared.delete_webhook(made.id, actor=who),
    ):
        with pytest.raises(PermissionDenied):
            attempt()


def test_for_another_organization_a_webhook_and_its_deliveries_are_not_there(shared):
    made = shared.create_webhook(URL, actor="ada").webhook
    shared.enqueue("echo", actor="bob")
    shared.turn()
    (delivery,) = shared.deliveries(actor="ada")
    assert shared.webhooks(actor="eve") == []
    assert shared.deliveries(actor="eve") == []
    assert shared.deliveries(webhook=made.id, actor="eve") == []
    nobody = "there is no webhook"
    for attempt in (
        lambda: shared.webhook(made.id, actor="eve"),
        lambda: shared.change_webhook(made.id, url=URL, actor="eve"),
        lambda: shared.rotate_webhook_secret(made.id, actor="eve"),
        lambda: shared.test_webhook(made.id, actor="eve"),
    ):
        with pytest.raises(NotFound, match=nobody):
            attempt()
    with pytest.raises(NotFound, match="there is no delivery"):
        shared.redeliver(delivery.id, actor="eve")
    with pytest.raises(PermissionDenied):
        shared.create_webhook(URL, organization="acme", actor="eve")


def test_ends_of_another_organization_are_not_told(shared):
    shared.create_webhook(URL, actor="ada")
    shared.enqueue("echo", actor="fay")
    shared.turn()
    assert shared.deliveries() == []


def test_while_an_organization_is_suspended_its_webhooks_are_only_read(shared):
    made = shared.create_webhook(URL, actor="ada").webhook
    shared.suspend_organization("acme")
    assert [each.id for each in shared.webhooks(actor="ada")] == [made.id]
    with pytest.raises(OrganizationUnavailable):
        shared.change_webhook(made.id, url=URL, actor="ada")


def test_an_edit_that_means_another_version_is_refused(rota):
    made = rota.create_webhook(URL).webhook
    assert rota.change_webhook(made.id, description="x", version=1).version == 2
    with pytest.raises(ChangedMeanwhile):
        rota.change_webhook(made.id, description="y", version=1)


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
        rota.create_webhook(**({"url": URL} | options))
    assert rota.webhooks() == []


def test_ids_that_are_none_are_not_found(rota):
    for wrong in ("x", "", "01980c5e-7a10-7000-8000-000000000001"):
        with pytest.raises(NotFound):
            rota.webhook(wrong)
    with pytest.raises(NotFound):
        rota.deliveries(webhook="x")
    for state, limit in (("lost", 5), (None, 0)):
        with pytest.raises(InvalidOption):
            rota.deliveries(state=state, limit=limit)


# ---- one job's own ---------------------------------------------------------------------------------------------------


def test_a_job_with_a_webhook_needs_a_secret_of_its_organization(shared):
    with pytest.raises(InvalidOption, match="rota webhook rotate"):
        shared.enqueue("echo", webhook=URL, actor="bob")
    shared.rotate_webhook_secret(actor="ada")
    job = shared.enqueue("echo", webhook=URL, actor="bob")
    shared.enqueue("echo", actor="bob")
    shared.turn()
    (told,) = shared.deliveries()
    assert (told.job, told.url, told.organization) == (job.id, URL, "acme")
    assert shared.webhooks() == []


def test_of_many_jobs_each_may_have_its_own(shared):
    shared.rotate_webhook_secret()
    shared.enqueue_many([NewJob(name="echo", webhook=f"https://{name}.example/") for name in "ab"] + [("echo", {})])
    shared.turn()
    assert {each.url for each in shared.deliveries()} == {"https://a.example/", "https://b.example/"}


def test_a_bad_url_of_a_job_is_refused_before_anything_is_written(shared):
    with pytest.raises(InvalidOption, match="webhook_http"):
        shared.enqueue("echo", webhook="http://example.com/")
    assert shared.queue() == []


# ---- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_is_shown_when_it_is_made_and_nowhere_else(tmp_path, receiver, caplog):
    settings = Settings(webhook_private="allow", webhook_http="allow", webhook_retries="", webhook_interval=0.05)
    caplog.set_level(logging.DEBUG)
    with closing(Rota(tmp_path / "rota.db", settings=settings)) as rota:
        rota.job(name="echo")(lambda: None)
        made = rota.create_webhook(receiver.url("/500"), secret=SECRET)
        assert made.secret == SECRET
        rotated = rota.rotate_webhook_secret(made.webhook.id)
        own = rota.rotate_webhook_secret()
        rota.test_webhook(made.webhook.id)
        with rota.running():
            rota.wait(rota.enqueue("echo", webhook=receiver.url()).id)
            eventually(lambda: all(each.state != "waiting" for each in rota.deliveries()) and rota.deliveries(), what="delivery")
        seen = [rota.webhooks(), rota.deliveries(), rota.audit(limit=100), rota.doctor(), rota.webhook(made.webhook.id), caplog.text]
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
        made.pauses()
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
    changed = json.loads(said("webhook", "change", hook, "--disable", "--all-types", "--json").stdout)
    assert (changed["state"], changed["job_types"]) == (WebhookState.DISABLED, [])
    assert "disabled by hand" in said("webhook", "list").output
    assert said("webhook", "rotate", hook).stdout.startswith("whsec_")
    assert json.loads(said("webhook", "rotate", "--json").stdout)["secret"].startswith("whsec_")
    said("webhook", "delete", hook, "--yes")
    assert "No webhooks" in said("webhook", "list").output


def test_the_commands_show_deliveries_and_send_one_again(store):
    with closing(Rota(store)) as rota:
        rota.job(name="echo")(lambda: None)
        rota.create_webhook(URL)
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
