"""Organizations, users, tokens and sessions in SQL. A change of the first two advances the definitions' version."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from rota.errors import NotFound, Refused, UnknownOrganization
from rota.model.access import Permit, Token
from rota.model.audit import Outcome
from rota.model.definitions import Organization, OrganizationState, User
from rota.model.gate import Actor, Right, Role
from rota.model.stored_settings import Stored
from rota.model.values import Held, Instant, dashed, instant, moment, moment_of, undashed
from rota.stores.verbs import grants
from rota.stores.verbs.db import Db, audit
from rota.stores.verbs.limits import offer_again

DEFAULT = "default"
_CHANGED = {OrganizationState.ACTIVE: "resume", OrganizationState.SUSPENDED: "suspend", OrganizationState.REMOVED: "remove"}
_strings = msgspec.json.Decoder(tuple[str, ...])
_permits = msgspec.json.Decoder(tuple[Permit, ...])


def put_organization(db: Db, organization: Organization, *, actor: Actor, now: Instant) -> None:
    """Make or change an organization."""
    name = organization.name
    present = _organization(db, name)
    before, after = None if present is None else _limits(present), _limits(organization)
    if before == after:
        return
    db.change("put_organization", name=name, now=now, **after)
    db.change("advance_definitions")
    word = "create" if present is None else "change"
    audit(db, actor, now, f"organization.{word}", ("organization", name), before=before, after=after, organization=name)
    if present is not None and present.max_running != organization.max_running:
        offer_again(db, f"{Held.ORGANIZATION_LIMIT}:{name}")


def set_organization_state(db: Db, name: str, state: OrganizationState, *, actor: Actor, now: Instant) -> None:
    """Suspend, resume or remove an organization."""
    present = _organization(db, name)
    if present is None:
        raise UnknownOrganization(f"there is no organization {name!r} in this store")
    if present.state is state:
        return
    if name == DEFAULT and state is OrganizationState.REMOVED:
        raise Refused(f"organization {DEFAULT!r} can't be removed: jobs that name no organization are its; suspend it instead")
    db.change("set_organization_state", name=name, state=state)
    db.change("advance_definitions")
    before, after = {"state": present.state}, {"state": state}
    audit(db, actor, now, f"organization.{_CHANGED[state]}", ("organization", name), before=before, after=after, organization=name)
    if state is not OrganizationState.SUSPENDED:
        # Resumed, they may run; removed, they are to fail: both need a claim that meets them.
        offer_again(db, f"{Held.SUSPENDED}:{name}")


def organizations(db: Db) -> list[Organization]:
    """Return every organization."""
    return [_organization_from(row) for row in db.rows("organizations")]


def put_user(db: Db, user: User, *, actor: Actor, now: Instant) -> None:
    """Make or change a user; one that was removed comes back."""
    organization = _organization(db, user.organization)
    if organization is None or organization.state is OrganizationState.REMOVED:
        raise UnknownOrganization(f"there is no organization {user.organization!r} that could have users: make it, or resume it, first")
    present = _user(db, user.name)
    before, after = None if present is None else _rights(present), _rights(user)
    if before == after:
        return
    if user.role is not Role.MANAGER:
        _keep_a_manager(db, present)
    permissions = msgspec.json.encode(user.permissions).decode()
    db.change(
        "put_user",
        name=user.name,
        user_id=None if user.id is None else undashed(user.id),
        organization_id=user.organization,
        role=user.role,
        permissions=permissions,
        actor=actor.name,
        now=now,
    )
    if present is not None and present.organization != user.organization:
        grants.remove_those_of_user(db, present, _by_name(db), actor, now)
    db.change("advance_definitions")
    # Who moves between organizations is the business of neither: only a system manager reads that entry.
    moved = present is not None and present.organization != user.organization
    word = "add" if present is None or present.removed else "change"
    audit(
        db,
        actor,
        now,
        f"user.{word}",
        ("user", user.name),
        before=before,
        after=after,
        organization=None if moved else user.organization,
    )


def remove_user(db: Db, name: str, *, actor: Actor, now: Instant) -> None:
    """Mark a user as removed."""
    present = _user(db, name)
    if present is None:
        raise NotFound(f"there is no user {name!r} in this store")
    if present.removed:
        return
    _keep_a_manager(db, present)
    db.change("remove_user", name=name, now=now)
    grants.remove_those_of_user(db, present, _by_name(db), actor, now)
    db.change("advance_definitions")
    audit(db, actor, now, "user.remove", ("user", name), before=_rights(present), organization=present.organization)


def users(db: Db) -> list[User]:
    """Return every user."""
    return [_user_from(row) for row in db.rows("users")]


def _by_name(db: Db) -> dict[str, User]:
    return {user.name: user for user in users(db)}


def _keep_a_manager(db: Db, present: User | None) -> None:
    """Refuse to take the rights of the last system manager: nobody could give them back by name."""
    if present is None or present.removed or present.role is not Role.MANAGER or db.value("other_managers", name=present.name):
        return
    raise Refused(f"{present.name!r} is the last system manager of this store: make another one first")


def _organization(db: Db, name: str) -> Organization | None:
    row = db.row("organization", name=name)
    return None if row is None else _organization_from(row)


def _organization_from(row: tuple[Any, ...]) -> Organization:
    return Organization(
        name=row[0],
        display_name=row[1],
        state=OrganizationState(row[2]),
        max_running=row[3],
        max_queued=row[4],
        max_priority=row[5],
        created_at=moment(row[6]),
    )


def _limits(organization: Organization) -> dict[str, Any]:
    return {name: getattr(organization, name) for name in ("display_name", "max_running", "max_queued", "max_priority")}


def _user(db: Db, name: str) -> User | None:
    row = db.row("user", name=name)
    return None if row is None else _user_from(row)


def _user_from(row: tuple[Any, ...]) -> User:
    return User(
        id=dashed(row[6]) if row[6] else None,
        name=row[0],
        organization=row[1],
        role=Role(row[2]),
        permissions=_strings.decode(row[3]),
        removed=row[4] == "REMOVED",
        created_at=moment(row[5]),
    )


def _rights(user: User) -> dict[str, Any]:
    return {"organization": user.organization, "role": user.role, "permissions": user.permissions, "removed": user.removed}


def tokens(db: Db) -> list[Token]:
    """Return every token."""
    return [_token(row) for row in db.rows("tokens")]


def token_by(db: Db, digest: bytes) -> Token | None:
    """Return the token of this digest."""
    row = db.row("token_by", hash=digest)
    return None if row is None else _token(row)


def note_use(db: Db, token_id: str, *, now: Instant) -> None:
    """Write down that a token was used."""
    db.change("note_token_use", token_id=undashed(token_id), now=now)


def add_session(db: Db, digest: bytes, token_id: str, *, now: Instant, expires_at: Instant) -> None:
    """Keep a session."""
    db.change("add_session", hash=digest, token_id=undashed(token_id), now=now, expires_at=expires_at)


def session(db: Db, digest: bytes, *, now: Instant) -> Token | None:
    """Return the token behind a session."""
    row = db.row("token_of_session", hash=digest, now=now)
    return None if row is None else _token(row)


def tokens_behind(db: Db, digests: Collection[bytes], *, now: Instant) -> dict[bytes, Token]:
    """Return the token of each of these digests."""
    hashes = [digest.hex() for digest in digests]
    return {bytes.fromhex(hash_): _token(row) for hash_, *row in db.rows("tokens_behind", hashes=hashes, now=now)}


def end_session(db: Db, digest: bytes, *, now: Instant) -> None:
    """End a session."""
    db.change("end_session", hash=digest, now=now)


def forget_sessions(db: Db, *, before: Instant, limit: int) -> int:
    """Remove old sessions."""
    return db.change("forget_sessions", before=before, limit=limit)


def add_token(db: Db, token: Token, digest: bytes, *, actor: Actor, now: Instant) -> None:
    """Keep a new token."""
    added = db.change(
        "add_token",
        token_id=undashed(token.id),
        name=token.name,
        user_name=token.user,
        hash=digest,
        permits=msgspec.json.encode(token.permits).decode(),
        actor=token.created_by,
        now=now,
        expires_at=None if token.expires_at is None else instant(token.expires_at),
    )
    if added:
        audit(db, actor, now, "token.create", ("token", str(undashed(token.id))), after=_shown(token))


def revoke_token(db: Db, token_id: str, *, actor: Actor, now: Instant) -> Token:
    """Let a token open nothing any more."""
    token_id = str(undashed(token_id))
    row = db.row("token", token_id=token_id)
    if row is None:
        raise NotFound(f"there is no token {dashed(token_id)} in this store")
    if db.change("revoke_token", token_id=token_id, now=now):
        db.change("end_sessions_of", token_id=token_id, now=now)
        audit(db, actor, now, "token.revoke", ("token", token_id), before=_shown(_token(row)))
    found = db.row("token", token_id=token_id)
    assert found is not None  # noqa: S101 - it was there above, in this transaction
    return _token(found)


def _shown(token: Token) -> dict[str, Any]:
    return {"name": token.name, "user": token.user, "permits": token.permits}


def _token(row: Sequence[Any]) -> Token:
    token_id, name, user, permits, created_by, created_at, expires_at, revoked_at, last_used_at = row
    created = moment(created_at)
    assert created is not None  # noqa: S101 - NOT NULL
    return Token(
        id=dashed(token_id),
        name=name,
        user=user,
        permits=_permits.decode(permits),
        created_by=created_by,
        created_at=created,
        expires_at=moment(expires_at),
        revoked_at=moment(revoked_at),
        last_used_at=moment(last_used_at),
    )


# ---- settings --------------------------------------------------------------------------------------------------------


def stored_settings(db: Db) -> list[Stored]:
    """Return every setting that the store keeps."""
    return [Stored(name=name, value=value, set_by=by, set_at=moment_of(at)) for name, value, by, at in db.rows("stored_settings")]


def put_setting(db: Db, name: str, value: str | None, *, actor: Actor, now: Instant) -> None:
    """Set a setting, or remove it if the value is None."""
    before = db.value("stored_setting", name=name)
    if before == value:
        return
    if value is None:
        db.change("reset_setting", name=name)
    else:
        db.change("set_setting", name=name, value=value, actor=actor.name, now=now)
    db.change("advance_definitions")
    sides = [None if side is None else {"value": side} for side in (before, value)]
    action = "setting.reset" if value is None else "setting.set"
    audit(db, actor, now, action, ("setting", name), before=sides[0], after=sides[1], organization=None)


# ---- refusals ---------------------------------------------------------------------------------------------------------


def record_denial(db: Db, actor: Actor | str, right: Right, why: str, *, now: Instant) -> None:
    """Enter a refusal of the gate into the audit trail; a name that is nobody's belongs to no organization."""
    who = Actor(actor) if isinstance(actor, str) else actor
    organization = None if isinstance(actor, str) else who.organization
    after = {"right": right.value, "reason": why[:REASON_MAX]}
    audit(db, who, now, "access.deny", ("right", right.name), after=after, organization=organization, outcome=Outcome.DENIED)


REASON_MAX = 500
"""Characters of a refusal that are kept."""
