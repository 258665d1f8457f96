"""What a group is, derived from the tails of its members' chains; never stored, so it can't disagree with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.model.states import GroupStatus, Status


class Member(msgspec.Struct, frozen=True):
    """One member of a group: its place and the tail of its chain."""

    sequence_number: int
    root_id: str
    number: str
    job_type: str
    status: Status
    attempt: int
    started: bool


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """The job that follows a group, by the tail of its chain."""

    root_id: str
    number: str
    job_type: str
    status: Status
    on_parent_failure: str
    """What becomes of it if a member ends badly."""


class Group(msgspec.Struct, kw_only=True, frozen=True):
    """Jobs that belong together."""

    id: str
    name: str | None
    mode: str
    on_failure: str
    status: GroupStatus
    created_at: datetime
    members: tuple[Member, ...]
    organization: str = "default"
    owner: str = "local"
    """Who made it."""
    then: Follower | None = None
    """What is queued when all of them have ended."""


class Mode(StrEnum):
    """How members follow each other."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


class OnFailure(StrEnum):
    """What happens to members not yet started when a chain ends badly."""

    STOP = "stop"
    CONTINUE = "continue"
    SKIP = "skip"


USUAL_RULE: dict[Mode, OnFailure] = {Mode.SEQUENTIAL: OnFailure.STOP, Mode.PARALLEL: OnFailure.CONTINUE}
"""The rule of a group that names none: members that do not follow each other do not depend on each other either."""

PREDECESSOR_FAILED = "predecessor failed"

ENDED_WELL = frozenset({Status.COMPLETED, Status.SKIPPED})

REST_ENDS: dict[OnFailure, Status] = {OnFailure.STOP: Status.CANCELLED, OnFailure.SKIP: Status.SKIPPED}
"""How the members not yet started end after a bad end; `continue` lets them be."""


def derive(members: Sequence[Member]) -> GroupStatus:
    """Return the status of a group from its members."""
    if all(member.status.ended for member in members):
        return ended_as([member.status for member in members])
    if any(member.started or member.status.ended for member in members):
        return GroupStatus.RUNNING
    return GroupStatus.QUEUED


def ended_as(tails: Sequence[Status]) -> GroupStatus:
    """Return the status of a group whose chains have all ended so; each end need be named only once."""
    if all(tail in ENDED_WELL for tail in tails):
        return GroupStatus.COMPLETED
    if all(tail is Status.CANCELLED for tail in tails):
        return GroupStatus.CANCELLED
    return GroupStatus.PARTIAL
