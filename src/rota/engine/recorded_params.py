"""Params of a job whose handler is not in this process, checked by the JSON Schemas that workers have recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from rota.engine.registry import Known
from rota.errors import InvalidParams
from rota.model.params import decode_params, encode_params
from rota.model.schema_check import SchemaCheck
from rota.ports.store import Store


def encode_recorded(known: Known, params: Mapping[str, Any] | None, store: Store) -> str:
    """Return params as JSON text, refused if no handler that workers have recorded could be called with them."""
    text = encode_params(params, limit_bytes=known.force.payload_max)
    if (newest := _newest(known, store)) is not None:
        given = decode_params(text)
        try:
            newest.refuse_misfit(given)
        except InvalidParams:
            if not _fits_live_worker(known.name, given, store):
                raise
    return text


def refuse_recorded_values(known: Known, params: Mapping[str, Any], store: Store) -> None:
    """Refuse values that do not fit, where not all params are there yet."""
    if (newest := _newest(known, store)) is not None:
        given = decode_params(encode_params(params, limit_bytes=known.force.payload_max))
        try:
            newest.refuse_values(given)
        except InvalidParams:
            if not _fits_live_worker(known.name, given, store, values_only=True):
                raise


def _newest(known: Known, store: Store) -> SchemaCheck | None:
    """Return the check by the newest schema; None if no worker has recorded one. Read once for each version of the definitions."""
    if known.recorded is UNSET:
        newest = None if known.template_id is None else store.newest_params(known.name)
        known.recorded = None if newest is None or newest.schema is None else SchemaCheck(newest.schema)
    return known.recorded


def _fits_live_worker(job_type: str, params: Mapping[str, Any], store: Store, *, values_only: bool = False) -> bool:
    """Say whether a live worker takes the params: in a rolling deploy it may be of another version than the newest."""
    for schema in store.schemas_of_live_workers(job_type):
        if schema is None:
            return True
        check = SchemaCheck(schema)
        try:
            if values_only:
                check.refuse_values(params)
            else:
                check.refuse_misfit(params)
        except InvalidParams:
            continue
        return True
    return False
