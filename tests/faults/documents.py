"""A look at a store on MongoDB past Rota: its documents of one moment as rows of tables, in a SQLite database in memory.

The tables are those of the SQLite store, without any of its rules, so that what is asked of the other stores can be asked here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import apsw
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from rota.stores.mongodb.schema import FIGURES, KEYS

Document = dict[str, Any]
APART = {"jobs", "job_runs", "meta", "sqlite_sequence"}
RUN_STATUS = {"TIMED_OUT": "FAILED", "DEAD_LETTER": "FAILED"}


def as_tables(url: str) -> apsw.Connection:
    """Return every row of a store, as it is now."""
    tables = apsw.Connection(":memory:")
    tables.pragma("foreign_keys", 0)
    tables.pragma("ignore_check_constraints", 1)
    tables.execute(files("rota.stores.sqlite").joinpath("schema.sql").read_text())
    for kind, name in list(tables.execute("SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR type = 'index' AND sql > ''")):
        tables.execute(f"DROP {kind} {name}")
    client: MongoClient[Document] = MongoClient(url)
    with client, client.start_session(snapshot=True) as session:
        database = client.get_default_database()

        def read(name: str) -> Iterator[Document]:
            if name in FIGURES:
                for document in database["figures"].find({"kind": FIGURES[name]}, session=session):
                    yield document | {FIGURES[name]: document["at"]}
                return
            key = KEYS.get(name, "_id")
            for document in database[name].find(session=session):
                yield document | {key: document["_id"]}

        names = [name for (name,) in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in set(names) - APART:
            tables.execute(f"DELETE FROM {name}")
            _insert(tables, name, read(name))
        states = {state["_id"]: state for collection in ("job_ends", "job_live") for state in read(collection)}
        notes = {note["_id"]: note for note in read("run_notes")}
        jobs = [fact | {"blockers": 0} | states.get(fact["_id"], {}) for fact in read("job_facts")]
    _insert(tables, "jobs", jobs)
    tables.execute("CREATE VIEW job_live AS SELECT * FROM jobs WHERE finished_at IS NULL")
    _insert(tables, "job_runs", (_run(job, notes.get(job["_id"], {})) for job in jobs if "run_id" in job))
    return tables


@contextmanager
def held(url: str, *, wait_s: float) -> Iterator[None]:
    """Keep everybody else from writing."""
    end = time.monotonic() + wait_s
    client: MongoClient[Document] = MongoClient(url)
    with client, client.start_session() as session:
        while True:
            session.start_transaction()
            try:
                client.get_default_database()["locks"].update_many({}, {"$inc": {"turns": 1}}, session=session)
            except OperationFailure:
                session.abort_transaction()
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                break
        yield
        session.commit_transaction()


def misplaced(url: str) -> list[str]:
    """Return what is wrong with where jobs are: each has facts, and is either live or ended."""
    client: MongoClient[Document] = MongoClient(url)
    with client, client.start_session(snapshot=True) as session:
        database = client.get_default_database()
        facts, live, ends, notes = (
            {found["_id"]: found for found in database[name].find(session=session)}
            for name in ("job_facts", "job_live", "job_ends", "run_notes")
        )
    wrong = [f"job number {number}: live and ended" for number in live.keys() & ends.keys()]
    wrong += [f"job number {number}: neither live nor ended" for number in facts.keys() - live.keys() - ends.keys()]
    wrong += [f"job number {number}: without facts" for number in (live.keys() | ends.keys()) - facts.keys()]
    wrong += [
        f"job number {number} has left something behind without a run"
        for number in notes
        if "run_id" not in {**live, **ends}.get(number, {})
    ]
    copied = ("job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "schedule_id", "unique_key")
    return wrong + [
        f"job number {number} is not the same in job_live and in job_facts"
        for number in live.keys() & facts.keys()
        if any(live[number].get(name) != facts[number].get(name) for name in copied)
    ]


def _run(job: Document, note: Document) -> Document:
    status = job["status"]
    ended = {"status": RUN_STATUS.get(status, status), "finished_at": job["finished_at"]} if "finished_at" in job else {"status": None}
    return {"artifacts": "[]"} | note | {"job_number": job["_id"], "run_id": job["run_id"], "started_at": job["started_at"]} | ended


def _insert(tables: apsw.Connection, name: str, documents: Iterable[Document]) -> None:
    columns = list(tables.execute(f"SELECT name, type FROM pragma_table_info('{name}')"))
    places = ", ".join("?" * len(columns))
    rows = (tuple(_value(document.get(column), kind) for column, kind in columns) for document in documents)
    tables.executemany(f"INSERT OR REPLACE INTO {name} VALUES ({places})", rows)


def _value(value: Any, kind: str) -> Any:
    return bytes.fromhex(value) if kind == "BLOB" and isinstance(value, str) else value
