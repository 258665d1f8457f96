"""Webhooks: which ends are told, in which words, how often, and where to."""

from __future__ import annotations

import base64
import json

import pytest

from rota.errors import InvalidOption
from rota.model.reports import EVENT_OF
from rota.model.schedules import Fate
from rota.model.settings import Settings
from rota.model.states import TERMINAL, Status
from rota.model.targets import check_url, is_public
from rota.model.values import SECOND
from rota.model.webhooks import (
    ERROR_MAX,
    EVENTS,
    RESULT_MAX,
    RUN_EVENTS,
    USUAL_EVENTS,
    EndedRun,
    Event,
    Sent,
    event_of,
    events_of,
    job_types_of,
    lane_of,
    organization_of,
    payload_of,
    secret_of,
    secret_text,
    verdict,
)
from tests.docs.pages import page, rows

HEX = "01980c5e7a1070008000000000000001"
DELAYS = Settings().webhook_delays_s


def end(**fields) -> EndedRun:
    values = {
        "job_id": HEX,
        "run_id": HEX[:-1] + "2",
        "root_id": HEX,
        "root_number": 42,
        "organization_id": "acme",
        "job_type": "send",
        "attempt": 3,
        "status": "DEAD_LETTER",
        "reason": None,
        "error_type": "transient",
        "error": "ValueError: no",
        "created_at": 0,
        "queued_at": SECOND,
        "started_at": 2 * SECOND,
        "finished_at": 3 * SECOND,
        "goes_on": False,
    }
    return EndedRun(**(values | fields))


# ---- what is told ----------------------------------------------------------------------------------------------------


def test_every_end_has_its_event_and_every_event_its_end():
    assert set(EVENTS) == set(TERMINAL)
    assert set(EVENTS.values()) == set(RUN_EVENTS)


def test_every_outcome_of_a_due_time_that_did_not_run_has_its_event():
    assert set(Fate) - set(EVENT_OF) == {Fate.FIRED, Fate.COALESCED}
    assert set(Event) == {*RUN_EVENTS, *EVENT_OF.values()}


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMED_OUT])
def test_an_attempt_that_failed_and_goes_on_is_told(status):
    assert event_of(status, goes_on=True) is Event.FAILED


def test_an_attempt_that_was_given_back_or_snoozed_is_no_news():
    assert event_of(Status.SKIPPED, goes_on=True) is None
    assert event_of(Status.SKIPPED, goes_on=False) is Event.SKIPPED


def test_a_message_says_what_ended_when_and_why_and_nothing_else():
    body = json.loads(payload_of(Event.DEAD_LETTERED, end()))
    assert body == {
        "event": "run.dead_lettered",
        "timestamp": "1970-01-01T00:00:03Z",
        "run_id": "01980c5e-7a10-7000-8000-000000000002",
        "job": {
            "id": "01980c5e-7a10-7000-8000-000000000001",
            "number": "JOB-2025-00042.3",
            "chain": "01980c5e-7a10-7000-8000-000000000001",
            "type": "send",
            "organization": "acme",
            "attempt": 3,
            "status": "DEAD_LETTER",
            "reason": None,
            "goes_on": False,
            "created_at": "1970-01-01T00:00:00Z",
            "queued_at": "1970-01-01T00:00:01Z",
            "started_at": "1970-01-01T00:00:02Z",
            "finished_at": "1970-01-01T00:00:03Z",
        },
        "error": {"type": "transient", "message": "ValueError: no"},
    }


def test_the_guide_names_every_event_and_the_ends_it_tells_of():
    table = {row[0].strip("`"): row[1] for row in rows(page("docs/guide/webhooks.md"))}
    assert set(table) >= set(Event)
    for status, event in EVENTS.items():
        assert status in table[event]


def test_a_long_error_is_cut():
    body = json.loads(payload_of(Event.FAILED, end(error="x" * 5000)))
    assert len(body["error"]["message"]) == ERROR_MAX
    assert body["error"]["message"].endswith("…")


def test_a_result_is_carried_as_it_is_unless_it_is_too_large():
    assert json.loads(payload_of(Event.COMPLETED, end(), '{"a": [1, "é"]}'))["result"] == {"a": [1, "é"]}
    assert "result" not in json.loads(payload_of(Event.COMPLETED, end(), f'"{"x" * RESULT_MAX}"'))


def test_a_lane_is_a_host_and_an_organization_whatever_that_is_called():
    assert lane_of("https://Example.com:8443/x?y", "a b c") == "example.com a b c"
    assert organization_of(lane_of("https://[::1]/", "a b c")) == "a b c"


# ---- how often -------------------------------------------------------------------------------------------------------


def test_three_retries_follow_after_5_15_and_45_seconds_and_then_it_is_given_up():
    failed = Sent(status=500)
    waits = [verdict(failed, attempts=attempt, now=100, delays_s=DELAYS).next_at for attempt in range(3)]
    assert waits == [100 + 5 * SECOND, 100 + 15 * SECOND, 100 + 45 * SECOND]
    assert verdict(failed, attempts=3, now=100, delays_s=DELAYS).gave_up


