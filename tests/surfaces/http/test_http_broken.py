"""Pages and lists over a store in which one row of each kind is damaged: each still answers, with the rows beside it."""

from __future__ import annotations

import pytest

from tests.stores.makers import SqliteMaker
from tests.surfaces.http.api_support import callers
from tests.surfaces.http.pages_support import browsing

__all__ = ["callers"]

TORN = "CAST(x'7B22ff227D' AS TEXT)"
DAMAGES = {
    "torn text": (
        f"UPDATE jobs SET params = {TORN}, owner = {TORN}, reason = {TORN}, meta = {TORN} WHERE number = 1",
        f"UPDATE schedules SET description = {TORN}, param_overrides = {TORN} WHERE name = 'bad'",
        f"UPDATE templates SET overrides = {TORN}, description = {TORN} WHERE name = 'echo'",
        f"UPDATE organizations SET display_name = {TORN} WHERE organization_id = 'beta'",
        f"UPDATE audit SET actor = {TORN}, after = {TORN} WHERE audit_id = (SELECT max(audit_id) FROM audit)",
        f"UPDATE endpoints SET events = {TORN}",
    ),
    "text that is not JSON": (
        "UPDATE jobs SET params = 'no', meta = 'no', backoff = 'no' WHERE number = 1",
        "UPDATE schedules SET param_overrides = 'no', depends_on = 'no' WHERE name = 'bad'",
        "UPDATE templates SET overrides = 'no' WHERE name = 'echo'",
        "UPDATE audit SET after = 'no' WHERE audit_id = (SELECT max(audit_id) FROM audit)",
        "UPDATE endpoints SET events = 'no'",
    ),
}
LISTS = ("/jobs", "/queue", "/schedules", "/templates", "/organizations", "/audit", "/webhooks", "/stats", "/overview")
PAGES = (
    "/",
    "/jobs",
    "/queue",
    "/schedules",
    "/schedules/month",
    "/templates",
    "/organizations",
    "/audit",
    "/webhooks",
    "/dead",
    "/workers",
)


@pytest.mark.parametrize("damages", DAMAGES.values(), ids=DAMAGES)
def test_lists_and_pages_answer_beside_damaged_rows(callers, damages):
    rota = callers.rota
    for _ in range(2):
        rota.acting_as("root").enqueue("echo", organization="acme")
    for name in ("bad", "good"):
        rota.acting_as("root").schedules.create(name, "echo", cron="* * * * *", organization="acme")
    callers.admin.post("/webhooks", {"url": "https://example.com/hooks"})
    store = rota._session.open().store
    maker = SqliteMaker.__new__(SqliteMaker)
    maker.path = store.path
    maker.damage(*damages, "UPDATE meta SET value = value + 1 WHERE key = 'definitions_version'")
    answers = {path: callers.manager.get(path) for path in LISTS}
    assert {path: answer.status_code for path, answer in answers.items() if answer.status_code != 200} == {}
    assert len(answers["/jobs"].json()["items"]) == 3
    assert "good" in answers["/schedules"].text
    with browsing(rota) as browser:
        root = browser("root")
        assert {path: status for path in PAGES if (status := root.get(path).status_code) != 200} == {}
