"""Kinds of jobs that are not Python: the types that their jobs have, and how messages name them.

A job that SQL has created shares its type, and so its lane, with all jobs of its kind and connection: a worker asks for the
connections that it serves, not for each job.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from rota.errors import InvalidName
from rota.model.checks import check_name
from rota.model.schedules import JobKind
from rota.model.secret_params import named_secrets

RUNNER = "runner"
"""Where they run: the executor of all kinds but Python."""
DEFAULT_CONNECTION = "default"
"""The connection of SQL that names none."""
OWNER_ROLE = "owner_role"
"""Among the defaults of a job: the role of an owner who is not a user of the store, as the program that vouched for it has said."""
TYPE_MAX = 255
"""Characters of a job type."""
_PREFIX = "kind:"
EXTERNAL_TYPE = f"{_PREFIX}{JobKind.EXTERNAL}"
_SQL_TYPE = f"{_PREFIX}{JobKind.SQL}"


class JobWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does, as it was defined when the job was enqueued."""

    kind: JobKind
    body: str | None
    defaults: dict[str, Any]
    """Retries, backoff and timeout; `connection` and `secrets` where it names them."""
    name: str
    """Of the job, or of the template."""
    schedule_id: str | None = None
    """The job of the catalog, or a schedule; None: it was enqueued."""
    run_as: str | None = None
    created_by: str
    """Who wrote this version."""
    shared: bool = False
    """It is a template of its own, that anybody may make jobs of, and not the body of one job."""

    @property
    def owner_role(self) -> str | None:
        """The role of an owner who is not a user of the store; None: as the store knows it."""
        return self.defaults.get(OWNER_ROLE)

    @property
    def connection(self) -> str | None:
        """The connection that it names."""
        return self.defaults.get("connection")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that it names."""
        return named_secrets(self.defaults)


def sql_type(organization: str, connection: str | None) -> str:
    """Return the type of all SQL jobs on a connection, calls of its procedures included."""
    job_type = f"{_SQL_TYPE}:{organization}/{connection or DEFAULT_CONNECTION}"
    if len(job_type) <= TYPE_MAX:
        return job_type
    return f"{_SQL_TYPE}:{blake2b(job_type.encode(), digest_size=16).hexdigest()}"


def is_kind(job_type: str) -> bool:
    """Say whether a type is of a kind, and not the name of a template."""
    return job_type.startswith(_PREFIX)


def check_type_name(name: object, what: str, limit: int) -> None:
    """Refuse what can't be the name of a template, or the type of a job without one."""
    check_name(name, what, limit)
    if is_kind(str(name)):
        raise InvalidName(f"the {what} name {name!r} begins with {_PREFIX!r}, as the types of SQL jobs and commands do: choose another")


def type_in_words(job_type: str) -> str:
    """Return how messages name a type."""
    if job_type == EXTERNAL_TYPE:
        return "commands"
    if not job_type.startswith(f"{_SQL_TYPE}:"):
        return repr(job_type)
    organization, _, connection = job_type.removeprefix(f"{_SQL_TYPE}:").partition("/")
    return f"connection {connection!r} of organization {organization!r}"


def unserved(job_type: str) -> str:
    """Say why no worker runs jobs of a kind, and what to do."""
    if job_type == EXTERNAL_TYPE:
        return "no live worker runs commands: name the programs that it may run in a file, and start one with ROTA_EXTERNAL_FILE"
    return f"no live worker serves {type_in_words(job_type)}: start one that does, or create the connection"
