"""The statements of this dialect: a module for each noun, a function for each name that the verbs use."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pymongo.database import Database
from pymongo.write_concern import WriteConcern

from rota.stores.mongodb.documents import Document


def load() -> None:
    """Import every module, and so register every statement."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def ring(database: Database[Document]) -> None:
    """Write the document that processes watch for hints. Nobody waits for the answer: a hint that is lost costs a poll."""
    database["bell"].with_options(write_concern=WriteConcern(0)).update_one({"_id": "bell"}, {"$inc": {"rings": 1}})
