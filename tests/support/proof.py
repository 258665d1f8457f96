"""Sizes of proofs: the usual one takes seconds, the large one is for `make prove`."""

from __future__ import annotations

import os


def size(usual: int, *, prove: int) -> int:
    """Return the size to use: the large one if ROTA_PROVE is set."""
    return prove if os.environ.get("ROTA_PROVE") else usual
