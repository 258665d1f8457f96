"""A program: how many calls keeping output costs once the log is full, and how many bytes are held. Prints JSON."""

import json
import os
import sys
import tempfile
from pathlib import Path

from rota.executors.attempt import RunLog
from rota.executors.capture import CHUNK, Capture
from rota.model.settings import Settings
from rota.ports.clock import SystemClock

KINDS = {
    "newlines": b"\n" * CHUNK,
    "binary": bytes(range(256)) * (CHUNK // 256),
    "text": (b"x" * 79 + b"\n") * (CHUNK // 80),
    "one line": b"x" * CHUNK,
}
CHUNKS = 64


def main() -> None:
    folder, answer = tempfile.mkdtemp(), os.dup(1)
    capture, costs = Capture(), {}
    for number, (kind, data) in enumerate(KINDS.items()):
        log = RunLog(folder, f"{number:032x}", clock=SystemClock(), settings=Settings(log_max=20_000))
        capture.begin(log)
        capture._keep(data)
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        for _ in range(CHUNKS):
            capture._keep(data)
        sys.setprofile(None)
        held = len(capture._partial)
        capture.end()
        cuts = Path(log.close()).read_text().count("the log was cut here")
        costs[kind] = {"calls": calls / CHUNKS, "held": held, "cuts": cuts}
    os.write(answer, json.dumps(costs).encode())


if __name__ == "__main__":
    main()
