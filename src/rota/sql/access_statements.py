"""Statements about privileges, roles, secrets, connections and settings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import UNSET, UnsetType

from rota.model.grants import PRIVILEGES, GranteeKind, Privilege, TargetKind
from rota.model.settings import DOCS
from rota.model.urls import hide
from rota.sql.cursor import TokenCursor
from rota.sql.errors import SqlInvalidError, SqlOptionError
from rota.sql.grammar import any_of
from rota.sql.secret_values import secret_key, secret_value
from rota.sql.syntax import (
    AlterConnection,
    AlterSecret,
    AlterSystem,
    CreateConnection,
    CreateRole,
    CreateSecret,
    Dependents,
    DropConnection,
    DropRole,
    DropSecret,
    Grantee,
    GrantRights,
    RevokeRights,
    Target,
)
from rota.sql.tokens import SqlToken, TokenKind
from rota.sql.values import listed, name, text

PRIVILEGE_FORMS = (
    "EXECUTE, ALTER, DROP, ALL … ON JOB, USE … ON CONNECTION or SECRET, CREATE JOB, EXECUTE EXTERNAL JOB, VIEW JOB HISTORY or ROLE"
)
LONGEST_FIRST = sorted(Privilege, key=lambda privilege: -len(privilege.split()))
PREFIX = "scheduler"
STATEMENTS = {"MULTI": True, "SINGLE": False}
"""Whether the text of a job may have several statements."""
OPTIONS = ("URL", "USER", "SECRET", *STATEMENTS)
"""What a connection has."""

# ---- grants -----------------------------------------------------------------------------------------------------------


def grant(cursor: TokenCursor) -> GrantRights:
    """Read what follows GRANT."""
    privileges, target = _privileges(cursor)
    if not cursor.take("TO"):
        raise _no_grantee(cursor, "GRANT", "TO")
    grantees = listed(cursor, lambda: grantee(cursor), "grantees")
    return GrantRights(privileges, grantees, target, cursor.phrase("WITH", "GRANT", "OPTION"))


def revoke(cursor: TokenCursor) -> RevokeRights:
    """Read what follows REVOKE."""
    only = cursor.phrase("GRANT", "OPTION", "FOR")
    privileges, target = _privileges(cursor)
    if not cursor.take("FROM"):
        raise _no_grantee(cursor, "REVOKE", "FROM")
    grantees = listed(cursor, lambda: grantee(cursor), "grantees")
    dependents: Dependents | UnsetType = UNSET
    if cursor.see("CASCADE") or cursor.see("RESTRICT"):
        dependents = Dependents(cursor.advance().word)
    return RevokeRights(privileges, grantees, target, only, dependents)


def grantee(cursor: TokenCursor) -> Grantee:
    """Read whom a grant is for."""
    kind = cursor.token.word
    follows = cursor.peek().kind in {TokenKind.WORD, TokenKind.QUOTED} and cursor.peek().word not in {"WITH", "CASCADE", "RESTRICT"}
    if kind in {"USER", "ROLE"} and follows:
        cursor.advance()
        return Grantee(name(cursor, kind.lower()), GranteeKind(kind))
    if cursor.take("PUBLIC"):
        return Grantee(kind=GranteeKind.PUBLIC)
    return Grantee(name(cursor, "user", missing="the name of a user, of a role, or PUBLIC is missing"))


def _no_grantee(cursor: TokenCursor, verb: str, word: str) -> Exception:
    return cursor.fault(f"{verb} needs {word} and a user, a role or PUBLIC; found {cursor.found()}", expected=(word,))


def _privileges(cursor: TokenCursor) -> tuple[tuple[Privilege, ...], Target | None]:
    """Read privileges, and what they are granted on."""
    if cursor.take("ROLE"):
        cursor.mark("target")
        return (Privilege.ROLE,), Target(TargetKind.ROLE, name(cursor, "role", missing="ROLE needs the name of a role"))
    privileges = listed(cursor, lambda: _privilege(cursor))
    on = cursor.token
    target = _target(cursor, privileges) if cursor.take("ON") else None
    _refuse_misfit(cursor, privileges, target, on)
    return privileges, target


def _privilege(cursor: TokenCursor) -> Privilege:
    for privilege in LONGEST_FIRST:
        if privilege is not Privilege.ROLE and cursor.take(*privilege.split()):
            if privilege is Privilege.ALL:
                cursor.take("PRIVILEGES")
            elif privilege in {Privilege.EXECUTE, Privilege.ALTER, Privilege.DROP}:
                cursor.take("JOB")
            return privilege
    first = cursor.token.word
    partly = next((privilege for privilege in LONGEST_FIRST if privilege.split()[0] == first), None)
    if partly is not None:
        for before, word in pairwise(partly.split()):
            cursor.advance()
            if cursor.token.word != word:
                raise cursor.fault(f"{word} is missing after {before}; found {cursor.found()}", expected=(word,))
    raise cursor.fault(f"{cursor.found()} is not a privilege: use {PRIVILEGE_FORMS}", expected=(*Privilege,))


def _target(cursor: TokenCursor, privileges: tuple[Privilege, ...]) -> Target:
    allowed = [kind for kind in PRIVILEGES[privileges[0]] if kind is not None]
    for kind in TargetKind:
        if kind is not TargetKind.ROLE and cursor.take(kind):
            cursor.mark("target")
            return Target(kind, name(cursor, kind.lower()))
    raise cursor.fault(f"ON is followed by {any_of(allowed or [TargetKind.JOB])} and a name; found {cursor.found()}")


def _refuse_misfit(cursor: TokenCursor, privileges: tuple[Privilege, ...], target: Target | None, on: SqlToken) -> None:
    """Refuse privileges that can't be granted on this, or not on nothing."""
    for privilege in privileges:
        allowed = PRIVILEGES[privilege]
        if (target and target.kind) in allowed:
            continue
        if target is not None:
            kinds = any_of([kind for kind in allowed if kind is not None])
            instead = f"it is granted ON {kinds}" if kinds else "leave out ON"
            raise cursor.fault(f"{privilege} is not granted on a {target.kind.lower()}: {instead}", token=on, expected=())
        words = any_of([f"ON {kind} name" for kind in allowed if kind is not None])
        raise cursor.fault(f"{privilege} needs {words}; found {cursor.found()}", expected=("ON",))


