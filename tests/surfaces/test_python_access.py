"""Who is let in, as whom, for what, and until when (L)."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from rota import Rota, Settings
from rota.admission import FIRST, LINK, NOTED_S, Admission, is_same
from rota.errors import InvalidName, InvalidOption, NotFound, OrganizationUnavailable, PermissionDenied, Refused, StoreBusy, Unauthenticated
from rota.model.access import PERMITS, Permit, csrf_of, digest, is_token, permits_of, token_text
from rota.model.gate import RIGHTS, Actor, Reach, Right, Role, scope_of

EVERY = tuple(Permit)


def admitted(rota, **options):
    """Return who comes with a token that is made for this."""
    return Admission(rota).authenticate(rota.tokens.create("a token", **options).secret)


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
    job = rota.acting_as(submits).enqueue("echo")
    assert rota.acting_as(reads).jobs.get(job.id).id == job.id
    for forbidden in (
        lambda: rota.acting_as(reads).enqueue("echo"),
        lambda: rota.acting_as(reads).jobs.cancel(job.id),
        lambda: rota.acting_as(submits).jobs.get(job.id),
        lambda: rota.acting_as(reads).tokens.create("wider", permits=EVERY),
        rota.acting_as(submits).tokens.list,
        lambda: rota.acting_as(submits).start(),
    ):
        with pytest.raises(PermissionDenied):
            forbidden()


# ---- who ------------------------------------------------------------------------------------------------------------


def test_a_token_without_a_user_is_the_operators(rota):
    who = admitted(rota, permits=EVERY)
    assert (who.name, who.role) == ("local", Role.MANAGER)


def test_a_token_of_a_user_acts_as_that_user_with_what_it_is_now(shared):
    secret = shared.tokens.create("bobs", user="bob", permits=EVERY).secret
    assert Admission(shared).authenticate(secret) == Actor("bob", "acme", Role.USER)
    shared.users.update("bob", role="admin", permissions=["reports"])
    assert Admission(shared).authenticate(secret) == Actor("bob", "acme", Role.ADMIN, frozenset({"reports"}))


def test_a_token_needs_a_user_that_is_there(shared):
    for name in ("nobody", "eve"):
        if name == "eve":
            shared.users.delete("eve")
        with pytest.raises((NotFound, PermissionDenied), match=name):
            shared.tokens.create("x", user=name)
    assert shared.tokens.list() == []


def test_before_there_are_users_a_token_is_nobodys_but_the_operators(rota):
    with pytest.raises(NotFound, match="rota user create"):
        rota.tokens.create("x", user="bob")


@pytest.mark.parametrize("name", ["ada", "bob"])
def test_only_a_system_manager_makes_lists_and_revokes_tokens(shared, name):
    made = shared.acting_as("root").tokens.create("roots", user="root", permits=EVERY).token
    for forbidden in (
        lambda: shared.acting_as(name).tokens.create("mine", user=name),
        shared.acting_as(name).tokens.list,
        lambda: shared.acting_as(name).tokens.revoke(made.id),
    ):
        with pytest.raises(PermissionDenied):
            forbidden()
    assert shared.acting_as("root").tokens.list() == [made]


def test_a_token_has_a_name_permits_and_a_time_to_come(rota):
    with pytest.raises(InvalidName):
        rota.tokens.create("")
    with pytest.raises(InvalidOption, match="time to come"):
        rota.tokens.create("x", expires_in=timedelta(0))
    with pytest.raises(InvalidOption, match="read, submit"):
        rota.tokens.create("x", permits=["fly"])
    assert rota.tokens.list(revoked=True) == []


def test_the_secret_is_kept_nowhere(rota, tmp_path):
    secret = rota.tokens.create("x").secret
    session = Admission(rota).open_session(secret).secret
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
        made = shared.tokens.create("bobs", user="bob", permits=EVERY, expires_in=timedelta(hours=1))
        session = Admission(shared).open_session(made.secret)

        def open(self):
            return Admission(shared).authenticate(self.made.secret) == Admission(shared).session(self.session.secret)

        def closed(self):
            said = set()
            for way in (
                lambda: Admission(shared).authenticate(self.made.secret),
                lambda: Admission(shared).open_session(self.made.secret),
                lambda: Admission(shared).session(self.session.secret),
                lambda: Admission(shared).authenticate("rota_" + "0" * 64),
                lambda: Admission(shared).authenticate("nonsense"),
                lambda: Admission(shared).session("nonsense"),
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
    revoked = shared.acting_as("root").tokens.revoke(ways.made.token.id)
    assert revoked.revoked_at is not None
    assert ways.closed()
    assert shared.tokens.list() == []
    assert shared.tokens.list(revoked=True) == [revoked]
    assert shared.tokens.revoke(ways.made.token.id) == revoked


def test_a_token_of_a_user_that_was_removed_opens_nothing_until_the_user_is_back(shared, ways):
    shared.users.delete("bob")
    assert ways.closed()
    shared.users.create("bob", organization="acme")
    assert ways.open()


def test_another_process_closes_a_door_for_this_one(shared, ways, clock):
    other = Rota(shared.store.url, clock=clock)
    assert ways.open()
    other.users.delete("bob")
    assert ways.closed()
    other.close()


def test_people_of_a_suspended_organization_come_in_and_may_read_and_cancel(shared, ways):
    job = shared.acting_as("bob").enqueue("echo", run_at=timedelta(hours=1))
    shared.organizations.suspend("acme")
    who = Admission(shared).authenticate(ways.made.secret)
    assert shared.acting_as(who).jobs.get(job.id).id == job.id
    with pytest.raises(OrganizationUnavailable):
        shared.acting_as(who).enqueue("echo")
    shared.acting_as(who).jobs.cancel(job.id)


def test_people_of_a_removed_organization_may_do_nothing(shared, ways):
    shared.organizations.delete("acme")
    with pytest.raises(PermissionDenied, match="removed"):
        shared.acting_as(Admission(shared).authenticate(ways.made.secret)).jobs.list()


def test_what_is_no_id_of_a_token_can_not_be_revoked(rota):
    for name in ("", "x", "01997c3e-5f0a-7cc3-98c4-dc0c0c07398f"):
        with pytest.raises(NotFound):
            rota.tokens.revoke(name)


def test_the_last_use_is_written_to_the_minute(rota, clock):
    secret = rota.tokens.create("x").secret
    assert rota.tokens.list()[0].last_used_at is None
    Admission(rota).authenticate(secret)
    first = rota.tokens.list()[0].last_used_at
    clock.advance(seconds=NOTED_S - 1)
    Admission(rota).authenticate(secret)
    assert rota.tokens.list()[0].last_used_at == first
    clock.advance(seconds=1)
    Admission(rota).authenticate(secret)
    assert rota.tokens.list()[0].last_used_at == first + timedelta(seconds=NOTED_S)


def test_a_store_that_can_not_be_written_now_still_lets_people_in(rota, monkeypatch, caplog):
    secret = rota.tokens.create("x").secret

    def busy(*_, **__):
        raise StoreBusy("somebody else writes")

    monkeypatch.setattr(rota._session.open().store, "note_use", busy)
    with caplog.at_level(logging.WARNING, "rota.access"):
        assert Admission(rota).authenticate(secret).name == "local"
    assert secret not in caplog.text


# ---- browsers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(session_ttl=60)])
def test_a_session_lasts_as_long_as_the_setting_says(rota, clock):
    session = Admission(rota).open_session(rota.tokens.create("x").secret)
    assert session.max_age_s == 60
    clock.advance(seconds=59.9)
    assert Admission(rota).session(session.secret).name == "local"
    clock.advance(seconds=0.1)
    with pytest.raises(Unauthenticated):
        Admission(rota).session(session.secret)


def test_each_session_is_another_one_and_ends_alone(rota):
    secret = rota.tokens.create("x").secret
    one, two = Admission(rota).open_session(secret), Admission(rota).open_session(secret)
    assert one.secret != two.secret
    assert one.csrf != two.csrf
    Admission(rota).close_session(one.secret)
    Admission(rota).close_session(one.secret)
    Admission(rota).close_session("never there")
    with pytest.raises(Unauthenticated):
        Admission(rota).session(one.secret)
    assert Admission(rota).session(two.secret).name == "local"


def test_a_session_is_as_narrow_as_its_token(rota):
    session = Admission(rota).open_session(rota.tokens.create("x").secret)
    with pytest.raises(PermissionDenied):
        rota.acting_as(Admission(rota).session(session.secret)).store.pause()


# ---- the first start ------------------------------------------------------------------------------------------------


def test_the_first_local_start_makes_one_token_for_the_operator_and_never_again(rota):
    first = Admission(rota).welcome(local=True)
    assert (first.token.name, first.token.user, first.token.permits) == (FIRST, None, EVERY)
    assert Admission(rota).authenticate(first.secret).role is Role.MANAGER
    assert Admission(rota).welcome(local=True) is None
    rota.tokens.revoke(first.token.id)
    assert Admission(rota).welcome(local=True) is None


def test_a_fresh_link_replaces_the_link_of_the_same_person_and_nothing_else(shared):
    root = Admission(shared.acting_as("root"))
    first = root.welcome(local=True)
    mine, theirs = root.welcome(local=True, fresh=True), Admission(shared).welcome(local=True, fresh=True)
    again = root.welcome(local=True, fresh=True)
    assert (again.token.name, again.token.user, again.token.permits) == (LINK, None, EVERY)
    with pytest.raises(Unauthenticated):
        root.authenticate(mine.secret)
    for secret in (first.secret, theirs.secret, again.secret):
        assert root.authenticate(secret).role is Role.MANAGER


def test_an_address_that_others_can_reach_has_no_link(shared):
    assert Admission(shared).welcome(local=False, fresh=True) is None


def test_an_address_that_others_can_reach_needs_users(rota):
    with pytest.raises(Refused, match=r"rota user create .* .rota token create .* 127\.0\.0\.1"):
        Admission(rota).welcome(local=False)
    rota.users.create("root", role="system_manager")
    assert Admission(rota).welcome(local=False) is None
    assert rota.tokens.list() == []


def test_only_who_may_operate_the_store_may_serve_it(shared):
    with pytest.raises(PermissionDenied):
        Admission(shared.acting_as("ada")).welcome(local=True)
    assert Admission(shared.acting_as("root")).welcome(local=True).token.created_by == "root"
