"""How far the common requests go through the code, warm and on a file: functions, files and SELECTs, so that they stay few.

A bound here is what was counted, rounded up a little: more than that is a layer that somebody added.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest
from starlette.testclient import TestClient

import rota as package
from rota import Rota
from rota.surfaces.cli import main
from rota.surfaces.http import make_app

ROOT = str(Path(package.__file__).parent)
WARM = 5
INNER = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Walk:
    """What was called of Rota, on all threads that began after this did."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.selects: list[str] = []
        self._on = False

    def profile(self, frame, event, _argument) -> None:
        code = frame.f_code
        # Comprehensions are part of their function, in Python 3.12 also for the profiler.
        if self._on and event == "call" and code.co_filename.startswith(ROOT) and code.co_name not in INNER:
            self.functions.add((code.co_filename, code.co_qualname))

    def trace(self, event) -> None:
        if self._on and event["sql"].lstrip().upper().startswith(("SELECT", "WITH")) and " INSERT " not in event["sql"].upper():
            self.selects.append(event["sql"])

    def of(self, call: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> tuple[int, int]:
        """Return how many functions in how many files a call goes through, once it is warm; what is done before it is not counted."""
        for _ in range(WARM):
            before()
            call()
        before()
        self.functions.clear()
        self.selects.clear()
        self._on = True
        sys.setprofile(self.profile)
        try:
            call()
        finally:
            sys.setprofile(None)
            self._on = False
        return len(self.functions), len({file for file, _ in self.functions})


@pytest.fixture
def walk(monkeypatch) -> Iterator[Walk]:
    made = Walk()
    hooks = [*apsw.connection_hooks, lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, made.trace)]
    monkeypatch.setattr(apsw, "connection_hooks", hooks)
    threading.setprofile(made.profile)
    yield made
    threading.setprofile(None)


@pytest.fixture
def store(walk, tmp_path) -> Iterator[Rota]:
    with closing(Rota(tmp_path / "rota.db")) as rota:

        @rota.job
        def greet(name: str, times: int = 1) -> str:
            return name * times

        yield rota


@contextmanager
def served(rota: Rota) -> Iterator[TestClient]:
    secret = rota.tokens.create("walker", permits=["manage"]).secret
    with TestClient(make_app(rota), headers={"Authorization": f"Bearer {secret}"}) as client:
        yield client


def test_enqueue(walk, store):
    functions, files = walk.of(lambda: store.enqueue("greet", {"name": "ada"}))
    assert functions <= 26
    assert files <= 14


@pytest.mark.parametrize("depends", [False, True])
def test_a_user_who_enqueues_reads_no_grants_though_they_have_just_changed(walk, store, depends):
    store.users.create("root", role="system_manager")
    store.users.create("bob")
    parent = [store.acting_as("bob").enqueue("greet", {"name": "ada"}).id] if depends else None

    def change() -> None:
        for grant in store.grants.list() or [None]:
            store.grants.create("CREATE JOB", "bob") if grant is None else store.grants.delete(grant.id)

    walk.of(lambda: store.acting_as("bob").enqueue("greet", {"name": "ada"}, depends_on=parent), before=change)
    assert not [text for text in walk.selects if "FROM grants" in text]
    # Who looks at jobs has them read, once for each change.
    walk.of(store.acting_as("bob").jobs.list, before=change)
    assert len([text for text in walk.selects if "FROM grants" in text]) == 1
    walk.of(store.acting_as("bob").jobs.list)
    assert not [text for text in walk.selects if "FROM grants" in text]


def test_claim_run_and_end_of_two_jobs_in_two_turns(walk, store):
    def enqueue() -> None:
        for _ in range(2):
            store.enqueue("greet", {"name": "ada"})

    def turn() -> None:
        store.turn()
        store.turn()

    # What a worker does now and then (beats, retention, a look for dead workers) falls into some of them.
    counts = [walk.of(turn, before=enqueue) for _ in range(5)]
    functions, files = min(counts)
    assert functions <= 113
    assert files <= 27


def test_creating_a_job_over_http(walk, store):
    with served(store) as client:
        functions, files = walk.of(lambda: client.post("/api/v1/jobs", json={"name": "greet", "params": {"name": "ada"}}))
    assert functions <= 73
    assert files <= 26


def test_reading_a_job_over_http_takes_two_selects_one_for_the_token_and_one_for_the_job(walk, store):
    store.enqueue("greet", {"name": "ada"})
    with served(store) as client:
        assert client.get("/api/v1/jobs/1").status_code == 200
        functions, files = walk.of(lambda: client.get("/api/v1/jobs/1"))
    assert len(walk.selects) == 2
    assert functions <= 72
    assert files <= 23


def test_the_first_page_of_the_dashboard(walk, store):
    store.enqueue("greet", {"name": "ada"})
    with served(store) as client:
        assert client.get("/").status_code == 200
        functions, files = walk.of(lambda: client.get("/"))
    assert len(walk.selects) <= 19
    assert functions <= 152
    assert files <= 42


def test_listing_jobs_on_the_command_line(walk, store, tmp_path, monkeypatch, capsys):
    for _ in range(3):
        store.enqueue("greet", {"name": "ada"})
    monkeypatch.setattr(sys, "argv", ["rota", "job", "list", "--store", str(tmp_path / "rota.db")])

    def listed() -> None:
        with pytest.raises(SystemExit):
            main()

    functions, files = walk.of(listed)
    assert "greet" in capsys.readouterr().out
    assert functions <= 150
    assert files <= 38
