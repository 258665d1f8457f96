"""Patterns of LIKE: % stands for any characters, _ for one."""

from __future__ import annotations

import re
from functools import lru_cache


def like(text: str, pattern: str) -> bool:
    """Say whether a text matches a pattern, in any case."""
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=100)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if letter == "%" else "." if letter == "_" else re.escape(letter) for letter in pattern)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
