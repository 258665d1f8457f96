"""What a handler reports on the way: bounded, ordered, never lost at the end."""

import subprocess
import sys
from pathlib import Path

import pytest

import rota.executors
from rota.errors import InvalidParams
from rota.executors.attempt import Attempt
from rota.executors.context import Context
from rota.executors.text import clean, head, tail
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.ports.executor import Equipment
from tests.executors.conftest import Ear, claimed

HOUR_S = 3600.0


class HeldClock:
    def __init__(self):
        self.seconds = 100.0

    def now(self):
        return round(self.seconds * 1_000_000)

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock():
    return HeldClock()


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def make_attempt(ear, clock, tmp_path):
    def make(**settings):
        equipment = Equipment({}, ear, clock, Settings(**settings), 1, str(tmp_path), None)
        return Attempt(claimed(1, "work", "thread"), equipment)

    return make


def _values(ear):
    return [report.progress for report in ear.reports]


def test_progress_is_throttled_but_the_first_and_the_last_get_through(make_attempt, ear, clock):
    attempt = make_attempt(progress_interval=1.0)
    for pct in range(1, 51):
        attempt.progress(pct, None)
    assert _values(ear) == [1]
    clock.seconds += 1
    attempt.progress(51, None)
    attempt.progress(52, None)
    attempt.end()
    assert _values(ear) == [1, 51, 52]


def test_a_hundred_gets_through_at_once(make_attempt, ear):
    attempt = make_attempt(progress_interval=HOUR_S)
    attempt.progress(1, None)
    attempt.progress(100, "done")
    attempt.progress(100, "done")
    assert _values(ear) == [1, 100]


def test_progress_is_clamped_and_never_goes_back(make_attempt, ear):
    attempt = make_attempt(progress_interval=0.0)
    for pct in (-3, 50, 20, float("nan"), 99.9, 1000, float("inf")):
        attempt.progress(pct, None)
    assert _values(ear) == [0, 50, 99, 100]


def test_a_new_message_alone_is_worth_a_report(make_attempt, ear):
    attempt = make_attempt(progress_interval=0.0)
    attempt.progress(10, "first")
    attempt.progress(5, "second")
    assert [(report.progress, report.message) for report in ear.reports] == [(10, "first"), (10, "second")]


def test_withheld_progress_says_when_it_is_due(make_attempt, ear, clock):
    attempt = make_attempt(progress_interval=2.0)
    attempt.progress(1, None)
    assert attempt.flush(clock.seconds) is None
    attempt.progress(2, None)
    assert attempt.flush(clock.seconds + 1) == clock.seconds + 2
    assert attempt.flush(clock.seconds + 2) is None
    assert _values(ear) == [1, 2]


def test_nothing_is_reported_or_logged_after_the_end(make_attempt, ear, tmp_path):
    attempt = make_attempt()
    context = Context(attempt, {})
    assert attempt.end() is None
    context.progress(5)
    context.artifact(Path("x"))
    context.log.info("late")
    assert ear.reports == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_keeps_its_state_before_it_stops_the_handler(make_attempt, ear):
    attempt = make_attempt()
    context = Context(attempt, {})
    context.checkpoint()
    attempt.stop()
    assert context.cancelled
    with pytest.raises(Cancelled):
        context.checkpoint({"page": 4})
    assert [report.checkpoint for report in ear.reports] == ['{"page":4}']


def test_a_state_that_is_not_json_is_refused_where_it_is_given(make_attempt):
    with pytest.raises(InvalidParams, match="checkpoint"):
        Context(make_attempt(), {}).checkpoint(object())


def test_a_log_that_can_not_be_written_does_not_fail_the_handler(make_attempt, tmp_path):
    (tmp_path / "00").write_text("a file where the folder should be")
    attempt = make_attempt()
    Context(attempt, {}).log.info("lost")
    assert attempt.end() is None


def test_a_log_of_no_bytes_is_no_log(make_attempt, tmp_path):
    attempt = make_attempt(log_max=0)
    Context(attempt, {}).log.info("lost")
    assert attempt.end() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [head, tail])
@pytest.mark.parametrize("text", ["é" * 300, "x" * 300, "\U0001f600" * 100])
def test_texts_are_cut_at_a_whole_character(cut, text):
    short = cut(text, 256)
    assert len(short.encode()) <= 256
    assert "(cut)" in short
    assert cut("short", 256) == "short"


def test_text_that_can_not_be_encoded_is_escaped():
    assert clean("a\ud800") == "a\\ud800"


def test_importing_executors_does_not_import_what_only_some_of_them_need():
    code = (
        "import sys; import rota.executors, rota.executors.context, rota.executors.thread;"
        "print([name for name in ('asyncio', 'multiprocessing', 'subprocess', 'concurrent.futures') if name in sys.modules])"
    )
    source = str(Path(rota.executors.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source})
    assert done.stdout.strip() == "[]"
