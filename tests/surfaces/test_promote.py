"""From a file to a fleet and back: everything arrives, in its order, and no job is left where nobody works any more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import apsw
import pytest

from rota import Rota, Settings
from rota.compose import open_place
from rota.errors import (
    CopyRefused,
    IllegalMove,
    NotFound,
    PermissionDenied,
    StoreBusy,
    StoreError,
    StoreMoved,
    StoreUnavailable,
    StoreUnusable,
)
from rota.model.decide import Completed, Failed
from rota.model.states import Status
from rota.stores.verbs.tables import TABLES
from tests.stores.desk import ANNA, Desk
from tests.support.keys import credentials
from tests.support.pace import patient
from tests.support.postgres import shared_server
from tests.support.waiting import eventually
from tests.support.whole import LONG, ODD, content, fill, neutral, schema
from tests.surfaces.cli_support import Cli

SCHEMA = "promoted"
SETTINGS = Settings(schema=SCHEMA, lease_ttl=1)
STATES = {str(status) for status in Status}


@pytest.fixture(autouse=True)
def known_key(tmp_path, monkeypatch):
    """The key that the secrets of these stores are encrypted with."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials(tmp_path / "credentials")))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "rota.db"
    fill(path)
    return path


@pytest.fixture
def file(filled, tmp_path):
    """A store with something in every table, as a worker left it that was killed on this machine."""
    path = shutil.copy(filled, tmp_path / "rota.db")
    place = open_place(str(path), SETTINGS)
    with place.depot.snapshot() as reading:
        for worker in reading.workers():
            place.liveness.take(worker.id).release(clean=False)
    return path


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield shared_server().url()
    with shared_server().connect() as raw:
        raw.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


@pytest.fixture
def small(tmp_path):
    """A store with three jobs."""
    path = tmp_path / "small.db"
    rota = opened(path)
    for number in range(3):
        rota.enqueue("note", {"n": number})
    rota.close()
    return path


_opened = []


@pytest.fixture(autouse=True)
def closes():
    yield
    while _opened:
        _opened.pop().close()


def plain(url, **options):
    """A Rota that is closed when its test ends."""
    _opened.append(Rota(url, **{"settings": SETTINGS, **options}))
    return _opened[-1]


def opened(url, **options):
    """A Rota with a handler that writes down what it is given."""
    rota = plain(url, **options)
    rota.noted = []

    @rota.job
    def note(n: int = 0, text: str = "") -> None:
        rota.noted.append(n)

    return rota


def promoted(source, target, actor=None, **options):
    return plain(source).acting_as(actor).store.promote(target, **options)


# ---- the same on both sides ---------------------------------------------------------------------------------------


def test_the_store_of_these_tests_has_every_table_and_every_state(file):
    found = content(file)
    assert [table.name for table in TABLES if not found[table.name]] == []
    assert {row[0] for row in apsw.Connection(str(file)).execute("SELECT status FROM jobs")} == STATES
    values = {value for rows in found.values() for row in rows for value in row}
    assert ODD in values
    assert any(LONG in value for value in values if isinstance(value, str))


def test_there_and_back_everything_is_the_same(file, database, tmp_path):
    before, same = content(file), neutral(file, SETTINGS)
    there = promoted(file, database)
    assert neutral(database, SETTINGS) == same
    back = promoted(database, tmp_path / "back.db")
    assert (there.tables, there.queue) == (back.tables, back.queue)
    assert content(tmp_path / "back.db") == before


def test_a_copy_counts_every_row_and_has_a_digest_of_every_table(file, database):
    done = promoted(file, database)
    assert {name: summed.rows for name, summed in done.tables.items()} == {
        name: len(rows) for name, rows in neutral(file, SETTINGS).items() if name in done.tables
    }
    assert len({summed.digest for summed in done.tables.values()}) == len(TABLES)
    assert done.queue.rows == len(neutral(file, SETTINGS)["order of the queue"])


