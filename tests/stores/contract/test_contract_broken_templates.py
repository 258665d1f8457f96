"""Templates whose rows are damaged: the others are read and recorded, and the code or a person sets the broken one anew."""

from __future__ import annotations

import pytest

from rota.model.definitions import Template
from tests.stores.contract.test_contract_broken import look
from tests.stores.desk import ANNA, Desk

DAMAGES = {
    "defaults that are a list": ("defaults", "[1]"),
    "overrides that are a list": ("overrides", "[1]"),
    "a limit that is no number": ("overrides", '{"max_running": "many"}'),
}


def put(desk: Desk, **defaults: object) -> None:
    new = [Template(id=desk.id(), name=name, job_type=name, defaults=defaults) for name in ("bad", "good")]
    desk.store.put_templates(new, actor=ANNA, now=desk.now)


@pytest.mark.parametrize(("column", "content"), DAMAGES.values(), ids=DAMAGES)
def test_a_template_that_can_not_be_read_is_named_and_the_others_are_read_and_recorded(maker, desk, column, content):
    put(desk)
    maker.damage(f"UPDATE templates SET {column} = '{content}' WHERE name = 'bad'")
    why = f"its {column} can't be read"
    assert {each.name: each.broken for each in desk.store.templates()} == {"bad": why, "good": None}
    (problem,) = look(desk)
    assert problem.text == f"template bad can't be used, and its jobs wait: {why}"
    assert desk.store.fix(now=desk.now) == []

    # The code's word is recorded again when a worker that has it starts; what people said is theirs to say again.
    put(desk, max_running=2)
    assert [each.defaults for each in desk.store.templates()] == [{"max_running": 2}] * 2
    assert bool(look(desk)) == (column == "overrides")
    bad = desk.store.templates()[0]
    desk.store.set_template(bad, actor=ANNA, now=desk.now, overrides={"max_running": 1})
    assert look(desk) == []
    assert maker.template_columns("bad")["max_running"] == 1
    assert maker.template_columns("good")["max_running"] == 2
