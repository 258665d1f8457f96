"""Carry out a script and die at one of its writes, as a process that is killed: python sql_creator.py STORE WRITE SCRIPT [--atomic]."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from rota import Rota


def main(where: str, last: int, script: str, *, atomic: bool) -> None:
    rota = Rota(where)

    @rota.job
    def report() -> None: ...

    rota.sql("SHOW JOBS")
    kind = next((kind for kind in ("postgres", "mongodb") if where.startswith(kind)), "sqlite")
    db: Any = import_module(f"rota.stores.{kind}.db").Db
    change, count = db.change, 0

    def dying(self: Any, name: str, /, **values: Any) -> int:
        nonlocal count
        count += 1
        if count == last:
            # As by SIGKILL: nothing is closed and nothing is told.
            os._exit(9)
        return change(self, name, **values)

    db.change = dying
    rota.sql(script, atomic=atomic)
    os._exit(0)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], atomic="--atomic" in sys.argv)
