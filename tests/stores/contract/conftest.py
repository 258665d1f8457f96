"""Every store that keeps the contract. A store joins by adding its maker; nothing here is skipped for one of them."""

from __future__ import annotations

import pytest

from tests.stores.desk import Desk


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def desk(store):
    return Desk(store)
