"""Fixtures every test may use."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import hypothesis
import pytest

from rota import Rota, Settings
from tests.stores.makers import MAKERS, SqliteMaker
from tests.support import proof
from tests.support.clock import ManualClock
from tests.support.crew import pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks of pytest
from tests.support.pace import machine, patient
from tests.support.prepared import prepare

# The same examples in every run; `make prove` looks for others.
hypothesis.settings.register_profile("usual", derandomize=not proof.proving())
hypothesis.settings.load_profile("usual")

# Commands show times in the zone of the machine: tests are the same on every machine.
os.environ["TZ"] = "UTC"

if threading.current_thread() is threading.main_thread():
    # Who is started in the background by a shell ignores Ctrl-C, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Measure once, before the processes that run the tests are started."""
    machine()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests themselves from the garbage collector: half a million objects that it would walk through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


PAIRED_UNTIL = 0.6
"""The part of a run in which the files with paired tests begin: the last of them has ended when the others have."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes run the tests, spread the files of tests that mostly wait among those that compute.

    Beside each other they keep the processors busy from the beginning to the end. Those with the most such tests come first.
    """
    if not config.getoption("crew", 0):
        return
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    waits = {path: sum(item.get_closest_marker("paired") is not None for item in found) for path, found in files.items()}
    paired = sorted((path for path in files if waits[path]), key=lambda path: -waits[path])
    places = {path: PAIRED_UNTIL * index / len(paired) for index, path in enumerate(paired)}
    others, before = [path for path in files if not waits[path]], 0
    for path in others:
        places[path] = before / len(items)
        before += len(files[path])
    items[:] = [item for path in sorted(files, key=places.__getitem__) for item in files[path]]


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give a test as much time as this machine needs at the moment."""
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker else float(item.config.getini("timeout"))
    options = marker.kwargs if marker else {}
    item.add_marker(pytest.mark.timeout(patient(seconds), **options), append=False)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the process that counts which sizes a test was run at."""
    report = yield
    if proof.proving() and report.when == "call":
        report.user_properties.append(("sizes", list(proof.sizes_of(item.module.__name__))))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was run at full size, and put it on its page."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    runs = [
        proof.Run(report.nodeid.removeprefix("tests/"), tuple(sizes), report.duration, report.passed)
        for report in reports
        for name, sizes in report.user_properties
        if name == "sizes"
    ]
    if runs:
        table = proof.rows(runs)
        terminalreporter.write_line("\n" + proof.HEAD + "\n".join(table.values()))
        proof.PAGE.write_text(proof.kept(proof.PAGE.read_text(), table))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def rota(tmp_path: Path, clock: ManualClock, settings: Settings) -> Iterator[Rota]:
    """A Rota on a real file, with a clock the test moves and chance from a seed; `rota.turn()` runs what is ready."""
    made = Rota(prepare(tmp_path / "rota.db"), clock=clock, settings=settings, seed=7)
    yield made
    made.close()


@pytest.fixture
def live(tmp_path: Path, settings: Settings) -> Iterator[Rota]:
    """A Rota on a real file and the real clock, for tests that run workers on threads and processes."""
    made = Rota(prepare(tmp_path / "rota.db"), settings=settings)
    yield made
    made.close()


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.name)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteMaker]:
    """An empty store of each kind."""
    with closing(request.param(tmp_path)) as made:
        yield made


@pytest.fixture
def url(maker: SqliteMaker) -> str:
    """Where it is."""
    return maker.url
