"""Retention: whole chains that nothing needs any more, in bounded batches, and nothing else."""

import msgspec
import pytest

from rota.errors import NotFound, StillLive, StillNeeded
from rota.model.decide import Completed, Failed, Snoozed
from rota.model.values import SECOND
from rota.ports.store import Where
from tests.stores.desk import ANNA, inside, outside
from tests.support.proof import size

DAY = 86_400 * SECOND


def purge(desk, *, days=30, limit=200, cursor=None, dry_run=False, **options):
    return desk.store.purge(before=desk.now - round(days * DAY), limit=limit, now=desk.now, dry_run=dry_run, cursor=cursor, **options)


def purge_all(desk, *, limit=200, **options):
    """Go on until there is nothing more; return the batches."""
    batches = [purge(desk, limit=limit, **options)]
    while batches[-1].cursor is not None:
        batches.append(purge(desk, limit=limit, cursor=batches[-1].cursor, **options))
    return batches


def ids(desk):
    return {inside(job.id) for _, job in desk.store.find(Where(), limit=10_000)}


def complete(desk, **fields):
    job_id = desk.add(**fields)
    desk.done(desk.claim_one(types=[fields.get("job_type", "t")]))
    return job_id


# ---- what goes -------------------------------------------------------------------------------------------------------


def test_a_chain_goes_when_it_ended_long_enough_ago_with_all_its_attempts_and_runs(desk, maker):
    root = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(61)
    desk.run_to(Failed("x"))
    chain = [inside(job.id) for job in desk.store.chain(root)]
    desk.advance(30 * 86_400)
    assert purge(desk).chains == 0
    desk.advance(1)
    done = purge(desk)
    assert (done.chains, done.jobs, done.kept, len(done.run_ids), done.cursor) == (1, 2, 0, 2, None)
    assert ids(desk) == set()
    assert all(desk.store.run(job_id) is None for job_id in chain)
    assert desk.store.log(root) == []
    kept, real = maker.totals()
    assert kept == real == set()


def test_the_age_of_a_chain_is_that_of_its_end(desk):
    root = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(40 * 86_400)
    assert purge(desk).chains == 0
    desk.run_to(Failed("x"))
    desk.advance(20 * 86_400)
    assert purge(desk).chains == 0
    assert ids(desk) == {inside(job.id) for job in desk.store.chain(root)}
    desk.advance(11 * 86_400)
    assert purge(desk).jobs == 2


def test_nothing_that_waits_or_runs_ever_goes(desk):
    desk.add()
    desk.add(delay=1e9)
    desk.claim_one()
    desk.add("u")
    desk.advance(400 * 86_400)
    before = desk.snapshot()
    assert purge(desk, days=0) == msgspec.convert({}, type(purge(desk)))
    assert desk.snapshot() == before


@pytest.mark.parametrize("end", ["completed", "dead", "cancelled", "expired"])
def test_every_end_of_a_chain_ages(desk, end):
    job_id = desk.add(expires_at=desk.now + SECOND) if end == "expired" else desk.add()
    if end == "completed":
        desk.run_to(Completed('"x"'))
    elif end == "dead":
        desk.run_to(Failed("x", permanent=True))
    elif end == "cancelled":
        desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    else:
        desk.advance(2)
        desk.turn()
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, ids(desk)) == (1, set())


def test_what_happened_in_an_hour_stays_known_after_its_jobs_are_gone(desk):
    complete(desk)
    desk.advance(60)
    assert purge(desk, days=0).chains == 1
    stats = desk.store.stats(now=desk.now)
    assert stats.by_status["COMPLETED"] == 0
    assert stats.by_type[0].completed == 1
    purge(desk, days=0, figures_before=desk.now + 2 * 3600 * SECOND)
    assert desk.store.stats(now=desk.now).by_type == ()


def test_numbers_are_not_given_twice_after_the_newest_jobs_are_gone(desk):
    complete(desk)
    last = max(number for number, _ in desk.store.find(Where(), limit=10))
    desk.advance(60)
    purge(desk, days=0)
    assert desk.put(desk.row())[0].number == last + 1


# ---- what stays ------------------------------------------------------------------------------------------------------


