"""Health is judged by facts alone: one sentence with the reason, the gravest concern first."""

from __future__ import annotations

import pytest

from rota.model.overview import Facts, Level, OverdueFacts, Patience, health_of

PATIENCE = Patience(waiting_s=300, unqueued_s=60, clock_s=60, read_s=0.5)
SINCE = 1_772_366_400_000_000


def health(**facts):
    return health_of(Facts(**({"alive": 1} | facts)), PATIENCE)


def test_all_is_well_with_what_there_is_of_it():
    found = health(alive=2, running=3, waiting=1, completed=1204)
    assert found.level is Level.WELL
    assert found.sentence == "All is well: 2 workers are up, 3 jobs run, 1 waits, 1,204 completed in the last 24 hours."
    assert found.concerns == ()


def test_an_idle_store_is_well():
    assert health().sentence == "All is well: 1 worker is up, nothing runs, nothing waits."


@pytest.mark.parametrize(
    ("facts", "level", "sentence"),
    [
        ({"alive": 0, "waiting": 12}, "trouble", "No worker is running, and 12 jobs wait."),
        ({"alive": 0, "waiting": 5000, "more": True}, "trouble", "No worker is running, and more than 5,000 jobs wait."),
        ({"alive": 0, "scheduled": True}, "trouble", "No worker is running."),
        ({"alive": 0}, "watch", "No worker is running."),
        ({"lost": 1, "lost_jobs": 3}, "trouble", "A worker was lost without a word; 3 jobs are still in its name."),
        ({"lost": 2}, "watch", "2 workers were lost without a word."),
        ({"unserved": ("a", "b", "c", "d")}, "trouble", "No live worker has a handler for a, b, c, …, and such jobs wait."),
        ({"paused": (("everything", SINCE, "ada"),)}, "watch", "Everything is paused since 2026-03-01T12:00:00Z (by ada)."),
        ({"paused": (("template mail", SINCE, ""),)}, "watch", "Template mail is paused since 2026-03-01T12:00:00Z."),
        ({"unqueued_s": 120}, "trouble", "A job was due 2 min ago and was not queued."),
        (
            {"overdue": OverdueFacts(count=18, schedules=("beat",), since=SINCE)},
            "trouble",
            "18 due times of schedule beat have no outcome since 2026-03-01T12:00:00Z.",
        ),
        (
            {"overdue": OverdueFacts(count=1, schedules=("beat",), since=SINCE)},
            "trouble",
            "1 due time of schedule beat has no outcome since 2026-03-01T12:00:00Z.",
        ),
        (
            {"overdue": OverdueFacts(count=900, schedules=("a", "b", "c", "d"), since=SINCE, more=True)},
            "trouble",
            "More than 900 due times of 4 schedules (a, b, c, …) have no outcome since 2026-03-01T12:00:00Z.",
        ),
        ({"oldest_s": 600}, "watch", "The oldest ready job has waited for 10 min."),
        ({"dead": 1}, "watch", "1 job was dead-lettered in the last hour."),
        ({"missed": 4}, "watch", "4 due times did not run in the last hour."),
        ({"read_s": 0.75}, "watch", "The store is slow: it took 750 ms to answer."),
    ],
)
def test_a_concern_is_a_sentence_with_a_remedy(facts, level, sentence):
    found = health(**facts)
    assert (found.level, found.sentence) == (level, sentence)
    assert all(each.remedy for each in found.concerns)


def test_a_clock_that_was_set_back_is_a_concern():
    assert "the clock was set back by 1 h" in health(clock_ahead_s=7200 / 2).concerns[0].what.replace("60 min", "1 h")


@pytest.mark.parametrize(("alive", "words"), [(0, "start a worker with"), (1, "see the workers' logs")])
def test_what_is_overdue_is_helped_by_a_worker_or_by_its_log_if_there_is_one(alive, words):
    late = OverdueFacts(count=18, schedules=("beat",), since=SINCE)
    concern = next(each for each in health(alive=alive, overdue=late).concerns if "due times" in each.what)
    assert words in concern.remedy


def test_what_is_within_patience_is_no_concern():
    assert health(oldest_s=299, unqueued_s=59, clock_ahead_s=59, read_s=0.4).level is Level.WELL


def test_trouble_comes_before_what_is_only_to_be_watched_and_the_rest_is_counted():
    found = health(alive=0, waiting=1, dead=3, missed=1)
    assert found.sentence == "No worker is running, and 1 job waits (and 2 more concerns)."
    assert [each.level for each in found.concerns] == ["trouble", "watch", "watch"]
