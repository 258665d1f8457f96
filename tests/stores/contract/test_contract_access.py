"""Tokens and sessions: kept by digest, closed for good when they are closed, forgotten when their time is over (L)."""

from datetime import timedelta

import msgspec
import pytest

from rota.errors import NotFound, RotaError
from rota.model.access import Permit, Token, digest
from rota.model.definitions import User
from rota.model.gate import Role
from rota.model.values import SECOND, dashed, instant, moment_of, undashed
from tests.stores.desk import ANNA

BOB = User(name="bob", organization="default", role=Role.USER)
ONE, TWO = digest("one"), digest("two")


@pytest.fixture
def add(desk):
    """Keeps a token and returns it."""

    def put(hash_=ONE, *, expires_in=None, **fields):
        now = moment_of(desk.now)
        expires_at = None if expires_in is None else now + timedelta(seconds=expires_in)
        values = {"name": "shop", "user": None, "permits": (Permit.READ, Permit.SUBMIT), "created_by": "anna"}
        token = Token(id=dashed(desk.id()), created_at=now, expires_at=expires_at, **(values | fields))
        desk.store.add_token(token, hash_, actor=ANNA, now=desk.now)
        return token

    return put


def test_a_token_is_found_by_its_digest_as_it_was_kept(store, add):
    store.put_user(BOB, actor=ANNA, now=1)
    token = add(user="bob", expires_in=60)
    assert store.token_by(ONE) == token
    assert store.token_by(TWO) is None
    assert store.tokens() == [token]


def test_tokens_are_listed_newest_first_also_those_that_are_closed(store, desk, add):
    first = add()
    desk.advance(1)
    second = add(TWO)
    store.revoke_token(undashed(first.id), actor=ANNA, now=desk.now)
    assert [token.id for token in store.tokens()] == [second.id, first.id]


def test_the_same_token_again_is_nothing_more(store, desk, maker, add):
    token = add()
    store.add_token(msgspec.structs.replace(token, name="other"), TWO, actor=ANNA, now=desk.now)
    assert store.tokens() == [token]
    assert [entry["action"] for entry in maker.audit()] == ["token.create"]


def test_two_tokens_never_share_a_digest(store, add):
    token = add()
    with pytest.raises(RotaError):
        add()
    assert store.tokens() == [token]


@pytest.mark.parametrize(
    ("hash_", "fields"),
    [
        (b"short", {}),
        (ONE, {"user": "nobody"}),
        (ONE, {"name": ""}),
        (ONE, {"name": "x" * 256}),
        (ONE, {"expires_in": 0}),
    ],
    ids=["digest", "user", "no name", "long name", "expiry"],
)
def test_a_store_refuses_by_itself_what_is_no_token(store, add, hash_, fields):
    with pytest.raises(RotaError):
        add(hash_, **fields)
    assert store.tokens() == []


def test_revoking_closes_a_token_and_its_sessions_once(store, desk, maker, add):
    token, other = add(), add(TWO)
    store.add_session(digest("s"), undashed(token.id), now=desk.now, expires_at=desk.now + 60 * SECOND)
    store.add_session(digest("t"), undashed(other.id), now=desk.now, expires_at=desk.now + 60 * SECOND)
    desk.advance(1)
    closed = store.revoke_token(undashed(token.id), actor=ANNA, now=desk.now)
    assert closed.revoked_at == moment_of(desk.now)
    assert not closed.is_open(moment_of(desk.now))
    assert store.session(digest("s"), now=desk.now) is None
    assert store.session(digest("t"), now=desk.now) == other
    desk.advance(1)
    assert store.revoke_token(undashed(token.id), actor=ANNA, now=desk.now) == closed
    assert [entry["action"] for entry in maker.audit()] == ["token.create", "token.create", "token.revoke"]


def test_tokens_are_found_by_many_digests_at_once_their_own_and_those_of_open_sessions(store, desk, add):
    token, other = add(), add(TWO)
    for secret, seconds in (("open", 60), ("ended", 60), ("over", 1)):
        store.add_session(digest(secret), undashed(other.id), now=desk.now, expires_at=desk.now + seconds * SECOND)
    store.end_session(digest("ended"), now=desk.now)
    desk.advance(2)
    asked = [ONE, *(digest(secret) for secret in ("open", "ended", "over", "unknown"))]
    assert store.tokens_behind(asked, now=desk.now) == {ONE: token, digest("open"): other}
    assert store.tokens_behind([], now=desk.now) == {}
    store.revoke_token(undashed(other.id), actor=ANNA, now=desk.now)
    found = store.tokens_behind([TWO, digest("open")], now=desk.now)
    # A revoked token is returned as it is; its sessions have ended with it.
    assert [(key, token.revoked_at is None) for key, token in found.items()] == [(TWO, False)]


def test_the_audit_says_what_a_token_was_for_and_nothing_of_its_digest(maker, add):
    token = add()
    (entry,) = maker.audit()
    assert entry["after"] == {"name": "shop", "user": None, "permits": ["read", "submit"]}
    assert dashed(entry["subject_id"]) == token.id
    assert ONE.hex() not in str(entry)


def test_what_is_not_there_can_not_be_revoked(store, desk):
    with pytest.raises(NotFound):
        store.revoke_token(desk.id(), actor=ANNA, now=desk.now)


def test_the_last_use_is_the_latest(store, desk, add):
    token = add()
    desk.advance(60)
    store.note_use(undashed(token.id), now=desk.now)
    store.note_use(undashed(token.id), now=desk.now - 30 * SECOND)
    assert store.token_by(ONE).last_used_at == moment_of(desk.now)


def test_a_session_stands_for_its_token_until_it_ends_or_expires(store, desk, add):
    token = add()
    for name in ("ended", "expired"):
        store.add_session(digest(name), undashed(token.id), now=desk.now, expires_at=desk.now + 10 * SECOND)
        assert store.session(digest(name), now=desk.now) == token
    store.end_session(digest("ended"), now=desk.now)
    store.end_session(digest("ended"), now=desk.now)
    store.end_session(digest("never there"), now=desk.now)
    assert store.session(digest("ended"), now=desk.now) is None
    assert store.session(digest("expired"), now=desk.now + 10 * SECOND - 1) == token
    assert store.session(digest("expired"), now=desk.now + 10 * SECOND) is None
    assert store.session(digest("never there"), now=desk.now) is None


def test_a_session_needs_a_token(store, desk):
    with pytest.raises(RotaError):
        store.add_session(digest("s"), desk.id(), now=desk.now, expires_at=desk.now + 1)


def test_sessions_whose_time_is_over_are_forgotten_a_few_at_a_time(store, desk, add):
    token = add()
    for number in range(5):
        store.add_session(digest(f"old {number}"), undashed(token.id), now=desk.now, expires_at=desk.now + SECOND)
    store.add_session(digest("young"), undashed(token.id), now=desk.now, expires_at=desk.now + 9 * SECOND)
    desk.advance(1)
    assert [store.forget_sessions(before=desk.now, limit=3) for _ in range(3)] == [3, 2, 0]
    assert store.session(digest("young"), now=desk.now) == token
    assert store.tokens() == [token]


def test_a_token_keeps_its_moments_to_the_microsecond(store, desk, add):
    desk.now += 123_457
    token = add(expires_in=1.000001)
    assert instant(store.token_by(ONE).expires_at) == desk.now + 1_000_001
    assert store.token_by(ONE) == token
