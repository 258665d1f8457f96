"""Creating a store on MongoDB: any number of processes may come at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from rota import Settings
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.schema import COLLECTIONS
from tests.stores.desk import Desk
from tests.support.mongodb import shared_set

AT_ONCE = 6


def test_stores_that_are_created_at_the_same_time_are_one_store():
    servers = shared_set()
    stores = [MongoStore(servers.url("created"), Settings()) for _ in range(AT_ONCE)]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda store: store.migrate(now=0), stores))
        with servers.client() as client:
            assert set(client["created"].list_collection_names()) == set(COLLECTIONS)
        Desk(stores[0]).add()
        assert len(Desk(stores[1]).claim(2)) == 1
    finally:
        for store in stores:
            store.close()
        with servers.client() as client:
            client.drop_database("created")
