"""Lanes and queues: a job waits in the lane of its type, queue and digest, and a turn claims from the lanes it names."""

from __future__ import annotations

import pytest

from rota.model.decide import Failed, Released
from rota.model.lanes import ParamNames, QueueInfo, Takes
from rota.model.values import moment
from rota.ports.store import DefinitionsChanged, Where
from tests.stores.desk import ANNA, inside


def lanes(desk):
    return {(lane.job_type, lane.queue, lane.digest): lane.id for lane in desk.store.lanes()}


def queues(desk) -> dict[str, QueueInfo]:
    return {each.name: each for each in desk.store.queues(look=1000)}


def test_the_first_job_of_a_lane_adds_it_and_advances_the_definitions(desk):
    before = desk.store.definitions()
    desk.add("t", queue="mail")
    after = desk.store.definitions()
    assert after > before
    assert set(lanes(desk)) == {("t", "mail", "")}
    desk.add("t", queue="mail")
    assert desk.store.definitions() == after


def test_a_lane_is_no_change_of_definitions_to_those_who_enqueue(desk):
    before = desk.store.definitions()
    desk.add("t", queue="mail")
    assert desk.store.enqueue([desk.row("t")], now=desk.now, definitions=before)
    desk.store.pause("all", "", actor=ANNA, now=desk.now)
    with pytest.raises(DefinitionsChanged):
        desk.store.enqueue([desk.row("t")], now=desk.now, definitions=before)


def test_each_type_queue_and_digest_has_a_lane_of_its_own(desk):
    for queue, digest in (("default", ""), ("mail", ""), ("mail", "d1"), ("mail", "d2")):
        desk.add("t", queue=queue, digest=digest)
    desk.add("u", queue="mail")
    assert len(set(lanes(desk).values())) == 5


def test_a_caller_that_does_not_know_the_lane_yet_has_it_looked_up(desk):
    desk.put(desk.row("t", queue="mail", lane=0))
    row = desk.row("t", queue="mail")
    row.lane = 0
    assert desk.put_at_once(row).status == "QUEUED"
    assert len(lanes(desk)) == 1
    assert {job.queue for job in desk.store.queue(limit=10)} == {"mail"}


def test_jobs_of_one_call_go_to_the_lanes_of_their_own(desk):
    rows = [desk.row("t", queue=queue) for queue in ("a", "b", "a", "c")]
    desk.put(*rows)
    assert [desk.job(row.job_id).queue for row in rows] == ["a", "b", "a", "c"]


def test_a_turn_claims_only_from_the_lanes_that_it_names(desk):
    mail, other = desk.add("t", queue="mail"), desk.add("t")
    desk.add("u", queue="mail")
    lane = lanes(desk)["t", "mail", ""]
    assert [job.job_id for job in desk.claim(10, types=("t", "u"), lanes={lane: "t"})] == [mail]
    assert [job.job_id for job in desk.claim(10, types=("t",))] == [other]


def test_a_turn_that_names_no_lanes_claims_from_all_of_its_types(desk):
    ids = {desk.add("t", queue=queue, digest=digest) for queue in ("a", "b") for digest in ("", "d")}
    desk.add("u", queue="a")
    assert {job.job_id for job in desk.claim(10)} == ids


def test_lanes_are_merged_in_the_order_of_the_queue(desk):
    first = desk.add("t", queue="b", priority=60)
    second = desk.add("t", queue="a")
    third = desk.add("t", queue="b")
    assert [job.job_id for job in desk.claim(10)] == [first, second, third]


def test_very_many_lanes_are_merged_in_the_same_order(desk, few_arms):
    lanes, count = few_arms + 10, 2 * few_arms + 20
    ids = desk.put(*(desk.row("t", queue=f"q{number % lanes}") for number in range(count)))
    assert [job.job_id for job in desk.claim(count)] == [each.job_id for each in ids]


def test_a_retry_keeps_the_lane_and_so_does_a_retry_by_hand(desk):
    job_id = desk.add("t", queue="mail", digest="d", max_retries=1)
    desk.run_to(Failed("no"))
    assert (desk.tail(job_id).queue, desk.tail(job_id).digest) == ("mail", "d")
    desk.advance(100)
    desk.run_to(Failed("no"))
    desk.store.retry(job_id, new_id=desk.id(), actor=ANNA, now=desk.now)
    assert (desk.tail(job_id).queue, desk.tail(job_id).digest) == ("mail", "d")
    assert desk.claim_one().lane == lanes(desk)["t", "mail", "d"]


def test_what_is_given_back_keeps_its_lane(desk):
    job_id = desk.add("t", queue="mail")
    desk.end(desk.claim_one(), Released())
    assert desk.tail(job_id).queue == "mail"
    assert desk.claim_one().lane == lanes(desk)["t", "mail", ""]


