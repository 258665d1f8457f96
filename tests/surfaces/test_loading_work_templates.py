"""Templates that are SQL or a command from a definitions file: compared, planned and written like the others."""

from __future__ import annotations

import json

import pytest

from rota import Actor
from rota.errors import InvalidDefinition, PermissionDenied
from rota.model.gate import Right

FILE = """
[schedules.daily]
template = "by_region"
cron = "0 6 * * *"
params = { region = "eu" }

[templates.by_region]
sql = '''
SELECT count(*) FROM orders
 WHERE region = :region'''
connection = "warehouse"
secrets = ["api_key"]
timeout = "5m"
state = "disabled"

[templates.backup]
command = "/usr/bin/backup --all"
max_retries = 1

[connections.warehouse]
url = "postgresql://wh.example/dw"
login = "etl"
"""


@pytest.fixture
def load(rota, tmp_path):
    def load(text, actor=None, name="jobs.toml", **options):
        (tmp_path / name).write_text(text)
        return rota.acting_as(actor).store.load(tmp_path / name, **options)

    return load


def test_a_file_defines_sql_and_commands(rota, load):
    loaded = load(FILE.replace('state = "disabled"', ""))
    assert loaded.added == ("connection warehouse", "template by_region", "template backup", "schedule daily")
    sql, command = rota.templates.get("by_region"), rota.templates.get("backup")
    assert (sql.kind, sql.body) == ("sql", "SELECT count(*) FROM orders\n WHERE region = :region")
    assert (sql.connection, sql.secrets, sql.timeout, sql.sources["timeout"]) == ("warehouse", ("api_key",), 300, "people")
    assert (command.kind, command.body, command.connection, command.max_retries) == ("external", "/usr/bin/backup --all", None, 1)
    assert rota.schedules.get("daily").template == "by_region"


def test_loading_it_again_changes_nothing_and_a_plan_writes_nothing(rota, load):
    text = FILE[FILE.index("[templates") :]
    planned = load(text, dry_run=True)
    assert planned.added == ("connection warehouse", "template by_region", "template backup")
    assert rota.templates.list() == []
    load(text)
    versions = [view.version for view in rota.templates.list()]
    again = load(text)
    assert (again.added, again.changed, len(again.unchanged)) == ((), (), 3)
    assert [view.version for view in rota.templates.list()] == versions
    assert [view.state for view in rota.templates.list()] == ["ENABLED", "DISABLED"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (":region", ":area"),
        ('connection = "warehouse"', 'connection = "none"'),
        ('secrets = ["api_key"]', ""),
        ('timeout = "5m"', 'timeout = "6m"'),
        ('state = "disabled"', 'state = "enabled"'),
    ],
)
def test_what_differs_is_changed(rota, load, before, after):
    text = FILE[FILE.index("[templates") :]
    load(text)
    assert load(text.replace(before, after)).changed == ("template by_region",)


def test_what_the_definition_has_besides_stays_and_so_do_texts_that_the_file_does_not_name(rota, load):
    rota.templates.define("by_region", sql="SELECT 1", timeout="10s", max_retries=2)
    load('[templates.by_region]\nsql = "SELECT 2"\ntimeout = "20s"\n')
    view = rota.templates.get("by_region")
    assert (view.body, view.timeout, view.max_retries) == ("SELECT 2", 20, 2)
    load("[templates.by_region]\nmax_retries = 7\n")
    view = rota.templates.get("by_region")
    assert (view.body, view.max_retries) == ("SELECT 2", 7)


def test_json_has_the_same_keys(rota, load):
    load(json.dumps({"templates": {"backup": {"command": "/usr/bin/backup"}}}), name="jobs.json")
    assert rota.templates.get("backup").body == "/usr/bin/backup"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('connection = "warehouse"', "connection is for a template that is SQL or a command: add sql or command"),
        ('sql = "SELECT 1"\ncommand = "/bin/true"', "pass one of sql and command"),
        ("sql = 3", "sql=3 is not a text"),
        ('sql = "SELECT 1"\nsecrets = "api_key"', "secrets='api_key' is not a list of names"),
        ('sql = "SELECT 1"\nsecrets = ["a b"]', "a b"),
        ('sql = " "', "sql is empty"),
        ('command = "backup"', "begins with 'backup': use the absolute path"),
        ('command = "/bin/true"\nconnection = "warehouse"', "a command uses no connection"),
        ('sql = "SELECT 1"\nhandler = "shop.mail:send"', "handler='shop.mail:send' is not allowed: template 'report' is SQL"),
        ('sql = "SELECT 1"\nexecutor = "process"', "executor='process' is not allowed"),
        ('sql = "SELECT 1"\npayload_max = 10\ndefault_params = { region = "europe" }', "default_params are too large"),
        ('sqll = "SELECT 1"', "there is no key 'sqll'"),
    ],
)
def test_what_can_not_be_is_refused_with_its_place(rota, load, table, words):
    with pytest.raises(InvalidDefinition, match=words) as refused:
        load(f'[templates.first]\nsql = "SELECT 1"\n[templates.report]\n{table}\n')
    assert "[templates.report]" in str(refused.value)
    assert rota.templates.list() == []


def test_a_template_in_python_is_not_overwritten(rota, load):
    rota.job(lambda: None, name="report")
    with pytest.raises(InvalidDefinition, match=r"\[templates.report\]: template 'report' is Python: choose another name"):
        load('[templates.report]\nsql = "SELECT 1"\n')


def test_a_command_in_a_file_needs_the_right_to_run_commands(rota, load):
    with pytest.raises(PermissionDenied):
        load(FILE, actor=Actor("uma", role="admin"))
    limited = Actor("mia", role="system_manager", operations=frozenset({Right.MANAGE_TEMPLATES, Right.READ}))
    with pytest.raises(PermissionDenied):
        load('[templates.backup]\ncommand = "/bin/true"\n', actor=limited)
    assert load('[templates.report]\nsql = "SELECT 1"\n', actor=limited).added == ("template report",)


WHOLE = """
[connections.warehouse]
url = "sqlite:////srv/warehouse.db"
[templates.by_region]
sql = "SELECT :region"
connection = "warehouse"
[schedules.hourly]
template = "by_region"
every = "1h"
params = { region = "eu" }
"""


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('region = "eu" }', 'regoin = "eu" }', r"by_region\(\) has no parameter 'regoin'; it takes: region"),
        ('params = { region = "eu" }', "", r"by_region\(\) needs a parameter 'region'"),
        ("SELECT :region", "SELECT 1", r"by_region\(\) has no parameter 'region'; it takes: none"),
    ],
)
def test_params_of_a_schedule_are_compared_with_the_text_of_the_file_before_anything_is_written(rota, load, before, after, words, is_there):
    if is_there and after:
        # What a file does not say stays, params too.
        load(WHOLE.replace(":region", ":other").replace("region =", "other ="))
    there = rota.templates.list()
    with pytest.raises(InvalidDefinition, match=words):
        load(WHOLE.replace(before, after))
    assert rota.templates.list() == there
    load(WHOLE)
    assert rota.schedules.get("hourly").params == {"region": "eu"}
