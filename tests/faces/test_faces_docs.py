"""The pages about the faces say what the code does."""

from __future__ import annotations

import inspect
import re

from rota import testing
from rota.faces.background_job import PRIORITY_WORDS, WORDS, BackgroundJob, ExecutionLogEntry
from tests.docs.pages import page, rows
from tests.faces.documents import FAILED, PROCESSING, RECURRING

BACKGROUND_JOB = page("docs/reference/background-job.md")
MONQUE = page("docs/reference/monque.md")
TESTING = page("docs/guide/testing.md")


def table(text: str, heading: str) -> list[list[str]]:
    return rows(text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0])


def test_every_field_of_a_background_job_is_explained_in_its_order():
    assert [row[0].strip("`") for row in table(BACKGROUND_JOB, "Fields")] == list(BackgroundJob.__struct_fields__)


def test_every_status_of_a_background_job_is_explained():
    assert sorted(row[0] for row in table(BACKGROUND_JOB, "Status")) == sorted(WORDS.values())


def test_the_words_of_priorities_stand_with_their_bounds():
    shown = {row[0]: int(row[1].split(" ")[0]) for row in table(BACKGROUND_JOB, "Priority")}
    assert shown == {word: bound for bound, word in PRIORITY_WORDS}


def test_every_field_of_the_execution_log_is_named():
    section = BACKGROUND_JOB.partition("## Execution log")[2]
    assert set(ExecutionLogEntry.__struct_fields__) <= set(re.findall(r"`(\w+)`", section))


def test_every_field_of_a_document_is_mapped():
    assert {row[0].strip("`") for row in table(MONQUE, "Field by field")} == set(FAILED | PROCESSING | RECURRING) | {"timezone", "priority"}


def test_the_kit_is_explained_with_its_signatures():
    named = [row[0].strip("`") for row in table(TESTING, "What a kit has")]
    methods = {name: member for name, member in inspect.getmembers(testing.Kit, inspect.isfunction) if not name.startswith("_")}
    wanted = [f"kit.{name}{_bare(member)}" for name, member in methods.items()]
    assert sorted(named) == sorted([f"testing.use{_bare(testing.use)}", "kit.app", "kit.clock", *wanted])


def _bare(function) -> str:
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=one.empty) for name, one in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
