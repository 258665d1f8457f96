"""Results of tools as JSON objects."""

from __future__ import annotations

from typing import Any

import msgspec

from rota import wire
from rota.lab.forecasts import Forecast
from rota.model.gate import Actor
from rota.model.values import Run
from rota.results import Log
from rota.schedule_views import OccurrenceView
from rota.surfaces.redaction import is_redacted, without_read

ITEMS_MAX = 1000
"""Items of a list in one result; `count` says how many there are."""
LOG_MAX = 1000
"""Entries of a log in one result; those before them are left out."""


def document(result: Any, actor: Actor) -> dict[str, Any]:
    """Return what an operation returned as a JSON object, as far as the actor may read it. A list is `items` and `next`."""
    shown = _object(result)
    built = msgspec.to_builtins(without_read(shown) if is_redacted(actor) else shown, str_keys=True)
    return built if isinstance(built, dict) else {"result": built}


def _object(result: Any) -> Any:
    if isinstance(result, Log):
        return {"items": list(result[-LOG_MAX:]), "next": None, "cut": len(result) > LOG_MAX}
    if isinstance(result, Forecast):
        more = {"start": result.start, "end": result.end, "cut": result.cut, "exact_until": result.exact_until, "changes": result.changes}
        return {"items": list(result), "next": None, **more}
    if isinstance(result, list | tuple):
        following = getattr(result, "next", None)
        items = {
            "items": [_item(each) for each in result[:ITEMS_MAX]],
            "next": wire.seal(following) if isinstance(following, tuple) else following,
        }
        return items if len(result) <= ITEMS_MAX else {**items, "cut": True, "count": len(result)}
    return _item(result)


def _item(value: Any) -> Any:
    if isinstance(value, Run):
        # The place of a log is a path of the machine that ran the job.
        return msgspec.structs.replace(value, log_path=None)
    if isinstance(value, OccurrenceView):
        return {name: getattr(value, name) for name in value.__struct_fields__ if name != "cursor"}
    return value
