"""The check-up, over both stores: each trouble is made for real, and named with its remedy."""

from __future__ import annotations

import json
import threading

import pytest

from rota import Rota, Settings
from rota.errors import PermissionDenied
from rota.model.decide import Failed
from rota.model.findings import State, size_text, span_text
from rota.stores.locks import FileLocks
from tests.stores.desk import ANNA, START, Desk
from tests.stores.makers import SqliteMaker, in_sql
from tests.support.clock import ManualClock
from tests.surfaces.cli_support import Cli

QUICK = Settings(beat=0.2, max_retries=0)


@pytest.fixture
def desk(maker):
    return Desk(maker.open())


@pytest.fixture
def doctor(maker, desk):
    """Returns what is found under a name: states and texts."""
    clock = ManualClock()
    rota = Rota(maker.url, settings=QUICK, clock=clock)
    clock._now = START

    def look(name, **options):
        clock._now = desk.now
        return [each for each in rota.store.doctor(**options) if each.name == name]

    look.rota = rota
    yield look
    # On PostgreSQL the folder of locks is the machine's, and ids of tests come again.
    rota._session.open().liveness.forget(desk.worker)
    rota.close()


def one(found, state, *words):
    (each,) = found
    assert each.state is state, each
    for word in words:
        assert word in f"{each.text} {each.remedy}"
    assert bool(each.remedy) == (state is not State.OK)


def test_a_store_at_rest_has_nothing_but_no_worker(doctor):
    found = {each.name: each for each in doctor.rota.store.doctor(full=True) if each.name not in {"durability", "clock"}}
    assert {each.name for each in found.values() if each.state is not State.OK} == {"workers"}
    one([found["workers"]], State.ADVICE, "none is running", "rota worker")


def test_only_a_system_manager_may_ask(doctor):
    doctor.rota.organizations.create("acme")
    doctor.rota.users.create("ada", organization="acme", role="admin")
    doctor.rota.users.create("root", role="system_manager")
    with pytest.raises(PermissionDenied):
        doctor.rota.acting_as("ada").store.doctor()
    assert doctor.rota.acting_as("root").store.doctor()


def test_a_worker_that_runs_here_is_alive(doctor):
    @doctor.rota.job
    def echo():
        pass

    with doctor.rota.running():
        one(doctor("workers"), State.OK, "1 on 1 host")


def test_a_worker_whose_lock_is_free_is_gone(doctor, desk):
    lease = doctor.rota._session.open().liveness.take(desk.worker)
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    lease.release(clean=False)
    gone, _ = doctor("workers")
    one([gone], State.ADVICE, desk.worker, "is gone", "holds 0 jobs", "rota recover")
    desk.add()
    desk.claim_one()
    gone, _ = doctor("workers")
    one([gone], State.PROBLEM, "holds 1 jobs")


def test_a_worker_of_another_machine_that_does_not_beat_is_silent(doctor, desk):
    desk.store.register(desk.worker, host="far-away", kind="worker", job_types=["t"], now=desk.now)
    desk.add()
    desk.claim_one()
    silent, _ = doctor("workers")
    one([silent], State.PROBLEM, "far-away", "sign of life", "30 s")


def test_a_worker_of_another_machine_that_beats_is_alive(doctor, desk):
    desk.store.register(desk.worker, host="far-away", kind="worker", job_types=["t"], now=desk.now)
    over = threading.Event()

    def beat():
        while not over.wait(0.05):
            desk.store.beat(desk.worker, job_types=["t"])

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        one(doctor("workers"), State.OK, "1 on 1 host")
    finally:
        over.set()
        thread.join()


def test_jobs_that_run_under_a_worker_that_has_ended(doctor, desk):
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    desk.add()
    desk.claim_one()
    one(doctor("left behind"), State.OK)
    desk.store.end_worker(desk.worker, now=desk.now)
    one(doctor("left behind"), State.PROBLEM, "1 jobs are RUNNING under workers that have ended", "rota recover")


def test_a_job_that_was_due_long_ago(doctor, desk):
    desk.add(delay=10)
    desk.advance(60)
    one(doctor("due jobs"), State.OK)
    desk.advance(600)
    one(doctor("due jobs"), State.PROBLEM, "due 10.8 min ago", "start a worker")


def test_a_job_that_waits_for_another_is_not_overdue(doctor, desk):
    desk.add(delay=10, depends_on=(desk.add(),))
    desk.advance(600)
    one(doctor("due jobs"), State.OK)


def test_a_type_that_no_live_worker_has(doctor, desk):
    desk.several(3, "mail")
    desk.several(2, "sms")
    one(doctor("queue"), State.PROBLEM, "mail (3)", "sms (2)")
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["mail", "sms"], now=desk.now)
    one(doctor("queue"), State.OK, "5 jobs wait")
    desk.store.end_worker(desk.worker, now=desk.now)
    one(doctor("queue"), State.PROBLEM, "mail (3)")


