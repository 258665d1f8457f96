"""What the shared verbs ask of a connection, and how dialects in SQL keep their statements: under the same names, in `.sql` files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Protocol, TypeAlias

import msgspec

from rota.errors import StoreMoved
from rota.model.audit import RUN_ACTIONS, AuditRuns, Outcome
from rota.model.gate import Actor
from rota.model.values import Claimed, Instant, moment_of
from rota.ports.scan import Bound, Order

_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PIECE = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_CLAIMED = {
    "candidates",
    "candidates_among",
    "candidates_named",
    "candidate_direct",
    "holding",
    "held_by",
    "held_rows",
    "failed_without_successor",
}

_RUN_ENDS = [(status, action, outcome) for status, (action, outcome) in RUN_ACTIONS.items()]

MOVED = "this store was moved to"
"""How the refusal of every write begins once a store was moved."""


def is_moved(error: Exception) -> bool:
    """Say whether a write was refused because the store was moved: that is no row's fault."""
    return MOVED in str(error)


About: TypeAlias = tuple[str | int | bytes, ...]
"""A word for a part of the work, then the numbers, ids or names of what it writes."""


class Function(Protocol):
    """A statement in Python: what a dialect without SQL has under a name."""

    def __call__(self, **values: Any) -> list[tuple[Any, ...]] | int:
        """Return the rows that the statement reads or returns, or how many it changed, as the statement's callers expect."""


