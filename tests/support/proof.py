"""How large a test is: small in `make test`, full size in `make prove`.

A test that uses it is marked `prove`, so that `make prove` finds it.
"""

from __future__ import annotations

import os


def size(usual: int, *, prove: int) -> int:
    """Return the usual size, or the full one where ROTA_PROVE is set."""
    return prove if proving() else usual


def proving() -> bool:
    """Say whether this run is at full size."""
    return bool(os.environ.get("ROTA_PROVE"))
