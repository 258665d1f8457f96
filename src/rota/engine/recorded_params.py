"""Params of a job whose handler is not in this process, checked by the JSON Schemas that workers have recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET

from rota.engine.registry import Known
from rota.errors import InvalidParams
from rota.model.params import decode_params, encode_params
from rota.model.schema_check import SchemaCheck
from rota.ports.store import Store

Refuse: TypeAlias = Callable[[SchemaCheck, Mapping[str, Any]], None]
"""Which of the checks is made: of all params, or of the values that are there."""


def encode_recorded(known: Known, params: Mapping[str, Any] | None, store: Store) -> str:
    """Return params as JSON text, refused if no handler that workers have recorded could be called with them."""
    text = encode_params(params, limit_bytes=known.force.payload_max)
    _check(known, text, store, SchemaCheck.refuse_misfit)
    return text


def refuse_recorded_values(known: Known, params: Mapping[str, Any], store: Store) -> None:
    """Refuse values that do not fit, where not all params are there yet."""
    _check(known, encode_params(params, limit_bytes=known.force.payload_max), store, SchemaCheck.refuse_values)


def _check(known: Known, text: str, store: Store, refuse: Refuse) -> None:
    if known.template_id is None:
        return
    if known.recorded is UNSET:
        known.recorded = _newest(known.name, store)
    if known.recorded is None:
        return
    params = decode_params(text)
    try:
        refuse(known.recorded, params)
    except InvalidParams:
        # What was read may be older than the store: only a write would show that.
        known.recorded = _newest(known.name, store)
        if not _fits_live_worker(known.name, params, store, refuse) and known.recorded is not None:
            refuse(known.recorded, params)


def _newest(job_type: str, store: Store) -> SchemaCheck | None:
    """Return the check by the newest schema; None if no worker has recorded one."""
    newest = store.newest_params(job_type)
    return None if newest is None or newest.schema is None else SchemaCheck(newest.schema)


def _fits_live_worker(job_type: str, params: Mapping[str, Any], store: Store, refuse: Refuse) -> bool:
    """Say whether a live worker takes the params: in a rolling deploy it may be of another version than the newest."""
    for schema in store.schemas_of_live_workers(job_type):
        try:
            if schema is not None:
                refuse(SchemaCheck(schema), params)
        except InvalidParams:
            continue
        return True
    return False
