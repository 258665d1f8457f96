"""Fixtures that tests of surfaces share."""

from __future__ import annotations

import pytest

from rota import Rota


@pytest.fixture
def shared(rota: Rota) -> Rota:
    """Two organizations with an admin and a user or two each, and a system manager."""

    @rota.job
    def echo(text: str = "hi") -> str:
        return text

    rota.create_organization("acme")
    rota.create_organization("beta")
    rota.add_user("root", role="system_manager")
    for name, organization, role in [
        ("ada", "acme", "admin"),
        ("bob", "acme", "user"),
        ("ben", "acme", "user"),
        ("eve", "beta", "admin"),
        ("fay", "beta", "user"),
    ]:
        rota.add_user(name, organization=organization, role=role)
    return rota
