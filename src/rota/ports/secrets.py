"""Secrets, as a store keeps them: encrypted. A part of the contract of `rota.ports.store`. No value and no master key ever comes here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from rota.model.gate import Actor
from rota.model.secrets import KeyUse, Put, Rewrapped, Seal, Sealed, Secret, SecretPlace, SecretUse
from rota.model.values import Instant
from rota.model.webhooks import SigningSecret


class Secrets(Protocol):
    """Secrets of organizations and of single jobs. Every change is audited, by name alone."""

    def put_secret(self, place: SecretPlace, seal: Seal, *, put: Put, secret_id: str, actor: Actor, now: Instant) -> Secret:
        """Set the value of a secret: `seal` is given its version. A new one gets this id.

        Raise Refused if it is there and is to be new, NotFound if it is to be there, or if its job was dropped.
        Dropping a job removes its own secrets, also where its history is kept.
        """

    def drop_secret(self, place: SecretPlace, *, actor: Actor, now: Instant) -> None:
        """Remove a secret and the grants on it. Raise NotFound, or StillNeeded while jobs name one of the organization."""

    def stored_secrets(self) -> list[Secret]:
        """Return every secret, by organization and name; of one name the organization's first."""

    def sealed_secrets(self, organization: str, job: str | None, names: Collection[str]) -> list[Sealed]:
        """Return what a run of a job is given, in one read: all secrets of its own, and those of the organization of these names.

        One of its own takes the place of the organization's. Names that are not there are left out.
        """

    def note_secrets_used(self, uses: Sequence[SecretUse], *, now: Instant) -> None:
        """Record which runs were given which secrets: when each was used last, and an entry of the audit trail for each run."""

    def secrets_to_rewrap(self, key_id: str, *, after: str, limit: int) -> list[Sealed]:
        """Return secrets that are under another master key than this, by id from one on; the first ones if it is empty."""

    def rewrap_secrets(self, rewrapped: Sequence[Rewrapped], *, actor: Actor, now: Instant) -> int:
        """Put secrets under another master key; return how many. One that has changed in the meantime is left."""

    def signing_secrets(self, *, after: str, limit: int) -> list[SigningSecret]:
        """Return the secrets that sign webhooks as they are stored, by owner from one on."""

    def reseal_signing(self, changes: Sequence[tuple[SigningSecret, SigningSecret]], *, actor: Actor, now: Instant) -> int:
        """Replace secrets that sign webhooks, each by the same one under another key; return how many. One that has changed is left."""

    def master_keys(self) -> list[KeyUse]:
        """Return how much is encrypted with each master key."""
