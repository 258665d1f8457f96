"""Handlers over their timeout that have not returned: their slots are nobody's, and nothing is claimed for them."""

import threading
import time
from contextlib import closing

from rota import Rota
from tests.support.pace import patient
from tests.support.waiting import eventually


def test_nothing_is_claimed_for_the_slots_of_handlers_that_were_given_up(tmp_path):
    over, started = threading.Event(), []
    with closing(Rota(tmp_path / "rota.db")) as rota:
        rota.job(name="stuck", timeout=0.05, max_retries=0)(lambda: over.wait(patient(20)))
        rota.job(name="long")(lambda number: started.append(number) or over.wait(patient(20)))
        with rota.running(concurrency=8):
            rota.enqueue_many([("stuck", {})] * 4)
            eventually(lambda: rota.store.stats().by_status["DEAD_LETTER"] == 4, what="that four are given up")
            rota.enqueue_many(("long", {"number": number}) for number in range(8))
            eventually(lambda: len(started) == 4, what="that the others run")
            time.sleep(0.1)
            by_status = rota.store.stats().by_status
            over.set()
    assert (by_status["RUNNING"], by_status["QUEUED"]) == (4, 4)