class Db(Protocol):
    """One connection, and what the dialect has under each name: the text of a statement, or a `Function`.

    The verbs pass a name and values, and do not know which of the two answers. A dialect in SQL gives all of them as texts;
    a store without SQL gives functions. Names, values and columns are the same in every dialect.

    - An id is hexadecimal text or 16 bytes; ids of many jobs may come as one value, 16 bytes each, one behind the other.
    - What a statement walks over is a list, a tuple or a dict, and the dialect encodes it as it needs.
    - What a column keeps as JSON (params, results, the events of a webhook) is text, written and read.
    - A moment is a number of microseconds, a flag is 0 or 1.
    """

    conflict: tuple[type[Exception], ...]
    """What a broken constraint raises: the row is there already, most likely."""
    unwritable: tuple[type[Exception], ...]
    """What a text, a number or a move that the store can't hold raises: it spoils its own row and no other."""

    refused: tuple[type[Exception], ...]
    """Errors raised because of what a row holds, by the own rules of the store and by constraints or triggers that somebody added."""

    ends_apart: bool
    """Ended jobs are in a table of their own, in the order of their numbers."""

    hops: bool
    """A bound on the second column of an index leads to few rows also where nothing is known of the first, which has few values."""

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""

    def row(self, name: str, /, **values: Any) -> tuple[Any, ...] | None:
        """Run a named statement and return its first row."""

    def value(self, name: str, /, **values: Any) -> Any:
        """Run a named statement and return the first column of its first row."""

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement and return how many rows it changed."""

    def along(self, name: str, source: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement over one of its sources, `source_` and this word, and return its rows."""

    def stream(
        self, relation: str, source: str | None, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None, /, **values: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Read a relation, along one of its sources if it has several, as rows are asked for. Inside `snapshot` only."""

    def limit_steps(self, timeout_s: float) -> AbstractContextManager[None]:
        """Let no step of the block's reads take longer, and end what the block has not read to its end."""

    def added(self, name: str, count: int, /, **values: Any) -> Sequence[int]:
        """Run a named statement that adds so many jobs, and return their numbers, which ascend."""

    def bodies(self, params: Sequence[str]) -> Any:
        """Return the params of many jobs, each of them JSON, as the value that statements take."""

    def added_each(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Add jobs, each with the values of `insert_job` for itself, and return their numbers, which ascend.

        Jobs of due times have `schedule_id`, `due_at` and `run_as` too: all of them, or none.
        """

    def candidates(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return the first ready jobs of these lanes, in the queue's order; slim ones lack what may be large.

        Without `suspects`, jobs under which a worker has crashed are left out.
        """

    def look(self, worker_id: bytes, done: Sequence[tuple[int, Instant]] = ()) -> tuple[Any, ...]:
        """Return what a turn asks first of the whole store. `done`: the jobs for which it calls `end_plain` next."""

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs and their runs, by number and moment, as far as this worker still runs them.

        Return those, and what they add to the figures, for `count`.
        """

    def finish(self, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
        """End runs and their jobs, in the same order.

        A run is its job's number, the moment, its status, error, error_type, error_code, traceback, exit_code, result and log_path;
        a job its number, the moment, its status, error_type and reason.
        """

    def count(self, figures: str) -> None:
        """Add what `end_plain` has returned to the figures: the hour's and the total."""

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Start these jobs, each with the run whose id it bears; move the clocks of their priorities on."""

    def adopt(self, rows: Sequence[tuple[Any, ...]], adopter_id: str) -> None:
        """Start jobs as another system has; a row is the job's number, the run's id, started_at, and the failures before it."""

    def tally(self, numbers: Sequence[int]) -> None:
        """Count these jobs, which have just ended, into the figures: the hour's and the total."""

    def savepoint(self, about: About) -> AbstractContextManager[None]:
        """Undo what is written in the block, and only that, if it raises.

        `about` names the part by what it writes: no other part of the same work has the same name, unless it would fare the same, and
        the part has it again if the work is begun again. A store without savepoints can undo the whole transaction if a part raises,
        begin the work again, and let the part of that name raise the same error before it has done anything.
        """

    def snapshot(self) -> AbstractContextManager[object]:
        """Let all reads of the block see the store at one moment, whoever writes meanwhile."""


def audit(
    db: Db,
    actor: Actor,
    now: Instant,
    action: str,
    subject: tuple[str, str],
    *,
    before: Any = None,
    after: Any = None,
    organization: str | msgspec.UnsetType | None = msgspec.UNSET,
    job: str | None = None,
    run: str | None = None,
    outcome: Outcome = Outcome.OK,
) -> None:
    """Record what a person did; the subject is its kind and id, `organization` whose it is if not the actor's own.

    An organization's admin reads the entries of its organization, and those of None are read by system managers alone.
    `job` is the id of the schedule that it is about, `run` that of a job of the queue: of one that is the subject, it need not be said.
    """
    if run is None and subject[0] == "job":
        run = subject[1]
    db.change(
        "audit",
        at=now,
        actor=actor.name,
        organization_id=actor.organization if organization is msgspec.UNSET else organization,
        action=action,
        subject=subject[0],
        subject_id=subject[1],
        before=None if before is None else msgspec.json.encode(before).decode(),
        after=None if after is None else msgspec.json.encode(after).decode(),
        job_uuid=job,
        job_run_uuid=run,
        outcome=outcome,
    )


def audit_runs(db: Db, numbers: Sequence[int], which: str) -> None:
    """Record the ends of those runs that are audited."""
    if numbers and which != AuditRuns.NONE:
        db.change("audit_runs", numbers=numbers, ends=_RUN_ENDS, every=int(which == AuditRuns.ALL))


def blob(hex_id: str | None) -> bytes | None:
    """Return an id as the store keeps it."""
    return None if hex_id is None else bytes.fromhex(hex_id)


def refuse_moved(db: Db, url: str) -> None:
    """Refuse to open a store that was moved, and say where it went."""
    mark = db.row("moved")
    if mark is not None:
        at, to = moment_of(mark[0]), mark[1]
        raise StoreMoved(
            f"{url} was moved to {to} on {at:%Y-%m-%d %H:%M}Z: give that as the store. To come back, promote it to here; "
            f"if it is lost, `rota reopen` opens this one as it was"
        )


def load(package: str) -> dict[str, str]:
    """Return every statement of a dialect by its name. A name that stands twice is a mistake."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        parts = _HEADING.split(file.read_text())
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise AssertionError(f"statement {name!r} stands twice, again in {file.name}")
            found[name] = _COMMENT.sub("", body).strip().rstrip(";")
    return {name: _expand(name, text, found) for name, text in found.items()}


def _expand(name: str, text: str, found: dict[str, str]) -> str:
    """Put a named piece where a statement says {its name}. Values are never formatted in."""
    columns = found["claimed_columns"] if name in _CLAIMED else found["job_columns"]
    text = text.replace("{columns}", columns)
    while (whole := _PIECE.sub(lambda match: found.get(match[1], match[0]), text)) != text:
        text = whole
    return text
