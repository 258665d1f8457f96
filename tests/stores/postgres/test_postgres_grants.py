"""Least privilege: a worker, a submitter, a reader and a server, each with exactly the rights that `rota grants` prints."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from rota import NewJob, Rota, Settings, Status
from rota.admission import Admission
from rota.errors import DuplicateJob, InvalidOption, InvalidParams, RateLimited, StoreUnusable
from rota.stores.postgres.grants import KINDS, PRIVATE, statements, wanted
from rota.stores.postgres.migrate import expected
from tests.support.pace import patient
from tests.support.postgres import shared_server
from tests.support.runs import run_of
from tests.support.waiting import eventually

SETTINGS = Settings(backoff_base=0.01, backoff_jitter=0, recovery_interval=0.05, retention=0, beat=0.1)


@pytest.fixture(scope="module")
def database():
    server, name = shared_server(), "least"
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for kind in KINDS:
            raw.execute(f"DROP ROLE IF EXISTS the_{kind}")
            raw.execute(f"CREATE ROLE the_{kind} LOGIN")
        raw.execute(f"CREATE DATABASE {name}")
    owner = Rota(server.url(name))
    register(owner)
    owner.enqueue("echo", {"text": "the owner's secret"})
    owner.turn()
    owner.close()
    with server.connect(name) as raw:
        for kind in KINDS:
            for statement in statements(kind, f"the_{kind}", "rota"):
                raw.execute(statement)
    yield name
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)")
        for kind in KINDS:
            raw.execute(f"DROP ROLE the_{kind}")


@pytest.fixture
def as_role(database):
    """Makes a Rota that speaks as a role of the database."""
    made = []

    def make(kind, settings=SETTINGS):
        made.append(Rota(shared_server().url(database, f"the_{kind}"), settings=settings))
        return made[-1]

    yield make
    for rota in made:
        rota.close()


@pytest.fixture
def raw_as(database):
    def connect(kind):
        return psycopg.connect(shared_server().url(database, f"the_{kind}"), autocommit=True, options="-c search_path=rota")

    return connect


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
        with pytest.raises(StoreUnusable, match=r"permission denied.*rota grants"):
            forbidden()


def test_a_worker_can_not_rewrite_what_was_audited_or_how_a_job_ended(raw_as):
    with raw_as("worker") as raw:
        for statement in (
            "UPDATE audit SET actor = 'x'",
            "DELETE FROM audit",
            "UPDATE job_ends SET status = 'COMPLETED'",
            "TRUNCATE job_ends",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("DROP TABLE outbox")


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

    with pytest.raises(StoreUnusable, match="permission denied for table templates"):
        rota.enqueue("unheard_of")


def test_a_submitter_sees_jobs_without_their_params(as_role, raw_as):
    worker, submitter = as_role("worker"), as_role("submitter")
    register(worker)
    job = worker.enqueue("echo", {"text": "the worker's secret"})
    assert worker.jobs.get(job.id).params == {"text": "the worker's secret"}
    assert submitter.jobs.get(job.id).params == {}
    assert submitter.jobs.get(job.id).status is Status.QUEUED
    with raw_as("submitter") as raw:
        for statement in (
            "SELECT params FROM job_facts",
            "SELECT job_hash FROM job_facts",
            "SELECT * FROM job_facts",
            "SELECT result FROM job_runs",
            "SELECT result FROM run_notes",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)
        assert {row[0] for row in raw.execute("SELECT params FROM jobs")} == {"{}"}


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
        with pytest.raises(StoreUnusable, match="permission denied"):
            forbidden()
    with raw_as("submitter") as raw:
        for statement in (
            "DELETE FROM job_live",
            "UPDATE job_live SET priority = 1",
            "UPDATE job_facts SET params = '{}'",
            "DELETE FROM job_facts",
            "INSERT INTO job_ends (number) VALUES (1)",
            "UPDATE job_edges SET child = 1",
            "DELETE FROM job_edges",
            "UPDATE meta SET value = 0",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)
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
    with pytest.raises(StoreUnusable, match="permission denied"):
        rota.enqueue("echo")
    with raw_as("reader") as raw:
        for table in sorted(expected().tables):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))


# ---- keys to the front door -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["worker", "submitter", "reader"])
def test_nobody_but_a_server_learns_anything_of_tokens(raw_as, kind):
    with raw_as(kind) as raw:
        for statement in (
            "SELECT name FROM tokens",
            "SELECT hash FROM tokens",
            "UPDATE tokens SET user_name = NULL",
            "INSERT INTO sessions SELECT",
            "SELECT token_id FROM sessions",
            "UPDATE sessions SET expires_at = 1",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)


@pytest.mark.parametrize("kind", ["submitter", "reader"])
@pytest.mark.parametrize("table", sorted(PRIVATE))
def test_what_is_private_is_not_even_counted_by_those_who_do_not_need_it(raw_as, kind, table):
    with raw_as(kind) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))


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
    with raw_as("server") as raw:
        for statement in ("DELETE FROM audit", "UPDATE audit SET actor = 'x'", "DELETE FROM tokens", "DROP TABLE tokens"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(statement)


def test_a_worker_forgets_sessions_that_are_over(as_role):
    rota = as_role("worker", Settings(retention=0, retention_interval=0.05))
    with rota.running():
        eventually(rota.workers.list)
    assert rota._session.open().store.forget_sessions(before=0, limit=10) == 0


def test_the_doctor_knows_what_each_is_for(as_role):
    said = {kind: next(each for each in as_role(kind).store.doctor() if each.name == "rights") for kind in KINDS}
    assert said["worker"].state == "ok"
    assert "can submit;" in said["submitter"].text
    assert "can read;" in said["reader"].text
    assert "can serve, work" in said["server"].text


# ---- the statements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_in_the_grants_is_in_the_schema(kind, database):
    with shared_server().connect(database) as raw:
        columns = set(raw.execute("SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'rota'"))
    known = expected().tables | expected().views | {"job_numbers"}
    assert {name for _, name, _, _ in wanted(kind)} <= known
    assert {(name, column) for _, name, _, column in wanted(kind) if column} <= columns


def test_a_submitter_knows_no_column_that_holds_what_is_in_a_job():
    known = {column for _, name, _, column in wanted("submitter") if name == "job_facts" and column}
    assert known & {"params", "job_hash", "meta"} == set()
    assert ("table", "job_facts", "SELECT", None) not in wanted("submitter")


@pytest.mark.parametrize("role", ["", "a b", 'a"b', "1a", "a;DROP TABLE x", "x" * 64])
def test_a_role_has_a_plain_name(role):
    with pytest.raises(InvalidOption, match="not the name of a role"):
        statements("worker", role, "rota")


def test_there_are_four_kinds():
    with pytest.raises(InvalidOption, match="worker, submitter, reader or server"):
        statements("boss", "ada", "rota")
