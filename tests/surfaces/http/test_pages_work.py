"""Templates of SQL and commands on pages: listed, shown, defined and changed by a form; and the results of their jobs."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from html import unescape

import pytest

from rota import Rota, Settings
from rota.surfaces.http.pages.job import ROWS_MAX, table_of
from tests.runners.external.stage import WAYS, Stage
from tests.support.prepared import prepare
from tests.support.stranger import public_folder
from tests.surfaces.http.pages_support import HOSTILE, Browser, browsing, said

SQL = "SELECT id\n  FROM orders\n WHERE region = :region"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(sql_paths=str(tmp_path), synchronous="NORMAL")


@pytest.fixture
def store(shared: Rota, tmp_path) -> Rota:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as raw, raw:
        raw.executescript("CREATE TABLE orders (id INTEGER, region TEXT); INSERT INTO orders VALUES (1, 'eu'), (2, 'us');")
    shared.connections.create("shop", f"sqlite:///{tmp_path}/shop.db")
    shared.templates.sql("by_region", SQL, connection="shop", secrets=["key"], timeout="5m")
    return shared


@pytest.fixture
def people(store: Rota):
    with browsing(store) as browser:
        yield browser


@pytest.fixture
def root(people) -> Browser:
    return people("root")


def beside(answer, field: str) -> str:
    """Return what a form says beside a field."""
    found = re.search(rf'<p class="wrong" id="f-{field}-wrong">(.*?)</p>', answer.text, re.DOTALL)
    return unescape(found[1]) if found else ""


# ---- shown -----------------------------------------------------------------------------------------------------------


def test_the_list_says_the_kind_of_each(root: Browser, store: Rota):
    store.templates.command("backup", "/usr/bin/backup")
    listed = root.get("/templates").text
    assert re.findall(r'<td data-name="kind">(.*?)</td>', listed) == ["command", "SQL", "Python"]
    assert 'href="/templates/define"' in listed


def test_the_text_is_shown_to_managers_only(people):
    for name, sees in {"root": True, "ada": False, "bob": False}.items():
        text = unescape(people(name).get("/templates/one?name=by_region").text)
        assert (SQL in text, "WHERE region" in text, 'href="/templates/define' in text) == (sees, sees, sees)
        assert "shop" in text
        assert "<dd>key</dd>" in text


def test_a_template_in_python_has_no_definition_to_change(root: Browser):
    assert "/templates/define" not in root.get("/templates/one?name=echo").text
    refused = root.get("/templates/define?name=echo")
    assert refused.status_code == 422
    assert "is Python" in refused.text


# ---- the form --------------------------------------------------------------------------------------------------------


def test_sql_and_commands_are_defined_by_a_form(root: Browser, store: Rota):
    fields = {"connection": "shop", "secrets": "one, two", "description": "Counts.", "timeout": "90s", "max_retries": "2"}
    done = root.act("/templates/define", name="count", kind="sql", text="SELECT\r\n  count(*)\r\n", **fields)
    assert said(done) == "count is defined."
    view = store.templates.get("count")
    assert (view.kind, view.body, view.connection, view.secrets) == ("sql", "SELECT\n  count(*)", "shop", ("one", "two"))
    assert (view.description, view.timeout, view.max_retries) == ("Counts.", 90, 2)
    root.act("/templates/define", name="backup", kind="external", text="/usr/bin/backup --all")
    assert (store.templates.get("backup").kind, store.templates.get("backup").body) == ("external", "/usr/bin/backup --all")


def test_a_change_replaces_the_text_and_leaves_the_other_fields(root: Browser, store: Rota):
    store.templates.update("by_region", timeout="7m")
    shown = root.get("/templates/define?name=by_region").text
    version = store.templates.get("by_region").version
    assert f'name="version" value="{version}"' in shown
    assert SQL in unescape(shown)
    done = root.act("/templates/define", name="by_region", version=version, kind="sql", text="SELECT 2", connection="", secrets="")
    assert said(done) == "by_region is changed. Jobs that were enqueued before keep the old definition."
    view = store.templates.get("by_region")
    assert (view.body, view.connection, view.secrets, view.timeout) == ("SELECT 2", None, (), 420)
    assert store.templates.reset("by_region").timeout == 300
    late = root.act("/templates/define", name="by_region", version=version, kind="sql", text="SELECT 3")
    assert late.status_code == 412
    assert "SELECT 3" in late.text
    assert 'role="alert"' in late.text


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": ""}, "name", "is not a template name"),
        ({"name": "kind:sql"}, "name", "begins with 'kind:'"),
        ({"name": "echo"}, "name", "is there already"),
        ({"name": "by_region"}, "name", "is there already"),
        ({"text": " "}, "text", "sql is empty"),
        ({"kind": "external", "text": "backup"}, "text", "absolute path"),
        ({"kind": "external", "text": "/bin/true", "connection": "shop"}, "connection", "uses no connection"),
        ({"connection": "x" * 300}, "connection", "at most 255"),
        ({"secrets": "no name"}, "secrets", "no name"),
        ({"timeout": "soon"}, "timeout", "is not a length of time"),
        ({"max_retries": "many"}, "max_retries", "max_retries"),
    ],
)
def test_what_is_refused_is_said_beside_its_field_with_what_was_typed(root: Browser, store: Rota, fields, field, words):
    refused = root.act("/templates/define", **({"name": "new", "kind": "sql", "text": f"SELECT '{HOSTILE}'"} | fields))
    assert refused.status_code == 422
    assert words in beside(refused, field)
    assert f'id="f-{field}" name="{field}" aria-invalid="true"' in refused.text
    assert HOSTILE not in refused.text
    assert [view.name for view in store.templates.list()] == ["by_region", "echo"]


@pytest.mark.parametrize("name", ["ada", "bob"])
def test_only_managers_define(people, store: Rota, name):
    browser = people(name)
    assert browser.get("/templates/define").status_code == 403
    assert browser.act("/templates/define", name="new", kind="sql", text="SELECT 1").status_code == 403
    assert "/templates/define" not in browser.get("/templates").text


# ---- results ---------------------------------------------------------------------------------------------------------


def test_rows_are_a_table_with_what_the_database_said(root: Browser, store: Rota):
    task = store.templates.sql("all", f"SELECT id, region, NULL AS gone, '{HOSTILE.replace(chr(39), chr(39) * 2)}' AS evil FROM orders")
    store.connections.create("default", store.connections.get("shop").url)
    handle = task.enqueue()
    store.turn()
    text = root.get(f"/jobs/{handle.id}").text
    assert re.findall(r'<th scope="col"[^>]*>(id|region|gone|evil)</th>', text) == ["id", "region", "gone", "evil"]
    assert '<td class="num">2</td><td class="long">us</td><td class="long"><span class="soft">null</span></td>' in text
    assert HOSTILE not in text
    assert "SELECT: 2 rows" in text
    assert "Rows affected" not in text
    changed = store.templates.sql("change", "UPDATE orders SET region = 'eu'").enqueue()
    store.turn()
    text = root.get(f"/jobs/{changed.id}").text
    assert "<dt>Rows affected</dt><dd>2</dd>" in text
    assert "No result." not in text


def test_a_failed_command_has_its_exit_code(tmp_path):
    with public_folder() as folder:
        stage = Stage(folder, next(way for way in WAYS if way.root is (os.geteuid() == 0)))
        settings = Settings(external_file=stage.config(), synchronous="NORMAL")
        with closing(Rota(prepare(tmp_path / "rota.db"), settings=settings)) as rota, browsing(rota) as browser:
            handle = rota.templates.command("fails", stage.script("exit 3"), max_retries=0).enqueue()
            rota.turn()
            assert "<dt>Exit code</dt><dd>3</dd>" in browser(None).get(f"/jobs/{handle.id}").text


def test_only_rows_of_sql_are_a_table():
    assert table_of({"columns": ["a"], "rows": [[1], [2.5]], "truncated": True}).numbers == {0}
    assert len(table_of({"columns": ["a"], "rows": [["x"]] * (ROWS_MAX + 1)}).rows) == ROWS_MAX
    for other in (
        None,
        [],
        "x",
        {},
        {"columns": [], "rows": []},
        {"columns": ["a"], "rows": [[1, 2]]},
        {"columns": ["a"], "rows": [], "x": 1},
    ):
        assert table_of(other) is None


def test_python_results_stay_json(root: Browser, store: Rota):
    @store.job
    def rows() -> dict:
        return {"columns": ["a"], "rows": [[1]]}

    handle = rows.enqueue()
    store.turn()
    assert 'class="result"' not in root.get(f"/jobs/{handle.id}").text
