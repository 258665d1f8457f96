"""A runner whose work is what the handlers of the other executors do, as far as a runner can: the executor is what is tested."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from rota.model.decide import Completed, Failed, Outcome
from rota.model.params import decode_params
from rota.model.schedules import JobKind
from rota.model.values import Claimed
from rota.ports.executor import forced
from rota.ports.runner import Control, Order, Stream

LOOK_S = 0.002


def order_for(job: Claimed, secrets: dict[str, str]) -> str:
    """Return the order for a job: its type is the body."""
    order = Order(
        kind=JobKind.EXTERNAL if job.job_type == "of_another_kind" else JobKind.SQL,
        body=job.job_type,
        params=decode_params(job.params),
        job_uuid="",
        run_uuid=job.job_id,
        job_name=job.job_type,
        attempt=job.attempt,
        owner="ada",
        organization="default",
        timeout_s=job.timeout,
        secrets=secrets,
    )
    return msgspec.json.encode(order).decode()


class ScriptedRunner:
    """Does what the body names. All that were made are in `made`, the newest last."""

    made: ClassVar[list[ScriptedRunner]] = []

    def __init__(self) -> None:
        self.until: list[float | None] = []
        self.closed = False
        self.stops: list[str] = []
        ScriptedRunner.made.append(self)

    def run(self, order: Order, control: Control) -> Outcome:
        result = getattr(self, f"do_{order.body}")(order, control, **order.params)
        return result if isinstance(result, Outcome) else Completed(None if result is None else msgspec.json.encode(result).decode())

    def renew(self, until: float | None) -> None:
        self.until.append(until)

    def close(self) -> None:
        self.closed = True

    def do_nothing(self, _order: Order, _control: Control) -> None: ...

    def do_give(self, _order: Order, _control: Control, value: Any) -> Any:
        return value

    def do_until_file(self, _order: Order, _control: Control, started: str, go: str, mark: str | None = None) -> str:
        Path(started).touch()
        while not Path(go).exists():
            time.sleep(LOOK_S)
        if mark is not None:
            Path(mark).touch()
        return "late"

    def do_tidy(self, order: Order, control: Control, started: str, tidied: str) -> Outcome:
        return self.do_until_cancelled(order, control, started)

    def do_until_cancelled(self, order: Order, control: Control, started: str) -> Outcome:
        """Work until it is asked to stop, and end as a runner does that was."""
        self._until_stopped(control, started)
        return forced(control.reason(), order.timeout_s)

    def do_until_cancelled_then_return(self, _order: Order, control: Control, started: str) -> str:
        self._until_stopped(control, started)
        return "finished anyway"

    def do_until_cancelled_then_fail(self, _order: Order, control: Control, started: str) -> Outcome:
        self._until_stopped(control, started)
        return Failed("RuntimeError: in that very instant")

    def do_until_forced(self, order: Order, control: Control, started: str) -> Outcome:
        """Heed only force."""
        pushed = threading.Event()
        with control.watch(lambda: self.stops.append("stop"), lambda: (self.stops.append("force"), pushed.set())):
            Path(started).touch()
            pushed.wait()
        return forced(control.reason(), order.timeout_s)

    def do_stubborn(self, _order: Order, control: Control, started: str, go: str) -> str:
        """Heed nothing."""
        with control.watch(lambda: self.stops.append("stop"), lambda: self.stops.append("force")):
            self.do_until_file(_order, control, started, go)
        return "late"

    def do_fail_to_stop(self, order: Order, control: Control, started: str, go: str) -> str:
        """Raise when it is asked to stop."""

        def stop() -> None:
            raise RuntimeError(f"could not cancel with {order.secrets.get('key')}")

        with control.watch(stop, lambda: None):
            return self.do_until_file(order, control, started, go)

    def do_stop_late(self, _order: Order, control: Control, started: str, go: str) -> list[str]:
        """Be asked to stop before it watches."""
        self.do_until_file(_order, control, started, go)
        called = threading.Event()
        with control.watch(called.set, lambda: None):
            called.wait(5)
        return [str(control.reason()), str(called.is_set())]

    def do_say(self, _order: Order, control: Control, pieces: list[list[str]]) -> None:
        for stream, text in pieces:
            control.output(Stream(stream), text.encode())

    def do_tell(self, order: Order, _control: Control, fails: bool = False) -> Outcome:
        """Return the secret in all that an outcome has."""
        key = order.secrets["key"]
        if fails:
            return Failed(f"wrong: {key}", traceback=f"at {key}")
        return Completed(msgspec.json.encode({"key": key, key: 1}).decode(), message=f"used {key}")

    def do_break(self, order: Order, _control: Control) -> None:
        raise RuntimeError(f"broken at {order.secrets.get('key')}")

    def do_remaining(self, _order: Order, control: Control) -> float | None:
        return control.remaining_s()

    @staticmethod
    def _until_stopped(control: Control, started: str) -> None:
        stopped = threading.Event()
        with control.watch(stopped.set, stopped.set):
            Path(started).touch()
            stopped.wait()
