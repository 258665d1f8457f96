"""Two at once: what one reads is true until it has written. Each of these goes wrong without its lock, and that is shown too."""

import select
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from threading import Barrier, Event

import psycopg
import pytest

from rota.errors import StoreBusy
from rota.model.decide import Completed, Failed, Snoozed, Stopped
from rota.model.settings import Settings
from rota.model.values import SECOND
from rota.ports.clock import UuidV7
from rota.ports.store import DefinitionsChanged
from rota.ports.turns import Choice, Counting
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.db import ARMS_MAX
from rota.stores.postgres.notices import listener as listener_to
from rota.stores.verbs.store import CLAIM_MANY, Hold
from tests.stores.desk import ANNA, Desk, take_all
from tests.support.waiting import eventually

PAUSE_S = 0.4
FOR_EVER_S = 60.0
"""Longer than anything takes that does not wait for it."""
RIVALS, THREADS = 1000, 16
"""How many enqueue one key, and from how many threads at once."""


@pytest.fixture
def two(maker):
    """Two processes as good as: each with a pool of its own."""
    one, other = Desk(maker.open()), Desk(maker.open())
    other.ids = UuidV7(Random(99))
    with ThreadPoolExecutor(2) as pool:
        yield one, other, pool


def unlocked(monkeypatch, *desks):
    """Take the locks away, and nothing else."""
    for desk in desks:
        monkeypatch.setattr(desk.store, "_begin", dict.fromkeys(Hold, "BEGIN"))


class Slow:
    """A chooser that stands still inside its transaction until it is told to go on, or for a while."""

    def __init__(self, choose=take_all, pause_s=PAUSE_S) -> None:
        self.reached, self.go_on = Event(), Event()
        self._choose = choose
        self._pause_s = pause_s

    def __call__(self, candidates, reservation, usage):
        self.reached.set()
        self.go_on.wait(self._pause_s)
        return self._choose(candidates, reservation, usage)


def up_to(limit):
    """Be a chooser that keeps a template's limit by what it was told runs."""

    def choose(candidates, _reservation, usage):
        room = max(0, limit - sum(usage.running.values()))
        return Choice(take=candidates[:room], park=[])

    return choose


def admitted(two):
    """Let two turns count and claim at once, each of its own type, under one limit of 3; return how many run."""
    one, other, pool = two
    one.several(5, "t")
    one.several(5, "u")
    counting = Counting(limits={"organization-limit:default": 3}, running=True)
    turns = [
        pool.submit(desk.turn, 5, types=(name,), choose=Slow(up_to(3)), counting=counting, worker=desk.id())
        for desk, name in ((one, "t"), (other, "u"))
    ]
    return sum(len(turn.result().claimed) for turn in turns)


def test_a_limit_holds_when_two_count_at_once(two):
    assert admitted(two) == 3


def test_without_the_wheel_two_counts_admit_twice_as_many(two, monkeypatch):
    unlocked(monkeypatch, *two[:2])
    assert admitted(two) == 6


def test_a_reservation_waits_for_the_claim_in_flight(two):
    one, other, pool = two
    one.several(3)
    slow = Slow()
    claim = pool.submit(one.turn, 3, choose=slow)
    slow.reached.wait()
    reservation = pool.submit(other.reserve)
    with pytest.raises(TimeoutError):
        reservation.result(PAUSE_S / 4)
    slow.go_on.set()
    assert len(claim.result().claimed) == 3
    direct = reservation.result()
    # From here on nothing is claimed before the direct job.
    later = one.several(2)
    assert [job.job_id for job in one.claim(5)] == [direct.job_id, *later]


def test_without_its_lock_a_reservation_is_made_while_a_claim_goes_on(two, monkeypatch):
    one, other, pool = two
    unlocked(monkeypatch, one, other)
    one.several(3)
    slow = Slow()
    claim = pool.submit(one.turn, 3, choose=slow)
    slow.reached.wait()
    assert pool.submit(other.reserve).result(PAUSE_S) is not None
    slow.go_on.set()
    assert len(claim.result().claimed) == 3


def test_two_light_turns_are_made_side_by_side_and_share_what_is_ready(two):
    one, other, pool = two
    jobs = one.several(6)
    calm(one, other)
    slow = Slow()
    claim = pool.submit(one.turn, 3, choose=slow)
    slow.reached.wait()
    second = pool.submit(other.turn, 3, worker=other.id()).result(PAUSE_S / 2).claimed
    slow.go_on.set()
    assert [job.job_id for job in claim.result().claimed] == jobs[:3]
    assert [job.job_id for job in second] == jobs[3:]


