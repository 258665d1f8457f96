"""A promotion to or from MongoDB that is killed has lost nothing on either side, and can be repeated."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.compose import open_place
from rota.stores.mongodb import marks
from tests.faults.test_promote_killed import SETTINGS, database, file, filled, is_empty, killed_at, known_key, promoted
from tests.support.mongodb import shared_set
from tests.support.whole import neutral

__all__ = ["database", "file", "filled", "known_key"]

KILLED = [
    ("sqlite", "mongodb", "copying", "jobs"),
    ("sqlite", "mongodb", "verifying", "jobs"),
    ("sqlite", "mongodb", "committing"),
    ("mongodb", "sqlite", "committing"),
    ("mongodb", "postgres", "verifying", "jobs"),
    ("postgres", "mongodb", "committing"),
]
CLOSED_LATE = [("mongodb", "sqlite"), ("mongodb", "postgres"), ("postgres", "mongodb")]
NAME = "killed"


@pytest.fixture
def raw():
    with shared_set().client() as client:
        yield client[NAME]
        client.drop_database(NAME)


@pytest.fixture
def places(file, database, raw, tmp_path):
    """Where a store of each kind is; the file that is filled is beside that to which one is moved back."""
    del raw
    return {"filled": file, "sqlite": tmp_path / "back.db", "postgres": database, "mongodb": shared_set().url(NAME)}


def source_of(places, kind):
    """Return where the store is that is to be moved."""
    if kind == "sqlite":
        return places["filled"]
    promoted(places["filled"], places[kind])
    return places[kind]


def let_marks_pass(raw):
    """Let the time pass for which others wait for a copy whose process has died."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    raw["locks"].update_many({"copying": {"$exists": True}}, {"$set": {"copying.until": past}})


@pytest.mark.parametrize("case", KILLED, ids=" ".join)
def test_killed_on_the_way_it_has_changed_nothing_and_can_be_repeated(places, raw, case):
    kind, to, *step = case
    source, target = source_of(places, kind), places[to]
    before = neutral(source, SETTINGS)
    killed_at(source, target, *step)
    assert raw["locks"].count_documents({"copying": {"$exists": True}})
    assert is_empty(target)
    assert neutral(source, SETTINGS) == before
    let_marks_pass(raw)
    done = promoted(source, target)
    assert (done.already, done.closed) == (False, True)
    assert neutral(target, SETTINGS) == before
    assert marks.names_beside(raw) == []
    assert raw["locks"].count_documents({"copying": {"$exists": True}}) == 0


@pytest.mark.parametrize(("kind", "to"), CLOSED_LATE, ids=lambda kind: kind)
def test_killed_before_the_source_is_closed_the_repetition_closes_it(places, raw, kind, to):
    source, target = source_of(places, kind), places[to]
    before = neutral(source, SETTINGS)
    killed_at(source, target, "closing")
    let_marks_pass(raw)
    assert neutral(target, SETTINGS) == before
    assert open_place(str(source), SETTINGS).depot.moved() is None
    again = promoted(source, target)
    assert (again.already, again.closed) == (True, True)
    assert neutral(target, SETTINGS) == before
