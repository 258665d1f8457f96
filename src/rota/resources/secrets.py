"""Secrets: values that jobs are given, encrypted in the store. No operation returns a value. SQL's statements call these functions, too."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Annotated

import msgspec

from rota.errors import SecretUnavailable
from rota.model.gate import Actor, Right, uses
from rota.model.grants import TargetKind
from rota.model.schedules import Schedule
from rota.model.secrets import Put, Rewrapped, Secret, SecretPlace, check_secret_name, check_secret_value, no_secret
from rota.model.shapes import TEXT_MAX, Organization, Shape
from rota.model.values import undashed
from rota.model.webhooks import SigningSecret, sealing_key
from rota.operation import Ask, Resource, operation
from rota.schedule_views import in_scope, named
from rota.vault import Keyring, reseal_signing, rewrap, seal

BATCH = 100
"""Secrets that one transaction puts under another key."""
PASSES_MAX = 10
"""A process that still encrypts with an old key is not waited for any longer: what it has written is left, and reported."""

SecretName = Annotated[str, Shape("The secret's name: letters, digits and _.", "DB_PASSWORD", "NAME")]
Value = Annotated[str, Shape("Its value, at most 65,536 bytes.", "correct horse battery staple", "VALUE", hidden=True)]
JobName = Annotated[
    str | None,
    Shape(
        "The job that alone has it, by the name of its schedule. Default: none, so that it is the organization's.",
        "nightly",
        "NAME",
        most=TEXT_MAX,
    ),
]


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a rotation."""

    key_id: str
    """The first key, under which everything is to be."""
    secrets: int
    """Secrets that were put under it."""
    webhooks: int
    """Webhook secrets that were put under it, or were not encrypted before."""
    left: int
    """How much is still under other keys. While there is any, the old keys are needed."""
    missing: tuple[str, ...] = ()
    """The keys of those that could not be opened: they are not in the key file."""


class Secrets(Resource):
    """The secrets of organizations and of single jobs."""

    __slots__ = ()

    @operation(Right.READ, http="GET /secrets", cli="secret list")
    def list(self, ask: Ask, *, job: JobName = None, organization: Organization = None) -> builtins.list[Secret]:
        """Return the secrets that the actor may see, without their values: an admin all of its organization, a user those it may use.

        With `job`, those of this job alone.
        """
        schedule = None if job is None else named(ask, job, organization)
        return [
            secret
            for secret in visible_secrets(ask)
            if organization in {None, secret.organization} and (schedule is None or undashed(secret.job_id or "") == schedule.id)
        ]

    @operation(Right.READ, http="GET /secrets/{name}", cli="secret get")
    def get(self, ask: Ask, name: SecretName, *, job: JobName = None, organization: Organization = None) -> Secret:
        """Return what is known of a secret: its version, its key and when it was used last, never its value."""
        place = place_of(ask, name, job, organization)
        for secret in visible_secrets(ask):
            if (secret.organization, secret.name, undashed(secret.job_id or "")) == (place.organization, place.name, place.job):
                return secret
        raise no_secret(place)

    @operation(Right.MANAGE_SECRETS, http="POST /secrets", cli="secret create", status=201)
    def create(self, ask: Ask, name: SecretName, value: Value, *, job: JobName = None, organization: Organization = None) -> Secret:
        """Create a secret. It is encrypted with the first master key."""
        return put(ask, place_of(ask, name, job, organization), value, Put.NEW)

    @operation(Right.MANAGE_SECRETS, http="PUT /secrets/{name}", cli="secret set")
    def update(self, ask: Ask, name: SecretName, value: Value, *, job: JobName = None, organization: Organization = None) -> Secret:
        """Set the value of a secret, creating the secret if there is none. Runs that start from now on are given this value."""
        return put(ask, place_of(ask, name, job, organization), value, Put.EITHER)

    @operation(Right.MANAGE_SECRETS, http="DELETE /secrets/{name}", cli="secret delete", status=204, confirm="Delete secret {name}?")
    def delete(self, ask: Ask, name: SecretName, *, job: JobName = None, organization: Organization = None) -> None:
        """Delete a secret and the grants on it. It is refused while a job names the secret."""
        drop(ask, place_of(ask, name, job, organization))

    @operation(Right.OPERATE, http="POST /secrets/rotate", cli="secret rotate")
    def rotate(self, ask: Ask) -> Rotated:
        """Put all secrets, and those that sign webhooks, under the first master key, while workers run. Values are not decrypted.

        Keep the old keys in the key file until nothing is left under them.
        """
        return rotate(ask)


# ---- one secret -------------------------------------------------------------------------------------------------------


def place_of(ask: Ask, name: str, job: str | None = None, organization: str | None = None) -> SecretPlace:
    """Return the place that a caller means: of an organization, or of a job that it may alter."""
    check_secret_name(name)
    if job is None:
        who = ask.within(organization)
        ask.registry.organization(who.organization, ask.store, ask.now)
        return SecretPlace(who.organization, name)
    reading = ask.right is Right.READ
    return place_in(named(ask if reading else ask.also(Right.ALTER_JOBS), job, organization), name)


