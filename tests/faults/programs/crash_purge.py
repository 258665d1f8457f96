"""Dies at the k-th write of a purge, for every k in turn, and looks at what is left.

Arguments: folder, kind of death, step of k, file to start from. Each death is that of a forked copy, made while no database is open
in here. Prints `died N` and `violation …` lines.
"""

import os
import shutil
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import limits  # noqa: F401 - ends this program after a while, whatever happens

from tests.faults import purging
from tests.faults.broken_disk import BrokenDisk, Fault

folder, kind, step, template = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])


def die(path: Path, k: int) -> None:
    disk = BrokenDisk("broken")
    with purging.opened(path, vfs="broken") as rota:
        disk.count, disk.fault = 0, Fault(kind, k)
        purging.purge(rota)
        disk.fault = None


def in_a_copy(work) -> int:
    """Let a forked copy do it: what it opened dies with it."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(1, f"violation: {error!r}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def clean() -> None:
    shutil.copy(template, folder / "clean.db")
    with purging.opened(folder / "clean.db") as rota:
        purging.purge(rota)


def main() -> None:
    in_a_copy(clean)
    before, after = purging.roots(template), purging.roots(folder / "clean.db")
    died, k = 0, 1
    while True:
        path = folder / f"{k}.db"
        shutil.copy(template, path)
        sys.stdout.flush()
        code = in_a_copy(partial(die, path, k))
        in_a_copy(partial(purging.look, path, before=before, after=after))
        for left in folder.glob(f"{k}.db*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if code == 0:
            break
        died += 1
        k += step
    print("kept", len(after), "of", len(before), flush=True)
    print("died", died, flush=True)


if __name__ == "__main__":
    main()
