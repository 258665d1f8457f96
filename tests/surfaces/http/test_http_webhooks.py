"""Webhooks over HTTP: made, changed, tested, and what was sent; each organization its own."""

from __future__ import annotations

import threading

import pytest

from rota import Settings
from rota.resources import webhooks as hooking
from tests.support.receiver import receiving
from tests.surfaces.http.api_support import callers, code_of

__all__ = ["callers"]

URL = "https://example.com/hooks"


@pytest.fixture
def settings():
    return Settings(webhook_private="allow", webhook_http="allow", webhook_timeout=1.0)


@pytest.fixture
def hook(callers):
    return callers.admin.post("/webhooks", {"url": URL, "events": ["run.completed"]}).json()["webhook"]


def test_a_webhook_is_made_and_its_secret_shown_once(callers):
    made = callers.admin.post("/webhooks", {"url": URL})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert made.json()["secret"].startswith("whsec_")
    assert made.json()["webhook"]["organization"] == "acme"
    shown = callers.admin.get("/webhooks")
    assert made.json()["secret"] not in shown.text
    assert [each["url"] for each in shown.json()["items"]] == [URL]


def test_a_webhook_is_read_changed_by_its_version_and_deleted(callers, hook):
    path = f"/webhooks/{hook['id']}"
    seen = callers.admin.get(path)
    assert seen.headers["etag"] == '"1"'
    changed = callers.admin("PATCH", path, {"enabled": False}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["state"]) == (200, "DISABLED")
    assert callers.admin("PATCH", path, {"enabled": True}, headers={"If-Match": '"1"'}).status_code in {409, 412}
    assert callers.admin.delete(path).status_code == 403
    assert callers.manager.delete(path).status_code == 204
    assert callers.manager.get(path).status_code == 404


def test_for_others_it_is_not_there_and_a_user_may_not_ask(callers, hook):
    path = f"/webhooks/{hook['id']}"
    assert callers.other.get("/webhooks").json()["items"] == []
    for answer in (callers.other.get(path), callers.other.patch(path, {"enabled": False}), callers.other.post(f"{path}/secret")):
        assert answer.status_code == 404
    assert callers.user.get("/webhooks").status_code == 403
    assert callers.admin.post("/webhooks", {"url": URL, "organization": "beta"}).status_code == 403


def test_what_can_not_be_is_refused(callers):
    for body in ({}, {"url": "nonsense"}, {"url": URL, "events": []}, {"url": URL, "events": ["x"]}, {"url": URL, "secret": "x"}):
        assert callers.admin.post("/webhooks", body).status_code == 422


def test_secrets_are_made_anew_for_a_webhook_and_for_an_organization(callers, hook):
    one, own = callers.admin.post(f"/webhooks/{hook['id']}/secret"), callers.admin.post("/webhook-secret", {})
    for made in (one, own):
        assert made.status_code == 201
        assert made.json()["secret"].startswith("whsec_")
    assert one.json() != own.json()


def test_a_job_made_over_http_may_have_a_webhook_of_its_own(callers):
    body = {"name": "echo", "webhook": URL}
    assert callers.user.post("/jobs", body).status_code == 422
    callers.admin.post("/webhook-secret", {})
    assert callers.user.post("/jobs", body).status_code == 201
    callers.rota.turn()
    assert [each["url"] for each in callers.admin.get("/deliveries").json()["items"]] == [URL]


def test_deliveries_are_listed_in_pages_and_sent_again_by_who_may(callers, hook):
    for _ in range(2):
        callers.rota.acting_as("bob").enqueue("echo")
    callers.rota.turn()  # and the one that was there
    first = callers.admin.get("/deliveries", limit=2).json()
    rest = callers.admin.get("/deliveries", limit=2, cursor=first["next"]).json()
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (2, 1, None)
    assert callers.admin.get("/deliveries", webhook=hook["id"], state="delivered").json()["items"] == []
    assert callers.other.get("/deliveries").json()["items"] == []
    number = first["items"][0]["id"]
    assert callers.admin.post(f"/deliveries/{number}/redeliver").json()["state"] == "waiting"
    assert callers.other.post(f"/deliveries/{number}/redeliver").status_code == 404


def test_a_test_says_what_the_receiver_answered(callers):
    with receiving() as receiver:
        made = callers.admin.post("/webhooks", {"url": receiver.url("/204")}).json()
        tested = callers.admin.post(f"/webhooks/{made['webhook']['id']}/test").json()
    assert (tested["accepted"], tested["status"]) == (True, 204)
    assert receiver.received[0].json["event"] == "webhook.test"


def test_only_a_few_tests_wait_for_their_receivers_at_a_time(callers, hook, monkeypatch):
    monkeypatch.setattr(hooking, "_tests", threading.BoundedSemaphore(1))
    assert hooking._tests.acquire()
    asked = callers.admin.post(f"/webhooks/{hook['id']}/test")
    assert (asked.status_code, code_of(asked)) == (409, "refused")
