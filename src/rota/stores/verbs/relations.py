"""The relations that can be scanned: their columns, whose rows they are, and the text of a scan in a dialect's words."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Any

import msgspec

from rota.model.gate import Scope
from rota.ports.scan import Bound, Compares, Order


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    ID = "id"


class Belongs(Enum):
    """Whose a row is: which parts of a scope restrict a scan."""

    OWNER = "owner"
    """An owner's in an organization, or of a job that somebody was granted: columns `organization_id`, `owner` and `schedule_id`."""
    ORGANIZATION = "organization"
    SHARED = "shared"
    """An organization's, or everybody's if it names none."""
    STORE = "store"
    """Nobody's: only an unrestricted scope sees it."""


class Relation(msgspec.Struct, frozen=True):
    """One relation. Its rows are the statement `scan_` and its name."""

    columns: dict[str, Kind]
    belongs: Belongs
    orders: frozenset[Order] = frozenset()
    """Orders that a scan has without a look at every row."""
    nullable: frozenset[str] = frozenset()
    """Columns of these orders that can be NULL."""
    keys: frozenset[str] = frozenset()
    """Columns of which a value has few rows."""


class Words(msgspec.Struct, frozen=True):
    """How a dialect writes a column and a value."""

    shown: dict[Kind, str]
    given: dict[Kind, str]
    among: dict[Kind, str]
    present: str = "{} IS NOT NULL"
    sorts_keyed: bool = False
    """Whether a scan by a key is kept from walking the index of its order instead."""


KEYED = frozenset({Compares.EQUAL, Compares.AMONG})


def _columns(whole: str = "", *, ids: str = "", text: str = "", real: str = "") -> dict[str, Kind]:
    kinds = {Kind.WHOLE: whole, Kind.ID: ids, Kind.TEXT: text, Kind.REAL: real}
    return {name: kind for kind, names in kinds.items() for name in names.split()}


def _both_ways(*columns: str) -> frozenset[Order]:
    return frozenset(Order(column, descending) for column in columns for descending in (False, True))


RELATIONS: dict[str, Relation] = {
    "jobs": Relation(
        _columns(
            "number attempt failures crashes snoozes blockers priority position run_at due_at scheduled_at expires_at created_at queued_at"
            " started_at finished_at cancel_requested_at sequence_number max_retries exit_code rows_affected progress",
            ids="job_id schedule_id template_id root_id retry_of worker_id group_id run_id",
            text="organization_id owner schedule_name template_name job_type queue origin status held unique_key executor target_node shard"
            " ended_by error_type reason params meta tags error error_code result message progress_message",
            real="timeout",
        ),
        Belongs.OWNER,
        _both_ways("number", "finished_at", "started_at"),
        frozenset({"started_at"}),
        frozenset({"number", "job_id", "schedule_id"}),
    ),
    "facts": Relation(
        _columns("number finished_at started_at", ids="schedule_id"),
        Belongs.STORE,
        _both_ways("number", "finished_at", "started_at"),
        frozenset({"finished_at", "started_at"}),
        frozenset({"schedule_id"}),
    ),
    "ends": Relation(_columns("number finished_at", text="job_type"), Belongs.STORE, _both_ways("finished_at")),
    "schedules": Relation(
        _columns(
            "interval_us starts_at ends_at next_at last_at created_at updated_at priority version",
            ids="schedule_id owner_id run_as_id",
            text="organization_id owner name description kind body job_class job_type template_name schedule_kind cron_expression timezone"
            " on_completion partition_strategy partition_shard partition_expression defaults overrides run_as state held_by catch_up"
            " overlap calendar params",
        ),
        Belongs.OWNER,
    ),
    "dependencies": Relation(_columns(ids="schedule_id parent_id", text="organization_id owner name parent_name"), Belongs.OWNER),
    "occurrences": Relation(
        _columns("due_at last_due_at count recorded_at", ids="schedule_id job_id", text="name organization_id owner fate reason"),
        Belongs.OWNER,
        _both_ways("due_at"),
    ),
    "workers": Relation(
        _columns("beat slots started_at stopping_at ended_at pid memory", ids="worker_id", text="host kind job_types queues rota_version"),
        Belongs.STORE,
    ),
    "users": Relation(
        _columns("created_at updated_at", ids="user_id", text="name organization_id role permissions state created_by"),
        Belongs.ORGANIZATION,
    ),
    "organizations": Relation(
        _columns("max_running max_queued max_priority created_at", text="organization_id display_name state"), Belongs.ORGANIZATION
    ),
    "templates": Relation(
        _columns(
            "max_running concurrency rate_limit rate_window submit_limit submit_window queue_ttl payload_max dedup_window version"
            " created_at updated_at",
            ids="template_id",
            text="organization_id name display_name description kind job_type state requires_permission job_class partition_strategy"
            " defaults overrides created_by",
        ),
        Belongs.SHARED,
    ),
    "calendars": Relation(_columns("created_at updated_at", text="organization_id name description days created_by"), Belongs.ORGANIZATION),
    "audit": Relation(
        _columns("audit_id at", ids="job_uuid job_run_uuid", text="actor organization_id action subject subject_id before after outcome"),
        Belongs.ORGANIZATION,
        _both_ways("audit_id"),
    ),
}


