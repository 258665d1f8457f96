"""What a handler reports on the way: bounded, ordered, never lost at the end."""

import reprlib
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import rota.executors
from rota.errors import InvalidParams, InvalidProgress, PayloadTooLarge
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
    for pct in (-3, 50, 20, 99.9, 1000, float("inf")):
        attempt.progress(pct, None)
    assert _values(ear) == [0, 50, 99, 100]


@pytest.mark.parametrize(
    ("pct", "shown", "kept"),
    [(150, "150", 100), (-1, "-1", 0), (100.5, "100.5", 100), (float("inf"), "inf", 100), (-(10**400), "-inf", 0)],
)
def test_progress_out_of_range_is_kept_at_the_edge_and_noted_once(make_attempt, ear, pct, shown, kept):
    attempt = make_attempt(progress_interval=0.0)
    for _ in range(3):
        attempt.progress(pct, None)
        attempt.progress(1000, None)
    path = attempt.end()
    assert _values(ear)[0] == kept
    (line,) = Path(path).read_text().splitlines()
    assert line.endswith(f"WARNING progress {shown} is outside 0..100: kept as {kept}")


@pytest.mark.parametrize("edge", [0, 100, 0.0, 100.0, Decimal("99.5"), Fraction(1, 3)])
def test_progress_within_its_range_leaves_no_word_in_the_log(make_attempt, ear, edge):
    attempt = make_attempt()
    attempt.progress(edge, None)
    assert _values(ear) == [int(edge)]
    assert attempt.end() is None


@pytest.mark.parametrize("pct", [float("nan"), "50", b"50", True, None, [], {}, 1j, object(), Decimal("NaN")])
def test_progress_that_is_no_number_is_refused_and_named(make_attempt, ear, pct):
    attempt = make_attempt()
    with pytest.raises(InvalidProgress, match="is not a number: give one from 0 to 100") as refused:
        Context(attempt, {}).progress(pct)
    assert reprlib.repr(pct) in str(refused.value)
    assert ear.reports == []
    assert attempt.end() is None


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


@pytest.mark.parametrize(("state", "size"), [("x" * 999, "1,001"), ("é" * 500, "1,002")])
def test_a_state_over_the_limit_is_refused_with_its_size_and_the_one_before_stays(make_attempt, ear, state, size):
    context = Context(make_attempt(result_max=1000), {})
    context.checkpoint("x" * 998)
    with pytest.raises(PayloadTooLarge, match=rf"the checkpoint takes {size} bytes; the limit is 1,000 \(setting result_max\)"):
        context.checkpoint(state)
    assert len(ear.reports) == 1


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
