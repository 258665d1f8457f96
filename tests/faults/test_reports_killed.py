"""kill -9 between an outcome and its delivery: every report reaches the receiver, under one id with one content."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from contextlib import closing

import pytest

from rota import Rota, Settings
from rota.model.reports import EVENT_OF, Phase
from rota.model.schedules import Fate
from rota.model.webhooks import DeliveryState
from rota.ports.schedules import Ledger
from tests.faults import raw
from tests.support.proof import size
from tests.support.receiver import receiving
from tests.support.waiting import eventually

pytestmark = [pytest.mark.paired, pytest.mark.prove]

KILLS = size(4, prove=50)
"""On each of two stores."""
OPEN = {
    "webhook_private": "allow",
    "webhook_http": "allow",
    "webhook_interval": 0.05,
    "webhook_timeout": 1,
    "webhook_lease": 0.2,
    "webhook_retries": ",".join(["0.1"] * 200),
}


def written(stage) -> int:
    with raw.reading(stage.database) as db:
        return next(iter(db.execute("SELECT count(*) FROM schedule_reports")))[0]


def test_a_worker_killed_between_outcome_and_delivery_loses_no_report_and_repeats_none_with_another_content(stage):
    chance = random.Random(23)
    with receiving() as receiver, closing(Rota(stage.database, settings=Settings(**OPEN))) as rota:
        rota.job(name="work")(lambda ctx, ms=0: None)
        rota.webhooks.create(receiver.url("/script"), events=["schedule.missed", "schedule.skipped"])
        names = [f"s{index}" for index in range(4)]
        for name in names:
            rota.schedules.create(name, "work", params={"ms": 1200}, every=1, overlap="skip", catch_up="none")
        for _ in range(KILLS):
            before = written(stage)
            worker = stage.worker(4, **OPEN)
            eventually(lambda before=before: written(stage) > before, within=30, what="an outcome that is reported")
            time.sleep(chance.choice((0.0, 0.0, 0.05, 0.3)))
            worker.kill()
            # Some of what is sent next is refused, so that it has to be sent again.
            receiver.script += chance.choices((200, 500), k=3)
        for name in names:
            rota.schedules.disable(name)
        stage.worker(4, **OPEN)
        eventually(lambda: not rota.webhooks.deliveries(state=DeliveryState.WAITING, limit=1), within=60, what="every message delivered")
        store = rota._session.open().store
        reports = {each.report.key: each.report for each in store.reports_after(0, limit=100_000)}
        rows = store.occurrences(Ledger(), limit=100_000)
    bodies = defaultdict(set)
    for message in receiver.received:
        bodies[message.key].add(message.body)
    assert {key: contents for key, contents in bodies.items() if len(contents) > 1} == {}
    assert set(bodies) == set(reports)
    spans = {(row.schedule_id, row.due_at, row.fate): row for row in rows if row.fate in EVENT_OF}
    assert {row.fate for row in spans.values()} >= {Fate.SKIPPED_OVERLAP}
    for phase in Phase:
        assert {(each.schedule_id, each.due_at, each.outcome) for each in reports.values() if each.phase is phase} == set(spans)
    for each in reports.values():
        if each.phase is Phase.CLOSED:
            row = spans[each.schedule_id, each.due_at, each.outcome]
            assert (each.last_due_at, each.count, each.reason) == (row.last_due_at, row.count, row.reason)
