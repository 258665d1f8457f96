"""Dropping a template looks for its jobs before the write lock is taken, and again, briefly, under it."""

import pytest

from rota.errors import TemplateInUse
from rota.model.definitions import Template
from rota.stores.verbs import definitions
from tests.stores.desk import ANNA


def test_a_job_that_arrives_between_the_look_and_the_drop_keeps_its_template(desk, monkeypatch):
    desk.store.put_templates([Template(id=desk.id(), name="t", job_type="t")], actor=ANNA, now=desk.now)
    look = definitions.look_for_jobs

    def look_and_be_late(db, name):
        newest = look(db, name)
        desk.add()
        return newest

    monkeypatch.setattr(definitions, "look_for_jobs", look_and_be_late)
    with pytest.raises(TemplateInUse):
        desk.store.drop_template("t", actor=ANNA, now=desk.now)
    assert [each.name for each in desk.store.templates()] == ["t"]


def test_a_dropped_template_stays_readable_for_those_who_refer_to_it(desk, raw):
    desk.store.put_templates([Template(id=desk.id(), name="t", job_type="t")], actor=ANNA, now=desk.now)
    desk.store.drop_template("t", actor=ANNA, now=desk.now)
    assert list(raw.execute("SELECT name, dropped_at FROM templates")) == [("t", desk.now)]
