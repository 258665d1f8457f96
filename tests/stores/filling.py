"""A store with 100,000 jobs of every kind, for those who look at plans: ended, waiting, due later, keyed, grouped, retried, expiring."""

from __future__ import annotations

import msgspec

from rota.model.decide import Failed
from rota.model.schedules import Overlap, ScheduleState

TYPES = [f"t{index}" for index in range(50)]


def fill(desk):
    def bulk(count, **fields):
        row = desk.row(**fields)
        desk.put(*(msgspec.structs.replace(row, job_id=job_id) for job_id in desk.ids.take(count, desk.now)))

    for index in range(30):
        bulk(1000, job_type=TYPES[index], priority=(25, 50, 75)[index % 3], organization_id=f"o{index % 4}")
    while some := desk.claim(2000, types=TYPES):
        desk.turn(
            done=[(job.number, desk.now) for job in some if job.number % 20],
            endings=[desk.ending(job, Failed("x")) for job in some if not job.number % 20],
        )
    for index in range(40):
        bulk(1000, job_type=TYPES[index], priority=(25, 50, 75)[index % 3], organization_id=f"o{index % 4}")
    for index in range(28):
        bulk(1000, job_type=TYPES[index], priority=(25, 50, 75)[index % 3], delay=3600 + index, expires_at=desk.now + 10**12)
    for _ in range(20):
        desk.grouped([desk.row(TYPES[0], unique_key=desk.id()) for _ in range(20)])
    bulk(1000, job_type=TYPES[1], depends_on=(desk.add(TYPES[0], delay=3600),))
    desk.claim(200, types=TYPES[:5])


def fill_schedules(desk, templates=50, schedules=200):
    """Some that have fired, some that wait for others, some that run."""
    parent = desk.schedule("parent", state=ScheduleState.DISABLED)
    for index in range(templates):
        desk.template(f"template{index}")
    for index in range(schedules):
        desk.schedule(f"s{index}", overlap=Overlap.ALLOW, depends_on=("parent",) if index % 4 == 0 else ())
    for _ in range(5):
        desk.pass_time(60)
    desk.put(*(desk.row(schedule_id=parent.id) for _ in range(50)))
    return bytes.fromhex(parent.id)
