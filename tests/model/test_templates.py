"""What a template can say: each field checked, merged with who wins, kept and read again."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from rota.errors import InvalidOption
from rota.model.backoff import Backoff
from rota.model.settings import Settings
from rota.model.templates import (
    FIELDS,
    NULLABLE,
    Rate,
    Source,
    Spec,
    as_object,
    besides_handler,
    from_object,
    from_text,
    in_force,
    rate_of,
    said_by,
    span_of,
    spec_of,
)

GOOD = {
    "display_name": "Send e-mail",
    "description": "Sends\nwhat it is told to.",
    "handler": "shop.jobs:send",
    "executor": "process",
    "priority": "high",
    "timeout": "5m",
    "max_retries": 0,
    "max_crashes": 1,
    "backoff": {"base": "2m", "factor": 3},
    "queue": "mail",
    "queue_ttl": timedelta(hours=1),
    "payload_max": 1024,
    "dedup_window": 0,
    "requires_permission": "mail",
    "max_running": 2,
    "concurrency": 1,
    "rate_limit": "10/60s",
    "submit_limit": (100, 3600),
    "default_params": {"to": "ada", "when": date(2026, 3, 1), "how": {"fast": None}},
}


def test_every_field_is_read_as_people_write_it():
    assert set(GOOD) == set(FIELDS)
    spec = spec_of(GOOD)
    assert (spec.priority, spec.timeout, spec.queue_ttl, spec.dedup_window) == (75, 300.0, 3600.0, 0.0)
    assert spec.backoff == Backoff(base=120, factor=3)
    assert (spec.rate_limit, spec.submit_limit) == (Rate(10, 60.0), Rate(100, 3600.0))
    assert spec.default_params == {"to": "ada", "when": "2026-03-01", "how": {"fast": None}}


def test_what_a_store_keeps_is_read_back_as_it_was():
    spec = spec_of(GOOD)
    assert from_object(as_object(spec)) == spec
    assert as_object(Spec()) == {}
    assert from_object({"timeout": 5.0, "field_of_a_newer_rota": 1}) == Spec(timeout=5.0)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("display_name", "", "display_name='' is not allowed: give 1 to 255 characters"),
        ("display_name", "two\nlines", "on one line"),
        ("display_name", "x" * 256, "at most 255 characters"),
        ("description", 7, "description='7'"),
        ("description", "a\0b", "can't be kept"),
        ("description", "\ud800", "can't be kept"),
        ("handler", "send", "use package.module:function"),
        ("handler", "shop/jobs.py:send", "use package.module:function"),
        ("handler", "shop.jobs:", "use package.module:function"),
        ("executor", "fork", "executor='fork' is not one of inline, thread, async, process"),
        ("priority", 101, "priority 101"),
        ("priority", "urgent", "low, normal, high, critical"),
        ("timeout", -1, "timeout=-1"),
        ("timeout", "soon", "timeout='soon' is not a length of time"),
        ("timeout", "", "is not a length of time"),
        ("timeout", "1 month", "is not a length of time"),
        ("timeout", "hours", "is not a length of time"),
        ("timeout", True, "timeout=True"),
        ("timeout", timedelta(seconds=-1), "timeout=-1"),
        ("max_retries", 1.5, "max_retries=1.5"),
        ("max_retries", "3", "max_retries='3'"),
        ("max_crashes", 0, "1 or more"),
        ("backoff", 60, "give some of base, factor, cap, jitter"),
        ("backoff", {"bass": 60}, "give some of base, factor, cap, jitter"),
        ("backoff", {"base": -1}, "backoff base=-1"),
        ("backoff", {"base": "x"}, "backoff base='x' is not a length of time"),
        ("payload_max", 1, "2 to 16,777,216"),
        ("payload_max", 2**24 + 1, "2 to 16,777,216"),
        ("requires_permission", "", "1 to 255 characters"),
        ("max_running", -1, "max_running=-1"),
        ("concurrency", 0, "concurrency=0"),
        ("rate_limit", "ten a minute", 'give "10/60s"'),
        ("rate_limit", (0, 60), "rate_limit's count=0"),
        ("rate_limit", (1, 0), "at least 1 ms"),
        ("submit_limit", {"count": 1}, "submit_limit={'count': 1} is not a rate"),
        ("default_params", [1], "default_params=[1] is not allowed: give an object of names and values"),
        ("default_params", {"a": {"b": object()}}, "default_params.a.b is an object, which JSON can't hold"),
        ("max_retries", None, "max_retries can't be none"),
        ("retries", 3, "a template has no option 'retries' (did you mean 'max_retries'?): it takes display_name, description, handler"),
    ],
)
def test_a_refusal_names_the_field_its_value_and_what_is_allowed(field, value, words):
    with pytest.raises(InvalidOption) as refused:
        spec_of({field: value})
    assert words in str(refused.value)


@pytest.mark.parametrize("field", FIELDS)
def test_none_takes_away_what_can_be_absent_and_nothing_else(field):
    if field in NULLABLE:
        assert getattr(spec_of({field: None}), field) is None
    else:
        with pytest.raises(InvalidOption, match=f"{field} can't be none"):
            spec_of({field: None})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("250ms", 0.25),
        ("1 h", 3600.0),
        ("1 DAY", 86_400.0),
        ("2 HOURS", 7200.0),
        ("1 hour 30 minutes", 5400.0),
        ("15 mins", 900.0),
        ("10 Sec", 10.0),
    ],
)
def test_a_length_of_time_is_seconds_or_words(given, seconds):
    assert span_of("timeout", given) == seconds


@pytest.mark.parametrize(
    ("given", "shown"), [("10/60s", "10/60s"), ("100/h", "100/3600s"), ("5 per 0.5s", "5/0.5s"), ("1/200ms", "1/0.2s"), ([3, 2], "3/2s")]
)
def test_a_rate_is_written_in_several_ways_and_shown_in_one(given, shown):
    rate = rate_of("rate_limit", given)
    assert str(rate) == shown
    assert rate_of("rate_limit", str(rate)) == rate


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ("max_running", "5", 5),
        ("max_running", " None ", None),
        ("max_running", "many", "many"),
        ("timeout", "5m", "5m"),
        ("priority", "75", "75"),
        ("backoff", '{"base": 5}', {"base": 5}),
        ("backoff", "5", 5),
        ("backoff", "fast", "fast"),
        ("display_name", "7", "7"),
    ],
)
def test_what_is_typed_is_a_number_where_numbers_stand(field, typed, value):
    assert from_text(field, typed) == value


# ---- who wins --------------------------------------------------------------------------------------------------------


def test_people_win_over_code_and_code_over_settings():
    settings = Settings(max_retries=1, timeout=10.0, priority=10)
    force = in_force("t", settings, Spec(timeout=20.0, priority=20), Spec(priority=30))
    assert (force.policy.max_retries, force.policy.timeout, force.policy.priority) == (1, 20.0, 30)


def test_a_none_of_people_takes_the_limit_of_the_code_away():
    code = Spec(max_running=1, payload_max=10, rate_limit=Rate(1, 1.0), dedup_window=60.0)
    force = in_force("t", Settings(), code, Spec(max_running=None, payload_max=None, rate_limit=None, dedup_window=0.0))
    assert (force.max_running, force.payload_max, force.rate_limit, force.dedup_window) == (None, Settings().payload_max, None, None)


def test_a_template_that_nobody_describes_has_a_readable_name_and_the_settings():
    settings = Settings(backoff_base=5.0)
    force = in_force("send_daily_mail", settings, Spec(), Spec())
    assert (force.display_name, force.description, force.handler, force.policy.executor) == ("Send daily mail", None, None, "thread")
    assert '"base":5.0' in force.policy.backoff


def test_each_field_says_whose_word_it_is():
    sources = said_by(Spec(timeout=1.0, max_running=1), Spec(max_running=None))
    assert set(sources) == set(FIELDS)
    assert (sources["timeout"], sources["max_running"], sources["priority"]) == (Source.CODE, Source.PEOPLE, Source.SETTING)


def test_where_the_code_is_it_decides_what_runs_and_where():
    people = besides_handler(Spec(handler="a:b", executor="process", timeout=1.0))
    assert (people.handler, people.executor, people.timeout) == (UNSET, UNSET, 1.0)


SPECS = st.builds(
    lambda **said: Spec(**{name: value for name, value in said.items() if value is not UNSET}),
    timeout=st.one_of(st.just(UNSET), st.floats(0, 100)),
    max_running=st.one_of(st.just(UNSET), st.none(), st.integers(0, 9)),
    priority=st.one_of(st.just(UNSET), st.integers(0, 100)),
    rate_limit=st.one_of(st.just(UNSET), st.none(), st.builds(Rate, st.integers(1, 9), st.floats(0.001, 60))),
)


@given(SPECS, SPECS)
def test_whatever_is_said_is_in_force_by_its_source_and_survives_the_store(code, people):
    force, sources = in_force("t", Settings(), code, people), said_by(code, people)
    for field, held in (("timeout", force.policy.timeout), ("max_running", force.max_running), ("rate_limit", force.rate_limit)):
        if sources[field] is not Source.SETTING:
            assert held == getattr(people if sources[field] is Source.PEOPLE else code, field)
    assert in_force("t", Settings(), from_object(as_object(code)), from_object(as_object(people))) == force
