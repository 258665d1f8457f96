"""Organizations and users, tokens and browser sessions. Only digests of tokens and sessions are kept."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, row, rows, setting
from rota.stores.mongodb.errors import Refused

ORGANIZATION = ("_id", "display_name", "state", "max_running", "max_queued", "max_priority", "created_at")
USER = ("_id", "organization_id", "role", "permissions", "state", "created_at", "user_id")
TOKEN = ("_id", "name", "user_name", "permits", "created_by", "created_at", "expires_at", "revoked_at", "last_used_at")

DIGEST_BYTES, NAME_MAX = 32, 255


def _refuse(is_wrong: bool, why: str) -> None:  # noqa: FBT001 - it reads as a sentence
    """Refuse what other stores refuse by constraints."""
    if is_wrong:
        raise Refused(why)


# ---- organizations ---------------------------------------------------------------------------------------------------


@statement
def organizations(db: Db) -> list[Row]:
    """Return every organization."""
    return rows(db.find("organizations", {}, ORGANIZATION, sort=[("_id", 1)]), ORGANIZATION)


@statement
def organization(db: Db, *, name: str) -> list[Row]:
    """Return an organization."""
    return rows(db.find("organizations", {"_id": name}, ORGANIZATION), ORGANIZATION)


@statement
def put_organization(
    db: Db, *, name: str, display_name: str, max_running: int | None, max_queued: int | None, max_priority: int | None, now: int
) -> int:
    """Create or change an organization. Its state stays: only `set_organization_state` changes that."""
    limits = setting(display_name=display_name, max_running=max_running, max_queued=max_queued, max_priority=max_priority)
    created = {"state": "ACTIVE", "created_at": now, "signs": 0}
    return db.update("organizations", {"_id": name}, limits | {"$setOnInsert": created}, upsert=True)


@statement
def set_organization_state(db: Db, *, name: str, state: str) -> int:
    """Set the state of an organization."""
    return db.update("organizations", {"_id": name}, {"$set": {"state": state}})


# ---- users -----------------------------------------------------------------------------------------------------------


@statement
def users(db: Db) -> list[Row]:
    """Return every user."""
    return rows(db.find("users", {}, USER, sort=[("_id", 1)]), USER)


@statement
def user(db: Db, *, name: str) -> list[Row]:
    """Return a user."""
    return rows(db.find("users", {"_id": name}, USER), USER)


@statement
def put_user(db: Db, *, name: str, user_id: str | None, organization_id: str, role: str, permissions: str, actor: str, now: int) -> int:
    """Create or change a user, who is active then. One that is there keeps its id."""
    rights = {"organization_id": organization_id, "role": role, "permissions": permissions, "state": "ACTIVE", "updated_at": now}
    created = document(user_id=ident(user_id), created_by=actor, created_at=now)
    return db.update("users", {"_id": name}, {"$set": rights, "$setOnInsert": created}, upsert=True)


@statement
def remove_user(db: Db, *, name: str, now: int) -> int:
    """Mark a user as removed."""
    return db.update("users", {"_id": name}, {"$set": {"state": "REMOVED", "updated_at": now}})


@statement
def other_managers(db: Db, *, name: str) -> list[Row]:
    """Say whether another user is a system manager."""
    return [(db.has("users", {"role": "system_manager", "state": "ACTIVE", "_id": {"$ne": name}}),)]


# ---- tokens ----------------------------------------------------------------------------------------------------------


@statement
def add_token(
    db: Db,
    *,
    token_id: str,
    name: str,
    user_name: str | None,
    hash: bytes,  # noqa: A002 - the column's name
    permits: str,
    actor: str,
    now: int,
    expires_at: int | None,
) -> int:
    """Keep a new token; one that is there is left."""
    if db.has("tokens", {"_id": ident(token_id)}):
        return 0
    _refuse(len(hash) != DIGEST_BYTES, "a digest has 32 bytes")
    _refuse(not 1 <= len(name) <= NAME_MAX, "the name of a token has 1 to 255 characters")
    _refuse(expires_at is not None and expires_at <= now, "a token expires after it was created")
    _refuse(user_name is not None and not db.has("users", {"_id": user_name}), f"there is no user {user_name!r} in this store")
    columns = {"name": name, "user_name": user_name, "hash": hash, "permits": permits, "created_by": actor}
    return db.insert("tokens", document(_id=ident(token_id), created_at=now, expires_at=expires_at, **columns))


@statement
def tokens(db: Db) -> list[Row]:
    """Return every token, the newest first."""
    return rows(db.find("tokens", {}, TOKEN, sort=[("created_at", -1), ("_id", -1)]), TOKEN)


@statement
def token(db: Db, *, token_id: str) -> list[Row]:
    """Return a token."""
    return rows(db.find("tokens", {"_id": ident(token_id)}, TOKEN), TOKEN)


@statement
def token_by(db: Db, *, hash: bytes) -> list[Row]:  # noqa: A002
    """Return the token of a digest."""
    return rows(db.find("tokens", {"hash": hash}, TOKEN), TOKEN)


@statement
def revoke_token(db: Db, *, token_id: str, now: int) -> int:
    """Revoke a token that has not been revoked."""
    return db.update("tokens", {"_id": ident(token_id), "revoked_at": None}, {"$set": {"revoked_at": now}})


@statement
def note_token_use(db: Db, *, token_id: str, now: int) -> int:
    """Record that a token was used, unless it was used later."""
    where = {"_id": ident(token_id), "$or": [{"last_used_at": None}, {"last_used_at": {"$lt": now}}]}
    return db.update("tokens", where, {"$set": {"last_used_at": now}})


# ---- sessions --------------------------------------------------------------------------------------------------------


@statement
def add_session(db: Db, *, hash: bytes, token_id: str, now: int, expires_at: int) -> int:  # noqa: A002
    """Keep a session."""
    _refuse(not db.has("tokens", {"_id": ident(token_id)}), "a session needs a token")
    return db.insert("sessions", {"_id": hash, "token_id": ident(token_id), "created_at": now, "expires_at": expires_at})


@statement
def token_of_session(db: Db, *, hash: bytes, now: int) -> list[Row]:  # noqa: A002
    """Return the token behind a session that is open."""
    session = db.first("sessions", {"_id": hash} | _open_at(now), ("token_id",))
    return [] if session is None else token(db, token_id=session["token_id"])


@statement
def tokens_behind(db: Db, *, hashes: Sequence[str], now: int) -> list[Row]:
    """Return the tokens of these digests, and those behind open sessions of them: one row for each digest that is known."""
    digests = {"$in": [bytes.fromhex(digest) for digest in hashes]}
    by_hash = db.find("tokens", {"hash": digests}, (*TOKEN, "hash"))
    sessions = db.find("sessions", {"_id": digests} | _open_at(now), ("token_id",))
    behind: dict[str, Document] = {}
    if sessions:
        behind = {found["_id"]: found for found in db.find("tokens", {"_id": {"$in": [each["token_id"] for each in sessions]}}, TOKEN)}
    pairs = [(found["hash"], found) for found in by_hash]
    pairs += [(session["_id"], behind[session["token_id"]]) for session in sessions if session["token_id"] in behind]
    return [(digest.hex(), *row(found, TOKEN)) for digest, found in pairs]


@statement
def end_session(db: Db, *, hash: bytes, now: int) -> int:  # noqa: A002
    """End a session."""
    return db.update("sessions", {"_id": hash, "ended_at": None}, {"$set": {"ended_at": now}})


@statement
def end_sessions_of(db: Db, *, token_id: str, now: int) -> int:
    """End the sessions of a token."""
    return db.update("sessions", {"token_id": ident(token_id), "ended_at": None}, {"$set": {"ended_at": now}})


@statement
def forget_sessions(db: Db, *, before: int, limit: int) -> int:
    """Remove sessions that expired long ago."""
    old = db.find("sessions", {"expires_at": {"$lte": before}}, (), sort=[("expires_at", 1)], limit=limit)
    return db.delete("sessions", {"_id": {"$in": [session["_id"] for session in old]}}) if old else 0


def _open_at(now: int) -> Document:
    return {"ended_at": None, "expires_at": {"$gt": now}}
