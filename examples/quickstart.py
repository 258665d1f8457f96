"""Rota in twenty lines: python quickstart.py, in any empty directory."""

from rota import Context, Rota

rota = Rota()  # jobs are kept in ./rota.db, or where $ROTA_STORE says


@rota.job(max_retries=3, timeout=30)
def greet(ctx: Context, name: str) -> str:
    ctx.log.info("attempt %d", ctx.attempt)
    return f"Hello, {name}"


if __name__ == "__main__":
    with rota.running(concurrency=4):
        job = rota.enqueue("greet", {"name": "Ada"}, priority="high")
        print(job.number, "is", job.status)  # on disk already: it would survive a power cut here
        run = rota.wait(job.id, timeout=10)
        print(run.status, run.result)
