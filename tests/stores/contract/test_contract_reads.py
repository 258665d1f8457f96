"""Reading: jobs, chains, pages, counts."""

import pytest

from rota.errors import StoreError
from rota.model.decide import Failed
from rota.model.values import SECOND
from rota.ports.store import Choice, Where
from tests.stores.desk import ANNA, inside


def found(desk, limit=100, before=None, **where):
    return [inside(job.id) for _, job in desk.store.find(Where(**where), limit=limit, before=before)]


def test_what_is_not_there_is_none_or_nothing(desk):
    unknown = desk.id()
    assert desk.store.job(unknown) is None
    assert desk.store.run(unknown) is None
    assert desk.store.chain(unknown) == []
    assert desk.store.by_number(1) is None
    assert desk.store.group(unknown) is None
    assert desk.store.blockers(unknown) == []
    assert desk.store.ahead(unknown) == 0
    assert desk.store.reservation() is None


def test_a_number_names_a_chain_by_its_first_job_and_nothing_else(desk):
    (root,) = desk.put(desk.row())
    desk.run_to(Failed("x"))
    assert inside(desk.store.by_number(root.number).id) == root.job_id
    assert desk.store.by_number(root.number + 1) is None


def test_a_chain_is_read_first_to_tail_from_any_of_its_ids(desk):
    root = desk.add()
    for _ in range(3):
        desk.run_to(Failed("x"))
        desk.advance(1000)
    chain = desk.store.chain(root)
    assert [job.attempt for job in chain] == [1, 2, 3, 4]
    assert all(desk.store.chain(inside(job.id)) == chain for job in chain)
    assert [job.number for job in chain] == [chain[0].number + suffix for suffix in ("", ".2", ".3", ".4")]


def test_filters_narrow_a_list_and_combine(desk):
    a, b = desk.add("t", params='{"to":"anna"}'), desk.add("u", params='{"to":"bob"}')
    keyed = desk.add("t", unique_key="invoice-7")
    reasoned = desk.add("t")
    desk.store.cancel(reasoned, actor=ANNA, now=desk.now, reason="typo in amount")
    group = desk.grouped([desk.row("g")])
    member = inside(group.members[0].root_id)
    assert found(desk) == [member, reasoned, keyed, b, a]
    assert found(desk, job_type="u") == [b]
    assert found(desk, status=("CANCELLED",)) == [reasoned]
    assert found(desk, status=("CANCELLED", "QUEUED"), job_type="t") == [reasoned, keyed, a]
    assert found(desk, text="anna") == [a]
    assert found(desk, text="invoice") == [keyed]
    assert found(desk, text="typo") == [reasoned]
    assert found(desk, group_id=inside(group.id)) == [member]
    assert found(desk, root_id=b) == [b]
    assert found(desk, text="100%_") == []


def test_pages_follow_each_other_without_gap_or_repeat_while_rows_come_and_go(desk):
    ids = desk.several(50)
    seen, cursor = [], None
    while page := desk.store.find(Where(), limit=7, before=cursor):
        seen += [inside(job.id) for _, job in page]
        cursor = page[-1][0]
        desk.several(2)
        desk.claim(1)
    assert seen == ids[::-1]


def test_the_queue_shows_parked_and_direct_jobs_in_their_order_and_nothing_else(desk):
    first, second = desk.several(2)
    desk.add(delay=60)
    desk.claim(1, choose=lambda jobs, _: Choice(take=[], park=[(jobs[0].number, "organization:default")]))
    assert desk.order() == [first, second]
    assert len(desk.store.queue(limit=1)) == 1


def test_ahead_counts_the_ready_jobs_in_front(desk):
    ids = desk.several(3)
    high = desk.add(priority=75)
    assert [desk.store.ahead(job_id) for job_id in (high, *ids)] == [0, 1, 2, 3]
    desk.claim(1, choose=lambda jobs, _: Choice(take=[], park=[(jobs[0].number, "organization:default")]))
    assert desk.store.ahead(ids[2]) == 2


def test_blockers_are_the_live_tails_of_what_it_waits_for(desk):
    rows = [desk.row(), desk.row()]
    desk.grouped(rows)
    desk.run_to(Failed("x"))
    (tail,) = desk.store.blockers(rows[1].job_id)
    assert (inside(tail.root_id), tail.attempt, tail.status) == (rows[0].job_id, 2, "PENDING")


def test_stats_count_by_state_priority_and_type_and_know_the_oldest(desk):
    assert desk.store.stats(now=desk.now).oldest_waiting_s is None
    desk.several(2)
    desk.add("u", priority=75)
    desk.add(delay=60)
    desk.claim(1)
    desk.advance(30)
    desk.add()
    stats = desk.store.stats(now=desk.now)
    assert (stats.by_status["QUEUED"], stats.by_status["PENDING"], stats.by_status["RUNNING"], stats.by_status["FAILED"]) == (3, 1, 1, 0)
    assert stats.by_priority == {75: 1, 50: 2}
    assert stats.waiting_by_type == {"t": 2, "u": 1}
    assert stats.oldest_waiting_s == 30.0
    assert stats.late_results == 0


def test_the_oldest_age_is_never_negative_when_the_clock_steps_back(desk):
    desk.add()
    assert desk.store.stats(now=desk.now - 60 * SECOND).oldest_waiting_s == 0.0


def test_closing_twice_is_harmless_and_afterwards_nothing_is_read_or_written(desk):
    job_id = desk.add()
    desk.store.close()
    desk.store.close()
    for use in (
        lambda: desk.store.enqueue([desk.row()], now=desk.now),
        lambda: desk.store.job(job_id),
        lambda: desk.store.queue(limit=1),
        desk.store.definitions,
        desk.store.changed,
    ):
        with pytest.raises(StoreError):
            use()


def test_migrating_again_changes_nothing(desk):
    desk.several(2)
    before = desk.snapshot()
    desk.store.migrate(now=desk.now)
    assert desk.snapshot() == before


def test_what_one_handle_wrote_another_reads_at_once(desk, maker):
    job_id = desk.add()
    assert maker.open().job(job_id) == desk.job(job_id)
