"""Queues: where a job waits, which workers take it, and who says that nobody does."""

from __future__ import annotations

from contextlib import closing

import pytest

from rota import NewJob, Rota, Settings
from rota.errors import InvalidOption
from rota.model.findings import State
from rota.model.states import Status
from rota.surfaces.http.pages.workers import set_pause
from tests.support.waiting import eventually


@pytest.fixture
def again(tmp_path, clock):
    """Make further Rotas on the same store, each with settings of its own."""
    made = []

    def make(**settings):
        rota = Rota(tmp_path / "rota.db", clock=clock, settings=Settings(**settings), seed=9 + len(made))
        made.append(rota)
        return rota

    yield make
    for rota in made:
        rota.close()


def works(rota, *names, **options):
    """Register handlers that do nothing."""
    for name in names:
        rota.job(lambda: None, name=name, **options)


def test_a_job_waits_in_the_default_queue(rota):
    works(rota, "act")
    job = rota.enqueue("act")
    assert (rota.jobs.get(job).queue, rota.jobs.get(job.id).queue) == ("default", "default")


def test_the_decorator_names_the_queue_and_a_job_may_name_another(rota):
    works(rota, "act", queue="mail")
    jobs = [rota.enqueue("act"), rota.enqueue("act", queue="bulk")]
    assert [rota.jobs.get(job).queue for job in jobs] == ["mail", "bulk"]
    assert [rota.jobs.get(job.id).queue for job in jobs] == ["mail", "bulk"]


def test_operators_move_a_template_to_another_queue(rota):
    works(rota, "act", queue="mail")
    assert rota.templates.update("act", queue="slow").queue == "slow"
    assert rota.jobs.get(rota.enqueue("act")).queue == "slow"
    rota.templates.reset("act", "queue")
    assert rota.jobs.get(rota.enqueue("act")).queue == "mail"


def test_many_jobs_and_groups_name_their_queues_too(rota):
    works(rota, "act")
    rota.enqueue_many([("act", {}), NewJob(name="act", queue="mail")])
    rota.group([NewJob(name="act", queue="bulk"), NewJob(name="act")])
    assert sorted(job.queue for job in rota.jobs.list()) == ["bulk", "default", "default", "mail"]


def test_a_schedules_jobs_wait_in_the_queue_of_its_template(rota, clock):
    works(rota, "act", queue="mail")
    rota.schedule("often", "act", every=60)
    clock.advance(seconds=61)
    rota.store.pause()
    rota.turn()
    assert [job.queue for job in rota.jobs.list()] == ["mail"]


def test_a_retry_stays_in_the_queue(rota, clock):
    @rota.job(queue="mail", max_retries=1)
    def fails():
        raise ValueError("no")

    job = rota.enqueue("fails")
    rota.turn()
    clock.advance(minutes=2)
    rota.turn()
    assert {each.queue for each in rota.jobs.attempts(job.id)} == {"mail"}


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\nb", 7, "x" * 256])
def test_what_can_not_be_the_name_of_a_queue_is_refused(rota, name):
    works(rota, "act")
    with pytest.raises(InvalidOption, match="queue="):
        rota.enqueue("act", queue=name)
    assert rota.jobs.list() == []


def test_a_worker_takes_only_what_waits_in_its_queues(rota, again):
    works(rota, "act")
    jobs = {queue: rota.enqueue("act", queue=queue).id for queue in ("mail", "bulk", "default")}
    worker = again(worker_queues="mail,bulk")
    works(worker, "act")
    worker.turn()
    assert {queue: str(rota.jobs.get(job).status) for queue, job in jobs.items()} == {
        "mail": "COMPLETED",
        "bulk": "COMPLETED",
        "default": "QUEUED",
    }
    rota.turn()
    assert rota.jobs.get(jobs["default"]).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("told", "ran"),
    [({"worker_types": "a,b"}, "ab"), ({"worker_exclude": "a"}, "bc"), ({"worker_types": "a,b", "worker_exclude": "a"}, "b")],
)
def test_a_worker_takes_only_the_types_that_it_is_told_to(rota, again, told, ran):
    works(rota, "a", "b", "c")
    jobs = {name: rota.enqueue(name).id for name in "abc"}
    worker = again(**told)
    works(worker, "a", "b", "c")
    worker.turn()
    assert {name for name, job in jobs.items() if rota.jobs.get(job).status is Status.COMPLETED} == set(ran)
    (info,) = worker.workers.list()
    assert set(info.job_types) == set(ran)


def test_running_start_and_run_take_what_to_serve(live):
    works(live, "a", "b")
    jobs = [live.enqueue("a", queue="mail"), live.enqueue("b", queue="mail"), live.enqueue("a")]
    with live.running(queues=["mail"], exclude="b"):
        eventually(lambda: live.jobs.get(jobs[0].id).status is Status.COMPLETED)
        (worker,) = live.workers.list()
        assert (worker.queues, worker.job_types) == (("mail",), ("a",))
    assert [str(live.jobs.get(job.id).status) for job in jobs[1:]] == ["QUEUED", "QUEUED"]
    with pytest.raises(InvalidOption, match="queues="):
        live.start(queues="mail,,")


def test_a_queue_is_listed_by_its_name(rota):
    works(rota, "act")
    mail = rota.enqueue("act", queue="mail")
    rota.enqueue("act")
    assert [job.id for job in rota.jobs.list(queue="mail")] == [mail.id]


