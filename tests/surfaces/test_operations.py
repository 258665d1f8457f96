"""One operation, every surface: routes, nouns and tools have the same ones, and what only one of them has is listed with its reason."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.operation import NOUNS, noun, operations
from rota.surfaces.http.api.endpoint import OTHERWISE
from rota.surfaces.http.app import routes
from rota.surfaces.mcp.tools import all_tools
from rota.wire import schema, struct_of

OPERATIONS = {f"{name}.{verb}": each for name in NOUNS for verb, each in operations(noun(name)).items()} | dict(operations(Rota).items())

ONLY_HTTP = {
    "sql": "`Rota.sql`, which asks for the right of each statement",
    "jobs.create": "POST /jobs is `enqueue`, which takes calls and tasks in Python, and shares commits over HTTP",
    "jobs.create_many": "`enqueue_many`, read as it comes",
    "groups.create": "`group`, whose members are bodies",
    "overview": "`overview`, which asks the gate itself for each of its parts",
    "jobs.background_job": "a chain in the words of another engine: `rota.compat`",
    "jobs.background_job_log": "the same, its log",
    "jobs.events": "`events` of one job, as a stream",
    "events.list": "`events`, as a stream",
    "webhooks.rotate_organization": "`webhooks.rotate` without a webhook, which no path can name",
    "scheduler.get": "the state of the process that serves",
    "scheduler.start": "its own worker",
    "scheduler.stop": "its own worker",
    "scheduler.retention": "`store.purge(dry_run=True)`: over HTTP nothing is purged",
    "health.get": "for load balancers, without a token",
    "health.ready": "for load balancers, without a token",
}
NOT_HTTP = {
    "group": "POST /groups is written by hand",
    "schedule": "declares what code says, at each start: a program does that, not a client",
    "events": "a stream, written by hand",
    "start": "the worker of this process: `scheduler.start`",
    "stop": "the worker of this process: `scheduler.stop`",
    "run": "runs a worker in this process",
    "turn": "for tests",
    "running": "for tests",
    "workers.jobs": "a page of the dashboard: GET /jobs?status=RUNNING shows the same jobs",
    "store.purge": "removes what nobody can bring back: the command line asks first",
    "store.grants": "for operators of PostgreSQL, who have a shell there",
    "store.measures": "GET /metrics",
    "store.minder": "part of a process that serves",
    "store.load": "reads a file of this machine",
    "store.import_monque": "reads a file of this machine",
}
BY_HAND_NAMES = {
    "command": "`templates.define`, and a task in Python",
    "if_match": "which state an edit expects",
    "promote": "no store is opened to ask for the right",
    "reopen": "the same",
    "sql": "`templates.define`, and a task in Python",
    "url": "where the store is",
}
"""Names of nouns that are not operations."""


def test_every_operation_with_an_address_is_a_route_and_every_route_is_one_or_is_listed():
    found = {route.name: f"{route.method} {route.shown}" for route in routes()}
    assert len(found) == len(routes())
    for name, each in OPERATIONS.items():
        if each.path:
            assert found.get(name) == f"{each.method} {each.path}", name
        else:
            assert name in NOT_HTTP, f"{name} has no address: give it one, or list it here with the reason"
    assert found.keys() - OPERATIONS.keys() == ONLY_HTTP.keys()
    assert not NOT_HTTP.keys() & found.keys()
    assert OTHERWISE.keys() <= found.keys()


def test_every_tool_is_an_operation_with_an_address():
    tools = {tool.name for tool in all_tools().values()}
    operated = {name.replace(".", "_") for name, each in OPERATIONS.items() if each.path}
    assert tools - operated == {"enqueue", "overview", "sql_query"}, "those that are written by hand"
    assert operated <= tools


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_has_operations_and_nothing_else(name):
    public = {each for each in dir(noun(name)) if not each.startswith("_")}
    assert public - operations(noun(name)).keys() <= BY_HAND_NAMES.keys()
    assert len(operations(noun(name))) <= 15


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_can_be_described(name):
    """A mistake in a declaration would show at its first request."""
    operation = OPERATIONS[name]
    assert operation.summary
    if operation.path:
        assert schema(operation)["type"] == "object"
        assert struct_of(operation) is struct_of(operation)
        for parameter in operation.path.split("{")[1:]:
            assert parameter.partition("}")[0] in {field.name for field in operation.fields}
