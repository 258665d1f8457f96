"""Settings that the store keeps: ALTER SYSTEM, whose word holds, and what running workers make of a change, on each store."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rota import Rota, Settings
from rota.errors import InvalidOption, NotFound, PermissionDenied
from rota.model.gate import Actor, Role
from rota.model.settings import DOCS
from rota.model.stored_settings import STORABLE
from tests.sql.test_sql_run import refused

PROGRAM = Path(__file__).parents[1] / "faults/programs/scheduled_worker.py"


def shown(rota: Rota, name: str) -> tuple[str, str]:
    ((_, value, source),) = rota.sql(f"SHOW SETTINGS LIKE '{name}'")[0].rows
    return value, source


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("enabled", "false", "schedules", "off"),
        ("max_concurrent_jobs", "3", "concurrency", 3),
        ("job_timeout_seconds", "120", "sql_job_timeout", 120),
        ("default_max_retries", "0", "sql_job_retries", 0),
        ("default_retry_backoff_seconds", "5", "sql_job_backoff", 5),
        ("job_history_retention_days", "7", "retention", 604_800.0),
        ("catch_up_policy", "'NONE'", "catch_up", "none"),
        ("sql_timeout", "1.5", "sql_timeout", 1.5),
    ],
)
def test_a_stored_setting_holds_in_every_process_until_it_is_reset(rota, where, clock, settings, name, text, field, value):
    rota.sql(f"ALTER SYSTEM SET scheduler.{name} = {text}")
    other = Rota(where, clock=clock, settings=settings, seed=9)
    assert getattr(other._session.current(), field) == value
    assert shown(other, field)[1] == "store"
    assert shown(other, f"scheduler.{name}") == (STORABLE[f"scheduler.{name}"].shown(value), "store")
    other.sql(f"ALTER SYSTEM RESET scheduler.{name}")
    assert getattr(rota._session.current(), field) == getattr(settings, field)
    assert shown(rota, f"scheduler.{name}")[1] == "default"
    other.close()


def test_every_setting_that_can_be_stored_is_a_setting_or_says_that_it_has_no_effect(rota):
    assert {known.field for known in STORABLE.values()} - {None} <= DOCS.keys()
    (result,) = rota.sql("ALTER SYSTEM SET scheduler.polling_interval_seconds = 10")
    assert "has no effect" in result.notices[0].message
    assert not any(word in name for name in STORABLE for word in ("external", "secret", "host", "port", "listen"))


def test_a_change_is_audited_once_with_what_it_was(rota):
    for value in ("5", "5", "7"):
        rota.stored_settings.set("scheduler.default_max_retries", value)
    rota.stored_settings.reset("default_max_retries")
    rota.stored_settings.reset("default_max_retries")
    found = [(each.event, each.before, each.after) for each in reversed(rota.audit.list(event="SETTING_CHANGED"))]
    assert found == [
        ("SETTING_CHANGED", None, {"value": "5"}),
        ("SETTING_CHANGED", {"value": "5"}, {"value": "7"}),
        ("SETTING_CHANGED", {"value": "7"}, None),
    ]


def test_the_environment_beats_the_store_even_with_the_default(where, clock, settings, monkeypatch):
    monkeypatch.setenv("ROTA_SQL_JOB_RETRIES", "3")
    rota = Rota(where, clock=clock, settings=settings, seed=7)
    (result,) = rota.sql("ALTER SYSTEM SET scheduler.default_max_retries = 9")
    assert "ROTA_SQL_JOB_RETRIES takes precedence" in result.notices[0].message
    assert shown(rota, "sql_job_retries") == ("3", "environment")
    rota.close()


def test_the_program_beats_the_store(where, clock, settings):
    rota = Rota(where, clock=clock, settings=msgspec.structs.replace(settings, sql_job_retries=4), seed=7)
    (result,) = rota.sql("ALTER SYSTEM SET scheduler.default_max_retries = 9")
    assert "Settings(sql_job_retries=…) takes precedence" in result.notices[0].message
    assert shown(rota, "scheduler.default_max_retries") == ("4", "program")
    (view,) = [each for each in rota.stored_settings.list() if each.name == "scheduler.default_max_retries"]
    assert (view.value, view.stored, view.set_by, view.source) == ("4", "9", "local", "program")
    rota.close()


@pytest.mark.parametrize(
    ("statement", "code", "sqlstate", "words"),
    [
        ("ALTER SYSTEM SET scheduler.enabeld = false", "unknown_setting", "42704", "did you mean 'scheduler.enabled'"),
        ("ALTER SYSTEM SET scheduler.payload_max = 1", "unknown_setting", "42704", "ROTA_PAYLOAD_MAX"),
        ("ALTER SYSTEM SET scheduler.enabled = maybe", "invalid_option", "22023", "use true or false"),
        ("ALTER SYSTEM SET scheduler.max_concurrent_jobs = 0", "invalid_option", "22023", "use 1 to 10000"),
        ("ALTER SYSTEM SET scheduler.job_history_retention_days = -1", "invalid_option", "22023", "use 0 or more"),
        ("ALTER SYSTEM SET scheduler.catch_up_policy = 'some'", "invalid_option", "22023", "use none, last or all"),
        ("ALTER SYSTEM SET scheduler.sql_timeout = soon", "invalid_option", "22023", "use 0.01 to 3600"),
    ],
)
def test_what_can_not_be_set_is_refused_with_the_remedy(rota, statement, code, sqlstate, words):
    error = refused(rota, statement)
    assert (error.code, error.sqlstate) == (code, sqlstate)
    assert words in str(error)
    assert rota._session.open().store.stored_settings() == []


def test_the_same_refusals_in_python(rota):
    with pytest.raises(NotFound, match="did you mean"):
        rota.stored_settings.set("scheduler.enabeld", "false")
    with pytest.raises(InvalidOption, match="true or false"):
        rota.stored_settings.set("scheduler.enabled", "perhaps")
    with pytest.raises(PermissionDenied):
        rota.acting_as(Actor("ada", role=Role.ADMIN)).stored_settings.set("scheduler.enabled", "false")


# ---- what holds by them -----------------------------------------------------------------------------------------------


def test_new_jobs_have_the_defaults_in_force_and_their_statements_say_what_differs(rota):
    rota.sql("CREATE JOB old SCHEDULE = EVERY 1 HOUR CALL report()")
    rota.sql("ALTER SYSTEM SET scheduler.default_max_retries = 1; ALTER SYSTEM SET scheduler.job_timeout_seconds = 30")
    rota.sql("CREATE JOB new SCHEDULE = EVERY 1 HOUR CALL report()")
    facts = dict(rota.sql("SHOW JOB new")[0].rows)
    assert (facts["max_retries"], facts["timeout_seconds"], facts["retry_backoff_seconds"]) == (1, 30.0, 60.0)
    ((_, old),), ((_, new),) = rota.sql("SHOW CREATE JOB old")[0].rows, rota.sql("SHOW CREATE JOB new")[0].rows
    assert "MAX_RETRIES = 3" in old
    assert "TIMEOUT = 1 HOUR" in old or "TIMEOUT = 3600" in old
    assert "MAX_RETRIES" not in new


def test_new_schedules_have_the_policy_in_force(rota):
    rota.sql("ALTER SYSTEM SET scheduler.catch_up_policy = all")
    rota.schedule("a", "report", every=3600)
    rota.schedule("b", "report", every=3600, overlap="skip")
    rota.schedule("c", "report", every=3600, catch_up="none")
    rota.sql("CREATE JOB d SCHEDULE = EVERY 1 HOUR CALL report()")
    found = {each.name: (each.catch_up, each.overlap) for each in rota.schedules.list()}
    assert found == {"a": ("all", "queue"), "b": ("last", "skip"), "c": ("none", "skip"), "d": ("all", "queue")}


def test_nothing_fires_while_the_scheduler_is_off_and_one_due_time_is_caught_up_after_it(rota, clock):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(); ALTER SYSTEM SET scheduler.enabled = false")
    clock.advance(hours=5)
    rota.turn()
    assert rota.sql("SHOW JOB RUNS FOR a")[0].rows == ()
    rota.enqueue("report")
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 1
    rota.sql("ALTER SYSTEM RESET scheduler.enabled")
    rota.turn()
    assert len(rota.sql("SHOW JOB RUNS FOR a")[0].rows) == 1
    assert rota.sql("SELECT sum(count) FROM sys.occurrences WHERE fate = 'COALESCED'")[0].rows == ((4,),)


def test_retention_follows_the_store(rota, clock):
    done = rota.enqueue("report")
    rota.turn()
    clock.advance(days=3)
    rota.sql("ALTER SYSTEM SET scheduler.job_history_retention_days = 2")
    rota.store.purge()
    with pytest.raises(NotFound):
        rota.jobs.get(done.id)


# ---- other processes --------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(where):
    """A worker in a process of its own, with a schedule that is due every second."""
    process = subprocess.Popen([sys.executable, str(PROGRAM), where], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.terminate()
    process.wait(30)
    process.stdout.close()


def until(fact, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


@pytest.mark.timeout(200)
def test_a_running_worker_stops_firing_and_begins_again(where, worker):
    rota = Rota(where, settings=Settings())

    def count() -> int:
        return len(rota.jobs.list(limit=1000))

    until(lambda: count() > 0)
    rota.sql("ALTER SYSTEM SET scheduler.enabled = false")
    before = count()
    time.sleep(3.5)
    assert count() <= before + 1
    rota.sql("ALTER SYSTEM RESET scheduler.enabled")
    after = count()
    until(lambda: count() > after + 1)
    rota.close()
