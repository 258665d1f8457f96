from __future__ import annotations

import pytest

from rota.runners.failures import is_permanent, is_permanent_sqlite, located


@pytest.mark.parametrize(
    "sqlstate",
    ["42601", "42P01", "42501", "2D000", "0A000", "28P01", "28000", "3D000", "3F000", "22012", "22P02", "21000", "23502", "23514", "25001",
     "44000", "54001", "55000", "57P04", "XX001"],
)  # fmt: skip
def test_what_somebody_has_to_change_is_permanent(sqlstate):
    assert is_permanent(sqlstate)


@pytest.mark.parametrize(
    "sqlstate",
    [None, "40001", "40P01", "53100", "53200", "53300", "57014", "57P01", "57P02", "57P03", "57P05", "08001", "08006", "08007", "55P03",
     "55006", "25006", "25P03", "23505", "23503", "23P01", "P0001", "38000", "58030", "XX000"],
)  # fmt: skip
def test_what_may_pass_is_transient(sqlstate):
    assert not is_permanent(sqlstate)


@pytest.mark.parametrize(
    "name",
    ["SQLITE_ERROR", "SQLITE_AUTH", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_CORRUPT_VTAB", "SQLITE_READONLY", "SQLITE_TOOBIG",
     "SQLITE_CONSTRAINT_CHECK", "SQLITE_CONSTRAINT_NOTNULL", "SQLITE_MISMATCH"],
)  # fmt: skip
def test_what_fails_again_on_sqlite_is_permanent(name):
    assert is_permanent_sqlite(name)


@pytest.mark.parametrize(
    "name",
    ["SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_NOMEM", "SQLITE_CANTOPEN",
     "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_FOREIGNKEY", "SQLITE_CONSTRAINT_TRIGGER"],
)  # fmt: skip
def test_what_may_pass_on_sqlite_is_transient(name):
    assert not is_permanent_sqlite(name)


def test_a_message_shows_the_line_and_a_caret():
    assert located("no", "SELECT 1,\n  nope\nFROM t", 13) == "no\nLINE 2:   nope\n          ^"


def test_a_long_line_is_cut_around_the_place():
    said = located("no", "x" * 500 + "Y" + "z" * 500, 501).split("\n")
    assert len(said[1]) < 120
    assert said[1][said[2].index("^")] == "Y"


@pytest.mark.parametrize("position", [None, 0, 99])
def test_a_place_outside_the_body_is_not_shown(position):
    assert located("no", "SELECT 1", position) == "no"
