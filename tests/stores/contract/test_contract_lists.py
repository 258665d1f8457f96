"""Lists have several ways to their rows: whichever is taken, the page is the same."""

from itertools import product

import pytest

from rota.model.decide import Failed, TimedOut
from rota.model.values import SECOND
from rota.ports.store import Adopted, Where
from rota.ports.turns import Choice
from rota.stores.verbs import lists
from tests.stores.desk import ANNA, START


@pytest.fixture
def mixed(desk):
    """Jobs in every state and of several types; the clock steps back and forth, and some are imported with times long past."""

    def park_some(jobs, _reservation, _usage):
        return Choice(take=jobs[2:], park=[(job.number, f"organization:{job.organization_id}") for job in jobs[:2]])

    for round_, minute in enumerate((5, 3, 0, 9, 1, 8)):
        desk.now = START + minute * 60 * SECOND
        for job_type, organization in product(("common", "common", "other"), ("default", "acme")):
            desk.add(job_type, organization_id=organization, owner=("anna", "bob")[round_ % 2], max_retries=1)
        desk.add("common", delay=9e6)
        desk.add("other", depends_on=(desk.add("parent"),))
        desk.claim(2, types=["common", "other"], choose=park_some)
        jobs = desk.claim(3, types=["common", "other"])
        desk.end(jobs[0], Failed("x", permanent=round_ % 2 == 0))
        desk.end(jobs[1], TimedOut(1.0))
        desk.done(jobs[2])
        old = Adopted(row=desk.row("other", chosen=True), created_at=START - 3600 * SECOND)
        desk.store.adopt([old], adopter_id=desk.worker, actor=ANNA, now=desk.now)
    desk.done(*desk.claim(1, types=["parent"]))
    desk.store.cancel(desk.add("rare"), actor=ANNA, now=desk.now)
    desk.claim(3, types=["common", "other"])
    return desk


QUESTIONS = [
    Where(status=status, job_type=job_type, organization=organization, owner=owner, created_from=since, created_until=until)
    for status, job_type, (organization, owner), (since, until) in product(
        [(), ("PENDING",), ("QUEUED", "RUNNING"), ("COMPLETED",), ("DEAD_LETTER", "TIMED_OUT"), ("QUEUED", "FAILED"), ("CANCELLED",)],
        [None, "common", "other", "rare", "nobody's"],
        [(None, None), ("acme", None), ("default", "bob")],
        [(None, None), (START + 180 * SECOND, None), (None, START + 180 * SECOND), (START - 9999 * SECOND, START)],
    )
]


WAYS = {
    "all is small": (20_000, 8),
    "all is large": (1, 1),
    "the walk goes on": (1, 10**9),
    "a short walk, then an index": (7, 1),
    "by size": (7, 3),
    "a long walk": (40, 10**9),
}
"""How far a list is walked before its size is asked for, and how much dearer a walk may be."""


def test_a_page_is_the_same_whichever_way_it_is_looked_for(mixed, maker, monkeypatch):
    # Where each takes a round trip, some of every kind.
    questions = QUESTIONS if maker.name == "sqlite" else QUESTIONS[::11]

    def pages(limit):
        return [mixed.store.find(where, limit=limit, before=before) for where in questions for before in (None, 50)]

    with monkeypatch.context() as plain:
        plain.setattr(lists, "_sources", lambda *_, **__: iter(()))
        walked = {limit: pages(limit) for limit in (3, 1000)}
    assert sum(map(bool, walked[1000])) > len(questions) // 4
    for way, (probe, dearer) in WAYS.items():
        monkeypatch.setattr(lists, "PROBE", probe)
        monkeypatch.setattr(lists, "DEARER", dearer)
        for limit, wanted in walked.items():
            assert pages(limit) == wanted, way
