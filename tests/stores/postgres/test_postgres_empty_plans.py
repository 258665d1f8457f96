"""A plan is kept as long as its connection, and may be made while a table is empty: it must look rows up all the same."""

import re
import time
from importlib.resources import files

import pytest

from rota.model.decide import Failed
from rota.stores.postgres.connection import SESSION
from rota.stores.postgres.db import candidates, compiled, texts
from tests.stores.desk import Desk
from tests.stores.makers import PostgresMaker
from tests.stores.postgres.test_postgres_plans import CLAIMS, LARGE, PICKED, pieces, plan_of


class EmptyMaker(PostgresMaker):
    schema = "rota_empty"


class PlannedMaker(PostgresMaker):
    """A store that stays empty: who looks at plans changes nothing in it."""

    schema = "rota_planned"


def work(desk):
    """Do a little of everything that a turn does: dependencies, a group, a retry, a cancel."""
    desk.several(3)
    parent = desk.add()
    desk.add("child", depends_on=(parent,))
    desk.grouped([desk.row("g"), desk.row("g")])
    desk.grouped([desk.row("g"), desk.row("g")], mode="parallel")
    first, *others = desk.claim(5, types=("t", "g"))
    desk.end(first, Failed("x"))
    desk.end(others[0], Failed("x", permanent=True))
    desk.done(*others[1:])
    for _ in range(4):
        desk.advance(100)
        desk.done(*desk.claim(10, types=("t", "child", "g")))


def known_empty(made):
    """Return this maker, of whose store PostgreSQL knows that it is empty, however many pages it has: a queue at night."""
    store = made.open()
    work(Desk(store))
    store.close()
    made._empty()
    made._sql("VACUUM (ANALYZE, TRUNCATE false) job_facts, job_live, job_ends, run_notes, job_edges, schedules, occurrences")
    return made


@pytest.fixture
def maker(tmp_path):
    made = known_empty(EmptyMaker(tmp_path))
    yield made
    made.close()


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    made = known_empty(PlannedMaker(tmp_path_factory.mktemp("planned")))
    made._raw.prepare_threshold = None
    for name, value in SESSION.items():
        made._sql(f"SET {name} = '{value}'")
    yield made._raw
    made.close()


def named_in(*parts):
    """Return the statements of some of the files."""
    folder = files("rota.stores.postgres").joinpath("sql")
    names = [name for part in parts for name in re.findall(r"^-- name: (\w+)", folder.joinpath(f"{part}.sql").read_text(), re.MULTILINE)]
    return sorted(set(names) - pieces() - CLAIMS)


FIRST_OR_FEW = {
    *("any_open_edges", "ends_look", "lanes", "next_expiry", "peek", "running_by_kind", "turn_look"),
    *("count_queued", "ended_since", "marks", "progress_now"),
}
"""Statements that ask for an index's first entry, or for all of one that holds what is under way."""


def walked(raw, plan):
    """Return the steps that go through a large table, or through an index from its beginning."""
    leading = dict(raw.execute("SELECT relname, pg_get_indexdef(oid, 1, true) FROM pg_class WHERE relkind = 'i'").fetchall())
    return [
        (step["Node Type"], step.get("Index Name"))
        for step in plan
        if step.get("Relation Name") in LARGE
        and step["Node Type"].endswith("Scan")
        and step["Node Type"] not in PICKED
        and not re.search(rf"\b{leading.get(step.get('Index Name'), '-')}\b", step.get("Index Cond", ""))
    ]


@pytest.mark.parametrize("name", [*named_in("adopting", "edges", "events", "groups", "limits", "submissions", "turn"), "tails", "runs"])
def test_a_statement_planned_while_all_is_empty_looks_rows_up(raw, name):
    found = walked(raw, plan_of(raw, compiled(texts()[name])))
    assert found == [] or name in FIRST_OR_FEW


@pytest.mark.parametrize("types", [1, 3, 50])
def test_candidates_planned_while_all_is_empty_take_the_first_of_each_type(raw, types):
    plan = plan_of(raw, candidates(types, slim=False))
    assert walked(raw, plan) == []
    # Were the arms sorted rather than merged, it would still be no more than these.
    assert [step["Node Type"] for step in plan].count("Limit") == (types + 2 if types > 1 else 1)


MANY = 20_000
FILL = f"""
INSERT INTO job_facts (job_id, organization_id, job_type, root_id, owner, max_retries, max_crashes, backoff, timeout, executor, created_at)
SELECT id, 'default', 'other', id, 'anna', 0, 1, '{{}}', 0, 'thread', 0
  FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, {3 * MANY})) AS made;
CREATE TEMP TABLE numbered AS SELECT *, row_number() OVER () AS place FROM job_facts WHERE job_type = 'other';
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, status, priority, run_at, queued_at,
                      blockers)
SELECT number, job_id, job_id, 1, 'default', 'other', 0, CASE WHEN place <= {MANY} THEN 'QUEUED' ELSE 'PENDING' END, 50, 0, 0,
       CASE WHEN place <= {MANY} THEN 0 ELSE 1 END
  FROM numbered WHERE place <= {2 * MANY};
INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at, queued_at, started_at, run_id)
SELECT number, 'other', 'FAILED', 0, 0, 50, 0, 0, 0, 0, job_id FROM numbered WHERE place > {2 * MANY};
INSERT INTO run_notes (job_number, error) SELECT number, 'x' FROM numbered WHERE place > {2 * MANY};
INSERT INTO job_edges (child, parent_root, needs, on_failure, source)
SELECT number, (SELECT job_id FROM numbered WHERE place = 1), 'success', 'skip', 'user'
  FROM numbered WHERE place BETWEEN {MANY + 1} AND {2 * MANY};
DROP TABLE numbered
"""


def clients(maker):
    """Return the connections that the server has."""
    return {row[0] for row in maker._sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")}


def rows_read(maker):
    """Return how many entries of indexes have been read; a connection has said so when it has gone."""
    return maker._sql("SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'rota_empty'")[0][0]


def test_turns_whose_plans_were_made_while_all_was_empty_read_no_more_when_it_has_grown(maker):
    before, others = rows_read(maker), clients(maker)
    store = maker.open()
    desk = Desk(store)
    work(desk)
    maker._sql("SET session_replication_role = replica")
    maker._sql(FILL)
    work(desk)
    own = clients(maker) - others
    store.close()
    while own & clients(maker):
        time.sleep(0.01)
    # The triggers' own statements are among these. One walk would be more.
    assert rows_read(maker) - before < MANY
