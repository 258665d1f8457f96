"""Who is let in, as whom, for what, and until when (L)."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from rota import Rota, Settings
from rota.admission import FIRST, NOTED_S, is_same
from rota.errors import InvalidName, InvalidOption, NotFound, OrganizationUnavailable, PermissionDenied, Refused, StoreBusy, Unauthenticated
from rota.model.access import PERMITS, Permit, csrf_of, digest, is_token, permits_of, token_text
from rota.model.gate import RIGHTS, Actor, Reach, Right, Role, scope_of

EVERY = tuple(Permit)


def admitted(rota, **options):
    """Return who comes with a token that is made for this."""
    return rota.authenticate(rota.create_token("a token", **options).secret)


# ---- the values -----------------------------------------------------------------------------------------------------


def test_every_operation_needs_one_permit():
    assert set(PERMITS) == set(Right)


def test_a_secret_can_not_be_read_from_its_digest_or_from_the_word_of_a_form():
    secret = token_text(bytes(32))
    assert is_token(secret)
    assert len(digest(secret)) == 32
    assert secret not in csrf_of(secret)
    assert csrf_of(secret) != digest(secret).hex()


@pytest.mark.parametrize(
    "text", ["", "rota_", "rota_" + "0" * 63, "rota_" + "0" * 65, "rota_" + "G" * 64, "x" + token_text(bytes(32)), "rota_\n"]
)
def test_what_has_not_the_form_of_a_token_is_none(text):
    assert not is_token(text)


@pytest.mark.parametrize("given", [(), [], "read", None, ["read", "write"], [1], {"read": 1}])
def test_permits_are_a_list_of_known_words(given):
    with pytest.raises(InvalidOption, match="read, submit, operate, manage"):
        permits_of(given)


@pytest.mark.parametrize(("one", "other", "same"), [("a", "a", True), ("a", "b", False), ("", "a", False), ("\ud800", "\ud800", True)])
def test_secrets_are_compared_whatever_they_are_made_of(one, other, same):
    assert is_same(one, other) is same


# ---- for what -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", Right)
@pytest.mark.parametrize("permit", [Permit.READ, Permit.SUBMIT, Permit.OPERATE])
def test_a_token_is_for_what_its_permit_says_and_nothing_else(rota, operation, permit):
    who = admitted(rota, permits=[permit])
    if PERMITS[operation] is permit:
        assert scope_of(who, operation)
    else:
        with pytest.raises(PermissionDenied, match=f"token that may not {operation}"):
            scope_of(who, operation)


@pytest.mark.parametrize("operation", Right)
@pytest.mark.parametrize("name", ["root", "ada", "bob"])
def test_a_token_gives_its_user_no_right_that_the_user_has_not(shared, operation, name):
    who = admitted(shared, user=name, permits=EVERY)
    if RIGHTS[operation][who.role] is Reach.NONE:
        with pytest.raises(PermissionDenied):
            scope_of(who, operation)
    else:
        assert scope_of(who, operation) == scope_of(shared._session.actor(name), operation)


def test_manage_is_everything_because_it_can_make_tokens(rota):
    who = admitted(rota, permits=["manage"])
    assert who.operations is None
    assert admitted(rota, permits=["read"]).operations is not None


def test_a_narrow_token_is_asked_by_the_gate_of_every_verb(rota):
    @rota.job
    def echo():
        pass

    reads, submits = admitted(rota), admitted(rota, permits=["submit"])
    job = rota.enqueue("echo", actor=submits)
    assert rota.get(job.id, actor=reads).id == job.id
    for forbidden in (
        lambda: rota.enqueue("echo", actor=reads),
        lambda: rota.cancel(job.id, actor=reads),
        lambda: rota.get(job.id, actor=submits),
        lambda: rota.create_token("wider", permits=EVERY, actor=reads),
        lambda: rota.tokens(actor=submits),
        lambda: rota.start(actor=submits),
    ):
        with pytest.raises(PermissionDenied):
            forbidden()


# ---- who ------------------------------------------------------------------------------------------------------------


def test_a_token_without_a_user_is_the_operators(rota):
    who = admitted(rota, permits=EVERY)
    assert (who.name, who.role) == ("local", Role.MANAGER)


def test_a_token_of_a_user_acts_as_that_user_with_what_it_is_now(shared):
    secret = shared.create_token("bobs", user="bob", permits=EVERY).secret
    assert shared.authenticate(secret) == Actor("bob", "acme", Role.USER)
    shared.change_user("bob", role="admin", permissions=["reports"])
    assert shared.authenticate(secret) == Actor("bob", "acme", Role.ADMIN, frozenset({"reports"}))


def test_a_token_needs_a_user_that_is_there(shared):
    for name in ("nobody", "eve"):
        if name == "eve":
            shared.remove_user("eve")
        with pytest.raises((NotFound, PermissionDenied), match=name):
            shared.create_token("x", user=name)
    assert shared.tokens() == []


def test_before_there_are_users_a_token_is_nobodys_but_the_operators(rota):
    with pytest.raises(NotFound, match="rota user add"):
        rota.create_token("x", user="bob")


@pytest.mark.parametrize("name", ["ada", "bob"])
def test_only_a_system_manager_makes_lists_and_revokes_tokens(shared, name):
    made = shared.create_token("roots", user="root", permits=EVERY, actor="root").token
    for forbidden in (
        lambda: shared.create_token("mine", user=name, actor=name),
        lambda: shared.tokens(actor=name),
        lambda: shared.revoke_token(made.id, actor=name),
    ):
        with pytest.raises(PermissionDenied):
            forbidden()
    assert shared.tokens(actor="root") == [made]


def test_a_token_has_a_name_permits_and_a_time_to_come(rota):
    with pytest.raises(InvalidName):
        rota.create_token("")
    with pytest.raises(InvalidOption, match="time to come"):
        rota.create_token("x", expires_in=timedelta(0))
    with pytest.raises(InvalidOption, match="read, submit"):
        rota.create_token("x", permits=["fly"])
    assert rota.tokens(revoked=True) == []


def test_the_secret_is_kept_nowhere(rota, tmp_path):
    secret = rota.create_token("x").secret
    session = rota.open_session(secret).secret
    rota.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert digest(secret) in kept
    assert secret.encode() not in kept
    assert secret.removeprefix("rota_").encode() not in kept
    assert bytes.fromhex(secret.removeprefix("rota_")) not in kept
    assert session.encode() not in kept


# ---- until when -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ways(shared, clock):
    """A token of bob's and a session that was opened with it; both are tried by `closed`."""

    class Ways:
        made = shared.create_token("bobs", user="bob", permits=EVERY, expires_in=timedelta(hours=1))
        session = shared.open_session(made.secret)

        def open(self):
            return shared.authenticate(self.made.secret) == shared.session(self.session.secret)

        def closed(self):
            said = set()
            for way in (
                lambda: shared.authenticate(self.made.secret),
                lambda: shared.open_session(self.made.secret),
                lambda: shared.session(self.session.secret),
                lambda: shared.authenticate("rota_" + "0" * 64),
                lambda: shared.authenticate("nonsense"),
                lambda: shared.session("nonsense"),
            ):
                with pytest.raises(Unauthenticated) as refused:
                    way()
                said.add(str(refused.value))
            # The same words for all: nobody learns what was wrong.
            return len(said) == 1

    return Ways()