# ---- roles, secrets, connections --------------------------------------------------------------------------------------


def create_role(cursor: TokenCursor) -> CreateRole:
    """Read what follows CREATE ROLE."""
    return CreateRole(_named(cursor, "role"))


def drop_role(cursor: TokenCursor) -> DropRole:
    """Read what follows DROP ROLE."""
    return DropRole(_named(cursor, "role"))


def create_secret(cursor: TokenCursor) -> CreateSecret:
    """Read what follows CREATE SECRET."""
    secret = secret_key(cursor, "name of the secret")
    return CreateSecret(secret, secret_value(cursor))


def alter_secret(cursor: TokenCursor) -> AlterSecret:
    """Read what follows ALTER SECRET."""
    secret = secret_key(cursor, "name of the secret")
    cursor.take("SET")
    return AlterSecret(secret, secret_value(cursor))


def drop_secret(cursor: TokenCursor) -> DropSecret:
    """Read what follows DROP SECRET."""
    return DropSecret(secret_key(cursor, "name of the secret"))


def create_connection(cursor: TokenCursor) -> CreateConnection:
    """Read what follows CREATE CONNECTION."""
    connection = _named(cursor, "connection")
    options = _connection_options(cursor, removable=False)
    if "url" not in options:
        raise cursor.fault(f"connection {connection} has no URL: add URL = 'postgresql://host/database'", expected=("URL",))
    return CreateConnection(connection, **options)


def alter_connection(cursor: TokenCursor) -> AlterConnection:
    """Read what follows ALTER CONNECTION."""
    connection = _named(cursor, "connection")
    options = _connection_options(cursor, removable=True)
    if not options:
        raise cursor.fault(f"ALTER CONNECTION {connection} changes nothing: add SET URL, USER, SECRET, MULTI or SINGLE", expected=OPTIONS)
    return AlterConnection(connection, **options)


def drop_connection(cursor: TokenCursor) -> DropConnection:
    """Read what follows DROP CONNECTION."""
    return DropConnection(_named(cursor, "connection"))


def _named(cursor: TokenCursor, what: str) -> str:
    cursor.mark("name")
    return name(cursor, what)


