"""A random web of jobs that wait for each other, and a small model of it: after every step they must agree."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import AlreadyEnded, DependencyCycle, IllegalMove, StillLive
from rota.model.decide import Completed, Failed, Skipped
from tests.stores.desk import ANNA, Desk
from tests.stores.makers import MongoMaker, PostgresMaker, SqliteMaker
from tests.support.proof import size

ENDS = {"complete": Completed(), "fail": Failed("x"), "die": Failed("x", permanent=True), "skip itself": Skipped("x")}
RULE_ENDS = {"skip": "SKIPPED", "cancel": "CANCELLED"}
PICK = st.integers(0, 20)
RULES = st.sampled_from(["wait", "wait", "skip", "cancel", "run"])

STEPS = st.one_of(
    st.tuples(st.just("add"), st.lists(PICK, max_size=4), RULES, st.booleans()),
    st.tuples(st.just("add"), st.lists(PICK, min_size=1, max_size=3), RULES, st.just(value=False)),
    st.tuples(st.just("add"), st.lists(PICK, max_size=2), RULES, st.just(value=True)),
    st.tuples(st.just("group"), st.integers(0, 3), RULES, st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(list(ENDS))),
    st.tuples(st.just("end"), st.just("complete")),
    st.tuples(st.just("cancel"), PICK),
    st.tuples(st.just("retry"), PICK),
    st.tuples(st.just("depend"), PICK, st.lists(PICK, min_size=1, max_size=2), RULES),
    st.tuples(st.just("depend"), PICK, st.lists(PICK, min_size=1, max_size=2), st.just("wait")),
    st.tuples(st.just("pass time")),
)


@dataclass
class Chain:
    """One chain as the model sees it: where its tail stands, and whom it still waits for, by which rule."""

    status: str = "QUEUED"
    waits: dict[str, str] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    later: bool = False


class Web:
    """What should happen, without a store."""

    def __init__(self):
        self.chains: dict[str, Chain] = {}
        self.groups: dict[str, list[str]] = {}

    def add(self, name, parents, rule, *, later):
        self.chains[name] = Chain(status="PENDING", later=later)
        self.depend(name, parents, rule)
        self.promote()

    def group(self, name, members, follower, rule, *, later):
        self.groups[name] = members
        for member in members:
            self.add(member, [], "wait", later=later)
        self.chains[follower] = Chain(status="PENDING", waits={name: rule} if members else {})
        self.promote()

    def depend(self, name, parents, rule):
        chain = self.chains[name]
        for parent in parents:
            if parent in chain.waits or parent in chain.met:
                continue
            if self.chains[parent].status == "COMPLETED" or (rule == "run" and self.is_dead(parent)):
                chain.met.add(parent)
            else:
                chain.waits[parent] = rule
        if rule in RULE_ENDS and any(self.is_dead(parent) for parent, own in chain.waits.items() if own == rule and parent in self.chains):
            self.end(name, RULE_ENDS[rule])

    def is_dead(self, name):
        return self.chains[name].status in {"DEAD_LETTER", "SKIPPED", "CANCELLED"}

    def is_live(self, name):
        return self.chains[name].status in {"PENDING", "QUEUED"}

    def end(self, name, status):
        self.chains[name].status = status
        self.chains[name].waits.clear()
        self.tell(name, well=status == "COMPLETED")
        for group, members in self.groups.items():
            ends = [self.chains[member].status for member in members]
            if name in members and set(ends) <= {"COMPLETED", "DEAD_LETTER", "SKIPPED", "CANCELLED"}:
                self.tell(group, well=set(ends) <= {"COMPLETED", "SKIPPED"})

    def tell(self, name, *, well):
        """Tell all who wait for a chain or a group how it ended."""
        for child, chain in self.chains.items():
            if chain.status != "PENDING" or name not in chain.waits:
                continue
            if well or chain.waits[name] == "run":
                del chain.waits[name]
                chain.met.add(name)
            elif chain.waits[name] != "wait":
                self.end(child, RULE_ENDS[chain.waits[name]])

    def promote(self):
        for chain in self.chains.values():
            if chain.status == "PENDING" and not chain.waits and not chain.later:
                chain.status = "QUEUED"

    def reaches(self, start, goal):
        """Whether `start` waits for `goal`, by way of others or itself."""
        seen, left = set(), [start]
        while left:
            name = left.pop()
            if name == goal:
                return True
            if name not in seen:
                seen.add(name)
                left += self.chains[name].waits if name in self.chains else [each for each in self.groups[name] if self.is_live(each)]
        return False


class Story:
    """One store and one model, driven by the same steps."""

    def __init__(self, desk):
        self.desk = desk
        self.web = Web()

    def play(self, step):
        name, *values = step
        getattr(self, f"_{name.replace(' ', '_')}")(*values)
        self.desk.turn()
        self.web.promote()
        self.agree()

    def agree(self):
        for name, chain in self.web.chains.items():
            tail = self.desk.tail(name)
            assert tail.status == chain.status, (tail.number, chain)
            if chain.status == "PENDING":
                assert tail.blockers == len(chain.waits), (tail.number, chain)

    def picked(self, *picks):
        names = list(self.web.chains)
        return list(dict.fromkeys(names[pick % len(names)] for pick in picks)) if names else []

    def _add(self, picks, rule, later):
        parents = self.picked(*picks)
        # Any attempt stands for its chain.
        ids = tuple(self.desk.tail_id(parent) for parent in parents)
        name = self.desk.add(depends_on=ids, on_parent_failure=rule, delay=60 if later else 0, max_retries=1)
        self.web.add(name, parents, rule, later=later)

    def _group(self, count, rule, later):
        rows = [self.desk.row(delay=60 if later else 0, max_retries=1) for _ in range(count)]
        then, group_id = self.desk.row(on_parent_failure=rule, max_retries=1), self.desk.id()
        self.desk.grouped(rows, "parallel", "continue", then=then, group_id=group_id)
        self.web.group(group_id, [row.job_id for row in rows], then.job_id, rule, later=later)

    def _end(self, how):
        claimed = self.desk.claim(1)
        if not claimed:
            assert not any(chain.status == "QUEUED" for chain in self.web.chains.values())
            return
        (job,) = claimed
        chain = self.web.chains[job.root_id]
        assert chain.status == "QUEUED"
        ending = self.desk.ending(job, ENDS[how])
        self.desk.turn(endings=[ending])
        if ending.transition.successor is not None:
            chain.status, chain.later = "PENDING", True
        else:
            self.web.end(job.root_id, str(ending.transition.status))

    def _cancel(self, pick):
        for name in self.picked(pick):
            status = self.web.chains[name].status
            if status in {"COMPLETED", "DEAD_LETTER", "SKIPPED"}:
                with pytest.raises(AlreadyEnded):
                    self.desk.store.cancel(name, actor=ANNA, now=self.desk.now)
                continue
            self.desk.store.cancel(name, actor=ANNA, now=self.desk.now)
            if status != "CANCELLED":
                self.web.end(name, "CANCELLED")

    def _retry(self, pick):
        for name in self.picked(pick):
            chain = self.web.chains[name]
            if not self.web.is_dead(name):
                with pytest.raises((StillLive, AlreadyEnded)):
                    self.desk.store.retry(name, new_id=self.desk.id(), actor=ANNA, now=self.desk.now)
                continue
            self.desk.store.retry(name, new_id=self.desk.id(), actor=ANNA, now=self.desk.now)
            chain.status, chain.later, chain.met = "QUEUED", False, set()

    def _depend(self, pick, picks, rule):
        for name in self.picked(pick):
            parents = self.picked(*picks)
            refusal = None
            if self.web.chains[name].status != "PENDING":
                refusal = IllegalMove
            elif any(self.web.reaches(parent, name) for parent in parents):
                refusal = DependencyCycle
            if refusal is not None:
                with pytest.raises(refusal):
                    self.desk.store.add_dependencies(name, parents, on_failure=rule, actor=ANNA, now=self.desk.now)
                continue
            self.desk.store.add_dependencies(name, parents, on_failure=rule, actor=ANNA, now=self.desk.now)
            self.web.depend(name, parents, rule)

    def _pass_time(self):
        self.desk.advance(600)
        for chain in self.web.chains.values():
            chain.later = False


PLAYS = st.lists(STEPS, min_size=5, max_size=40)


@pytest.mark.prove
@pytest.mark.parametrize("make", [SqliteMaker, PostgresMaker], ids=lambda make: make.name)
@settings(max_examples=size(30, prove=1500), deadline=None)
@given(steps=PLAYS)
def test_whatever_becomes_of_parents_every_child_is_where_the_model_says(make, steps):
    follow(make, steps)


# A step costs ten times as much here, and the verbs between the statements are the same.
@pytest.mark.prove
@settings(max_examples=size(6, prove=100), deadline=None)
@given(steps=PLAYS)
def test_whatever_becomes_of_parents_every_child_is_where_the_model_says_on_mongodb(steps):
    follow(MongoMaker, steps)


def follow(make, steps):
    """Play a story on a new store, to its end."""
    with tempfile.TemporaryDirectory(prefix="rota-web-") as folder:
        maker = make(Path(folder))
        try:
            story = Story(Desk(maker.open()))
            for step in steps:
                story.play(step)
            _finish(story)
        finally:
            maker.close()


def _finish(story):
    """Let everything end that can: what is left waits for a parent that only a person can bring back."""
    while any(chain.status == "QUEUED" or chain.later for chain in story.web.chains.values()):
        story.play(("pass time",))
        story.play(("end", "complete"))
    for chain in story.web.chains.values():
        assert chain.status != "PENDING" or chain.waits
