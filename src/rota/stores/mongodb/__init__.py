"""The MongoDB store. Import it only when it is used: it needs pymongo."""

from rota.stores.mongodb.store import MongoStore

__all__ = ["MongoStore"]