def test_a_file_that_came_back_is_made_like_any_other(file, database, tmp_path):
    fresh = schema(file)
    promoted(file, database)
    promoted(database, tmp_path / "back.db")
    assert schema(tmp_path / "back.db") == fresh
    promoted(tmp_path / "back.db", tmp_path / "copy.db", keep=True)
    assert schema(tmp_path / "copy.db") == fresh


def test_a_store_can_be_moved_between_files(file, tmp_path):
    before = content(file)
    promoted(file, tmp_path / "other.db")
    assert content(tmp_path / "other.db") == before


def test_rows_are_digested_alike_however_they_are_batched(small, tmp_path, monkeypatch):
    whole = promoted(small, tmp_path / "a.db", keep=True)
    monkeypatch.setattr("rota.engine.store_copy.BATCH_ROWS", 1)
    assert promoted(small, tmp_path / "b.db", keep=True).tables == whole.tables


# ---- work goes on -------------------------------------------------------------------------------------------------


def test_workers_go_on_in_the_order_of_the_queue(tmp_path, database):
    rota = opened(tmp_path / "rota.db")
    ids = [rota.enqueue("note", {"n": number}, priority=50 + number % 3 * 10) for number in range(9)]
    rota.jobs.move(ids[8].id, front=True)
    expected = [job.params["n"] for job in rota.queues.jobs()]
    rota.store.promote(database)
    with opened(database).running(concurrency=1) as moved:
        eventually(lambda: len(moved.noted) == 9, what="nine jobs at the target")
    moved.close()
    assert moved.noted == expected


def test_numbers_go_on_after_the_highest_that_was_ever_given(file, database, tmp_path):
    floor = next(iter(apsw.Connection(str(file)).execute("SELECT value FROM meta WHERE key = 'number_floor'")))[0]
    promoted(file, database)
    for place, number in ((database, floor + 1), (tmp_path / "back.db", floor + 2)):
        rota = opened(place)
        assert rota.enqueue("note").number.endswith(f"-{number:05d}")
        rota.close()
        if place == database:
            promoted(database, tmp_path / "back.db")


def test_what_people_change_goes_on_being_audited(file, database):
    promoted(file, database)
    rota = opened(database)
    before = len(rota.audit.list(limit=100))
    rota.templates.update("note", timeout=5)
    assert len(rota.audit.list(limit=100)) > before
    rota.close()


@pytest.mark.paired
def test_a_job_of_a_dead_worker_is_recovered_where_it_arrived(file, database):
    promoted(file, database)
    # Long enough that a busy machine does not hold our own beats up: a worker that can't show that it lives ends its process, this one.
    rota = opened(database, settings=Settings(schema=SCHEMA, lease_ttl=4, beat=0.1, recovery_interval=0.1))
    (held,) = rota.jobs.list(status="RUNNING")
    with rota.running():
        eventually(lambda: rota.jobs.get(held.id).status is Status.FAILED, what="the end of what a dead worker held")
    assert [job.attempt for job in rota.jobs.attempts(held.id)] == [1, 2]


def test_rules_are_in_force_at_the_target(small, database, tmp_path):
    promoted(small, database)
    rota = opened(database)
    rota.turn()
    with pytest.raises(IllegalMove, match="ended cannot change"), rota.transaction() as tx:
        tx.execute("UPDATE job_ends SET reason = 'x'")
    rota.close()
    promoted(database, tmp_path / "back.db")
    with pytest.raises(apsw.ConstraintError, match="ended cannot change"):
        apsw.Connection(str(tmp_path / "back.db")).execute("UPDATE jobs SET reason = 'x'")


# ---- the source is closed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["file", "database"])
def test_a_store_that_was_moved_says_where_it_went(small, database, tmp_path, there):
    promoted(small, database)
    source, target = (small, database) if there == "file" else (database, tmp_path / "back.db")
    if there == "database":
        promoted(source, target)
    with pytest.raises(StoreMoved, match=rf"was moved to .*{'postgresql' if there == 'file' else 'back.db'}.*give that as the store"):
        plain(source).store.stats()


