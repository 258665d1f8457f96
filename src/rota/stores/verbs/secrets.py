"""Secrets in SQL: what is kept of them is encrypted. Each change is audited by name; the version of the definitions stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from rota.errors import Refused, StillNeeded
from rota.model.gate import Actor
from rota.model.grants import SHOWN
from rota.model.secrets import KeyUse, Put, Rewrapped, Seal, Sealed, Secret, SecretPlace, SecretUse, no_secret
from rota.model.values import Instant, dashed, moment, moment_of, undashed
from rota.model.webhooks import SigningSecret, sealing_key
from rota.stores.verbs import grants
from rota.stores.verbs.connections import still_needed
from rota.stores.verbs.db import Db, audit

FIRST_ID = "0" * 32


def put_secret(db: Db, place: SecretPlace, seal: Seal, *, put: Put, secret_id: str, actor: Actor, now: Instant) -> Secret:
    """Set the value of a secret."""
    there = _there(db, place)
    if there is not None and put is Put.NEW:
        raise Refused(f"there is a {place} already: change its value, or choose another name")
    if there is None and (put is Put.EXISTING or not _has_job(db, place)):
        raise no_secret(place)
    sealed = seal(1 if there is None else there.version + 1)
    values = {"version": sealed.version, "key_id": sealed.key_id, "wrapped": sealed.wrapped, "sealed_body": sealed.body, "now": now}
    if there is None:
        where = {"organization_id": place.organization, "name": place.name, "schedule_id": place.job}
        db.change("add_stored_secret", secret_id=undashed(secret_id), actor=actor.name, **where, **values)
    else:
        db.change("change_stored_secret", secret_id=undashed(there.id), **values)
    _audit(db, place, "secret.create" if there is None else "secret.change", actor, now, after={"version": sealed.version})
    found = _there(db, place)
    assert found is not None  # noqa: S101 - it was written above
    return found


def drop_secret(db: Db, place: SecretPlace, *, actor: Actor, now: Instant) -> None:
    """Remove a secret and the grants on it."""
    there = _there(db, place)
    if there is None:
        raise no_secret(place)
    if place.job is None:
        users = [name for (name,) in db.rows("users_of_secret", organization_id=place.organization, name=place.name, limit=SHOWN + 1)]
        if users:
            raise still_needed(str(place), users, "name it: change")
        naming = [
            name for (name,) in db.rows("connections_naming_secret", organization_id=place.organization, name=place.name, limit=SHOWN)
        ]
        if naming:
            raise StillNeeded(f"{place} can't be dropped while connections name it: change {', '.join(naming)} first")
        grants.remove_those_on_secret(db, place, actor, now)
    _drop(db, there, place.job, actor, now)


def drop_those_of_job(db: Db, schedule_id: str, actor: Actor, now: Instant) -> None:
    """Remove the secrets of a job that is dropped."""
    for row in db.rows("secrets_of_job", schedule_id=schedule_id):
        _drop(db, _secret(row), schedule_id, actor, now)


def _drop(db: Db, secret: Secret, job: str | None, actor: Actor, now: Instant) -> None:
    db.change("drop_stored_secret", secret_id=undashed(secret.id))
    _audit(db, SecretPlace(secret.organization, secret.name, job), "secret.drop", actor, now, before={"version": secret.version})


def stored_secrets(db: Db) -> list[Secret]:
    """Return every secret."""
    return [_secret(row) for row in db.rows("stored_secrets")]


def sealed_secrets(db: Db, organization: str, job: str | None, names: Collection[str]) -> list[Sealed]:
    """Return what a run of a job is given."""
    return [_sealed(row) for row in db.rows("sealed_secrets", organization_id=organization, schedule_id=job, names=sorted(names))]


def note_secrets_used(db: Db, uses: Sequence[SecretUse], *, now: Instant) -> None:
    """Record which runs were given which secrets."""
    ids = sorted({str(undashed(each.id)) for use in uses for each in use.secrets})
    if not ids:
        return
    db.change("note_secrets_used", secret_ids=ids, now=now)
    for use in uses:
        if use.secrets:
            after = {"secrets": sorted(each.name for each in use.secrets)}
            actor, run = Actor(use.owner, use.organization), str(undashed(use.run))
            audit(db, actor, now, "secret.use", ("job", run), after=after, organization=use.organization, job=use.job)


# ---- master keys ------------------------------------------------------------------------------------------------------


def secrets_to_rewrap(db: Db, key_id: str, *, after: str, limit: int) -> list[Sealed]:
    """Return secrets that are under another master key."""
    return [_sealed(row) for row in db.rows("secrets_to_rewrap", key_id=key_id, after_id=after or FIRST_ID, limit=limit)]


def rewrap_secrets(db: Db, rewrapped: Sequence[Rewrapped], *, actor: Actor, now: Instant) -> int:
    """Put secrets under another master key."""
    done: Counter[tuple[str, str]] = Counter()
    for each in rewrapped:
        before, after = each.before, each.after
        values = {"secret_id": undashed(before.id), "version": before.version, "old_key_id": before.key_id}
        if db.change("rewrap_secret", key_id=after.key_id, wrapped=after.wrapped, **values):
            done[before.organization, after.key_id] += 1
    for (organization, key_id), count in done.items():
        told = {"secrets": count, "key_id": key_id}
        audit(db, actor, now, "secret.rotate", ("organization", organization), after=told, organization=organization)
    return done.total()


def signing_secrets(db: Db, *, after: str, limit: int) -> list[SigningSecret]:
    """Return the secrets that sign webhooks as they are stored."""
    return [SigningSecret(*row) for row in db.rows("signing_secrets", after_owner=after, limit=limit)]


def reseal_signing(db: Db, changes: Sequence[tuple[SigningSecret, SigningSecret]], *, actor: Actor, now: Instant) -> int:
    """Replace secrets that sign webhooks by the same ones under another key."""
    done: Counter[str] = Counter()
    for before, after in changes:
        was = {"old_secret": before.secret, "old_previous": before.previous}
        if db.change("reseal_signing", owner=before.owner, secret=after.secret, previous=after.previous, **was):
            done[sealing_key(after.secret) or ""] += 1
    for key_id, count in done.items():
        audit(db, actor, now, "secret.rotate", ("webhook", "*"), after={"webhooks": count, "key_id": key_id}, organization=None)
    return done.total()


def master_keys(db: Db) -> list[KeyUse]:
    """Return how much is encrypted with each master key."""
    secrets, webhooks = dict(db.rows("keys_of_secrets")), dict(db.rows("keys_of_signing"))
    return [KeyUse(key_id, secrets.get(key_id, 0), webhooks.get(key_id, 0)) for key_id in sorted({*secrets, *webhooks})]


# ---- rows -------------------------------------------------------------------------------------------------------------


def _there(db: Db, place: SecretPlace) -> Secret | None:
    row = db.row("stored_secret", organization_id=place.organization, name=place.name, schedule_id=place.job)
    return None if row is None else _secret(row)


def _has_job(db: Db, place: SecretPlace) -> bool:
    return place.job is None or bool(db.value("job_is_there", schedule_id=place.job))


def _audit(db: Db, place: SecretPlace, action: str, actor: Actor, now: Instant, *, before: Any = None, after: Any = None) -> None:
    audit(db, actor, now, action, ("secret", place.name), before=before, after=after, organization=place.organization, job=place.job)


def _secret(row: tuple[Any, ...]) -> Secret:
    secret_id, organization, name, job, job_id, version, key_id, created_by, created_at, updated_at, last_used_at = row
    return Secret(
        id=dashed(secret_id),
        organization=organization,
        name=name,
        job=job,
        job_id=dashed(job_id) if job_id else None,
        version=version,
        key_id=key_id,
        created_by=created_by,
        created_at=moment_of(created_at),
        updated_at=moment_of(updated_at),
        last_used_at=moment(last_used_at),
    )


def _sealed(row: tuple[Any, ...]) -> Sealed:
    secret_id, organization, name, job, version, key_id, wrapped, body = row
    return Sealed(
        id=secret_id,
        organization=organization,
        name=name,
        job=job or None,
        version=version,
        key_id=key_id,
        wrapped=bytes(wrapped),
        body=bytes(body),
    )
