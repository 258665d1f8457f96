"""Every way in which a server can say no: one line, with the remedy, of the right class."""

from __future__ import annotations

import socket
import threading
import traceback
from contextlib import contextmanager, suppress
from urllib.parse import quote

import psycopg
import pytest

from rota.errors import InvalidOption, StoreBusy, StoreUnavailable, StoreUnusable
from rota.model.settings import Settings
from rota.stores.postgres import PostgresStore, connection, migrate
from rota.stores.postgres.address import address
from tests.support.pace import patient
from tests.support.postgres import free_port, make_server, shared_server

SECRET = "hush-7f3a"
HBA = (
    "host postgres postgres 127.0.0.1/32 trust",
    "host postgres,jobs ada 127.0.0.1/32 scram-sha-256",
    "host jobs refused 127.0.0.1/32 reject",
    "hostssl tls all 127.0.0.1/32 trust",
    "host all nobody,sleeper,crowded,outsider 127.0.0.1/32 trust",
    "host nowhere,shut,private postgres,outsider 127.0.0.1/32 trust",
)


@pytest.fixture(scope="module")
def strict():
    """A server that looks at who comes."""
    server = make_server(fsync="off", max_connections="10", superuser_reserved_connections="1")
    with server.connect() as raw:
        raw.execute(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'")
        raw.execute("CREATE ROLE sleeper NOLOGIN")
        raw.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        raw.execute("CREATE ROLE outsider LOGIN")
        raw.execute("CREATE DATABASE jobs OWNER ada")
        raw.execute("CREATE DATABASE shut ALLOW_CONNECTIONS false")
        raw.execute("CREATE DATABASE private")
        raw.execute("REVOKE CONNECT ON DATABASE private FROM public")
    server.allow(*HBA)
    yield server
    server.throw_away()


def refusal(url, **settings):
    """Open a store and return the error that says why that is not possible."""
    store = PostgresStore(url, Settings(**settings))
    try:
        store.migrate(now=0)
    except (StoreUnavailable, StoreUnusable) as error:
        return error
    finally:
        store.close()
    raise AssertionError(f"{url} was opened")


def check(error, kind, *words):
    text = str(error)
    assert type(error) is kind, text
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("user", "database", "kind", "words"),
    [
        ("ada:wrong", "jobs", StoreUnusable, ("password authentication failed", "~/.pgpass")),
        ("ada", "jobs", StoreUnusable, ("no password supplied", "ROTA_STORE")),
        ("postgres", "nowhere", StoreUnusable, ('database "nowhere" does not exist', "createdb")),
        ("nobody", "postgres", StoreUnusable, ('role "nobody" does not exist', "CREATE ROLE")),
        ("sleeper", "postgres", StoreUnusable, ("is not permitted to log in", "LOGIN")),
        ("crowded", "postgres", StoreUnavailable, ("too many connections for role", "pool_size")),
        ("refused", "jobs", StoreUnusable, ("pg_hba.conf rejects", "pg_hba.conf allow")),
        ("postgres", "jobs", StoreUnusable, ("no pg_hba.conf entry", "pg_hba.conf allow this host, user and database")),
        ("postgres", "tls", StoreUnusable, ("no pg_hba.conf entry", "sslmode=require")),
        ("postgres", "postgres?sslmode=require", StoreUnusable, ("does not support SSL", "sslmode")),
        ("postgres", "shut", StoreUnusable, ("not currently accepting", "ALLOW_CONNECTIONS")),
        ("outsider", "private", StoreUnusable, ("permission denied for database", "GRANT CONNECT")),
        ("postgres", "postgres?target_session_attrs=standby", StoreUnavailable, ("standby", "target_session_attrs")),
        ("postgres", "postgres?options=-c%20nonsense%3D1", StoreUnusable, ("nonsense", "options in the URL")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_that_refuses_is_quoted_with_the_remedy(strict, user, database, kind, words):
    error = refusal(f"postgresql://{user}@127.0.0.1:{strict.port}/{database}")
    place = database.partition("?")[0]
    check(error, kind, f"postgresql://{user.partition(':')[0]}@127.0.0.1:{strict.port}/{place}", *words)
    assert isinstance(error.__cause__, psycopg.Error)


def test_a_server_that_is_full_can_have_room_again(strict):
    with no_room(strict):
        check(refusal(f"postgresql://ada:{SECRET}@127.0.0.1:{strict.port}/jobs"), StoreUnavailable, "too many clients", "max_connections")


@contextmanager
def no_room(server):
    taken = []
    try:
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(server.connect())
        yield
    finally:
        for raw in taken:
            raw.close()


def test_nobody_listens():
    check(refusal(f"postgresql://ada@127.0.0.1:{free_port()}/jobs"), StoreUnavailable, "Connection refused", "See that a server runs there")


def test_a_name_that_nobody_knows():
    check(refusal("postgresql://ada@no-such-host.invalid/jobs"), StoreUnavailable, "no-such-host.invalid", "host's name is right")


def test_a_socket_that_is_not_there():
    check(refusal("postgresql:///jobs?host=/nonexistent"), StoreUnavailable, "No such file or directory", "See that a server runs there")


def test_a_service_that_nobody_has_defined():
    check(refusal("postgresql:///?service=nothing"), StoreUnusable, '"nothing" not found', "options in the URL")


@contextmanager
def listener(reply):
    """Somebody who listens but speaks no PostgreSQL; None: who says nothing."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        over = threading.Event()

        def answer():
            with door.accept()[0] as guest:
                if reply is None:
                    over.wait(patient(30))
                else:
                    guest.recv(100)
                    guest.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", StoreUnusable, "What listens there is not PostgreSQL"),
        (b"", StoreUnavailable, "closed the connection unexpectedly"),
        (None, StoreUnavailable, "timeout expired"),
    ],
    ids=["speaks HTTP", "hangs up", "says nothing"],
)
def test_what_listens_is_no_server(reply, kind, words):
    with listener(reply) as port:
        check(refusal(f"postgresql://ada@127.0.0.1:{port}/jobs?connect_timeout=2"), kind, words)


def test_of_several_servers_each_says_its_own(strict):
    closed = free_port()
    error = refusal(f"postgresql://nobody@127.0.0.1:{strict.port},127.0.0.1:{closed}/postgres")
    check(error, StoreUnavailable, f'127.0.0.1:{strict.port}: role "nobody" does not exist', f"127.0.0.1:{closed}: Connection refused")


def test_several_servers_with_the_same_complaint_say_it_once():
    error = refusal(f"postgresql://ada@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/jobs")
    assert str(error).count("Connection refused") == 1


# ---- what is there, but can't be used -------------------------------------------------------------------------------


@pytest.fixture
def database():
    """A database of the test's own."""
    server, name = shared_server(), "refusals"
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        raw.execute(f"CREATE DATABASE {name}")
    yield name
    with server.connect() as raw:
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def raw(database):
    with shared_server().connect(database) as connected:
        yield connected


@pytest.fixture
def role(raw):
    """A role that may do nothing yet."""
    raw.execute("DROP ROLE IF EXISTS guest")
    raw.execute("CREATE ROLE guest LOGIN")
    yield "guest"
    raw.execute("DROP OWNED BY guest CASCADE; DROP ROLE guest")


def test_a_server_that_is_too_old(database, monkeypatch):
    monkeypatch.setattr(connection, "OLDEST_SERVER", 990000)
    check(refusal(shared_server().url(database)), StoreUnusable, "Rota needs 99 or later", "upgrade the server")


def test_a_database_that_can_not_hold_every_letter():
    server = shared_server()
    with server.connect() as raw:
        raw.execute("DROP DATABASE IF EXISTS narrow WITH (FORCE)")
        raw.execute("CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0")
    check(refusal(server.url("narrow")), StoreUnusable, "SQL_ASCII", "UTF8")
    with server.connect() as raw:
        raw.execute("DROP DATABASE narrow WITH (FORCE)")


def test_a_role_that_may_not_make_the_schema(database, role):
    error = refusal(shared_server().url(database, role))
    check(error, StoreUnusable, "no schema 'rota'", "role 'guest' may not make it", "CREATE SCHEMA rota AUTHORIZATION guest")


def test_a_role_that_may_not_make_tables_in_a_schema_that_is_there(database, raw, role):
    raw.execute("CREATE SCHEMA rota; GRANT USAGE ON SCHEMA rota TO guest")
    error = refusal(shared_server().url(database, role))
    check(error, StoreUnusable, "may not make tables in schema 'rota'", "GRANT CREATE ON SCHEMA rota TO guest", "'postgres'")


def test_the_owner_of_a_schema_needs_no_right_on_the_database(database, raw, role):
    raw.execute("CREATE SCHEMA rota AUTHORIZATION guest")
    store = PostgresStore(shared_server().url(database, role), Settings())
    store.migrate(now=0)
    assert store.workers() == []
    store.close()


def test_a_role_that_may_not_look_into_the_schema(database, raw, role):
    ready(database)
    check(refusal(shared_server().url(database, role)), StoreUnusable, "may not look into schema 'rota'", "`rota grants`")


def test_a_role_that_may_look_but_not_read(database, raw, role):
    ready(database)
    raw.execute("GRANT USAGE ON SCHEMA rota TO guest")
    check(refusal(shared_server().url(database, role)), StoreUnusable, "permission denied for table meta", "`rota grants`")


def test_a_schema_that_needs_its_owner_to_be_brought_up_to_date(database, raw, role, monkeypatch):
    ready(database)
    raw.execute("GRANT USAGE, CREATE ON SCHEMA rota TO guest; GRANT SELECT ON rota.meta TO guest")
    more = migrate.migrations() | {migrate.latest() + 1: "CREATE TABLE added (one bigint PRIMARY KEY);"}
    monkeypatch.setattr(migrate, "migrations", lambda: more)
    error = refusal(shared_server().url(database, role))
    check(error, StoreUnusable, "does not own it", "run `rota stats` once as 'postgres'", "nothing was changed")


def test_a_schema_made_by_a_newer_rota(database, raw):
    ready(database)
    raw.execute("UPDATE rota.meta SET value = 99 WHERE key = 'schema'")
    check(refusal(shared_server().url(database)), StoreUnusable, "newer Rota (schema 99", "upgrade Rota", "nothing was changed")


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE rota.users (id integer)",
        "CREATE TABLE rota.meta (id integer)",
        "CREATE VIEW rota.jobs AS SELECT 1",
        "CREATE FUNCTION rota.hex(id uuid) RETURNS text LANGUAGE sql AS 'SELECT 1::text'",
        "CREATE SEQUENCE rota.job_numbers",
        "CREATE TYPE rota.outbox AS (a integer)",
    ],
)
def test_what_a_stranger_has_in_the_schema_is_left_alone(database, raw, made):
    raw.execute(f"CREATE SCHEMA rota; {made}")
    before = everything(raw)
    check(refusal(shared_server().url(database)), StoreUnusable, "Rota did not make", "setting schema", "nothing was changed")
    assert everything(raw) == before


def test_a_strangers_other_tables_are_no_trouble(database, raw):
    raw.execute("CREATE TABLE public.invoices (id integer)")
    store = PostgresStore(shared_server().url(database), Settings(schema="public"))
    store.migrate(now=0)
    assert store.workers() == []
    store.close()


def test_the_schema_may_be_called_by_a_word_of_sqls_own(database, raw):
    ready(database, schema="user")
    assert raw.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'user'").fetchone()[0] > 20


def test_two_schemas_of_one_database_do_not_know_of_each_other(database):
    one, two = ready(database, schema="one"), ready(database, schema="two")
    assert one.address.key(1) != two.address.key(1)


@pytest.mark.parametrize("name", ["", "Rota", "1a", "a-b", 'a"b', "pg_rota", "x" * 64])
def test_a_schema_has_a_plain_name(name):
    with pytest.raises(InvalidOption, match="plain name"):
        address("postgresql://h/db", name)


def ready(database, **settings):
    store = PostgresStore(shared_server().url(database), Settings(**settings))
    store.migrate(now=0)
    store.close()
    return store


def everything(raw):
    return raw.execute("SELECT oid, relname FROM pg_class WHERE relnamespace = 'rota'::regnamespace ORDER BY oid").fetchall()


# ---- on a connection that was there ---------------------------------------------------------------------------------


@pytest.fixture
def open_store(database):
    store = PostgresStore(shared_server().url(database), Settings(busy_timeout=0.2))
    store.migrate(now=0)
    yield store
    store.close()


def test_a_table_that_somebody_has_dropped(open_store, raw):
    raw.execute("DROP TABLE rota.pauses")
    with pytest.raises(StoreUnusable, match=r"not what Rota made.*pauses.*`rota doctor`"):
        open_store.pauses()


def test_a_pooler_that_hands_sessions_on(open_store):
    open_store.definitions()
    with open_store._pool.take() as db:
        db.raw.pgconn.exec_(b"DEALLOCATE ALL")
    with pytest.raises(StoreUnusable, match="pool_mode = session"):
        open_store.definitions()


def test_somebody_who_holds_the_store_for_too_long(open_store, raw):
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", open_store.address.key(1))
        with pytest.raises(StoreBusy, match="busy_timeout"):
            open_store.recovered(now=1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [("default_transaction_read_only = on", "takes no writes now"), ("statement_timeout = '50ms'", "statement_timeout of this role")],
)
def test_a_server_that_breaks_off_may_do_better_later(database, open_store, raw, setting, words):
    raw.execute(f"ALTER DATABASE {database} SET {setting}")
    fresh = PostgresStore(shared_server().url(database), Settings(busy_timeout=5))
    with raw.transaction():
        raw.execute(
            "SELECT pg_advisory_xact_lock(%s::int, %s::int)" if "timeout" in setting else "SELECT %s + %s", open_store.address.key(1)
        )
        with pytest.raises(StoreUnavailable, match=words):
            fresh.recovered(now=1)
    fresh.close()


# ---- passwords ------------------------------------------------------------------------------------------------------

PLACES = [
    "postgresql://ada:{}@127.0.0.1:1/jobs",
    "postgresql://127.0.0.1:1/jobs?user=ada&password={}",
    "postgresql://ada:{}@a.invalid/jobs",
]
PLACES += ["postgresql://ada:{}@127.0.0.1:1,127.0.0.1:2/jobs", "postgresql://ada:{}@127.0.0.1:1/jobs?sslpassword={}"]


@pytest.mark.parametrize("place", PLACES)
def test_no_error_and_no_frame_holds_the_password(place, caplog):
    caplog.set_level(0)
    error = refusal(place.format(SECRET, SECRET))
    told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    # The test itself holds it, of course.
    own = [line for line in told.splitlines() if "url = " in line or "place" in line]
    said = "\n".join(line for line in told.splitlines() if line not in own) + caplog.text
    assert SECRET not in said
    for each in (error, error.__cause__):
        assert SECRET not in f"{each!r} {each} {vars(each)} {getattr(each, 'pgconn', None)!r}"
    assert error.__context__ is None


def test_a_wrong_password_is_not_repeated_by_the_server_or_the_driver(strict, caplog):
    caplog.set_level(0)
    error = refusal(f"postgresql://ada:not-{SECRET}@127.0.0.1:{strict.port}/jobs")
    assert SECRET not in f"{error} {error.__cause__!r} {vars(error.__cause__)} {caplog.text}"


@pytest.mark.parametrize(
    "password",
    ["hu%zzsh", "hu@sh", "hu/sh", "hu?sh", "hu:5/sh", "hu sh"],
    ids=["percent", "at", "slash", "question", "port", "space"],
)
def test_a_password_that_is_not_encoded_is_refused_without_being_shown(password):
    with pytest.raises(InvalidOption, match="percent-encoded") as caught:
        address(f"postgresql://ada:{password}@h/jobs", "rota")
    assert "hu" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_password_with_every_special_character_is_taken_when_it_is_encoded():
    found = address("postgresql://ada:h%25u%40s%2Fh%3F%23%3A%20@h/jobs", "rota")
    assert found.password == "h%u@s/h?#: "
    assert found.shown == "postgresql://ada@h/jobs"
    assert "h%u" not in repr(found)
    assert address("postgresql://ada:hu#sh:@h/jobs", "rota").shown == "postgresql://ada@h/jobs"


def test_what_a_store_says_of_itself_has_no_password():
    store = PostgresStore(f"postgresql://ada:{SECRET}@127.0.0.1:1/jobs", Settings())
    assert SECRET not in f"{store.url} {store!r} {store.address!r} {vars(store)}"
    assert store.url == "postgresql://ada@127.0.0.1:1/jobs"
    store.close()


def test_a_session_is_in_utf8_whatever_the_environment_says(database, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    raw = connection.open_connection(address(shared_server().url(database), "rota"), Settings())
    assert raw.info.encoding == "utf-8"
    raw.close()


def test_a_session_plans_as_the_store_wants_it_whatever_the_server_says(database):
    wanted = ("indexscan", "indexonlyscan", "nestloop", "sort")
    unwanted = ("seqscan", "bitmapscan", "hashjoin", "mergejoin")
    turned = [f"-c enable_{way}=off" for way in wanted] + [f"-c enable_{way}=on" for way in unwanted]
    url = f"{shared_server().url(database)}?options={quote(' '.join(turned))}"
    raw = connection.open_connection(address(url, "rota"), Settings())
    found = {way: raw.execute(f"SHOW enable_{way}".encode()).fetchone()[0] for way in wanted + unwanted}
    raw.close()
    assert found == dict.fromkeys(wanted, "on") | dict.fromkeys(unwanted, "off")


def test_nobody_waits_for_ever_for_a_lock(database):
    raw = connection.open_connection(address(shared_server().url(database), "rota"), Settings(busy_timeout=0))
    assert raw.execute("SHOW lock_timeout").fetchone()[0] == "1ms"
    raw.close()


def test_several_servers_are_shown_each_with_its_port():
    assert address("postgresql://ada:hush@a:1,b/jobs", "rota").shown == "postgresql://ada@a:1,b/jobs"
    assert address("postgresql://a,b:2/jobs?application_name=x", "rota").shown == "postgresql://a,b:2/jobs"
    assert address("postgresql:///jobs?host=a,b&port=7", "rota").shown == "postgresql://a:7,b:7/jobs"


def test_of_several_servers_the_one_that_takes_writes_is_meant():
    assert "target_session_attrs=read-write" in address("postgresql://a,b/jobs", "rota").secret
    assert "target_session_attrs=any" in address("postgresql://a,b/jobs?target_session_attrs=any", "rota").secret
    assert "target_session_attrs" not in address("postgresql://a/jobs", "rota").secret
