"""Several machines on one MongoDB: what holds on PostgreSQL holds here."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from rota import Settings
from rota.stores.mongodb import MongoStore
from tests.faults.hosts import SMALL, Hosts
from tests.faults.test_several_hosts import (
    TTL_S,
    network,
    rota,
    test_a_machine_that_is_back_before_others_take_over_goes_on_under_its_id_and_its_jobs_were_interrupted,
    test_a_machine_that_is_cut_off_has_stopped_its_handlers_of_every_kind_when_another_takes_over_and_goes_on_when_it_is_back,
    test_a_process_whose_threads_do_not_stop_ends_itself_before_others_take_over,
    test_an_edit_from_a_machine_whose_clock_is_an_hour_ahead_leaves_the_ledger_where_it_is,
    test_machines_whose_clocks_are_an_hour_apart_fire_every_due_time_once_and_give_nobody_up,
    test_of_a_process_that_is_stopped_the_handler_processes_end_themselves_and_its_late_result_is_refused_when_it_wakes,
)
from tests.support.mongodb import make_set
from tests.support.waiting import eventually

__all__ = [
    "network",
    "rota",
    "test_a_machine_that_is_back_before_others_take_over_goes_on_under_its_id_and_its_jobs_were_interrupted",
    "test_a_machine_that_is_cut_off_has_stopped_its_handlers_of_every_kind_when_another_takes_over_and_goes_on_when_it_is_back",
    "test_a_process_whose_threads_do_not_stop_ends_itself_before_others_take_over",
    "test_an_edit_from_a_machine_whose_clock_is_an_hour_ahead_leaves_the_ledger_where_it_is",
    "test_machines_whose_clocks_are_an_hour_apart_fire_every_due_time_once_and_give_nobody_up",
    "test_of_a_process_that_is_stopped_the_handler_processes_end_themselves_and_its_late_result_is_refused_when_it_wakes",
]
pytestmark = pytest.mark.paired

NAME = "hosts"


@pytest.fixture(scope="module")
def servers(network):
    made = make_set(host=network.here)
    yield made
    made.throw_away()


@pytest.fixture
def hosts(servers, network, tmp_path):
    with servers.client() as client:
        client.drop_database(NAME)
    network.mend()
    made = Hosts(tmp_path, servers.url(NAME))
    yield made
    made.close()


def test_a_process_that_is_stopped_inside_a_transaction_keeps_nobody_out_for_long(hosts, rota):
    """Who waits for it asks the server to end its session: else a stopped process would hold the locks until the server's limit of 60 s."""
    store = rota._session.open().store
    pid = os.fork()
    if not pid:
        own = MongoStore(hosts.url, Settings(**SMALL))
        own._write(lambda _: os.kill(os.getpid(), signal.SIGSTOP))
        os._exit(0)
    try:
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, what="the stop")
        began = time.monotonic()
        store.recovered(now=0)
        assert 0.1 < time.monotonic() - began < TTL_S
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
