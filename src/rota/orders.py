"""What a runner is to do for a job: worked out when an attempt starts, with the rights that its owner has then.

What a job does was written down when it was enqueued (`Store.work_of`). Whether its owner may still do that, and what its connection and
its secrets are, is asked at each start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rota.compose import guard_process
from rota.errors import InvalidOption, NotFound, PermissionDenied, SecretUnavailable
from rota.model.connections import Connection
from rota.model.gate import Actor, Right, Role, may_run_as, scope_of, uses
from rota.model.grants import TargetKind
from rota.model.kinds import DEFAULT_CONNECTION, JobWork
from rota.model.params import decode_params
from rota.model.schedules import JobKind
from rota.model.secrets import SecretUse
from rota.model.values import Claimed, dashed
from rota.ports.runner import Database, Order
from rota.ports.store import Store
from rota.session import Session

if TYPE_CHECKING:
    from rota.vault import Keyring

SECRET = "$secret"  # noqa: S105 - the key of an object in params
"""`{"$secret": "name"}` in params stands for the value of a secret that the job names."""


def owner_of(session: Session, store: Store, name: str, organization: str) -> Actor:
    """Return who answers for a job, with the rights it has now, in the organization of the job."""
    session.registry.sync(store, session.clock.now())
    user = session.registry.users.get(name)
    if user is None:
        # Enqueued by who opened the store itself, or before there were users: see `rota.model.gate.LOCAL`.
        return Actor(name, organization, Role.MANAGER)
    if user.removed:
        raise PermissionDenied(f"{name!r}, who owns this job, is not a user of this store any more")
    if user.organization != organization and user.role is not Role.MANAGER:
        raise PermissionDenied(f"{name!r}, who owns this job, is not in organization {organization!r} any more")
    return Actor(user.name, organization, user.role, frozenset(user.permissions))


class Orders:
    """Works out orders for the runners of one worker. Any thread may call it."""

    def __init__(self, session: Session, store: Store) -> None:
        """Take the session of the worker's Rota, and the store that the worker is on."""
        self._session = session
        self._store = store

    def order(self, job: Claimed) -> Order:
        """Return what to do for a job, or refuse it: such a job is not tried again."""
        work = self._store.work_of(job.number)
        if work is None or work.body is None:
            raise NotFound("what this job does is not in the store any more")
        # A job that SQL has created is its owner's. One from a template does what the template's author wrote, whoever enqueued it.
        who = owner_of(self._session, self._store, work.created_by if work.shared else job.owner, job.organization_id)
        connection = self._connection(job, work, who)
        params = decode_params(job.params)
        names = {*work.secrets}
        if unnamed := secrets_in(params) - names:
            # Who may only execute a job chooses its params, and must not borrow its owner's right to use secrets.
            raise PermissionDenied(f"the params mention secret {min(unnamed)!r}, which the job does not name in SECRETS")
        if connection is not None and connection.secret is not None:
            names.add(connection.secret)
        values = self._secrets(job, work, who, names, own=connection.secret if connection is not None else None)
        return Order(
            kind=work.kind,
            body=f"CALL {work.body}" if work.kind is JobKind.PROCEDURE else work.body,
            params=with_secrets(params, values),
            job_uuid=dashed(work.schedule_id) if work.schedule_id else "",
            run_uuid=dashed(job.job_id),
            job_name=work.name,
            attempt=job.attempt,
            owner=who.name,
            organization=job.organization_id,
            timeout_s=job.timeout,
            run_as=self._role(work, who),
            database=None if connection is None else database_of(connection, values),
            secrets={name: values[name] for name in values if connection is None or name != connection.secret or name in work.secrets},
        )

    def _connection(self, job: Claimed, work: JobWork, who: Actor) -> Connection | None:
        if work.kind is JobKind.EXTERNAL:
            scope_of(who, Right.EXTERNAL, self._session.registry.holdings(who, self._store))
            return None
        name = work.connection or DEFAULT_CONNECTION
        connection = self._session.registry.connections.get((job.organization_id, name))
        if connection is None:
            raise NotFound(f"there is no connection {name!r} in organization {job.organization_id!r}: create it with CREATE CONNECTION")
        if not self._uses(who, TargetKind.CONNECTION, name, job.organization_id):
            raise PermissionDenied(f"{who.name!r}, who owns this job, may not use connection {name!r} any more")
        return connection

    def _role(self, work: JobWork, who: Actor) -> str | None:
        if work.run_as is not None and not may_run_as(who, work.run_as, self._session.registry.holdings(who, self._store)):
            raise PermissionDenied(f"{who.name!r}, who owns this job, may not run jobs as role {work.run_as!r} any more")
        return work.run_as

    def _secrets(self, job: Claimed, work: JobWork, who: Actor, names: set[str], *, own: str | None) -> dict[str, str]:
        """Return the values of the secrets that a job is given. Who may use a connection need not have a grant on its password."""
        sealed = self._store.sealed_secrets(job.organization_id, work.schedule_id, sorted(names))
        missing = names - {each.name for each in sealed}
        if missing:
            raise NotFound(f"there is no secret {min(missing)!r} in organization {job.organization_id!r}: create it with `rota secret set`")
        for each in sealed:
            if each.job is None and each.name != own and not self._uses(who, TargetKind.SECRET, each.name, job.organization_id):
                raise PermissionDenied(f"{who.name!r}, who owns this job, may not use secret {each.name!r} any more")
        if not sealed:
            return {}
        from rota.vault import open_secrets  # noqa: PLC0415 - few programs have secrets

        guard_process()
        values = open_secrets(self._keyring(), sealed)
        use = SecretUse(run=job.job_id, job=work.schedule_id, organization=job.organization_id, owner=who.name, secrets=tuple(sealed))
        self._store.note_secrets_used([use], now=self._session.clock.now())
        return values

    def _keyring(self) -> Keyring:
        try:
            return self._session.keyring()
        except InvalidOption as error:
            raise SecretUnavailable(f"no secret can be opened on this worker: {error}") from None

    def _uses(self, who: Actor, kind: TargetKind, name: str, organization: str) -> bool:
        return uses(who, kind, name, organization, self._session.registry.holdings(who, self._store))


