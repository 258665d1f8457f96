"""Rota with a long past: fills a store with ended jobs of several types, organizations and ends, and times questions about it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from common import STORES, Peer, main, remove_sqlite

FILE = STORES / os.environ.get("BENCH_ROTA_FILE", "history.db")
TYPES = 20
ORGANIZATIONS = ("default", "default", "default", "acme", "beta")
REPEATS = 15


class RotaHistory(Peer):
    """Made by enqueueing and running, as any past is; only the clock is real."""

    settings = "defaults; 20 job types, 3 organizations, one job in 100 a dead letter, one in 1,000 a chain of two attempts"

    def version(self) -> str:
        """Return Rota's version."""
        from rota import __version__  # noqa: PLC0415 # see `open`

        return __version__

    def reset(self) -> None:
        """Start with an empty file."""
        remove_sqlite(FILE)

    def open(self) -> None:
        """Open the store and register what ends well, badly and at the second try."""
        from rota import Backoff, PermanentError, Rota, Settings  # noqa: PLC0415 # `reset` comes first

        settings = Settings.from_environment(os.environ, backoff_base=0.0, retention=0.0)
        self.rota = rota = Rota(str(FILE), settings=settings)
        for number in range(TYPES):
            rota.job(name=f"type{number}")(_good)
        rota.job(name="rare")(_good)

        @rota.job
        def dies(pad: str) -> None:
            raise PermanentError("no such address")

        @rota.job(backoff=Backoff(base=0, jitter=0))
        def second_try(ctx, pad):  # type: ignore[no-untyped-def] # its Context is known where Rota is imported
            if ctx.attempt == 1:
                raise ValueError("not yet")

    def fill(self, jobs: int) -> dict[str, int]:
        """Enqueue and run so many; return how they ended."""
        rota = self.rota
        for organization in dict.fromkeys(ORGANIZATIONS):
            if organization != "default":
                rota.organizations.create(organization)
        rota.enqueue_many([("rare", {"pad": "x"})])
        share = jobs // len(ORGANIZATIONS)
        with rota.running():
            for organization in ORGANIZATIONS:
                rota.enqueue_many(_past(share), organization=organization)
            while (counts := rota.store.stats().by_status)["QUEUED"] + counts["RUNNING"] + counts["PENDING"]:
                time.sleep(1.0)  # each look counts what still waits
        return counts

    def ask(self) -> dict[str, list[float]]:
        """Time each question, the pages of the file being warm; milliseconds."""
        rota = self.rota
        retried = rota.jobs.list(job_type="second_try", limit=1)[0]
        questions: dict[str, Callable[[], object]] = {
            "list, first page": lambda: rota.jobs.list(limit=100),
            "list, DEAD_LETTER": lambda: rota.jobs.list(status="DEAD_LETTER", limit=100),
            "list, one type": lambda: rota.jobs.list(job_type="type7", limit=100),
            "list, a rare type": lambda: rota.jobs.list(job_type="rare", limit=100),
            "list, one organization": lambda: rota.jobs.list(organization="acme", limit=100),
            "list, last hour": lambda: rota.jobs.list(since=timedelta(hours=1), limit=100),
            "list, a time when nothing came": lambda: rota.jobs.list(since=datetime.now(UTC), limit=100),
            "list, until long ago": lambda: rota.jobs.list(until=timedelta(days=30), limit=100),
            "list, a page in the middle": lambda: rota.jobs.list(limit=100, before=500_000),
            "dead letters": lambda: rota.dead_letters.list(limit=100),
            "stats": rota.store.stats,
            "log of a job": lambda: rota.jobs.log(retried.id),
            "timeline of a chain": lambda: rota.jobs.log(retried.id, chain=True),
        }
        return {name: [_ms(question) for _ in range(REPEATS)] for name, question in questions.items()}

    def purge(self, jobs: int) -> dict[str, float]:
        """Remove what ended up to a moment ago; return how many, how fast, and how long a batch took."""
        batches: list[float] = []
        begun = last = time.monotonic()
        moment = self.rota.jobs.list(limit=1, before=jobs)[0].finished_at

        def note(_so_far: object) -> None:
            nonlocal last
            now = time.monotonic()
            batches.append(now - last)
            last = now

        done = self.rota.store.purge(older_than=datetime.now(UTC) - moment, progress=note)
        seconds = time.monotonic() - begun
        return {"chains": done.chains, "seconds": seconds, "batch_ms": 1000 * statistics.median(batches), "worst_ms": 1000 * max(batches)}


def _good(pad: str) -> None:
    """Do nothing."""


def _past(jobs: int) -> Iterator[tuple[str, dict[str, str]]]:
    params = {"pad": "x" * 80}
    for number in range(jobs):
        if number % 1000 == 7:
            yield "second_try", params
        elif number % 100 == 3:
            yield "dies", params
        else:
            yield f"type{number % TYPES}", params


def _ms(question: Callable[[], object]) -> float:
    begun = time.perf_counter()
    question()
    return 1000 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main(RotaHistory())
