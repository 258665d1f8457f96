"""The front is small: few names, nouns with few verbs, one base for each class, one description for each operation."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from rota import Rota
from rota.errors import ChangedMeanwhile, InvalidOption
from rota.operation import NOUNS, Operation, Resource, noun, operations, tag_of

SOURCE = Path(__file__).parents[2] / "src/rota"
TWO_BASES = {
    "InvalidInput",
    "PermissionDenied",
    "NotFound",
    "WaitTimeout",
    "InsideHandlerError",
    "BusyInCallers",
    "UnavailableInCallers",
    "Stream",
    "Store",
}
"""Errors that are one of others too, an abstract response, and the port of stores, which is put together from its parts."""


def names_of(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def every_operation() -> list[tuple[str, Operation]]:
    named = [(verb, each) for verb, each in operations(Rota).items()]
    return named + [(f"{name}.{verb}", each) for name in NOUNS for verb, each in operations(noun(name)).items()]


def test_a_rota_has_few_names_of_its_own_and_a_property_for_each_noun():
    own = names_of(Rota) - NOUNS.keys()
    assert len(own) <= 26, sorted(own)
    assert names_of(Rota) >= NOUNS.keys()
    assert "__getattr__" not in vars(Rota)


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_has_few_verbs(name):
    verbs = [verb for verb, each in inspect.getmembers(noun(name), inspect.isfunction) if not verb.startswith("_")]
    assert len(set(verbs) - {"if_match"}) <= 15
    assert noun(name).__bases__ == (Resource,)


def test_no_class_has_more_than_one_base():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [base for base in map(ast.unparse, node.bases) if not base.startswith(("Protocol", "Generic"))]
                found |= {node.name} if len(bases) > 1 else set()
    assert found == TWO_BASES


@pytest.mark.parametrize(("name", "operation"), every_operation(), ids=lambda value: value if isinstance(value, str) else "")
def test_an_operation_is_described_in_one_sentence_and_hides_what_the_decorator_passes(name, operation):
    assert operation.summary.endswith((".", ":", "?")) or ". " in operation.summary, operation.summary
    shown = inspect.signature(getattr(Rota if "." not in name else noun(name.split(".")[0]), name.rpartition(".")[2]))
    assert "ask" not in shown.parameters
    assert not {"actor", "version", "check"} & shown.parameters.keys()


def test_no_two_operations_have_one_route_or_one_command():
    described = [each for _, each in every_operation()]
    routes = [f"{each.method} {each.path}" for each in described if each.path]
    commands = [each.cli for each in described if each.cli]
    assert sorted(set(routes)) == sorted(routes)
    assert sorted(set(commands)) == sorted(commands)


def test_a_view_shares_the_session_and_closes_nothing(rota: Rota):
    rota.job(name="act")(lambda: None)
    view = rota.acting_as("ada")
    assert rota.jobs.get(view.enqueue("act")).owner == "ada"
    view.close()
    assert rota._session.opened is not None
    assert view.acting_as(None).enqueue("act").id


def test_an_edit_names_the_version_it_expects(rota: Rota):
    rota.job(name="act")(lambda: None)
    first = rota.schedules.create("s", "act", every="1h")
    rota.schedules.if_match(first.version).update("s", description="one")
    with pytest.raises(ChangedMeanwhile):
        rota.schedules.if_match(first.version).update("s", description="two")
    with pytest.raises(ChangedMeanwhile):
        rota.schedules.if_match('"nonsense"').update("s", description="two")
    rota.schedules.if_match("*").update("s", description="three")
    assert rota.schedules.get("s").description == "three"


def test_an_edit_of_a_job_names_the_state_it_expects(rota: Rota):
    rota.job(name="act")(lambda: None)
    job = rota.enqueue("act")
    tag = tag_of(rota.jobs.get(job), rota.jobs.get(job))
    rota.jobs.if_match(tag).update(job, priority=10)
    for verb, options in (("update", {"priority": 20}), ("move", {"front": True}), ("cancel", {})):
        with pytest.raises(ChangedMeanwhile, match="JOB-2026-00001"):
            getattr(rota.jobs.if_match(tag), verb)(job, **options)
    assert rota.jobs.get(job).priority == 10
    assert rota.jobs.if_match("*").cancel(job).status == "CANCELLED"


@pytest.mark.parametrize("verb", ["get", "delete", "retry"])
def test_what_has_no_expected_state_refuses_one(rota: Rota, verb):
    rota.job(name="act")(lambda: None)
    with pytest.raises(InvalidOption, match=f"Jobs.{verb} takes no expected state"):
        getattr(rota.jobs.if_match(3), verb)(rota.enqueue("act"))


def test_params_of_any_name_are_replaced_when_a_job_is_enqueued_again(rota: Rota):
    rota.job(name="act")(lambda **params: params)
    job = rota.enqueue("act", {"job": "old", "other": 1})
    again = rota.jobs.again(job, job="a", self="b", ask="c", params="d")
    assert again.params == {"job": "a", "self": "b", "ask": "c", "params": "d", "other": 1}
    with pytest.raises(TypeError):
        rota.jobs.again(job=job)


def test_a_job_is_enqueued_again_as_a_new_chain_at_a_priority_that_is_still_allowed(rota: Rota):
    rota.job(name="act")(lambda n=0: n)
    job = rota.enqueue("act", {"n": 1}, priority=90, queue="slow")
    rota.turn()
    rota.organizations.update("default", max_priority=10)
    again = rota.jobs.again(job, n=2)
    assert (again.params, again.priority, again.queue, again.meta) == ({"n": 2}, 10, "slow", {"again_of": job.id})
    assert again.root_id != job.id
