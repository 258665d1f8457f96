"""A template is meant by its name, or by its id, which jobs and runs show."""

import pytest
from starlette.testclient import TestClient

from rota import NewJob
from rota.errors import NotFound, UnknownTemplate
from rota.model.values import undashed
from rota.surfaces.http import make_app

NOBODYS = "019c8a5e-7a00-7000-8000-00000000002a"


@pytest.fixture(params=["dashed", "plain"])
def template_id(shared, request):
    found = shared.jobs.get(shared.enqueue("echo")).template_id
    return found if request.param == "dashed" else undashed(found)


def test_python_takes_an_id(shared, template_id):
    rota = shared
    jobs = [
        rota.enqueue(template_id, {"text": "x"}),
        rota.enqueue(template_id, priority="high"),
        *(rota.jobs.get(job_id) for job_id in rota.enqueue_many([(template_id, {}), NewJob(name=template_id, priority="low")]).ids),
        rota.jobs.get(rota.group([NewJob(name=template_id)]).members[0].root_id),
    ]
    assert {(rota.jobs.get(job).job_type, undashed(rota.jobs.get(job).template_id)) for job in jobs} == {("echo", undashed(template_id))}
    assert rota.templates.get(template_id).name == "echo"
    assert rota.templates.update(template_id, priority=60).name == "echo"
    assert rota.templates.reset(template_id).priority == 50
    assert rota.templates.disable(template_id).state == "DISABLED"
    assert rota.templates.enable(template_id).state == "ENABLED"
    assert [each.name for each in rota.templates.list()] == ["echo"]
    assert rota.schedules.create("one", template_id, every="1h").template == "echo"
    assert rota.schedule("two", template_id, every="1h").template == "echo"
    assert rota.schedule("two", "echo", every="1h").version == rota.schedules.get("two").version == 1
    assert rota.schedules.update("one", template=template_id).template == "echo"
    assert len(rota.schedules.list(template=template_id)) == 2
    rota.templates.pause(template_id)
    assert ("template", "echo") in rota.store.pauses()
    rota.templates.resume(template_id)
    assert rota.store.pauses() == []
    with rota.running():
        assert rota.jobs.direct(template_id, {"text": "now"}).result == "now"


def test_a_name_that_looks_like_an_id_is_found_first(shared, template_id):
    @shared.job(name=template_id)
    def other() -> None: ...

    assert shared.jobs.get(shared.enqueue(template_id)).job_type == template_id
    assert shared.templates.get(template_id).name == template_id


def test_an_id_of_nothing_is_refused_as_a_name_is(shared):
    with pytest.raises(UnknownTemplate, match=NOBODYS):
        shared.enqueue(NOBODYS)
    with pytest.raises(UnknownTemplate, match=NOBODYS):
        shared.templates.get(NOBODYS)
    with pytest.raises((UnknownTemplate, NotFound)):
        shared.schedules.create("s", NOBODYS, every="1h")


def test_http_takes_an_id_in_paths_and_bodies(shared, template_id):
    headers = {"Authorization": f"Bearer {shared.tokens.create('all', permits=['manage']).secret}"}
    with TestClient(make_app(shared), base_url="http://localhost/api/v1", headers=headers) as client:
        assert client.get(f"/templates/{template_id}").json()["name"] == "echo"
        assert client.patch(f"/templates/{template_id}", json={"priority": 60}).json()["name"] == "echo"
        assert client.post("/jobs", json={"name": template_id}).json()["job_type"] == "echo"
        assert client.post("/jobs/bulk", json=[{"name": template_id}]).json()["accepted"] == 1
        new = {"name": "s", "template": template_id, "every": 60}
        assert client.post("/schedules", json=new).json()["template"] == "echo"
        assert client.get("/schedules", params={"template": template_id}).json()["items"][0]["name"] == "s"
        assert client.post(f"/templates/{template_id}/archive").json()["state"] == "ARCHIVED"
