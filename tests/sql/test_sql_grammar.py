"""The tables of the language agree with the parser, the renderer and the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import rota.sql
from rota.model.grants import PRIVILEGES, Privilege
from rota.model.templates import UNITS
from rota.sql import job_clauses, parser, render
from rota.sql.grammar import CLAUSE_OF, CLAUSES, FORMS, JOB_SECRET_FORMS, KEYWORDS, RESERVED, SHOWS, Reads
from rota.sql.syntax import AlterSecret, Clauses, CreateSecret, Listing, SetJobSecret, Statement

SOURCES = sorted(Path(rota.sql.__file__).parent.glob("*.py"))


def test_every_clause_is_a_field_of_the_tree_and_every_field_a_clause():
    assert [clause.field for clause in CLAUSES] == [field for field in Clauses.__struct_fields__ if field != "body"]


def test_no_two_clauses_begin_with_the_same_word():
    assert len(CLAUSE_OF) == sum(1 + len(clause.also) for clause in CLAUSES)


def test_every_way_to_read_a_clause_has_a_way_to_write_it():
    assert set(job_clauses.READERS) == set(render.WRITERS) == set(Reads) == {clause.reads for clause in CLAUSES}


def test_every_form_of_a_statement_has_a_reader_and_every_statement_a_renderer():
    assert set(parser.READERS) == {form.words for form in FORMS}
    assert {*render.RENDERERS, SetJobSecret, CreateSecret, AlterSecret} == set(get_args(Statement))


def test_everything_that_can_be_shown_or_granted_is_described():
    assert set(SHOWS) == set(Listing)
    assert set(PRIVILEGES) == set(Privilege)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_word_that_the_parser_looks_for_is_a_keyword(path):
    calls = re.findall(r"\.(?:see|take|need|phrase)\(((?:\"[A-Z_]+\"(?:, )?)+)", path.read_text())
    assert {word for call in calls for word in re.findall(r"[A-Z_]+", call)} <= KEYWORDS


def test_reserved_words_are_keywords_and_units_are_not_reserved():
    assert RESERVED <= KEYWORDS
    assert not RESERVED & set(UNITS)


@pytest.mark.parametrize("form", [*FORMS, *JOB_SECRET_FORMS], ids=lambda form: form.syntax[:40])
def test_every_form_says_how_it_is_written_and_what_it_does(form):
    assert form.syntax.startswith(" ".join(form.words))
    assert re.fullmatch(r"[A-Z].*\.", form.summary)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.heading)
def test_every_clause_says_how_it_is_written_and_what_it_does(clause):
    assert re.fullmatch(r"[A-Z].*\.", clause.summary)
    if clause.choices:
        assert clause.value == " | ".join(choice.upper() for choice in clause.choices)
    assert (clause.value.rpartition(" | ")[2] == clause.removed_by) == bool(clause.removed_by)


def test_the_language_is_not_loaded_by_rota_itself():
    code = "import sys, rota; sys.exit(any(name.startswith('rota.sql') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
