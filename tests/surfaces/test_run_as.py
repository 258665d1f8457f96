"""Only SQL has a role, and SQL statements set it: a role is refused at every other surface, with the remedy."""

import pytest
from starlette.testclient import TestClient

from rota.errors import InvalidDefinition, InvalidSchedule, RotaError
from rota.surfaces.http import make_app

REFUSED = "run_as='root' is not available.*leave it out"


@pytest.fixture
def scheduled(shared):
    shared.acting_as("root").schedules.create("daily", "echo", cron="0 9 * * *")
    return shared


@pytest.mark.parametrize("actor", ["root", None])
def test_python_takes_no_role(scheduled, actor):
    for act in (
        lambda: scheduled.acting_as(actor).schedules.create("s", "echo", cron="0 9 * * *", run_as="root"),
        lambda: scheduled.acting_as(actor).schedule("s", "echo", cron="0 9 * * *", run_as="root"),
        lambda: scheduled.acting_as(actor).schedules.update("daily", run_as="root"),
        lambda: scheduled.acting_as(actor).plan("daily", run_as="root"),
    ):
        with pytest.raises(InvalidSchedule, match=REFUSED):
            act()
    assert [each.name for each in scheduled.schedules.list()] == ["daily"]
    assert scheduled.schedules.update("daily", run_as=None).run_as is None
    with pytest.raises((RotaError, TypeError)):
        scheduled.templates.update("echo", run_as="root")
    with pytest.raises((RotaError, TypeError)):
        scheduled.enqueue("echo", run_as="root")


def test_a_definitions_file_takes_no_role(scheduled, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text('[schedules.nightly]\ntemplate = "echo"\ncron = "0 1 * * *"\nrun_as = "root"\n')
    with pytest.raises(InvalidDefinition, match=REFUSED):
        scheduled.store.load(file)
    file.write_text('[templates.echo]\nrun_as = "root"\n')
    with pytest.raises(InvalidDefinition, match="run_as"):
        scheduled.store.load(file)
    assert [each.name for each in scheduled.schedules.list()] == ["daily"]


def test_http_takes_no_role(scheduled):
    headers = {"Authorization": f"Bearer {scheduled.tokens.create('all', permits=['manage']).secret}"}
    new = {"name": "s", "template": "echo", "cron": "0 9 * * *", "run_as": "root"}
    with TestClient(make_app(scheduled)) as client:
        answers = [
            client.post("/api/v1/schedules", json=new, headers=headers),
            client.patch("/api/v1/schedules/daily", json={"run_as": "root"}, headers=headers),
            client.post("/api/v1/schedules/daily/plan", json={"run_as": "root"}, headers=headers),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(422, "invalid_schedule")] * 3
        assert all("is not available" in answer.json()["detail"] for answer in answers)
        for path, body in (("/api/v1/jobs", {"name": "echo", "run_as": "root"}), ("/api/v1/direct", {"name": "echo", "run_as": "root"})):
            assert client.post(path, json=body, headers=headers).status_code == 422
        assert client.patch("/api/v1/templates/echo", json={"run_as": "root"}, headers=headers).status_code == 422
