"""Reading: jobs, chains, pages, counts."""

import threading
from random import Random

import msgspec
import pytest

from rota.errors import StoreError
from rota.model.decide import Completed, Failed, Skipped, TimedOut
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.states import Status
from rota.model.values import SECOND, dashed, instant
from rota.ports.clock import UuidV7
from rota.ports.store import Where
from rota.ports.turns import Choice
from tests.stores.desk import ANNA, START, Desk, inside
from tests.support.proof import size
from tests.support.waiting import eventually


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


def test_tails_say_of_many_chains_at_once_how_they_stand(desk):
    waiting, done, retried, dead, cancelled = desk.several(5, max_retries=1)
    unknown = desk.id()
    desk.store.cancel(cancelled, actor=ANNA, now=desk.now)
    held = {job.job_id: job for job in desk.claim(4)}
    desk.end(held[done], Completed('{"n":1}'))
    desk.end(held[retried], Failed("x"))
    desk.end(held[dead], Failed("x", permanent=True))
    tails = desk.store.tails([waiting, done, unknown, retried, dead, cancelled])
    assert {job_id: str(tail.status) for job_id, tail in tails.items()} == {
        waiting: "RUNNING",
        done: "COMPLETED",
        retried: "PENDING",
        dead: "DEAD_LETTER",
        cancelled: "CANCELLED",
    }
    assert [tail.number for tail in tails.values()] == [desk.tail(job_id).number for job_id in tails]
    assert {job_id: tail.run for job_id, tail in tails.items()} == {
        job_id: desk.store.run(desk.tail_id(job_id)) if job_id in {done, dead} else None for job_id in tails
    }
    assert tails[done].run.result == {"n": 1}
    assert desk.store.tails([]) == desk.store.tails([unknown]) == {}


def test_a_tail_is_found_from_any_job_of_its_chain(desk):
    root = desk.add()
    for _ in range(3):
        desk.run_to(Failed("x"))
        desk.advance(1000)
    desk.run_to(Failed("x", permanent=True))
    ids = [inside(job.id) for job in desk.store.chain(root)]
    tails = desk.store.tails(ids)
    assert {job_id: (tail.job_id, str(tail.status)) for job_id, tail in tails.items()} == dict.fromkeys(ids, (ids[3], "DEAD_LETTER"))
    assert {tail.run.job_id for tail in tails.values()} == {dashed(ids[3])}
    desk.store.retry(root, new_id=desk.id(), actor=ANNA, now=desk.now)
    assert {str(tail.status) for tail in desk.store.tails(ids).values()} == {"QUEUED"}


def test_a_tail_whose_first_attempt_is_gone_is_shown_and_hides_no_other(maker, desk):
    whole, root = desk.add("other"), desk.put(desk.row())[0]
    desk.run_to(Failed("x"))
    successor = desk.tail_id(root.job_id)
    tables = ("jobs",) if maker.name == "sqlite" else ("job_facts", "job_ends")
    maker.damage(*(f"DELETE FROM {table} WHERE number = {root.number}" for table in tables))
    tails = desk.store.tails([successor, whole])
    assert {job_id: str(tail.status) for job_id, tail in tails.items()} == {successor: "PENDING", whole: "QUEUED"}


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
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(jobs[0].number, "organization:default")]))
    assert desk.order() == [first, second]
    assert len(desk.store.queue(limit=1)) == 1


def test_ahead_counts_the_ready_jobs_in_front(desk):
    ids = desk.several(3)
    high = desk.add(priority=75)
    assert [desk.store.ahead(job_id) for job_id in (high, *ids)] == [0, 1, 2, 3]
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(jobs[0].number, "organization:default")]))
    assert desk.store.ahead(ids[2]) == 2


def test_blockers_are_the_live_tails_of_what_it_waits_for(desk):
    rows = [desk.row(), desk.row()]
    desk.grouped(rows)
    desk.run_to(Failed("x"))
    (tail,) = desk.store.blockers(rows[1].job_id)
    assert (inside(tail.root_id), tail.attempt, tail.status) == (rows[0].job_id, 2, "PENDING")


# ---- lists -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def varied(desk):
    """Jobs of every state, of several types, organizations, owners, times, chains and groups."""
    for minute in range(6):
        for organization in ("default", "acme", "beta"):
            for job_type, owner in (("t", "anna"), ("u", "bob")):
                desk.add(job_type, owner=owner, organization_id=organization, params=f'{{"minute":{minute}}}', max_retries=1)
        desk.add("later", delay=3600, expires_at=desk.now + 5000 * SECOND)
        desk.add("child", depends_on=(desk.add("parent"),))
        desk.grouped([desk.row("member"), desk.row("member")])
        outcomes = (None, Failed("smoke"), Failed("fire", permanent=True), TimedOut(1.0), Skipped("no"))
        for outcome, job in zip(outcomes * 3, desk.claim(5, types=["t", "u", "member"]), strict=False):
            desk.done(job) if outcome is None else desk.end(job, outcome)
        desk.store.cancel(desk.add("t", organization_id="acme"), actor=ANNA, now=desk.now)
        desk.advance(60)
    desk.claim(3, types=["t", "u"])
    return desk


