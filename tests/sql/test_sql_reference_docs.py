"""The reference page has every statement, clause and privilege, and its examples are statements."""

from __future__ import annotations

import re

from rota.model.grants import PRIVILEGES
from rota.sql.grammar import CLAUSES, FORMS, JOB_SECRET_FORMS
from rota.sql.parser import parse_script
from rota.sql.render import render
from tests.docs.pages import ROOT, rows
from tests.sql.reference import EXAMPLE, page

PAGE = ROOT / "docs/reference/sql.md"


def test_the_page_has_every_statement_clause_and_privilege_and_what_it_means():
    cells = {row[0].strip("`").replace("\\|", "|"): row[1] for row in rows(page())}
    for form in (*FORMS, *JOB_SECRET_FORMS):
        assert cells.pop(form.syntax) == form.summary
    for clause in CLAUSES:
        assert cells.pop(clause.syntax) == clause.summary
    for privilege in PRIVILEGES:
        assert cells.pop(privilege)
    assert [name.split()[0].partition("(")[0] for name in cells] == ["AS", "CALL", "EXEC"]


def test_the_example_of_the_page_is_a_script():
    assert len(parse_script(EXAMPLE)) == 5
    assert [render(parsed.statement) for parsed in parse_script(EXAMPLE)][2] == "EXECUTE JOB nightly_report;"


def test_the_page_has_one_sentence_a_line():
    prose = [line for line in re.sub(r"```.*?```", "", page(), flags=re.DOTALL).splitlines() if line and line[0] not in "#|"]
    assert not [line for line in prose if re.search(r"[.!?] [A-Z]", line) or line[-1] not in ".:"]


def test_once_published_the_page_is_the_one_made_from_the_grammar():
    assert not PAGE.exists() or PAGE.read_text() == page()
