"""What a role of the database needs, by what it is for. The one place that says so: docs, `rota grants` and `rota doctor` read it here.

The owner of the schema needs none of this, and alone can bring it up to date and manage users, organizations and pauses. Roles keep
programs apart; users and organizations keep people apart, and are Rota's own.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from rota.errors import InvalidOption
from rota.stores.postgres.migrate import expected

PLAIN_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,62}")
KINDS = ("worker", "submitter", "reader", "server")
ALL = "*"
"""Every table and view of the schema, but those that are `PRIVATE`."""
PRIVATE = frozenset({"tokens", "sessions", "hook_secrets", "secrets"})
"""Digests of keys, and secrets: for nobody but those who need them."""


class Grant(msgspec.Struct, frozen=True):
    """Rights on tables, views or a sequence, or on some columns of them."""

    rights: str
    on: str
    columns: str = ""
    kind: str = "table"

    @property
    def names(self) -> list[str]:
        """Return what it is about."""
        return sorted((expected().tables | expected().views) - PRIVATE) if self.on == ALL else self.on.split()


NUMBERS = Grant("USAGE", "job_numbers", kind="sequence")
RIGHTS: dict[str, tuple[Grant, ...]] = {
    "worker": (
        Grant("SELECT", ALL),
        Grant("INSERT, UPDATE, DELETE", "job_facts job_live run_notes job_edges job_groups ended_roots direct_reservations dedup rate_log"),
        Grant(
            "INSERT, UPDATE, DELETE",
            "outbox queue_clock stats_minutely stats_hourly stats_total schedules occurrences occurrences_told workers endpoints",
        ),
        Grant("INSERT, UPDATE, DELETE", "schedule_reports"),
        Grant("INSERT, DELETE", "job_ends run_logs"),
        Grant("INSERT, UPDATE", "templates"),
        Grant("INSERT, DELETE", "template_versions"),
        # A job that is over may be dropped, and its grants with it.
        Grant("DELETE", "grants"),
        Grant("INSERT, DELETE", "adhoc_types"),
        Grant("INSERT", "lanes"),
        Grant("INSERT, UPDATE", "param_digests"),
        Grant("INSERT", "audit"),
        Grant("UPDATE", "meta"),
        # Retention removes what is over.
        Grant("SELECT", "sessions", columns="hash expires_at"),
        Grant("DELETE", "sessions"),
        # Runs are given secrets, and a job that is dropped loses its own.
        Grant("SELECT, DELETE", "secrets"),
        Grant("UPDATE", "secrets", columns="last_used_at"),
        # It signs what it sends.
        Grant("SELECT", "hook_secrets"),
        NUMBERS,
    ),
    # Through the view `jobs` it sees jobs without their params; it can neither change nor end one.
    "submitter": (
        Grant(
            "SELECT",
            "meta organizations users connections templates pauses lanes param_digests jobs job_live job_ends job_edges queue_clock",
        ),
        Grant("SELECT", "settings"),
        # Params are compared with what live workers take.
        Grant("SELECT", "workers", columns="digests ended_at"),
        Grant(
            "SELECT",
            "job_facts",
            columns="number job_id organization_id template_id job_type lane origin root_id retry_of attempt unique_key schedule_id"
            " created_at",
        ),
        Grant("INSERT", "job_facts job_live job_edges lanes param_digests"),
        # A job's own webhook.
        Grant("INSERT", "endpoints"),
        Grant("SELECT", "endpoints", columns="endpoint_id"),
        Grant("UPDATE", "job_edges", columns="needs on_failure source resolved_at"),
        Grant("SELECT, INSERT, UPDATE, DELETE", "dedup rate_log"),
        Grant("DELETE", "queue_clock"),
        NUMBERS,
    ),
    "reader": (Grant("SELECT", ALL),),
}
# What serves HTTP does what people ask for, managers too, and runs a worker where it is `rota up`.
RIGHTS["server"] = (
    *RIGHTS["worker"],
    Grant("SELECT, INSERT, UPDATE", "tokens"),
    Grant("SELECT, INSERT, UPDATE, DELETE", "sessions"),
    Grant("INSERT, UPDATE, DELETE", "organizations users roles grants connections pauses calendars hook_secrets secrets settings"),
    Grant("DELETE", "templates"),
)


Right: TypeAlias = tuple[str, str, str, str | None]
"""A single right: the kind of thing, its name, the right, and the column, if it is one of a column."""
MARKS: dict[str, Right] = {
    "server": ("table", "tokens", "UPDATE", None),
    "worker": ("table", "job_live", "DELETE", None),
    "submitter": ("table", "job_live", "INSERT", None),
}
"""The right by which a role of each kind is known, the widest kind first; a role that has none of them reads."""


def statements(kind: str, role: str, schema: str) -> list[str]:
    """Return the GRANTs that let a role be a worker, a submitter or a reader. Given twice they change nothing more."""
    if kind not in KINDS:
        raise InvalidOption(f"{kind!r} is not a kind of role: use {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if not PLAIN_ROLE.fullmatch(role):
        raise InvalidOption(f"{role!r} is not the name of a role: letters, digits, _, $ and -, at most 63, no digit first")
    return [f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}";', *(_statement(grant, role, schema) for grant in RIGHTS[kind])]


def _statement(grant: Grant, role: str, schema: str) -> str:
    columns = f" ({', '.join(grant.columns.split())})" if grant.columns else ""
    what = "SEQUENCE " if grant.kind == "sequence" else ""
    places = ", ".join(f'"{schema}".{name}' for name in grant.names)
    return f'GRANT {grant.rights}{columns} ON {what}{places} TO "{role}";'


def wanted(kind: str) -> list[Right]:
    """Return every single right that a role is asked for."""
    return [
        (grant.kind, name, right, column)
        for grant in RIGHTS[kind]
        for name in grant.names
        for right in grant.rights.split(", ")
        for column in (grant.columns.split() if grant.columns else (None,))
    ]
