"""The reference says what the code says: settings, errors, names and signatures."""

from __future__ import annotations

import inspect
import re

import pytest

import rota
from rota import Call, Context, EnqueueOptions, Handle, JobSet, Rota, Settings, Task, errors
from rota.model.gate import Right
from rota.model.settings import DOCS
from rota.operation import NOUNS, Resource, noun
from rota.task import Home
from tests.docs.pages import page, rows

SETTINGS = {row[0].strip("`"): row for row in rows(page("docs/reference/settings.md"))}
ERRORS = {row[0].replace("·", "").strip().strip("`"): row for row in rows(page("docs/reference/errors.md"))}
PYTHON = page("docs/reference/python.md")
CLASSES = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.RotaError)}


def test_settings_md_has_every_setting_and_no_other():
    assert sorted(SETTINGS) == sorted(DOCS)


@pytest.mark.parametrize("name", DOCS)
def test_a_setting_stands_with_its_default_its_range_its_variable_and_its_meaning(name):
    doc, default = DOCS[name], getattr(Settings(), name)
    _, shown, allowed, variable, meaning = SETTINGS[name]
    assert shown.split("`")[shown.startswith("`")] == (f"{default:.15g}" if isinstance(default, float) else str(default) or "empty")
    assert variable == f"`ROTA_{name.upper()}`"
    assert meaning == doc.what
    assert allowed == _range(doc)


def _range(doc):
    if doc.words:
        return " or ".join(f"`{word}`" if word else "empty" for word in doc.words)
    if doc.low is None:
        return "a text"
    return f"{_number(doc.low)} or more" if doc.high is None else f"{_number(doc.low)} to {_number(doc.high)}"