FILTERS = [
    {},
    {"status": ("DEAD_LETTER",)},
    {"status": ("FAILED", "TIMED_OUT", "SKIPPED", "CANCELLED")},
    {"status": ("RUNNING",)},
    {"status": ("QUEUED",)},
    {"status": ("PENDING",)},
    {"status": ("PENDING", "QUEUED", "RUNNING")},
    {"status": ("COMPLETED",)},
    {"status": ("COMPLETED", "DEAD_LETTER")},
    {"status": ("COMPLETED", "QUEUED")},
    {"job_type": "t"},
    {"job_type": "nobody's"},
    {"organization": "acme"},
    {"organization": "default"},
    {"organization": "acme", "job_type": "u", "status": ("QUEUED", "DEAD_LETTER")},
    {"owner": "bob"},
    {"owner": "bob", "organization": "beta"},
    {"scope": Scope("acme")},
    {"scope": Scope("acme", "anna")},
    {"scope": Scope("acme"), "organization": "beta"},
    {"scope": Scope("acme", "anna"), "owner": "bob"},
    {"scope": Scope("acme"), "status": ("CANCELLED",)},
    {"text": 'minute":3'},
    {"text": "smoke"},
    {"text": "fire", "status": ("DEAD_LETTER",)},
    {"error_type": "timeout"},
    {"error_type": "transient", "organization": "acme"},
    {"error_type": "permanent", "status": ("DEAD_LETTER", "COMPLETED")},
    {"created_from": START + 120 * SECOND},
    {"created_until": START + 120 * SECOND},
    {"created_from": START + 60 * SECOND, "created_until": START + 180 * SECOND},
    {"created_from": START + 60 * SECOND, "created_until": START + 180 * SECOND, "job_type": "u", "organization": "beta"},
    {"created_until": START},
    {"tails": True},
    {"tails": True, "status": ("DEAD_LETTER",)},
]


def matches(job, texts, is_tail, filters):
    """What a filter means, said once more in plain words."""
    made = instant(job.created_at)
    return all(
        (
            job.status in filters.get("status", tuple(Status)),
            job.job_type == filters.get("job_type", job.job_type),
            job.organization == filters.get("organization", job.organization),
            job.owner == filters.get("owner", job.owner),
            filters.get("scope", EVERYTHING).holds(job.organization, job.owner),
            job.error_type == filters.get("error_type", job.error_type),
            any(filters.get("text", "") in text for text in texts),
            filters.get("created_from", 0) <= made < filters.get("created_until", 2**62),
            not filters.get("tails") or is_tail,
        )
    )


def test_every_filter_finds_what_it_says_whichever_way_it_is_looked_for(varied):
    everything = varied.store.find(Where(), limit=1000)
    assert len(everything) > 60
    known = []
    for number, job in everything:
        run = varied.store.run(inside(job.id))
        texts = [msgspec.json.encode(job.params).decode(), job.job_type, job.unique_key or "", job.reason or "", (run and run.error) or ""]
        known.append((number, job, texts, varied.tail(inside(job.id)).id == job.id))
    for filters in FILTERS:
        wanted = [number for number, job, texts, is_tail in known if matches(job, texts, is_tail, filters)]
        assert [number for number, _ in varied.store.find(Where(**filters), limit=1000)] == wanted, filters
        pages, cursor = [], None
        while page := varied.store.find(Where(**filters), limit=2, before=cursor):
            pages += [number for number, _ in page]
            cursor = page[-1][0]
        assert pages == wanted, filters


def test_a_time_finds_what_was_made_then_also_where_the_clock_had_stepped_back(desk):
    """Numbers follow the order of making, and so does no clock."""
    ids = []
    for at in (100, 50, 200, 10, 150):
        desk.now = START + at * SECOND
        ids.append(desk.add())
    assert found(desk, created_from=START + 90 * SECOND) == [ids[4], ids[2], ids[0]]
    assert found(desk, created_until=START + 90 * SECOND) == [ids[3], ids[1]]
    assert found(desk, created_from=START + 50 * SECOND, created_until=START + 150 * SECOND) == [ids[1], ids[0]]


def test_a_chain_is_found_by_its_root_and_a_dead_letter_that_was_retried_is_none_any_more(desk):
    root, other = desk.add(), desk.add()
    desk.run_to(Failed("x", permanent=True))
    desk.run_to(Failed("x", permanent=True))
    desk.store.retry(root, new_id=desk.id(), actor=ANNA, now=desk.now)
    assert found(desk, root_id=root) == [desk.tail_id(root), root]
    assert found(desk, status=("DEAD_LETTER",)) == [other, root]
    assert found(desk, status=("DEAD_LETTER",), tails=True) == [other]