def test_a_parent_stays_while_a_child_waits_for_it_runs_or_is_retried(desk):
    parent = desk.add()
    child = desk.add("child", depends_on=(parent,), max_retries=1)
    desk.done(desk.claim_one())
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, purge(desk).kept) == (0, 1)
    desk.turn()
    job = desk.claim_one(types=["child"])
    assert purge(desk).kept == 1
    desk.end(job, Failed("x"))
    assert (purge(desk).chains, purge(desk).kept) == (0, 1)
    desk.advance(61)
    desk.run_to(Failed("x"), types=["child"])
    assert (purge(desk).chains, ids(desk) >= {child}) == (1, True)
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, ids(desk)) == (1, set())


def test_a_dead_parent_that_a_child_still_hopes_for_stays_and_can_be_retried(desk):
    parent = desk.add()
    child = desk.add("child", depends_on=(parent,), on_parent_failure="wait")
    desk.run_to(Failed("x", permanent=True))
    desk.advance(100 * 86_400)
    assert purge(desk, days=0).kept == 1
    desk.store.retry(parent, new_id=desk.id(), actor=ANNA, now=desk.now)
    desk.done(desk.claim_one())
    desk.turn()
    assert desk.status(child) == "QUEUED"


def test_a_group_stays_whole_until_its_youngest_member_is_old(desk):
    group = inside(desk.grouped([desk.row() for _ in range(3)]).id)
    desk.done(desk.claim_one())
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, purge(desk).kept) == (0, 1)
    desk.turn()
    desk.run_to(Failed("x", permanent=True))
    assert desk.store.group(group).status == "PARTIAL"
    desk.advance(20 * 86_400)
    assert (purge(desk).chains, desk.store.group(group).status) == (0, "PARTIAL")
    desk.advance(20 * 86_400)
    assert purge(desk).chains == 3
    assert desk.store.group(group) is None
    assert desk.store.groups(limit=10) == []


def test_a_group_that_goes_in_several_batches_goes_at_last(desk):
    group = inside(desk.grouped([desk.row() for _ in range(5)], "parallel").id)
    desk.done(*desk.claim(5))
    desk.advance(31 * 86_400)
    assert [batch.chains for batch in purge_all(desk, limit=2)][:3] == [2, 2, 1]
    assert desk.store.group(group) is None


def test_a_chain_with_an_undelivered_webhook_stays_until_it_is_delivered(desk, maker):
    first = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(61)
    desk.run_to(Failed("x"))
    maker.promise_webhook(first)
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, purge(desk).kept) == (0, 1)
    maker.deliver_webhooks(desk.now)
    assert purge(desk).jobs == 2
    assert maker.webhooks() == 0


def test_the_job_of_an_active_reservation_stays(desk, maker):
    reservation = desk.reserve()
    desk.done(desk.claim_one())
    maker.reactivate(reservation.id)
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, purge(desk).kept) == (0, 1)


def test_an_attempt_that_lacks_its_successor_is_not_old_but_unfinished(desk, maker):
    desk.add(max_retries=3)
    job = desk.claim_one()
    maker.end_without_successor(job.number, "FAILED", desk.now)
    desk.advance(31 * 86_400)
    assert (purge(desk).chains, purge(desk).kept) == (0, 0)
    torn = desk.store.repair(since=0)
    assert desk.store.add_successors([desk.ending(each.job, Failed("x")) for each in torn], now=desk.now) == 1


def test_recovery_never_revives_what_retention_left(desk):
    """Chains with failed attempts go whole: none of them is left for a repair to find."""
    for _ in range(20):
        desk.add(max_retries=2)
    for _ in range(4):
        while job := desk.claim(1):
            desk.end(job[0], Failed("x"))
        desk.advance(1000)
    recent = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(40 * 86_400)
    for batch in (1, 2, 3, 5, 100):
        purge(desk, limit=batch)
        assert desk.store.repair(since=0) == []
    purge_all(desk)
    assert desk.store.repair(since=0) == []
    assert ids(desk) == {inside(job.id) for job in desk.store.chain(recent)}


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_bounded_by_jobs_and_a_long_chain_goes_alone(desk):
    desk.add(max_retries=0)
    desk.run_to(Completed('"x"'))
    long = desk.add()
    for _ in range(9):
        desk.run_to(Snoozed(1.0))
        desk.advance(2)
    desk.done(desk.claim_one())
    desk.several(3)
    desk.done(*desk.claim(3))
    desk.advance(31 * 86_400)
    assert len(desk.store.chain(long)) == 10
    sizes = [batch.jobs for batch in purge_all(desk, limit=4) if batch.jobs]
    assert sum(sizes) == 14
    assert 10 in sizes
    assert all(size <= 4 for size in sizes if size != 10)


