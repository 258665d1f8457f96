"""Calls direct() again and again as bob of acme, until it is killed. Arguments: job name, its gate, timeout in seconds."""

import sys
import time

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

from rota import RotaError
from rota.model.gate import Actor, Role

if __name__ == "__main__":
    name, gate, timeout = sys.argv[1:4]
    print("calling", flush=True)
    while True:
        try:
            rota.acting_as(Actor("bob", "acme", Role.USER)).jobs.direct(name, {"gate": gate} if gate else {}, timeout=float(timeout))
        except RotaError as error:
            print("refused", type(error).__name__, error, flush=True)
            time.sleep(0.001)
