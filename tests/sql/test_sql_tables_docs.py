"""The reference page of sys is the one made from the catalog, and its examples are queries."""

from __future__ import annotations

import re

from rota.sql.catalog import TABLES
from tests.docs.pages import ROOT
from tests.sql.tables_reference import HEAD, page
from tests.sql.world import MANAGER

PAGE = ROOT / "docs/reference/sys-tables.md"


def test_the_docs_have_every_table_and_column_as_the_catalog_has_them():
    assert PAGE.read_text() == page(), "run python -m tests.sql.tables_reference > docs/reference/sys-tables.md"
    assert re.findall(r"^## sys\.(\w+)$", page(), re.MULTILINE) == list(TABLES)


def test_the_examples_in_the_docs_of_sys_are_answered(world):
    (block,) = re.findall(r"```sql\n(.*?)```", HEAD, re.DOTALL)
    for text in block.split(";\n")[:-1]:
        assert world.result(MANAGER, text).columns
