"""A schedule that was made a moment ago, on a clock that goes on by itself."""

from __future__ import annotations

from rota import Rota


def test_a_schedule_that_was_just_declared_has_no_due_time_without_a_fate(tmp_path):
    app = Rota(tmp_path / "rota.db")
    app.job(name="tidy")(lambda: None)
    app.schedule("declared", "tidy", every="15m")
    app.schedules.create("created", "tidy", every="15m")
    assert app.schedules.verify().problems == ()
    app.close()
