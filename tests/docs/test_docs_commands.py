"""The page about external commands has every key of the operator's file with its default, and its example is one that is taken."""

from __future__ import annotations

import re
import tomllib

from rota.runners.external.config import EXIT_CODES, KEYS, ExternalConfig, Limits
from tests.docs.pages import page, rows

PAGE = page("docs/operations/commands.md")
TABLE = {row[0].strip("`"): row[1].strip("`") for row in rows(PAGE) if re.fullmatch(r"`[a-z_]+`", row[0])}
LIMITS = Limits.__struct_fields__
OTHERS = ("programs", "isolation", "bubblewrap", "network", "readable", "retry")


def test_the_page_has_every_key_and_no_other():
    assert list(TABLE) == [*KEYS, *LIMITS, *EXIT_CODES]


def test_the_page_has_the_default_of_every_limit():
    assert {name: TABLE[name] for name in LIMITS} == {name: str(getattr(Limits(), name)) for name in LIMITS}


def test_the_page_has_the_defaults_of_other_keys():
    usual = ExternalConfig(source="", directory="/")
    shown = {name: tomllib.loads(f"x = {TABLE[name]}")["x"] for name in OTHERS}
    assert shown == {
        "programs": list(usual.programs),
        "isolation": usual.isolation,
        "bubblewrap": usual.bubblewrap,
        "network": usual.network,
        "readable": list(usual.readable),
        "retry": sorted(usual.retry),
    }


def test_the_example_of_the_page_has_keys_that_are_known():
    example = PAGE.partition("```toml\n")[2].partition("```")[0]
    document = tomllib.loads(example)
    assert set(document) <= set(KEYS)
    Limits(**document["limits"])
