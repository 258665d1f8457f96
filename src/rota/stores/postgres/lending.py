"""Setting up a caller's connection for one verb, and giving it back as it was."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import pq

from rota.errors import StoreUnusable, TransactionMisuse
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import PLANS
from rota.stores.postgres.guest import Guest
from rota.stores.postgres.statements import texts

READ_COMMITTED = frozenset({b"read committed", b"read uncommitted"})


class Lending:
    """What is done to a connection on its way in and out. All of it is LOCAL: should a way out be missed, the transaction's end is one."""

    def __init__(self, where: Address, *, wait_s: float, place: Callable[[], tuple[str, str]]) -> None:
        """Take where the store is, how long its locks are waited for, and how it says so itself: see `place` in server.sql."""
        self.where = where
        self._place = place
        self._own: tuple[str, str] | None = None
        self._settings = PLANS | {"search_path": where.search_path, "lock_timeout": f"{max(1, round(wait_s * 1000))}ms"}
        usable = f"coalesce(has_schema_privilege(to_regnamespace('{where.schema}'), 'USAGE'), false)::text, current_user"
        state = "current_setting('transaction_isolation'), current_setting('transaction_read_only')"
        old = ", ".join(f"current_setting('{name}')" for name in self._settings)
        new = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in self._settings.items())
        self._in = f"SAVEPOINT rota_part; {texts()['place'].rstrip('; ')}, {usable}, {state}, {old}; SELECT {new}; "

    def enter(self, guest: Guest, lock: str) -> list[bytes]:
        """Set a savepoint, set up and lock, in one round trip; return the settings as they were."""
        database, started, usable, role, isolation, read_only, *before = guest.ask(self._in + lock)
        self._check_place(database.decode(), started.decode())
        if usable != b"true":
            raise StoreUnusable(
                f"role {role.decode()!r} of the caller's connection may not use schema {self.where.schema!r} of {self.where.shown}: "
                f"let its owner run what `rota grants {role.decode()} --kind submitter` prints"
            )
        if read_only == b"on":
            raise TransactionMisuse("this transaction is READ ONLY: enqueue in one that may write")
        guest.isolated = isolation not in READ_COMMITTED
        return before

    def leave(self, guest: Guest, before: list[bytes], *, hint: bool) -> None:
        """Set the settings back, send the hint, which goes with the caller's commit, and give the savepoint up; in one round trip."""
        escape = pq.Escaping(guest.raw.pgconn).escape_literal
        back = ", ".join(
            f"set_config('{name}', {escape(value).decode()}, true)" for name, value in zip(self._settings, before, strict=True)
        )
        notify = f"NOTIFY {self.where.schema_quoted}; " if hint else ""
        guest.execute(f"{notify}SELECT {back}; RELEASE rota_part")

    def _check_place(self, *found: str) -> None:
        if found == self._own:
            return
        # Asked anew: a server that was restarted has another moment.
        self._own = self._place()
        if found != self._own:
            which = f"database {found[0]!r}" if found[0] != self._own[0] else f"a database {found[0]!r} of another server"
            raise TransactionMisuse(
                f"this connection is to {which}, and jobs are kept in {self.where.shown}: give one to that, or leave transaction= out"
            )
