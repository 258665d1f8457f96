"""What handlers wrote, kept in the store in SQL: pieces of a log, each at its place in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.values import Instant
from rota.ports.run_logs import Piece
from rota.stores.verbs.db import Db

PIECES = 64
"""Pieces that are read at a time."""


def append_logs(db: Db, pieces: Sequence[Piece], *, now: Instant) -> dict[str, int]:
    """Add pieces that begin where their log ends, and return how long each log is now."""
    # A later piece of one log is compared with those before it: each round adds one piece of each log.
    rounds: list[dict[str, Piece]] = []
    for piece in pieces:
        first = next((each for each in rounds if piece.run_id not in each), None)
        if first is None:
            rounds.append(first := {})
        first[piece.run_id] = piece
    for each in rounds:
        db.change("append_logs", rows=[(piece.run_id, piece.number, piece.start, piece.data.hex()) for piece in each.values()], now=now)
    return _sizes(db, list({piece.run_id: None for piece in pieces}))


def read_log(db: Db, run_id: str, *, after: int) -> bytes:
    """Return what a log has from a byte on, up to a bound."""
    rows = db.rows("log_after", run_id=run_id, after=after, limit=PIECES)
    data = b"".join([piece for _, piece in rows])
    return data[after - rows[0][0] :] if rows else b""


def ended_logs(db: Db, run_ids: Sequence[str]) -> dict[str, int]:
    """Return those of these runs that have ended and have a log here, with the numbers of their jobs."""
    return dict(db.rows("ended_logs", run_ids=list(run_ids)))


def _sizes(db: Db, run_ids: list[str]) -> dict[str, int]:
    return {run_id: size for run_id, size in db.rows("log_sizes", run_ids=run_ids) if size is not None}
