from __future__ import annotations

import pytest

from tests.runners.external.stage import WAYS, Stage
from tests.support.stranger import public_folder


@pytest.fixture(params=WAYS, ids=str)
def stage(request):
    with public_folder() as folder:
        yield Stage(folder, request.param)
