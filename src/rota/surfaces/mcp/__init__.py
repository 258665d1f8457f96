"""The MCP server: Rota's operations as tools for language models. The package `mcp` is imported when the first client connects."""

MISSING = "the MCP server is not installed here: `pip install 'rota[mcp]'` adds it"
