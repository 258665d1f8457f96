"""Jobs so large that many of them don't fit into one value: SQLite takes so much in one, and here it takes less."""

import apsw
import pytest

from rota.stores.verbs import queue

LARGE = f'{{"text":"{"x" * 20_000}"}}'


@pytest.fixture
def small_values(store, monkeypatch):
    """Let four large params fit into one value, and no fifth."""
    store._writer._db.raw.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    monkeypatch.setattr(queue, "BODIES_MAX", 90_000)


@pytest.mark.usefixtures("small_values")
@pytest.mark.parametrize("delay", [0, 60])
def test_a_batch_of_large_params_is_written_in_parts(desk, store, delay):
    desk.add()
    added = desk.put(*(desk.row(params=LARGE, delay=delay) for _ in range(11)))
    assert [each.number for each in added] == list(range(2, 13))
    assert [each.position for each in added] == ([0] * 11 if delay else list(range(200, 1300, 100)))
    assert [desk.job(each.job_id).position for each in added] == [each.position for each in added]
    assert {desk.job(each.job_id).params["text"] for each in added} == {"x" * 20_000}


@pytest.mark.usefixtures("small_values")
def test_a_batch_of_large_params_goes_on_with_the_numbers_of_deleted_jobs(desk, raw):
    raw.execute("UPDATE meta SET value = 40 WHERE key = 'number_floor'")
    assert [each.number for each in desk.put(*(desk.row(params=LARGE) for _ in range(11)))] == list(range(41, 52))


@pytest.mark.usefixtures("small_values")
def test_large_jobs_are_claimed_fewer_at_a_time(desk):
    ids = [each.job_id for each in desk.put(*(desk.row(params=LARGE) for _ in range(7)))]
    claimed = [desk.claim(7) for _ in range(4)]
    assert [len(each) for each in claimed] == [3, 4, 0, 0]
    assert [job.job_id for jobs in claimed for job in jobs] == ids
