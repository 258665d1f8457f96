"""What tests of the API share: an app over a store that two organizations share, and a client for each kind of caller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.surfaces.http import make_app

API = "/api/v1"


class Caller:
    """A client that comes with somebody's token."""

    def __init__(self, client: TestClient, secret: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {secret}"}

    def __call__(self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None, **query: object):
        more = {} if body is None else {"json": body}
        return self._client.request(method, API + path, params=query, headers=self._headers | (headers or {}), **more)

    def get(self, path: str, **query: object):
        return self("GET", path, **query)

    def post(self, path: str, body: object = None, **query: object):
        return self("POST", path, body, **query)

    def patch(self, path: str, body: object = None, **query: object):
        return self("PATCH", path, body, **query)

    def put(self, path: str, body: object = None, **query: object):
        return self("PUT", path, body, **query)

    def delete(self, path: str, **query: object):
        return self("DELETE", path, **query)


class Callers:
    """Everybody who calls: the manager of the store, an admin and a user of acme, the admin of beta."""

    def __init__(self, rota: Rota, client: TestClient) -> None:
        self.rota = rota
        self.client = client
        self.manager = self.of("root")
        self.admin = self.of("ada")
        self.user = self.of("bob")
        self.other = self.of("eve")

    def of(self, name: str, *permits: str) -> Caller:
        made = self.rota.tokens.create(f"{name}'s", user=name, permits=permits or ("read", "submit", "operate", "manage"))
        return Caller(self.client, made.secret)


@pytest.fixture
def callers(shared: Rota) -> Iterator[Callers]:
    """The store that organizations share, behind its door."""
    shared.acting_as("root").enqueue("echo", organization="acme")
    with TestClient(make_app(shared), raise_server_exceptions=False) as client:
        yield Callers(shared, client)


def code_of(answer) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()["code"]
