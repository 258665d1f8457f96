"""How large a property is tried: small in the usual run, at full size by `make prove`."""

from __future__ import annotations

import os


def size(usual: int, *, prove: int) -> int:
    """Return the size of a property: `prove` where the environment variable ROTA_PROVE is set, else `usual`."""
    return prove if os.environ.get("ROTA_PROVE") else usual
