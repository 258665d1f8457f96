"""The jobs of Rota's side, in a module of their own so that a handler process can import them."""

from __future__ import annotations

import os
import time

from common import STORES, mongodb_url, started

from rota import Rota

FILE = STORES / os.environ.get("BENCH_ROTA_FILE", "rota.db")
DATABASE = os.environ.get("BENCH_ROTA_DATABASE", "")
"""Where there is one, Rota is on the run's PostgreSQL and not in a file."""
MONGODB = os.environ.get("BENCH_ROTA_MONGODB", "")
"""Where there is one, Rota is in this database of the run's replica set."""
OPENED = time.monotonic()
"""When the store was opened, for the time until ready."""


def _where() -> str:
    if MONGODB:
        return mongodb_url(MONGODB)
    return f"{os.environ.get('BENCH_POSTGRES')}/{DATABASE}" if DATABASE else str(FILE)


rota = Rota(_where())


@rota.job()
def noop(number: int, kind: str, sent: float, pad: str) -> None:
    """Do nothing but be counted, on a thread."""
    started({"number": number, "kind": kind, "sent": sent})


@rota.job(executor="process")
def noop_process(number: int, kind: str, sent: float, pad: str) -> None:
    """Do nothing but be counted, in a process that can be killed."""
    started({"number": number, "kind": kind, "sent": sent})
