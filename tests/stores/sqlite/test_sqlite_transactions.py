"""The caller's own transaction: all of it or nothing, whatever the caller's SQL does in it."""

import apsw
import pytest

from rota.errors import IllegalMove, TransactionMisuse
from rota.model.settings import Settings
from rota.stores.sqlite import SqliteStore
from tests.stores.desk import Desk


@pytest.fixture
def mine(store):
    """A table of the caller's own, with a few rows."""
    with store.transaction() as tx:
        tx.execute("CREATE TABLE mine (n INTEGER PRIMARY KEY)")
        tx.execute("INSERT INTO mine VALUES (1), (2), (3)")


def undo(tx):
    with pytest.raises(IllegalMove):
        tx.execute("INSERT OR ROLLBACK INTO mine VALUES (1)")


ENDS = {"an error that undoes it": undo, "a commit": lambda tx: tx.execute("COMMIT"), "a rollback": lambda tx: tx.execute("ROLLBACK")}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_written_outside_a_transaction_that_ended_before_its_block(desk, store, mine, raw, end):
    def whole():
        with store.transaction() as tx:
            ENDS[end](tx)
            for late in (lambda: store.enqueue([desk.row()], now=desk.now, transaction=tx), lambda: tx.execute("DELETE FROM mine")):
                with pytest.raises(TransactionMisuse, match="undone by an error in it, or ended by SQL of its own"):
                    late()

    # Who caught those hears of it at the end of the block.
    with pytest.raises(TransactionMisuse, match="leave its `with` block"):
        whole()
    assert desk.order() == []
    assert list(raw.execute("SELECT count(*) FROM mine")) == [(3,)]
    desk.put(desk.row())


def test_a_row_that_comes_back_from_an_insert_need_not_be_read_to_the_end(store, mine, raw):
    with store.transaction() as tx:
        cursor = tx.execute("INSERT INTO mine VALUES (10), (11) RETURNING n")
        assert cursor.fetchone() == (10,)
    assert list(raw.execute("SELECT count(*) FROM mine")) == [(5,)]


def test_a_query_left_in_the_middle_does_not_keep_later_writes_in_the_past(path, raw, mine):
    other = SqliteStore(path, Settings(busy_timeout=0.0))
    desk = Desk(other)
    with other.transaction() as tx:
        cursor = tx.execute("SELECT n FROM mine")
        assert next(cursor) == (1,)
    raw.execute("INSERT INTO mine VALUES (4)")
    desk.put(desk.row())
    with pytest.raises(apsw.CursorClosedError):
        next(cursor)
    other.close()
