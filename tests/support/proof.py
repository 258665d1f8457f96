"""How large a property is run: small in every test run, large where it is to be proved."""

from __future__ import annotations

import os


def size(usual: int, *, prove: int) -> int:
    """Return how many times to do something: `prove` if the environment variable ROTA_PROVE is set, else `usual`."""
    return prove if os.environ.get("ROTA_PROVE") else usual
