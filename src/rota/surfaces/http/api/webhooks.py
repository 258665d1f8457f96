"""The secret of an organization, which signs the messages of single jobs."""

from __future__ import annotations

from rota.model.gate import Right
from rota.model.shapes import Organization
from rota.operation import Ask
from rota.surfaces.http.api.endpoint import Asked, by_hand


@by_hand("webhooks.rotate_organization", Right.WEBHOOKS, "POST /webhook-secret", tag="Webhooks", status=201)
def rotate_organization(asked: Asked, ask: Ask, *, organization: Organization = None) -> str:  # noqa: ARG001 - the gate is asked by making it
    """Replace the secret that signs the messages of single jobs, and return it, once. The previous one signs too for a while."""
    return asked.rota.webhooks.rotate(organization=organization)
