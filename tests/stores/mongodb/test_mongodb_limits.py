"""What MongoDB can't hold: documents above 16 MB, and what no text or number of it can be."""

from __future__ import annotations

import pytest

from rota.errors import IllegalMove, InvalidParams
from rota.model.decide import Completed, Failed
from rota.ports.executor import Receipt, Report
from rota.stores.verbs import queue
from tests.faults.documents import misplaced
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker

MOST = 16 << 20
"""The driver lets a document pass that is up to 16 KB larger than this, for the server to refuse."""
A_LITTLE_MORE, MUCH_MORE = MOST + 100, MOST + (1 << 20)


@pytest.fixture
def desk(tmp_path):
    maker = MongoMaker(tmp_path)
    made = Desk(maker.open())
    made.meet()
    yield made
    assert misplaced(maker.servers.url(maker.database)) == []
    maker.close()


def text(length):
    return '"' + "x" * (length - 2) + '"'


@pytest.mark.parametrize("length", [A_LITTLE_MORE, MUCH_MORE])
@pytest.mark.parametrize("count", [1, 2])
def test_params_that_do_not_fit_are_refused_with_the_reason_and_not_repeated(desk, length, count):
    with pytest.raises(InvalidParams, match="at most 16 MB") as refused:
        desk.put(*(desk.row(params=text(length)) for _ in range(count)))
    assert len(str(refused.value)) < 500
    assert desk.order() == []


def test_params_that_just_fit_are_written_and_claimed(desk):
    desk.put(*(desk.row(params=text(MOST - 2000)) for _ in range(3)))
    assert [len(job.params) for job in desk.claim(3)] == [MOST - 2000] * 3


@pytest.mark.parametrize("length", [A_LITTLE_MORE, MUCH_MORE])
@pytest.mark.parametrize("outcome", [lambda long: Completed(result=text(long)), lambda long: Failed(error="x" * long)])
def test_a_result_that_does_not_fit_ends_its_job_and_no_other(desk, length, outcome):
    large, small = desk.several(2)
    jobs = desk.claim(2)
    turned = desk.turn(endings=[desk.ending(jobs[0], outcome(length)), desk.ending(jobs[1], Completed())])
    assert [number for number, _ in turned.refused] == [jobs[0].number]
    assert [desk.status(large), desk.status(small)] == ["DEAD_LETTER", "COMPLETED"]


@pytest.mark.parametrize("length", [MOST, A_LITTLE_MORE, MUCH_MORE])
def test_a_checkpoint_that_does_not_fit_is_reported_as_such(desk, length):
    desk.add()
    (job,) = desk.claim()
    turned = desk.turn(reports=[Report(number=job.number, checkpoint=text(length))])
    assert turned.unkept == {job.number: Receipt.UNWRITABLE}
    desk.done(job)


def test_a_key_may_have_any_characters_and_1024_of_them(desk):
    for key in ("a.b", "$a", "a\0b", "k" * 1024, "\N{GRINNING FACE}" * 1024):
        (first,) = desk.put(desk.row(unique_key=key))
        (second,) = desk.put(desk.row(unique_key=key))
        assert (second.job_id, second.existing) == (first.job_id, True)
    with pytest.raises(IllegalMove, match=r"between 1 and 1,024"):
        desk.put(desk.row(unique_key="k" * 1025))


def test_any_number_of_the_longest_keys_are_asked_for(desk):
    longest = "\N{GRINNING FACE}" * 1020
    rows = [desk.row(unique_key=f"{longest}{number:04}") for number in range(4500)]
    desk.put(rows[-1])
    with desk.store._reading() as db:
        assert list(queue.standing(db, rows)) == [4499]