def _number(value):
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def test_errors_md_has_every_error_and_no_other():
    assert sorted(ERRORS) == sorted(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_stands_with_its_code_under_its_parent_and_says_what_to_do(name):
    cell, code, when, advice = ERRORS[name]
    depth = sum(issubclass(parent, errors.RotaError) for parent in CLASSES[name].__mro__) - 1
    assert code == f"`{CLASSES[name].code}`"
    assert cell.count("·") == depth
    assert when
    assert advice


def test_codes_of_errors_are_never_shared():
    assert len({kind.code for kind in CLASSES.values()}) == len(CLASSES)


def test_the_tree_in_the_docstring_of_errors_has_every_class():
    assert set(re.findall(r"[├└]── (\w+)", errors.__doc__)) | {"RotaError"} == set(CLASSES)


@pytest.mark.parametrize("name", rota.__all__)
def test_python_md_has_every_public_name(name):
    assert re.search(rf"^(## {name}$|\*\*`{name}\b|\| `{name}\b|#### `{name}\()", PYTHON, re.MULTILINE)


OWN = {name: member for name, member in vars(Rota).items() if not name.startswith("_") and name not in NOUNS} | {"job": Home.job}
VERBS = {
    f"{name}.{verb}": member
    for name in NOUNS
    for verb, member in vars(noun(name)).items()
    if not verb.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
}
HELD = {"task": Task, "call": Call, "handle": Handle, "job_set": JobSet}
INTERNAL = {"task.check_included", "job_set.join"}
"""Called by a Rota, not by programs."""
MEMBERS = {
    f"{word}.{name}": inspect.getattr_static(kind, name)
    for word, kind in HELD.items()
    for name in dir(kind)
    if not name.startswith("_") and f"{word}.{name}" not in INTERNAL
}
NAMES = OWN | VERBS | MEMBERS
SECTIONS = dict(re.findall(r"^#### `([\w.]+)[^\n]*`\n(.*?)(?=^#|\Z)", PYTHON, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", NAMES)
def test_python_md_has_every_name_and_every_verb_with_its_signature(name):
    assert PYTHON.count(f"\n#### `{name}{_call(NAMES[name])}`\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_python_md_says_what_each_is(name):
    assert re.search(r"^[A-Z`].*[.:]$", SECTIONS[name], re.MULTILINE)


def test_python_md_has_no_name_that_is_not_there():
    assert sorted(re.findall(r"^#### `([\w.]+)", PYTHON, re.MULTILINE)) == sorted([*NAMES, "Rota"])


def test_every_verb_is_under_the_heading_of_its_noun():
    for name in NOUNS:
        section = re.search(
            rf"^### {name.replace('_', ' ').capitalize()}\n\n`rota\.{name}`: (.*?)(?=^##? |^### |\Z)", PYTHON, re.MULTILINE | re.DOTALL
        )
        assert section, f"python.md has no section of rota.{name}"
        assert re.findall(r"^#### `([\w.]+)", section[1], re.MULTILINE) == [verb for verb in VERBS if verb.partition(".")[0] == name]


def test_python_md_explains_if_match():
    assert f"\n**`if_match{_bare(Resource.if_match)}`**" in PYTHON


def test_python_md_has_every_option_of_a_job_and_no_other():
    named = {name for row in rows(SECTIONS["enqueue"]) for name in re.findall(r"`(\w+)`", row[0])}
    assert named == {*EnqueueOptions.__annotations__, "handler", "job_type"}


UNASKED = {
    "read jobs": {"wait", "overview", "sql"},
    "read statistics and the queue": {"simulate"},
    "submit jobs": {"enqueue", "enqueue_many"},
    "manage templates": {"templates.sql", "templates.command"},
    "operate workers, pauses, recovery and transactions": {"running", "transaction", "store.promote", "store.reopen"},
}
"""Calls that are not operations, and ask the gate themselves."""
FREE = {"acting_as", "if_match", "job", "include", "middleware", "on", "settings", "now", "store.url", "close"}


def test_python_md_has_every_call_under_the_right_that_it_asks_for():
    section = PYTHON.partition("\n## Rights\n")[2].partition("\n## ")[0]
    shown = {row[0]: re.findall(r"`([\w.]+)`", row[1]) for row in rows(section)}
    asked = {
        right.value: {name for name, member in (OWN | VERBS).items() if _right(member) is right} | UNASKED.get(right.value, set())
        for right in Right
    }
    assert {right: sorted(names) for right, names in shown.items()} == {right: sorted(names) for right, names in asked.items() if names}
    assert {name for names in asked.values() for name in names} == (OWN | VERBS).keys() - FREE
    assert set(re.findall(r"`([\w.]+)`", section.partition("ask for nothing")[0].rpartition("\n")[2])) == FREE


def _right(member):
    return member.operation.right if hasattr(member, "operation") else None


def _call(member):
    """Return how a method is called; a property has no parentheses."""
    return _bare(member) if inspect.isfunction(member) else ""


@pytest.mark.parametrize("kind", [Rota, rota.NewJob, rota.Actor, rota.Backoff, rota.Retry, rota.Snooze, rota.Skip])
def test_python_md_has_the_signatures_of_what_people_make(kind):
    assert f"`{kind.__name__}{_bare(kind)}`" in PYTHON


@pytest.mark.parametrize("name", [name for name in dir(Context) if not name.startswith("_")])
def test_python_md_has_everything_a_context_has(name):
    member = inspect.getattr_static(Context, name)
    assert f"\n| `{name}{_bare(member) if inspect.isfunction(member) else ''}` |" in PYTHON


@pytest.mark.parametrize("kind", [rota.Job, rota.Run, rota.Group])
def test_python_md_names_every_field_of_a_value(kind):
    section = re.search(rf"^\*\*`{kind.__name__}`\*\*(.*?)\n\n", PYTHON, re.MULTILINE | re.DOTALL)[1]
    assert set(kind.__struct_fields__) <= set(re.findall(r"`(\w+)`", section))


def _bare(function):
    """Return a signature without annotations and self."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=one.empty) for name, one in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