def test_light_turns_of_several_types_share_in_the_order_of_the_queue(two):
    one, other, pool = two
    jobs = [one.add("tu"[place % 2]) for place in range(8)]
    calm(one, other)
    slow = Slow()
    claim = pool.submit(one.turn, 4, types=("t", "u"), choose=slow)
    slow.reached.wait()
    second = pool.submit(other.turn, 4, types=("t", "u"), worker=other.id()).result(PAUSE_S / 2).claimed
    slow.go_on.set()
    assert [job.job_id for job in claim.result().claimed + second] == jobs


def test_small_claims_of_very_many_types_share_in_the_order_of_the_queue(two):
    one, other, pool = two
    names = [f"t{number}" for number in range(3 * ARMS_MAX)]
    ids = [one.add(name) for name in names[:60]]
    calm(one, other)
    slow = Slow(pause_s=FOR_EVER_S)
    first = pool.submit(one.turn, 8, types=names, choose=slow)
    slow.reached.wait()
    second = other.claim(8, types=names, worker=other.id())
    assert not first.done()
    slow.go_on.set()
    assert [job.job_id for job in first.result().claimed] == ids[:8]
    assert [job.job_id for job in second] == ids[8:16]


def test_claims_of_many_follow_each_other_and_those_of_a_few_don_t_wait_for_them(two):
    one, other, pool = two
    jobs = one.several(3 * CLAIM_MANY)
    calm(one, other)
    slow = Slow()
    first = pool.submit(one.turn, CLAIM_MANY, choose=slow)
    slow.reached.wait()
    few = pool.submit(other.turn, 2, worker=other.id()).result(PAUSE_S / 2).claimed
    many = pool.submit(other.turn, CLAIM_MANY, worker=other.id())
    with pytest.raises(TimeoutError):
        many.result(PAUSE_S / 4)
    slow.go_on.set()
    assert [job.job_id for job in first.result().claimed] == jobs[:CLAIM_MANY]
    assert [job.job_id for job in few] == jobs[CLAIM_MANY : CLAIM_MANY + 2]
    assert [job.job_id for job in many.result().claimed] == jobs[CLAIM_MANY + 2 : 2 * CLAIM_MANY + 2]


@pytest.mark.parametrize("types", [("t",), ("t", "u")], ids=["one type", "two types"])
def test_a_claim_looks_behind_all_that_others_are_claiming(two, types):
    one, other, pool = two
    jobs = one.several(60)
    calm(one, other)
    slow = Slow()
    claim = pool.submit(one.turn, CLAIM_MANY - 2, types=types, choose=slow)
    slow.reached.wait()
    behind = pool.submit(other.turn, 2, types=types, worker=other.id()).result(PAUSE_S / 2).claimed
    slow.go_on.set()
    assert [job.job_id for job in claim.result().claimed] == jobs[: CLAIM_MANY - 2]
    assert [job.job_id for job in behind] == jobs[CLAIM_MANY - 2 : CLAIM_MANY]


def test_light_turns_that_end_and_claim_at_once_count_each_end_once(two, maker):
    one, other, pool = two
    one.several(200)
    other.worker = other.id()
    calm(one, other)

    def work(desk):
        done = 0
        while claimed := desk.claim(10):
            desk.done(*claimed)
            done += len(claimed)
        return done

    assert sum(each.result() for each in [pool.submit(work, one), pool.submit(work, other)]) == 200
    assert maker._sql("SELECT count FROM stats_total") == [(200,)]


@pytest.mark.parametrize("outcome", [Completed('"a result"'), Failed("x"), Snoozed(5.0)], ids=lambda outcome: type(outcome).__name__)
def test_an_end_that_nobody_waits_for_is_written_by_a_light_turn(two, outcome):
    one, other, pool = two
    root = one.add()
    job = one.claim_one()
    other.add("other")
    calm(one, other)
    slow = Slow()
    claim = pool.submit(other.turn, 1, types=("other",), choose=slow, worker=other.id())
    slow.reached.wait()
    turned = pool.submit(one.turn, endings=[one.ending(job, outcome)]).result(PAUSE_S / 2)
    slow.go_on.set()
    claim.result()
    assert turned.late == []
    assert one.store.chain(root)[0].status.ended