def test_a_worker_that_is_gone_serves_no_type(doctor, desk):
    lease = doctor.rota._session.open().liveness.take(desk.worker)
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    desk.add()
    one(doctor("queue"), State.OK, "1 jobs wait")
    lease.release(clean=False)
    one(doctor("queue"), State.PROBLEM, "no live worker has the handler of t (1)")


def test_dead_letters_are_counted(doctor, desk):
    one(doctor("dead letters"), State.OK)
    desk.add(max_retries=0)
    desk.run_to(Failed("boom"))
    one(doctor("dead letters"), State.ADVICE, "1 jobs", "rota dead list")


def test_a_pause_may_be_forgotten(doctor, desk):
    one(doctor("pauses"), State.OK)
    desk.store.pause("all", "", actor=ANNA, now=desk.now)
    one(doctor("pauses"), State.ADVICE, "everything", "rota resume")


def test_a_pause_of_one_thing_comes_with_the_command_that_ends_it(doctor, desk):
    desk.store.pause("organization", "acme", actor=ANNA, now=desk.now)
    desk.store.pause("template", "send mail", actor=ANNA, now=desk.now)
    one(doctor("pauses"), State.ADVICE, "organization acme, template send mail", "`rota template resume 'send mail'`")


def test_messages_that_nobody_has_delivered(doctor, desk, maker):
    maker.promise_webhook(desk.add())
    one(doctor("outbox"), State.ADVICE, "1 messages are overdue")
    maker.deliver_webhooks(desk.now)
    one(doctor("outbox"), State.OK)


@in_sql
def test_what_can_not_be_looked_at_is_a_finding_and_the_rest_goes_on(doctor, desk, maker):
    maker._sql("DROP TABLE outbox")
    one(doctor("outbox"), State.PROBLEM, "could not be looked at", "outbox")
    one([each for each in doctor("schema") if "table outbox" in each.text], State.PROBLEM, "backup")
    one(doctor("queue"), State.OK)
    if type(maker) is not SqliteMaker:
        maker._sql(f"DROP SCHEMA {maker.schema} CASCADE")


def test_a_look_takes_no_lock_from_a_worker(doctor, desk, maker):
    """Two who look at once see the same: a lock that is tried is given back at once."""
    locks = doctor.rota._session.open().liveness
    assert isinstance(locks, FileLocks)
    lease = locks.take(desk.worker)
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    one(doctor("workers"), State.OK)
    one(doctor("workers"), State.OK)
    lease.release(clean=True)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_for_people(count, text):
    assert size_text(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.012, "12 ms"), (3.4, "3.4 s"), (300, "5 min"), (9000, "2.5 h"), (260_000, "3.01 days")])
def test_spans_are_for_people(seconds, text):
    assert span_text(seconds) == text


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    yield made
    made.close()


def greeted(cli):
    """Make the store, with one job that waits."""
    rota = Rota(cli.store)

    @rota.job
    def greet():
        pass

    rota.enqueue("greet")
    rota.close()


def test_the_command_says_a_line_for_each_look_and_is_content(cli):
    greeted(cli)
    cli.ok("job", "cancel", "1", "--yes")
    said = cli.ok("doctor")
    assert "ok        durability: what is acknowledged is on disk" in said
    assert "advice    workers: none is running\n          → start one" in said
    assert len(said.splitlines()) > 10


def test_the_command_fails_if_there_is_a_problem(cli):
    greeted(cli)
    done = cli("doctor")
    assert done.exit_code == 1
    assert "problem   queue: no live worker has the handler of greet (1)" in done.stdout
    found = [json.loads(line) for line in cli("doctor", "--full", "--json").stdout.splitlines()]
    assert {"name", "state", "text", "remedy"} == set(found[0])
    assert [each["state"] for each in found if each["name"] == "queue"] == ["problem"]
    assert [each["text"] for each in found if each["name"] == "references"] == ["every row that points at another finds it"]


def test_the_command_does_not_make_a_store(cli):
    done = cli("doctor")
    assert done.exit_code == 3
    assert "there is no store" in done.stderr


def test_a_schedule_in_use_whose_template_takes_no_jobs_is_named(doctor):
    rota = doctor.rota
    for name in ("gone", "off", "fine"):
        rota.job(lambda: None, name=name)
        rota.schedules.create(f"of {name}", name, every="1h")
    rota.templates.disable("off")
    # As an earlier version left it: archived, with a schedule that is enabled.
    rota._session.open().store.set_template_state("gone", "ARCHIVED", actor=ANNA, now=START)
    found = doctor("schedules")
    assert [each.state for each in found] == [State.OK, State.ADVICE]
    assert "of gone (gone is archived), of off (off is disabled)" in found[1].text
    assert "`rota template enable NAME`" in found[1].remedy
    assert "`rota schedule disable NAME`" in found[1].remedy