def test_a_token_that_has_expired_opens_nothing(ways, clock):
    assert ways.open()
    clock.advance(seconds=3599.999999)
    assert ways.open()
    clock.advance(seconds=0.000001)
    assert ways.closed()


def test_a_token_that_was_revoked_opens_nothing(shared, ways):
    assert ways.open()
    revoked = shared.revoke_token(ways.made.token.id, actor="root")
    assert revoked.revoked_at is not None
    assert ways.closed()
    assert shared.tokens() == []
    assert shared.tokens(revoked=True) == [revoked]
    assert shared.revoke_token(ways.made.token.id) == revoked


def test_a_token_of_a_user_that_was_removed_opens_nothing_until_the_user_is_back(shared, ways):
    shared.remove_user("bob")
    assert ways.closed()
    shared.add_user("bob", organization="acme")
    assert ways.open()


def test_another_process_closes_a_door_for_this_one(shared, ways, clock):
    other = Rota(shared.url, clock=clock)
    assert ways.open()
    other.remove_user("bob")
    assert ways.closed()
    other.close()


def test_people_of_a_suspended_organization_come_in_and_may_read_and_cancel(shared, ways):
    job = shared.enqueue("echo", actor="bob", run_at=timedelta(hours=1))
    shared.suspend_organization("acme")
    who = shared.authenticate(ways.made.secret)
    assert shared.get(job.id, actor=who).id == job.id
    with pytest.raises(OrganizationUnavailable):
        shared.enqueue("echo", actor=who)
    shared.cancel(job.id, actor=who)


