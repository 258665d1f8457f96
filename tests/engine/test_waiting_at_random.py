"""Groups and dependencies under random orders of events: nobody starts before those it waits for, and nobody waits for ever."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from rota.errors import RotaError
from rota.model.decide import Completed, Failed, Released, Skipped, Snoozed
from rota.model.states import CHAIN_ENDS, Status
from rota.model.values import SECOND
from tests.stores.desk import ANNA, Desk, inside
from tests.stores.makers import MongoMaker, PostgresMaker, SqliteMaker

OUTCOMES = (Completed(), Completed("1"), Failed("x"), Failed("x", permanent=True), Snoozed(5.0), Skipped("no"), Released())


class World:
    """A desk at which everything is done at random, and what was asked for there."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk, self.rng = desk, Random(seed)
        self.parents: dict[str, tuple[str, ...]] = {}
        self.before: dict[str, list[str]] = {}
        """The earlier members of its sequence."""
        self.followed: dict[str, list[str]] = {}
        """The members of the group that it follows."""
        self.any_end: set[str] = set()
        """To these any end of their parents will do."""
        self.by_hand: set[str] = set()
        """Retried by hand: these wait for nobody."""
        self.running = []

    def status(self, root: str) -> Status:
        return self.desk.tail(root).status

    def row(self, known: list[str]):
        some = tuple(self.rng.sample(known, min(len(known), self.rng.choice([0, 0, 1, 2]))))
        fields = {
            "depends_on": some,
            "on_parent_failure": self.rng.choice(["wait", "skip", "cancel", "run"]),
            "max_retries": self.rng.choice([0, 1]),
        }
        if self.rng.random() < 0.3:
            fields["expires_at"] = self.desk.now + self.rng.randint(1, 90) * SECOND
        return self.desk.row(delay=self.rng.choice([0, 0, 30]), **fields)

    def group(self) -> None:
        rows = []
        for _ in range(self.rng.randint(2, 5)):
            rows.append(self.row([*list(self.parents)[-3:], *(row.job_id for row in rows)]))
        then = self.desk.row(on_parent_failure=self.rng.choice(["wait", "skip", "cancel", "run"]), max_retries=1)
        self.desk.grouped(rows, "sequential", self.rng.choice(["stop", "skip", "continue", "continue"]), then=then)
        ids = [row.job_id for row in rows]
        self.followed[then.job_id] = ids
        self.any_end |= {then.job_id} if then.on_parent_failure == "run" else set()
        self.parents |= {row.job_id: row.depends_on for row in rows}
        self.any_end |= {row.job_id for row in rows if row.on_parent_failure == "run"}
        self.before |= {root: ids[:place] for place, root in enumerate(ids)}

    def cancel(self) -> None:
        self.desk.store.cancel(self.rng.choice(list(self.parents)), actor=ANNA, now=self.desk.now)

    def retry(self) -> None:
        root = self.rng.choice(list(self.parents))
        self.desk.store.retry(root, new_id=self.desk.id(), actor=ANNA, now=self.desk.now)
        self.by_hand.add(root)

    def claim(self) -> None:
        for job in self.desk.claim(2):
            self.running.append(job)
            if job.root_id in self.followed:
                self.check_follower(job.root_id)
            elif job.root_id not in self.by_hand:
                parents = self.parents[job.root_id]
                if job.root_id in self.any_end:
                    # One that was retried by hand after its end is waited for no more.
                    assert all(self.status(parent) in CHAIN_ENDS or parent in self.by_hand for parent in parents)
                else:
                    assert all(self.status(parent) is Status.COMPLETED for parent in parents)
                ahead = [root for root in self.before[job.root_id] if root not in self.by_hand]
                assert all(self.status(root) in CHAIN_ENDS for root in ahead), "one of a sequence has overtaken another"

    def check_follower(self, root: str) -> None:
        """It starts when nobody of its group is live but by a retry after its release, and, unless it runs in any case, all ended well."""
        members = [self.status(each) for each in self.followed[root] if each not in self.by_hand]
        good = CHAIN_ENDS if root in self.any_end else {Status.COMPLETED, Status.SKIPPED}
        assert all(status in good for status in members)

    def end(self) -> None:
        if self.running:
            self.desk.end(self.running.pop(self.rng.randrange(len(self.running))), self.rng.choice(OUTCOMES))

    def step(self) -> None:
        verb = self.rng.choice([self.group, self.cancel, self.cancel, self.retry, self.claim, self.claim, self.end, self.end])
        # What has ended can't be cancelled, what is live can't be retried.
        with suppress(RotaError):
            verb()
        self.desk.advance(self.rng.choice([0, 0, 1, 20]))

    def run_out(self) -> None:
        while True:
            for job in self.running:
                self.desk.end(job, Completed())
            self.running = []
            self.desk.advance(100)
            self.claim()
            if not self.running and not self.desk.turn().unfinished:
                return

    def dead_ones_before(self, root: str) -> list[str]:
        blockers = [inside(job.id) for job in self.desk.store.blockers(self.desk.tail_id(root))]
        return [each for each in blockers if self.status(each) in CHAIN_ENDS or self.dead_ones_before(each)]


# A step on a server costs many times as much, and the verbs between the statements are the same.
@pytest.mark.parametrize(
    ("maker", "seed"),
    [*((SqliteMaker, seed) for seed in range(6)), (PostgresMaker, 6), (MongoMaker, 7)],
    indirect=["maker"],
    ids=lambda each: getattr(each, "name", each),
)
def test_nobody_starts_too_early_and_who_waits_in_the_end_waits_for_the_dead(maker, seed):
    world = World(Desk(maker.open()), seed)
    world.group()
    for _ in range(40):
        world.step()
    world.run_out()
    for root in world.parents:
        assert world.status(root) in CHAIN_ENDS or world.dead_ones_before(root)
    for root, members in world.followed.items():
        ends = [world.status(each) for each in members]
        live = any(end not in CHAIN_ENDS for end in ends)
        failed = any(end in {Status.DEAD_LETTER, Status.CANCELLED} for end in ends)
        assert world.status(root) in CHAIN_ENDS or live or (failed and root not in world.any_end)