@pytest.mark.parametrize("outcome", [Completed("1"), Failed("x", permanent=True)], ids=["cancelled", "dead"])
def test_an_end_that_ends_others_of_its_group_waits_for_the_wheel(two, outcome):
    one, other, pool = two
    rows = [one.row(), one.row()]
    one.grouped(rows, "parallel", "stop")
    job = one.claim_one()
    calm(one, other)
    if outcome == Completed("1"):
        one.store.cancel(job.job_id, actor=ANNA, now=one.now)
        outcome = Stopped()
    slow = Slow(lambda *_: Choice(take=[], park=[]))
    claim = pool.submit(other.turn, 1, choose=slow, worker=other.id())
    slow.reached.wait()
    end = pool.submit(one.turn, endings=[one.ending(job, outcome)])
    with pytest.raises(TimeoutError):
        end.result(PAUSE_S / 4)
    slow.go_on.set()
    claim.result()
    end.result()
    assert one.status(rows[1].job_id) in {"SKIPPED", "CANCELLED"}


def calm(*desks):
    """Let each see that there is nothing but plain work: from here on its turns are light."""
    for desk in desks:
        assert desk.turn().calm


def parked_while_its_slot_is_freed(two):
    """Let one job be parked behind a limit while another turn ends the job in its way; return whether it is offered after that."""
    one, other, pool = two
    holder = one.add()
    running = one.claim_one()
    waits = one.add()
    calm(one, other)
    limits = Counting(limits={"template-limit:t": 1}, running=True)

    def park(candidates, _reservation, usage):
        assert sum(usage.running.values()) == 1
        return Choice(take=[], park=[(job.number, "template-limit:t") for job in candidates])

    slow = Slow(park)
    parking = pool.submit(one.turn, 1, choose=slow, counting=limits)
    slow.reached.wait()
    ending = pool.submit(other.turn, done=[(running.number, other.now)], worker=one.worker)
    with suppress(TimeoutError):
        ending.result(PAUSE_S / 4)
    slow.go_on.set()
    parking.result()
    ending.result()
    assert one.status(holder) == "COMPLETED"
    return [job.job_id for job in one.claim(1)] == [waits]


def test_a_light_turn_frees_no_slot_behind_the_back_of_one_that_counts(two):
    assert parked_while_its_slot_is_freed(two)


def test_without_the_wheel_what_is_parked_meanwhile_is_not_offered(two, monkeypatch):
    unlocked(monkeypatch, *two[:2])
    assert not parked_while_its_slot_is_freed(two)


def test_a_light_turn_that_finds_something_due_is_made_again_with_the_wheel(two):
    one, _, _ = two
    calm(one)
    later = one.add(run_at=one.now + SECOND)
    one.advance(2)
    assert [job.job_id for job in one.claim(1)] == [later]


@pytest.mark.parametrize("hand", ["edges", "reservation"])
def test_a_light_turn_leaves_ends_that_mean_something_to_others_to_one_with_the_wheel(two, hand):
    one, other, _ = two
    parent = one.add()
    job = one.claim_one()
    calm(one)
    if hand == "edges":
        waits = other.add(depends_on=(parent,))
        one.done(job)
        one.turn()
        assert one.status(waits) == "QUEUED"
    else:
        reserved = other.reserve()
        later = one.several(2)
        one.done(job)
        assert [each.job_id for each in one.claim(3)] == [reserved.job_id, *later]


def child_of_one_that_ends(two):
    """Add a child while the turn that ends its parent is on its way; return what the child's status is in the end."""
    one, other, pool = two
    parent = one.add()
    job = one.claim_one()
    one.add("other")
    slow = Slow()
    end = pool.submit(one.turn, 1, types=("other",), choose=slow, done=[(job.number, one.now)])
    slow.reached.wait()
    child = pool.submit(other.add, depends_on=(parent,))
    with suppress(TimeoutError):
        child.result(PAUSE_S / 4)
    slow.go_on.set()
    end.result()
    job_id = child.result()
    one.turn()
    one.turn()
    return one.status(job_id)


def test_a_child_that_is_added_while_its_parent_ends_is_told(two):
    assert child_of_one_that_ends(two) == "QUEUED"


def test_without_the_door_such_a_child_waits_for_ever(two, monkeypatch):
    unlocked(monkeypatch, *two[:2])
    assert child_of_one_that_ends(two) == "PENDING"