def test_who_has_the_store_open_is_told_as_well_and_no_job_is_lost(small, database):
    program = opened(small)
    program.enqueue("note", {"n": 3})
    promoted(small, database)
    with pytest.raises(StoreMoved, match="this store was moved to postgresql://"):
        program.enqueue("note", {"n": 4})
    with pytest.raises(StoreMoved):
        program.enqueue_many([("note", {"n": 5}), ("note", {"n": 6})])
    with pytest.raises(StoreMoved):
        program.store.pause()
    program.close()
    moved = opened(database)
    moved.turn()
    moved.close()
    assert moved.noted == [0, 1, 2, 3]


def test_who_has_a_database_open_is_told_as_well(small, database, tmp_path):
    promoted(small, database)
    program = opened(database)
    program.enqueue("note", {"n": 3})
    promoted(database, tmp_path / "back.db")
    for work in (lambda: program.enqueue("note"), lambda: program.enqueue("note", unique_key="k"), program.store.pause):
        with pytest.raises(StoreMoved, match=r"this store was moved to .*back\.db"):
            work()
    program.close()


@pytest.mark.parametrize("there", ["file", "database"])
def test_who_wants_to_remove_history_from_a_store_that_was_moved_is_told_so(small, database, tmp_path, there):
    if there == "database":
        promoted(small, database)
    source, target = (small, database) if there == "file" else (database, tmp_path / "back.db")
    program = opened(source)
    program.turn()
    ended = program.jobs.list()[0]
    program.close()
    program = opened(source)
    program.jobs.list()
    promoted(source, target)
    for work in (lambda: program.jobs.delete(ended.id), lambda: program.store.purge(older_than=0)):
        with pytest.raises(StoreMoved, match="this store was moved to"):
            work()
    program.close()


@pytest.mark.parametrize("there", ["file", "database"])
@pytest.mark.parametrize("outcome", [Failed("no line"), Completed()], ids=["failed", "completed"])
def test_a_worker_that_was_thought_dead_and_ends_a_job_on_a_store_that_was_moved_is_told_so(small, database, tmp_path, there, outcome):
    if there == "database":
        promoted(small, database)
    source, target = (small, database) if there == "file" else (database, tmp_path / "back.db")
    program = opened(source)
    desk = Desk(program._session.open().store)
    desk.ids, desk.now = program._session.ids, program._session.clock.now()
    desk.worker = desk.id()
    lease = program._session.open().liveness.take(desk.worker)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["note"], now=desk.now)
    (job,) = desk.claim(1, types=("note",))
    lease.release(clean=False)
    promoted(source, target)
    with pytest.raises(StoreMoved, match="this store was moved to"):
        desk.end(job, outcome)
    program.close()


def test_a_store_that_comes_back_takes_the_place_of_what_it_left(small, database):
    promoted(small, database)
    moved = opened(database)
    moved.enqueue("note", {"n": 3})
    moved.turn()
    moved.close()
    assert not promoted(database, small).already
    back = opened(small)
    back.enqueue("note", {"n": 4})
    back.turn()
    back.close()
    assert back.noted == [4]
    assert len(content(small)["jobs"]) == 5
    with pytest.raises(StoreMoved):
        plain(database).store.stats()


def test_a_store_that_comes_straight_back_is_opened_again(small, database):
    before = neutral(small, SETTINGS)
    promoted(small, database)
    done = promoted(database, small)
    assert (done.already, done.closed) == (True, True)
    rota = opened(small)
    rota.turn()
    rota.close()
    assert rota.noted == [0, 1, 2]
    assert len(before["jobs"]) == 3


def test_with_keep_the_source_stays_open(small, database):
    done = promoted(small, database, keep=True)
    assert not done.closed
    rota = opened(small)
    rota.turn()
    rota.close()
    assert rota.noted == [0, 1, 2]


def test_a_store_whose_new_place_is_lost_can_be_reopened(small, database):
    promoted(small, database)
    rota = opened(small)
    rota.store.reopen()
    rota.turn()
    rota.close()
    assert rota.noted == [0, 1, 2]
    with pytest.raises(CopyRefused, match="was not moved anywhere"):
        rota.store.reopen()


