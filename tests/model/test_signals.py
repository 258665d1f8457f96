"""Which errors a retry can mend."""

from datetime import timedelta

import pytest

from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze, TransientError, http_status, is_permanent


class HttpLike(Exception):  # noqa: N818 - like, not an error
    def __init__(self, **attributes):
        super().__init__("http")
        self.__dict__.update(attributes)


class Response:
    def __init__(self, status_code):
        self.status_code = status_code


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 301, 599])
@pytest.mark.parametrize("attribute", ["status_code", "status", "code"])
def test_a_status_that_may_pass_is_worth_a_retry(attribute, status):
    assert not is_permanent(HttpLike(**{attribute: status}))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 499])
def test_any_other_4xx_is_permanent_wherever_the_error_carries_it(status):
    assert is_permanent(HttpLike(status_code=status))
    assert is_permanent(HttpLike(status=status))
    assert is_permanent(HttpLike(code=status))
    assert is_permanent(HttpLike(response=Response(status)))


def test_our_own_words_win_over_a_status():
    class MineError(TransientError):
        status_code = 404

    class FinalError(PermanentError):
        status_code = 503

    assert not is_permanent(MineError())
    assert is_permanent(FinalError())


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError(404, "x"), HttpLike(code="404"), HttpLike(status=True), HttpLike(code=7), SystemExit(404)]
)
def test_everything_else_is_transient(error):
    assert not is_permanent(error)


def test_a_status_outside_http_is_none():
    assert http_status(HttpLike(status=99)) is None
    assert http_status(HttpLike(status=600)) is None
    assert http_status(HttpLike(status=599)) == 599


def test_delays_are_seconds_or_timedeltas():
    assert Retry(after=timedelta(minutes=2)).after_s == 120.0
    assert Retry(after=3).after_s == 3.0
    assert Retry().after_s is None
    assert Snooze(timedelta(hours=1)).delay_s == 3600.0


def test_signals_have_words_for_the_record():
    assert str(Retry()) == "the handler asked for a retry"
    assert str(Snooze(1)) == "snoozed"
    assert str(Skip()) == "skipped by its handler"


def test_cancelled_passes_an_except_exception():
    assert not issubclass(Cancelled, Exception)
