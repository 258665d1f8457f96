"""What a runner is to do for a job: worked out when an attempt starts, with the rights that its owner has then.

What a job does was written down when it was enqueued (`Store.work_of`). Whether its owner may still do that, and what its connection and
its secrets are, is asked at each start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.compose import guard_process
from rota.errors import InvalidOption, NotFound, PermissionDenied, SecretUnavailable
from rota.model.connections import Connection
from rota.model.gate import Actor, Right, Role, may_run_as, scope_of, uses
from rota.model.grants import Holdings, TargetKind
from rota.model.kinds import DEFAULT_CONNECTION, JobWork
from rota.model.params import decode_params
from rota.model.schedules import JobKind
from rota.model.secret_params import secrets_in, with_secrets
from rota.model.secrets import Sealed, SecretUse
from rota.model.values import Claimed, dashed
from rota.ports.runner import Database, Order
from rota.ports.store import Store
from rota.session import Session

if TYPE_CHECKING:
    from rota.vault import Keyring


def owner_of(session: Session, store: Store, name: str, organization: str, *, role: str | None = None) -> Actor:
    """Return who answers for a job, with the rights it has now, in the organization of the job.

    `role` is that of somebody who is not a user of the store, where it was kept with the job.
    """
    session.registry.sync(store, session.clock.now())
    user = session.registry.users.get(name)
    if user is None:
        # Enqueued by who opened the store itself, or before there were users: see `rota.model.gate.LOCAL`.
        return Actor(name, organization, Role.MANAGER if role is None else Role(role))
    if user.removed:
        raise PermissionDenied(f"{name!r}, whose rights this job has, is not a user of this store any more")
    if user.organization != organization and user.role is not Role.MANAGER:
        raise PermissionDenied(f"{name!r}, whose rights this job has, is not in organization {organization!r} any more")
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
        # A job that SQL has created is its owner's. One from a template does what the template's author wrote, with that author's rights.
        name, role = (work.created_by, None) if work.shared else (job.owner, work.owner_role)
        who = owner_of(self._session, self._store, name, job.organization_id, role=role)
        connection = self._connection(job, work, who)
        run_as = self._role(work, who)
        params = decode_params(job.params)
        unnamed = secrets_in(params) - {*work.secrets}
        if unnamed:
            raise PermissionDenied(f"params mention the secret {min(unnamed)!r}, which {work.name!r} does not name: add it to its SECRETS")
        secrets = self._secrets(job, work, who, connection)
        return Order(
            kind=work.kind,
            body=f"CALL {work.body}" if work.kind is JobKind.PROCEDURE else work.body,
            params=_bound(params, secrets.of_job),
            job_uuid=dashed(work.schedule_id) if work.schedule_id else "",
            run_uuid=dashed(job.job_id),
            job_name=work.name,
            attempt=job.attempt,
            owner=who.name,
            organization=job.organization_id,
            timeout_s=job.timeout,
            run_as=run_as,
            database=None if connection is None else database_of(connection, secrets.of_connection),
            secrets=secrets.of_job,
        )

    def _connection(self, job: Claimed, work: JobWork, who: Actor) -> Connection | None:
        if work.kind is JobKind.EXTERNAL:
            if not _may(who, Right.EXTERNAL, self._holdings(who)):
                raise _lost(who, "run commands", "GRANT EXECUTE EXTERNAL JOB allows it")
            return None
        name = work.connection or DEFAULT_CONNECTION
        connection = self._session.registry.connections.get((job.organization_id, name))
        if connection is None:
            raise NotFound(f"there is no connection {name!r} in organization {job.organization_id!r}: create it with CREATE CONNECTION")
        if not uses(who, TargetKind.CONNECTION, name, job.organization_id, self._holdings(who)):
            raise _lost(who, f"use connection {name!r}", f"GRANT USE ON CONNECTION {name} allows it")
        return connection

    def _role(self, work: JobWork, who: Actor) -> str | None:
        if work.run_as is not None and not may_run_as(who, work.run_as, self._holdings(who)):
            raise _lost(who, f"run jobs as role {work.run_as!r}", f"GRANT ROLE {work.run_as} allows it")
        return work.run_as

    def _secrets(self, job: Claimed, work: JobWork, who: Actor, connection: Connection | None) -> Secrets:
        """Return what a job is given, and the password of its connection: who may use the connection need not have a grant on that."""
        organization = job.organization_id
        own = self._sealed(organization, work.schedule_id, work.secrets)
        for each in own:
            if each.job is None and not uses(who, TargetKind.SECRET, each.name, organization, self._holdings(who)):
                raise _lost(who, f"use secret {each.name!r}", f"GRANT USE ON SECRET {each.name} allows it")
        # That of the organization, whatever secrets the job itself has.
        password = () if connection is None or connection.secret is None else self._sealed(organization, None, (connection.secret,))
        if not own and not password:
            return Secrets({}, {})
        from rota.vault import open_secrets  # noqa: PLC0415 - few programs have secrets

        guard_process()
        keyring = self._keyring()
        opened = Secrets(open_secrets(keyring, own), open_secrets(keyring, password))
        used = tuple({each.id: each for each in (*own, *password)}.values())
        use = SecretUse(run=job.job_id, job=work.schedule_id, organization=organization, owner=who.name, secrets=used)
        self._store.note_secrets_used([use], now=self._session.clock.now())
        return opened

    def _keyring(self) -> Keyring:
        try:
            return self._session.keyring()
        except InvalidOption as error:
            raise SecretUnavailable(f"no secret can be opened on this worker: {error}") from None

    def _sealed(self, organization: str, job: str | None, names: Collection[str]) -> Sequence[Sealed]:
        # The store returns all secrets that are the job's own, also those that its definition does not name.
        sealed = [each for each in self._store.sealed_secrets(organization, job, sorted(names)) if each.name in names] if names else []
        missing = {*names} - {each.name for each in sealed}
        if missing:
            raise NotFound(f"there is no secret {min(missing)!r} in organization {organization!r}: create it with `rota secret set`")
        return sealed

    def _holdings(self, who: Actor) -> Holdings:
        return self._session.registry.holdings(who, self._store)


class Secrets(msgspec.Struct, frozen=True):
    """Values in clear text, by name."""

    of_job: Mapping[str, str]
    of_connection: Mapping[str, str]

    def __repr__(self) -> str:
        """Return it without values."""
        return f"Secrets({sorted(self.of_job)})"


def _lost(who: Actor, doing: str, remedy: str) -> PermissionDenied:
    return PermissionDenied(f"{who.name!r}, whose rights this job has, may not {doing} any more: {remedy}")


def _may(who: Actor, right: Right, holdings: Holdings) -> bool:
    try:
        scope_of(who, right, holdings)
    except PermissionDenied:
        return False
    return True


def _bound(params: dict[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return params with the values of secrets. None has the name of a secret: a run would use another value than its job was given."""
    bound: dict[str, Any] = with_secrets(params, secrets)
    clash = next((name for name in bound if name in secrets and bound[name] != secrets[name]), None)
    if clash is not None:
        raise InvalidOption(f"the param {clash!r} has the name of a secret that the job is given: call it something else")
    return bound


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


def encoded_order(orders: Orders, job: Claimed) -> str:
    """Return the order for a job as it goes from the engine to an executor of the same process."""
    return msgspec.json.encode(orders.order(job)).decode()
