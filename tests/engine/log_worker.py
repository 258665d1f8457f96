"""A worker whose handlers write to their logs. Arguments: the store, the folder of logs, and where they are kept."""

import sys
import time
from pathlib import Path

from rota import Context, Rota, Settings


def talk(ctx: Context, until: str) -> None:
    """Say something, again until a file is there."""
    ctx.log.info("begun by %s", ctx.attempt)
    while not Path(until).exists():
        ctx.log.info("still here at %.3f", time.time())
        time.sleep(0.05)
    ctx.log.info("done")


def declare(rota: Rota) -> None:
    rota.job(name="talk", max_retries=0, max_crashes=1)(talk)
    rota.job(name="talk_apart", executor="process", max_retries=0, max_crashes=1)(talk)


if __name__ == "__main__":
    url, log_dir, run_logs = sys.argv[1:]
    rota = Rota(url, settings=Settings(log_dir=log_dir, run_logs=run_logs, recovery_interval=0.2))
    declare(rota)
    rota.run(concurrency=2)
