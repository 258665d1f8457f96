"""Logs of runs in the store: pieces that only grow, are read from any byte on, and go with their run."""

import pytest

from rota.model.values import SECOND
from rota.ports.run_logs import Piece
from tests.stores.desk import ANNA

DAY = 86_400 * SECOND


@pytest.fixture
def run(desk):
    desk.add()
    return desk.claim_one()


def append(desk, run, start, data):
    return desk.store.append_logs([Piece(run.run_id, run.number, start, data)], now=desk.now)


def whole(desk, run):
    return desk.store.read_log(run.run_id, after=0)


def test_a_log_grows_by_pieces_and_is_read_from_any_byte_on(desk, run):
    assert append(desk, run, 0, "zwölf\n".encode()) == {run.run_id: 7}
    assert append(desk, run, 7, b"\x00\xff\n") == {run.run_id: 10}
    text = "zwölf\n".encode() + b"\x00\xff\n"
    assert [desk.store.read_log(run.run_id, after=place) for place in range(12)] == [text[place:] for place in range(12)]


def test_several_pieces_of_several_logs_are_added_at_once(desk, run):
    desk.add()
    other = desk.claim_one()
    pieces = [
        Piece(run.run_id, run.number, 0, b"a\n"),
        Piece(other.run_id, other.number, 0, b"x\n"),
        Piece(run.run_id, run.number, 2, b"b\n"),
    ]
    assert desk.store.append_logs(pieces, now=desk.now) == {run.run_id: 4, other.run_id: 2}
    assert (whole(desk, run), whole(desk, other)) == (b"a\nb\n", b"x\n")


def test_a_piece_that_is_there_already_or_leaves_a_gap_changes_nothing(desk, run):
    append(desk, run, 0, b"one\n")
    assert append(desk, run, 0, b"one\ntwo\n") == {run.run_id: 4}
    assert append(desk, run, 2, b"e\ntwo\n") == {run.run_id: 4}
    assert append(desk, run, 9, b"late\n") == {run.run_id: 4}
    assert whole(desk, run) == b"one\n"


def test_a_log_may_still_grow_when_its_run_has_ended(desk, run):
    desk.done(run)
    assert append(desk, run, 0, b"last words\n") == {run.run_id: 11}


def test_no_log_is_kept_of_a_run_that_is_not_there(desk, run):
    stranger = desk.id()
    pieces = [Piece(stranger, run.number, 0, b"x\n"), Piece(run.run_id, run.number + 1, 0, b"x\n")]
    assert desk.store.append_logs(pieces, now=desk.now) == {}
    assert desk.store.read_log(stranger, after=0) == b""


def test_a_long_log_is_read_in_bounded_parts(desk, run):
    for place in range(0, 100 * 10, 10):
        append(desk, run, place, b"123456789\n")
    read = b""
    parts = []
    while part := desk.store.read_log(run.run_id, after=len(read)):
        parts.append(len(part))
        read += part
    assert (len(read), max(parts)) == (1000, 640)


def test_runs_that_ended_and_have_a_log_are_told_with_their_jobs(desk, run):
    desk.add()
    running = desk.claim_one()
    desk.add()
    silent = desk.claim_one()
    append(desk, run, 0, b"x\n")
    append(desk, running, 0, b"x\n")
    desk.done(run)
    desk.done(silent)
    assert desk.store.ended_logs([run.run_id, running.run_id, silent.run_id, desk.id()]) == {run.run_id: run.number}


def test_retention_and_discard_remove_the_log_with_its_run(desk, run):
    append(desk, run, 0, b"x\n")
    desk.done(run)
    desk.add()
    other = desk.claim_one()
    append(desk, other, 0, b"x\n")
    desk.done(other)
    desk.store.discard(other.job_id, actor=ANNA, now=desk.now)
    assert (whole(desk, run), whole(desk, other)) == (b"x\n", b"")
    desk.advance(31 * 86_400)
    desk.store.purge(before=desk.now - 30 * DAY, limit=10, now=desk.now, dry_run=False)
    assert whole(desk, run) == b""
    assert append(desk, run, 0, b"too late\n") == {}
