"""The Python surface: `Rota`, what a program holds."""

from rota.surfaces.python.looking import Looking
from rota.surfaces.python.running import Running
from rota.surfaces.python.steering import Steering
from rota.surfaces.python.submitting import Submitting


class Rota(Submitting, Looking, Steering, Running):
    """A durable job queue on one store. Nothing is opened before it is used; one object serves all threads."""


__all__ = ["Rota"]
