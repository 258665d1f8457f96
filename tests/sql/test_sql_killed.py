"""A process that is killed at any write of a CREATE or a RECREATE leaves all of it or nothing, on each store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota import Rota

PROGRAM = Path(__file__).parents[1] / "faults/programs/sql_creator.py"
WRITES_MAX = 30


def killed_at(where: str, write: int, statement: str, *, atomic: bool = False) -> bool:
    """Carry out a statement in a process that dies at one of its writes; say whether it died."""
    arguments = [where, str(write), statement, *(["--atomic"] if atomic else [])]
    done = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 9}, done.stderr
    return done.returncode == 9


def step_of(where: str) -> int:
    """Return by how many writes the next death is later. What a dead process holds in MongoDB, others wait for more than a second for."""
    return 4 if where.startswith("mongodb") else 1


def seen(where: str) -> tuple[list[str], list[str], list[str]]:
    """Return the jobs, the names that are taken by templates, and the audit trail."""
    rota = Rota(where)
    try:
        jobs = [f"{row[0]} {row[3]}" for row in rota.sql("SHOW JOBS")[0].rows]
        store = rota._session.open().store
        with store._reading() as db:
            taken = ["j"] if db.value("name_of_template", organization_id="default", name="j") else []
        return jobs, taken, [each.event for each in rota.audit.list(subject="schedule")]
    finally:
        rota.close()


@pytest.mark.timeout(300)
def test_a_create_that_is_killed_leaves_the_job_or_nothing(where):
    statement = "CREATE JOB j SCHEDULE = EVERY 1 HOUR CALL report()"
    write = 1
    while killed_at(where, write, statement):
        assert seen(where) == ([], [], []), f"killed at write {write}"
        write += step_of(where)
        assert write < WRITES_MAX
    assert write > 3, "the template, the schedule and the audit entry are written"
    assert seen(where) == (["j every hour"], ["j"], ["JOB_CREATED"])


class Killed(BaseException):
    """The process is gone: nothing may catch this and go on."""


def test_a_recreate_that_is_cut_short_at_any_write_leaves_the_old_job_or_the_new_one(rota, maker, monkeypatch):
    db = maker.db
    change, left = db.change, 0

    def cut_short(self, name, /, **values):
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        return change(self, name, **values)

    def jobs() -> list[tuple[str, str]]:
        return [(row[0], row[3]) for row in rota.sql("SHOW JOBS")[0].rows]

    rota.sql("CREATE JOB j SCHEDULE = EVERY 1 HOUR CALL report()")
    monkeypatch.setattr(db, "change", cut_short)
    for write in range(1, WRITES_MAX):
        left = write
        try:
            rota.sql("RECREATE JOB j SCHEDULE = EVERY 2 HOURS CALL report()")
        except Killed:
            assert jobs() == [("j", "every hour")], f"cut short at write {write}"
            continue
        break
    assert write > 6, "a schedule and a template are dropped and added, with two audit entries"
    assert jobs() == [("j", "every 2 hours")]
    assert [each.event for each in rota.audit.list(subject="schedule")] == ["JOB_CREATED", "JOB_DELETED", "JOB_CREATED"]
