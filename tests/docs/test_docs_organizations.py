"""The page about organizations has the gate's table, word for word."""

from __future__ import annotations

from rota.model.gate import RIGHTS, Right, Role
from tests.docs.pages import page, rows

PAGE = page("docs/guide/organizations.md")


def test_the_page_has_the_whole_table_of_rights():
    shown = {row[0]: row[1:] for row in rows(PAGE) if row[0] in set(Right)}
    assert shown == {str(operation): [str(RIGHTS[operation][role]) for role in Role] for operation in Right}


def test_the_columns_of_the_table_are_the_roles_in_their_order():
    assert f"| may | {' | '.join(f'`{role}`' for role in Role)} |" in PAGE
