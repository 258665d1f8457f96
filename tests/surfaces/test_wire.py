"""Operations as JSON: every operation has a schema, and what is sent is read as the schema says, or refused by name and value."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jsonschema
import pytest

from rota import wire
from rota.app import Rota
from rota.errors import InvalidOption
from rota.model.backoff import StrictBackoff
from rota.model.states import ErrorType
from rota.operation import NOUNS, Operation, noun, operations

OPERATIONS: dict[str, Operation] = {
    f"{name}.{verb}": operation
    for name, owner in [*((name, noun(name)) for name in NOUNS), ("rota", Rota)]
    for verb, operation in operations(owner).items()
}
PYTHON_ONLY = {"progress", "driver", "types", "status"}
"""Parameters without a JSON form: callbacks, workers of this process, and two of `rota.events`, which no surface makes."""
NINE = datetime(2026, 8, 1, 9, tzinfo=UTC)


def read(name: str, /, **given: object) -> dict[str, object]:
    return wire.read(OPERATIONS[name], given)


# ---- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_valid_schema_that_allows_nothing_else(name):
    schema = wire.schema(OPERATIONS[name])
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_property_has_the_words_of_its_shape(name):
    shown = wire.schema(OPERATIONS[name])["properties"]
    for field in OPERATIONS[name].fields:
        if field.name not in shown:
            assert field.name in PYTHON_ONLY
        elif field.shape.help:
            assert shown[field.name]["description"] == field.shape.help


@pytest.mark.parametrize("name", OPERATIONS)
def test_examples_and_defaults_are_valid_by_the_schema_they_are_in(name):
    schema = wire.schema(OPERATIONS[name])
    for property_ in schema["properties"].values():
        checked = {**property_, "$defs": schema.get("$defs", {})}
        for value in (*property_.get("examples", ()), *([property_["default"]] if "default" in property_ else ())):
            jsonschema.validate(value, checked, cls=jsonschema.Draft202012Validator)


def test_what_has_no_default_is_required():
    assert wire.schema(OPERATIONS["schedules.create"])["required"] == ["name", "template"]
    assert wire.schema(OPERATIONS["jobs.list"])["required"] == []
    assert wire.schema(OPERATIONS["jobs.list"])["properties"]["limit"]["default"] == 100


def test_null_is_allowed_only_where_it_means_something():
    shown = wire.schema(OPERATIONS["organizations.update"])["properties"]
    assert {"type": "null"} in shown["max_running"]["anyOf"]
    assert shown["max_running"]["description"] == "Jobs that run at the same time. Default: no limit."
    assert wire.schema(OPERATIONS["jobs.list"])["properties"]["limit"]["type"] == "integer"


def test_an_outer_annotation_gives_the_words_and_an_inner_one_the_rest():
    timeout = wire.schema(OPERATIONS["templates.update"])["properties"]["timeout"]
    assert timeout["description"] == "Longest run of one attempt."
    assert timeout["examples"] == ["5m"]


def test_words_and_values_of_enums_are_listed():
    assert set(wire.schema(OPERATIONS["templates.update"])["properties"]["executor"]["enum"]) == {"thread", "async", "process", "inline"}
    listed = wire.schema(OPERATIONS["jobs.list"])
    assert set(listed["$defs"]["ErrorType"]["enum"]) == set(map(str, ErrorType))


# ---- reading ----------------------------------------------------------------------------------------------------------

GOOD = [
    ("jobs.list", {}, {}),
    ("jobs.list", {"status": ["QUEUED", "RUNNING"], "limit": 5}, {"status": ["QUEUED", "RUNNING"], "limit": 5}),
    ("jobs.list", {"error_type": "timeout"}, {"error_type": ErrorType.TIMEOUT}),
    ("jobs.list", {"owner": None}, {"owner": None}),
    ("jobs.list", {"since": "2h"}, {"since": timedelta(hours=2)}),
    ("jobs.list", {"since": "90"}, {"since": timedelta(seconds=90)}),
    ("jobs.list", {"since": "2026-08-01T09:00:00Z"}, {"since": NINE}),
    ("jobs.list", {"since": "2026-08-01T11:00+02:00"}, {"since": NINE.astimezone(timezone(timedelta(hours=2)))}),
    ("jobs.update", {"job": "1", "priority": "high", "run_at": "5m"}, {"job": "1", "priority": "high", "run_at": timedelta(minutes=5)}),
    ("jobs.update", {"job": "1", "priority": 7, "params": {"a": [1]}}, {"job": "1", "priority": 7, "params": {"a": [1]}}),
    ("jobs.depend", {"job": "1", "on": ["2", "3"]}, {"job": "1", "on": ["2", "3"]}),
    ("jobs.again", {"job": "1", "params": {"to": "bob"}}, {"job": "1", "params": {"to": "bob"}}),
    ("templates.update", {"name": "a", "timeout": "1h30m"}, {"name": "a", "timeout": timedelta(minutes=90)}),
    (
        "templates.update",
        {"name": "a", "timeout": 1.5, "queue_ttl": None},
        {"name": "a", "timeout": timedelta(seconds=1.5), "queue_ttl": None},
    ),
    ("templates.update", {"name": "a", "priority": "low"}, {"name": "a", "priority": "low"}),
    ("templates.update", {"name": "a", "backoff": {"base": 2}}, {"name": "a", "backoff": StrictBackoff(base=2)}),
    ("templates.update", {"name": "a", "rate_limit": "10/60s"}, {"name": "a", "rate_limit": "10/60s"}),
    ("templates.reset", {"name": "a", "fields": ["timeout"]}, {"name": "a", "fields": ["timeout"]}),
    ("schedules.create", {"name": "a", "template": "b", "every": "2h"}, {"name": "a", "template": "b", "every": timedelta(hours=2)}),
    (
        "schedules.create",
        {"name": "a", "template": "b", "at": "2026-08-01T09:00"},
        {"name": "a", "template": "b", "at": "2026-08-01T09:00"},
    ),
    ("schedules.update", {"name": "a", "new_name": "b", "cron": None}, {"name": "a", "new_name": "b", "cron": None}),
    ("schedules.verify", {"since": "2026-08-01T09:00:00Z"}, {"since": NINE}),
    ("tokens.create", {"name": "a", "expires_in": "90d"}, {"name": "a", "expires_in": timedelta(days=90)}),
    (
        "tokens.create",
        {"name": "a", "expires_in": 60, "permits": ["read"]},
        {"name": "a", "expires_in": timedelta(seconds=60), "permits": ["read"]},
    ),
    ("store.purge", {"older_than": "7d", "dry_run": True}, {"older_than": timedelta(days=7), "dry_run": True}),
    ("calendars.update", {"name": "a", "days": ["2026-12-25"]}, {"name": "a", "days": ["2026-12-25"]}),
    ("rota.forecast", {"hours": 3, "start": "2026-08-01T09:00:00Z"}, {"hours": 3.0, "start": NINE}),
    ("rota.explain", {"job": 42}, {"job": 42}),
    ("rota.plan", {"name": "a", "cron": "0 9 * * *"}, {"name": "a", "cron": "0 9 * * *"}),
]


@pytest.mark.parametrize(("name", "given", "keywords"), GOOD, ids=[f"{name} {' '.join(given)}" for name, given, _ in GOOD])
def test_what_is_sent_is_read(name, given, keywords):
    assert read(name, **given) == keywords


@pytest.mark.parametrize(("name", "given", "_keywords"), GOOD, ids=[f"{name} {' '.join(given)}" for name, given, _ in GOOD])
def test_what_is_read_is_valid_by_the_schema(name, given, _keywords):
    jsonschema.validate(given, wire.schema(OPERATIONS[name]), cls=jsonschema.Draft202012Validator)


BAD = [
    ("jobs.list", {"colour": "red"}, "list has no parameter 'colour': it takes status, job_type, "),
    ("workers.list", {"colour": "red"}, "list has no parameter 'colour': it takes none"),
    ("store.purge", {"progress": "x"}, "purge has no parameter 'progress'"),
    ("jobs.get", {}, "job is missing: get needs it (The job's id or number.)"),
    ("jobs.list", {"limit": "ten"}, "limit='ten': expected int, got str"),
    ("jobs.list", {"limit": 1.5}, "limit=1.5: expected int, got float"),
    ("jobs.list", {"limit": True}, "limit=True: expected int, got bool"),
    ("jobs.list", {"limit": None}, "limit=None: expected int, got null"),
    ("jobs.list", {"status": "QUEUED"}, "status='QUEUED': expected array | null, got str"),
    ("jobs.list", {"status": ["QUEUED", 3]}, "status=['QUEUED', 3]: expected str, got int at status[1]"),
    ("jobs.list", {"error_type": "boredom"}, "error_type='boredom' is not one of transient, "),
    ("jobs.list", {"since": "yesterday"}, "since: 'yesterday' is neither a moment, such as 2026-08-01T09:00:00Z, nor a length of time"),
    ("jobs.list", {"since": "2026-08-01T09:00:00"}, "since: '2026-08-01T09:00:00' has no time zone: add Z"),
    ("jobs.list", {"since": "99999999999d"}, "since: '99999999999d'"),
    ("jobs.update", {"job": "1", "params": [1]}, "params=[1]: expected object | null, got array"),
    ("jobs.update", {"job": None}, "job=None: expected str, got null"),
    ("jobs.again", {"job": "1", "params": "x"}, "params='x': expected object, got str"),
    ("templates.update", {"name": "a", "priority": "urgent"}, "priority='urgent' is not a number or one of low, normal, high, critical"),
    ("templates.update", {"name": "a", "executor": "fork"}, "executor='fork' is not one of thread, async, process, inline"),
    ("templates.update", {"name": "a", "timeout": "soon"}, "timeout: 'soon' is not a length of time: use seconds, or text such as 90s"),
    ("templates.update", {"name": "a", "timeout": -1}, "timeout: -1.0 is not a length of time"),
    ("templates.update", {"name": "a", "backoff": {"base": "x"}}, "backoff={'base': 'x'}: expected float, got str at backoff.base"),
    ("tokens.create", {"name": "a", "expires_in": "1e9"}, "expires_in: '1e9' is not a length of time"),
    ("rota.forecast", {"start": "2h"}, "start: '2h' is not a moment: use ISO 8601"),
    ("schedules.occurrences", {"before": "nonsense"}, "before: 'nonsense' is not a valid cursor: pass the previous page's `next`"),
    ("calendars.update", {"name": "a", "days": [1]}, "days=[1]: expected str, got int at days[0]"),
]


@pytest.mark.parametrize(("name", "given", "words"), BAD, ids=[f"{name} {' '.join(given)}" for name, given, _ in BAD])
def test_what_does_not_fit_is_refused_with_the_parameter_and_the_value(name, given, words):
    with pytest.raises(InvalidOption, match=f"^{re.escape(words)}"):
        read(name, **given)


def test_a_long_value_is_shortened():
    with pytest.raises(InvalidOption) as refused:
        read("jobs.list", limit="x" * 10_000)
    assert len(str(refused.value)) < 120


def test_a_secret_is_not_repeated():
    with pytest.raises(InvalidOption, match=r"^secret: expected str") as refused:
        read("webhooks.create", url="https://example.com", secret=["whsec_hidden"])
    assert "hidden" not in str(refused.value)


def test_text_that_a_person_typed_is_read_more_freely():
    assert wire.read(OPERATIONS["jobs.list"], {"limit": "5"}, text=True) == {"limit": 5}
    assert wire.read(OPERATIONS["jobs.log"], {"job": "1", "chain": "true"}, text=True) == {"job": "1", "chain": True}


@pytest.mark.parametrize("place", [(1_785_000_000_000_000, "a" * 32, "MISSED"), (0, "", "")])
def test_a_cursor_comes_back_as_it_was_sealed(place):
    assert read("schedules.occurrences", before=wire.seal(place)) == {"before": place}


# ---- calling ----------------------------------------------------------------------------------------------------------


def called(rota: Rota, noun_: str, verb: str, /, **given: object):
    operation = OPERATIONS[f"{noun_}.{verb}"]
    return wire.call(getattr(getattr(rota, noun_), verb), operation, wire.read(operation, given))


@pytest.fixture
def greeting(rota: Rota) -> Rota:
    @rota.job
    def greet(name: str = "you", job: str = "") -> str:
        return name

    rota.enqueue("greet", {"name": "Ada"})
    return rota


def test_keywords_of_any_name_are_one_object(greeting):
    (job,) = greeting.jobs.list()
    again = called(greeting, "jobs", "again", job=job.id, params={"name": "Bob"})
    assert (again.params, again.meta["again_of"]) == ({"name": "Bob"}, job.id)


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if any(field.hint == dict[str, Any] for field in each.fields)])
def test_keywords_of_any_name_can_not_be_taken_for_parameters_of_the_operation(name):
    kinds = {each.kind for each in OPERATIONS[name].parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_arguments_of_any_number_are_one_list(greeting):
    called(greeting, "templates", "update", name="greet", timeout="7m", max_retries=7)
    assert greeting.templates.get("greet").timeout == 420
    called(greeting, "templates", "reset", name="greet", fields=["timeout"])
    assert greeting.templates.get("greet").timeout != 420
    assert greeting.templates.get("greet").max_retries == 7
    called(greeting, "templates", "reset", name="greet")
    assert greeting.templates.get("greet").max_retries != 7
