"""Keeps everybody else from writing: prints `locked`, waits until the file named exists (or so many seconds), lets go.

Arguments: the store, and that file or number.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import limits  # noqa: F401 - ends this program after a while, whatever happens

from tests.faults.raw import locked

if __name__ == "__main__":
    store, until = os.environ["FAULTS_DB"], sys.argv[1]
    with locked(store if "://" in store else Path(store), wait_s=20):
        print("locked", flush=True)
        if until.replace(".", "").isdigit():
            time.sleep(float(until))
        else:
            while not Path(until).exists():
                time.sleep(0.005)
    print("let go", flush=True)
