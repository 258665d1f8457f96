"""Holds the write lock of the store: prints `locked`, waits until the file named exists (or so many seconds), lets go."""

import sys
import time
from pathlib import Path

import apsw
import limits  # noqa: F401 - ends this program after a while, whatever happens

database, until = sys.argv[1], sys.argv[2]
connection = apsw.Connection(database)
connection.set_busy_timeout(20_000)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
if until.replace(".", "").isdigit():
    time.sleep(float(until))
else:
    while not Path(until).exists():
        time.sleep(0.005)
connection.execute("COMMIT")
print("let go", flush=True)
