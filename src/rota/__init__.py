"""Rota: a durable job scheduler and background-job engine.

from rota import Rota

rota = Rota("rota.db")

@rota.job
def greet(name: str) -> str:
    return f"Hello, {name}"

with rota.running():
    print(greet.enqueue("Ada").result())
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.engine.submit import NewJob
    from rota.errors import JobCancelled, JobFailed, JobSkipped, RotaError, WaitTimeout
    from rota.executors.context import Context
    from rota.handle import Handle
    from rota.hooks import NotRun
    from rota.model.backoff import Backoff
    from rota.model.call import Call
    from rota.model.gate import Actor
    from rota.model.settings import Settings
    from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze, TransientError
    from rota.model.states import GroupStatus, RunStatus, Status
    from rota.model.values import Group, Job, Run
    from rota.task import EnqueueOptions, JobOptions, JobSet, Task

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "Backoff",
    "Call",
    "Cancelled",
    "Context",
    "EnqueueOptions",
    "Group",
    "GroupStatus",
    "Handle",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobOptions",
    "JobSet",
    "JobSkipped",
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
    "Task",
    "TransientError",
    "WaitTimeout",
]

_MODULES = {
    "Actor": "rota.model.gate",
    "Backoff": "rota.model.backoff",
    "Call": "rota.model.call",
    "Cancelled": "rota.model.signals",
    "Context": "rota.executors.context",
    "EnqueueOptions": "rota.task",
    "Group": "rota.model.values",
    "GroupStatus": "rota.model.states",
    "Handle": "rota.handle",
    "Job": "rota.model.values",
    "JobCancelled": "rota.errors",
    "JobFailed": "rota.errors",
    "JobOptions": "rota.task",
    "JobSet": "rota.task",
    "JobSkipped": "rota.errors",
    "NewJob": "rota.engine.submit",
    "NotRun": "rota.hooks",
    "PermanentError": "rota.model.signals",
    "Retry": "rota.model.signals",
    "Rota": "rota.app",
    "RotaError": "rota.errors",
    "Run": "rota.model.values",
    "RunStatus": "rota.model.states",
    "Settings": "rota.model.settings",
    "Skip": "rota.model.signals",
    "Snooze": "rota.model.signals",
    "Status": "rota.model.states",
    "Task": "rota.task",
    "TransientError": "rota.model.signals",
    "WaitTimeout": "rota.errors",
}
"""Where each public name is defined: its module is imported when the name is first used."""

# Type checkers would take any name for granted if they saw `__getattr__`: they read the imports above.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "errors":
            return import_module("rota.errors")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
