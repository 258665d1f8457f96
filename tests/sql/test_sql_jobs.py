"""Jobs that SQL creates, changes, runs and drops, on each store."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from rota import Rota, Settings
from rota.errors import Refused
from rota.model.states import Status
from tests.sql.sql_support import create_connection
from tests.sql.test_sql_run import HOURLY, refused
from tests.support.clock import ManualClock


@pytest.fixture
def settings(tmp_path):
    return Settings(sql_paths=str(tmp_path))


def facts(rota: Rota, name: str) -> dict[str, object]:
    return dict(rota.sql(f'SHOW JOB "{name}"')[0].rows)


def runs(rota: Rota, name: str) -> list[dict[str, object]]:
    (result,) = rota.sql(f'SHOW JOB RUNS FOR "{name}"')
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def audited(rota: Rota) -> list[tuple[str, object]]:
    return [(each.event, each.after) for each in reversed(rota.audit.list(subject="schedule"))]


# ---- CREATE -----------------------------------------------------------------------------------------------------------


def test_a_created_job_has_the_defaults_of_sql_and_one_audit_entry(rota):
    rota.sql(f"CREATE JOB nightly {HOURLY}")
    job = facts(rota, "nightly")
    assert [job[name] for name in ("max_retries", "retry_backoff_seconds", "timeout_seconds")] == [3, 60.0, 3600.0]
    assert (job["job_type"], job["state"], job["created_by"]) == ("PROCEDURE", "ENABLED", "local")
    (entry,) = rota.audit.list(subject="schedule:nightly")
    assert (entry.event, entry.job_uuid, entry.outcome) == ("JOB_CREATED", job["job_uuid"], "ok")


def test_a_job_that_is_due_runs_its_handler_with_its_arguments(rota, clock):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR PARAMS = '{\"day\": 5}' CALL report('eu')")
    clock.advance(hours=1)
    rota.turn()
    (run,) = runs(rota, "a")
    assert (run["state"], run["job_name"]) == ("COMPLETED", "a")
    job = rota.jobs.get(run["job_run_uuid"])
    assert (job.job_type, job.params) == ("report", {"region": "eu", "day": 5})
    assert rota.jobs.runs(job.id)[0].result == "eu 5"


def test_a_failed_run_is_retried_by_the_budget_of_the_job_without_jitter(where, clock, settings):
    rota = Rota(where, clock=clock, settings=settings, seed=7)

    @rota.job(max_retries=0)
    def fails() -> None:
        raise ValueError("no")

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL fails(); EXECUTE JOB a")
    waits = []
    for _ in range(4):
        rota.turn()
        pending = [job for job in rota.jobs.list(schedule="a") if job.status is Status.PENDING]
        if pending:
            waits.append((pending[0].run_at - rota.now).total_seconds())
            clock.advance(seconds=waits[-1])
    assert waits == [60, 120, 240]
    assert [run["state"] for run in runs(rota, "a")] == ["FAILED"] * 4
    rota.close()


def test_a_name_is_taken_by_a_schedule_or_a_template_of_the_organization_or_of_all(rota):
    rota.schedule("plain", "report", every=60)
    for name in ("plain", "report"):
        assert refused(rota, f"CREATE JOB {name} {HOURLY}").sqlstate == "42710"
    rota.sql(f"CREATE JOB a {HOURLY}")
    with pytest.raises(Refused):
        rota.schedules.create("a", "report", every=60)


def test_classes_and_partitions_are_stored(rota):
    rules = {
        "ALL_SHARDS": ("ALL_SHARDS", None, None),
        "SINGLE_SHARD 'eu'": ("SINGLE_SHARD", "eu", None),
        "SHARD_SET ('eu', 'us')": ("SHARD_SET", None, '["eu","us"]'),
        "DYNAMIC 'hash(x)'": ("DYNAMIC", None, "hash(x)"),
    }
    for place, (rule, stored) in enumerate(rules.items()):
        rota.sql(f"CREATE JOB j{place} CLASS = LEADER_ONLY PARTITION BY {rule} {HOURLY}")
        job = facts(rota, f"j{place}")
        assert job["job_class"] == "LEADER_ONLY"
        assert tuple(job[f"partition_{name}"] for name in ("strategy", "shard", "expression")) == stored
    rota.sql("ALTER JOB j1 SET PARTITION BY ALL_SHARDS SET CLASS = LOCAL_SAFE")
    assert [facts(rota, "j1")[name] for name in ("partition_strategy", "partition_shard", "job_class")] == [
        "ALL_SHARDS",
        None,
        "LOCAL_SAFE",
    ]


@pytest.mark.parametrize("state", ["", "ENABLED", "STATE = PAUSED"])
def test_sql_that_has_no_connection_yet_is_stored_disabled_with_a_notice_and_enabled_once_it_has(rota, state, tmp_path):
    (result,) = rota.sql(f"CREATE JOB a SCHEDULE = EVERY 1 HOUR {state} AS 'SELECT 1'")
    assert [notice.sqlstate for notice in result.notices] == ["01000"]
    assert "has none called default" in result.notices[0].message
    assert (facts(rota, "a")["state"], facts(rota, "a")["next_run_time"]) == ("DISABLED", None)
    (again,) = rota.sql("ENABLE JOB a")
    assert again.notices
    assert facts(rota, "a")["state"] == "DISABLED"
    rota.sql("EXECUTE JOB a")
    rota.turn()
    assert runs(rota, "a")[0]["state"] == "PENDING", "it waits for the connection"
    create_connection(rota, "default", tmp_path / "data.db")
    (enabled,) = rota.sql("ENABLE JOB a")
    assert enabled.notices == ()
    assert facts(rota, "a")["state"] == "ENABLED"
    rota.turn()
    assert runs(rota, "a")[0]["state"] == "COMPLETED"


@pytest.mark.parametrize(("state", "stored"), [("", "ENABLED"), ("ENABLED", "ENABLED"), ("STATE = PAUSED", "PAUSED")])
def test_a_command_is_stored_as_it_is_said_and_waits_for_a_worker_that_runs_commands(rota, state, stored):
    (result,) = rota.sql(f"CREATE JOB a SCHEDULE = EVERY 1 HOUR {state} EXEC '/usr/bin/true'")
    assert result.notices == ()
    assert facts(rota, "a")["state"] == stored
    rota.sql("EXECUTE JOB a")
    rota.turn()
    assert runs(rota, "a")[0]["state"] == "PENDING"


def test_a_body_that_is_disabled_has_no_notice(rota):
    (result,) = rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR DISABLED AS 'SELECT 1'")
    assert result.notices == ()


def test_a_disabled_job_may_call_a_handler_that_is_not_here_yet(rota):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR DISABLED CALL later(x => 1)")
    assert refused(rota, "ENABLE JOB a").sqlstate == "42883"

    @rota.job
    def later(x: int) -> int:
        return x

    rota.sql("ENABLE JOB a; EXECUTE JOB a")
    rota.turn()
    assert runs(rota, "a")[0]["state"] == "COMPLETED"


def test_arguments_by_place_follow_the_handlers_order_where_only_the_store_knows_it(where, clock, settings):
    code = Rota(where, clock=clock, settings=settings, seed=7)

    @code.job
    def ordered(zeta: str, alpha: int = 0) -> None: ...

    with code.running():
        pass
    other = Rota(where, clock=clock, settings=settings, seed=8)
    other.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL ordered('x', 2); EXECUTE JOB a")
    assert other.jobs.list(schedule="a")[0].params == {"zeta": "x", "alpha": 2}
    code.close()
    other.close()


def test_if_not_exists_leaves_a_job_and_create_or_alter_changes_what_is_said(rota):
    rota.sql(f"CREATE JOB a TIMEOUT = 5 MAX_RETRIES = 7 DESCRIPTION = 'first' {HOURLY}")
    before = facts(rota, "a")
    (result,) = rota.sql(f"CREATE JOB IF NOT EXISTS a {HOURLY}")
    assert result.notices
    assert facts(rota, "a") == before
    rota.sql("CREATE OR ALTER JOB a TIMEOUT = 9 SCHEDULE = CRON '0 2 * * *'")
    after = facts(rota, "a")
    assert (after["timeout_seconds"], after["max_retries"], after["description"]) == (9.0, 7, "first")
    assert (after["job_uuid"], after["schedule"]) == (before["job_uuid"], "every day at 02:00 UTC")
    rota.sql(f"CREATE OR ALTER JOB b TIMEOUT = 9 {HOURLY}")
    assert facts(rota, "b")["max_retries"] == 3


def test_catch_up_all_queues_unless_overlap_is_said(rota):
    rota.sql(f"CREATE JOB a CATCH_UP = ALL {HOURLY}; CREATE JOB b CATCH_UP = ALL OVERLAP = ALLOW {HOURLY}")
    assert (facts(rota, "a")["overlap"], facts(rota, "b")["overlap"]) == ("queue", "allow")


# ---- ALTER ------------------------------------------------------------------------------------------------------------


def test_several_changes_are_one_version_and_one_audit_entry(rota):
    rota.sql(f"CREATE JOB a {HOURLY}")
    rota.sql("ALTER JOB a SET TIMEOUT = 5 SET DESCRIPTION = 'x' SET SCHEDULE = EVERY 2 HOURS SET CALL report('us') RENAME TO b")
    job = facts(rota, "b")
    assert (job["version"], job["template_version"], job["body"]) == (2, 2, "report('us')")
    created, changed = audited(rota)
    assert (created[0], changed[0]) == ("JOB_CREATED", "JOB_MODIFIED")
    (entry,) = [each for each in rota.audit.list(subject="schedule") if each.event == "JOB_MODIFIED"]
    assert (entry.before["timeout"], entry.after["timeout"]) == (3600.0, 5.0)
    assert (entry.before["name"], entry.after["name"]) == ("a", "b")
    assert rota.sql("SHOW AUDIT FOR JOB b")[0].tag == "SHOW 2"
    assert refused(rota, "SHOW JOB a").code == "unknown_job"


def test_what_waits_keeps_the_version_it_was_made_of(rota):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report('eu'); EXECUTE JOB a")
    rota.sql("ALTER JOB a SET CALL report('us'); EXECUTE JOB a")
    rota.turn()
    second, first = runs(rota, "a")
    assert (first["template_version"], second["template_version"]) == (1, 2)
    assert [rota.jobs.get(run["job_run_uuid"]).params["region"] for run in (first, second)] == ["eu", "us"]
    (explained,) = rota.sql(f"EXPLAIN JOB RUN '{first['job_run_uuid']}'")
    assert explained.rows[-1] == ("it runs version 1 of its job", True, "report('eu')")


def test_a_version_goes_with_the_last_run_that_names_it(rota, clock):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL report('eu'); EXECUTE JOB a; ALTER JOB a SET CALL report('us')")
    rota.turn()
    store = rota._session.open().store
    job = rota.jobs.get(runs(rota, "a")[0]["job_run_uuid"])
    template = job.template_id.replace("-", "")
    rota.store.purge(older_than=3600)
    assert store.template_version(template, 1) is not None
    clock.advance(hours=2)
    rota.store.purge(older_than=3600)
    assert store.template_version(template, 1) is None
    assert store.template_version(template, 2) is not None


def test_a_job_that_is_altered_closes_its_ledger_by_the_old_definition(rota, clock):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report('eu')")
    clock.advance(minutes=90)
    rota.sql("ALTER JOB a SET CALL report('us')")
    rota.turn()
    assert rota.jobs.list(schedule="a")[0].params == {"region": "eu"}


def test_recreate_gives_a_new_id_and_keeps_the_history_under_the_old_one(rota):
    rota.sql(f"CREATE JOB a TIMEOUT = 5 {HOURLY}; CREATE JOB child DEPENDS ON a {HOURLY}; EXECUTE JOB a")
    rota.turn()
    before = facts(rota, "a")
    rota.sql(f"RECREATE JOB a {HOURLY}")
    after = facts(rota, "a")
    assert after["job_uuid"] != before["job_uuid"]
    assert (after["timeout_seconds"], after["template_version"]) == (3600.0, 1)
    assert runs(rota, "a") == []
    (kept,) = rota.jobs.list()
    assert kept.schedule_id == before["job_uuid"]
    assert facts(rota, "child")["depends_on"] == "a"
    assert [action for action, _ in audited(rota)] == ["JOB_CREATED", "JOB_CREATED", "JOB_EXECUTED", "JOB_DELETED", "JOB_CREATED"]
    rota.sql(f"RECREATE JOB new {HOURLY}")
    assert facts(rota, "new")["state"] == "ENABLED"


def test_the_short_forms_change_the_state(rota):
    rota.sql(f"CREATE JOB a {HOURLY}")
    for verb, state in (("PAUSE", "PAUSED"), ("RESUME", "ENABLED"), ("DISABLE", "DISABLED"), ("ENABLE", "ENABLED")):
        assert rota.sql(f"{verb} JOB a")[0].tag == f"{verb} JOB"
        assert facts(rota, "a")["state"] == state
    rota.sql("DISABLE JOB a")
    assert refused(rota, "RESUME JOB a").sqlstate == "55000"


def test_a_schedule_of_python_is_a_job_too_as_far_as_its_template_is_not_meant(rota):
    rota.schedule("plain", "report", every=3600)
    rota.sql("ALTER JOB plain SET SCHEDULE = EVERY 2 HOURS; PAUSE JOB plain; EXECUTE JOB plain")
    assert rota.schedules.get("plain").every == 7200
    assert refused(rota, "ALTER JOB plain SET TIMEOUT = 5").sqlstate == "0A000"
    rota.sql("DROP JOB plain KEEP HISTORY")
    assert rota.schedules.list() == []
    assert rota.templates.get("report").name == "report"


# ---- DROP -------------------------------------------------------------------------------------------------------------


def test_drop_cancels_what_waits_and_removes_the_history(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; EXECUTE JOB a")
    rota.turn()
    rota.sql("EXECUTE JOB a; DROP JOB a")
    assert rota.jobs.list() == []
    assert rota.schedules.list() == []
    assert audited(rota)[-1][0] == "JOB_DELETED"
    assert rota.sql(f"CREATE JOB a {HOURLY}")[0].tag == "CREATE JOB"


def test_keep_history_leaves_the_runs_with_their_name(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; EXECUTE JOB a")
    rota.turn()
    rota.sql("EXECUTE JOB a; DROP JOB a KEEP HISTORY")
    (result,) = rota.sql("SHOW JOB RUNS")
    assert sorted((row[1], row[2]) for row in result.rows) == [("a", "CANCELLED"), ("a", "COMPLETED")]


def test_what_runs_while_its_job_is_dropped_is_asked_to_stop_and_removed_once_it_has_ended(where, settings):
    rota = Rota(where, settings=settings)
    began, go_on = threading.Event(), threading.Event()

    @rota.job
    def slow(ctx) -> None:
        began.set()
        go_on.wait(30)

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL slow(); EXECUTE JOB a")
    with rota.running():
        assert began.wait(30)
        rota.sql("DROP JOB a")
        (job,) = rota.jobs.list()
        assert job.cancel_requested_at is not None
        go_on.set()
        # It was asked to stop, and is done first.
        rota.wait(job, timeout=30)
    assert rota._session.open().store.purge_dropped(limit=10).jobs == 1
    assert rota.jobs.list() == []
    rota.close()


def test_a_job_that_others_depend_on_is_not_dropped(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB b DEPENDS ON a {HOURLY}")
    error = refused(rota, "DROP JOB a")
    assert (error.sqlstate, error.message) == ("2BP01", "job a can't be dropped: it is needed by b")


# ---- EXECUTE and CANCEL -----------------------------------------------------------------------------------------------


def test_execute_returns_the_run_and_uses_up_no_due_time(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; DISABLE JOB a")
    before = facts(rota, "a")["next_run_time"]
    (result,) = rota.sql('EXECUTE JOB a WITH PARAMS \'{"region": "x"}\'')
    assert (result.columns, result.rows[0][1]) == (("job_run_uuid", "state"), "PENDING")
    assert rota.jobs.get(result.rows[0][0]).params == {"region": "x"}
    assert facts(rota, "a")["next_run_time"] == before


def test_execute_waits_for_the_end(where, settings):
    rota = Rota(where, settings=settings)

    @rota.job
    def quick() -> int:
        return 1

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL quick()")
    with rota.running():
        (result,) = rota.sql("EXECUTE JOB a WAIT 30 SECONDS")
    assert result.rows[0][1] == "COMPLETED"
    (late,) = rota.sql("EXECUTE JOB a WAIT 0")
    assert (late.rows[0][1], bool(late.notices)) == ("PENDING", True)
    rota.close()


def test_cancel_ends_one_run_or_all_of_a_job(rota):
    rota.sql(f"CREATE JOB a {HOURLY}")
    ids = [rota.sql("EXECUTE JOB a")[0].rows[0][0] for _ in range(3)]
    rota.sql(f"CANCEL JOB RUN '{{{ids[0]}}}'")
    assert rota.jobs.get(ids[0]).status is Status.CANCELLED
    assert rota.sql("CANCEL JOB a")[0].tag == "CANCEL JOB 2"
    rota.turn()
    assert {run["state"] for run in runs(rota, "a")} == {"CANCELLED"}
    assert rota.sql("CANCEL JOB a")[0].tag == "CANCEL JOB 0"


# ---- ON COMPLETION ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_a_job_for_one_moment_is_over_when_its_chain_is(where, settings, keep):
    clock = ManualClock()
    rota = Rota(where, clock=clock, settings=settings, seed=7)
    attempts = []

    @rota.job
    def second_time() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("once more")

    at = datetime.fromtimestamp(rota.now.timestamp() + 60, UTC)
    rota.sql(f"CREATE JOB a SCHEDULE = AT '{at.isoformat()}' ON COMPLETION {'PRESERVE' if keep else 'DROP'} CALL second_time()")
    clock.advance(seconds=61)
    rota.turn()
    job = facts(rota, "a")
    assert (job["state"], job["next_run_time"], len(attempts)) == ("ENABLED", None, 1)
    clock.advance(seconds=60)
    rota.turn()
    clock.advance(seconds=1)
    rota.turn()
    assert len(attempts) == 2
    if keep:
        assert facts(rota, "a")["state"] == "DISABLED"
    else:
        assert refused(rota, "SHOW JOB a").code == "unknown_job"
    assert [job.status for job in rota.jobs.list(job_type="second_time")] == [Status.COMPLETED, Status.FAILED]
    rota.close()


def test_a_schedule_of_python_for_one_moment_is_over_when_it_has_fired(rota, clock):
    rota.schedules.create("once", "report", at=datetime.fromtimestamp(rota.now.timestamp() + 60, UTC))
    clock.advance(seconds=61)
    rota.turn()
    assert rota.schedules.get("once").state == "DISABLED"


def test_words_for_durations_are_taken_outside_of_sql_too(rota):
    assert rota.schedules.create("daily", "report", every="1 DAY").every == 86_400
    rota.templates.update("report", timeout="1 hour 30 minutes")
    assert rota.templates.get("report").timeout == 5400
