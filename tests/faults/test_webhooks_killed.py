"""kill -9 and webhooks: what has ended is told, whoever was there to tell it; a crash is told too."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from rota import Rota, Settings
from tests.support.receiver import receiving
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

OPEN = {"webhook_private": "allow", "webhook_http": "allow", "webhook_interval": 0.05, "webhook_timeout": 1, "webhook_lease": 0.5}


def test_what_ended_before_its_worker_was_killed_is_told_by_the_next_and_the_crash_as_well(stage):
    gate = stage.folder / "gate"
    with receiving() as receiver, closing(Rota(stage.database, settings=Settings(**OPEN))) as rota:
        rota.job(name="work")(lambda ctx, ms=0: None)
        rota.job(name="hold")(lambda ctx, gate: None)
        hook = rota.webhooks.create(receiver.url("/hang")).webhook
        done = rota.enqueue("work")
        lost = rota.enqueue("hold", {"gate": str(gate)}, max_retries=0)
        worker = stage.worker(2, **OPEN)
        eventually(lambda: receiver.received and len(stage.entries) == 2, what="a message under way, and a job that runs")
        worker.kill()
        rota.webhooks.update(hook.id, url=receiver.url("/200"))
        receiver.let_go.set()
        stage.worker(2, **OPEN)
        eventually(lambda: len(receiver.to("/200")) >= 2, within=20, what="both ends")
    told = {json.loads(each.body)["job"]["id"]: each.json for each in receiver.to("/200")}
    assert told[done.id]["event"] == "run.completed"
    assert told[lost.id]["event"] == "run.dead_lettered"
    assert told[lost.id]["error"] == {"type": "crash", "message": "Scheduler crash recovery"}
