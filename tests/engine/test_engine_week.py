"""A simulated week: hundreds of jobs that fail as they please, under a clock that moves. Everything ends."""

from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from rota import Actor, Backoff, NewJob, PermanentError, Retry, Rota, Settings, Skip, Snooze
from rota.model.ordering import order_key
from rota.model.states import CHAIN_ENDS, Status
from rota.model.values import instant
from tests.support.runs import run_of


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_simulated_week_everything_has_ended_by_its_rules(tmp_path, clock, seed):  # noqa: C901 - a story
    chance = Random(seed)
    rota = Rota(tmp_path / "week.db", clock=clock, settings=Settings(synchronous="NORMAL"), seed=seed)
    rota.organizations.create("acme")
    started = []

    @rota.job(max_retries=3, backoff=Backoff(base=60, factor=2, cap=3600, jitter=0.2))
    def act(ctx, n):
        started.append((n, ctx.attempt, ctx.root_id))
        dice = chance.random()
        if dice < 0.25:
            raise ValueError("unlucky")
        if dice < 0.30:
            raise PermanentError("hopeless")
        if dice < 0.35:
            raise Snooze(600)
        if dice < 0.40:
            raise Retry(after=30)
        if dice < 0.45:
            raise Skip("nothing to do")
        return n if dice < 0.7 else None

    jobs, groups, n = [], [], 0
    for hour in range(7 * 24):
        for _ in range(chance.randrange(4)):
            n += 1
            jobs.append(
                rota.jobs.get(
                    rota.acting_as(Actor("anna", chance.choice(["default", "acme"]))).enqueue(
                        "act",
                        {"n": n},
                        priority=chance.choice(["low", "normal", "high"]),
                        run_at=timedelta(minutes=chance.randrange(300)) if chance.random() < 0.3 else None,
                        queue_ttl=7200 if chance.random() < 0.1 else None,
                        unique_key=f"key-{chance.randrange(20)}" if chance.random() < 0.2 else None,
                    )
                ).root_id
            )
        if hour % 24 == 5:
            groups.append(
                rota.group(
                    [NewJob(name="act", params={"n": -hour}) for _ in range(3)],
                    mode=chance.choice(["sequential", "parallel"]),
                    on_failure=chance.choice(["stop", "continue", "skip"]),
                ).id
            )
        if hour % 50 == 10:
            rota.organizations.pause("acme")
        if hour % 50 == 13:
            rota.organizations.resume("acme")
        if chance.random() < 0.1:
            cancel_one(rota, chance, jobs)
        check_order(rota)
        rota.turn()
        check_order(rota)
        clock.advance(minutes=chance.randrange(20, 100))
    rota.organizations.resume("acme")
    for _ in range(200):
        rota.turn()
        clock.advance(minutes=30)
    check_everything(rota, jobs, groups, started)
    rota.close()


def cancel_one(rota, chance, jobs):
    live = [job.root_id for status in ("PENDING", "QUEUED") for job in rota.jobs.list(status=status)]
    if live:
        rota.jobs.cancel(chance.choice(live))


def check_order(rota):
    queue = rota.queues.jobs(limit=1000)
    assert queue == sorted(queue, key=lambda job: order_key(job.priority, job.position, instant(job.created_at), job.id))


def check_everything(rota, jobs, groups, started):
    stats = rota.store.stats()
    assert stats.by_status["PENDING"] == stats.by_status["QUEUED"] == stats.by_status["RUNNING"] == 0
    assert stats.late_results == 0
    executions = Counter(root for _, _, root in started)
    assert len(set(jobs)) > 200
    for root in set(jobs):
        chain = rota.jobs.attempts(root)
        assert chain[-1].status in CHAIN_ENDS
        assert all(job.status in {Status.FAILED, Status.SKIPPED} for job in chain[:-1])
        assert sum(job.status is Status.FAILED for job in chain) <= 3
        assert executions[root] == sum(job.started_at is not None for job in chain)
        for before, after in pairwise(chain):
            assert after.retry_of == before.id
            assert after.started_at is None or after.started_at >= after.run_at
            if before.status is Status.FAILED and run_of(rota, before.id).error.startswith("ValueError"):
                delay = (after.run_at - before.finished_at).total_seconds()
                plain = 60 * 2 ** (after.failures - 1)
                assert plain * 0.8 - 0.001 <= delay <= plain * 1.2 + 0.001
    for group in groups:
        assert rota.groups.get(group).status in {"COMPLETED", "PARTIAL", "CANCELLED"}
    by_attempt = defaultdict(list)
    for _, attempt, root in started:
        by_attempt[root].append(attempt)
    assert all(attempts == sorted(set(attempts)) for attempts in by_attempt.values())
