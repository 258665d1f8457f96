"""The store on one SQLite file."""

from rota.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
