"""The page about MCP names the tools that there are."""

from __future__ import annotations

import json
import re

from rota.surfaces.mcp.tools import all_tools
from tests.docs.pages import page

PAGE = page("docs/guide/mcp.md")


def test_docs_mcp_names_every_tool_and_no_other():
    table = PAGE.partition("## Tools")[2]
    assert re.findall(r"`(\w+)`", table) == list(all_tools())


def test_docs_mcp_configurations_are_json():
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert [list(json.loads(block)) for block in blocks] == [["mcpServers"]] * 2