def test_people_of_a_removed_organization_may_do_nothing(shared, ways):
    shared.remove_organization("acme")
    with pytest.raises(PermissionDenied, match="removed"):
        shared.find(actor=shared.authenticate(ways.made.secret))


def test_what_is_no_id_of_a_token_can_not_be_revoked(rota):
    for name in ("", "x", "01997c3e-5f0a-7cc3-98c4-dc0c0c07398f"):
        with pytest.raises(NotFound):
            rota.revoke_token(name)


def test_the_last_use_is_written_to_the_minute(rota, clock):
    secret = rota.create_token("x").secret
    assert rota.tokens()[0].last_used_at is None
    rota.authenticate(secret)
    first = rota.tokens()[0].last_used_at
    clock.advance(seconds=NOTED_S - 1)
    rota.authenticate(secret)
    assert rota.tokens()[0].last_used_at == first
    clock.advance(seconds=1)
    rota.authenticate(secret)
    assert rota.tokens()[0].last_used_at == first + timedelta(seconds=NOTED_S)


def test_a_store_that_can_not_be_written_now_still_lets_people_in(rota, monkeypatch, caplog):
    secret = rota.create_token("x").secret

    def busy(*_, **__):
        raise StoreBusy("somebody else writes")

    monkeypatch.setattr(rota._session.open().store, "note_use", busy)
    with caplog.at_level(logging.WARNING, "rota.access"):
        assert rota.authenticate(secret).name == "local"
    assert secret not in caplog.text


# ---- browsers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(session_ttl=60)])
def test_a_session_lasts_as_long_as_the_setting_says(rota, clock):
    session = rota.open_session(rota.create_token("x").secret)
    assert session.max_age_s == 60
    clock.advance(seconds=59.9)
    assert rota.session(session.secret).name == "local"
    clock.advance(seconds=0.1)
    with pytest.raises(Unauthenticated):
        rota.session(session.secret)


def test_each_session_is_another_one_and_ends_alone(rota):
    secret = rota.create_token("x").secret
    one, two = rota.open_session(secret), rota.open_session(secret)
    assert one.secret != two.secret
    assert one.csrf != two.csrf
    rota.close_session(one.secret)
    rota.close_session(one.secret)
    rota.close_session("never there")
    with pytest.raises(Unauthenticated):
        rota.session(one.secret)
    assert rota.session(two.secret).name == "local"


def test_a_session_is_as_narrow_as_its_token(rota):
    session = rota.open_session(rota.create_token("x").secret)
    with pytest.raises(PermissionDenied):
        rota.pause(actor=rota.session(session.secret))


# ---- the first start ------------------------------------------------------------------------------------------------


def test_the_first_local_start_makes_one_token_for_the_operator_and_never_again(rota):
    first = rota.welcome(local=True)
    assert (first.token.name, first.token.user, first.token.permits) == (FIRST, None, EVERY)
    assert rota.authenticate(first.secret).role is Role.MANAGER
    assert rota.welcome(local=True) is None
    rota.revoke_token(first.token.id)
    assert rota.welcome(local=True) is None


def test_an_address_that_others_can_reach_needs_users(rota):
    with pytest.raises(Refused, match=r"rota user add .* .rota token create .* 127\.0\.0\.1"):
        rota.welcome(local=False)
    rota.add_user("root", role="system_manager")
    assert rota.welcome(local=False) is None
    assert rota.tokens() == []


def test_only_who_may_operate_the_store_may_serve_it(shared):
    with pytest.raises(PermissionDenied):
        shared.welcome(local=True, actor="ada")
    assert shared.welcome(local=True, actor="root").token.created_by == "root"