def put_at_once(desk, row):
    return [desk.put_at_once(row)]


def key_across_the_retry(two, put=Desk.put):
    """Ask for a key while the turn that retries its holder is on its way; return the chain's root and what came back."""
    one, other, pool = two
    (made,) = put(one, one.row(unique_key="k"))
    job = one.claim_one()
    one.add("other")
    slow = Slow()
    end = pool.submit(one.turn, 1, types=("other",), choose=slow, endings=[one.ending(job, Failed("x"))])
    slow.reached.wait()
    asked = pool.submit(put, other, other.row(unique_key="k"))
    slow.go_on.wait(PAUSE_S / 4)
    slow.go_on.set()
    end.result()
    (found,) = asked.result()
    return made.root_id, found


def test_a_key_stays_with_its_chain_across_the_retry(two):
    root_id, found = key_across_the_retry(two)
    assert (found.existing, found.root_id, found.status) == (True, root_id, "PENDING")


def test_one_statement_answers_with_the_chain_that_holds_the_key_before_the_commit_or_after_it(two):
    """It waits for no turn: until the commit the holder is the attempt that was running, from then on its successor."""
    root_id, found = key_across_the_retry(two, put_at_once)
    assert (found.existing, found.root_id) == (True, root_id)
    assert found.status in ("RUNNING", "PENDING")
    other = two[1]
    (after,) = put_at_once(other, other.row(unique_key="k"))
    assert (after.existing, after.root_id, after.status) == (True, root_id, "PENDING")


def test_a_job_with_a_key_is_added_and_found_while_a_turn_is_made(two):
    one, other, pool = two
    one.several(3)
    slow = Slow(pause_s=FOR_EVER_S)
    claim = pool.submit(one.turn, 3, choose=slow)
    slow.reached.wait()
    keyed = [other.put_at_once(other.row(unique_key="k")) for _ in range(2)]
    assert not claim.done()
    slow.go_on.set()
    assert [each.existing for each in keyed] == [False, True]
    assert len(claim.result().claimed) == 3


def test_of_many_who_enqueue_one_key_at_once_one_makes_the_job_and_all_get_it(two):
    """The first callers meet before the key is held, and the index decides between them; the others find the holder."""
    one, _, _ = two
    one.meet()
    rows = [one.row(unique_key="k", params=f'{{"n":{n}}}') for n in range(RIVALS)]
    start, known = Barrier(THREADS), one.store.definitions()

    def put_share(share):
        start.wait()
        return [one.store.enqueue([row], now=one.now, definitions=known)[0] for row in share]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [each for share in pool.map(put_share, [rows[at::THREADS] for at in range(THREADS)]) for each in share]
    (made,) = [each for each in answers if not each.existing]
    assert {(each.job_id, each.number) for each in answers} == {(made.job_id, made.number)}
    assert len(one.order()) == 1


def test_the_loser_of_a_race_for_a_key_gets_the_job_that_won(two, maker):
    """The loser's statement waits at the index until the winner has committed."""
    one, other, pool = two
    one.meet()
    first = other.row(unique_key="k")
    with maker.server.connect(options=f"-c search_path={maker.schema}") as raw, raw.transaction():
        other.store.enqueue([first], now=other.now, transaction=raw)
        second = pool.submit(one.put_at_once, one.row(unique_key="k"))
        eventually(lambda: waiting(maker, "transactionid") == 1, what="it waits at the index")
    found = second.result()
    assert (found.existing, found.job_id) == (True, first.job_id)


def test_where_the_winner_of_a_race_for_a_key_rolls_back_the_other_makes_the_job(two, maker):
    one, other, pool = two
    with maker.server.connect(options=f"-c search_path={maker.schema}") as raw, raw.transaction():
        other.store.enqueue([other.row(unique_key="k")], now=other.now, transaction=raw)
        second = pool.submit(one.put_at_once, one.row(unique_key="k"))
        eventually(lambda: waiting(maker, "transactionid") == 1, what="it waits at the index")
        raise psycopg.Rollback
    made = second.result()
    assert not made.existing
    assert len(one.order()) == 1


def test_without_the_door_the_key_is_answered_with_one_that_has_ended(two, monkeypatch):
    unlocked(monkeypatch, *two[:2])
    root_id, found = key_across_the_retry(two)
    assert (found.root_id, found.status) == (root_id, "RUNNING")


