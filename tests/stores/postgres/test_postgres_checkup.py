"""What the check-up says of a server and of what is ours in it. Each trouble is made for real."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from rota.model.findings import State
from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore, checkup
from rota.stores.postgres.grants import statements
from rota.stores.postgres.migrate import expected, latest
from tests.stores.desk import Desk
from tests.support.postgres import fresh_database, make_server
from tests.support.waiting import eventually

NOW = 1_772_366_400_000_000


@pytest.fixture(scope="module")
def server():
    """A server with the settings that it comes with: nothing is tuned away."""
    made = make_server(max_prepared_transactions="5", autovacuum_naptime="1h")
    yield made
    made.throw_away()


@pytest.fixture
def database(server):
    with fresh_database(server) as url:
        yield url.rpartition("/")[2]


@pytest.fixture
def raw(server, store, database):
    with server.connect(database, options="-c search_path=rota") as connected:
        yield connected


@pytest.fixture
def store(server, database):
    made = PostgresStore(server.url(database), Settings())
    made.migrate(now=0)
    yield made
    made.close()


@pytest.fixture
def look(server, store, database):
    """Look with a connection of its own, so that settings of roles and databases are in force."""

    def find(name, *, user="postgres", clock=None, **settings):
        fresh = PostgresStore(server.url(database, user), Settings(**settings))
        try:
            found = fresh.checkup(now=NOW, machine=clock or (lambda: server_time(server)), full=True)
        finally:
            fresh.close()
        return [each for each in found if each.name == name]

    return find


def server_time(server):
    with server.connect() as raw:
        return int(raw.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000000").fetchone()[0])


def one(found, state, *words):
    (each,) = found
    assert each.state is state, each
    for word in words:
        assert word in f"{each.text} → {each.remedy}"


def test_a_sound_server_is_told_so(server, store):
    found = store.checkup(now=NOW, machine=lambda: server_time(server), full=False)
    assert {each.name for each in found if each.state is not State.OK} == set()
    assert len(found) == 22


def test_the_list_of_what_should_be_there_is_what_the_migrations_make(raw):
    """Read from the text of the migrations, and from a schema that they made."""
    tables = {row[0] for row in raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'rota'")}
    views = {row[0] for row in raw.execute("SELECT viewname FROM pg_views WHERE schemaname = 'rota'")}
    indexes = {(row[0], row[1]) for row in raw.execute("SELECT indexname, tablename FROM pg_indexes WHERE schemaname = 'rota'")}
    triggers = set(
        raw.execute(
            "SELECT tgname, relname FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid WHERE NOT tgisinternal"
            " AND relnamespace = 'rota'::regnamespace"
        ).fetchall()
    )
    assert (expected().tables, expected().views) == (tables, views)
    assert {(name, table) for name, (table, _) in expected().indexes.items()} == indexes
    assert {(name, table) for name, (table, _) in expected().triggers.items()} == triggers


# ---- the server -----------------------------------------------------------------------------------------------------


def test_a_standby_takes_no_writes(server, look):
    server.stop()
    (server.data / "standby.signal").touch()
    try:
        server.start()
        one(look("server", clock=lambda: NOW), State.PROBLEM, "is a standby", "promote it")
    finally:
        server.stop("immediate")
        (server.data / "standby.signal").unlink()
        server.start()


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_settings_that_lose_jobs_are_problems(server, look, name):
    with altered(server, name, "off"):
        one(look("durability"), State.PROBLEM, f"{name} is off", f"set {name} = on")
    one(look("durability"), State.OK)


@contextmanager
def altered(server, name, value):
    """Set something for the whole server."""
    with server.connect() as raw:
        raw.execute(f"ALTER SYSTEM SET {name} = {value}")
        raw.execute("SELECT pg_reload_conf()")
    with server.connect() as raw:
        eventually(lambda: raw.execute(f"SHOW {name}").fetchone()[0] == value)
    try:
        yield
    finally:
        with server.connect() as raw:
            raw.execute(f"ALTER SYSTEM RESET {name}")
            raw.execute("SELECT pg_reload_conf()")
            eventually(lambda: raw.execute(f"SHOW {name}").fetchone()[0] != value)


@pytest.mark.parametrize(
    ("setting", "state", "words"),
    [
        ("synchronous_commit = off", None, ()),
        ("default_transaction_isolation = 'serializable'", State.ADVICE, ("'serializable'", "read committed")),
        ("statement_timeout = '5s'", State.ADVICE, ("statement_timeout is 5 s",)),
        ("session_replication_role = replica", State.PROBLEM, ("triggers", "session_replication_role")),
        ("default_transaction_read_only = on", State.PROBLEM, ("nothing can be written",)),
    ],
)
def test_settings_of_a_role_or_database_are_seen(server, look, database, setting, state, words):
    with server.connect() as raw:
        raw.execute(f"ALTER DATABASE {database} SET {setting}")
    if state is None:
        one(look("durability"), State.PROBLEM, "synchronous_commit is off")
        return
    found = [each for each in look("session") if each.state is not State.OK]
    one(found, state, *words)


def test_more_workers_than_connections(store, look):
    desk = Desk(store)
    store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    one(look("connections"), State.OK, "room for 97", "1 live workers open 13")
    one(look("connections", pool_size=200), State.PROBLEM, "open 203", "pool_size")


def test_the_limit_of_a_database_counts(server, store, look, database):
    desk = Desk(store)
    store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    with server.connect() as raw:
        raw.execute(f"ALTER DATABASE {database} CONNECTION LIMIT 8")
    one(look("connections"), State.PROBLEM, "room for 8", "limit of this role or database")


def test_few_connections_are_left(look, monkeypatch):
    monkeypatch.setattr(checkup, "CROWDED_SHARE", 0.0)
    one(look("connections"), State.ADVICE, "max_connections")


def test_a_connection_over_the_network_wants_encryption(look, monkeypatch):
    one(look("encryption"), State.OK)
    monkeypatch.setattr(checkup, "LOCAL", ())
    one(look("encryption"), State.ADVICE, "127.0.0.1 is not encrypted", "sslmode=verify-full")


def test_a_transaction_that_was_forgotten(look, raw, monkeypatch):
    monkeypatch.setattr(checkup, "IDLE_S", 0.0)
    with raw.transaction():
        raw.execute("SELECT 1")
        one(look("transactions"), State.ADVICE, f"session {raw.info.backend_pid}", "idle in a transaction", "pg_terminate_backend")
    one(look("transactions"), State.OK)


def test_a_transaction_that_goes_on_and_on(look, raw, monkeypatch):
    monkeypatch.setattr(checkup, "LONG_S", 0.0)
    with raw.transaction():
        raw.execute("SELECT 1")
        one(look("transactions"), State.ADVICE, "open for", "vacuum")


def test_somebody_who_keeps_the_door_shut(look, raw, store, monkeypatch):
    monkeypatch.setattr(checkup, "HOLDING_S", 0.0)
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", store.address.key(1))
        one(look("transactions"), State.PROBLEM, "holds a lock of this store", "pg_terminate_backend")


def test_a_prepared_transaction_that_was_forgotten(look, raw, monkeypatch):
    raw.execute("BEGIN; CREATE TABLE public.mine (a integer); PREPARE TRANSACTION 'lost'")
    try:
        one(look("prepared transactions"), State.OK)
        monkeypatch.setattr(checkup, "IDLE_S", -1.0)
        one(look("prepared transactions"), State.PROBLEM, "'lost'", "ROLLBACK PREPARED 'lost'")
    finally:
        raw.execute("ROLLBACK PREPARED 'lost'")


def test_a_slot_that_nobody_reads(look, raw):
    raw.execute("SELECT pg_create_physical_replication_slot('left', true)")
    try:
        one(look("replication slots"), State.ADVICE, "left", "pg_drop_replication_slot('left')")
    finally:
        raw.execute("SELECT pg_drop_replication_slot('left')")
    one(look("replication slots"), State.OK)


def test_transaction_ids_that_run_out(look, monkeypatch):
    monkeypatch.setattr(checkup, "AGE_ADVICE", 0)
    one(look("transaction ids"), State.ADVICE, "autovacuum")
    monkeypatch.setattr(checkup, "AGE_PROBLEM", 0)
    one(look("transaction ids"), State.PROBLEM, "VACUUM")


def test_a_clock_that_is_an_hour_off(look, server):
    hour = 3_600_000_000
    one(look("clock", clock=lambda: server_time(server) + hour), State.ADVICE, "60 min ahead of the server's", "NTP")
    one(look("clock", clock=lambda: server_time(server) - hour), State.ADVICE, "60 min behind the server's")
    one(look("clock", clock=lambda: server_time(server) + 5_000_000), State.ADVICE, " s ahead of")
    one(look("clock"), State.OK, "give or take")


# ---- what is ours ---------------------------------------------------------------------------------------------------


def test_an_index_that_is_missing_comes_with_the_words_that_make_it(look, raw):
    raw.execute("DROP INDEX live_ready")
    (found,) = look("indexes")
    one([found], State.PROBLEM, "index live_ready of job_live is missing")
    raw.execute(found.remedy)
    one(look("indexes"), State.OK)


def test_a_primary_key_that_is_missing(look, raw):
    raw.execute("ALTER TABLE run_notes DROP CONSTRAINT run_notes_pkey")
    one(look("indexes"), State.PROBLEM, "run_notes_pkey", "run_notes")


def test_an_index_that_is_invalid(look, raw):
    raw.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ends_finished'::regclass")
    (found,) = look("indexes")
    one([found], State.PROBLEM, "ends_finished is invalid")
    raw.execute(found.remedy)
    one(look("indexes"), State.OK)


@pytest.mark.parametrize("how", ["DISABLE", "ENABLE REPLICA"])
def test_a_trigger_that_is_off(look, raw, how):
    raw.execute(f"ALTER TABLE job_live {how} TRIGGER live_changed")
    (found,) = look("triggers")
    one([found], State.PROBLEM, "trigger live_changed of job_live is off")
    raw.execute(found.remedy)
    one(look("triggers"), State.OK)


def test_a_trigger_that_is_missing_comes_with_the_words_that_make_it(look, raw):
    raw.execute("DROP TRIGGER ends_final ON job_ends")
    (found,) = look("triggers")
    one([found], State.PROBLEM, "ends_final of job_ends is missing")
    raw.execute(found.remedy)
    one(look("triggers"), State.OK)


def test_a_table_that_a_crash_would_empty(look, raw):
    raw.execute("ALTER TABLE outbox SET UNLOGGED")
    (found,) = look("schema")
    one([found], State.PROBLEM, "outbox is unlogged")
    raw.execute(found.remedy)
    one(look("schema"), State.OK, f"version {latest()} of {latest()}")


@pytest.mark.parametrize("name", ["autovacuum", "track_counts"])
def test_vacuum_that_was_turned_off(server, look, name):
    with altered(server, name, "off"):
        one(look("vacuum"), State.PROBLEM, f"{name} is off")


def test_a_table_that_vacuum_leaves_out(look, raw):
    raw.execute("ALTER TABLE job_live SET (autovacuum_enabled = false)")
    (found,) = look("vacuum")
    one([found], State.PROBLEM, "autovacuum leaves job_live out")
    raw.execute(found.remedy)
    one(look("vacuum"), State.OK)


def test_dead_rows_that_pile_up(look, raw, monkeypatch):
    monkeypatch.setattr(checkup, "DEAD_MIN", 100)
    raw.execute("INSERT INTO queue_clock SELECT n, n FROM generate_series(1, 200) AS n")
    raw.execute("UPDATE queue_clock SET position = position + 1; UPDATE queue_clock SET position = position + 1")
    raw.close()  # figures of a session are sent when it ends, at the latest
    eventually(lambda: look("vacuum")[0].state is State.ADVICE)
    one(look("vacuum"), State.ADVICE, "queue_clock has", "dead rows", "never", "VACUUM")


def test_a_table_that_is_mostly_air(look, raw, monkeypatch):
    one(look("size"), State.OK, "job_live")
    monkeypatch.setattr(checkup, "LOOSE_MIN_BYTES", 10_000)
    monkeypatch.setattr(checkup, "LOOSE_TIMES", 1)
    raw.execute("INSERT INTO queue_clock SELECT n, n FROM generate_series(1, 5000) AS n")
    raw.execute("DELETE FROM queue_clock")
    raw.close()
    eventually(lambda: any("queue_clock takes" in each.text and "about 0 rows" in each.text for each in look("size")))
    assert all(each.state is State.ADVICE for each in look("size"))


def test_what_a_role_may_do_is_said(look, raw):
    raw.execute("DROP ROLE IF EXISTS nurse")
    raw.execute("CREATE ROLE nurse LOGIN; GRANT USAGE ON SCHEMA rota TO nurse; GRANT SELECT ON ALL TABLES IN SCHEMA rota TO nurse")
    try:
        one(look("rights", user="nurse"), State.ADVICE, "role 'nurse' can read", "a worker would lack INSERT on", "rota grants nurse")
        raw.execute("REVOKE SELECT ON audit FROM nurse")
        one(look("rights", user="nurse"), State.PROBLEM, "can neither submit nor read")
    finally:
        raw.execute("DROP OWNED BY nurse; DROP ROLE nurse")


def test_a_role_whose_grants_are_older_than_the_schema_is_named_to_the_owner(look, raw):
    raw.execute("DROP ROLE IF EXISTS nurse; DROP ROLE IF EXISTS clerk")
    raw.execute("CREATE ROLE nurse LOGIN; CREATE ROLE clerk LOGIN; GRANT SELECT ON rota.jobs TO clerk")
    for statement in statements("worker", "nurse", "rota"):
        raw.execute(statement)
    try:
        one(look("rights"), State.OK, "work, submit and read")
        # As after an upgrade that has added a table, and another that workers write to.
        raw.execute("REVOKE ALL ON rota.schedule_reports FROM nurse; REVOKE INSERT ON rota.lanes FROM nurse")
        one(
            look("rights"),
            State.ADVICE,
            "role 'nurse' has the grants of a worker, but lacks",
            "SELECT on schedule_reports",
            "INSERT on lanes",
            "`rota grants nurse --kind worker`",
        )
    finally:
        raw.execute("DROP OWNED BY nurse; DROP ROLE nurse; DROP OWNED BY clerk; DROP ROLE clerk")


def test_a_role_that_may_see_little_gets_the_rest(look, raw):
    raw.execute("DROP ROLE IF EXISTS nurse")
    raw.execute("CREATE ROLE nurse LOGIN; GRANT USAGE ON SCHEMA rota TO nurse; GRANT SELECT ON rota.meta TO nurse")
    try:
        one(look("outbox", user="nurse"), State.PROBLEM, "could not be looked at: permission denied for table outbox")
        one(look("indexes", user="nurse"), State.OK)
        one(look("server", user="nurse"), State.OK)
    finally:
        raw.execute("DROP OWNED BY nurse; DROP ROLE nurse")


def test_nothing_is_changed_by_looking(server, look, database):
    with server.connect() as raw:
        raw.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    for name in ("server", "indexes", "triggers", "size", "due jobs", "outbox", "rights"):
        one(look(name), State.OK)


def test_several_servers_and_a_guard_that_a_failover_outlasts(server, store, database):
    def look(url, **settings):
        with closing(PostgresStore(url, Settings(**settings))) as fresh:
            found = fresh.checkup(now=NOW, machine=lambda: server_time(server), full=True)
        [finding] = [each for each in found if each.name == "failover"]
        return finding

    one = server.url(database)
    several = one.replace(f"127.0.0.1:{server.port}", f"127.0.0.1:{server.port},127.0.0.1:1")
    assert several != one
    assert look(one).state is State.OK
    found = look(several)
    assert found.state is State.ADVICE
    assert "after 20 s" in found.text
    assert "lease_ttl=60 and lease_guard=40" in found.remedy
    assert look(several, lease_ttl=60).state is State.OK
    assert look(several, lease_ttl=60, lease_guard=39).state is State.ADVICE
