"""A worker for the handlers of `keeping`: ends by SIGTERM, or is killed."""

import limits  # noqa: F401 - ends this program after a while, whatever happens
from keeping import rota

if __name__ == "__main__":
    print("started", flush=True)
    rota.run(concurrency=3)
