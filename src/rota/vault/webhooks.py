"""Secrets that sign webhooks, encrypted in the same envelope. In the store they are texts, and older ones are not encrypted."""

from __future__ import annotations

from base64 import b64decode, b64encode

from rota.model.secrets import Sealed, SecretPlace
from rota.model.webhooks import SEALED_PREFIX, sealing_key
from rota.vault.envelope import open_sealed, rewrap, seal
from rota.vault.keyring import Keyring

VERSION = 1


def seal_signing(keyring: Keyring, owner: str, secret: str) -> str:
    """Return a signing secret as the store keeps it: encrypted if there is a key, else as it is."""
    return _text(seal(keyring, _place(owner), VERSION, secret)) if keyring else secret


def open_signing(keyring: Keyring, owner: str, text: str) -> str:
    """Return a signing secret from what the store keeps."""
    return text if sealing_key(text) is None else open_sealed(keyring, _sealed(owner, text))


def reseal_signing(keyring: Keyring, owner: str, text: str) -> str:
    """Return a signing secret under the first key, whether it was encrypted before or not."""
    if sealing_key(text) is None:
        return seal_signing(keyring, owner, text)
    return _text(rewrap(keyring, _sealed(owner, text)))


def _place(owner: str) -> SecretPlace:
    # A colon is in no name of a secret: this can't be another one.
    return SecretPlace("", f"webhook:{owner}")


def _text(sealed: Sealed) -> str:
    return f"{SEALED_PREFIX}{sealed.key_id}:{b64encode(sealed.wrapped).decode()}:{b64encode(sealed.body).decode()}"


def _sealed(owner: str, text: str) -> Sealed:
    key_id, _, rest = text.removeprefix(SEALED_PREFIX).partition(":")
    wrapped, _, body = rest.partition(":")
    place = _place(owner)
    return Sealed(
        organization=place.organization, name=place.name, version=VERSION, key_id=key_id, wrapped=b64decode(wrapped), body=b64decode(body)
    )
