"""Dies at the k-th write of the scenario, for every k in turn, and looks at what is left.

Arguments: folder, kind of death, step of k, file to start from.
Each death is that of a forked copy, made while no database is open in here. Prints `died N` and `violation …` lines.
"""

import os
import shutil
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import limits  # noqa: F401 - ends this program after a while, whatever happens

from rota import Rota
from tests.faults import invariants
from tests.faults.broken_disk import BrokenDisk, Fault
from tests.faults.scenario import SETTINGS, Scenario, register
from tests.support.clock import ManualClock

folder, kind, step, template = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


def live(path: Path, acks: Path, k: int) -> None:
    """Be the one who dies."""
    disk = BrokenDisk("broken")
    disk.fault = Fault(kind, k)
    fd = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    scenario = Scenario(path, vfs="broken", ack=lambda fact: os.write(fd, f"{fact}\n".encode()))
    # From a file on, the story is the same whoever has made it.
    for _, move in islice(scenario.steps(), None if template != "-" else 2):
        move()
    scenario.close()


def look(path: Path, facts: list[str]) -> None:
    """Open what is left with the disk whole again, recover, go on to the end."""
    accepted = [fact for fact in facts if " " not in fact]
    ends = dict(fact.split(" ") for fact in facts if " " in fact)
    if template != "-":
        invariants.check(path)
    clock = ManualClock()
    clock.advance(hours=1)
    with closing(Rota(path, clock=clock, settings=SETTINGS)) as rota:
        register(rota)
        rota.store.recover()
        assert not rota.store.recover(), "a second recovery found something to do"
        assert invariants.held_by_the_dead(path) == 0
        known = invariants.tails(path)
        with invariants.reading(path) as db:
            there = {row[0] for row in db.execute("SELECT lower(hex(job_id)) FROM jobs")}
        missing = [each for each in accepted if each not in there]
        assert not missing, f"accepted and lost: {missing}"
        for root, status in ends.items():
            assert known[root] == status, f"{root} was {status} and is {known[root]}"
        clock.advance(hours=1)
        rota.turn()
        clock.advance(hours=20)
        rota.turn()
    assert not invariants.any_live(path), f"stuck: {invariants.tails(path)}"
    invariants.check(path)


def main() -> None:
    died, k = 0, 1
    while True:
        path, acks = folder / f"{k}.db", folder / f"{k}.acks"
        if template != "-":
            shutil.copy(template, path)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            try:
                live(path, acks, k)
                os._exit(0)
            except BaseException as error:
                os.write(1, f"violation at {k}: it raised {error!r}\n".encode())
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            look(path, invariants.lines(acks))
        except Exception as error:
            print(f"violation at {k}: {error!r}", flush=True)
        for left in folder.glob(f"{k}.*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if code == 0:
            break
        died += 1
        k += step
    print("died", died, flush=True)


if __name__ == "__main__":
    main()