def test_nothing_of_a_paused_queue_starts_and_explain_names_the_pause(rota):
    works(rota, "act")
    mail, other = rota.enqueue("act", queue="mail"), rota.enqueue("act")
    rota.queues.pause("mail")
    rota.turn()
    assert [str(rota.jobs.get(job.id).status) for job in (mail, other)] == ["QUEUED", "COMPLETED"]
    assert rota.explain(mail.id).summary == "queue mail is paused"
    assert rota.store.pauses() == [("queue", "mail")]
    rota.queues.resume("mail")
    rota.turn()
    assert rota.jobs.get(mail.id).status is Status.COMPLETED


def test_only_one_thing_is_paused_at_a_time(rota):
    with pytest.raises(InvalidOption, match="organization=… or queue=…"):
        set_pause(rota, paused=True, organization="default", queue="mail")


@pytest.fixture
def unserved(rota, again):
    """A job in a queue that the one live worker does not serve."""
    works(rota, "act")
    worker = again(worker_queues="default")
    works(worker, "act")
    worker.turn()
    return rota.enqueue("act", queue="mail")


def test_explain_says_that_no_live_worker_serves_the_queue(rota, unserved):
    explanation = rota.explain(unserved.id)
    assert explanation.summary == "no live worker that has its handler serves queue mail: start one with `rota worker --queue mail`"
    assert [reason.condition for reason in explanation.reasons if not reason.met] == ["a worker serves its queue"]


def test_the_doctor_says_that_no_live_worker_serves_the_queue(rota, unserved):
    (finding,) = [each for each in rota.store.doctor() if each.name == "queue"]
    assert finding.state is State.PROBLEM
    assert finding.text == "no live worker serves queue mail (1): these jobs wait"


def test_the_first_screen_says_that_no_live_worker_serves_the_queue(rota, unserved):
    overview = rota.overview()
    assert "jobs wait in queue mail, which no live worker serves" in [each.what for each in overview.health.concerns]
    assert [(each.why, each.count) for each in overview.stuck] == [("no_worker", 1)]


def test_queues_say_what_waits_what_runs_and_who_serves_them(rota, unserved, clock):
    clock.advance(seconds=30)
    found = {each.name: each for each in rota.queues.list()}
    assert (found["mail"].waiting, found["mail"].workers, found["mail"].oldest) == (1, 0, rota.jobs.get(unserved).queued_at)
    assert (found["default"].waiting, found["default"].workers) == (0, 1)


# ---- lanes that a transaction adds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"queue": "new"}, {}], ids=["new queue", "no handler"])
def test_a_transaction_that_adds_a_lane_goes_on_to_enqueue_into_it(rota, clock, options):
    rota.job(lambda: None, name="act")
    rota.turn()
    with closing(Rota(rota.store.url, clock=clock)) as client:
        if options:
            client.job(lambda: None, name="act")
        with client.transaction() as tx:
            first = client.enqueue("act", transaction=tx, **options)
            second = client.enqueue("act", transaction=tx, **options)
            many = client.enqueue_many([NewJob(name="act", **options)] * 3, transaction=tx)
        later = client.enqueue("act", **options)
    rota.turn()
    assert {str(rota.jobs.get(job).status) for job in (first, second, *many.ids, later)} == {"COMPLETED"}


def test_a_bulk_of_more_than_a_chunk_in_a_transaction_may_add_its_lane(tmp_path, clock):
    worker = Rota(tmp_path / "rota.db", clock=clock)
    worker.job(lambda: None, name="act")
    worker.turn()
    with closing(worker), closing(Rota(tmp_path / "rota.db", clock=clock, settings=Settings(bulk_chunk=10))) as client:
        with client.transaction() as tx:
            assert client.enqueue_many([("act", None)] * 25, transaction=tx).accepted == 25
        assert len(client.jobs.list(queue="default")) == 25


def test_a_schedule_is_fired_by_hand_although_the_definitions_have_just_changed(rota):
    rota.job(lambda: None, name="act")
    rota.schedule("s", "act", every="1h")
    real = rota._session.registry.organization

    def changed(*args):
        rota._session.registry.organization = real
        with closing(Rota(rota.store.url)) as other:
            other.organizations.create("acme")
        return real(*args)

    rota._session.registry.organization = changed
    assert rota.schedules.fire("s").job_type == "act"


def test_a_store_takes_no_more_queues_than_the_setting_says(again):
    rota = again(queues_max=3)
    works(rota, "act", "other")
    rota.enqueue("act")
    rota.enqueue("act", queue="mail")
    # In one call, the queues that its own items are the first to name count, too.
    with pytest.raises(InvalidOption, match=r"queue='slow2' is new, and this store has 3 queues already: .* queues_max=3"):
        rota.enqueue_many([NewJob(name="act", queue=f"slow{number}") for number in range(1, 4)])
    assert {queue.name for queue in rota.queues.list()} == {"default", "mail", "slow1"}, "the items before it are enqueued"
    for queue in ("mail", "slow1", "default"):
        rota.enqueue("other", queue=queue)
    with pytest.raises(InvalidOption, match="queues_max=3"):
        rota.enqueue("other", queue="fourth")
    assert len(rota.queues.list()) == 3
    wider = again(queues_max=4)
    works(wider, "act")
    wider.enqueue("act", queue="fourth")
    assert len(wider.queues.list()) == 4
