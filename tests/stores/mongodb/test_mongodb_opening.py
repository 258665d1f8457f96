"""Opening a store on MongoDB: what a URL may say, and servers and databases that are refused with the remedy."""

from __future__ import annotations

import logging
import traceback

import pytest

from rota import Settings
from rota.errors import InvalidOption, RotaError, StoreError, StoreUnavailable, StoreUnusable
from rota.stores.mongodb import MongoStore
from rota.stores.mongodb.address import address
from tests.stores.desk import Desk
from tests.support.mongodb import GuardedSet, make_set, shared_set

PASSWORD = "s3cr-t.PW"
QUICK = Settings(busy_timeout=0.5)


@pytest.fixture
def servers():
    return shared_set()


@pytest.fixture
def opened():
    """Open a store and add a job; everything is closed at the end."""
    stores = []

    def opens(url):
        store = MongoStore(url, QUICK)
        stores.append(store)
        store.migrate(now=0)
        Desk(store).add()
        return store

    yield opens
    for store in stores:
        store.close()


@pytest.fixture
def database(servers):
    """A database of somebody else's."""
    with servers.client() as client:
        client.drop_database("theirs")
        yield client["theirs"]
        client.drop_database("theirs")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"mongodb://u:{PASSWORD}%zz@h/a", "can't be read"),
        (f"mongodb://u:{PASSWORD}@x@h/a", "can't be read"),
        (f"mongodb://u:{PASSWORD}@h:99999/a", "can't be read"),
        (f"mongodb://u:{PASSWORD}@h/a?w=-1", "can't be read"),
        (f"mongodb://u:{PASSWORD}@h/a?tls=true&tlsCertificateKeyFile=/nowhere", "names a file that can't be read: /nowhere"),
        (f"mongodb://u:x?{PASSWORD.replace('.', '')}=1@h/a", "can't be read"),
        ("mongodb:///a", "can't be read"),
        ("mongodb://h/a$b", "can't be read"),
        ("mongodb://h/a.b", "names a collection"),
        ("mongodb://h/admin", "MongoDB's own"),
        ("mongodb://h/local", "MongoDB's own"),
        ("mongodb://h/" + "x" * 64, "at most 63 bytes"),
    ],
)
def test_a_url_that_can_be_no_store_is_refused_without_its_password(url, why):
    with pytest.raises(InvalidOption, match=why) as refused:
        address(url)
    assert PASSWORD.replace(".", "") not in str(refused.value)
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))


def test_options_of_a_url_do_not_change_what_rota_relies_on(servers, database, opened):
    lax = "&readPreference=secondary&w=0&readConcernLevel=local&retryWrites=false&maxPoolSize=1&serverSelectionTimeoutMS=1"
    store = opened(servers.url("theirs") + lax)
    assert len(store.queue(limit=10)) == 1
    client = store._connections.client
    assert (client.write_concern.document, client.read_concern.level) == ({"w": "majority"}, "majority")
    assert (client.read_preference.mode, client.options.retry_writes) == (0, True)


def test_a_server_that_is_away_is_named_without_the_password(caplog, opened):
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnavailable, match=r"mongodb://u@127.0.0.1:1/a can't be reached") as lost:
        opened(f"mongodb://u:{PASSWORD}@127.0.0.1:1/a")
    assert PASSWORD not in "".join(traceback.format_exception(lost.value)) + caplog.text
    assert "Topology" not in str(lost.value)


def test_a_set_of_another_name_is_refused_with_the_name_and_the_remedy(servers, opened):
    with pytest.raises(StoreUnavailable, match="is not a member of a replica set called 'other': check replicaSet in the URL") as lost:
        opened(servers.url("a").replace("replicaSet=rs0", "replicaSet=other"))
    assert "running" not in str(lost.value)


def test_an_option_that_does_not_exist_is_named_but_not_its_value():
    with pytest.raises(InvalidOption, match="the store's URL has an option 'retrywrite' that MongoDB's driver does not know") as refused:
        address(f"mongodb://u:{PASSWORD}@h/a?retryWrite={PASSWORD}")
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))


def test_who_says_no_name_to_a_server_that_wants_one_is_told_to(tmp_path_factory, opened):
    guarded = GuardedSet(tmp_path_factory.mktemp("guarded"))
    guarded.start()
    try:
        with pytest.raises(StoreUnusable, match="wants a user and a password: set ROTA_STORE to mongodb://user:password@") as refused:
            opened(guarded.url("a").replace("root:root@", "").replace("authSource", "appName"))
        assert "rota grants" not in str(refused.value)
    finally:
        guarded.throw_away()


def test_a_name_that_dns_does_not_know_is_refused(opened):
    with pytest.raises(RotaError, match=r"nowhere\.invalid"):
        opened("mongodb+srv://nowhere.invalid/a")


def test_a_server_without_a_replica_set_is_refused_with_the_remedy(opened):
    single = make_set(single=True)
    try:
        with pytest.raises(StoreUnusable, match="--replSet rs0"):
            opened(single.url("a"))
    finally:
        single.throw_away()


@pytest.mark.parametrize("collection", ["job_live", "templates", "meta", "organizations", "locks"])
def test_a_database_in_which_others_have_collections_of_these_names_is_refused(servers, database, opened, collection):
    database[collection].insert_one({"name": 7})
    with pytest.raises(StoreUnusable, match=f"has a collection '{collection}' that is not Rota's"):
        opened(servers.url("theirs"))
    assert database.list_collection_names() == [collection]


def test_a_database_whose_schema_is_no_number_is_refused(servers, database, opened):
    database["meta"].insert_one({"_id": "schema", "value": "7"})
    with pytest.raises(StoreUnusable, match="is not Rota's"):
        opened(servers.url("theirs"))


def test_a_store_that_was_begun_is_completed_and_other_collections_stay(servers, database, opened):
    database["orders"].insert_one({"_id": 1})
    database.create_collection("job_live")
    database["locks"].insert_one({"_id": "wheel", "turns": 0})
    database["meta"].insert_one({"_id": "late_results", "value": 0})
    assert len(opened(servers.url("theirs")).queue(limit=10)) == 1
    assert database["orders"].count_documents({}) == 1


def test_a_store_can_be_closed_twice_and_opened_again(servers, database, opened):
    store = opened(servers.url("theirs"))
    store.close()
    store.close()
    for call in (lambda: store.queue(limit=1), lambda: store.beat("0" * 32, job_types=[]), store.changed, store.time):
        with pytest.raises(StoreError):
            call()
    again = MongoStore(servers.url("theirs"), QUICK)
    again.migrate(now=0)
    assert len(again.queue(limit=10)) == 1
    again.close()