def test_a_bounded_queue_is_not_overfilled_by_two_who_add_at_once(two, maker):
    one, other, pool = two
    maker.limit_queue("default", 3)
    with maker.server.connect(options=f"-c search_path={maker.schema}") as raw, raw.transaction():
        # Both are held up behind the same lock, and let go at once.
        raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", one.store.address.key(1))
        adds = [pool.submit(desk.several, 2) for desk in (one, other)]
        eventually(lambda: waiting(maker) == 2, what="both wait at the door")
    refused = [type(add.exception()).__name__ for add in adds if add.exception() is not None]
    assert refused == ["QueueFull"]
    assert len(one.order()) == 2


def test_who_waits_at_the_door_sees_what_was_changed_meanwhile(two, maker):
    """Also where lock and job are asked for together: the job's statement sees the store as it is when the door opens."""
    one, _, pool = two
    known = one.store.definitions()
    with maker.server.connect(options=f"-c search_path={maker.schema}") as raw, raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", one.store.address.key(1))
        adds = pool.submit(one.store.enqueue, [one.row()], now=one.now, definitions=known)
        eventually(lambda: waiting(maker) == 1, what="it waits at the door")
        raw.execute("UPDATE meta SET value = value + 1 WHERE key = 'definitions_version'")
    assert isinstance(adds.exception(), DefinitionsChanged)
    assert one.order() == []


def waiting(maker, kind="advisory"):
    with maker.server.connect() as raw:
        return raw.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s", (kind,)).fetchone()[0]


def test_plain_jobs_are_added_while_a_turn_is_made(two):
    one, other, pool = two
    one.several(3)
    slow = Slow()
    claim = pool.submit(one.turn, 3, choose=slow)
    slow.reached.wait()
    assert pool.submit(other.several, 5).result(PAUSE_S / 2)
    slow.go_on.set()
    assert len(claim.result().claimed) == 3


def test_a_turn_gives_no_hint_and_a_new_job_does(two, maker):
    one, *_ = two
    listener = listener_to(one.store.address, Settings(schema=maker.schema))
    eventually(listener.fileno, what="it hears")

    def hears(timeout_s):
        heard, *_ = select.select([listener.fileno()], [], [], timeout_s)
        listener.drain()
        return bool(heard)

    # What was there when it began to listen is one.
    assert hears(5)
    one.put_at_once(one.row())
    assert hears(5)
    one.several(2)
    assert hears(5)
    one.done(*one.claim(3))
    assert not hears(PAUSE_S)
    listener.close()


def test_a_beat_waits_for_nobody(two, maker):
    one, other, pool = two
    one.store.register(one.worker, host="h", kind="worker", job_types=(), now=one.now)
    with maker.server.connect() as raw, raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", one.store.address.key(1))
        raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", one.store.address.key(2))
        pool.submit(other.store.beat, one.worker, job_types=()).result(PAUSE_S)


def test_who_waits_too_long_is_told_so(maker):
    maker.open()
    store = PostgresStore(maker.server.url(), Settings(schema=maker.schema, busy_timeout=0.1))
    desk = Desk(store)
    with maker.server.connect() as raw, raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s, %s)", store.address.key(1))
        with pytest.raises(StoreBusy, match="busy_timeout"):
            desk.put(desk.row())
    store.close()


def test_a_turn_that_the_server_undid_can_be_made_again(two, maker):
    """Another hand has a row that a turn wants, and wants one that the turn has: the server undoes the turn, whole."""
    one, _, pool = two
    claimed = one.claim(2) if one.several(2) else []
    first, second = (job.number for job in claimed)
    with maker.server.connect(options=f"-c search_path={maker.schema} -c deadlock_timeout=20s") as raw, raw.transaction():
        raw.execute("SELECT 1 FROM job_live WHERE number = %s FOR UPDATE", (second,))
        done = pool.submit(one.done, *claimed)
        eventually(lambda: waits_for_a_row(maker), what="the turn waits")
        raw.execute("SELECT 1 FROM job_live WHERE number = %s FOR UPDATE", (first,))
    with pytest.raises(StoreBusy, match="Repeat it"):
        done.result()
    assert [one.status(job.job_id) for job in claimed] == ["RUNNING"] * 2
    one.done(*claimed)
    assert [one.status(job.job_id) for job in claimed] == ["COMPLETED"] * 2


def waits_for_a_row(maker):
    with maker.server.connect() as raw:
        return raw.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')").fetchone()[0]
