"""Rota in twenty lines: python quickstart.py, in any empty directory."""

from rota import Context, Rota

rota = Rota()  # jobs are kept in ./rota.db, or where $ROTA_STORE says


@rota.job(max_retries=3, timeout="30s")
def greet(ctx: Context, name: str, times: int = 1) -> list[str]:
    ctx.log.info("attempt %d", ctx.attempt)
    return [f"Hello, {name}"] * times


if __name__ == "__main__":
    with rota.running(concurrency=4):
        handle = greet.options(priority="high").enqueue("Ada", times=2)
        print(handle.number, "is", handle.status())  # on disk already: it would survive a power cut here
        print(handle.result(timeout=10))
