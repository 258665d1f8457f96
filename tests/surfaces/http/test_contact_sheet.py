"""`make pictures` takes a picture of a page, and shows it on a sheet."""

from __future__ import annotations

import struct

import pytest

from tests.surfaces.http.browser_support import Served, chromium_browser
from tests.surfaces.http.contact_sheet import take
from tests.surfaces.http.pages_support import LongNames

pytestmark = pytest.mark.paired


def test_a_page_is_pictured_and_is_on_its_sheet(tmp_path):
    (tmp_path / "store").mkdir()
    served = Served(tmp_path / "store", LongNames)
    try:
        with chromium_browser() as browser:
            take(browser, served, tmp_path, "long-390-dark", {"/": "/", "enqueue, as JSON": "/jobs/new"})
    finally:
        served.close()
    picture = (tmp_path / "long-390-dark" / "overview.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height > 500) == (390, True)
    assert (tmp_path / "long-390-dark" / "enqueue-as-json.png").exists()
    assert (tmp_path / "long-390-dark.html").read_text().count("<figure>") == 2
    assert (tmp_path / "long-390-dark.png").stat().st_size > 5_000