def test_the_walk_goes_on_past_what_must_stay(desk):
    """Kept chains at the front don't keep the rest from going, and each is counted once."""
    parents = desk.several(10)
    for parent in parents:
        desk.add("child", depends_on=(parent,))
    desk.done(*desk.claim(10))
    desk.several(10)
    desk.advance(1)
    desk.done(*desk.claim(10))
    desk.advance(31 * 86_400)
    batches = purge_all(desk, limit=3)
    assert sum(batch.chains for batch in batches) == 10
    assert sum(batch.kept for batch in batches) == 10


def test_many_that_ended_in_the_same_instant_are_walked_without_gap_or_repeat(desk):
    desk.several(50)
    desk.done(*desk.claim(50))
    desk.advance(31 * 86_400)
    looks = []
    cursor = None
    while True:
        batch = purge(desk, limit=7, cursor=cursor, dry_run=True)
        looks.append(batch.chains)
        cursor = batch.cursor
        if cursor is None:
            break
    assert sum(looks) == 50
    assert sum(batch.chains for batch in purge_all(desk, limit=7)) == 50


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 200])
def test_old_chains_of_many_types_go_and_young_ones_of_the_same_types_stay(desk, limit):
    types = [f"type {index}" for index in range(30)]
    old = types[::2]
    for job_type in old:
        desk.done(*desk.claim(len(desk.several(3, job_type)), types=[job_type]))
        desk.advance(1)
    desk.advance(31 * 86_400)
    young = {desk.add(job_type) for job_type in types}
    desk.done(*desk.claim(len(young), types=types))
    dry = [purge(desk, limit=limit, dry_run=True)]
    while dry[-1].cursor:
        dry.append(purge(desk, limit=limit, dry_run=True, cursor=dry[-1].cursor))
    batches = purge_all(desk, limit=limit)
    assert sum(batch.chains for batch in dry) == sum(batch.chains for batch in batches) == 3 * len(old)
    assert all(batch.jobs <= limit for batch in batches)
    assert len(batches) <= 3 * len(old) // limit + 1
    assert ids(desk) == young


def test_the_oldest_go_first_whatever_their_type_and_whenever_they_were_made(desk):
    roots = [desk.add(job_type) for job_type in ("b", "c", "a", "b", "a", "c")]
    ended = []
    for job_type in ("c", "a", "b", "a", "c", "b"):
        ended.append(desk.claim_one(types=[job_type]))
        desk.done(ended[-1])
        desk.advance(1)
    desk.advance(31 * 86_400)
    cursor, gone = None, []
    for _ in ended:
        before = ids(desk)
        cursor = purge(desk, limit=1, cursor=cursor).cursor
        gone += before - ids(desk)
    assert gone == [job.job_id for job in ended]
    assert sorted(gone) == sorted(roots)


def test_a_dry_run_counts_what_a_purge_removes_and_changes_nothing(desk):
    for index in range(12):
        parent = desk.add()
        if index % 3 == 0:
            desk.add("child", depends_on=(parent,))
    desk.done(*desk.claim(12))
    desk.advance(31 * 86_400)
    before = desk.snapshot()
    dry = [purge(desk, limit=5, dry_run=True)]
    while dry[-1].cursor:
        dry.append(purge(desk, limit=5, dry_run=True, cursor=dry[-1].cursor))
    assert desk.snapshot() == before
    real = purge_all(desk, limit=5)
    for count in ("chains", "jobs", "kept"):
        assert sum(getattr(batch, count) for batch in dry) == sum(getattr(batch, count) for batch in real)
    assert all(batch.run_ids == [] for batch in dry)


