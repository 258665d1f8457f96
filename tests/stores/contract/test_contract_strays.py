"""Jobs that a program of an earlier version writes have no lane: workers put them into one, and they run."""

from __future__ import annotations


def test_a_job_without_a_lane_is_put_into_that_of_its_type_and_claimed(desk, maker):
    stray, other = desk.put(desk.row(), desk.row())
    table = "jobs" if maker.name == "sqlite" else "job_live"
    maker.damage(f"UPDATE {table} SET lane = NULL WHERE number = {stray.number}")
    assert [job.number for job in desk.claim(5)] == [other.number]
    assert desk.store.place_strays() == 1
    assert desk.store.place_strays() == 0
    assert [job.number for job in desk.claim(5)] == [stray.number]
