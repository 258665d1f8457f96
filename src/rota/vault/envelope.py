"""The envelope of a secret: AES-256-GCM, a key of its own for each version, which the master key wraps.

What a secret is (organization, name, job, version) is authenticated with it: one that was moved to another row does not open.
A new master key rewraps 60 bytes of a secret and leaves its body.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from rota.errors import InvalidOption, SecretUnavailable
from rota.model.checks import extra
from rota.model.secrets import Sealed, SecretPlace
from rota.vault.keyring import KEY_BYTES, Keyring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


def seal(keyring: Keyring, place: SecretPlace, version: int, value: str) -> Sealed:
    """Encrypt a value as one version of a secret, under the first key."""
    key_id, data_key = keyring.current, os.urandom(KEY_BYTES)
    about = _about(place.organization, place.name, place.job, version)
    return Sealed(
        organization=place.organization,
        name=place.name,
        job=place.job,
        version=version,
        key_id=key_id,
        wrapped=_encrypted(keyring.key(key_id), data_key, about),
        body=_encrypted(data_key, value.encode(), about),
    )


def open_sealed(keyring: Keyring, sealed: Sealed) -> str:
    """Return the value of a secret."""
    return _decrypted(_data_key(keyring, sealed), sealed.body, sealed).decode()


def open_secrets(keyring: Keyring, sealed: Iterable[Sealed]) -> dict[str, str]:
    """Return the values of secrets by name; of two of one name, that of the job."""
    ordered = sorted(sealed, key=lambda each: each.job is not None)
    return {each.name: open_sealed(keyring, each) for each in {each.name: each for each in ordered}.values()}


def rewrap(keyring: Keyring, sealed: Sealed) -> Sealed:
    """Return a secret under the first key: its value is not decrypted."""
    key_id = keyring.current
    about = _about(sealed.organization, sealed.name, sealed.job, sealed.version)
    wrapped = _encrypted(keyring.key(key_id), _data_key(keyring, sealed), about)
    return msgspec.structs.replace(sealed, key_id=key_id, wrapped=wrapped)


def _about(organization: str, name: str, job: str | None, version: int) -> bytes:
    """Return what is authenticated with a secret. As JSON: no two secrets have the same."""
    return msgspec.json.encode(["rota secret", organization, name, job or "", version])


def _data_key(keyring: Keyring, sealed: Sealed) -> bytes:
    try:
        key = keyring.key(sealed.key_id)
    except SecretUnavailable as error:
        raise SecretUnavailable(f"secret {sealed.name!r} can't be opened: {error}") from None
    return _decrypted(key, sealed.wrapped, sealed)


def _encrypted(key: bytes, plain: bytes, about: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, plain, about)


def _decrypted(key: bytes, box: bytes, sealed: Sealed) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - installed with an extra

    try:
        about = _about(sealed.organization, sealed.name, sealed.job, sealed.version)
        return cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise SecretUnavailable(f"secret {sealed.name!r} can't be opened: it was changed outside Rota; set its value again") from None


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - installed with an extra
    except ImportError as error:
        raise InvalidOption(f"secrets need the library cryptography ({error}): {extra('secrets')}") from None
    return AESGCM(key)
