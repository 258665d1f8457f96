"""A worker that could not begin, or not say goodbye, does not look alive for as long as its program lives."""

from contextlib import closing

import pytest

from rota import Rota
from rota.errors import StoreBusy


@pytest.fixture
def rota(tmp_path):
    with closing(Rota(tmp_path / "rota.db")) as rota:
        rota.job(name="nothing")(lambda: None)
        yield rota


def busy(*_args, **_kwargs):
    raise StoreBusy("somebody holds the lock")


def test_a_worker_that_could_not_begin_is_seen_to_be_gone(rota, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(rota._session.open().store, "recovered", busy)
        with pytest.raises(StoreBusy):
            rota.start()
    assert rota.store.recover().workers == 1
    assert rota.workers.list() == []


def test_a_worker_that_could_not_record_its_end_is_seen_to_be_gone(rota, monkeypatch):
    driver = rota.start()
    with monkeypatch.context() as patched:
        patched.setattr(rota._session.open().store, "end_worker", busy)
        rota.stop(driver)
    assert rota.store.recover().workers == 1
    assert rota.workers.list() == []