@pytest.mark.prove
def test_many_chains_go_in_bounded_batches_while_others_come(desk):
    row, many, most = desk.row(), size(2_000, prove=200_000), size(50, prove=500)
    for _ in range(many // 1000):
        desk.put(*(msgspec.structs.replace(row, job_id=job_id) for job_id in desk.ids.take(1000, desk.now)))
        desk.done(*desk.claim(1000))
    desk.advance(31 * 86_400)
    gone, cursor, batches = 0, None, 0
    while True:
        batch = purge(desk, limit=most, cursor=cursor)
        gone, cursor, batches = gone + batch.chains, batch.cursor, batches + 1
        assert batch.jobs <= most
        if batches % 10 == 0:
            desk.done(*desk.claim(len(desk.several(5))))
        if cursor is None:
            break
    assert gone == many
    assert batches <= many // most + 2
    assert desk.store.stats(now=desk.now).by_status["COMPLETED"] == len(ids(desk)) > many // (4 * most)


# ---- what has no use any more ----------------------------------------------------------------------------------------


def test_expired_duplicates_passed_windows_old_workers_and_old_reservations_are_forgotten(desk, maker):
    desk.add(job_hash="ab" * 16, dedup_window=60 * SECOND, template_id=desk.id(), submit_limit=5, submit_window=60 * SECOND)
    gone = desk.id()
    desk.store.register(gone, host="here", kind="worker", job_types=(), now=desk.now)
    desk.store.end_worker(gone, now=desk.now)
    desk.reserve()
    desk.done(desk.claim_one())
    everything = {"dedup": 1, "workers": 1, "direct_reservations": 1, "rate_log": 1}
    assert maker.leftovers() == everything
    desk.advance(30)
    purge(desk)
    assert maker.leftovers() == everything
    desk.advance(31 * 86_400)
    lives = desk.id()
    desk.store.register(lives, host="here", kind="worker", job_types=(), now=0)
    purge(desk)
    assert maker.leftovers() == {"dedup": 0, "workers": 1, "direct_reservations": 0, "rate_log": 0}
    assert [worker.id for worker in desk.store.workers()] == [lives]


def test_more_to_forget_than_fits_a_batch_is_said_by_the_cursor(desk, maker):
    for index in range(7):
        desk.add(job_hash=f"{index:032x}", dedup_window=60 * SECOND, template_id=desk.id())
    desk.advance(100)
    assert purge(desk, limit=3).cursor is not None
    purge_all(desk, limit=3)
    assert maker.leftovers()["dedup"] == 0


# ---- discard ---------------------------------------------------------------------------------------------------------


def test_one_ended_chain_is_discarded_by_any_of_its_ids_and_audited(desk, maker):
    root, other = desk.add(max_retries=1), desk.add()
    desk.run_to(Failed("x"))
    desk.done(desk.claim_one())
    desk.advance(61)
    desk.run_to(Failed("x"))
    gone = desk.store.discard(desk.tail_id(root), actor=ANNA, now=desk.now)
    assert (gone.chains, gone.jobs, len(gone.run_ids)) == (1, 2, 2)
    assert ids(desk) == {other}
    kept, real = maker.totals()
    assert kept == real
    entry = maker.audit()[-1]
    assert (entry["actor"], entry["action"], entry["subject_id"]) == ("anna", "job.discard", root)
    assert entry["before"] == {"status": "DEAD_LETTER", "job_type": "t", "jobs": 2}
    with pytest.raises(NotFound):
        desk.store.discard(root, actor=ANNA, now=desk.now)


def test_a_live_chain_is_not_discarded(desk):
    root = desk.add()
    with pytest.raises(StillLive, match="is QUEUED; cancel it first"):
        desk.store.discard(root, actor=ANNA, now=desk.now)
    desk.run_to(Failed("x"))
    with pytest.raises(StillLive, match=outside(desk.tail_id(root))):
        desk.store.discard(root, actor=ANNA, now=desk.now)


def test_a_chain_that_others_need_is_not_discarded_and_the_refusal_names_them(desk, maker):
    parent = desk.add()
    child = desk.job(desk.add("child", depends_on=(parent,)))
    desk.run_to(Failed("x", permanent=True))
    with pytest.raises(StillNeeded, match=rf"{child.number} \(PENDING\)"):
        desk.store.discard(parent, actor=ANNA, now=desk.now)
    group = desk.grouped([desk.row() for _ in range(2)], "parallel")
    desk.done(desk.claim_one())
    with pytest.raises(StillNeeded, match=f"group {group.id}"):
        desk.store.discard(inside(group.members[0].root_id), actor=ANNA, now=desk.now)
    told = complete(desk, job_type="u")
    maker.promise_webhook(told)
    with pytest.raises(StillNeeded, match="still to be delivered"):
        desk.store.discard(told, actor=ANNA, now=desk.now)
    assert ids(desk) >= {parent, told}
