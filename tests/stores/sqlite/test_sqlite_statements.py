"""How the values of a call reach a statement."""

from __future__ import annotations

import pytest

from rota.stores.sqlite.db import compiled


@pytest.mark.parametrize(("given", "bound"), [((1, 2), "[1,2]"), ({7: "a"}, '{"7":"a"}'), ("[1]", "[1]"), (None, None)])
def test_a_list_is_encoded_where_a_statement_walks_over_it(given, bound):
    walks = compiled("SELECT value, :now FROM json_each(:numbers)")
    assert list(walks.values({"numbers": given, "now": 3})) == [3, bound]


def test_a_list_is_encoded_nowhere_else():
    assert list(compiled("UPDATE t SET a = :numbers").values({"numbers": [1]})) == [[1]]
