"""What a role of the database needs, by what it is for. The one place that says so: docs and `rota grants` read it here.

A role grants actions on single collections. MongoDB has no rights on single columns, so whoever may read a collection reads all of it.
Roles keep programs apart; users and organizations keep people apart, and are Rota's own.
"""

from __future__ import annotations

import re

import msgspec

from rota.errors import InvalidOption
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.schema import COLLECTIONS

PLAIN_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
KINDS = ("worker", "submitter", "reader", "server", "owner")
ALL = "*"
"""Every collection, but those that are `PRIVATE`."""
PRIVATE = frozenset({"tokens", "sessions", "hook_secrets", "secrets"})
"""Digests of keys, and secrets: for nobody but those who need them."""


class Grant(msgspec.Struct, frozen=True):
    """Actions on collections."""

    actions: str
    on: str

    @property
    def names(self) -> list[str]:
        """Return the collections."""
        return sorted(set(COLLECTIONS) - PRIVATE) if self.on == ALL else self.on.split()


HINTS = Grant("find changeStream", "bell")
# Whatever writes does so in a transaction that holds documents of `locks`, and rings afterwards.
WRITING = (Grant("find update", "locks bell"), Grant("find insert update", "counters"))
RIGHTS: dict[str, tuple[Grant, ...]] = {
    "worker": (
        Grant("find", ALL),
        HINTS,
        *WRITING,
        Grant("insert update remove", "job_facts job_live run_notes job_edges job_groups ended_roots direct_reservations dedup rate_log"),
        Grant(
            "insert update remove",
            "outbox queue_clock figures schedules occurrences occurrences_told workers endpoints",
        ),
        Grant("insert update remove", "schedule_reports"),
        Grant("insert remove", "job_ends run_logs"),
        Grant("insert update", "templates"),
        Grant("insert remove", "template_versions"),
        # A job that is over may be dropped, and its grants with it.
        Grant("remove", "grants"),
        Grant("insert remove", "adhoc_types"),
        Grant("insert", "lanes"),
        Grant("insert update", "param_digests"),
        Grant("insert", "audit"),
        Grant("update", "meta"),
        # Retention removes what is over.
        Grant("find remove", "sessions"),
        # Runs are given secrets, and a job that is dropped loses its own.
        Grant("find update remove", "secrets"),
        # It signs what it sends.
        Grant("find", "hook_secrets"),
    ),
    # It can neither change nor end a job.
    "submitter": (
        HINTS,
        *WRITING,
        Grant(
            "find",
            "meta organizations users connections templates pauses lanes param_digests job_facts job_live job_ends job_edges queue_clock",
        ),
        Grant("find", "settings workers schedules"),
        Grant("insert", "job_facts job_live job_edges lanes param_digests"),
        # A new lane advances the version of the definitions.
        Grant("update", "meta"),
        # A job's own webhook.
        Grant("find insert", "endpoints"),
        Grant("update", "job_edges"),
        Grant("find insert update remove", "dedup rate_log"),
        Grant("remove", "queue_clock"),
    ),
    "reader": (Grant("find", ALL), HINTS),
}
# What serves HTTP does what people ask for, managers too, and runs a worker where it is `rota up`.
RIGHTS["server"] = (
    *RIGHTS["worker"],
    Grant("find insert update", "tokens"),
    Grant("find insert update remove", "sessions"),
    Grant("insert update remove", "organizations users roles grants connections pauses calendars hook_secrets secrets settings"),
    Grant("remove", "templates"),
)
OWNER = (
    *("changeStream", "find", "insert", "remove", "update"),
    *("collMod", "createCollection", "createIndex", "dropIndex", "listCollections", "listIndexes"),
)
"""The owner creates a store, brings it up to date, and moves it. It drops nothing but indexes."""


def statements(kind: str, role: str, database: str) -> list[str]:
    """Return what mongosh runs to create or update a role of one of `KINDS`. Run twice, it changes nothing more."""
    if kind not in KINDS:
        raise InvalidOption(f"{kind!r} is not a kind of role: use {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if not PLAIN_ROLE.fullmatch(role):
        raise InvalidOption(f"{role!r} is not the name of a role: letters, digits, _ and -, at most 63, no digit first")
    there = f"db.getSiblingDB({_text(database)})"
    nothing = _text({"role": role, "privileges": [], "roles": []})
    return [
        f"if (!{there}.getRole({_text(role)})) {{ {there}.createRole({nothing}); }}",
        f"{there}.updateRole({_text(role)}, {_text({'privileges': privileges(kind, database), 'roles': []})});",
    ]


def privileges(kind: str, database: str) -> list[Document]:
    """Return what a role is granted, as the server takes it."""
    if kind == "owner":
        return [{"resource": {"db": database, "collection": ""}, "actions": list(OWNER)}]
    return [
        {"resource": {"db": database, "collection": collection}, "actions": sorted(actions)} for collection, actions in wanted(kind).items()
    ]


def wanted(kind: str) -> dict[str, set[str]]:
    """Return the actions that a role needs on each collection."""
    needed: dict[str, set[str]] = {}
    for grant in RIGHTS[kind]:
        for name in grant.names:
            needed.setdefault(name, set()).update(grant.actions.split())
    return dict(sorted(needed.items()))


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
