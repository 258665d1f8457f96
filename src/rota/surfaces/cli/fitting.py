"""How a table finds room: long texts give way, headings before the cells of the rest. What names a thing is never cut.

Left to itself, rich takes from all columns alike, until a number can't be copied and a state can't be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

GAP, NARROW_GAP = 3, 2
HEADING_LEAST = 5
TEXT_LEAST = 10
"""What is left of a text that gives way, at least."""


class Fitted(Table):
    """A table that knows which of its columns give way."""

    def __init__(self, title: str | None, gives: Sequence[str]) -> None:
        """Take the headings of those that give way; of those the longest do so first."""
        super().__init__(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, header_style="bold", show_edge=False)
        self._gives = frozenset(gives)

    def fit(self, width: int) -> int:
        """Give each column its width; return how wide the table is: wider than there is room for, where what stays whole needs that."""
        giving = [column.header in self._gives for column in self.columns]
        cells = [max(map(_width, column.cells), default=0) for column in self.columns]
        headings = [_width(column.header) for column in self.columns]
        wanted = list(map(max, cells, headings))
        if sum(wanted) + GAP * (len(wanted) - 1) <= width:
            return width
        self.padding = (0, 1, 0, 0)
        room = width - NARROW_GAP * (len(wanted) - 1)
        least = sum(min(want, TEXT_LEAST) for want, gives in zip(wanted, giving, strict=True) if gives)
        if sum(want for want, gives in zip(wanted, giving, strict=True) if not gives) + least > room:
            wanted = [max(cell, min(heading, HEADING_LEAST)) for cell, heading in zip(cells, headings, strict=True)]
        widths = _shared(wanted, giving, room)
        for column, given in zip(self.columns, widths, strict=True):
            column.width = given
        return max(width, sum(widths) + NARROW_GAP * (len(widths) - 1))


def _shared(wanted: list[int], giving: list[bool], room: int) -> list[int]:
    """Give those that stay whole what they want, and share out the rest: the short ones get theirs, the long ones alike."""
    widths = list(wanted)
    left = room - sum(want for want, gives in zip(wanted, giving, strict=True) if not gives)
    texts = sorted((place for place, gives in enumerate(giving) if gives), key=wanted.__getitem__)
    for behind, place in enumerate(texts):
        share = left // (len(texts) - behind)
        widths[place] = min(wanted[place], max(share, TEXT_LEAST))
        left -= widths[place]
    return widths


def _width(cell: Any) -> int:
    """Return how many columns of a terminal a cell takes, in its longest line."""
    text = Text.from_markup(cell) if isinstance(cell, str) else cell
    return max((line.cell_len for line in text.split()), default=0)
