"""Entries of the audit trail: events, the job and the run they are about, and refusals, on each store."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import msgspec
import pytest

from rota import Context, Rota, Settings
from rota.errors import InvalidOption, PermissionDenied
from rota.model.audit import EVENTS, NAMES
from rota.model.gate import Actor, Right, Role
from tests.sql.test_sql_run import HOURLY

SOURCES = Path(__file__).parents[2] / "src/rota"
USER = Actor("ada", "acme", Role.USER)


def entries(rota: Rota, **narrowed):
    return [(each.event, each.outcome, each.actor) for each in reversed(rota.audit.list(**narrowed))]


def job_uuid(rota: Rota, name: str) -> str:
    return dict(rota.sql(f"SHOW JOB {name}")[0].rows)["job_uuid"]


def test_every_action_that_is_written_has_its_event():
    text = "\n".join(path.read_text() for path in (SOURCES / "stores/verbs").glob("*.py"))
    written = set(
        re.findall(r'"((?:schedule|job|run|group|template|calendar|user|token|webhook|setting|access|grant|role)\.[a-z]+)"', text)
    )
    assert written >= {"job.cancel", "schedule.fire", "access.deny"}
    assert written <= EVENTS.keys()


def test_the_page_lists_every_event_with_its_actions():
    page = (SOURCES.parents[1] / "docs/guide/history.md").read_text()
    table = {row[0]: set(re.findall(r"`([^`]+)`", row[1])) for row in re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", page, re.MULTILINE)}
    assert table == {event: {action for action, name in EVENTS.items() if name == event} for event in NAMES}


def test_a_job_of_sql_has_an_entry_for_each_thing_that_is_done_to_it(rota, clock):
    rota.sql(f"CREATE JOB a {HOURLY}; ALTER JOB a SET TIMEOUT = 5")
    ((run, _),) = rota.sql("EXECUTE JOB a")[0].rows
    rota.turn()
    uuid = job_uuid(rota, "a")
    (shown,) = rota.sql("SHOW AUDIT FOR JOB a")
    rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    assert [row["event"] for row in reversed(rows)] == ["JOB_CREATED", "JOB_MODIFIED", "JOB_EXECUTED", "JOB_EXECUTED"]
    assert {row["job_uuid"] for row in rows} == {uuid}
    assert [row["job_run_uuid"] for row in reversed(rows)] == [None, None, run, run]
    rota.sql("DROP JOB a KEEP HISTORY")
    assert entries(rota, event="JOB_DELETED") == [("JOB_DELETED", "ok", "local")]
    (found,) = rota.sql("SELECT event, job_run_uuid, outcome, actor FROM sys.audit WHERE event = 'JOB_EXECUTED' ORDER BY audit_id")
    assert list(found.rows) == [("JOB_EXECUTED", run, "ok", "local")] * 2


def test_a_run_that_fails_is_entered_for_each_attempt(rota, clock):
    @rota.job
    def fails() -> None:
        raise ValueError("no")

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR MAX_RETRIES = 1 CALL fails()")
    clock.advance(hours=1)
    rota.turn()
    clock.advance(minutes=2)
    rota.turn()
    found = rota.audit.list(event="JOB_FAILED")
    assert [(each.outcome, each.after["status"], each.after["attempt"]) for each in reversed(found)] == [
        ("failed", "FAILED", 1),
        ("failed", "DEAD_LETTER", 2),
    ]
    assert {each.job_uuid for each in found} == {job_uuid(rota, "a")}


def test_runs_of_jobs_that_sql_did_not_create_are_entered_only_if_all_are_asked_for(where, clock, settings):
    for seed, (which, expected) in enumerate({"sql": [], "all": [("JOB_EXECUTED", "ok", "local")], "none": []}.items()):
        rota = Rota(where, clock=clock, settings=msgspec.structs.replace(settings, audit_runs=which), seed=seed)

        @rota.job(name="plain")
        def plain() -> None: ...

        rota.sql("CREATE OR ALTER JOB other SCHEDULE = EVERY 1 DAY CALL plain()")
        handle = plain.enqueue()
        rota.turn()
        assert handle.status() == "COMPLETED"
        assert entries(rota, subject=f"job:{handle.id}") == expected
        rota.close()


def test_no_run_is_entered_where_none_are_to_be(where, clock, settings):
    rota = Rota(where, clock=clock, settings=msgspec.structs.replace(settings, audit_runs="none"), seed=7)

    @rota.job(name="plain")
    def plain() -> None: ...

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL plain(); EXECUTE JOB a")
    rota.turn()
    assert entries(rota) == [("JOB_CREATED", "ok", "local"), ("JOB_EXECUTED", "ok", "local")]
    rota.close()


def test_a_cancel_is_entered_on_every_way_to_it_and_once(rota):
    rota.sql(f"CREATE JOB a {HOURLY}")
    first = rota.schedules.fire("a")
    ((second, _),) = rota.sql("EXECUTE JOB a")[0].rows
    third, fourth = rota.enqueue("report"), rota.enqueue("report")
    rota.jobs.cancel(first.id, reason="not today")
    rota.jobs.cancel(first.id)
    rota.sql("CANCEL JOB a")
    rota.sql(f"CANCEL JOB RUN '{third.id}'")
    fourth.cancel()
    found = list(reversed(rota.audit.list(event="JOB_CANCELLED")))
    assert [each.job_run_uuid for each in found] == [first.id, second, third.id, fourth.id]
    assert [each.job_uuid for each in found] == [job_uuid(rota, "a")] * 2 + [None] * 2
    assert [found[0].before, found[0].after] == [{"status": "QUEUED"}, {"reason": "not today"}]


def test_a_running_job_that_is_cancelled_is_entered_when_it_is_asked_and_when_it_has_stopped(rota):
    @rota.job(name="asked")
    def asked(ctx: Context) -> None:
        rota.jobs.cancel(ctx.id)
        rota.jobs.cancel(ctx.id)
        raise ValueError("stopped")

    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL asked(); EXECUTE JOB a")
    rota.turn()
    found = list(reversed(rota.audit.list(event="JOB_CANCELLED")))
    assert [(each.action, each.actor) for each in found] == [("job.cancel", "local"), ("run.cancel", "local")]


def test_an_event_that_does_not_exist_is_refused_with_the_one_that_was_meant(rota):
    with pytest.raises(InvalidOption, match="did you mean 'JOB_CANCELLED'"):
        rota.audit.list(event="JOB_CANCELED")
    assert entries(rota, event="job_created") == []


def test_entries_of_one_event_come_in_pages(rota):
    for _ in range(5):
        rota.jobs.cancel(rota.enqueue("report").id)
        rota.store.pause()
        rota.store.resume()
    first = rota.audit.list(event="JOB_CANCELLED", limit=3)
    second = rota.audit.list(event="JOB_CANCELLED", limit=3, before=first.next)
    assert (len(first), len(second), second.next) == (3, 2, None)
    assert len(rota.audit.list(subject="job", event="JOB_CANCELLED")) == 5
    assert rota.audit.list(subject="schedule", event="JOB_CANCELLED") == []


# ---- killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone: nothing may catch this and go on."""


