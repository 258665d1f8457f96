"""`make check` runs both type checkers over all that readers copy; here is shown that they see what is wrong."""

from __future__ import annotations

import pytest

from tests.typing import check


def test_there_are_enough_planted_mistakes():
    assert len(check.planted()) >= 40
    assert all(check.planted().values())


@pytest.mark.timeout(300)
def test_a_mistake_in_a_page_is_reported():
    check.BLOCKS.mkdir(parents=True, exist_ok=True)
    wrong = check.BLOCKS / "docs_guide_x_1.py"
    wrong.write_text(check.PRELUDE + "@rota.job\ndef f(x: int) -> int:\n    return x\n\n\nf.enqueue('x')\n")
    for checker in (check.mypy, check.pyright):
        (report,) = checker([wrong])
        assert (report.file, report.line) == (wrong.name, 9)
    assert len(check.false_alarms([report])) == 1
    assert len(check.missed([report])) == len(check.planted())
