"""The page about states is the table of legal moves, drawn."""

from __future__ import annotations

import re

from rota.model.states import BORN, MOVES, TERMINAL, Status
from tests.docs.pages import page, rows

STATES = page("docs/internals/states.md")
ARROWS = set(re.findall(r"^    (\S+) --> (\S+)$", STATES, re.MULTILINE))
LEGAL = {(before, after) for before, ends in MOVES.items() for after in ends}


def test_the_diagram_has_exactly_the_legal_moves():
    assert {arrow for arrow in ARROWS if "[*]" not in arrow} == LEGAL


def test_the_diagram_is_entered_where_jobs_are_born_and_left_where_they_end():
    assert {after for before, after in ARROWS if before == "[*]"} == BORN
    assert {before for before, after in ARROWS if after == "[*]"} == TERMINAL


def test_the_table_has_exactly_the_legal_moves_each_with_its_meaning():
    listed = {(row[0], row[1]) for row in rows(STATES) if len(row) == 3}
    assert listed == LEGAL | {("(new)", state) for state in BORN}


def test_every_state_is_named_in_the_python_reference():
    assert all(state in page("docs/reference/python.md") for state in Status)
