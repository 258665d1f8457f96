"""The reference says what the code says: settings, errors, names and signatures."""

from __future__ import annotations

import inspect
import re

import pytest

import rota
from rota import Context, Rota, Settings, errors
from rota.model.settings import DOCS
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
        return " or ".join(f"`{word}`" for word in doc.words)
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


METHODS = {name: member for name, member in inspect.getmembers(Rota, inspect.isfunction) if not name.startswith("_")} | {"job": Home.job}


@pytest.mark.parametrize("name", METHODS)
def test_python_md_has_every_method_of_rota_with_its_signature(name):
    assert f"\n#### `{name}{_bare(METHODS[name])}`\n" in PYTHON


def test_python_md_has_no_method_that_is_not_there():
    assert set(re.findall(r"^#### `(\w+)\(", PYTHON, re.MULTILINE)) == {*METHODS, "Rota"}


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
