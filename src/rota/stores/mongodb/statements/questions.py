"""Several questions to the server in one trip, for what every turn or enqueue asks."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.statements.joining import in_chunks

AT_ONCE = 100
"""Questions in one trip: a pipeline has at most 1,000 stages."""
ANY = {"_id": "definitions_version"}
"""A document that is always there: the answers are put beside it."""

Question = tuple[str, Sequence[Document]]
"""A collection, and the stages of a pipeline over it."""


def answers(db: Db, questions: Sequence[Question]) -> list[list[Document]]:
    """Return what each of these pipelines gives; each answer must be short, as they share a document."""
    found: list[list[Document]] = []
    for some in in_chunks(questions, AT_ONCE):
        names = [f"answer_{place}" for place in range(len(some))]
        lookups = [
            {"$lookup": {"from": collection, "pipeline": list(stages), "as": name}}
            for name, (collection, stages) in zip(names, some, strict=True)
        ]
        (together,) = db.aggregate("meta", [{"$match": ANY}, *lookups])
        found += [together[name] for name in names]
    return found
