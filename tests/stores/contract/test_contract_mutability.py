"""What can't change any more, the schema refuses too: raw SQL, statement by statement."""

from __future__ import annotations

import apsw
import psycopg
import pytest

from rota.model.decide import Failed
from tests.stores.desk import ANNA
from tests.stores.makers import in_sql

REFUSED = (apsw.ConstraintError, psycopg.IntegrityError)


def live(maker) -> str:
    return "jobs" if maker.name == "sqlite" else "job_live"


@in_sql
@pytest.mark.parametrize("change", ["priority = 90", "position = 7"])
def test_priority_and_position_can_not_change_after_dispatch(maker, desk, change):
    desk.several(2)
    desk.claim_one()
    with pytest.raises(REFUSED, match="Cannot modify priority or position after dispatch"):
        maker._sql(f"UPDATE {live(maker)} SET {change} WHERE number = 1")
    maker._sql(f"UPDATE {live(maker)} SET {change} WHERE number = 2")


@in_sql
@pytest.mark.parametrize("when", ["1", "NULL"])
def test_when_a_job_was_queued_can_not_change(maker, desk, when):
    desk.several(2)
    desk.claim_one()
    for number in (1, 2):
        with pytest.raises(REFUSED, match=r"a job is queued once|constraint"):
            maker._sql(f"UPDATE {live(maker)} SET queued_at = {when} WHERE number = {number}")


@in_sql
@pytest.mark.parametrize("change", ["error = 'mine'", "exit_code = 7"])
def test_the_outcome_of_a_run_is_written_once_with_its_end(maker, desk, change):
    desk.add()
    job = desk.claim_one()
    if maker.name == "sqlite":
        with pytest.raises(REFUSED, match="written with the end of a run"):
            maker._sql(f"UPDATE job_runs SET {change} WHERE job_number = 1")
    else:
        # There an end writes notes and fate by two statements: what is refused is to write an outcome a second time.
        maker._sql("INSERT INTO run_notes (job_number, error, exit_code) VALUES (1, 'first', 1)")
        with pytest.raises(REFUSED, match="written with the end of a run"):
            maker._sql(f"UPDATE run_notes SET {change} WHERE job_number = 1")
        maker.damage("DELETE FROM run_notes")
    desk.end(job, Failed("boom", exit_code=3))
    run = desk.store.run(job.job_id)
    assert run is not None
    assert (run.error, run.exit_code) == ("boom", 3)


@in_sql
def test_identity_and_creation_of_a_schedule_can_not_change(maker, desk):
    ids = "x'00000000000000000000000000000001'" if maker.name == "sqlite" else "'00000000000000000000000000000001'"
    maker._sql(
        "INSERT INTO templates (template_id, name, job_type, created_by, created_at, updated_at)"
        f" VALUES ({ids}, 'mail', 'mail', 'anna', 0, 0)"
    )
    maker.schedule("0" * 31 + "1", "0" * 31 + "2")
    other = ids.replace("1'", "3'")
    for change in (f"schedule_id = {other}", "created_at = 9"):
        with pytest.raises(REFUSED, match="identity and creation of a schedule cannot change"):
            maker._sql(f"UPDATE schedules SET {change}")
    maker._sql("UPDATE schedules SET description = 'mine'")


@in_sql
@pytest.mark.parametrize("status", ["RELEASED", "EXPIRED"])
def test_a_reservation_that_has_ended_is_never_active_again(maker, desk, status):
    assert desk.reserve() is not None
    maker._sql(f"UPDATE direct_reservations SET status = '{status}'")
    with pytest.raises(REFUSED, match="a reservation that has ended cannot change"):
        maker._sql("UPDATE direct_reservations SET status = 'ACTIVE'")


def test_what_is_waiting_is_still_changed_moved_and_tried_again(desk):
    first, second = desk.several(2)
    desk.store.change(second, actor=ANNA, now=desk.now, priority=70)
    desk.store.change(first, actor=ANNA, now=desk.now, priority=70)
    desk.store.move(first, actor=ANNA, now=desk.now, front=True)
    job = desk.claim_one()
    assert job.job_id == first
    desk.end(job, Failed("boom"))
    desk.advance(100)
    assert {each.job_id for each in desk.claim(5)} == {desk.tail_id(first), second}
