"""Priorities over HTTP are what they are in Python and on the command line: a number, or a word in any letter case."""

import pytest

from tests.surfaces.http.api_support import API, callers  # noqa: F401 - a fixture

WORDS = {"Normal": 50, "CRITICAL": 100, "low": 25, "hIgH": 75}
BODIES = {
    "POST /jobs": lambda priority: {"name": "echo", "priority": priority},
    "POST /jobs/bulk": lambda priority: [{"name": "echo", "priority": priority}],
    "POST /groups": lambda priority: {"jobs": [{"name": "echo", "priority": priority}]},
    "PATCH /jobs/{job}": lambda priority: {"priority": priority},
    "PATCH /templates/{name}": lambda priority: {"priority": priority},
    "PUT /templates/{name}/work": lambda priority: {"sql": "SELECT 1", "priority": priority},
    "POST /schedules": lambda priority: {"name": "s", "template": "echo", "cron": "0 9 * * *", "priority": priority},
    "PATCH /schedules/{name}": lambda priority: {"priority": priority},
    "POST /schedules/{name}/plan": lambda priority: {"priority": priority},
    "POST /organizations": lambda priority: {"name": "gamma", "max_priority": priority},
    "PATCH /organizations/{name}": lambda priority: {"max_priority": priority},
}


def takes_priority(document, schema, seen):
    """Say whether something in a schema is a priority."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            kind = schema["$ref"].rpartition("/")[2]
            if kind in seen:
                return False
            return takes_priority(document, document["components"]["schemas"][kind], seen | {kind})
        fields = schema.get("properties", {})
        return "priority" in fields or "max_priority" in fields or any(takes_priority(document, each, seen) for each in schema.values())
    return isinstance(schema, list) and any(takes_priority(document, each, seen) for each in schema)


def test_every_body_that_takes_a_priority_is_known_here(callers):  # noqa: F811
    document = callers.client.get(f"{API}/openapi.json").json()
    found = {
        f"{method.upper()} {path.removeprefix(API)}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if takes_priority(document, operation.get("requestBody", {}), frozenset())
    }
    assert found == set(BODIES)
    parameters = [
        each["name"] for methods in document["paths"].values() for operation in methods.values() for each in operation.get("parameters", [])
    ]
    assert not [name for name in parameters if "priority" in name]
    assert "any letter case" in str(document["components"]["schemas"]["NewJobIn"]["properties"]["priority"])
    assert "any letter case" in str(document["paths"][f"{API}/templates/{{name}}"]["patch"]["requestBody"])


@pytest.mark.parametrize("operation", BODIES)
def test_a_priority_is_a_word_in_any_letter_case(callers, operation):  # noqa: F811
    rota, manager = callers.rota, callers.manager
    rota.schedules.create("daily", "echo", cron="0 9 * * *")
    job = rota.enqueue("echo")
    method, path = operation.split()
    name = "acme" if "organizations" in path else "daily" if "schedules" in path else "probe" if "work" in path else "echo"
    path = path.replace("{job}", job.id).replace("{name}", name)
    for word, number in WORDS.items():
        answer = manager(method, path, BODIES[operation](word))
        assert answer.status_code in {200, 201}, answer.text
        told = answer.json()
        if "ids" in told or "members" in told:
            told = manager.get(f"/jobs/{told['ids'][0] if 'ids' in told else told['members'][0]['root_id']}").json()
        if "plan" not in path:
            assert told.get("priority", told.get("max_priority")) == number
        if operation in {"POST /schedules", "POST /organizations"}:
            break
    wrong = manager(method, path, BODIES[operation]("urgent"))
    assert wrong.status_code == 422
    assert "low, normal, high, critical" in wrong.json()["detail"]
