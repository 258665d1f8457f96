"""The Python surface: `Rota`, what a program holds."""

from rota.surfaces.python.admitting import Admitting
from rota.surfaces.python.charting import Charting
from rota.surfaces.python.checking import Checking
from rota.surfaces.python.clearing import Clearing
from rota.surfaces.python.depending import Depending
from rota.surfaces.python.facing import Facing
from rota.surfaces.python.following import Following
from rota.surfaces.python.forecasting import Forecasting
from rota.surfaces.python.hooking import Hooking
from rota.surfaces.python.importing import Importing
from rota.surfaces.python.loading import Loading
from rota.surfaces.python.looking import Looking
from rota.surfaces.python.measuring import Measuring
from rota.surfaces.python.promoting import Promoting
from rota.surfaces.python.running import Running
from rota.surfaces.python.simulating import Simulating
from rota.surfaces.python.steering import Steering
from rota.surfaces.python.submitting import Submitting
from rota.surfaces.python.tenants import Tenants


class Rota(
    Submitting,
    Looking,
    Clearing,
    Steering,
    Depending,
    Measuring,
    Charting,
    Forecasting,
    Simulating,
    Loading,
    Tenants,
    Admitting,
    Hooking,
    Following,
    Facing,
    Importing,
    Promoting,
    Checking,
    Running,
):
    """A durable job queue on one store. Nothing is opened before it is used; one object serves all threads."""


__all__ = ["Rota"]