def database_of(connection: Connection, secrets: Mapping[str, str]) -> Database:
    """Return a connection as a runner opens it."""
    return Database(
        name=connection.name,
        url=connection.url,
        user=connection.login,
        password=None if connection.secret is None else secrets[connection.secret],
        multi=connection.multi,
    )


def passwords_of(session: Session, store: Store, connection: Connection) -> dict[str, str]:
    """Return the password of a connection under the name of its secret; nothing if it needs none. Raise NotFound if it is not there."""
    if connection.secret is None:
        return {}
    from rota.vault import open_secrets  # noqa: PLC0415 - few programs have secrets

    sealed = store.sealed_secrets(connection.organization, None, [connection.secret])
    if not sealed:
        where = f"organization {connection.organization!r}"
        raise NotFound(f"there is no secret {connection.secret!r} in {where}: set it with `rota secret set`")
    guard_process()
    return open_secrets(session.keyring(), sealed)


def secrets_in(value: Any) -> set[str]:
    """Return the names of the secrets that params mention."""
    if isinstance(value, dict):
        name = value.get(SECRET)
        if len(value) == 1 and isinstance(name, str):
            return {name}
        return set().union(*map(secrets_in, value.values())) if value else set()
    return set().union(*map(secrets_in, value)) if isinstance(value, list) and value else set()


def with_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return params with the values of the secrets that they mention."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(name := value.get(SECRET), str):
            if name not in secrets:
                raise InvalidOption(f"there is no secret {name!r}")
            return secrets[name]
        return {key: with_secrets(each, secrets) for key, each in value.items()}
    return [with_secrets(each, secrets) for each in value] if isinstance(value, list) else value


def encoded_order(orders: Orders, job: Claimed) -> str:
    """Return the order for a job as it goes from the engine to an executor of the same process."""
    return msgspec.json.encode(orders.order(job)).decode()