def test_a_database_can_be_reopened(small, database, tmp_path):
    promoted(small, database)
    promoted(database, tmp_path / "back.db")
    rota = opened(database)
    rota.store.reopen()
    rota.turn()
    rota.close()
    assert rota.noted == [0, 1, 2]


# ---- again --------------------------------------------------------------------------------------------------------


def test_repeated_it_finds_the_same_and_says_so(small, database):
    first = promoted(small, database)
    again = promoted(small, database)
    assert (first.already, again.already, again.closed) == (False, True, True)
    assert (again.tables, again.queue) == (first.tables, first.queue)


def test_repeated_after_the_new_store_has_gone_on_it_changes_nothing(small, database):
    promoted(small, database)
    moved = opened(database)
    moved.turn()
    moved.close()
    for options in ({}, {"replace": True}):
        with pytest.raises(CopyRefused, match=r"was moved to postgresql://.* on .*does not hold the same"):
            promoted(small, database, **options)
    assert len(moved.noted) == 3
    with pytest.raises(CopyRefused, match="was moved to postgresql://"):
        promoted(small, small.with_name("third.db"))


def test_after_a_rehearsal_the_target_is_written_anew_only_if_asked(small, database):
    promoted(small, database, keep=True)
    rota = opened(small)
    rota.enqueue("note", {"n": 3})
    rota.close()
    with pytest.raises(CopyRefused, match=r"holds 3 jobs|holds 1 templates, 3 jobs"):
        promoted(small, database)
    assert len(neutral(database, SETTINGS)["jobs"]) == 3
    assert not promoted(small, database, replace=True).already
    assert len(neutral(database, SETTINGS)["jobs"]) == 4


# ---- what is refused ----------------------------------------------------------------------------------------------


def test_a_target_that_holds_other_jobs_is_refused(small, tmp_path):
    other = opened(tmp_path / "other.db")
    other.enqueue("note")
    other.close()
    before = content(tmp_path / "other.db")
    with pytest.raises(CopyRefused, match=r"other\.db holds 1 templates, 1 jobs that are not those of .*small\.db"):
        promoted(small, tmp_path / "other.db")
    assert content(tmp_path / "other.db") == before
    plain(small).store.stats()


def test_an_empty_store_that_is_there_is_written_to(small, database, tmp_path):
    for place in (database, tmp_path / "empty.db"):
        rota = plain(place)
        rota.store.stats()
        rota.close()
        assert not promoted(small, place, keep=True).already
        assert neutral(place, SETTINGS) == neutral(small, SETTINGS)


def test_a_store_with_a_live_worker_is_refused(small, database):
    rota = opened(small)
    with rota.running():
        worker = rota.workers.list()[0]
        with pytest.raises(CopyRefused, match=rf"worker {worker.id} on {worker.host} is alive on .*small\.db: stop it first"):
            promoted(small, database)
    rota.close()
    assert not promoted(small, database).already


def test_a_target_with_a_live_worker_is_refused(small, database):
    rota = opened(database)
    with rota.running(), pytest.raises(CopyRefused, match="is alive on postgresql://"):
        promoted(small, database)
    rota.close()


def test_a_worker_elsewhere_is_seen_by_its_beat(small, database):
    rota = opened(small)
    store = rota._session.open().store
    worker = rota._session.ids.take(1, rota._session.clock.now())[0]
    store.register(worker, host="far.example", kind="worker", job_types=(), now=1)
    seen = []

    def beat(step):
        seen.append(step.what)
        if len(seen) == 2:
            store.beat(worker, job_types=())

    with pytest.raises(CopyRefused, match=rf"worker {worker} on far\.example is alive"):
        plain(small).store.promote(database, progress=beat)
    assert set(seen) == {"watching"}
    rota.close()


def test_a_worker_of_this_rota_that_only_turns_when_told_is_ended(small, database):
    rota = opened(small)
    rota.turn()
    rota.store.promote(database)
    assert rota.noted == [0, 1, 2]


