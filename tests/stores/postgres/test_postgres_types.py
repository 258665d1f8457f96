"""What a claim of very many job types asks the server for: counted in statements, which a busy machine does not change."""

from __future__ import annotations

import pytest

from rota.stores.postgres.db import ARMS_MAX, Db

MANY = 3 * ARMS_MAX
KNOWN = tuple(f"t{number}" for number in range(10 * ARMS_MAX))


@pytest.fixture
def asked(monkeypatch):
    """The statements that are run, from now on."""
    found = []
    really = Db._run

    def run(db, what, values):
        found.append(what.text)
        return really(db, what, values)

    monkeypatch.setattr(Db, "_run", run)
    return found


def offered(store, want):
    lanes = {lane.job_type: lane.id for lane in store.lanes()}
    known = tuple(lanes.get(name, 1_000_000 + place) for place, name in enumerate(KNOWN))
    with store._reading() as db:
        return db.candidates(known, want, slim=True, suspects=True)


def test_a_claim_of_very_many_types_asks_two_questions_however_many_are_ready(store, desk, asked):
    ids = [desk.row(name) for name in KNOWN[:MANY]]
    desk.put(*ids)
    texts = set()
    for want in (1, 8, ARMS_MAX, MANY - 1):
        asked.clear()
        assert [job.job_id for job in offered(store, want)] == [row.job_id for row in ids[:want]]
        of_claim = [text for text in asked if "job_live" in text]
        assert len(of_claim) == 2
        texts.update(of_claim)
    # Nothing is planned anew for another number of types.
    assert len(texts) == 2


def test_where_one_type_fills_the_head_of_the_queue_it_is_asked_for_more_a_few_times(store, desk, asked):
    head = [desk.row("t0") for _ in range(MANY)]
    desk.put(*head)
    desk.put(*(desk.row(name) for name in KNOWN[:MANY]))
    asked.clear()
    assert [job.job_id for job in offered(store, MANY)] == [row.job_id for row in head]
    assert len(asked) <= 6
