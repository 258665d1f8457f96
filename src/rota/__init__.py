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
    from rota.app import Rota, enqueue_async
    from rota.errors import JobCancelled, JobFailed, JobSkipped, RotaError, WaitTimeout
    from rota.executors.context import Context
    from rota.handle import Handle
    from rota.hooks import NotRun
    from rota.model.backoff import Backoff
    from rota.model.call import Call, NewJob
    from rota.model.gate import Actor
    from rota.model.groups import Group
    from rota.model.settings import Settings
    from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze, TransientError
    from rota.model.states import GroupStatus, RunStatus, Status
    from rota.model.values import Job, Run
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
    "enqueue_async",
]

_MODULES = {
    name: module
    for module, names in {
        "rota.app": "Rota enqueue_async",
        "rota.errors": "JobCancelled JobFailed JobSkipped RotaError WaitTimeout",
        "rota.executors.context": "Context",
        "rota.handle": "Handle",
        "rota.hooks": "NotRun",
        "rota.model.backoff": "Backoff",
        "rota.model.call": "Call NewJob",
        "rota.model.gate": "Actor",
        "rota.model.settings": "Settings",
        "rota.model.signals": "Cancelled PermanentError Retry Skip Snooze TransientError",
        "rota.model.states": "GroupStatus RunStatus Status",
        "rota.model.groups": "Group",
        "rota.model.values": "Job Run",
        "rota.task": "EnqueueOptions JobOptions JobSet Task",
    }.items()
    for name in names.split()
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