def test_the_end_of_a_run_and_its_entry_are_both_there_or_neither(rota, maker, where, clock, monkeypatch):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL report()")
    db = maker.db
    change, met = db.change, []

    def killed(self, name, /, **values):
        done = change(self, name, **values)
        if name == "audit_runs":
            met.append(done)
            raise Killed
        return done

    monkeypatch.setattr(db, "change", killed)
    ((run, _),) = rota.sql("EXECUTE JOB a")[0].rows
    with pytest.raises(Killed):
        rota.turn()
    monkeypatch.undo()
    assert met == [1]
    others = Rota(where, clock=clock, settings=rota.settings, seed=8)
    assert (others.jobs.get(run).status, entries(others, subject=f"job:{run}")) == ("RUNNING", [])
    rota.close()  # writes what it could not write before
    assert (others.jobs.get(run).status, entries(others, subject=f"job:{run}")) == ("COMPLETED", [("JOB_EXECUTED", "ok", "local")])
    others.close()


# ---- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_is_entered_once_for_each_right(rota):
    stranger = rota.acting_as(USER)
    for _ in range(3):
        with pytest.raises(PermissionDenied):
            stranger.store.pause()
    with pytest.raises(PermissionDenied):
        stranger.audit.list()
    found = list(reversed(rota.audit.list(event="ACCESS_DENIED")))
    assert [(each.actor, each.organization, each.outcome, each.subject_id) for each in found] == [
        ("ada", "acme", "denied", "OPERATE"),
        ("ada", "acme", "denied", "READ_AUDIT"),
    ]
    assert found[0].after == {"right": str(Right.OPERATE), "reason": f"'ada' (user) may not {Right.OPERATE}"}


def test_what_is_left_out_of_a_page_is_not_a_refusal(rota):
    stranger = rota.acting_as(USER)
    stranger.overview()
    stranger.sql("SELECT job_name, job_sql FROM sys.jobs")
    assert rota.audit.list(event="ACCESS_DENIED") == []


def test_a_token_that_may_only_read_is_not_refused_by_what_its_answers_leave_out(rota):
    rota.sql("CREATE JOB j SCHEDULE = EVERY 1 HOUR AS 'canary'")
    reader = rota.acting_as(Actor("reader", role=Role.USER, operations=frozenset({Right.READ})))
    admin = rota.acting_as(Actor("chief", role=Role.ADMIN, operations=frozenset({Right.READ})))
    for text in ("SHOW JOBS", "SHOW GRANTS", "SELECT * FROM sys.jobs", "SELECT * FROM sys.grants"):
        assert "canary" not in repr(reader.sql(text)), text
    assert "canary" not in repr(admin.sql("SHOW JOB j"))
    assert admin.grants.list() == []
    assert rota.audit.list(event="ACCESS_DENIED") == []


def test_a_store_that_can_not_be_written_still_refuses(tmp_path):
    path = tmp_path / "rota.db"
    rota = Rota(path, settings=Settings(busy_timeout=5.0))
    rota.store.pauses()
    raw = apsw.Connection(str(path))
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(PermissionDenied):
        rota.acting_as(USER).store.pause()
    raw.execute("ROLLBACK")
    raw.close()
    rota.close()