def test_a_peek_looks_at_the_lanes_that_it_names(desk):
    desk.add("t", queue="mail")
    own = lanes(desk)["t", "mail", ""]
    assert desk.store.peek(types=("t",), lanes={own: "t"}, worker_id=desk.worker).ready
    assert not desk.store.peek(types=("t",), lanes={own + 1: "t"}, worker_id=desk.worker).ready
    assert not desk.store.peek(types=("t",), lanes={}, worker_id=desk.worker).ready


@pytest.mark.parametrize("statuses", [(), ("QUEUED",), ("RUNNING",), ("COMPLETED",)])
def test_a_list_by_queue_has_its_jobs_in_every_state(desk, statuses):
    ids = {queue: [desk.add("t", queue=queue) for _ in range(3)] for queue in ("a", "b")}
    (running, ended) = desk.claim(2, lanes={lanes(desk)["t", "a", ""]: "t"})
    desk.done(ended)
    found = [job.id.replace("-", "") for _, job in desk.store.find(Where(queue="a", status=statuses), limit=10)]
    wanted = {(): ids["a"], ("QUEUED",): ids["a"][2:], ("RUNNING",): [running.job_id], ("COMPLETED",): [ended.job_id]}[statuses]
    assert sorted(found) == sorted(wanted)


def test_queues_are_listed_with_what_waits_what_runs_and_who_serves_them(desk):
    desk.several(3, "t", queue="mail")
    desk.advance(5)
    desk.add("u")
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], queues=["mail"], now=desk.now)
    desk.store.register(desk.id(), host="h", kind="worker", job_types=["t"], now=desk.now)
    desk.store.register(desk.id(), host="h", kind="client", job_types=[], now=desk.now)
    desk.claim(1, types=("t",))
    desk.store.pause("queue", "late", actor=ANNA, now=desk.now)
    found = queues(desk)
    assert (found["mail"].waiting, found["mail"].running, found["mail"].workers, found["mail"].paused) == (2, 1, 2, False)
    assert found["mail"].oldest == moment(desk.now - 5_000_000)
    assert (found["default"].waiting, found["default"].workers) == (1, 1)
    assert (found["late"].paused, found["late"].waiting) == (True, 0)


def test_a_worker_that_is_stopping_serves_no_queue(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now)
    desk.store.stopping(desk.worker, now=desk.now)
    assert queues(desk)["default"].workers == 0


def test_a_worker_announces_its_queues_and_digests(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], queues=["b", "a"], digests={"t": "d"}, now=desk.now)
    (worker,) = desk.store.workers()
    assert (worker.queues, worker.digests) == (("a", "b"), {"t": "d"})
    assert desk.store.beat(desk.worker, job_types=["t", "u"], digests={"t": "d", "u": "e"})
    (worker,) = desk.store.workers()
    assert (worker.queues, worker.digests) == (("a", "b"), {"t": "d", "u": "e"})


def test_waiting_jobs_are_told_apart_by_queue(desk):
    desk.several(2, "t", queue="a")
    desk.add("t", queue="b")
    found = {lane.queue: lane.count for lane in desk.store.waiting(now=desk.now, look=100)}
    assert found == {"a": 2, "b": 1}


A = Takes("da", ParamNames(frozenset("a"), frozenset("ab")))
C = Takes("dc", ParamNames(frozenset("c"), None), "mail", '{"type":"object"}')


def test_what_handlers_take_is_recorded_by_digest_with_the_lanes_of_their_jobs(desk):
    desk.store.put_params({"t": A, "u": C}, now=desk.now)
    found = {(lane.job_type, lane.queue, lane.digest): lane.names for lane in desk.store.lanes()}
    assert found == {("t", "default", "da"): A.names, ("u", "mail", "dc"): C.names}
    before = desk.store.definitions()
    desk.store.put_params({"t": A, "u": C}, now=desk.now)
    assert desk.store.definitions() == before


def test_the_newest_parameters_are_those_that_were_stated_last(desk):
    assert desk.store.newest_params("t") is None
    older, newer = (Takes(digest, A.names, "default", f'{{"title":"{digest}"}}') for digest in ("d1", "d2"))
    for takes in (older, newer):
        desk.advance(1)
        desk.store.put_params({"t": takes}, now=desk.now)
    assert desk.store.newest_params("t").schema == {"title": "d2"}
    desk.advance(1)
    desk.store.put_params({"t": older}, now=desk.now)
    assert desk.store.newest_params("t").digest == "d1"


def test_a_schema_is_added_to_parameters_that_are_known_by_name(desk):
    desk.store.put_params({"u": Takes("dc", C.names)}, now=desk.now)
    assert desk.store.newest_params("u").schema is None
    desk.store.put_params({"u": C}, now=desk.now)
    assert desk.store.newest_params("u").schema == {"type": "object"}


def test_a_new_schema_advances_the_version_and_the_same_again_does_not(desk):
    desk.store.put_params({"u": Takes("dc", C.names)}, now=desk.now)
    before = desk.store.definitions()
    desk.store.put_params({"u": C}, now=desk.now)
    known = desk.store.definitions()
    assert known > before
    desk.store.put_params({"u": C}, now=desk.now)
    assert desk.store.definitions() == known


