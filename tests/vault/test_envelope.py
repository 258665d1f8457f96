from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidName, InvalidOption, SecretUnavailable
from rota.model.secrets import SecretPlace, check_secret_name, check_secret_value
from rota.vault import Keyring, open_sealed, open_secrets, open_signing, reseal_signing, rewrap, seal, seal_signing

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = SecretPlace("acme", "DB_PASSWORD", "0" * 32)


@given(st.text(min_size=1))
def test_what_was_sealed_opens(value):
    sealed = seal(Keyring([OLD]), PLACE, 3, value)
    assert open_sealed(Keyring([NEW, OLD]), sealed) == value
    assert open_secrets(Keyring([OLD]), [sealed]) == {"DB_PASSWORD": value}


def test_no_two_envelopes_of_a_value_are_alike():
    first, second = (seal(Keyring([OLD]), PLACE, 1, "hunter2") for _ in range(2))
    assert first.body != second.body
    assert first.wrapped != second.wrapped
    assert b"hunter2" not in first.body + first.wrapped
    assert "hunter2" not in repr(first)


@pytest.mark.parametrize(
    "change",
    [{"organization": "beta"}, {"name": "OTHER"}, {"job": None}, {"job": "1" * 32}, {"version": 2}],
    ids=["organization", "name", "no job", "job", "version"],
)
def test_what_was_moved_to_another_row_does_not_open(change):
    sealed = msgspec.structs.replace(seal(Keyring([OLD]), PLACE, 1, "hunter2"), **change)
    with pytest.raises(SecretUnavailable, match="changed outside Rota") as refused:
        open_sealed(Keyring([OLD]), sealed)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("part", ["wrapped", "body"])
def test_what_was_changed_does_not_open(part):
    sealed = seal(Keyring([OLD]), PLACE, 1, "hunter2")
    for box in (getattr(sealed, part)[:-1] + b"x", b"", b"short"):
        with pytest.raises(SecretUnavailable, match="'DB_PASSWORD' can't be opened"):
            open_sealed(Keyring([OLD]), msgspec.structs.replace(sealed, **{part: box}))


def test_a_missing_key_is_named():
    sealed = seal(Keyring([OLD]), PLACE, 1, "hunter2")
    with pytest.raises(SecretUnavailable, match=f"'DB_PASSWORD' can't be opened: the master key {sealed.key_id} is not among"):
        open_sealed(Keyring([NEW]), sealed)
    with pytest.raises(SecretUnavailable, match=f"no master key here, and {sealed.key_id} is needed"):
        open_sealed(Keyring.empty(), sealed)
    with pytest.raises(SecretUnavailable, match="rota secret key"):
        seal(Keyring.empty(), PLACE, 1, "hunter2")


def test_rewrapping_leaves_the_body_and_needs_the_old_key_no_more():
    sealed = seal(Keyring([OLD]), PLACE, 1, "hunter2")
    again = rewrap(Keyring([NEW, OLD]), sealed)
    assert again.body == sealed.body
    assert again.key_id == Keyring([NEW]).current
    assert open_sealed(Keyring([NEW]), again) == "hunter2"


def test_a_secret_of_the_job_comes_before_one_of_the_organization():
    own = seal(Keyring([OLD]), PLACE, 1, "own")
    shared = seal(Keyring([OLD]), SecretPlace("acme", "DB_PASSWORD"), 1, "shared")
    assert open_secrets(Keyring([OLD]), [own, shared]) == open_secrets(Keyring([OLD]), [shared, own]) == {"DB_PASSWORD": "own"}


def test_a_signing_secret_is_sealed_where_there_is_a_key_and_read_either_way():
    plain = "whsec_c2VjcmV0"
    assert seal_signing(Keyring.empty(), "endpoint", plain) == plain
    assert open_signing(Keyring.empty(), "endpoint", plain) == plain
    sealed = seal_signing(Keyring([OLD]), "endpoint", plain)
    assert "c2VjcmV0" not in sealed
    assert open_signing(Keyring([OLD]), "endpoint", sealed) == plain
    with pytest.raises(SecretUnavailable):
        open_signing(Keyring([OLD]), "another endpoint", sealed)
    for text in (plain, sealed):
        assert open_signing(Keyring([NEW]), "endpoint", reseal_signing(Keyring([NEW, OLD]), "endpoint", text)) == plain


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "ä", "a" * 129, "a\n", None])
def test_a_name_is_that_of_an_environment_variable(name):
    with pytest.raises(InvalidName):
        check_secret_name(name)
    assert check_secret_name("a" * 128)


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 65_537, "\ud800", b"bytes", 5])
def test_a_value_that_can_not_be_one_is_refused_without_repeating_it(value):
    with pytest.raises(InvalidOption) as refused:
        check_secret_value(value)
    assert str(value) not in str(refused.value) or value == ""
