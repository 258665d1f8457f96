"""The pulse: a URL is called while all that was due has fired, and only then."""

from __future__ import annotations

import threading
from contextlib import closing

import apsw
import msgspec
import pytest

from rota import Rota, Settings
from rota.engine.trigger import Trigger
from rota.errors import InvalidOption
from tests.faults import raw
from tests.support.pace import patient
from tests.support.pulse import EVERY_S, comes_again, falls_silent
from tests.support.receiver import receiving
from tests.support.waiting import eventually


@pytest.fixture
def receiver():
    with receiving() as made:
        yield made


@pytest.fixture
def settings(receiver):
    return Settings(pulse_url=receiver.url("/200"), pulse_every=EVERY_S, busy_timeout=0.2, poll=0.01, poll_hinted=0.01)


@pytest.fixture
def shop(live):
    live.job(name="work")(lambda: None)
    return live


def test_a_worker_calls_while_all_that_was_due_has_fired_and_not_after_it_has_stopped(shop, receiver):
    shop.schedule("often", "work", every=1)
    with shop.running():
        comes_again(receiver)
        assert receiver.to("GET /200")[0].headers["user-agent"] == "Rota-Pulse"
    falls_silent(receiver)


def test_nobody_calls_while_a_schedule_can_not_be_fired(tmp_path, receiver, settings, monkeypatch):
    strict = msgspec.structs.replace(settings, lease_ttl=1.0)
    with closing(Rota(tmp_path / "rota.db", settings=strict)) as shop, shop.running():
        shop.job(name="work")(lambda: None)
        comes_again(receiver)
        broken = threading.Event()
        fire = Trigger.fire

        def fails(self, now):
            if broken.is_set():
                raise RuntimeError("broken")
            return fire(self, now)

        monkeypatch.setattr(Trigger, "fire", fails)
        broken.set()
        shop.schedule("often", "work", every=1)
        falls_silent(receiver)
        broken.clear()
        comes_again(receiver)


def test_nobody_calls_while_a_schedule_can_not_be_read(shop, receiver, tmp_path):
    shop.schedule("daily", "work", cron="0 3 * * *", timezone="Europe/Berlin")
    with shop.running():
        comes_again(receiver)
        with closing(apsw.Connection(str(tmp_path / "rota.db"))) as db:
            db.set_busy_timeout(10_000)
            db.execute("UPDATE schedules SET timezone = 'Mars/Phobos', next_trigger_at = 1")
        falls_silent(receiver)


def test_nobody_calls_while_the_store_takes_no_writes_although_the_worker_lives_and_the_log_says_so_once(shop, receiver, tmp_path, caplog):
    caplog.set_level("INFO", "rota.pulse")
    with shop.running():
        comes_again(receiver)
        with raw.locked(tmp_path / "rota.db", wait_s=10):
            falls_silent(receiver)
        comes_again(receiver)
    said = [record.getMessage() for record in caplog.records if record.name == "rota.pulse"]
    assert [each.startswith("pulse withheld") for each in said] == [True, False]
    assert said[1] == "pulse resumed"


def test_a_receiver_that_hangs_delays_no_job(tmp_path, receiver):
    settings = Settings(pulse_url=receiver.url("/hang"), pulse_every=EVERY_S)
    with closing(Rota(tmp_path / "rota.db", settings=settings)) as rota:
        rota.job(name="work")(lambda: None)
        with rota.running():
            eventually(lambda: receiver.to("GET /hang"), what="a call that hangs")
            assert rota.wait(rota.enqueue("work").id, timeout=patient(20)) is not None
            assert len(receiver.to("GET /hang")) == 1
        receiver.let_go.set()


@pytest.mark.parametrize("url", ["ftp://example.com", "example.com", "https://user:secret@example.com/x"])
def test_a_pulse_url_that_can_not_be_called_is_refused(url):
    with pytest.raises(InvalidOption) as refused:
        Settings(pulse_url=url)
    assert "secret" not in str(refused.value)