def _connection_options(cursor: TokenCursor, *, removable: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    while not cursor.at_end():
        has_set = removable and cursor.take("SET")
        token = cursor.token
        if not any(cursor.take(option) for option in OPTIONS):
            if has_set or token.kind is TokenKind.WORD:
                raise cursor.fault(f"a connection has URL, USER, SECRET, MULTI and SINGLE; found {cursor.found()}")
            return options
        field = "multi" if token.word in STATEMENTS else token.word.lower()
        if field in options:
            raise cursor.twice(token.word, token)
        if token.word in STATEMENTS:
            options[field] = STATEMENTS[token.word]
            continue
        cursor.take("=")
        removed = removable and token.word != "URL" and cursor.take("NONE")
        options[field] = None if removed else _connection_option(cursor, token.word)
    return options


def _connection_option(cursor: TokenCursor, option: str) -> str:
    token = cursor.mark(option.lower())
    if option == "SECRET":
        return secret_key(cursor, "name of a secret")
    if option == "USER":
        return _filled(cursor, token, text(cursor, "USER takes a text in single quotes"))
    url = _filled(cursor, token, text(cursor, "URL takes a text in single quotes, such as 'postgresql://host/database'"))
    # A space in a password would hide it from the check below; only a path may have one.
    scheme, mark, _ = url.partition("://")
    if not mark or (scheme != "sqlite" and any(character.isspace() for character in url)):
        raise cursor.fault("URL takes an address such as 'postgresql://host/database'", token=token, kind=SqlOptionError, expected=())
    if hide(url) != url:
        raise cursor.fault(
            "the URL has a password: keep it as a secret, and name that with SECRET = name", token=token, kind=SqlOptionError
        )
    return url


def _filled(cursor: TokenCursor, token: SqlToken, value: str) -> str:
    if not value.strip():
        raise cursor.fault("this text can't be empty", token=token, kind=SqlOptionError, expected=())
    return value


# ---- settings ---------------------------------------------------------------------------------------------------------


def alter_system(cursor: TokenCursor) -> AlterSystem:
    """Read what follows ALTER SYSTEM."""
    if cursor.take("RESET"):
        return AlterSystem(_setting(cursor), None)
    if not cursor.take("SET"):
        raise cursor.fault(f"ALTER SYSTEM is followed by SET or RESET; found {cursor.found()}")
    setting = _setting(cursor)
    if not (cursor.take("=") or cursor.take("TO")):
        raise cursor.fault(f"= is missing after {setting}; found {cursor.found()}")
    return AlterSystem(setting, _setting_value(cursor))


def _setting(cursor: TokenCursor) -> str:
    token = cursor.mark("setting")
    if token.kind is not TokenKind.WORD:
        raise cursor.fault(f"the name of a setting is missing, such as scheduler.enabled; found {cursor.found()}", expected=("a setting",))
    cursor.advance()
    if token.word != PREFIX.upper() or not cursor.take("."):
        own = f"; {token.text} is a setting of the process: ROTA_{token.word}" if token.text.lower() in DOCS else ""
        raise cursor.fault(f"only settings that begin with scheduler. can be set here{own}", token=token, expected=("scheduler.",))
    if not cursor.kind(TokenKind.WORD):
        raise cursor.fault(f"the name of a setting is missing after scheduler.; found {cursor.found()}", expected=("a setting",))
    return f"{PREFIX}.{cursor.advance().text.lower()}"


def _setting_value(cursor: TokenCursor) -> str:
    """Read a value of a setting as text: settings are read from text everywhere."""
    token = cursor.mark("value")
    minus = "-" if cursor.take("-") else ""
    if cursor.kind(TokenKind.NUMBER) or (not minus and cursor.kind(TokenKind.WORD, TokenKind.COMPACT)):
        return minus + cursor.advance().text
    if minus or not cursor.kind(TokenKind.STRING):
        raise cursor.fault(f"the value of the setting is missing; found {cursor.found()}", expected=("a value",))
    value = cursor.advance().value
    if len(value) > SETTING_MAX_CHARS:
        raise cursor.fault(f"a setting has at most {SETTING_MAX_CHARS:,} characters", token=token, kind=SqlInvalidError, expected=())
    return value


SETTING_MAX_CHARS = 10_000
