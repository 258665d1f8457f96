"""The store on PostgreSQL."""

from rota.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
