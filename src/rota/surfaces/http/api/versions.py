"""Versions of what people edit, as ETags: an edit can say which one it means."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, HTTPException

TAG = re.compile(r'"(\d{1,18})"')

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=200,
        description="The `ETag` that you have seen: refused with 412 if it has another version by now. `*`, or none: any will do.",
        examples=['"3"'],
    ),
]


def seen(if_match: str | None) -> int | None:
    """Return the version that a request means, None for any. A tag that was never given is nobody's version."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = TAG.fullmatch(if_match.strip())
    if found is None:
        raise HTTPException(412, f'If-Match: {if_match!a} is not what it has: give the ETag that you have seen, such as "3"')
    return int(found[1])


def etag(version: int) -> dict[str, str]:
    """Return the header that tells a version."""
    return {"ETag": f'"{version}"'}
