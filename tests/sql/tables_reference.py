"""The reference page of the tables of sys, made from the catalog.

python -m tests.sql.tables_reference > docs/reference/sys-tables.md
"""

from __future__ import annotations

from collections.abc import Iterator

from rota.model.gate import RIGHTS, Reach, Role
from rota.sql.catalog import TABLES, Table

READERS = {Reach.ALL: "all rows", Reach.ORGANIZATION: "those of their organization", Reach.OWN: "their own", Reach.NONE: "refused"}
HEAD = """\
# Tables of sys

Queries over `sys` are read-only: `SELECT` and `WITH`, in SQLite's dialect on every store.
All rows of one query are of one moment.
A query sees what its user may read, and nothing else is counted or found; a table that nobody of a role may read is refused.
Ids can be written with or without dashes and in any case.
Moments are in milliseconds since 1970 UTC, and once more as text, in the column whose name ends with `_ts`.
The limits are the settings `sql_timeout`, `sql_rows_max`, `sql_bytes_max` and `sql_running`: see [settings](settings.md).
A query in the process of a worker that has jobs computes for `sql_share` of its time and pauses for the rest.
Run long queries in another process.

Queries by id, by `number`, by the name of a job and by type look at few rows, however many there are.
So do those for the newest by `number`, by end or by start.
Others read all jobs.
For figures over all history, use `sys.performance`.

```sql
SELECT job_name, state, next_run_time_ts FROM sys.jobs ORDER BY next_run_time;
SELECT * FROM sys.job_runs WHERE job_name = 'nightly' ORDER BY completed_at DESC LIMIT 20;
SELECT job_name, count(*) FROM sys.job_runs WHERE state = 'FAILED' AND completed_at > 1760000000000 GROUP BY job_name;
```
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(line for table in TABLES.values() for line in section(table))]).rstrip() + "\n"


def section(table: Table) -> Iterator[str]:
    """Go through the lines about a table."""
    reaches = ", ".join(f"{role.value.replace('_', ' ')}s: {READERS[RIGHTS[table.right][role]]}" for role in Role)
    yield from (f"## sys.{table.name}", "", *(f"{sentence}." for sentence in table.what.rstrip(".").split(". ")))
    yield from (f"Who sees what: {reaches}.", "", "| column | type | meaning |", "| --- | --- | --- |")
    for column in table.columns:
        yield f"| `{column.name}` | {column.type.value[0]} | {column.what} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
