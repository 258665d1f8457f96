"""Entering the queue: order, positions, keys."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.errors import DuplicateId, IllegalMove, QueueFull, TransactionMisuse
from rota.model.decide import Completed, Crashed, Failed, Released, Skipped, Snoozed
from rota.model.definitions import Organization
from rota.model.ordering import order_key
from rota.model.params import DEPTH_MAX, encode_params
from rota.model.values import SECOND, instant
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged
from tests.stores.desk import ANNA, START, Desk, inside
from tests.stores.makers import savepoints
from tests.support.proof import size
from tests.support.waiting import eventually


def expected_order(store):
    jobs = store.queue(limit=10_000)
    return [
        inside(job.id)
        for job in sorted(jobs, key=lambda job: order_key(job.priority, job.position, instant(job.created_at), inside(job.id)))
    ]


# ---- order -----------------------------------------------------------------------------------------------------------


def test_jobs_come_out_by_priority_then_position(desk):
    low, first, high, second = desk.add(priority=25), desk.add(), desk.add(priority=75), desk.add()
    assert desk.order() == [high, first, second, low]
    assert [job.job_id for job in desk.claim(9)] == [high, first, second, low]


def test_equal_positions_are_told_apart_by_age_then_id(desk):
    # two organizations start at the same position in the same instant
    one, other = desk.row(organization_id="acme"), desk.row(organization_id="zeta")
    desk.put(other, one)
    assert desk.positions() == [100, 100]
    assert desk.order() == sorted([one.job_id, other.job_id])
    desk.advance(1)
    later = desk.row(organization_id="ids-are-not-all", job_id="0" * 12 + "7" + "0" * 19)
    desk.put(later)
    assert desk.order() == [*sorted([one.job_id, other.job_id]), later.job_id]
    wanted = desk.order()
    assert [job.job_id for job in desk.claim(3)] == wanted


def test_the_order_is_the_same_however_often_and_by_whomever_it_is_asked(desk, maker):
    for priority in (50, 25, 75, 50, 100, 0, 50):
        desk.several(3, priority=priority)
    asked = [desk.order() for _ in range(3)]
    reopened = Desk(maker.open())
    assert asked == [asked[0]] * 3
    assert reopened.order() == asked[0] == expected_order(desk.store)


def test_claims_follow_the_order_to_the_last_job(desk):
    for priority in (50, 25, 75, 50, 100, 0, 50):
        desk.several(4, priority=priority, organization_id=f"o{priority}")
    wanted = desk.order()
    claimed = []
    while some := desk.claim(5):
        claimed += [job.job_id for job in some]
    assert claimed == wanted


def test_claims_over_many_types_follow_the_one_order(desk):
    types = [f"t{index}" for index in range(50)]
    desk.put(*(desk.row(types[index * 7 % 50], priority=(25, 50, 75)[index % 3]) for index in range(200)))
    wanted = desk.order()
    assert [job.job_id for job in desk.claim(200, types=types)] == wanted


def test_claims_over_more_types_than_one_query_takes_follow_the_one_order(desk, few_arms):
    count = 2 * few_arms + 5
    types = [f"t{index:03}" for index in range(count)]
    for index in range(count):
        desk.add(types[index * 7 % count], priority=(25, 50, 75)[index % 3])
    wanted = desk.order()
    assert [job.job_id for job in desk.claim(7, types=types)] == wanted[:7]
    assert [job.job_id for job in desk.claim(count, types=types)] == wanted[7:]


def test_over_many_types_age_still_breaks_a_tie_when_the_clock_stepped_back(desk):
    types = [f"t{index:03}" for index in range(450)]
    young = desk.add("t000", organization_id="acme")
    desk.advance(-3600)
    old = desk.add("t449", organization_id="zeta")
    assert desk.order() == [old, young]
    assert [job.job_id for job in desk.claim(2, types=types)] == [old, young]


# ---- positions -------------------------------------------------------------------------------------------------------


def test_the_first_gets_100_and_each_next_one_100_more(desk):
    assert [each.position for each in desk.put(*(desk.row() for _ in range(4)))] == [100, 200, 300, 400]
    assert desk.put(desk.row())[0].position == 500


def test_each_priority_counts_for_itself(desk):
    desk.several(3)
    assert desk.put(desk.row(priority=75))[0].position == 100


def test_the_last_position_counts_not_the_number_of_jobs(desk):
    desk.several(3)
    desk.claim(2)
    assert desk.put(desk.row())[0].position == 400


def test_an_empty_priority_starts_again_at_100(desk):
    desk.several(3)
    desk.claim(3)
    assert desk.put(desk.row())[0].position == 100
    assert desk.put(desk.row())[0].position == 200


def test_one_who_enqueues_and_cancels_is_not_punished(desk):
    desk.add(organization_id="quiet")
    for job_id in desk.several(50, organization_id="loud"):
        desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    assert desk.put(desk.row(organization_id="loud"))[0].position == 100


def test_a_job_of_a_quiet_organization_is_not_behind_anothers_hundred(desk):
    desk.several(100, organization_id="loud")
    quiet = desk.add(organization_id="quiet")
    assert desk.order().index(quiet) <= 1


def test_newcomers_line_up_at_the_clock_of_their_priority_not_before_it(desk):
    desk.several(10, organization_id="loud")
    desk.claim(5)
    (quiet,) = desk.put(desk.row(organization_id="quiet"))
    assert quiet.position == 600
    # the loud one's own tail still counts for itself
    assert desk.put(desk.row(organization_id="loud"))[0].position == 1100


def test_several_organizations_interleave_by_position(desk):
    a = desk.several(3, organization_id="a")
    b = desk.several(3, organization_id="b")
    order = desk.order()
    assert [set(order[i : i + 2]) for i in (0, 2, 4)] == [{a[i], b[i]} for i in range(3)]


def test_bulk_inserts_keep_their_given_order(desk):
    rows = [desk.row(params=f'{{"n":{index}}}', job_type="t" if index % 3 else "u") for index in range(300)]
    put = desk.put(*rows)
    assert [each.job_id for each in put] == [row.job_id for row in rows] == desk.order()
    assert [each.position for each in put] == [100 * (index + 1) for index in range(300)]
    assert [job.params for job in desk.store.queue(limit=500)] == [{"n": index} for index in range(300)]


def test_a_bulk_of_many_shapes_keeps_its_order_within_each_priority(desk):
    rows = [
        desk.row(
            f"t{index % 4}",
            priority=(25, 50, 75)[index % 3],
            unique_key=f"k{index}" if index % 5 == 0 else None,
            organization_id=f"o{index % 2}",
            delay=60 if index % 7 == 0 else 0,
        )
        for index in range(120)
    ]
    put = desk.put(*rows)
    assert [each.job_id for each in put] == [row.job_id for row in rows]
    assert [each.status for each in put] == ["PENDING" if index % 7 == 0 else "QUEUED" for index in range(120)]
    for organization in ("o0", "o1"):
        for priority in (25, 50, 75):
            ready = [row for row in rows if row.run_at <= desk.now]
            own = [row.job_id for row in ready if (row.organization_id, row.policy.priority) == (organization, priority)]
            queued = [inside(job.id) for job in desk.store.queue(limit=500) if (job.organization, job.priority) == (organization, priority)]
            assert queued == own


def test_numbers_ascend_and_are_never_given_twice(desk):
    numbers = [each.number for each in desk.put(*(desk.row() for _ in range(5)))] + [desk.put(desk.row())[0].number]
    assert numbers == sorted(set(numbers))
    assert desk.store.by_number(numbers[2]).number == f"JOB-2026-{numbers[2]:05d}"


# ---- later -----------------------------------------------------------------------------------------------------------


def test_a_job_due_later_is_pending_and_can_not_be_claimed(desk):
    later = desk.add(delay=60)
    assert desk.status(later) == "PENDING"
    desk.advance(59.999999)
    assert desk.claim(5) == []


def test_at_its_time_it_is_queued_behind_those_already_there(desk):
    later = desk.add(delay=60)
    there = desk.several(2)
    desk.advance(60)
    turned = desk.turn()
    assert desk.order() == [*there, later]
    assert turned.next_due is None
    assert desk.job(later).queued_at is not None


def test_a_past_run_at_means_now(desk):
    assert desk.status(desk.add(delay=-3600)) == "QUEUED"


def test_due_jobs_are_promoted_by_priority_then_by_run_at(desk):
    late, early, high = desk.add(delay=30), desk.add(delay=10), desk.add(delay=50, priority=75)
    desk.advance(60)
    desk.turn()
    assert desk.order() == [high, early, late]


def test_a_limited_turn_promotes_the_highest_priority_first_and_says_that_more_is_due(desk):
    normal = desk.several(3, delay=10)
    high = desk.several(2, delay=20, priority=75)
    desk.advance(30)
    turned = desk.turn(limit=2)
    assert desk.order() == high
    assert turned.next_due <= desk.now
    desk.turn(limit=2)
    assert desk.order() == high + normal[:2]


def test_a_turn_says_when_the_next_one_is_due(desk):
    desk.add(delay=90)
    desk.add(delay=40, priority=0)
    assert desk.turn().next_due == desk.now + 40 * SECOND
    assert desk.store.peek(types=("t",), worker_id=desk.worker).next_due == desk.now + 40 * SECOND


def test_promoted_jobs_of_several_organizations_interleave(desk):
    for organization in ("a", "b"):
        desk.several(3, delay=10, organization_id=organization)
    desk.advance(10)
    desk.turn()
    assert desk.positions() == [100, 100, 200, 200, 300, 300]


# ---- what is refused, and what repeats -------------------------------------------------------------------------------


def test_enqueueing_nothing_does_nothing(desk):
    assert desk.put() == []


def test_a_repeated_enqueue_changes_nothing_and_says_the_same(desk):
    rows = [desk.row(), desk.row(delay=60), desk.row(unique_key="k")]
    first = desk.put(*rows)
    before = desk.snapshot()
    again = desk.put(*rows)
    assert [(each.job_id, each.number, each.status, each.position) for each in again] == [
        (each.job_id, each.number, each.status, each.position) for each in first
    ]
    assert [each.existing for each in first] == [False] * 3
    assert [each.existing for each in again] == [True] * 3
    assert desk.snapshot() == before


def test_a_repeated_enqueue_says_so_also_when_the_job_has_moved_on(desk):
    row = desk.row()
    desk.put(row)
    desk.done(desk.claim_one())
    (again,) = desk.put(row)
    assert (again.existing, again.status) == (True, "COMPLETED")
    assert desk.order() == []


@pytest.mark.parametrize("known", [0, 1, 2])
def test_an_id_that_is_known_is_found_wherever_it_stands_in_a_batch(desk, known):
    row = desk.row()
    desk.put(row)
    rows = [desk.row(), desk.row()]
    rows.insert(known, row)
    assert [each.existing for each in desk.put(*rows)] == [index == known for index in range(3)]
    assert len(desk.order()) == 3


def test_one_id_twice_in_a_batch_is_one_job(desk):
    row = desk.row()
    assert [each.existing for each in desk.put(desk.row(), row, row, desk.row())] == [False, False, True, False]
    assert len(desk.order()) == 3


def test_keys_of_a_batch_that_are_held_are_found_and_the_others_are_written(desk):
    desk.put(desk.row(unique_key="k3"), desk.row(unique_key="k5", delay=60), desk.row("u", unique_key="k7"), desk.row(unique_key="gone"))
    desk.store.cancel(desk.order()[-1], actor=ANNA, now=desk.now)
    known = desk.row(unique_key="another")
    desk.put(known)
    keys = ["k0", "k1", None, "k3", "k4", "k5", "k6", "k7", "k1", "gone"]
    rows = [desk.row(unique_key=key, chosen=True, params=f'{{"n":{n}}}') for n, key in enumerate(keys)]
    rows.insert(4, known)
    before = len(desk.order())
    put = desk.put(*rows)
    assert [at for at, each in enumerate(put) if each.existing] == [3, 4, 6, 9]
    assert put[9].job_id == put[1].job_id == rows[1].job_id
    assert [each.job_id for each in put if not each.existing] == desk.order()[before:]


def test_a_bulk_of_many_shapes_is_what_its_rows_are_one_by_one(desk, maker):
    def rows():
        made = [
            desk.row(
                f"t{n % 5}",
                priority=(25, 50)[n % 2],
                unique_key=f"k{n}" if n % 4 == 0 else None,
                meta=f'{{"m":"\\u00e9{n}"}}' if n % 3 == 0 else None,
                params=f'{{"text": "a\\\\\\"b\\u0000 {n}", "deep": [{{"n": {n}}}, null, 1.5e3]}}',
                delay=n if n % 6 == 0 else 0,
                chosen=n % 7 == 0,
            )
            for n in range(60)
        ]
        for n, row in enumerate(made):
            row.expires_at = row.run_at + n * SECOND + SECOND if n % 5 == 1 else None
            row.template_id = None
        return made

    def told():
        hidden = {"id", "root_id", "number", "created_at", "queued_at"}
        return [
            {name: value for name, value in msgspec.structs.asdict(desk.job(each.job_id)).items() if name not in hidden} for each in put
        ]

    put = desk.put(*rows())
    together = told()
    for each in put:
        desk.store.cancel(each.job_id, actor=ANNA, now=desk.now)
    put = [desk.put(row)[0] for row in rows()]
    assert together == told()


def test_an_id_of_another_type_is_refused(desk):
    row = desk.row()
    desk.put(row)
    with pytest.raises(DuplicateId, match=row.job_id):
        desk.put(desk.row("other", job_id=row.job_id))


def test_a_batch_is_taken_whole_or_not_at_all(desk):
    with pytest.raises(IllegalMove):
        desk.put(desk.row(), desk.row(), desk.row(priority=101))
    assert desk.order() == []


def test_an_enqueue_against_older_definitions_writes_nothing(desk):
    version = desk.store.definitions()
    desk.store.pause("template", "x", actor=ANNA, now=desk.now)
    with pytest.raises(DefinitionsChanged):
        desk.store.enqueue([desk.row()], now=desk.now, definitions=version)
    assert desk.order() == []
    assert desk.store.enqueue([desk.row()], now=desk.now, definitions=desk.store.definitions())


def line_of(desk, count, **fields):
    """Make rows that may be written beside others; None where the store would gain nothing by that."""
    rows = [desk.row(**fields) for _ in range(count)]
    return rows if desk.store.side_by_side(rows, now=desk.now) else None


def test_rows_come_behind_those_that_the_store_can_not_see_yet(desk):
    rows = line_of(desk, 3)
    if rows is None:
        return
    place = Place(behind=5000)
    assert [each.position for each in desk.store.enqueue(rows, now=desk.now, place=place)] == [5100, 5200, 5300]
    assert place.wait() == 5300
    # What it sees itself counts as ever.
    later = desk.store.enqueue(line_of(desk, 2), now=desk.now, place=Place(behind=100))
    assert [each.position for each in later] == [5400, 5500]


def pour(desk, rows, place=None, definitions=None):
    return desk.store.pour(rows, now=desk.now, definitions=definitions or desk.store.definitions(), place=place or Place())


@pytest.mark.parametrize("types", [1, 2, 7])
def test_what_is_poured_stands_in_line_as_what_is_enqueued(desk, types):
    before = desk.several(2)
    rows = [desk.row(f"t{n % types}", params=f'{{"n": {n}, "text": "é\\u0000\\""}}') for n in range(20)]
    place = Place()
    assert pour(desk, rows, place)
    assert place.last == 2200
    assert desk.order() == before + [row.job_id for row in rows]
    assert desk.positions() == [100 * (n + 1) for n in range(22)]
    assert [job.params for job in desk.store.queue(limit=50)][2:] == [{"n": n, "text": 'é\0"'} for n in range(20)]
    assert len(desk.claim(50, types=("t", *(f"t{n}" for n in range(types))))) == 22


def test_nothing_is_poured_where_one_is_there_already(desk):
    known = desk.row()
    desk.put(known)
    before = desk.snapshot()
    assert not pour(desk, [known, desk.row()])
    assert not pour(desk, [desk.row(), known])
    assert desk.snapshot() == before


def test_nothing_is_poured_where_what_waits_has_to_be_counted_or_definitions_are_others(desk):
    version = desk.store.definitions()
    small = Organization(name="small", display_name="Small", max_queued=9)
    desk.store.put_organization(small, actor=ANNA, now=desk.now)
    before = desk.snapshot()
    with pytest.raises(DefinitionsChanged):
        pour(desk, [desk.row(), desk.row()], definitions=version)
    assert not pour(desk, [desk.row(organization_id="small"), desk.row(organization_id="small")])
    assert desk.snapshot() == before


def test_a_place_that_was_told_once_stays(desk):
    rows = line_of(desk, 2)
    if rows is None:
        return
    place = Place()
    desk.several(1)
    assert place.settle(100, 2) == 100
    desk.several(5)
    assert [each.position for each in desk.store.enqueue(rows, now=desk.now, place=place)] == [200, 300]
    again = desk.store.enqueue(rows, now=desk.now, place=place)
    assert [(each.position, each.existing) for each in again] == [(200, True), (300, True)]


def test_only_rows_whose_places_are_certain_are_written_side_by_side(desk):
    plain, sure = desk.row(), desk.store.side_by_side
    for other in (
        desk.row(unique_key="k"),
        desk.row(chosen=True),
        desk.row(priority=51),
        desk.row(organization_id="acme"),
        desk.row(delay=1),
        desk.row(depends_on=(plain.job_id,)),
        desk.row(job_hash="ab" * 16),
        desk.row(submit_limit=1, submit_window=1),
    ):
        assert not sure([plain, other], now=desk.now)
    assert sure([plain, desk.row("other")], now=desk.now) == sure([plain], now=desk.now)


def test_a_full_queue_refuses_naming_limit_and_count(desk, maker):
    maker.limit_queue("default", 3)
    desk.several(2)
    with pytest.raises(QueueFull, match=r"2 jobs queued.*max_queued is 3.*2 more"):
        desk.several(2)
    assert len(desk.order()) == 2
    desk.several(1)


def test_a_full_queue_does_not_refuse_a_repeated_call(desk, maker):
    maker.limit_queue("default", 2)
    rows = [desk.row(), desk.row()]
    desk.put(*rows)
    assert [each.existing for each in desk.put(*rows)] == [True, True]


@pytest.mark.prove
@settings(max_examples=size(20, prove=1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_params_come_back_as_they_went_in(desk, params):
    text = encode_params(params, limit_bytes=2**20)
    row = desk.row(params=text)
    desk.put(row)
    assert desk.job(row.job_id).params == params
    (job,) = desk.claim(1)
    assert msgspec.json.decode(job.params) == params
    desk.done(job)


def test_params_as_deep_as_they_may_be_are_kept_alone_and_in_a_batch(desk):
    deep = '{"a":' + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "}"
    desk.put(desk.row(params=deep))
    desk.put(desk.row(params=deep), desk.row(params=deep))
    assert len(desk.order()) == 3


# ---- unique keys -----------------------------------------------------------------------------------------------------


def put_one(desk, row):
    return desk.put(row)[0]


BOTH_WAYS = pytest.mark.parametrize("put", [put_one, Desk.put_at_once], ids=["put", "put_at_once"])
"""A caller who knows the definitions may be served by a shorter way."""


@BOTH_WAYS
def test_a_key_that_is_held_gives_back_its_holder(desk, put):
    first = put(desk, desk.row(unique_key="k"))
    again = put(desk, desk.row(unique_key="k"))
    assert (again.existing, again.job_id, again.number, again.root_id) == (True, first.job_id, first.number, first.job_id)
    assert desk.order() == [first.job_id]


def test_one_key_twice_in_a_batch_is_one_job(desk):
    one, other = desk.put(desk.row(unique_key="k"), desk.row(unique_key="k"))
    assert (one.existing, other.existing, other.job_id) == (False, True, one.job_id)


def test_a_key_belongs_to_its_organization_and_type(desk):
    rows = [desk.row(unique_key="k"), desk.row("u", unique_key="k"), desk.row(unique_key="k", organization_id="acme")]
    assert [each.existing for each in desk.put(*rows)] == [False] * 3


def test_a_key_belongs_to_its_organization_and_type_also_by_the_shorter_way(desk):
    rows = [desk.row(unique_key="k"), desk.row("u", unique_key="k"), desk.row(unique_key="k", organization_id="acme")]
    assert [desk.put_at_once(row).existing for row in rows] == [False] * 3


def test_a_job_with_a_key_that_is_enqueued_again_is_found_by_its_key(desk):
    row = desk.row(unique_key="k")
    assert [desk.put_at_once(row).existing for _ in range(2)] == [False, True]


@BOTH_WAYS
def test_pending_queued_running_and_waiting_for_retry_all_hold_the_key(desk, put):
    def holder():
        found = put(desk, desk.row(unique_key="k"))
        assert found.existing
        return found.job_id

    first = desk.add(unique_key="k", delay=5)
    assert holder() == first
    desk.advance(5)
    desk.turn()
    assert holder() == first
    job = desk.claim_one()
    assert holder() == first
    desk.end(job, Failed("boom"))
    assert holder() == desk.tail_id(first) != first


@BOTH_WAYS
@pytest.mark.parametrize("outcome", [Failed("boom"), Crashed(), Released(), Snoozed(5.0)], ids=lambda each: type(each).__name__)
def test_the_key_passes_to_the_successor_in_one_move(desk, outcome, put):
    first = put(desk, desk.row(unique_key="k")).job_id
    desk.run_to(outcome)
    tail = desk.tail(first)
    assert tail.unique_key == "k"
    assert put(desk, desk.row(unique_key="k")).job_id == inside(tail.id)


@BOTH_WAYS
@pytest.mark.parametrize(
    "outcome", [Completed(), Failed("x", permanent=True), Skipped("x"), None], ids=["completed", "dead", "skipped", "cancelled"]
)
def test_an_ended_chain_frees_its_key(desk, outcome, put):
    first = put(desk, desk.row(unique_key="k")).job_id
    if outcome is None:
        desk.store.cancel(first, actor=ANNA, now=desk.now)
    else:
        desk.run_to(outcome)
    assert not put(desk, desk.row(unique_key="k")).existing


# ---- the caller's own transaction ------------------------------------------------------------------------------------


def test_a_transaction_takes_jobs_in_with_the_callers_own_writes_or_not_at_all(desk):
    row, lost = desk.row(), desk.row()
    with desk.store.transaction() as tx:
        desk.store.enqueue([row], now=desk.now, transaction=tx)
    with pytest.raises(ZeroDivisionError), desk.store.transaction() as tx:  # noqa: PT012 - the block is the subject
        desk.store.enqueue([lost], now=desk.now, transaction=tx)
        _ = 1 / 0
    assert desk.order() == [row.job_id]


def test_a_batch_refused_inside_a_transaction_leaves_nothing_of_itself_behind(desk):
    kept = desk.row()
    with desk.store.transaction() as tx:
        desk.store.enqueue([kept], now=desk.now, transaction=tx)
        with pytest.raises(IllegalMove):
            desk.store.enqueue([desk.row(), desk.row(priority=101)], now=desk.now, transaction=tx)
    assert desk.order() == [kept.job_id]


def test_inside_its_own_transaction_a_caller_sees_its_jobs_and_the_store_knows_it(desk):
    row = desk.row()
    assert not desk.store.transacting()
    with desk.store.transaction() as tx:
        assert desk.store.transacting()
        desk.store.enqueue([row], now=desk.now, transaction=tx)
        assert desk.store.job(row.job_id) is None
        assert desk.store.job(row.job_id, transaction=tx).status == "QUEUED"
    assert not desk.store.transacting()


@savepoints
def test_a_savepoint_undoes_its_own_part_of_a_transaction_and_no_more(desk):
    kept, undone, after = desk.row(), desk.row(), desk.row()
    with desk.store.transaction() as tx:
        desk.store.enqueue([kept], now=desk.now, transaction=tx)
        with pytest.raises(ZeroDivisionError), tx.savepoint():  # noqa: PT012 - the block is the subject
            desk.store.enqueue([undone], now=desk.now, transaction=tx)
            _ = 1 / 0
        desk.store.enqueue([after], now=desk.now, transaction=tx)
    assert desk.order() == [kept.job_id, after.job_id]


def test_a_job_in_an_open_transaction_is_not_seen_by_others(desk, maker):
    other = maker.open()
    with desk.store.transaction() as tx:
        desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
        assert other.queue(limit=5) == []
    assert len(other.queue(limit=5)) == 1


def test_an_enqueue_inside_a_transaction_that_is_not_passed_on_is_an_error_not_a_deadlock(desk):
    with pytest.raises(TransactionMisuse, match="transaction=tx"), desk.store.transaction():
        desk.put(desk.row())
    assert desk.order() == []


def test_a_transaction_is_over_with_its_block(desk):
    with desk.store.transaction() as tx:
        pass
    with pytest.raises(TransactionMisuse, match="is over"):
        desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)


def test_a_transaction_is_joined_as_often_as_you_like(desk):
    kept = [desk.row(), desk.row()]
    with desk.store.transaction() as tx:
        handle = desk.store.join(tx)
        assert desk.store.join(handle) is handle
        desk.store.enqueue(kept[:1], now=desk.now, transaction=handle)
        with handle.savepoint():
            desk.store.enqueue(kept[1:], now=desk.now, transaction=handle)
        handle.stop()
    assert desk.order() == [row.job_id for row in kept]


@savepoints
def test_a_joined_transaction_has_savepoints(desk):
    kept, undone = desk.row(), desk.row()
    with desk.store.transaction() as tx:
        handle = desk.store.join(tx)
        desk.store.enqueue([kept], now=desk.now, transaction=handle)
        with pytest.raises(ZeroDivisionError), handle.savepoint():  # noqa: PT012 - the block is the subject
            desk.store.enqueue([undone], now=desk.now, transaction=handle)
            _ = 1 / 0
    assert desk.order() == [kept.job_id]


def test_a_transaction_of_another_store_is_refused(desk, maker):
    other = maker.open()
    with other.transaction() as tx, pytest.raises(TransactionMisuse, match="of the same Rota"):
        desk.store.enqueue([desk.row()], now=desk.now, transaction=tx)
    with pytest.raises(TransactionMisuse):
        desk.store.enqueue([desk.row()], now=desk.now, transaction=object())


def test_a_transaction_inside_a_transaction_is_refused(desk):
    with desk.store.transaction(), pytest.raises(TransactionMisuse, match="open in this thread already"), desk.store.transaction():
        pass
    desk.put(desk.row())


def test_a_store_tells_others_commits_from_its_own_silence(desk, maker):
    other = maker.open()
    # A server's own housekeeping commits now and then.
    eventually(lambda: not other.changed(), what="silence")
    desk.put(desk.row())
    assert other.changed()
    eventually(lambda: not other.changed(), what="silence again")


def test_instants_are_kept_to_the_microsecond(desk):
    desk.now = START + 123_456
    job = desk.job(desk.add(delay=0.000001))
    assert instant(job.created_at) == START + 123_456
    assert instant(job.run_at) == START + 123_457


def test_a_lone_job_stands_where_it_would_among_others_however_it_is_written(desk):
    """A caller who knows the definitions may be served by a shorter way: it leads to the same place."""
    places = []
    for priority, put in ((20, desk.put_at_once), (60, lambda row: desk.put(row)[0])):
        first = [put(desk.row(priority=priority)).position for _ in range(3)]
        desk.claim(2)
        behind_the_clock = put(desk.row(priority=priority)).position
        desk.claim(10)
        from_the_start = [put(desk.row(priority=priority)).position for _ in range(2)]
        desk.claim(10)
        places.append((first, behind_the_clock, from_the_start))
    assert places[0] == places[1] == ([100, 200, 300], 400, [100, 200])


def test_a_lone_job_by_the_shorter_way_is_refused_and_found_like_any_other(desk, maker):
    row = desk.row()
    made = desk.put_at_once(row)
    again = desk.put_at_once(row)
    assert (again.existing, again.job_id, again.number) == (True, made.job_id, made.number)
    later = desk.put_at_once(desk.row(delay=60))
    assert (later.status, later.position) == ("PENDING", 0)
    keyed = [desk.put_at_once(desk.row(unique_key="k")) for _ in range(2)]
    assert [each.existing for each in keyed] == [False, True]
    maker.limit_queue("default", 2)
    with pytest.raises(QueueFull):
        desk.put_at_once(desk.row())
    with pytest.raises(QueueFull):
        desk.put_at_once(desk.row(unique_key="other"))
    assert desk.put_at_once(desk.row(unique_key="k")).number == keyed[0].number
    for row in (desk.row(), desk.row(unique_key="k"), desk.row(unique_key="other")):
        with pytest.raises(DefinitionsChanged):
            desk.store.enqueue([row], now=desk.now, definitions=desk.store.definitions() - 1)
    assert len(desk.order()) == 2
