"""Which logins of PostgreSQL a job may be: none that is a superuser or its like, and none that could touch Rota's own tables.

The login is the only boundary of a job there. `SET LOCAL ROLE` is undone by `RESET ROLE`, by `set_config` and inside DO blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from rota.ports.runner import Database, UnfitDatabase

QUERY = Path(__file__).with_suffix(".sql").read_text()
REASONS = {
    "superuser": "{who} is a superuser, for whom no rule holds: use a login of its own with the rights that the jobs need",
    "server": "{who} can use the server's own files and programs, as a superuser can: take it out of the role {role}",
    "replication": "{who} may copy the whole server (REPLICATION): ALTER ROLE {role} NOREPLICATION, or use another login",
    "createrole": "{who} may create roles, and so become nearly any other: ALTER ROLE {role} NOCREATEROLE, or use another login",
    "owner": "{who} owns the schema {name} with the tables of a Rota store: use another login",
    "create": "{who} may create objects in the schema {name} of a Rota store: REVOKE CREATE ON SCHEMA {name} FROM {grantee}",
    "usage": "{who} has rights on the schema {name} with the tables of a Rota store: REVOKE ALL ON SCHEMA {name} FROM {role}",
    "table": "{who} has rights on {name}, which belongs to a Rota store: REVOKE ALL ON {name} FROM {role}",
}
DEFAULT_PORT = "5432"


def check_login(answer: psycopg.Cursor[Any], database: Database) -> None:
    """Take the answer to a message with QUERY in it; refuse a login that could do more than a job should."""
    while answer.description is None:
        answer.nextset()
    row = answer.fetchone()
    if row is not None:
        reason, role, name = row
        raise unfit(database, answer.connection.info.user, reason=reason, role=role, name=name)


def unfit(database: Database, login: str, *, reason: str, role: str, name: str) -> UnfitDatabase:
    """Return the refusal of a login, for a reason that the query has found."""
    who = f"login {login}" if role == login else f"login {login}, as a member of {role},"
    grantee = f"{role}, or FROM PUBLIC if everybody has it"
    return UnfitDatabase(f"connection {database.name}: {REASONS[reason].format(who=who, role=role, name=name, grantee=grantee)}")


def is_own_login(parts: dict[str, Any], store: str) -> bool:
    """Say whether these are the server, the database and the login of Rota's own store."""
    if not store.startswith(("postgresql://", "postgres://")):
        return False
    try:
        own = conninfo.conninfo_to_dict(store)
    except psycopg.Error:
        return False
    return _place(parts) == _place(own)


def _place(parts: dict[str, Any]) -> tuple[str, str, str, str]:
    user = str(parts.get("user") or "")
    return str(parts.get("host") or ""), str(parts.get("port") or DEFAULT_PORT), str(parts.get("dbname") or user), user