def test_the_same_store_twice_is_refused(small, database, tmp_path):
    (tmp_path / "link.db").symlink_to(small)
    with pytest.raises(CopyRefused, match="are the same store"):
        promoted(small, tmp_path / "link.db")
    promoted(small, database)
    with pytest.raises(CopyRefused, match="are the same store"):
        promoted(database, database.replace("127.0.0.1", "localhost"))


def test_a_source_that_is_not_there_is_refused(database, tmp_path):
    for source, target in ((tmp_path / "none.db", database), (database, tmp_path / "none.db")):
        with pytest.raises(NotFound, match="there is no store at"):
            promoted(source, target)
    assert not (tmp_path / "none.db").exists()


def test_a_target_that_can_not_be_is_refused(small, tmp_path):
    with pytest.raises(StoreUnusable, match="does not exist: make it first"):
        promoted(small, tmp_path / "nowhere" / "x.db")


def cancel_saying(rota, job, reason):
    """Cancel a job as one who writes to the store by itself: Rota's own verbs refuse such a text."""
    rota._session.open().store.cancel(job.id.replace("-", ""), actor=ANNA, now=rota._session.clock.now(), reason=reason)


def test_a_text_that_postgresql_can_not_hold_is_named_before_anything_is_written(small, database):
    rota = opened(small)
    job = rota.enqueue("note", {"text": "\0 in params is JSON's matter"})
    cancel_saying(rota, job, "not \0 this")
    rota.close()
    with pytest.raises(CopyRefused, match=r"table jobs, number 4: reason has a NUL character.*--mend"):
        promoted(small, database)
    assert neutral(database, SETTINGS)["jobs"] == []
    done = promoted(small, database, mend=True)
    assert done.mended == 1
    moved = plain(database)
    assert moved.jobs.get(job.id).reason == "not \N{REPLACEMENT CHARACTER} this"
    assert moved.jobs.get(job.id).params == {"text": "\0 in params is JSON's matter"}
    moved.close()


def test_a_text_that_is_no_text_is_named_and_a_number_that_does_not_fit_is_noticed(small, database):
    raw = apsw.Connection(str(small))
    raw.execute("UPDATE jobs SET reason = CAST(x'ff41' AS TEXT) WHERE number = 2")
    with pytest.raises(CopyRefused, match="table jobs, row 2 in the order of number: a text in it is not UTF-8"):
        promoted(small, database)
    raw.execute("UPDATE jobs SET reason = NULL, snoozes = 5000000000 WHERE number = 2")
    with pytest.raises(StoreError, match="the copy is not the same in jobs"):
        promoted(small, database)
    assert neutral(database, SETTINGS)["jobs"] == []
    raw.close()


def test_between_files_a_nul_is_just_a_character(small, tmp_path):
    rota = opened(small)
    cancel_saying(rota, rota.enqueue("note"), "not \0 this")
    rota.close()
    before = content(small)
    promoted(small, tmp_path / "other.db")
    assert content(tmp_path / "other.db") == before


def test_a_copy_that_is_not_the_same_is_not_kept(small, database, monkeypatch):
    from rota.stores.postgres.copying import Writing

    write = Writing.write

    def forgetful(self, table, rows):
        write(self, table, rows[:-1] if table.name == "jobs" else rows)

    monkeypatch.setattr(Writing, "write", forgetful)
    with pytest.raises(Exception, match=r"the copy is not the same in jobs: 3 rows, .* but 2 rows"):
        promoted(small, database)
    assert neutral(database, SETTINGS)["jobs"] == []
    plain(small).store.stats()


def test_tables_of_others_stay_where_they_are_and_are_named(small, tmp_path):
    apsw.Connection(str(small)).execute("CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (7)")
    done = promoted(small, tmp_path / "other.db")
    assert done.left_out == ["orders"]
    promoted(tmp_path / "other.db", small)
    assert list(apsw.Connection(str(small)).execute("SELECT id FROM orders")) == [(7,)]


# ---- others meanwhile ---------------------------------------------------------------------------------------------


