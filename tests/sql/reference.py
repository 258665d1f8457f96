"""The reference page of the SQL language, made from the tables of its grammar.

python -m tests.sql.reference > docs/reference/sql.md
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.model.grants import PRIVILEGES, Privilege
from rota.model.templates import UNITS
from rota.sql.grammar import CLAUSES, FORMS, JOB_SECRET_FORMS, MAX_RETRIES_MAX, RESERVED

EXAMPLE = """\
CREATE JOB nightly_report
  SCHEDULE = CRON '0 2 * * *'
  TIMEZONE = 'Europe/Berlin'
  DEPENDS ON load
  MAX_RETRIES = 5
  TIMEOUT = 30 MINUTES
  DESCRIPTION = 'Sums up the day'
  AS $$ INSERT INTO report SELECT * FROM sales WHERE day = 'today' $$;

ALTER JOB nightly_report SET TIMEOUT = 1 HOUR SET DEPENDS ON NONE;
EXECUTE JOB nightly_report;
SHOW JOB RUNS FOR nightly_report LIMIT 10;
GRANT EXECUTE ON JOB nightly_report TO ada;
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            "# SQL",
            "",
            "Keywords may be written in any case; names keep theirs.",
            "Statements are separated by semicolons.",
            "A script is read whole: if one of its statements can't be read, none is executed.",
            "",
            "```sql",
            f"{EXAMPLE}```",
            "",
            "## Statements",
            "",
            "Square brackets are optional, braces group, `|` separates alternatives, `…` repeats.",
            "",
            *table(("statement", "effect"), ((code(form.syntax), form.summary) for form in (*FORMS, *JOB_SECRET_FORMS))),
            "",
            "## Clauses of a job",
            "",
            "Clauses come in any order, each at most once, before the body.",
            "The `=` may be left out.",
            "`NONE` and `NULL` remove a value, so they are for `ALTER JOB` and `CREATE OR ALTER JOB`.",
            "`CREATE JOB` and `RECREATE JOB` need `SCHEDULE` and a body.",
            "",
            *table(("clause", "meaning"), ((code(clause.syntax), clause.summary) for clause in CLAUSES)),
            "",
            "The body is one of these, with or without `AS` before `CALL` and `EXEC`:",
            "",
            *table(
                ("body", "meaning"),
                (
                    (code("AS 'sql'"), "SQL to execute."),
                    (
                        code("CALL procedure([argument, …] [name => argument, …])"),
                        "A registered handler, or with `CONNECTION` a procedure, to call with `'text'`, `1`, `NULL`, `TRUE` or `:name`.",
                    ),
                    (code("EXEC '/path/to/program argument'"), "A command to run, by its absolute path and without a shell."),
                ),
            ),
            "",
            "## Values",
            "",
            f"A duration is a number with a unit ({', '.join(code(unit) for unit in UNITS)}) or several of them: `1 HOUR 30 MINUTES`.",
            "Without a unit it is in seconds.",
            "`90s`, `'1h30m'`, `'15 minutes'` and `INTERVAL '1 hour'` are durations, too.",
            "A day has 24 hours.",
            "",
            "A moment is a text such as `'2036-03-01T09:00:00Z'`.",
            "Without a zone it is in the time zone of the job.",
            "A time that the clock of that zone shows twice or never is refused.",
            "",
            "A text is in single quotes, with quotes inside it doubled, or between dollar tags: `$$it's$$`.",
            "A name is bare, or in double quotes.",
            f"These words are names only in double quotes: {', '.join(code(word) for word in sorted(RESERVED))}.",
            "",
            f"`MAX_RETRIES` takes 0 to {MAX_RETRIES_MAX}, `PRIORITY` 0 to 100.",
            "",
            "## Privileges",
            "",
            "A grantee is a user, a role or `PUBLIC`; `USER` or `ROLE` before a name says which.",
            "",
            *table(("privilege", "granted on"), ((code(privilege), granted_on(privilege)) for privilege in PRIVILEGES)),
            "",
            "## Secrets",
            "",
            "Pass the value of a secret as a parameter, `?` or `:name`.",
            "A value that is written into a statement is accepted with a warning (SQLSTATE `01000`).",
            "It is shown as `<secret>` wherever the statement is shown, and no error shows it.",
            "",
        ]
    )


def granted_on(privilege: Privilege) -> str:
    """Return what a privilege can be granted on, as the page says it."""
    if privilege is Privilege.ROLE:
        return "`ROLE role`: the grantees may use `RUN AS role`"
    return " or ".join("nothing in particular" if kind is None else code(f"ON {kind} name") for kind in PRIVILEGES[privilege])


def table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (heading, ("---",) * len(heading), *rows)]


def code(text: str) -> str:
    """Return a piece of code that may be in a table."""
    return f"`{text}`".replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
