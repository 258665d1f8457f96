"""Connections over HTTP, by commands and from a definitions file: created, changed, tested, refused, deleted."""

from __future__ import annotations

import pytest

from rota.errors import InvalidDefinition, PermissionDenied
from tests.surfaces.http.api_support import Callers, callers, code_of

__all__ = ["callers"]

DW = {"name": "dw", "url": "postgresql://wh/dw", "login": "etl", "secret_name": "pw"}
CANARY = "hunter2"


def test_a_connection_is_created_read_changed_and_deleted(callers: Callers):
    made = callers.admin.post("/connections", DW)
    assert made.status_code == 201
    wanted = DW | {"organization": "acme", "kind": "postgresql", "multi": False, "version": 1, "created_by": "ada"}
    assert {name: made.json()[name] for name in wanted} == wanted
    assert code_of(callers.admin.post("/connections", DW)) == "refused"
    read = callers.admin.get("/connections/dw")
    assert (read.json(), read.headers["ETag"]) == (made.json(), '"1"')
    changed = callers.admin.patch("/connections/dw", {"secret_name": None, "multi": True})
    assert (changed.json()["secret_name"], changed.json()["login"], changed.headers["ETag"]) == (None, "etl", '"2"')
    late = callers.admin.patch("/connections/dw", {"multi": False}, headers={"If-Match": '"1"'})
    assert (late.status_code, code_of(late)) == (412, "changed_meanwhile")
    assert callers.admin.delete("/connections/dw").status_code == 204
    assert code_of(callers.admin.get("/connections/dw")) == "not_found"


def test_connections_are_their_organizations_own(callers: Callers):
    callers.admin.post("/connections", DW)
    assert callers.other.get("/connections").json()["items"] == []
    for answer in (callers.other.get("/connections/dw"), callers.other.delete("/connections/dw")):
        assert code_of(answer) == "not_found"
    assert code_of(callers.user.post("/connections", DW)) == "permission_denied"
    assert code_of(callers.user.post("/connections/dw/test")) == "permission_denied"
    assert code_of(callers.admin.post("/connections", DW | {"name": "default"})) == "permission_denied"
    assert callers.manager.post("/connections", DW | {"name": "default", "organization": "acme"}).status_code == 201
    assert [each["name"] for each in callers.admin.get("/connections").json()["items"]] == ["default", "dw"]


def test_a_user_to_whom_one_was_granted_sees_its_name(callers: Callers):
    callers.admin.post("/connections", DW)
    assert callers.user.get("/connections").json()["items"] == []
    assert code_of(callers.admin.post("/grants", {"privilege": "USE", "grantee": "bob", "connection": "nosuch"})) == "not_found"
    callers.admin.post("/grants", {"privilege": "USE", "grantee": "bob", "connection": "dw"})
    (seen,) = callers.user.get("/connections").json()["items"]
    assert (seen["name"], seen["kind"], seen["url"], seen["login"], seen["secret_name"]) == ("dw", "postgresql", None, None, None)


@pytest.mark.parametrize("url", [f"postgresql://u:{CANARY}@wh/dw", f"postgresql://wh/dw?password={CANARY}", f"mysql://{CANARY}@wh/dw"])
def test_a_password_in_a_url_is_refused_and_not_repeated(callers: Callers, url):
    for answer in (callers.admin.post("/connections", DW | {"url": url}), callers.admin.patch("/connections/dw", {"url": url})):
        assert answer.status_code in {404, 422}
        assert CANARY not in answer.text
    assert callers.admin.get("/connections").json()["items"] == []


# ---- from a definitions file -----------------------------------------------------------------------------------------

FILE = """
[connections.dw]
organization = "acme"
url = "postgresql://wh/dw"
login = "etl"
secret_name = "pw"

[connections.default]
url = "sqlite:////data/x.db"
multi = true
"""


@pytest.fixture
def load(callers, tmp_path):
    def load(text, actor=None):
        (tmp_path / "jobs.toml").write_text(text)
        return callers.rota.acting_as(actor).store.load(tmp_path / "jobs.toml")

    return load


def test_a_file_creates_and_changes_connections(callers: Callers, load):
    assert load(FILE).added == ("connection dw", "connection default")
    assert load(FILE).unchanged == ("connection dw", "connection default")
    loaded = load('[connections.dw]\norganization = "acme"\nsecret_name = "none"\n')
    assert (loaded.added, loaded.changed) == ((), ("connection dw",))
    found = callers.rota.connections.get("dw", organization="acme")
    assert (found.url, found.login, found.secret_name, found.version) == ("postgresql://wh/dw", "etl", None, 2)
    assert callers.rota.connections.get("default").multi is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[connections.c]\n", "[connections.c]: url is missing"),
        (f'[connections.c]\nurl = "postgresql://u:{CANARY}@h/d"\n', "[connections.c]: url has a password"),
        ('[connections.c]\nurl = "postgresql://h/d"\n', "needs a login"),
        ("[connections.c]\nurl = 7\n", "url is not an address"),
        ('[connections.c]\npassword = "x"\n', "there is no key 'password'"),
        (
            '[connections.c]\nurl = "sqlite:////x"\norganization = "nosuch"\n',
            "organization='nosuch' is neither in the store nor in this file",
        ),
    ],
)
def test_a_file_with_a_connection_that_can_not_be_changes_nothing(callers: Callers, load, text, words):
    with pytest.raises(InvalidDefinition) as refused:
        load(FILE + text)
    assert words in str(refused.value)
    assert CANARY not in str(refused.value)
    assert callers.rota.connections.list() == []


def test_admins_load_no_files(load):
    with pytest.raises(PermissionDenied):
        load(FILE, "ada")