def test_who_enqueues_while_a_store_is_moved_waits_and_is_told(small, database):
    program = opened(small)
    program.enqueue("note", {"n": 3})
    outcome = []

    def enqueue():
        try:
            outcome.append(program.enqueue("note", {"n": 4}))
        except StoreMoved as error:
            outcome.append(error)

    late = threading.Thread(target=enqueue)

    def begin(step):
        if step.what == "copying" and not late.ident:
            late.start()
            late.join(0.3)
            assert late.is_alive()

    done = plain(small).store.promote(database, progress=begin)
    late.join(patient(20))
    assert isinstance(outcome[0], StoreMoved)
    assert done.tables["jobs"].rows == 4
    program.close()


def test_who_enqueues_while_a_store_is_only_copied_does_not_wait(small, database):
    program = opened(small)
    program.enqueue("note", {"n": 3})

    def enqueue(step):
        if step.what in {"copying", "verifying"}:
            program.enqueue("note", {"n": 4})

    done = plain(small).store.promote(database, keep=True, progress=enqueue)
    assert done.tables["jobs"].rows == 4
    assert len(neutral(database, SETTINGS)["jobs"]) == 4
    assert len(content(small)["jobs"]) > 4
    program.close()


def test_who_has_the_store_in_a_transaction_is_waited_for(small, database):
    program = opened(small)
    impatient = Settings(schema=SCHEMA, lease_ttl=1, busy_timeout=0.2)
    with program.transaction() as tx:
        program.enqueue("note", transaction=tx)
        with pytest.raises(StoreBusy):
            Rota(small, settings=impatient).store.promote(database)
    program.close()
    assert promoted(small, database).tables["jobs"].rows == 4


