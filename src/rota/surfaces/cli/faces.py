"""`rota job show --face`: a chain in the words of another system."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rota.compat.faces import background_job, monque_document
from rota.model.gate import Right
from rota.operation import ask_for
from rota.surfaces.cli.output import compact, show_json, show_pairs
from rota.surfaces.cli.session import actor

if TYPE_CHECKING:
    from rota.app import Rota


class Face(StrEnum):
    """Whose words to use."""

    BACKGROUND_JOB = "background-job"
    MONQUE = "monque"


FaceOption = Annotated[Face | None, typer.Option("--face", help="The whole chain, in the words of another system.")]


def show_face(rota: Rota, job_id: str, face: Face, *, as_json: bool) -> None:
    """Print a chain as that system has it."""
    if face is Face.BACKGROUND_JOB:
        from rota.faces.background_job import document  # noqa: PLC0415 - few calls need it

        fields = document(background_job(ask_for(rota.acting_as(actor()), Right.READ), job_id))
    else:
        fields = monque_document(ask_for(rota.acting_as(actor()), Right.READ), job_id)
    if as_json:
        show_json(fields)
    else:
        show_pairs([(name, compact(value) if isinstance(value, dict | list) else value) for name, value in fields.items()])
