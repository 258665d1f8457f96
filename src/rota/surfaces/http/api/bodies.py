"""What bodies have in common: nothing unknown, nothing bent into shape. What a value may be is checked by `Rota`, in its own words."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import WithJsonSchema

from rota.surfaces.http.api.asking import PRIORITY

NAME_MAX = 255
TEXT_MAX = 4096


class Body(BaseModel):
    """A JSON object whose fields are all known. What is not given is not there: `given()` leaves it out."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def given(self, *without: str) -> dict[str, Any]:
        """Return the fields that the request names, null included."""
        return self.model_dump(exclude_unset=True, exclude=set(without))


Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
Text = Annotated[str, Field(max_length=TEXT_MAX)]
Span = Annotated[
    float | str,
    Field(union_mode="left_to_right"),
    WithJsonSchema({"type": ["number", "string"], "description": 'Seconds, or a text such as "90s", "5m", "1h30m".'}),
]
Moment = Annotated[
    str, Field(max_length=64), WithJsonSchema({"type": "string", "format": "date-time", "description": "With its zone: `Z` or `+01:00`."})
]
Priority = Annotated[
    int | str,
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "maximum": 100, "examples": [50]} | PRIORITY),
]
Params = Annotated[dict[str, Any], Field(description="Names and values.")]
