"""What a path names and is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rota.errors import NotFound, UnknownOrganization, UnknownTemplate


@contextmanager
def named_in_path() -> Iterator[None]:
    """Let a name in the path that is nobody's be a 404; in a body, where it is a wrong value, it stays a 422."""
    try:
        yield
    except (UnknownTemplate, UnknownOrganization) as error:
        raise NotFound(str(error)) from None
