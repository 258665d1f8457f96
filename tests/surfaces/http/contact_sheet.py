"""A picture of every page of the dashboard, and sheets that show them side by side: `make pictures`.

Pages are shown with ordinary data and with names of 255 characters, wide and as on a phone, light and dark, with all forms open.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.support.pace import patient
from tests.surfaces.http.browser_support import PHONE, WIDE, Served, chromium_browser
from tests.surfaces.http.pages_support import Day, LongNames

STORES: Mapping[str, type[Day | LongNames]] = {"day": Day, "long": LongNames}
SIZES = {1280: WIDE, 390: PHONE}
THEMES = ("light", "dark")
HEIGHT_MAX = 3000
"""A picture shows this much of a page; its caption says how high the page is."""
SHEET_WIDTH = 1600
SHEET = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 13px system-ui, sans-serif; background: #777; margin: 12px; }}
main {{ columns: {columns}; column-gap: 12px; }}
figure {{ margin: 0 0 12px; break-inside: avoid; background: #fff; padding: 4px; overflow-wrap: anywhere; }}
img {{ width: 100%; display: block; }}
</style>
<h1>{title}</h1><main>{figures}</main>"""


def take_all(folder: Path, sheets: Sequence[str] = ()) -> None:
    """Write the pictures and the sheets into a folder: all, or those that are named."""
    wanted = sheets or [f"{store}-{width}-{theme}" for store in STORES for width in SIZES for theme in THEMES]
    with chromium_browser() as browser:
        for store, kind in STORES.items():
            if of_store := [sheet for sheet in wanted if sheet.startswith(f"{store}-")]:
                _take_store(browser, kind, folder, of_store)


def _take_store(browser: Browser, kind: type[Day | LongNames], folder: Path, sheets: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        served = Served(Path(place), kind)
        try:
            for sheet in sheets:
                take(browser, served, folder, sheet, served.pages())
        finally:
            served.close()


def take(browser: Browser, served: Served, folder: Path, sheet: str, pages: Mapping[str, str]) -> None:
    """Write the pictures of one sheet into a folder of its name, and the sheet beside it, as HTML and as one picture."""
    _, width, theme = sheet.split("-")
    (folder / sheet).mkdir(parents=True, exist_ok=True)
    heights = {}
    context = browser.new_context(
        storage_state=served.session(browser), viewport=SIZES[int(width)], color_scheme=theme, has_touch=SIZES[int(width)] is PHONE
    )
    context.set_default_timeout(patient(30_000))
    page = context.new_page()
    for name, path in pages.items():
        page.goto(served.base + path)
        if name == "query":
            page.get_by_role("button", name="Run", exact=True).click()
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        clip: Any = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], HEIGHT_MAX)}
        page.screenshot(path=folder / sheet / f"{file_name(name)}.png", full_page=True, clip=clip)
        heights[name] = size[1]
    context.close()
    _compose(browser, folder, sheet, heights)


def file_name(page: str) -> str:
    """Return the name of a page's picture."""
    return page.strip("/").replace(", ", "-").replace(" ", "-").lower() or "overview"


def _compose(browser: Browser, folder: Path, sheet: str, heights: Mapping[str, int]) -> None:
    figures = "".join(
        f'<figure><figcaption>{escape(name)} ({height} px)</figcaption><img src="{sheet}/{file_name(name)}.png"></figure>'
        for name, height in heights.items()
    )
    columns = 4 if "-1280-" in sheet else 8
    (folder / f"{sheet}.html").write_text(SHEET.format(title=sheet, columns=columns, figures=figures))
    page = browser.new_page(viewport={"width": SHEET_WIDTH, "height": 900})
    page.set_default_timeout(patient(60_000))
    page.goto((folder / f"{sheet}.html").resolve().as_uri())
    page.screenshot(path=folder / f"{sheet}.png", full_page=True)
    page.close()


if __name__ == "__main__":
    logging.disable()  # the jobs of these stores are made to fail
    take_all(Path(sys.argv[1]), sys.argv[2:])