def scoped(relation: Relation, scope: Scope) -> list[Bound] | None:
    """Return the bounds that a scope adds to a scan; None: it has no rows."""
    if scope.organization is None and scope.owner is None:
        return []
    match relation.belongs:
        case Belongs.STORE:
            return None
        case Belongs.SHARED:
            return [Bound("organization_id", Compares.OWN_OR_SHARED, scope.organization)]
        case Belongs.ORGANIZATION:
            return [Bound("organization_id", Compares.EQUAL, scope.organization)]
        case Belongs.OWNER:
            whose = (("organization_id", scope.organization), ("owner", None if scope.granted else scope.owner))
            bounds = [Bound(column, Compares.EQUAL, value) for column, value in whose if value is not None]
            if scope.granted and scope.owner is not None:
                bounds.append(Bound("schedule_id", Compares.OWNED, scope.granted, scope.owner))
            return bounds


def owners(bounds: Sequence[Bound]) -> dict[str, Any]:
    """Return the owners of bounds as parameters: `o0` is that of the first, and so on."""
    return {f"o{place}": bound.owner for place, bound in enumerate(bounds) if bound.compares is Compares.OWNED}


def scan_text(text: str, relation: Relation, words: Words, *, columns: Sequence[str], bounds: Sequence[Bound], order: Order | None) -> str:
    """Return a scan over the text of a relation. Values are parameters: `b0` is that of the first bound, and so on."""
    shown = ", ".join(words.shown[relation.columns[column]].format(f"r.{column}") for column in columns)
    conditions = "".join(f"\n AND {_condition(relation, words, bound, place)}" for place, bound in enumerate(bounds))
    keyed = words.sorts_keyed and any(bound.column in relation.keys for bound in bounds if bound.compares in KEYED)
    sorting = "" if order is None else f"\n ORDER BY r.{order.column}{' + 0' if keyed else ''}{_way(relation, order)}"
    return f"SELECT {shown} FROM (\n{text}\n) AS r WHERE true{conditions}{sorting}"  # noqa: S608 - names of ours, values are parameters


def _way(relation: Relation, order: Order) -> str:
    """Return the direction of an order. NULL is named only where there can be one: an index of the other way round would not be used."""
    way = " DESC" if order.descending else ""
    return f"{way} NULLS {'LAST' if order.descending else 'FIRST'}" if order.column in relation.nullable else way


def _condition(relation: Relation, words: Words, bound: Bound, place: int) -> str:
    column, kind = f"r.{bound.column}", relation.columns[bound.column]
    value = words.given[kind].format(f":b{place}")
    match bound.compares:
        case Compares.GIVEN:
            return words.present.format(column)
        case Compares.AMONG:
            return f"{column} {words.among[kind].format(f':b{place}')}"
        case Compares.OWNED:
            owner = words.given[Kind.TEXT].format(f":o{place}")
            return f"(r.owner = {owner} OR {column} {words.among[kind].format(f':b{place}')})"
        case Compares.OWN_OR_SHARED:
            return f"({column} IS NULL OR {column} = {value})"
        case _:
            return f"{column} {bound.compares.value} {value}"
