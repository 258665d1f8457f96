"""The MCP server: Rota's operations as tools for language models. The package `mcp` is imported when the first client connects."""

from rota.model.checks import extra

MISSING = f"the MCP server is not installed here: {extra('mcp')}"
