"""Webhooks: messages are written with the move that ends a run, taken on by lease, and settled once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rota.errors import ChangedMeanwhile, InvalidOption, NotFound
from rota.model.decide import Completed, Crashed, Failed, Released, Skipped, Snoozed, TimedOut
from rota.model.gate import Scope
from rota.model.values import SECOND
from rota.model.webhooks import DeliveryState, Event, Sent, Verdict, Webhook, WebhookState, organization_owner
from rota.ports.hooks import EndpointChange, Settled
from tests.stores.desk import ANNA, inside, outside
from tests.stores.makers import torn_runs

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
AT = datetime(2026, 3, 1, tzinfo=UTC)
LATER = 60 * SECOND


def hook(desk, url="https://example.com/x", **fields) -> str:
    """Make a webhook and return its id."""
    endpoint_id = desk.id()
    values = {"organization": "default", "events": tuple(Event), "created_by": "anna", "created_at": AT, "updated_at": AT}
    webhook = Webhook(id=outside(endpoint_id), url=url, **(values | fields))
    desk.store.add_endpoint(webhook, SECRET, most=10, actor=ANNA, now=desk.now)
    return endpoint_id


def told(desk, **options):
    """Return what was told, oldest first."""
    return [(each.event, inside(each.key)) for each in reversed(desk.store.deliveries(limit=1000, **options))]


def take(desk, settled=(), *, limit=10, each=10, **options):
    return desk.store.take_mail(list(settled), now=desk.now, until=desk.now + LATER, limit=limit, each=each, **options).parcels


def settled(desk, parcel, *, status=200, **verdict):
    return Settled(parcel=parcel, sent=Sent(status=status), verdict=Verdict(**(verdict or {"delivered": True})), at=desk.now)


# ---- written with the move -------------------------------------------------------------------------------------------


def test_without_a_webhook_nothing_is_written(desk):
    desk.add()
    desk.done(desk.claim_one())
    desk.add()
    assert not desk.end(desk.claim_one(), Failed("no")).told
    assert told(desk) == []
    assert desk.store.mail().next_at is None


def test_plain_completions_are_told_with_the_id_of_their_runs(desk):
    hook(desk)
    desk.several(3)
    jobs = desk.claim(3)
    assert desk.done(*jobs).told
    assert told(desk) == [("run.completed", job.run_id) for job in jobs]
    assert desk.store.mail().next_at == desk.now


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (Completed('"x"'), "run.completed"),
        (Failed("no"), "run.failed"),
        (TimedOut(1.0), "run.failed"),
        (Failed("never", permanent=True), "run.dead_lettered"),
        (Skipped("nothing to do"), "run.skipped"),
    ],
)
def test_every_end_of_a_run_is_told(desk, outcome, event):
    hook(desk)
    desk.add()
    job = desk.run_to(outcome)
    assert told(desk) == [(event, job.run_id)]


@pytest.mark.parametrize("outcome", [Released(), Snoozed(30.0)])
def test_what_goes_on_as_it_was_is_not_told(desk, outcome):
    hook(desk)
    desk.add()
    desk.run_to(outcome)
    assert told(desk) == []


def test_a_turn_that_is_made_beside_others_tells_too(desk):
    """The second turn of a calm store is a light one, where the store has those."""
    hook(desk)
    desk.several(4)
    first, second, third, fourth = desk.claim(4)
    desk.done(first)
    desk.turn(endings=[desk.ending(second, Failed("no")), desk.ending(third, Completed("1"))], done=[(fourth.number, desk.now)])
    assert sorted(told(desk)) == sorted(
        [
            ("run.completed", first.run_id),
            ("run.failed", second.run_id),
            ("run.completed", third.run_id),
            ("run.completed", fourth.run_id),
        ]
    )


def test_a_repeated_turn_tells_nothing_twice_and_a_late_one_nothing_at_all(desk):
    hook(desk)
    desk.several(2)
    one, two = desk.claim(2)
    request = desk.request(endings=[desk.ending(one, Failed("no"))], done=[(two.number, desk.now)])
    desk.store.turn(request)
    desk.store.turn(request)
    assert len(told(desk)) == 2
    desk.add(priority=60)
    lost = desk.claim_one()
    desk.recover(desk.worker, Crashed())
    desk.done(lost)
    assert [event for event, _ in told(desk)][2:] == ["run.failed"]


def test_what_recovery_ends_is_told(desk):
    hook(desk)
    desk.several(2, max_retries=0)
    jobs = desk.claim(2)
    desk.recover(desk.worker, Crashed())
    assert sorted(told(desk)) == sorted(("run.dead_lettered", job.run_id) for job in jobs)


@torn_runs
def test_recovery_tells_of_a_run_that_had_ended_by_itself(desk, maker):
    hook(desk)
    desk.add()
    job = desk.claim_one()
    maker.end_run_only(job.number, "FAILED", desk.now, "torn")
    desk.recover(desk.worker, Crashed())
    assert told(desk) == [("run.failed", job.run_id)]
    assert json.loads(take(desk)[0].payload)["job"]["goes_on"] is True


def test_a_job_that_ends_without_a_run_is_told_under_its_own_id(desk):
    hook(desk)
    waits = desk.add(delay=100)
    desk.store.cancel(waits, actor=ANNA, now=desk.now)
    expires = desk.add(expires_at=desk.now + SECOND)
    desk.advance(2)
    desk.turn()
    assert told(desk) == [("run.cancelled", waits), ("run.skipped", expires)]
    first = json.loads(take(desk)[0].payload)
    assert first["run_id"] is None
    assert first["job"]["status"] == "CANCELLED"


def test_children_and_group_members_that_end_with_others_are_told(desk):
    hook(desk)
    parent = desk.add(max_retries=0)
    child = desk.add(depends_on=(parent,), on_parent_failure="skip")
    first, second = desk.row(max_retries=0), desk.row()
    desk.run_to(Failed("no"))
    desk.turn()
    desk.grouped([first, second])
    desk.run_to(Failed("no"))
    assert [event for event, _ in told(desk)] == ["run.dead_lettered", "run.skipped", "run.dead_lettered", "run.cancelled"]
    assert told(desk)[1][1] == child


def test_a_direct_execution_that_is_given_up_is_told(desk):
    hook(desk)
    reservation = desk.reserve()
    job = desk.claim_one()
    desk.store.give_up(reservation.id, now=desk.now, stop_running=True)
    assert told(desk) == [("run.dead_lettered", job.run_id)]


def test_an_end_that_could_not_be_stored_is_told_as_what_it_became(desk):
    hook(desk)
    desk.several(2)
    good, bad = desk.claim(2)
    desk.turn(endings=[desk.ending(good, Completed("1")), desk.ending(bad, Failed("\ud800"))])
    assert sorted(told(desk)) == sorted([("run.completed", good.run_id), ("run.dead_lettered", bad.run_id)])


def test_params_are_never_told_and_results_only_to_who_asked(desk):
    hook(desk, "https://plain.example/")
    hook(desk, "https://asked.example/", with_result=True)
    desk.add(params='{"password":"hunter2"}')
    desk.run_to(Completed('{"answer": 42}'))
    payloads = {parcel.url: parcel.payload for parcel in take(desk)}
    assert "hunter2" not in "".join(payloads.values())
    assert json.loads(payloads["https://asked.example/"])["result"] == {"answer": 42}
    assert "result" not in json.loads(payloads["https://plain.example/"])


def test_a_webhook_hears_only_of_its_organization_its_events_and_its_types(desk):
    hook(desk, "https://dead.example/", events=(Event.DEAD_LETTERED,))
    hook(desk, "https://other.example/", organization="acme")
    hook(desk, "https://mail.example/", job_types=("mail",))
    desk.add()
    desk.add("mail", max_retries=0)
    desk.run_to(Completed("1"))
    desk.run_to(Failed("no"), types=["mail"])
    heard = sorted((parcel.url, parcel.event) for parcel in take(desk))
    assert heard == [("https://dead.example/", "run.dead_lettered"), ("https://mail.example/", "run.dead_lettered")]


def test_the_webhook_of_one_job_hears_of_all_its_attempts_and_of_no_other(desk):
    desk.store.set_secret(organization_owner("default"), SECRET, organization="default", previous_until=0, actor=ANNA, now=desk.now)
    own = desk.add(webhook="https://one.example/")
    desk.add()
    desk.run_to(Failed("no"))
    desk.run_to(Completed("1"))
    desk.advance(100)
    desk.turn()
    desk.run_to(Completed("1"))
    found = [json.loads(parcel.payload) for parcel in take(desk)]
    assert [each["event"] for each in found] == ["run.failed", "run.completed"]
    assert {inside(each["job"]["chain"]) for each in found} == {own}
    assert {parcel.secrets for parcel in take_again(desk)} == {(SECRET,)}


def take_again(desk):
    """Take on what is due after every lease is over."""
    desk.advance(100)
    return take(desk)


def test_a_job_with_a_webhook_is_refused_where_nothing_can_sign_its_messages(desk):
    with pytest.raises(InvalidOption, match="rota webhook rotate"):
        desk.add(webhook="https://one.example/")
    assert desk.order() == []


# ---- delivering ------------------------------------------------------------------------------------------------------


def deliverable(desk, count=1, **fields):
    """Leave messages in the outbox."""
    endpoint = hook(desk, **fields)
    desk.several(count)
    desk.done(*desk.claim(count))
    return endpoint


def test_what_is_taken_on_is_nobody_elses_until_its_lease_is_over(desk, maker):
    deliverable(desk, 2)
    first = take(desk)
    assert len(first) == 2
    assert take(desk) == []
    another = maker.open()
    assert another.take_mail([], now=desk.now, until=desk.now + LATER, limit=10, each=10).parcels == []
    desk.advance(61)
    assert [parcel.id for parcel in take(desk)] == [parcel.id for parcel in first]


def test_a_delivered_message_is_over_and_stays_on_the_record(desk):
    deliverable(desk)
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel)])
    (found,) = desk.store.deliveries(limit=10)
    assert (found.state, found.attempts, found.last_status) == (DeliveryState.DELIVERED, 1, 200)
    assert desk.store.mail().next_at is None
    assert desk.store.mail().over_at == desk.now


def test_a_failed_one_comes_back_when_it_is_said_to_and_its_webhook_is_failing(desk):
    endpoint = deliverable(desk)
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel, status=500, next_at=desk.now + 5 * SECOND)])
    assert take(desk) == []
    assert desk.store.endpoint(endpoint).failing_since is not None
    assert desk.store.endpoint(endpoint).last_status == 500
    desk.advance(5)
    (again,) = take(desk)
    assert (again.id, again.attempts, again.key) == (parcel.id, 1, parcel.key)
    take(desk, [settled(desk, again)])
    assert desk.store.endpoint(endpoint).failing_since is None


def test_what_is_settled_after_another_took_it_on_changes_nothing(desk):
    deliverable(desk)
    (mine,) = take(desk)
    desk.advance(61)
    (theirs,) = take(desk)
    take(desk, [settled(desk, mine, status=500, gave_up=True)])
    assert desk.store.deliveries(limit=1)[0].state is DeliveryState.WAITING
    take(desk, [settled(desk, theirs)])
    take(desk, [settled(desk, theirs)])
    assert desk.store.deliveries(limit=1)[0].attempts == 1


def test_a_receiver_that_is_gone_is_disabled_and_hears_nothing_more(desk, maker):
    endpoint = deliverable(desk)
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel, status=410, gave_up=True)])
    found = desk.store.endpoint(endpoint)
    assert found.state is WebhookState.DISABLED
    assert "410" in found.reason
    assert [each["action"] for each in maker.audit()][-1] == "webhook.disable"
    desk.add()
    desk.done(desk.claim_one())
    assert len(told(desk)) == 1


def test_what_waits_for_a_webhook_that_was_disabled_has_nowhere_to_go(desk):
    endpoint = deliverable(desk)
    desk.store.change_endpoint(endpoint, EndpointChange(state=WebhookState.DISABLED), version=None, actor=ANNA, now=desk.now)
    (parcel,) = take(desk)
    assert parcel.url is None
    take(desk, [settled(desk, parcel, status=None, gave_up=True)])
    (found,) = desk.store.deliveries(limit=1)
    assert (found.state, found.attempts) == (DeliveryState.GAVE_UP, 0)


def test_messages_go_where_the_webhook_is_by_now_signed_with_what_it_has_by_now(desk):
    endpoint = deliverable(desk)
    desk.store.change_endpoint(endpoint, EndpointChange(url="https://new.example/"), version=1, actor=ANNA, now=desk.now)
    until = desk.now + 10 * SECOND
    desk.store.set_secret(endpoint, "whsec_new", organization="default", previous_until=until, actor=ANNA, now=desk.now)
    (parcel,) = take(desk)
    assert parcel.url == "https://new.example/"
    assert parcel.secrets == ("whsec_new", SECRET)
    desk.advance(61)
    assert take(desk)[0].secrets == ("whsec_new",)


def test_one_lane_takes_no_more_than_its_share_and_a_busy_one_nothing(desk):
    deliverable(desk, 5, url="https://slow.example/")
    hook(desk, "https://quick.example/")
    desk.add()
    desk.done(desk.claim_one())
    first = take(desk, each=2)
    assert sorted(parcel.lane for parcel in first) == ["quick.example default", *["slow.example default"] * 2]
    assert take(desk, each=2, busy={"slow.example default"}) == []
    assert take(desk, each=2, busy={" default"}) == []
    assert len(take(desk, each=2)) == 2


def test_where_there_is_not_room_for_all_lanes_the_next_round_goes_on_behind_the_last(desk):
    for name in "abc":
        hook(desk, f"https://{name}.example/")
    desk.add()
    desk.done(desk.claim_one())
    after, lanes = "", []
    for _ in range(3):
        taken = desk.store.take_mail([], now=desk.now, until=desk.now + LATER, limit=1, each=1, after=after)
        lanes += [parcel.lane for parcel in taken.parcels]
        after = taken.after
    assert lanes == [f"{name}.example default" for name in "abc"]


# ---- the record ------------------------------------------------------------------------------------------------------


def test_the_record_is_read_by_webhook_by_state_by_organization_and_in_pages(desk):
    one = deliverable(desk, 3)
    hook(desk, "https://two.example/", organization="acme")
    (parcel, *_) = take(desk)
    take(desk, [settled(desk, parcel)])
    assert len(desk.store.deliveries(endpoint_id=one, limit=10)) == 3
    assert [each.id for each in desk.store.deliveries(state=DeliveryState.DELIVERED, limit=10)] == [parcel.id]
    assert len(desk.store.deliveries(state=DeliveryState.WAITING, limit=10)) == 2
    assert desk.store.deliveries(scope=Scope("acme"), limit=10) == []
    assert desk.store.deliveries(scope=Scope("acme"), endpoint_id=one, limit=10) == []
    newest = desk.store.deliveries(limit=1)[0]
    assert len(desk.store.deliveries(before=newest.id, limit=10)) == 2


def test_a_message_is_sent_again_as_if_it_had_never_been_tried(desk, maker):
    deliverable(desk)
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel, status=500, gave_up=True)])
    found = desk.store.redeliver(parcel.id, scope=Scope(), actor=ANNA, now=desk.now)
    assert (found.state, found.attempts) == (DeliveryState.WAITING, 0)
    assert take(desk)[0].key == parcel.key
    assert maker.audit()[-1]["action"] == "webhook.redeliver"


def test_a_message_of_another_organization_is_not_there(desk):
    deliverable(desk)
    for scope, number in [(Scope("acme"), 1), (Scope(), 999)]:
        with pytest.raises(NotFound, match="rota webhook deliveries"):
            desk.store.redeliver(number, scope=scope, actor=ANNA, now=desk.now)


def test_only_what_is_over_is_forgotten_a_bounded_number_at_a_time(desk):
    deliverable(desk, 4)
    parcels = take(desk)
    take(desk, [settled(desk, parcels[0]), settled(desk, parcels[1], status=500, gave_up=True), settled(desk, parcels[2])])
    desk.advance(10)
    assert desk.store.forget_deliveries(before=desk.now, limit=2) == 2
    assert desk.store.forget_deliveries(before=desk.now, limit=2) == 1
    assert desk.store.forget_deliveries(before=desk.now, limit=2) == 0
    assert len(told(desk)) == 1


@pytest.mark.parametrize("verdict", [{"delivered": True}, {"gave_up": True}])
def test_retention_waits_for_what_is_not_delivered_and_for_nothing_that_is_over(desk, maker, verdict):
    desk.store.set_secret(organization_owner("default"), SECRET, organization="default", previous_until=0, actor=ANNA, now=desk.now)
    job_id = desk.add(webhook="https://one.example/")
    desk.done(desk.claim_one())

    def purge():
        return desk.store.purge(before=desk.now, limit=10, now=desk.now, dry_run=False).chains

    desk.advance(1)
    assert purge() == 0
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel, **verdict)])
    assert purge() == 1
    assert maker.webhooks() == 0
    assert desk.store.endpoint(job_id) is None


# ---- webhooks themselves ---------------------------------------------------------------------------------------------


def test_a_webhook_is_kept_changed_and_deleted_and_each_is_audited_without_its_secret(desk, maker):
    endpoint = hook(desk)
    found = desk.store.endpoint(endpoint)
    assert [each.id for each in desk.store.endpoints()] == [found.id]
    changed = desk.store.change_endpoint(
        endpoint, EndpointChange(events=(Event.FAILED,), description="x"), version=1, actor=ANNA, now=desk.now
    )
    assert (changed.events, changed.description, changed.version) == ((Event.FAILED,), "x", 2)
    assert desk.store.change_endpoint(endpoint, EndpointChange(), version=2, actor=ANNA, now=desk.now).version == 2
    with pytest.raises(ChangedMeanwhile, match="version 2"):
        desk.store.change_endpoint(endpoint, EndpointChange(url="https://b.example/"), version=1, actor=ANNA, now=desk.now)
    assert desk.store.secrets(endpoint, now=desk.now) == (SECRET,)
    desk.store.drop_endpoint(endpoint, actor=ANNA, now=desk.now)
    assert desk.store.endpoints() == []
    assert desk.store.secrets(endpoint, now=desk.now) == ()
    with pytest.raises(NotFound):
        desk.store.drop_endpoint(endpoint, actor=ANNA, now=desk.now)
    audited = maker.audit()
    assert [each["action"] for each in audited] == ["webhook.create", "webhook.change", "webhook.delete"]
    assert SECRET not in str(audited)


def test_a_webhook_that_is_enabled_again_begins_without_its_failures(desk):
    endpoint = deliverable(desk)
    (parcel,) = take(desk)
    take(desk, [settled(desk, parcel, status=410, gave_up=True)])
    found = desk.store.change_endpoint(endpoint, EndpointChange(state=WebhookState.ENABLED), version=None, actor=ANNA, now=desk.now)
    assert (found.state, found.reason, found.failing_since, found.last_error) == (WebhookState.ENABLED, None, None, None)


def test_an_organization_has_no_more_webhooks_than_it_may(desk):
    for number in range(10):
        hook(desk, f"https://{number}.example/")
    with pytest.raises(InvalidOption, match="webhook_max"):
        hook(desk, "https://one-too-many.example/")
    hook(desk, "https://acme.example/", organization="acme")
    assert len(desk.store.endpoints(scope=Scope("acme"))) == 1
