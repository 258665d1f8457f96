"""The OpenAPI document as a whole: everything has a summary, a tag, examples and its refusals."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
from starlette.testclient import TestClient

from rota.surfaces.http import make_app
from rota.surfaces.http.openapi import EVENTS, MEMBERS, TAGS, codes, error_kinds, operations
from rota.surfaces.http.problems import MEDIA_TYPE
from tests.docs.http_page import document

FOUND = document()
OPERATIONS = [pytest.param(path, method, said, id=f"{method} {path}") for path, method, said in operations(FOUND)]
OPEN = {"/api/v1/health", "/api/v1/ready"}
"""What is answered without a token."""


def references(value):
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def examples_of(media):
    if "example" in media:
        yield media["example"]
    for each in media.get("examples", {}).values():
        yield each["value"]


def resolved(schema):
    """Return a schema that stands alone."""
    return schema | {"components": FOUND["components"]}


def test_the_document_is_openapi_3_1_and_every_reference_leads_somewhere():
    assert FOUND["openapi"].startswith("3.1.")
    names = {f"#/components/schemas/{name}" for name in FOUND["components"]["schemas"]}
    assert set(references(FOUND)) <= names


def test_tags_are_described_and_stand_in_their_order():
    names = [tag["name"] for tag in FOUND["tags"]]
    assert names == [name for name in TAGS if name in names]
    assert {tag for _, _, said in operations(FOUND) for tag in said["tags"]} == set(names)


def test_operations_have_names_of_their_own():
    names = [said["operationId"] for _, _, said in operations(FOUND)]
    assert len(set(names)) == len(names)


def test_the_security_scheme_is_a_bearer_token():
    assert [each["scheme"] for each in FOUND["components"]["securitySchemes"].values()] == ["bearer"]


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_an_operation_says_what_it_is_for(path, method, said):
    assert len(said["tags"]) == 1
    assert said["summary"]
    assert not said["summary"].endswith(".")
    assert said["description"].endswith((".", ")"))
    assert bool(said.get("security")) == (path not in OPEN)


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_an_operation_has_examples_that_its_schemas_allow(path, method, said):
    medias = list(said.get("requestBody", {}).get("content", {}).values())
    for answer in said["responses"].values():
        medias += [media for kind, media in answer.get("content", {}).items() if kind != EVENTS]
    for media in medias:
        examples = list(examples_of(media)) or schema_examples(media["schema"])
        assert examples, media
        checker = jsonschema_rs.validator_for(resolved(media["schema"]))
        for example in examples:
            checker.validate(example)


def schema_examples(schema):
    name = schema.get("$ref", "").rpartition("/")[2]
    kinds = schema.get("anyOf", [])
    return FOUND["components"]["schemas"].get(name, {}).get("examples", []) + [one for kind in kinds for one in schema_examples(kind)]


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_an_operation_says_what_it_refuses(path, method, said):
    statuses = set(said["responses"])
    assert "503" in statuses
    if path not in OPEN:
        assert {"401", "403", "422", "429"} <= statuses
    if "requestBody" in said:
        assert {"400", "413", "415"} <= statuses
    for status, answer in said["responses"].items():
        if int(status) >= 400:
            examples = answer["content"][MEDIA_TYPE]["examples"]
            assert {example["value"]["code"] for example in examples.values()} == set(examples)
            assert all(codes()[code] == int(status) for code in examples), path


def test_every_value_has_an_example_that_it_allows():
    for name, schema in FOUND["components"]["schemas"].items():
        if "enum" in schema or "examples" not in schema:
            continue
        checker = jsonschema_rs.validator_for(resolved(schema))
        for example in schema["examples"]:
            assert checker.is_valid(example), name


def test_the_document_is_served_to_anybody(rota):
    with TestClient(make_app(rota)) as client:
        assert client.get("/api/v1/openapi.json").json()["info"]["title"] == "Rota"
        assert client.post("/api/v1/stats").status_code == 405


def test_what_an_error_promises_in_its_description_is_a_member_of_its_problem():
    for kind in error_kinds():
        promised = set(re.findall(r"`(\w+)` (?:is|names|says)", kind.__doc__ or ""))
        assert promised == set(kind.members if "members" in vars(kind) else ()), kind.__name__
        assert set(kind.members) <= set(MEMBERS), kind.__name__
