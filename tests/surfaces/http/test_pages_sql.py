"""The page for SQL: what an address does not run, what a form runs, and how results and refusals look."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from html import unescape
from urllib.parse import quote

import pytest

from rota import Rota
from rota.sql.result import Result
from rota.surfaces.http.pages.sql import EXAMPLES
from rota.surfaces.http.pages.sql_chart import chart_of
from tests.surfaces.http.test_pages import Browser, Reader, people, root, store

__all__ = ["people", "root", "store"]
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL echo()"


def run(browser: Browser, text: str, **fields: str):
    return browser.post("/sql", csrf=browser.csrf, sql=text, **fields)


def test_an_address_fills_the_editor_and_runs_nothing(store: Rota, root: Browser):
    text = f"CREATE JOB x {HOURLY}; SELECT '</textarea><b>' AS y"
    shown = root.get(f"/sql?sql={quote(text)}").text
    assert text in unescape(shown)
    assert "</textarea><b>" not in shown
    assert "h-result-1" not in shown
    assert store.sql("SELECT * FROM sys.jobs WHERE job_name = 'x'")[0].rows == ()


def test_a_form_without_its_word_runs_nothing(store: Rota, root: Browser):
    assert root.post("/sql", sql=f"CREATE JOB x {HOURLY}").status_code == 403
    assert store.sql("SELECT * FROM sys.jobs WHERE job_name = 'x'")[0].rows == ()


def test_results_are_tables_and_hostile_values_are_text(root: Browser):
    text = "SELECT '<script>alert(1)</script>' AS \"<i>\", 7 AS n, NULL AS e; SHOW JOBS"
    answer = run(root, text)
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    assert "<script>alert" not in answer.text
    assert '<td class="num">7</td>' in answer.text
    assert '<span class="soft">null</span>' in answer.text
    assert "SHOW 1" in answer.text
    assert Reader(answer.text).wrong == []


def test_only_some_rows_and_characters_are_shown_and_the_csv_has_all(root: Browser):
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) SELECT i, 'x' AS t FROM n"
    shown = run(root, many).text
    assert shown.count("<tr>") == 1001
    assert "1,500 rows, of which the first 1,000 are shown" in shown
    answer = run(root, many, **{"as": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert len(list(csv.reader(io.StringIO(answer.text)))) == 1501
    assert "more characters" in run(root, f"SELECT '{'y' * 3000}' AS long").text


def test_a_file_never_changes_anything(store: Rota, root: Browser):
    answer = run(root, f"CREATE JOB x {HOURLY}", **{"as": "csv"})
    assert answer.status_code == 422
    assert "CREATE JOB changes something" in unescape(answer.text)
    assert store.sql("SELECT * FROM sys.jobs WHERE job_name = 'x'")[0].rows == ()
    assert "Download as CSV" not in run(root, f"CREATE JOB x {HOURLY}; SELECT 1").text


def test_a_refusal_marks_the_place_and_keeps_the_text(root: Browser):
    answer = run(root, "SHOW JOBS;\nSELECT nope FROM sys.jobs")
    assert answer.status_code == 422
    words = unescape(answer.text)
    assert "2:8: sys.jobs has no column nope" in words
    assert "SELECT nope …\n       ^" in words
    assert "SQLSTATE 42703, line 2, column 8" in words
    assert "SHOW JOBS;\nSELECT nope FROM sys.jobs</textarea>" in words


def test_results_of_the_statements_before_a_refusal_are_shown(root: Browser):
    answer = run(root, "SELECT 'early' AS word; SELECT nope FROM sys.jobs; SELECT 'late' AS word")
    assert answer.status_code == 422
    assert "(statement 2 of 3; 1 executed)" in answer.text
    assert answer.text.count("h-result-1") > 0
    assert ">early<" in answer.text
    assert ">late<" not in answer.text


def test_a_secret_in_a_statement_is_not_repeated_by_its_refusal(root: Browser):
    answer = run(root, "CREATE SECRET s VALUE 'hunter2'")
    before, _, after = answer.text.partition("</textarea>")
    assert "hunter2" in before  # what was typed stays in the editor
    assert "hunter2" not in after


def test_what_one_may_not_do_is_refused_in_the_gates_words(people):
    bob = people("bob")
    for text in (f"CREATE JOB x {HOURLY}", "SELECT * FROM sys.settings", "DROP JOB x"):
        answer = run(bob, text, sure="yes")
        assert answer.status_code in {403, 422}, text
        assert "may not" in unescape(answer.text) or "no job" in unescape(answer.text), text
    assert run(bob, "SELECT * FROM sys.settings").status_code == 403
    assert "nightly &lt;" not in run(people("eve"), "SHOW JOBS; SELECT * FROM sys.jobs").text


def test_dropping_a_job_with_its_history_asks_once(store: Rota, root: Browser):
    run(root, f"CREATE JOB x {HOURLY}")
    asked = run(root, "DROP JOB x")
    assert "Drop x? The history goes with it." in asked.text
    assert store.sql("SHOW JOB x")
    assert "DROP JOB" in run(root, "DROP JOB x", sure="yes").text
    assert store.sql("SELECT * FROM sys.jobs WHERE job_name = 'x'")[0].rows == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_for_everybody(people, name):
    assert quote(EXAMPLES[name]).replace("%20", "+").replace("/", "%2F")[:20] in people("bob").get("/sql").text.replace("%20", "+")
    for user in ("root", "ada", "bob"):
        assert run(people(user), EXAMPLES[name]).status_code == 200, user


# ---- charts ----------------------------------------------------------------------------------------------------------


def result(columns, *rows):
    return Result(f"SELECT {len(rows)}", columns, rows)


def test_names_and_numbers_are_bars(root: Browser):
    chart = chart_of(result(("state", "n", "m"), ("A", 3, None), ("B", -1, 2.5)))
    assert chart.words == "n, m by state"
    assert chart.labels == ("A", "B")
    picture = str(chart.draw())
    assert picture.count("<rect") == 3
    assert "B: m 2.5" in picture
    shown = run(root, "SELECT 'a<b' AS name, 1 AS n UNION ALL SELECT 'c', 2").text
    assert "<svg" in shown
    assert "a&lt;b: n 1" in shown


def test_times_are_labels_in_the_zone_of_the_page():
    at = int(datetime(2026, 3, 1, 9, tzinfo=UTC).timestamp() * 1000)
    chart = chart_of(result(("due_at", "n"), (at, 1), (at + 60_000, 2)))
    assert chart.labels == ("03-01 09:00", "03-01 09:01")
    assert "UTC" in str(chart.draw())
    assert (
        chart_of(result(("due_at", "n"), (datetime(2026, 3, 1, 9, tzinfo=UTC), 1), (datetime(2026, 3, 1, 10, tzinfo=UTC), 2))).zone == "UTC"
    )


def test_many_rows_are_lines_and_very_many_are_cut():
    chart = chart_of(result(("x", "n"), *((str(number), number) for number in range(500))))
    assert chart.cut
    assert len(chart.labels) == 200
    assert "<polyline" in str(chart.draw())


@pytest.mark.parametrize(
    "found",
    [
        result(("a",), (1,), (2,)),
        result(("a", "b"), ("x", 1)),
        result(("a", "b"), ("x", "y"), ("z", "w")),
        result(("a", "b"), (1, 2), (3, 4)),
        result(("a", "b"), ("x", None), ("y", None)),
        result(tuple("abcdefg"), (*"x", 1, 2, 3, 4, 5, 6), (*"y", 1, 2, 3, 4, 5, 6)),
        result(()),
    ],
)
def test_other_results_have_no_chart(found):
    assert chart_of(found) is None


def test_all_zeros_can_be_drawn():
    assert "<svg" in str(chart_of(result(("x", "n"), ("a", 0), ("b", 0))).draw())