@pytest.mark.parametrize(
    ("status", "accepted"), [(199, False), (200, True), (204, True), (299, True), (301, False), (404, False), (None, False)]
)
def test_only_2xx_is_delivered(status, accepted):
    assert verdict(Sent(status=status), attempts=0, now=0, delays_s=DELAYS).delivered is accepted


def test_who_is_gone_is_not_asked_again():
    assert verdict(Sent(status=410), attempts=0, now=0, delays_s=DELAYS).gave_up


def test_other_delays_are_a_setting_and_nonsense_is_refused():
    assert Settings(webhook_retries="1, 2.5").webhook_delays_s == (1.0, 2.5)
    assert Settings(webhook_retries="").webhook_delays_s == ()
    for wrong in ("soon", "5;15", "-1", "nan"):
        with pytest.raises(InvalidOption, match="webhook_retries"):
            Settings(webhook_retries=wrong)


# ---- secrets and filters ---------------------------------------------------------------------------------------------


def test_a_secret_is_what_standard_webhooks_says():
    secret = secret_text(bytes(range(32)))
    assert secret.startswith("whsec_")
    assert base64.b64decode(secret.removeprefix("whsec_")) == bytes(range(32))
    assert secret_of(secret) == secret


@pytest.mark.parametrize("wrong", ["whsec_", "whsec_AAAA", "secret", "whsec_!!!!", "whsec_" + "A" * 200, None, 5])
def test_a_secret_that_is_none_is_refused_and_not_repeated(wrong):
    with pytest.raises(InvalidOption) as refused:
        secret_of(wrong)
    assert str(wrong).removeprefix("whsec_") in {"", "5", "None", "secret"} or str(wrong) not in str(refused.value)


def test_events_are_named_one_by_one_or_all_but_planned_skips_are_meant():
    assert events_of(None) == USUAL_EVENTS == tuple(event for event in Event if event != "schedule.skipped_planned")
    assert events_of(["run.failed", "run.completed", "run.failed"]) == (Event.COMPLETED, Event.FAILED)
    for wrong in ([], ["run.exploded"], "run.failed", 5):
        with pytest.raises(InvalidOption, match=r"run\.dead_lettered"):
            events_of(wrong)


def test_job_types_are_names():
    assert job_types_of(["a", "b", "a"], 255) == ("a", "b")
    with pytest.raises(InvalidOption, match="too many"):
        job_types_of([str(each) for each in range(101)], 255)


# ---- where to --------------------------------------------------------------------------------------------------------

PUBLIC = ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "1.1.1.1"]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::127.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:7f00:1::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "192.0.0.192",
    "168.63.129.16",
    "::ffff:192.0.0.192",
    "not an address",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_this_machine_or_network_is_not_in_whatever_it_is_wrapped(address):
    assert not is_public(address)


@pytest.mark.parametrize("url", ["https://example.com/x", "https://example.com:8443/?a=b", "https://xn--bcher-kva.example/"])
def test_a_public_https_url_is_taken_as_it_is(url):
    assert check_url(url, private=False, plain_http=False) == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/", "webhook_http"),
        ("ftp://example.com/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("javascript:alert(1)", "https://"),
        ("https://", "example.com/hooks"),
        ("https://user:pass@example.com/", "signature"),
        ("https://user@example.com/", "signature"),
        ("https://example.com/#x", "#"),
        ("https://example.com/a b", "ASCII"),
        ("https://bücher.example/", "ASCII"),
        ("https://example.com/\r\nX: y", "ASCII"),
        ("https://example.com:99999/", "example.com/hooks"),
        ("https://example.com:0/", "example.com/hooks"),
        ("https://[::1/", "example.com/hooks"),
        ("https://localhost/", "webhook_private"),
        ("https://a.localhost/", "webhook_private"),
        ("https://127.0.0.1/", "webhook_private"),
        ("https://[::1]/", "webhook_private"),
        ("https://[::ffff:127.0.0.1]/", "webhook_private"),
        ("https://169.254.169.254/latest/meta-data", "webhook_private"),
        ("https://metadata.google.internal/", "webhook_private"),
        ("x" * 3000, "2,048"),
        ("", "2,048"),
        (None, "2,048"),
        (5, "2,048"),
    ],
)
def test_any_other_url_is_refused_and_the_remedy_is_named(url, why):
    with pytest.raises(InvalidOption, match=why):
        check_url(url, private=False, plain_http=False)


def test_a_refusal_does_not_repeat_a_password_or_a_path():
    with pytest.raises(InvalidOption) as refused:
        check_url("https://user:hunter2@example.com/s3cret", private=False, plain_http=False)
    assert "hunter2" not in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_private_and_plain_are_allowed_where_they_are_allowed():
    assert check_url("http://127.0.0.1:8000/x", private=True, plain_http=True)
