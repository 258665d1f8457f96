"""Rota on MongoDB."""

from __future__ import annotations

import os

from common import main, mongodb_url
from pymongo import MongoClient
from rota_peer import RotaPeer

DATABASE = os.environ.get("BENCH_ROTA_MONGODB", "rota")


class RotaMongo(RotaPeer):
    """A database of its own, asked over a connection of the bench's own."""

    settings = "defaults: 8 threads per worker process, two job types registered; change streams; jobs and runs kept"

    def __init__(self) -> None:
        self._client: MongoClient[dict[str, int]] = MongoClient(mongodb_url(DATABASE), connect=False)
        self._database = self._client[DATABASE]

    def reset(self) -> None:
        """Make an empty database with its collections and indexes."""
        self._client.drop_database(DATABASE)
        self.open()
        self.rota.close()

    def left(self, after: int = 0) -> int:
        """Return the jobs that have not ended, of those numbered above `after`."""
        return self._database["job_live"].count_documents({"_id": {"$gt": after}})

    def last(self) -> int:
        """Return the highest number that a job has."""
        job = self._database["job_facts"].find_one(sort=[("_id", -1)], projection=["_id"])
        return job["_id"] if job else 0


if __name__ == "__main__":
    main(RotaMongo())