@pytest.mark.prove
def test_many_jobs_are_paged_without_gap_or_repeat_while_others_write(desk):
    """The pages show what was there at the first look, and nothing twice; others enqueue, claim, end and cancel meanwhile."""
    row = desk.row("old", delay=1e6)
    wanted, many, page_size = set(), size(2_000, prove=200_000), size(100, prove=1000)
    for _ in range(many // 1000):
        rows = [msgspec.structs.replace(row, job_id=job_id) for job_id in desk.ids.take(1000, desk.now)]
        wanted |= {each.number for each in desk.put(*rows)}
    assert len(wanted) == many
    other, stop, written = Desk(desk.store), threading.Event(), []
    other.ids = UuidV7(Random(99))

    def write():
        while not stop.wait(0.01):
            cancelled, *_ = other.several(20, "new")
            other.store.cancel(cancelled, actor=ANNA, now=other.now)
            other.done(*other.claim(10, types=["new"]))
            written.append(cancelled)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for filters in ({}, {"job_type": "old"}):
            seen, cursor = [], max(wanted) + 1
            while page := desk.store.find(Where(**filters), limit=page_size, before=cursor):
                seen += [number for number, _ in page]
                cursor = page[-1][0]
                if len(seen) == 3 * page_size:
                    there = len(written)
                    eventually(lambda there=there: len(written) > there + 1, what="what others write between two pages")
            assert len(seen) == len(set(seen)) == many
            assert set(seen) == wanted
    finally:
        stop.set()
        writer.join()
    assert len(desk.store.find(Where(job_type="new"), limit=100)) > 20


# ---- what happened ---------------------------------------------------------------------------------------------------


def test_the_log_of_a_chain_is_what_its_columns_say_attempt_by_attempt(desk):
    root = desk.add(owner="bob", delay=5, max_retries=1)
    desk.advance(5)
    desk.turn()
    desk.advance(1)
    job = desk.claim_one()
    desk.advance(2)
    desk.end(job, Failed("smoke"))
    desk.advance(60)
    desk.turn()
    desk.end(desk.claim_one(), Failed("fire"))
    desk.advance(1)
    desk.store.retry(root, new_id=desk.id(), actor=ANNA, now=desk.now)
    desk.claim_one()
    desk.store.cancel(root, actor=ANNA, now=desk.now, reason="enough")
    chain = desk.store.chain(root)
    log = desk.store.log(inside(chain[1].id))
    assert log == sorted(log, key=lambda entry: entry.at)
    told = [(entry.attempt, entry.from_status, entry.to_status, entry.actor, entry.message) for entry in log]
    worker = f"worker {desk.worker}"
    assert told == [
        (1, None, "PENDING", "bob", ""),
        (1, "PENDING", "QUEUED", "system", ""),
        (1, "QUEUED", "RUNNING", "system", worker),
        (1, "RUNNING", "FAILED", "system", "smoke"),
        (2, None, "PENDING", "system", ""),
        (2, "PENDING", "QUEUED", "system", ""),
        (2, "QUEUED", "RUNNING", "system", worker),
        (2, "RUNNING", "DEAD_LETTER", "system", "fire"),
        (3, None, "QUEUED", "anna", ""),
        (3, "QUEUED", "RUNNING", "system", worker),
        (3, "RUNNING", "RUNNING", "anna", "asked to stop"),
    ]
    for job in chain:
        own = {job.created_at, job.queued_at, job.started_at, job.finished_at, job.cancel_requested_at} - {None}
        assert {entry.at for entry in log if entry.attempt == job.attempt} == own


def test_the_log_of_what_is_not_there_is_empty(desk):
    assert desk.store.log(desk.id()) == []


def test_what_people_changed_is_read_newest_first_page_by_page(desk):
    job_id = desk.add()
    for priority in (10, 20, 30):
        desk.advance(1)
        desk.store.change(job_id, actor=ANNA, now=desk.now, priority=priority)
    desk.store.pause("template", "t", actor=Actor("zoe", "acme"), now=desk.now)
    everything = desk.store.audit(limit=10)
    assert [entry.action for entry in everything][1:] == ["job.change"] * 3
    assert everything[1].before["priority"] == 20
    assert everything[1].after["priority"] == 30
    assert (everything[1].actor, everything[1].subject, everything[1].subject_id) == ("anna", "job", job_id)
    first = desk.store.audit(limit=3)
    assert desk.store.audit(limit=3, before=first[-1].id) == everything[3:]
    assert desk.store.audit(limit=10, subject="job") == everything[1:]
    assert desk.store.audit(limit=10, subject=f"job:{job_id}") == everything[1:]
    assert desk.store.audit(limit=10, subject="job:other") == []
    assert [entry.actor for entry in desk.store.audit(limit=10, scope=Scope("acme"))] == ["zoe"]


def test_what_people_changed_of_a_job_is_what_they_changed_of_its_chain(desk):
    root = desk.add()
    desk.store.change(root, actor=ANNA, now=desk.now, priority=60)
    desk.run_to(Failed("x", permanent=True))
    tail = desk.id()
    desk.store.retry(root, new_id=tail, actor=ANNA, now=desk.now)
    desk.store.change(tail, actor=ANNA, now=desk.now, priority=70)
    asked = [[entry.action for entry in desk.store.audit(limit=10, subject=f"job:{job_id}")] for job_id in (root, tail)]
    assert asked == [["job.change", "job.retry", "job.change"]] * 2


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
