"""Least privilege: a worker, a submitter, a reader, a server and the owner, each with exactly the rights that `rota grants` prints."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from rota import NewJob, Rota, Settings, Status
from rota.admission import Admission
from rota.errors import DuplicateJob, InvalidOption, InvalidParams, RateLimited, StoreUnusable
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.grants import KINDS, PRIVATE, privileges, statements, wanted
from rota.stores.mongodb.schema import COLLECTIONS, WHEEL
from rota.stores.mongodb.transaction import DOORS
from tests.support.mongodb import GuardedSet
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

DATABASE = "least"
SETTINGS = Settings(backoff_base=0.01, backoff_jitter=0, recovery_interval=0.05, retention=0, beat=0.1)
NOT_AUTHORIZED = 13


@pytest.fixture(scope="module")
def servers():
    made = GuardedSet(Path(tempfile.mkdtemp(prefix="rota-mongodb-")))
    try:
        made.start()
        with made.client() as root:
            create_users(root[DATABASE])
        with closing(Rota(made.url(DATABASE, "owner"))) as owner:
            register(owner)
            owner.enqueue("echo", {"text": "the owner's secret"})
            owner.turn()
        yield made
    finally:
        made.throw_away()


def create_users(database):
    """Create a user of each kind, which has the name of its kind."""
    for kind in KINDS:
        database.command("createRole", f"the_{kind}", privileges=privileges(kind, DATABASE), roles=[])
        database.command("createUser", kind, pwd=kind, roles=[f"the_{kind}"])


@pytest.fixture
def as_role(servers):
    """Makes a Rota that speaks as a user with a role."""
    made = []

    def make(kind, settings=SETTINGS):
        made.append(Rota(servers.url(DATABASE, kind), settings=settings))
        return made[-1]

    yield make
    for rota in made:
        rota.close()


@pytest.fixture
def raw_as(servers):
    """Makes a bare database of a user with a role."""
    made = []

    def connect(kind):
        made.append(MongoClient(servers.url(DATABASE, kind)))
        return made[-1][DATABASE]

    yield connect
    for client in made:
        client.close()


def refused(*actions):
    for action in actions:
        with pytest.raises(OperationFailure) as caught:
            action()
        assert caught.value.code == NOT_AUTHORIZED


def register(rota):
    @rota.job(max_retries=2)
    def echo(text=""):
        return text

    @rota.job(max_retries=1)
    def fails():
        raise ValueError("no")

    @rota.job(dedup_window=60)
    def once(n):
        return n

    @rota.job(submit_limit="2/60s")
    def few():
        pass

    @rota.job(rate_limit="100/1s", max_running=1)
    def limited():
        pass


# ---- a worker -------------------------------------------------------------------------------------------------------


def test_a_worker_works_with_its_rights_alone(as_role):
    rota = as_role("worker")
    register(rota)
    with rota.running(concurrency=2):
        plain = rota.enqueue("echo", {"text": "a"})
        assert rota.wait(plain.id, timeout=patient(20)).result == "a"
        bad = rota.enqueue("fails")
        rota.wait(bad.id, timeout=patient(20))
        assert [job.status for job in rota.jobs.attempts(bad.id)] == [Status.FAILED, Status.DEAD_LETTER]
        child = rota.enqueue("echo", {"text": "c"}, depends_on=[rota.enqueue("limited").id])
        assert rota.wait(child.id, timeout=patient(20)).result == "c"
        group = rota.group([("echo", {}), ("echo", {})])
        eventually(lambda: rota.groups.get(group.id).status == "COMPLETED")
        assert rota.jobs.direct("echo", {"text": "d"}).result == "d"
    assert rota.store.stats().by_status["COMPLETED"] >= 6


def test_a_worker_keeps_the_time_of_schedules(as_role):
    rota = as_role("worker")
    register(rota)
    rota.schedule("often", "echo", every=1, params={"text": "tick"})
    with rota.running():
        eventually(lambda: len(rota.schedules.occurrences(schedule="often", fate="FIRED")) >= 2)
    rota.schedules.pause("often")
    rota.schedules.delete("often")


def test_a_worker_steers_jobs_and_clears_up(as_role):
    rota = as_role("worker", Settings(retention=0))
    register(rota)
    first, second, third = (rota.enqueue("echo") for _ in range(3))
    rota.jobs.move(third.id, front=True)
    rota.jobs.update(second.id, priority=80, params={"text": "x"})
    rota.jobs.cancel(first.id)
    rota.jobs.retry(first.id)
    rota.turn()
    assert rota.jobs.attempts(first.id)[-1].status is Status.COMPLETED
    rota.jobs.delete(second.id)
    assert rota.store.purge(older_than=0).chains >= 1
    rota.store.recover()


def test_a_worker_manages_nobody(as_role):
    rota = as_role("worker")
    for forbidden in (
        lambda: rota.organizations.create("acme"),
        lambda: rota.users.create("root", role="system_manager"),
        rota.store.pause,
        lambda: rota.calendars.update("days", ["2026-12-25"]),
    ):
        with pytest.raises(StoreUnusable, match=r"not authorized on least to execute (update|insert) on \w+\. `rota grants`"):
            forbidden()


def test_a_worker_can_not_rewrite_what_was_audited_or_how_a_job_ended(raw_as):
    raw = raw_as("worker")
    refused(
        lambda: raw["audit"].update_many({}, {"$set": {"actor": "x"}}),
        lambda: raw["audit"].delete_many({}),
        lambda: raw["job_ends"].update_many({}, {"$set": {"status": "COMPLETED"}}),
        raw["outbox"].drop,
        lambda: raw["job_live"].create_index("job_id"),
        lambda: raw.create_collection("mine"),
        lambda: raw.client.drop_database(DATABASE),
    )


def test_a_worker_ends_the_transaction_of_another_process_of_its_user_that_died(servers, raw_as):
    waiting = MongoStore(servers.url(DATABASE, "worker"), Settings(lease_guard=1, busy_timeout=patient(20)))
    dead = raw_as("worker")
    with dead.client.start_session(causal_consistency=False) as session:
        dead["locks"].update_many(
            {"_id": {"$in": [WHEEL, *DOORS]}}, {"$currentDate": {f"sessions.{session.session_id['id'].as_uuid().hex}": True}}
        )
        session.start_transaction()
        dead["locks"].update_one({"_id": WHEEL}, {"$inc": {"turns": 1}}, session=session)
        assert waiting._write(lambda db: db.size("locks", {})) > 0
    waiting.close()


@pytest.mark.parametrize("kind", KINDS)
def test_those_who_wait_for_something_may_listen_to_the_bell(raw_as, kind):
    raw = raw_as(kind)
    with raw["bell"].watch(max_await_time_ms=1) as bell:
        assert bell.alive
    if kind != "owner":
        refused(lambda: raw["audit"].watch(max_await_time_ms=1))


# ---- a submitter ----------------------------------------------------------------------------------------------------


def test_a_submitter_enqueues_in_every_way(as_role):
    rota = as_role("submitter")
    job = rota.enqueue("echo", {"text": "mine"}, priority="high")
    assert rota.jobs.get(job).status is Status.QUEUED
    assert rota.jobs.get(rota.enqueue("echo", run_at=rota.jobs.get(job).created_at.replace(year=2099))).status is Status.PENDING
    assert rota.jobs.get(rota.enqueue("echo", depends_on=[job.id])).status is Status.PENDING
    kept = rota.enqueue("echo", {"text": "k"}, unique_key="k")
    assert rota.enqueue("echo", {"text": "again"}, unique_key="k").id == kept.id
    assert rota.enqueue_many([("echo", {"text": str(n)}) for n in range(50)] + [NewJob(name="echo", unique_key="k")]).accepted == 50
    rota.enqueue("once", {"n": 1})
    with pytest.raises(DuplicateJob):
        rota.enqueue("once", {"n": 1})
    rota.enqueue_many(["few", "few"])
    with pytest.raises(RateLimited):
        rota.enqueue("few")
    with rota.transaction() as tx:
        rota.enqueue("echo", transaction=tx)


def test_a_submitter_whose_code_is_what_the_store_knows_changes_nothing(as_role):
    rota = as_role("submitter")
    register(rota)
    assert rota.jobs.get(rota.enqueue("echo")).status is Status.QUEUED


def test_a_submitter_without_the_code_is_refused_what_no_worker_takes(as_role):
    worker, submitter = as_role("worker"), as_role("submitter")
    register(worker)
    worker.turn()
    with pytest.raises(InvalidParams, match=r"^echo\(\) has no parameter 'txt'; it takes: text$"):
        submitter.enqueue("echo", {"txt": "misspelt"})


def test_a_submitter_can_not_bring_a_new_template(as_role):
    rota = as_role("submitter")

    @rota.job
    def unheard_of():
        pass

    with pytest.raises(StoreUnusable, match="not authorized"):
        rota.enqueue("unheard_of")


def test_a_submitter_ends_and_changes_nothing(as_role, raw_as):
    worker, submitter = as_role("worker"), as_role("submitter")
    register(worker)
    job = worker.enqueue("echo")
    for forbidden in (
        lambda: submitter.jobs.cancel(job.id),
        lambda: submitter.jobs.update(job.id, priority=1),
        submitter.turn,
        submitter.store.pause,
        lambda: submitter.store.purge(older_than=0),
    ):
        with pytest.raises(StoreUnusable, match="not authorized"):
            forbidden()
    raw = raw_as("submitter")
    refused(
        lambda: raw["job_live"].delete_many({}),
        lambda: raw["job_live"].update_many({}, {"$set": {"priority": 1}}),
        lambda: raw["job_facts"].update_many({}, {"$set": {"params": "{}"}}),
        lambda: raw["job_facts"].delete_many({}),
        lambda: raw["job_ends"].insert_one({"_id": 1}),
        raw["run_notes"].find_one,
        raw["run_logs"].find_one,
        lambda: raw["job_edges"].delete_many({}),
        lambda: raw["templates"].update_many({}, {"$set": {"state": "DISABLED"}}),
    )
    assert worker.jobs.get(job.id).status is Status.QUEUED


# ---- a reader -------------------------------------------------------------------------------------------------------


def test_a_reader_reads_everything_and_writes_nothing(as_role, raw_as):
    worker, rota = as_role("worker"), as_role("reader")
    register(worker)
    done = worker.enqueue("echo", {"text": "the worker's secret"})
    worker.turn()
    assert rota.jobs.get(done.id).params == {"text": "the worker's secret"}
    assert run_of(rota, done.id) is not None
    assert rota.store.stats().by_status
    assert rota.workers.list() is not None
    with pytest.raises(StoreUnusable, match="not authorized"):
        rota.enqueue("echo")
    raw = raw_as("reader")
    for name in COLLECTIONS:
        refused(
            lambda name=name: raw[name].delete_many({}),
            lambda name=name: raw[name].update_many({}, {"$set": {"x": 1}}),
            lambda name=name: raw[name].insert_one({}),
        )


# ---- keys to the front door -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["worker", "submitter", "reader"])
def test_nobody_but_a_server_learns_anything_of_tokens(raw_as, kind):
    raw = raw_as(kind)
    refused(
        raw["tokens"].find_one,
        lambda: raw["tokens"].update_many({}, {"$unset": {"user_name": ""}}),
        lambda: raw["sessions"].insert_one({"_id": b"mine"}),
        lambda: raw["sessions"].update_many({}, {"$set": {"expires_at": 1}}),
    )


@pytest.mark.parametrize("kind", ["submitter", "reader"])
@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_what_is_private_is_not_even_counted_by_those_who_do_not_need_it(raw_as, kind, name):
    raw = raw_as(kind)
    refused(lambda: raw[name].count_documents({}), raw[name].estimated_document_count)


def test_a_server_lets_people_in_and_does_what_they_ask(as_role):
    rota = as_role("server", Settings(retention=0, session_ttl=60))
    register(rota)
    rota.organizations.create("acme")
    rota.users.create("root", role="system_manager")
    made = rota.acting_as("root").tokens.create("shop", user="root", permits=["manage"])
    who = Admission(rota).authenticate(made.secret)
    session = Admission(rota).open_session(made.secret)
    assert Admission(rota).session(session.secret) == who
    job = rota.acting_as(who).enqueue("echo", {"text": "over HTTP"})
    rota.acting_as(who).organizations.pause("acme")
    rota.acting_as(who).organizations.resume("acme")
    rota.acting_as(who).calendars.update("days", ["2026-12-25"])
    rota.acting_as(who).calendars.delete("days")
    rota.turn()
    assert rota.acting_as(who).jobs.get(job.id).status is Status.COMPLETED
    rota.acting_as(who).tokens.revoke(made.token.id)
    rota.acting_as(who).organizations.delete("acme")


def test_a_server_can_not_rewrite_the_audit_or_forget_a_token(raw_as):
    raw = raw_as("server")
    refused(
        lambda: raw["audit"].delete_many({}),
        lambda: raw["audit"].update_many({}, {"$set": {"actor": "x"}}),
        lambda: raw["tokens"].delete_many({}),
        raw["tokens"].drop,
    )


def test_a_worker_forgets_sessions_that_are_over(as_role):
    rota = as_role("worker", Settings(retention=0, retention_interval=0.05))
    with rota.running():
        eventually(rota.workers.list)
    assert rota._session.open().store.forget_sessions(before=0, limit=10) == 0


def test_the_owner_creates_a_store_and_drops_nothing(raw_as):
    raw = raw_as("owner")
    refused(raw["audit"].drop, lambda: raw.client.drop_database(DATABASE), raw.client["other"]["x"].find_one)


# ---- the statements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_every_name_in_the_grants_is_in_the_schema(kind):
    assert set(wanted(kind)) <= set(COLLECTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_is_what_was_tried_here(kind):
    create, update = statements(kind, "the_role", DATABASE)
    assert create.startswith(f'if (!db.getSiblingDB("{DATABASE}").getRole("the_role"))')
    given = re.fullmatch(r'db\.getSiblingDB\("least"\)\.updateRole\("the_role", (\{.*\})\);', update)
    assert msgspec.json.decode(given[1]) == {"privileges": privileges(kind, DATABASE), "roles": []}


def test_they_are_printed_without_asking_the_server():
    with closing(Rota("mongodb://127.0.0.1:1/shop?replicaSet=rs0")) as rota:
        assert rota.store.grants("shop_web", kind="submitter") == statements("submitter", "shop_web", "shop")


@pytest.mark.parametrize("role", ["", "a b", 'a"b', "1a", "a;DROP TABLE x", "x" * 64])
def test_a_role_has_a_plain_name(role):
    with pytest.raises(InvalidOption, match="not the name of a role"):
        statements("worker", role, "rota")


def test_there_are_five_kinds():
    with pytest.raises(InvalidOption, match="worker, submitter, reader, server or owner"):
        statements("boss", "ada", "rota")
