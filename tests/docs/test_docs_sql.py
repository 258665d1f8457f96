"""SQL in the docs that is meant for Rota is read by Rota."""

from __future__ import annotations

import pytest

from rota.sql.parser import parse_script
from tests.docs.pages import ROOT, blocks

PAGES = ("README.md", "docs/guide/sql.md", "docs/guide/organizations.md", "docs/reference/sql.md")
SCRIPTS = [block for page in PAGES for block in blocks(ROOT / page) if block.info == ("sql",)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda block: block.name)
def test_sql_in_the_docs_can_be_read(script):
    assert parse_script(script.text)


def test_there_are_scripts_to_read():
    assert {block.page for block in SCRIPTS} >= {"docs/guide/sql.md", "docs/reference/sql.md"}
