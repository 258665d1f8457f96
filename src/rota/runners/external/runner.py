"""Runs one external command for each order, and returns when nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, TypeAlias

from rota.errors import InvalidOption
from rota.model.decide import Failed, Outcome
from rota.model.findings import Finding, advice, ok, problem
from rota.model.settings import Settings
from rota.ports.executor import forced
from rota.ports.runner import Control, Order, Stream
from rota.runners.external.config import ExternalConfig, IsolationMode
from rota.runners.external.isolation import REMEDY, arguments, exposed, probe_isolation
from rota.runners.external.outcome import Attempt, outcome_of
from rota.runners.external.output import Output
from rota.runners.external.program import NOT_RUNNABLE, CommandRefused, Program, open_program
from rota.runners.external.warden import PROGRAM_FD, SECRETS_FD
from rota.runners.external.warden_process import WardenProcess, sealed

NAME = "commands"
KeyFiles: TypeAlias = Callable[[], Iterable[str]]
ENVIRONMENT_MAX = 128 * 1024
"""Bytes of all variables of one command."""


def refuse_exposed(config: ExternalConfig, store: str, key_files: Iterable[str]) -> None:
    """Refuse a file of commands whose namespaces would show the store, or the master keys."""
    if config.isolation is not IsolationMode.OFF and (reason := exposed(config, store, key_files)):
        raise InvalidOption(f"external_file {config.source}: {reason}")


class ExternalRunner:
    """Runs the commands that the operator's file allows. Implements `rota.ports.runner.Runner`."""

    def __init__(self, config: ExternalConfig, settings: Settings, store: str, *, key_files: KeyFiles = tuple) -> None:
        """Find out how commands can be isolated here. A namespace that shows the store's file, or one of the master keys, is refused.

        `store` is its address. `key_files` says where the master keys are now.
        """
        self._config, self._settings = config, settings
        self._store, self._key_files = store, key_files
        refuse_exposed(config, store, key_files())
        self.isolation = probe_isolation(config)
        self._lock = Lock()
        self._running: set[WardenProcess] = set()
        self._until: float | None = None

    # ---- what it would run --------------------------------------------------------------------------------

    def check(self, body: str) -> None:
        """Raise BodyRefused for a command line that this worker would not run, saying why."""
        with self._admitted(body):
            pass

    def report(self) -> list[Finding]:
        """Describe for `rota doctor` which commands are allowed and how they are confined."""
        return [self._allowed(), self._confined()]

    def _allowed(self) -> Finding:
        config = self._config
        listed = ", ".join((*config.programs, *(f"{folder}/*" for folder in config.folders)))
        user = config.user.name if config.user else "the worker's user"
        return ok(NAME, f"{config.source} allows {listed}, as {user}, in {config.directory}")

    def _confined(self) -> Finding:
        config, found = self._config, self.isolation
        if found.program is not None:
            network = "with the machine's network" if config.network else "without a network"
            return ok(NAME, f"commands run in namespaces of their own ({found.program}), {network}")
        if config.isolation is IsolationMode.REQUIRE:
            return problem(NAME, f"no command runs here: {found.reason}", REMEDY)
        return advice(
            NAME,
            f"commands run without namespaces ({found.reason}): they can read what their user can, and use the network",
            "install bubblewrap, and set isolation = 'require'",
        )

    # ---- running ------------------------------------------------------------------------------------------

    def run(self, order: Order, control: Control) -> Outcome:
        """Run the command and return how it ended."""
        if (reason := control.reason()) is not None:
            return forced(reason, order.timeout_s)
        try:
            with self._admitted(order.body) as program:
                return self._run(order, control, program)
        except IsolationMissing as error:
            # Another worker may have what is missing here.
            return Failed(str(error), exit_code=error.exit_code)
        except CommandRefused as error:
            return Failed(str(error), permanent=True, exit_code=error.exit_code)
        except OSError as error:
            return Failed(f"the command could not be started: {error.strerror or error}", exit_code=NOT_RUNNABLE)

    def renew(self, until: float | None) -> None:
        """Tell every warden how long its command may run; later ones begin with it."""
        with self._lock:
            self._until = until
            for warden in self._running:
                warden.renew(until)

    def close(self) -> None:
        """Keep nothing between runs: each has its own warden, which ends with it."""

    def _admitted(self, body: str) -> Program:
        """Return the program of a command line, or refuse it."""
        if self.isolation.program is None and self._config.isolation is IsolationMode.REQUIRE:
            raise IsolationMissing(f"no command runs here, because isolation is required: {self.isolation.reason}; {REMEDY}")
        if self.isolation.program is not None and (reason := exposed(self._config, self._store, self._key_files())):
            # Links may lead elsewhere than when the worker was started, and keys may have been moved.
            raise IsolationMissing(f"no command runs here: {self._config.source}: {reason}")
        program = open_program(body, self._config)
        if self.isolation.program is not None and not program.has_known_format():
            # Bubblewrap would have a shell try it.
            os.close(program.descriptor)
            raise CommandRefused(f"{program.path!r} can't be run: exec format error (neither a program nor a script with #!)")
        return program

    def _run(self, order: Order, control: Control, program: Program) -> Outcome:
        output = Output(control, self._config.limits, result_max=self._settings.result_max, secrets=order.secrets.values())
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            descriptors = {"program": program.descriptor}
            if order.secrets:
                descriptors["secrets"] = stack.enter_context(sealed(json.dumps(dict(order.secrets))))
            warden = self._start(order, program, descriptors)
            stack.callback(self._forget, warden)
            with control.watch(warden.stop, warden.kill):
                end = warden.follow(lambda stream, data: _take(warden, output, stream, data))
        output.finish()
        return outcome_of(
            Attempt(
                config=self._config,
                isolated=self.isolation.program is not None,
                timeout_s=order.timeout_s,
                seconds=time.monotonic() - begun,
                reason=control.reason(),
                end=end,
                output=output,
            )
        )

    def _start(self, order: Order, program: Program, descriptors: Mapping[str, int]) -> WardenProcess:
        asked = self._asked(order, program)
        with self._lock:
            warden = WardenProcess({**asked, "lease": self._until}, descriptors)
            self._running.add(warden)
            return warden

    def _forget(self, warden: WardenProcess) -> None:
        with self._lock:
            self._running.discard(warden)
        warden.close()

    def _asked(self, order: Order, program: Program) -> dict[str, Any]:
        """Return what a warden is asked to run. No secret is in it."""
        config, isolation, limits = self._config, self.isolation, self._config.limits
        isolated = isolation.program is not None
        words = [*arguments(config, isolation, program.path), "--", program.path, *program.words[1:]] if isolated else program.words
        return {
            "program": isolation.program or f"/proc/self/fd/{PROGRAM_FD}",
            "program_fd": not isolated or "--ro-bind-fd" in isolation.options,
            "arguments": words,
            "environment": self._environment(order),
            "directory": config.directory,
            "user": None if config.user is None else [config.user.uid, config.user.gid],
            "isolated": isolated,
            "grace_s": limits.grace_seconds,
            "limits": {
                "cpu_seconds": limits.cpu_seconds,
                "memory_bytes": limits.memory_bytes,
                "file_bytes": limits.file_bytes,
                "processes": limits.processes,
                "open_files": limits.open_files,
            },
        }

    def _environment(self, order: Order) -> dict[str, str]:
        config = self._config
        variables = {name: os.environ[name] for name in config.environment if name in os.environ}
        variables |= config.variables
        variables |= {
            "ROTA_JOB_UUID": order.job_uuid,
            "ROTA_JOB_RUN_UUID": order.run_uuid,
            "ROTA_JOB_NAME": order.job_name,
            "ROTA_ATTEMPT": str(order.attempt),
        }
        if order.secrets:
            variables["ROTA_SECRETS_FD"] = str(SECRETS_FD)
        size = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in variables.items())
        if size > ENVIRONMENT_MAX:
            raise CommandRefused(f"the environment has {size:,} bytes; at most {ENVIRONMENT_MAX:,} are allowed: see {config.source}")
        return variables


class IsolationMissing(CommandRefused):
    """No command runs on this worker, because it can't isolate any."""


def _take(warden: WardenProcess, output: Output, stream: Stream, data: bytes) -> None:
    was = output.is_flood
    output.take(stream, data)
    if output.is_flood and not was:
        warden.kill()
