"""Every store that keeps the contract. A store joins by adding its maker; nothing here is skipped for one of them."""

from __future__ import annotations

import pytest

from rota.stores.mongodb.statements import turn as mongodb_turn
from rota.stores.postgres import db as postgres_db
from rota.stores.sqlite import db as sqlite_db
from rota.stores.verbs import endings, ledger, recovery
from tests.stores.desk import Desk
from tests.support.proof import size


@pytest.fixture
def store(maker):
    return maker.open()


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def few_told(monkeypatch):
    """Have the move that ends a job tell only a few of those who wait for it; return how many."""
    for module in (endings, ledger, recovery):
        monkeypatch.setattr(module, "SETTLE_MAX", 20)
    return 20


@pytest.fixture
def few_arms(monkeypatch):
    """Have a store ask for only a few lanes one by one, and for more than these in another way; return how many."""
    for module in (mongodb_turn, postgres_db, sqlite_db):
        monkeypatch.setattr(module, "ARMS_MAX", min(module.ARMS_MAX, size(20, prove=200)))
    return sqlite_db.ARMS_MAX
