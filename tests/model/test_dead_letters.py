"""Errors without the values in them."""

from __future__ import annotations

import pytest

from rota.model.dead_letters import MESSAGE_MAX, message_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("LookupError: order 17 not found", "LookupError: order 18 not found"),
        ("no row '3f' in \"a\"", "no row 'b' in \"c d\""),
        ("job 01980c5e-7a10-7000-8000-000000000001 is gone", "job 01980c5e-7a10-7000-8000-0000000000ff is gone"),
        ("commit 3f786850e387550fdab836ed7e6dc881de23001b", "commit 89e6c98d92887913cadf06b2adb97f26cde4849b"),
        ("at 0x7efd784f7f10", "at 0x1"),
        ("10.0.0.7:5432 refused after 1.5 s", "10.0.0.12:5432 refused after 30 s"),
        ("since 2026-11-17 22:55:03,120", "since 2026-11-18 01:02:03,004"),
        ("timed out\nline 3", "timed out\nline 4"),
        ("-5 is too small", "-17 is too small"),
    ],
)
def test_errors_that_differ_in_values_only_have_one_message(one: str, other: str):
    assert message_of(one) == message_of(other)
    assert message_of(message_of(one)) == message_of(one)


def test_errors_that_differ_in_words_do_not():
    assert message_of("LookupError: order 17 not found") == "LookupError: order … not found"
    assert message_of("LookupError: user 17 not found") != message_of("LookupError: order 17 not found")
    assert message_of("ValueError: x") != message_of("TypeError: x")
    assert message_of("it can't be deadlocked by a decade of cabbage") == "it can't be deadlocked by a decade of cabbage"
    assert len(message_of("x" * 1000)) == MESSAGE_MAX
    assert message_of("") == ""
