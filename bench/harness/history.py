"""What a long past costs those who look at it: lists, figures and logs over very many ended jobs, and clearing them away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from peers.common import remove_sqlite

from harness.children import NotMeasured
from harness.figures import Figure, Unit
from harness.lab import Lab, System

PAST = System("rota-history", "Rota with a past", "rota_history.py", "rota", "sqlite")
FILL_CAP_S = 300.0
PURGE_SHARE = 10


def history(lab: Lab, _systems: Sequence[System]) -> Iterator[Figure]:
    """Fill a store with ended jobs, ask about them, and remove a tenth."""
    count, file = lab.scale.waiting, "history.db"
    row = Figure(topic=f"with {count:,} ended jobs", work="one question", system="", unit=Unit.MS)
    try:
        if reason := lab.why_not(PAST):
            raise NotMeasured(reason)
        filled = lab.ask(PAST, "fill", count, cap_s=FILL_CAP_S, BENCH_ROTA_FILE=file)
        lab.say(f"{count:,} jobs enqueued and ended in {filled['seconds']:.0f} s")
        answers = lab.ask(PAST, "ask", BENCH_ROTA_FILE=file)["answer"]
        for question, times in answers.items():
            yield replace(row, system=question, values=tuple(times))
        purged = lab.ask(PAST, "purge", count // PURGE_SHARE, BENCH_ROTA_FILE=file)["answer"]
        rate = purged["chains"] / purged["seconds"]
        notes = (f"a batch {purged['batch_ms']:.1f} ms, at most {purged['worst_ms']:.0f} ms",)
        yield Figure(
            topic=row.topic, work=f"{purged['chains']:,} chains", system="purge", unit=Unit.PER_SECOND, values=(rate,), notes=notes
        )
    except NotMeasured as error:
        yield replace(row, system="Rota", missing=str(error))
    finally:
        remove_sqlite(lab.stores / file)
