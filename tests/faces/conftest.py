"""A collection of Monque's for the tests of a file, empty for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.collection import Collection

from tests.faces.monque_support import Shared


@pytest.fixture(scope="module")
def server() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.close()


@pytest.fixture
def jobs(server: Shared) -> Collection[dict[str, Any]]:
    server.jobs.drop()
    return server.jobs
