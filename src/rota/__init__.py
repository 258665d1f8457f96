"""Rota: a durable job scheduler and background-job engine.

from rota import Rota

rota = Rota("rota.db")

@rota.job
def greet(name: str) -> str:
    return f"Hello, {name}"

with rota.running():
    job = rota.enqueue("greet", {"name": "Ada"})
    print(rota.wait(job.id).result)
"""

from rota.engine.submit import NewJob
from rota.engine.trigger import NotRun
from rota.errors import RotaError
from rota.executors.context import Context
from rota.model.backoff import Backoff
from rota.model.gate import Actor
from rota.model.settings import Settings
from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze, TransientError
from rota.model.states import GroupStatus, RunStatus, Status
from rota.model.values import Group, Job, Run
from rota.surfaces.python import Rota

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "Backoff",
    "Cancelled",
    "Context",
    "Group",
    "GroupStatus",
    "Job",
    "NewJob",
    "NotRun",
    "PermanentError",
    "Retry",
    "Rota",
    "RotaError",
    "Run",
    "RunStatus",
    "Settings",
    "Skip",
    "Snooze",
    "Status",
    "TransientError",
]
