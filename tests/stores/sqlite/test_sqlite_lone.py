"""A lone job goes the shortest way into the queue, and is what it would be by the longer one."""

from rota.stores.sqlite.db import statement
from rota.stores.sqlite.store import PLACES, at_once_values

EACH_ITS_OWN = {"number", "job_id", "root_id", "position"}


def whole(raw, job_id):
    (row,) = raw.execute("SELECT * FROM jobs WHERE job_id = unhex(?)", (job_id,))
    names = [name for name, _ in raw.execute("SELECT * FROM jobs LIMIT 1").get_description()]
    return {name: value for name, value in zip(names, row, strict=True) if name not in EACH_ITS_OWN}


def test_the_values_stand_in_the_order_of_their_statement():
    assert statement("insert_job_at_once").names == PLACES


def test_a_job_is_the_same_in_every_column_whichever_way_it_came(desk, raw):
    desk.add(priority=30)  # the shortest way is for those who come behind others
    fields = {
        "params": '{"n":1}',
        "template_id": desk.id(),
        "origin": "group",
        "owner": "anna",
        "meta": '{"m":2}',
        "expires_at": desk.now + 10**9,
        "priority": 30,
        "max_retries": 7,
        "max_crashes": 8,
        "backoff": '{"base":9.0,"factor":2.0,"cap":60.0,"jitter":0.0}',
        "timeout": 10.5,
        "executor": "process",
    }
    rows = [desk.row(**fields) for _ in range(2)]
    assert at_once_values(rows[0], desk.now, desk.store.definitions()) is not None
    short, long = desk.put_at_once(rows[0]), desk.put(rows[1])[0]
    assert whole(raw, short.job_id) == whole(raw, long.job_id)
    assert (short.position, long.position) == (200, 300)
    assert short.number == long.number - 1


def test_the_first_of_an_organization_at_a_priority_stands_where_it_would(desk):
    desk.put(*(desk.row(priority=40) for _ in range(3)))
    at = [desk.put_at_once(desk.row(priority=40, organization_id="acme")).position for _ in range(2)]
    assert at == [100, 200]
