"""Hints by a change stream over the bell."""

from __future__ import annotations

import os
from contextlib import closing, suppress

import pytest

from rota import Settings
from rota.stores.mongodb.notices import listener
from tests.stores.desk import Desk
from tests.stores.makers import MongoMaker
from tests.support.waiting import eventually


@pytest.fixture
def maker(tmp_path):
    made = MongoMaker(tmp_path)
    yield made
    made.close()


def is_rung(heard):
    with suppress(BlockingIOError, TypeError):
        return bool(os.read(heard.fileno(), 100))
    return False


def test_hints_arrive_again_after_the_bell_was_dropped_and_restored(maker):
    desk, bell = Desk(maker.open()), maker.hand.database["bell"]
    with closing(listener(desk.store.address, Settings())) as heard:
        eventually(lambda: is_rung(heard))
        documents = list(bell.find())
        bell.drop()
        bell.insert_many(documents)
        # The stream has ended, and another one begins with a hint.
        eventually(lambda: is_rung(heard))
        while is_rung(heard):
            pass
        desk.add()
        eventually(lambda: is_rung(heard))
