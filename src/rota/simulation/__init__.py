"""Simulation: the real engine on a copy of a store's definitions, under a clock that leaps from event to event.

`stage` makes the throw-away store, its `play` lives through it and tells. Handlers are not called: each job ends after a while,
as its type is known to. The same definitions, start and seed give the same story, byte for byte.
"""

from rota.simulation.fleet import Roll
from rota.simulation.preview import Carried, Preview, preview
from rota.simulation.report import Line, Simulated, Tally
from rota.simulation.run import Deed, Fault, Order, faults_of
from rota.simulation.stage import Definitions, Stage, read, stage
from rota.simulation.store import open_for_reading

__all__ = [
    "Carried",
    "Deed",
    "Definitions",
    "Fault",
    "Line",
    "Order",
    "Preview",
    "Roll",
    "Simulated",
    "Stage",
    "Tally",
    "faults_of",
    "open_for_reading",
    "preview",
    "read",
    "stage",
]
