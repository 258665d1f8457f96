"""The graph of what waits for what around one chain, read from the edges."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.dependencies import RUN
from rota.model.values import Dependency, Graph, Job, dashed, moment
from rota.stores.verbs import reads
from rota.stores.verbs.db import Db

_encode = msgspec.json.Encoder().encode

EDGES_PER_JOB = 20
"""A graph shows at most so many edges for each job that it may show."""


def graph(db: Db, job_id: str, limit: int) -> Graph | None:
    """Return the chains around one, both ways, near ones first, and the edges between them."""
    row = db.row("locate", job_id=job_id)
    if row is None:
        return None
    root_id = str(row[0])
    roots = {root_id: None}
    cut = _walk(db, "parents_of", root_id, roots, limit)
    cut = _walk(db, "children_of", root_id, roots, limit) or cut
    text, most = _encode(list(roots)).decode(), limit * EDGES_PER_JOB
    jobs = _tails(db, text)
    rows = db.rows("edges_among", roots=text, limit=most + 1)
    return Graph(
        root_id=dashed(root_id),
        jobs={dashed(root): jobs[dashed(root)] for root in roots if dashed(root) in jobs},
        edges=_between(rows[:most], jobs),
        cut=cut or len(rows) > most,
    )


def _walk(db: Db, name: str, root_id: str, roots: dict[str, None], limit: int) -> bool:
    """Go from chain to chain, level by level, until there are no more or there are enough; say whether there are more."""
    level, known, most = [root_id], {root_id}, limit * EDGES_PER_JOB
    while level:
        rows = db.rows(name, roots=_encode(level).decode(), limit=most + 1)
        level = [root for (root,) in dict.fromkeys(rows) if root not in known]
        known.update(level)
        for root in level:
            if root not in roots and len(roots) >= limit:
                return True
            roots[root] = None
        if len(rows) > most:
            return True
    return False


def _tails(db: Db, roots: str) -> dict[str, Job]:
    jobs = (reads.job_from(row) for row in db.rows("tails_of", roots=roots))
    return {job.root_id: job for job in jobs}


def _between(rows: list[tuple[Any, ...]], jobs: dict[str, Job]) -> tuple[Dependency, ...]:
    """Return the edges whose parent is still there; of two attempts that wait for the same chain the later one counts."""
    found = {
        (child, parent): Dependency(
            child=dashed(child),
            parent=dashed(parent),
            needs=needs,
            on_failure=RUN if needs == "end" and source == "user" else on_failure,
            source=source,
            resolved_at=moment(resolved_at),
        )
        for child, parent, needs, on_failure, source, resolved_at in rows
    }
    return tuple(edge for edge in found.values() if edge.child in jobs and edge.parent in jobs)
