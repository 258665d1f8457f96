"""The page about access has the table of permits, word for word, and the pages name what answers carry."""

from __future__ import annotations

from rota.model.access import PERMITS, Permit
from rota.model.gate import Right
from tests.docs.pages import page, rows

PAGE = page("docs/guide/access.md")


def test_the_page_has_the_whole_table_of_permits():
    shown = {row[0]: row[1] for row in rows(PAGE) if row[0] in set(Right)}
    assert shown == {str(operation): f"`{permit}`" for operation, permit in PERMITS.items()}


def test_every_permit_is_one_that_an_operation_needs():
    assert set(PERMITS.values()) == set(Permit)