@pytest.mark.parametrize("step", ["copying", "verifying"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_connection_that_is_lost_on_the_way_leaves_both_sides_as_they_were(small, database, tmp_path, step, back):
    promoted(small, database) if back else None
    source, target = (database, tmp_path / "back.db") if back else (small, database)
    before = neutral(source, SETTINGS)

    def cut(now):
        if (now.what, now.table) == (step, "jobs"):
            with shared_server().connect() as raw:
                # All of them: who reads, who writes, and who keeps others out.
                raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'")

    with pytest.raises(StoreUnavailable):
        promoted(source, target, progress=cut)
    assert not (tmp_path / "back.db").exists()
    assert back or neutral(database, SETTINGS)["jobs"] == []
    assert neutral(source, SETTINGS) == before
    assert not promoted(source, target).already


def test_a_lock_that_is_lost_on_the_way_is_noticed_before_the_copy_is_kept(small, database, tmp_path):
    promoted(small, database)

    def cut(now):
        if (now.what, now.table) == ("verifying", "jobs"):
            with shared_server().connect() as raw:
                raw.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")

    with pytest.raises(StoreUnavailable):
        promoted(database, tmp_path / "back.db", progress=cut)
    assert not (tmp_path / "back.db").exists()
    opened(database).enqueue("note")


@pytest.mark.parametrize("there", ["file", "database"])
def test_a_worker_that_wakes_up_after_the_move_can_not_renew_its_lease(small, database, tmp_path, there):
    if there == "database":
        promoted(small, database)
    source, target = (small, database) if there == "file" else (database, tmp_path / "back.db")
    rota = opened(source)
    store = rota._session.open().store
    worker = rota._session.ids.take(1, 1)[0]
    store.register(worker, host="far.example", kind="worker", job_types=(), now=1)
    promoted(source, target)
    with pytest.raises(StoreMoved):
        store.beat(worker, job_types=())
    store.end_worker(worker, now=2)


# ---- who may, and how it is told ----------------------------------------------------------------------------------


def test_only_a_system_manager_may(small, database):
    rota = opened(small)
    rota.users.create("root", role="system_manager")
    rota.users.create("ada", role="admin")
    rota.close()
    with pytest.raises(PermissionDenied, match="'ada'"):
        promoted(small, database, actor="ada")
    promoted(small, database, actor="root")
    with pytest.raises(PermissionDenied, match="'ada'"):
        plain(small).acting_as("ada").store.reopen()
    with pytest.raises(PermissionDenied, match="'ada'"):
        promoted(small, database, actor="ada")
    assert promoted(small, database, actor="root").already


def test_the_target_asks_its_own_gate_before_it_is_replaced(small, tmp_path):
    other = opened(tmp_path / "other.db")
    other.users.create("owner", role="system_manager")
    other.close()
    with pytest.raises(PermissionDenied, match="'root' is no user of this store"):
        promoted(small, tmp_path / "other.db", replace=True, actor="root")


@pytest.fixture
def cli(tmp_path, small, database):
    made = Cli(tmp_path)
    made.env |= {"ROTA_SCHEMA": SCHEMA, "ROTA_LEASE_TTL": "1"}
    yield made
    made.close()


def test_the_command_says_what_it_did_and_what_to_do_next(cli, small, database):
    result = cli("promote", str(small), database)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert f"has everything that {small} held: all {len(TABLES)} tables and the order of the queue are the same on both sides" in words
    assert f"{small} is closed" in words
    assert f"ROTA_STORE={database}" in words
    assert "copying jobs" in result.stderr
    assert "verifying jobs" in result.stderr
    assert "held the same already" in cli.ok("promote", str(small), database)


def test_the_command_names_a_path_with_blanks_as_a_shell_takes_it(cli, small, tmp_path):
    words = cli.ok("promote", str(small), str(tmp_path / "my shop.db"))
    assert words.splitlines()[-1].endswith(f"ROTA_STORE='{tmp_path / 'my shop.db'}'")


def test_the_command_goes_back_and_has_json(cli, small, database):
    cli.ok("promote", str(small), database)
    told = cli.json("promote", database, str(small))
    assert (told["already"], told["closed"], told["tables"]["jobs"]["rows"]) == (True, True, 3)
    assert told["target"] == str(small)


def test_with_one_store_named_the_source_is_the_usual_one(cli, small, database):
    told = cli.json("promote", database, "--store", str(small), "--keep")
    assert (told["source"], told["closed"]) == (str(small), False)
    assert "stays open" in cli.ok("promote", str(small), database, "--keep")


def test_the_command_refuses_in_one_line(cli, small, database, tmp_path):
    for arguments, code, words in (
        (("promote", str(tmp_path / "none.db"), database), 3, "there is no store at"),
        (("promote", "a", "b", "c"), 2, "give a source and a target"),
        (("promote", "a", "b", "--store", "c"), 2, "named twice"),
        (("promote", str(small), str(small)), 1, "are the same store"),
        (("promote", str(small), "mysql://x"), 2, "mysql:// is not a store"),
    ):
        result = cli(*arguments)
        assert result.exit_code == code, result.output
        assert words in " ".join(result.stderr.split())


def test_no_password_is_shown_or_kept(cli, small, database):
    secret = database.replace("postgres@", "postgres:hush-hush@")
    shown = cli("promote", str(small), secret)
    assert shown.exit_code == 0
    again = cli("promote", str(small), secret, "--json")
    refused = cli("stats", "--store", str(small))
    assert "hush-hush" not in shown.output + again.output + refused.output
    assert "hush-hush" not in repr(neutral(small, SETTINGS)) + repr(content(small))


def test_a_moved_store_is_one_line_for_every_command_until_it_is_reopened(cli, small, database):
    cli.ok("promote", str(small), database)
    result = cli("stats", "--store", str(small))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "(store_moved)" in result.stderr
    assert "is open again" in cli.ok("reopen", "--store", str(small))
    cli.ok("stats", "--store", str(small))


def test_on_a_terminal_there_is_a_bar(cli, small, database):
    pty = pytest.importorskip("pty")
    import os

    ours, theirs = pty.openpty()
    environment = cli.environment() | {"TERM": "xterm"}
    command = [sys.executable, "-m", "rota", "promote", str(small), database]
    done = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert done.wait(patient(30)) == 0
    done.stdout.close()
    assert "━".encode() in shown
