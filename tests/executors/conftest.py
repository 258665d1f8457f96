"""A stand-in for the engine: submits, ticks, listens, and waits for facts."""

import importlib
import inspect
import threading
import time
from pathlib import Path

import msgspec
import pytest

from rota.executors import build
from rota.executors.attempt import log_path
from rota.model.handler import inspect_handler
from rota.model.kinds import RUNNER
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.model.values import Claimed
from rota.ports.clock import SystemClock
from rota.ports.executor import Equipment, Question, Receipt, Reply
from tests.executors.scripted_runner import ScriptedRunner, order_for
from tests.support.pace import patient

PATIENCE_S = 20.0

_DEFAULTS = {
    "root_number": 1,
    "origin": "api",
    "organization_id": "default",
    "params": "{}",
    "priority": 50,
    "position": 100,
    "attempt": 1,
    "failures": 0,
    "crashes": 0,
    "snoozes": 0,
    "max_retries": 5,
    "max_crashes": 3,
    "backoff": "{}",
    "timeout": 0.0,
    "started_at": 0,
    "checkpoint": None,
    "owner": "local",
    "trace": None,
    "meta": None,
    "counted_at": 0,
    "start_by": 0.0,
    "lane": 0,
}


def claimed(number, job_type, executor, **fields):
    ids = {name: f"{number:08x}{kind}" + "0" * 16 for name, kind in (("job_id", "a" * 8), ("root_id", "b" * 8), ("run_id", "c" * 8))}
    values = {"number": number, "job_type": job_type, "executor": executor} | ids | _DEFAULTS | fields
    return Claimed(**{name: values[name] for name in Claimed.__struct_fields__})


class Ear:
    """A Sink that remembers."""

    def __init__(self):
        self.heard = threading.Condition()
        self.ends = []
        self.reports = []
        self.answers = True
        """Whether a checkpoint is answered at once; else its answer is left in `waiting`."""
        self.waiting = []
        self.reply = None
        """To every request, in the place of an order."""
        self.secrets = {}

    def ended(self, ended):
        with self.heard:
            self.ends.append(ended)
            self.heard.notify_all()

    def report(self, report):
        with self.heard:
            self.reports.append(report)
            self.heard.notify_all()

    def keep(self, report, answer):
        self.report(report)
        if self.answers:
            answer(Receipt.WRITTEN)
        else:
            self.waiting.append(answer)

    def ask(self, job, request, replied):
        """Answer what a runner asks for: to do what the job's type says, with its params."""
        assert request.question is Question.ORDER
        replied(self.reply or Reply(order_for(job, self.secrets)))


class Rig:
    def __init__(self, place, folder, *, slots=1, lock_fd=None, clock=None, module=None, **settings):
        self.place = place
        self.folder = folder
        self.ear = Ear()
        self.clock = clock or SystemClock()
        self.log_dir = str(folder / "logs")
        self.number = 0
        module = module or ("tests.executors.async_handlers" if place == "async" else "tests.executors.handlers")
        handlers = {} if place == RUNNER else _handlers(module, place)
        self.equipment = Equipment(
            handlers=handlers,
            sink=self.ear,
            clock=self.clock,
            settings=Settings(**({"progress_interval": 3600.0, "kill_grace": 5.0} | settings)),
            slots=slots,
            log_dir=self.log_dir,
            lock_fd=lock_fd,
            runners={JobKind.SQL: ScriptedRunner},
        )
        self.executor = build(place, self.equipment)

    def path(self, name):
        return str(self.folder / name)

    def job(self, job_type, /, *, timeout=0.0, checkpoint=None, attempt=1, **params):
        self.number += 1
        text = msgspec.json.encode(params).decode()
        return claimed(self.number, job_type, self.place, params=text, timeout=timeout, checkpoint=checkpoint, attempt=attempt)

    def submit(self, job_type, /, **fields):
        job = self.job(job_type, **fields)
        self.executor.submit([job])
        return job

    def run(self, job_type, /, **fields):
        return self.end_of(self.submit(job_type, **fields))

    def outcome(self, job_type, /, **fields):
        return self.run(job_type, **fields).outcome

    def end_of(self, job):
        self.until(lambda: any(end.job.number == job.number for end in self.ear.ends))
        ends = [end for end in self.ear.ends if end.job.number == job.number]
        assert len(ends) == 1
        return ends[0]

    def reports_of(self, job):
        return [report for report in self.ear.reports if report.number == job.number]

    def progress_of(self, job):
        return [(report.progress, report.message) for report in self.reports_of(job) if report.progress is not None]

    def log_of(self, job):
        path = Path(log_path(self.log_dir, job.run_id))
        return path.read_text() if path.exists() else ""

    def until(self, fact, *, ticking=True):
        deadline = time.monotonic() + patient(PATIENCE_S)
        while not fact():
            assert time.monotonic() < deadline, "it did not happen"
            if ticking:
                self.executor.tick(self.clock.monotonic())
            with self.ear.heard:
                self.ear.heard.wait(0.002)

    def until_exists(self, *names):
        self.until(lambda: all((self.folder / name).exists() for name in names))


def _handlers(module, place):
    members = inspect.getmembers(importlib.import_module(module), inspect.isfunction)
    functions = [(name, function) for name, function in members if function.__module__ == module and function.__name__ == name]
    return {name: inspect_handler(name, function, place) for name, function in functions if place != "async" or _is_async(function)}


def _is_async(function):
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


@pytest.fixture
def make_rig(tmp_path):
    rigs = []

    def make(place, **fields):
        rigs.append(Rig(place, tmp_path, **fields))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.executor.close()
