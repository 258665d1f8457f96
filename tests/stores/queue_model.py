"""The queue as a dict and sorted(): small enough to be seen right. The state machine compares a store with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.model.decide import Transition
from rota.model.groups import Member, derive
from rota.model.states import Status

WAITING = {"PENDING", "QUEUED"}
LIVE = {"PENDING", "QUEUED", "RUNNING"}
REST = {"stop": "CANCELLED", "skip": "SKIPPED", "continue": None}


@dataclass
class ModelJob:
    """What matters of one job."""

    id: str
    root: str
    status: str
    priority: int
    organization: str
    created_at: int
    run_at: int
    born: int
    position: int = 0
    attempt: int = 1
    failures: int = 0
    crashes: int = 0
    snoozes: int = 0
    held: str | None = None
    waits_for: str | None = None
    key: str | None = None
    group: str | None = None
    sequence: int | None = None
    expires_at: int | None = None
    worker: str | None = None
    started: bool = False
    asked_to_stop: bool = False


@dataclass
class Queue:
    """Every job ever made, in the order in which they were made."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    clock: dict[int, int] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    gone: int = 0

    @property
    def born(self):
        """Return the place of a newcomer in the order of making, those that are gone counted too."""
        return len(self.jobs) + self.gone

    # ---- looking ----------------------------------------------------------------------------------------------

    def queued(self):
        return sorted(self.of("QUEUED"), key=lambda job: (-job.priority, job.position, job.created_at, job.id))

    def order(self):
        return [job.id for job in self.queued()]

    def of(self, *statuses):
        return [job for job in self.jobs.values() if job.status in statuses]

    def chain(self, root):
        return sorted((job for job in self.jobs.values() if job.root == root), key=lambda job: job.attempt)

    def tail(self, root):
        return self.chain(root)[-1]

    def holder(self, key):
        return next((job for job in self.jobs.values() if job.key == key and job.status in LIVE), None)

    def group_status(self, group):
        members = {}
        for job in self.jobs.values():
            if job.group == group:
                members.setdefault(job.sequence, []).append(job)
        return str(derive([_member(chain) for _, chain in sorted(members.items())]))

    # ---- moves ------------------------------------------------------------------------------------------------

    def last(self, organization, priority):
        """Return the position that a newcomer counts from."""
        there = [job for job in self.of("QUEUED") if job.priority == priority]
        if not there:
            self.clock[priority] = 0
            return 0
        own = [job.position for job in there if job.organization == organization]
        return max([self.clock.get(priority, 0), *own])

    def add(self, job):
        if job.status == "QUEUED":
            job.position = self.last(job.organization, job.priority) + 100
        self.jobs[job.id] = job

    def expire(self, now):
        over = [job for job in self.of(*WAITING) if job.expires_at is not None and job.expires_at <= now]
        self.end_waiting(over, "SKIPPED")

    def promote(self, now):
        for priority in sorted({job.priority for job in self.of("PENDING")}, reverse=True):
            due = [job for job in self.of("PENDING") if job.priority == priority and job.waits_for is None and job.run_at <= now]
            last = {job.organization: self.last(job.organization, priority) for job in due}
            for job in sorted(due, key=lambda job: (job.run_at, job.born)):
                last[job.organization] += 100
                job.status, job.position = "QUEUED", last[job.organization]

    def claim(self, want, worker, paused):
        offered = [job for job in self.queued() if job.held is None][:want]
        taken = [job for job in offered if job.organization not in paused]
        for job in offered:
            if job.organization in paused:
                job.held = f"organization:{job.organization}"
        for job in taken:
            job.status, job.worker, job.started = "RUNNING", worker, True
            self.clock[job.priority] = max(self.clock.get(job.priority, 0), job.position)
        return [job.id for job in taken]

    def end(self, ends, now):
        """End attempts together: (job, transition, successor id)."""
        ended = []
        for job, transition, successor_id in ends:
            job.status = str(transition.status)
            if transition.successor is not None:
                self._succeed(job, transition, successor_id, now)
            else:
                ended.append(job)
        self._chains_ended(ended, {"DEAD_LETTER", "CANCELLED"})

    def end_waiting(self, jobs, status):
        for job in jobs:
            job.status = status
        self._chains_ended(jobs, {"CANCELLED"})

    def retry(self, job, new_id, now):
        self.add(
            ModelJob(
                new_id,
                job.root,
                "QUEUED",
                job.priority,
                job.organization,
                now,
                now,
                self.born,
                attempt=job.attempt + 1,
                key=job.key,
                group=job.group,
                sequence=job.sequence,
            )
        )

    def purge(self, before, finished_at):
        """Remove chains that ended before a moment, except those of a group that has anything younger."""
        tails = {root: self.tail(root) for root in {job.root for job in self.jobs.values()}}
        old = {root for root, tail in tails.items() if tail.status not in LIVE and finished_at(tail) < before}
        young = {tails[root].group for root in tails if root not in old}
        for root in old:
            if tails[root].group is None or tails[root].group not in young:
                for job in self.chain(root):
                    del self.jobs[job.id]
                    self.gone += 1
        self.groups = {name: rule for name, rule in self.groups.items() if any(job.group == name for job in self.jobs.values())}

    def _succeed(self, job, transition: Transition, successor_id, now):
        successor = transition.successor
        self.jobs[successor_id] = ModelJob(
            successor_id,
            job.root,
            "QUEUED" if successor.in_place else "PENDING",
            job.priority,
            job.organization,
            now,
            successor.run_at,
            self.born,
            # A place from before its priority was counted anew is now before all that came since.
            position=job.position if successor.in_place and job.position <= self.clock.get(job.priority, 0) else 0,
            attempt=job.attempt + 1,
            failures=successor.failures,
            crashes=successor.crashes,
            snoozes=successor.snoozes,
            key=job.key,
            group=job.group,
            sequence=job.sequence,
            expires_at=job.expires_at if transition.reason == "released" else None,
        )

    def _chains_ended(self, jobs, bad):
        roots = [job.root for job in jobs]
        for group in {job.group for job in jobs if job.group and job.status in bad}:
            mode, rule = self.groups[group]
            rest = REST[rule]
            # In a sequence the rule concerns those after the first that ended badly.
            first = min(job.sequence for job in jobs if job.group == group and job.status in bad)
            for job in self.of(*WAITING) if rest else []:
                if job.group == group and job.attempt == 1 and (mode == "parallel" or job.sequence > first):
                    job.status = rest
                    roots.append(job.root)
        for job in self.of("PENDING"):
            # One that ended while it waited for its turn hands that on: the next waits for what it waited for.
            while job.waits_for in roots:
                job.waits_for = self.jobs[job.waits_for].waits_for


def _member(chain):
    tail = max(chain, key=lambda job: job.attempt)
    return Member(tail.sequence, tail.root, "", "t", Status(tail.status), tail.attempt, any(job.started for job in chain))
