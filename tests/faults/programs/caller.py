"""Calls direct(): prints `calling`, then the end of the run. Arguments: job name, its gate, timeout in seconds."""

import sys

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

from rota import RotaError

if __name__ == "__main__":
    name, gate, timeout = sys.argv[1:4]
    print("calling", flush=True)
    try:
        run = rota.jobs.direct(name, {"gate": gate} if gate else {}, timeout=float(timeout))
    except RotaError as error:
        print("refused", type(error).__name__, error, flush=True)
    else:
        print("ended", run.status, run.error, flush=True)
    rota.close()
