"""Every store that keeps the contract. A store joins by adding its maker; nothing here is skipped for one of them."""

from __future__ import annotations

import pytest

from tests.stores.desk import Desk
from tests.stores.makers import MAKERS


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.name)
def maker(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def desk(store):
    return Desk(store)