def test_parameters_without_a_schema_are_not_newer_than_those_that_a_worker_stated(desk):
    desk.store.put_params({"u": C}, now=desk.now)
    desk.advance(1)
    desk.store.put_params({"u": Takes("dx", A.names)}, now=desk.now)
    assert desk.store.newest_params("u").digest == "dc"


def test_the_schemas_that_live_workers_take_are_those_of_the_digests_that_they_announce(desk):
    taken = [Takes(digest, A.names, "default", f'{{"title":"{digest}"}}') for digest in ("d1", "d2", "d3")]
    for takes in taken:
        desk.advance(1)
        desk.store.put_params({"a.t": takes}, now=desk.now)
    assert desk.store.schemas_of_live_workers("a.t") == []
    for number, digest in enumerate(("d1", "d3", "d3"), start=1):
        announced = {"a.t": digest, "v": "d2"}
        desk.store.register(f"{number:032x}", host="h", kind="worker", job_types=["a.t"], digests=announced, now=desk.now)
    assert sorted(schema["title"] for schema in desk.store.schemas_of_live_workers("a.t")) == ["d1", "d3"]
    assert desk.store.schemas_of_live_workers("v") == [None]
    desk.store.end_worker(f"{1:032x}", now=desk.now)
    assert [schema["title"] for schema in desk.store.schemas_of_live_workers("a.t")] == ["d3"]


def test_what_is_given_back_for_its_parameters_waits_in_their_lane_in_the_same_place(desk):
    first, second = desk.add("t", queue="mail"), desk.add("t", queue="mail")
    job = desk.claim_one()
    desk.end(job, Released("given back: it does not fit", A))
    tail = desk.tail(first)
    assert (str(tail.status), tail.queue, tail.digest, tail.attempt, tail.failures) == ("QUEUED", "mail", "da", 2, 0)
    assert desk.job(first).reason == "given back: it does not fit"
    assert {lane.digest: lane.names for lane in desk.store.lanes()} == {"": None, "da": A.names}
    assert [inside(each.id) for each in desk.store.queue(limit=10)] == [inside(tail.id), second]


def test_some_are_given_back_for_their_parameters_and_others_are_not(desk):
    ids = desk.several(3, "t")
    jobs = desk.claim(3)
    outcomes = (Released(), Released("misfit", A), Failed("no"))
    desk.turn(endings=[desk.ending(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])
    assert [desk.tail(each).digest for each in ids] == [None, "da", None]


def test_a_turn_takes_jobs_that_it_names_whatever_lane_they_wait_in(desk):
    odd, other = desk.add("t", digest="odd"), desk.add("t", digest="odd")
    number = desk.store.find(Where(), limit=10)[-1][0]
    (job,) = desk.claim(5, lanes={}, numbers=(number,))
    assert job.job_id == odd
    assert desk.claim(5, lanes={}, numbers=(number,)) == []
    assert desk.status(other) == "QUEUED"


def test_jobs_that_a_turn_names_come_within_what_it_wants(desk):
    desk.several(4, "t", digest="odd")
    desk.several(4, "t")
    numbers = tuple(number for number, job in desk.store.find(Where(), limit=10) if job.digest)
    own = desk.lane("t")
    assert len(desk.claim(3, lanes={own: "t"}, numbers=numbers)) == 3
    assert len(desk.claim(5, lanes={own: "t"}, numbers=numbers)) == 5


def test_old_jobs_are_found_in_the_lanes_that_are_asked_for(desk):
    desk.several(2, "t", digest="a")
    desk.add("t", digest="b")
    old = desk.now
    desk.advance(10)
    desk.add("t", digest="a")
    found = lanes(desk)
    own = [found["t", "default", "a"], found["t", "default", "b"]]
    assert len(desk.store.old_in_lanes(own, before=old, limit=10)) == 3
    assert len(desk.store.old_in_lanes(own[:1], before=old, limit=10)) == 2
    assert len(desk.store.old_in_lanes(own, before=desk.now, limit=3)) == 3
    assert desk.store.old_in_lanes(own, before=old - 1, limit=10) == []


def test_tags_are_kept_by_every_attempt_and_lists_are_narrowed_to_one(desk):
    ids = [desk.add("t", tags=tags, max_retries=1) for tags in ('["a","b"]', '["b"]', None)]
    desk.put(*(desk.row("u", tags='["many"]') for _ in range(3)))
    desk.run_to(Failed("no"))
    assert [desk.tail(each).tags for each in ids] == [("a", "b"), ("b",), ()]

    def found(tag, **fields):
        return {inside(job.root_id) for _, job in desk.store.find(Where(tag=tag, **fields), limit=10)}

    assert (found("a"), found("b"), found("c")) == ({ids[0]}, set(ids[:2]), set())
    assert len(found("many", status=("QUEUED",))) == 3
