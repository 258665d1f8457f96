"""Secrets in params: `{"$secret": "name"}` stands for the value of a secret that the definition of a job names.

The definition decides which secrets a job is given (`SECRETS` of a job, `secrets` of a template), and its author must be allowed to use
them. Params decide no more than where a value goes, and only those of the definition do: the params of a single run mention no secret, so
that nobody who may start a job, or change one that waits, can have it read or show a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rota.errors import InvalidParams

SECRET = "$secret"  # noqa: S105 - the key of an object in params


def named_secrets(defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets that a definition names."""
    return tuple(defaults.get("secrets", ()))


def secrets_in(value: Any) -> set[str]:
    """Return the names of the secrets that params mention."""
    if isinstance(value, Mapping):
        name = value.get(SECRET)
        if len(value) == 1 and isinstance(name, str):
            return {name}
        return set().union(*map(secrets_in, value.values())) if value else set()
    return set().union(*map(secrets_in, value)) if isinstance(value, list | tuple) and value else set()


def with_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return params with the values of the secrets that they mention."""
    if isinstance(value, Mapping):
        if len(value) == 1 and isinstance(name := value.get(SECRET), str):
            return secrets[name]
        return {key: with_secrets(each, secrets) for key, each in value.items()}
    return [with_secrets(each, secrets) for each in value] if isinstance(value, list | tuple) else value


def mentioned_anew(params: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> set[str]:
    """Return the secrets that params mention in places where those before them did not."""
    return secrets_in({name: value for name, value in (params or {}).items() if (before or {}).get(name) != value})


def refuse_mentions(params: Mapping[str, Any] | None, definition: Mapping[str, Any] | None) -> None:
    """Refuse params of a single run that mention a secret, unless they only repeat the definition."""
    names = mentioned_anew(params, definition)
    if names:
        raise InvalidParams(
            f"params mention the secret {min(names)!r}, which only the definition of a job may do: "
            "name it there with SECRETS, and use it in the text or in PARAMS of the definition"
        )


def refuse_unnamed(params: Mapping[str, Any] | None, named: Collection[str]) -> None:
    """Refuse params of a definition that mention a secret that the definition does not name."""
    names = secrets_in(params) - set(named)
    if names:
        raise InvalidParams(f"params mention the secret {min(names)!r}, which the definition does not name: add SECRETS ({min(names)})")
