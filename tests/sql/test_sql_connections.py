"""CREATE, ALTER and DROP CONNECTION, what shows connections, and USE on them: who may, what is refused, and what goes with what."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.errors import ChangedMeanwhile, NotFound, PermissionDenied, Refused
from rota.model.gate import Actor, Role
from tests.sql.test_sql_grants import done, refusal, shared
from tests.sql.test_sql_rights import state

__all__ = ["shared"]
CANARY = "hunter2"
WAREHOUSE = "CREATE CONNECTION dw URL = 'postgresql://wh/dw' USER = 'etl' SECRET = pw"


def names(rota: Rota, who: str | Actor) -> list[str]:
    """Return the connections that somebody sees, by every way of looking."""
    view = rota.acting_as(who)
    shown = [row[0] for row in view.sql("SHOW CONNECTIONS")[0].rows]
    assert shown == [row[0] for row in view.sql("SELECT connection_name FROM sys.connections ORDER BY organization, 1")[0].rows]
    assert shown == [each.name for each in view.connections.list()]
    return shown


def test_a_connection_is_created_changed_and_dropped(shared):
    assert done(shared, "ada", WAREHOUSE) == []
    (row,) = (
        shared.acting_as("ada")
        .sql(
            "SELECT kind, url, login, secret_key, multi, organization, created_by, created_at > 0, updated_at_ts = created_at_ts"
            " FROM sys.connections WHERE connection_name = 'dw'"
        )[0]
        .rows
    )
    assert row == ("postgresql", "postgresql://wh/dw", "etl", "pw", 0, "acme", "ada", 1, 1)
    done(shared, "ada", "ALTER CONNECTION dw SET URL = 'postgres://wh2/dw' SECRET = NONE MULTI")
    found = shared.acting_as("ada").connections.get("dw")
    assert (found.url, found.login, found.secret_name, found.multi, found.version) == ("postgres://wh2/dw", "etl", None, True, 2)
    done(shared, "ada", "ALTER CONNECTION dw SINGLE")
    assert shared.connections.get("dw", organization="acme").multi is False
    done(shared, "ada", "DROP CONNECTION dw")
    assert names(shared, "ada") == ["c"]
    events = [(each.event, each.subject_id) for each in shared.audit.list(subject="connection", limit=10)]
    assert events[::-1][1:] == [("CONNECTION_CREATED", "dw"), *[("CONNECTION_CHANGED", "dw")] * 2, ("CONNECTION_DROPPED", "dw")]


def test_the_workers_of_other_processes_see_a_change(shared, where, clock, settings):
    other = Rota(where, clock=clock, settings=settings, seed=8)
    registry = other._session.registry
    other.jobs.list()
    registry.sync(other._session.open().store, clock.now())
    assert registry.connections.keys() == {("acme", "c")}
    done(shared, "ada", WAREHOUSE)
    registry.sync(other._session.open().store, clock.now())
    assert registry.connections["acme", "dw"].login == "etl"
    assert registry.copy().connections == registry.connections
    other.close()


REFUSED = [
    ("CREATE CONNECTION c URL = 'sqlite:////x'", "connection_exists", "42710", 19, "organization 'acme' has a connection 'c' already"),
    ("CREATE CONNECTION d URL = 'mysql://h/d'", "invalid_option", "22023", 27, "url has the scheme 'mysql'"),
    ("CREATE CONNECTION d URL = 'postgresql://h/d'", "invalid_option", "22023", 19, "a PostgreSQL connection needs a login"),
    ("CREATE CONNECTION d URL = 'postgresql://u@h/d' USER = 'u'", "invalid_option", "22023", 27, "url has a user"),
    ("CREATE CONNECTION d URL = 'sqlite:////x' USER = 'u'", "invalid_option", "22023", 19, "a SQLite file has no users"),
    ("ALTER CONNECTION d MULTI", "unknown_connection", "42704", 18, "there is no connection 'd' in organization 'acme'"),
    ("ALTER CONNECTION c SECRET = pw", "invalid_option", "22023", 18, "a SQLite file has no users"),
    ("DROP CONNECTION d", "unknown_connection", "42704", 17, "there is no connection 'd' in organization 'acme'"),
    ("GRANT USE ON CONNECTION d TO bob", "unknown_connection", "42704", 25, "there is no connection 'd' in organization 'acme'"),
    ("REVOKE USE ON CONNECTION d FROM bob", "unknown_connection", "42704", 26, "there is no connection 'd' in organization 'acme'"),
]


@pytest.mark.parametrize(("text", "code", "sqlstate", "column", "words"), REFUSED)
def test_what_can_not_be_is_refused_at_its_place(shared, text, code, sqlstate, column, words):
    error = refusal(shared, "ada", text)
    assert (error.code, error.sqlstate, error.column) == (code, sqlstate, column)
    assert words in str(error)
    assert names(shared, "ada") == ["c"]


def test_a_password_reaches_neither_the_store_nor_an_error(shared):
    for url in (f"postgresql://u:{CANARY}@h/d", f"postgresql://h/d?password={CANARY}"):
        texts = [str(refusal(shared, "ada", f"CREATE CONNECTION d URL = '{url}' USER = 'u'"))]
        for act in (
            lambda url=url: shared.connections.create("d", url, login="u", organization="acme"),
            lambda url=url: shared.connections.update("c", url=url, organization="acme"),
        ):
            with pytest.raises(Exception, match="password") as caught:
                act()
            texts.append(str(caught.value))
        assert not any(CANARY in text for text in texts)
    trail = [f"{each.before} {each.after}" for each in shared.audit.list(limit=1000)]
    assert not any(CANARY in entry for entry in trail)
    assert names(shared, "ada") == ["c"]


# ---- who may -----------------------------------------------------------------------------------------------------------

STATEMENTS = (WAREHOUSE, "ALTER CONNECTION c MULTI", "DROP CONNECTION c")


@pytest.mark.parametrize("text", STATEMENTS)
def test_managers_and_admins_of_the_organization_manage_connections(shared, text):
    assert state(shared, "bob", text) == "42501"
    if text != WAREHOUSE:
        assert state(shared, "eve", text) == "42704"
    assert state(shared, Actor("root", "acme", Role.MANAGER), text) == ""
    assert names(shared, "eve") == []


def test_a_connection_has_its_name_once_in_each_organization(shared):
    done(shared, "eve", "CREATE CONNECTION c URL = 'sqlite:////data/beta.db'")
    assert names(shared, "eve") == names(shared, "ada") == ["c"]
    assert names(shared, "root") == ["c", "c"]
    assert shared.acting_as("eve").connections.get("c").url == "sqlite:////data/beta.db"
    with pytest.raises(PermissionDenied):
        shared.acting_as("eve").connections.get("c", organization="acme")


def test_the_default_connection_is_a_system_managers(shared):
    text = "CREATE CONNECTION \"default\" URL = 'sqlite:////data/d.db'"
    assert "may not create, change or delete the connection 'default'" in str(refusal(shared, "ada", text))
    assert shared.audit.list(event="ACCESS_DENIED")[0].actor == "ada"
    shared.acting_as(Actor("root", "acme", Role.MANAGER)).sql(text)
    for change in ('ALTER CONNECTION "default" MULTI', 'DROP CONNECTION "default"'):
        assert state(shared, "ada", change) == "42501"
    assert names(shared, "ada") == ["c", "default"]
    done(shared, "ada", 'GRANT USE ON CONNECTION "default" TO PUBLIC')
    assert names(shared, "bob") == ["default"]


@pytest.mark.parametrize("way", ["bob", "ROLE ops", "PUBLIC"])
def test_a_user_sees_the_names_of_what_it_may_use_and_nothing_else_of_it(shared, way):
    done(shared, "ada", "CREATE ROLE ops")
    shared.acting_as(Actor("root", "acme", Role.MANAGER)).sql("GRANT ROLE ops TO bob")
    done(shared, "ada", WAREHOUSE)
    assert names(shared, "bob") == []
    with pytest.raises(NotFound):
        shared.acting_as("bob").connections.get("dw")
    done(shared, "ada", f"GRANT USE ON CONNECTION dw TO {way}")
    assert names(shared, "bob") == ["dw"]
    assert names(shared, "fay") == []
    found = shared.acting_as("bob").connections.get("dw")
    assert (found.kind, found.url, found.login, found.secret_name) == ("postgresql", None, None, None)
    assert shared.acting_as("bob").sql("SELECT url, login, secret_key FROM sys.connections")[0].rows == ((None, None, None),)
    done(shared, "ada", f"REVOKE USE ON CONNECTION dw FROM {way}")
    assert names(shared, "bob") == []


def test_use_that_was_granted_onward_goes_with_the_connection(shared):
    done(shared, "ada", "GRANT USE ON CONNECTION c TO bob WITH GRANT OPTION")
    done(shared, "bob", "GRANT USE ON CONNECTION c TO cid")
    assert names(shared, "cid") == ["c"]
    done(shared, "ada", "DROP CONNECTION c")
    assert shared.grants.list() == []
    done(shared, "ada", "CREATE CONNECTION c URL = 'sqlite:////data/c.db'")
    assert names(shared, "bob") == names(shared, "cid") == [], "a connection of the same name is another one"


def test_a_script_is_atomic_with_connections(shared):
    ada = shared.acting_as("ada")
    with pytest.raises(Exception, match="nothing was changed"):
        ada.sql(f"{WAREHOUSE}; GRANT USE ON CONNECTION dw TO bob; DROP CONNECTION nosuch", atomic=True)
    assert (names(shared, "ada"), shared.grants.list()) == (["c"], [])
    ada.sql(f"{WAREHOUSE}; GRANT USE ON CONNECTION dw TO bob", atomic=True)
    assert names(shared, "bob") == ["dw"]


# ---- by Python ---------------------------------------------------------------------------------------------------------


def test_python_creates_changes_and_deletes_one(shared):
    ada = shared.acting_as("ada").connections
    created = ada.create("dw", "postgresql://wh/dw", login="etl", secret_name="pw", multi=True)
    assert (created.kind, created.multi, created.version, created.created_by) == ("postgresql", True, 1, "ada")
    with pytest.raises(Refused, match="already"):
        ada.create("dw", "postgresql://wh/dw", login="etl")
    changed = ada.update("dw", secret_name=None, multi=False)
    assert (changed.secret_name, changed.login, changed.multi, changed.version) == (None, "etl", False, 2)
    with pytest.raises(ChangedMeanwhile):
        ada.if_match(1).update("dw", multi=True)
    assert ada.if_match(2).update("dw", multi=True).version == 3
    assert ada.update("dw", multi=True).version == 3, "the same again changes nothing"
    ada.delete("dw")
    with pytest.raises(NotFound, match="no connection 'dw' in organization 'acme'"):
        ada.delete("dw")


def test_a_connection_is_of_an_organization_that_is_there(shared):
    with pytest.raises(Exception, match="no organization 'nosuch'"):
        shared.connections.create("dw", "sqlite:////x.db", organization="nosuch")
    shared.organizations.suspend("acme")
    assert state(shared, "ada", "ALTER CONNECTION c MULTI") == "55000"
    assert names(shared, "ada") == ["c"]
