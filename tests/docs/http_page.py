"""docs/reference/http.md, written from the OpenAPI document: `python -m tests.docs.http_page` from the root writes it anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rota.surfaces.http import openapi
from rota.surfaces.http.app import routes
from rota.surfaces.http.openapi import ABOUT, codes, meaning, operations

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
PREFIX = "/api/v1"

HEAD = f"""\
# HTTP

Everything below `{PREFIX}`. A server describes itself at `{PREFIX}/openapi.json` (OpenAPI 3.1), and this page is written from that
document: `python -m tests.docs.http_page` writes it anew. The tour with examples is in [the guide](../guide/http.md); tokens are in
[access](../guide/access.md).

{ABOUT}"""

CODES = """\
## Problems

A refusal is `application/problem+json`: `type`, `title`, `status`, `code` and `detail`. The codes are those of [errors](errors.md), and a
few that only HTTP has. No 5xx tells what went wrong inside: the server's log does.

| status | code | when |
| --: | --- | --- |
"""


def document() -> dict[str, Any]:
    """Return the document of a server."""
    return openapi.document(routes())


def render(found: dict[str, Any]) -> str:
    """Return the page."""
    parts = [HEAD, CODES + "".join(f"| {int(status)} | `{code}` | {meaning(code)} |\n" for code, status in _sorted_codes())]
    for tag in found["tags"]:
        parts.append(f"## {tag['name']}\n\n{tag['description']}\n")
        parts += [_operation(path, method, said) for path, method, said in operations(found) if said["tags"] == [tag["name"]]]
    parts.append("## Values\n\nWhat requests and answers are made of, by name. An example of each is in the document.\n")
    taken = {name for _, _, said in operations(found) for name in re.findall(r"schemas/(\w+)", str(said.get("requestBody")))}
    for name, schema in sorted(found["components"]["schemas"].items()):
        parts.append(_value(name, schema, needed=set(schema.get("required", ())) if name in taken else set()))
    return "\n".join(parts)


def _sorted_codes() -> list[tuple[str, HTTPStatus]]:
    return sorted(codes().items(), key=lambda each: (each[1], each[0]))


def _operation(path: str, method: str, said: dict[str, Any]) -> str:
    lines = [
        f"### {method.upper()} {path.removeprefix(PREFIX)}",
        "",
        f"**{said['summary']}.** {said['description'].removeprefix(said['summary']).removeprefix('.').strip()}".rstrip(),
        "",
    ]
    rows = list(_parameters(said))
    if rows:
        lines += ["| parameter | in | type | |", "| --- | --- | --- | --- |", *rows, ""]
    lines += [*_body(said), _answers(said), ""]
    return "\n".join(lines)


def _parameters(said: dict[str, Any]) -> Iterator[str]:
    for one in said.get("parameters", ()):
        schema = one["schema"]
        default = "" if schema.get("default") is None else f" Default `{json.dumps(schema['default'])}`."
        words = one.get("description", schema.get("description", ""))
        yield f"| `{one['name']}` | {one['in']} | {_type(schema).removesuffix(' or null')} | {_cell(words + default)} |"


def _body(said: dict[str, Any]) -> Iterator[str]:
    for kind, media in said.get("requestBody", {}).get("content", {}).items():
        schema = media.get("schema", {})
        needed = "" if said["requestBody"].get("required") else ", which may be left out"
        yield f"Body (`{kind}`{needed}): {_type(schema)}."
        yield ""


def _answers(said: dict[str, Any]) -> str:
    good = [f"**{status}** {_answer(answer)}" for status, answer in said["responses"].items() if int(status) < 400]
    return f"Answers {'; '.join(good)}. Refusals: {', '.join(status for status in said['responses'] if int(status) >= 400)}."


def _answer(answer: dict[str, Any]) -> str:
    kinds = [_type(media["schema"]) if "schema" in media else f"`{kind}`" for kind, media in answer.get("content", {}).items()]
    return ", ".join(kinds) or "without a body"


def _value(name: str, schema: dict[str, Any], needed: set[str]) -> str:
    lines = [f"### {name}", "", " ".join(schema.get("description", schema.get("title", name)).split()), ""]
    if "enum" in schema:
        lines += [", ".join(f"`{word}`" for word in schema["enum"]), ""]
    if schema.get("properties"):
        lines += ["| field | type | |", "| --- | --- | --- |"]
        for field, said in schema["properties"].items():
            words = ("Needed. " if field in needed else "") + said.get("description", "")
            lines.append(f"| `{field}` | {_type(said)} | {_cell(words)} |")
        lines.append("")
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items') or {})}"
    if kind == "object" and "items" in schema.get("properties", {}):
        paged = "page" if "next" in schema["properties"] else "list (`items`)"
        return f"{paged} of {_type(schema['properties']['items']['items'])}"
    return str(schema.get("format") or kind)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    PAGE.write_text(render(document()))