def place_in(job: Schedule, name: str) -> SecretPlace:
    """Return the place of a job's own secret."""
    return SecretPlace(job.organization, check_secret_name(name), job.id)


def put(ask: Ask, place: SecretPlace, value: object, how: Put) -> Secret:
    """Encrypt a value and keep it."""
    checked, keyring = check_secret_value(value), ask.session.keyring()
    return ask.store.put_secret(
        place,
        lambda version: seal(keyring, place, version, checked),
        put=how,
        secret_id=ask.session.ids.take(1, ask.now)[0],
        actor=_actor(ask, place),
        now=ask.now,
    )


def drop(ask: Ask, place: SecretPlace) -> None:
    """Delete a secret."""
    ask.store.drop_secret(place, actor=_actor(ask, place), now=ask.now)


def _actor(ask: Ask, place: SecretPlace) -> Actor:
    return ask.within(place.organization)


# ---- reading ----------------------------------------------------------------------------------------------------------


def visible_secrets(ask: Ask) -> builtins.list[Secret]:
    """Return the secrets that an actor may see: those it manages, those it may use, and those of jobs that it may read."""
    found = ask.store.stored_secrets()
    managed = ask.may(Right.MANAGE_SECRETS)
    if managed is not None:
        return [each for each in found if managed.organization in {None, each.organization}]
    who = ask.who
    holdings = ask.session.holdings(who, Right.GRANT)
    jobs = {job.id for job in in_scope(ask)} if any(each.job_id for each in found) else set()
    return [
        each
        for each in found
        if (uses(who, TargetKind.SECRET, each.name, each.organization, holdings) if each.job_id is None else undashed(each.job_id) in jobs)
    ]


class JobSecret(msgspec.Struct, frozen=True):
    """A secret that runs of a job are given."""

    job: Schedule
    name: str
    is_own: bool
    """Whether it is the job's alone; otherwise the job names one of the organization."""


def job_secrets(ask: Ask) -> Iterator[JobSecret]:
    """Go through the secrets of the jobs that an actor may read: their own, then those of the organization that they name."""
    own: dict[str, builtins.list[str]] = {}
    for secret in ask.store.stored_secrets():
        if secret.job_id is not None:
            own.setdefault(str(undashed(secret.job_id)), []).append(secret.name)
    for job in in_scope(ask):
        mine = own.get(job.id, [])
        yield from (JobSecret(job, name, is_own=True) for name in mine)
        named_by_job = [] if job.own is None else job.own.defaults.get("secrets") or []
        yield from (JobSecret(job, name, is_own=False) for name in sorted(named_by_job) if name not in mine)


# ---- rotation ---------------------------------------------------------------------------------------------------------


def rotate(ask: Ask) -> Rotated:
    """Put everything under the first key: as often as something that was written late is found."""
    keyring, secrets, webhooks = ask.session.keyring(), 0, 0
    key_id = keyring.current
    for _ in range(PASSES_MAX):
        more = _rotate_secrets(ask, keyring), _rotate_webhooks(ask, keyring)
        secrets, webhooks = secrets + more[0], webhooks + more[1]
        if more == (0, 0):
            break
    others = [each for each in ask.store.master_keys() if each.key_id != key_id]
    left = sum(each.secrets + each.webhooks for each in others)
    missing = tuple(each.key_id for each in others if each.key_id and each.key_id not in keyring)
    return Rotated(key_id=key_id, secrets=secrets, webhooks=webhooks, left=left, missing=missing)


def _rotate_secrets(ask: Ask, keyring: Keyring) -> int:
    after, done = "", 0
    while batch := ask.store.secrets_to_rewrap(keyring.current, after=after, limit=BATCH):
        after = batch[-1].id
        changes = []
        for sealed in batch:
            try:
                changes.append(Rewrapped(sealed, rewrap(keyring, sealed)))
            except SecretUnavailable:
                # It is counted among those that are left.
                continue
        done += ask.store.rewrap_secrets(changes, actor=ask.who, now=ask.now) if changes else 0
    return done


def _rotate_webhooks(ask: Ask, keyring: Keyring) -> int:
    after, done = "", 0
    while batch := ask.store.signing_secrets(after=after, limit=BATCH):
        after = batch[-1].owner
        changes = [(each, again) for each in batch if (again := _resealed(keyring, each)) is not None]
        done += ask.store.reseal_signing(changes, actor=ask.who, now=ask.now) if changes else 0
    return done


def _resealed(keyring: Keyring, signing: SigningSecret) -> SigningSecret | None:
    """Return what a webhook is signed with under the first key; None if it is so already, or can't be opened."""
    texts = [text for text in (signing.secret, signing.previous) if text is not None]
    if all(sealing_key(text) == keyring.current for text in texts):
        return None
    try:
        return SigningSecret(signing.owner, *(reseal_signing(keyring, signing.owner, text) for text in texts))
    except SecretUnavailable:
        return None
