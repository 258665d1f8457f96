"""Connections that are tested and whose passwords are changed, against real databases, in Python and by commands."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from rota import Rota, Settings
from rota.errors import InvalidOption, PermissionDenied, Refused, StillNeeded
from rota.vault import open_secrets
from tests.support.keys import key_file
from tests.support.postgres import make_server
from tests.support.prepared import prepare
from tests.surfaces.cli_support import Cli

OLD, NEW = "correct-horse", "battery-staple"
SET_UP = f"""
CREATE ROLE etl LOGIN PASSWORD '{OLD}';
CREATE ROLE boss SUPERUSER LOGIN PASSWORD '{OLD}';
"""


@pytest.fixture(scope="module")
def server():
    made = make_server(fsync="off")
    with made.connect() as raw:
        raw.execute(SET_UP)
    made.allow("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")
    yield made
    made.throw_away()


@pytest.fixture
def rota(tmp_path, server):
    (tmp_path / "files").mkdir()
    settings = Settings(master_key_file=str(key_file(tmp_path)), sql_paths=str(tmp_path / "files"), synchronous="NORMAL")
    with closing(Rota(prepare(tmp_path / "rota.db"), settings=settings)) as made:
        made.organizations.create("acme")
        made.users.create("ada", organization="acme", role="admin")
        made.users.create("bob", organization="acme")
        ada = made.acting_as("ada")
        ada.secrets.create("pw", OLD)
        ada.connections.create("dw", f"postgresql://127.0.0.1:{server.port}/postgres", login="etl", secret_name="pw")
        yield made


@pytest.fixture
def ada(rota):
    return rota.acting_as("ada").connections


def password(rota) -> str:
    session = rota._session
    return open_secrets(session.keyring(), session.open().store.sealed_secrets("acme", None, ["pw"]))["pw"]


def test_a_database_that_jobs_can_use_says_what_it_is(ada):
    tested = ada.test("dw")
    assert (tested.fit, tested.error) == (True, None)
    assert tested.server.startswith("PostgreSQL ")
    assert tested.took_s < 30


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"login": "boss"}, "superuser"),
        ({"login": "nobody"}, "nobody"),
        ({"url": "postgresql://127.0.0.1:1/postgres"}, "Connection refused"),
        ({"secret_name": "other"}, "there is no secret"),
        ({"secret_name": None}, "password"),
    ],
)
def test_a_database_that_jobs_can_not_use_says_why(ada, fields, words):
    ada.update("dw", **fields)
    tested = ada.test("dw")
    assert (tested.fit, tested.server) == (False, None)
    assert words in tested.error
    assert OLD not in tested.error


def test_a_sqlite_file_is_used_inside_sql_paths_alone(rota, ada, tmp_path):
    for folder in ("files", ""):
        with closing(sqlite3.connect(tmp_path / folder / "x.db")) as raw:
            raw.execute("CREATE TABLE t (a)")
    ada.create("inside", f"sqlite:///{tmp_path}/files/x.db")
    ada.create("outside", f"sqlite:///{tmp_path}/x.db")
    ada.create("store", f"sqlite:///{tmp_path}/rota.db")
    assert ada.test("inside").server.startswith("SQLite ")
    for name in ("outside", "store"):
        assert "outside sql_paths" in ada.test(name).error


def test_a_new_password_is_kept_when_a_login_with_it_has_worked(rota, ada, server):
    with pytest.raises(Refused, match="the password was not changed") as refused:
        ada.rotate("dw", NEW)
    assert NEW not in str(refused.value)
    assert password(rota) == OLD
    with server.connect() as raw:
        raw.execute(f"ALTER ROLE etl PASSWORD '{NEW}'")
    try:
        assert not ada.test("dw").fit
        assert ada.rotate("dw", NEW).fit
        assert password(rota) == NEW
        assert ada.test("dw").fit
        assert rota.acting_as("ada").secrets.get("pw").version == 2
    finally:
        with server.connect() as raw:
            raw.execute(f"ALTER ROLE etl PASSWORD '{OLD}'")


def test_a_password_needs_a_secret_to_be_kept_in_and_a_manager_of_secrets(rota, ada):
    with pytest.raises(PermissionDenied):
        rota.acting_as("bob").connections.rotate("dw", NEW)
    ada.update("dw", secret_name=None)
    with pytest.raises(InvalidOption, match="no secret to keep a password in"):
        ada.rotate("dw", NEW)


def test_a_secret_that_a_connection_names_stays(rota, ada):
    secrets = rota.acting_as("ada").secrets
    with pytest.raises(StillNeeded, match="while connections name it: change dw first"):
        secrets.delete("pw")
    ada.update("dw", secret_name=None)
    secrets.delete("pw")


# ---- by commands -----------------------------------------------------------------------------------------------------


def test_commands_create_show_test_and_rotate_a_connection(tmp_path, rota, server):
    cli = Cli(tmp_path)
    cli.env |= {"ROTA_MASTER_KEY_FILE": str(tmp_path / "master-key"), "ROTA_ACTOR": "ada"}
    url = f"postgresql://127.0.0.1:{server.port}/postgres"
    assert url in cli.ok("connection", "create", "second", url, "--login", "etl", "--secret-name", "pw")
    cli.ok("grant", "create", "USE", "bob", "--connection", "second")
    assert [each["name"] for each in cli.lines("connection", "list")] == ["dw", "second"]
    shown = cli.ok("connection", "get", "second")
    assert "granted to" in shown
    assert "bob" in shown
    assert cli.json("connection", "get", "second")["granted_to"] == ["bob"]
    assert "jobs can use it: PostgreSQL" in cli.ok("connection", "test", "second")
    assert cli.json("connection", "update", "second", "--login", "boss", "--multi")["multi"] is True
    failed = cli("connection", "test", "second")
    assert failed.exit_code == 1
    assert "jobs can't use the connection" in failed.output
    cli.ok("connection", "update", "second", "--login", "etl", "--single")
    rotated = cli("connection", "rotate", "second", stdin=f"{OLD}\n")
    assert (rotated.exit_code, OLD in rotated.output) == (0, False)
    assert "connection second has the new password" in rotated.output
    assert cli("connection", "rotate", "second", stdin="wrong-one\n").exit_code == 1
    cli.ok("connection", "delete", "second", "--yes")
    assert [each["name"] for each in cli.lines("connection", "list")] == ["dw"]
    cli.close()
