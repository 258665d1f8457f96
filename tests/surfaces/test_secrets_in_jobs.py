"""Secrets in jobs that are SQL: which ones a run is given, by whose right, and what happens on a worker without the master key."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from rota import Rota, Settings
from rota.errors import InvalidParams, SqlError
from rota.model.states import Status
from tests.support.keys import key_file
from tests.support.prepared import prepare

DAILY = "SCHEDULE = EVERY 1 DAY CONNECTION = shop"


@pytest.fixture
def shop(tmp_path):
    """The file that jobs write to."""
    path = tmp_path / "shop.db"
    with closing(apsw.Connection(str(path))) as raw:
        raw.execute("CREATE TABLE seen (value TEXT)")
    return path


@pytest.fixture
def opening(tmp_path, shop):
    """Open the store again and again, with these settings."""
    store, opened = prepare(tmp_path / "rota.db"), []

    def opens(**settings) -> Rota:
        opened.append(Rota(store, settings=Settings(sql_paths=str(tmp_path), synchronous="NORMAL", **settings)))
        return opened[-1]

    yield opens
    for each in opened:
        each.close()


@pytest.fixture
def keys(tmp_path):
    return key_file(tmp_path)


@pytest.fixture
def rota(opening, shop, keys):
    """A store with a secret, a connection, and a user who may execute jobs of others."""
    made = opening(master_key_file=str(keys))
    made.users.create("root", role="system_manager")
    made.users.create("ada", role="admin")
    made.users.create("bob")
    made.secrets.create("api_key", "value of the key")
    made.sql(f"CREATE CONNECTION shop URL = 'sqlite:///{shop}'")
    return made


def seen(shop: Path) -> list[str]:
    with closing(apsw.Connection(str(shop))) as raw:
        return [value for (value,) in raw.execute("SELECT value FROM seen")]


def outcomes(rota: Rota) -> list[tuple[str, str | None]]:
    """Do what is to be done, and return how the attempts of the only chain ended, first to last."""
    rota.turn()
    rota.turn()
    chain = rota.jobs.list()[0].id
    return [(run.status, run.error) for run in rota.jobs.runs(chain)]


def test_a_job_is_given_the_secrets_that_it_names(rota, shop):
    rota.sql(f"CREATE JOB note {DAILY} SECRETS (api_key) AS 'INSERT INTO seen VALUES (:api_key)'; EXECUTE JOB note")
    assert outcomes(rota) == [("COMPLETED", None)]
    assert seen(shop) == ["value of the key"]


@pytest.mark.parametrize("way", ["execute", "enqueue"])
def test_params_of_a_caller_do_not_borrow_the_right_to_use_a_secret(rota, shop, way):
    refusal = "params mention the secret 'api_key', which only the definition of a job may do"
    if way == "execute":
        rota.acting_as("ada").sql(f"""CREATE JOB note {DAILY} PARAMS = '{{"value": "x"}}' AS 'INSERT INTO seen VALUES (:value)';
            GRANT EXECUTE ON JOB note TO bob""")
        with pytest.raises(SqlError, match=refusal):
            rota.acting_as("bob").sql("""EXECUTE JOB note WITH PARAMS '{"value": {"$secret": "api_key"}}'""")
    else:
        rota.acting_as("root").templates.sql("note", "INSERT INTO seen VALUES (:value)", connection="shop")
        with pytest.raises(InvalidParams, match=refusal):
            rota.acting_as("bob").enqueue("note", {"value": {"$secret": "api_key"}})
    rota.turn()
    assert (rota.jobs.list(), seen(shop)) == ([], [])


def test_params_of_a_job_mention_secrets_that_it_names(rota, shop):
    params = """PARAMS = '{"value": {"$secret": "api_key"}}' AS 'INSERT INTO seen VALUES (:value)'"""
    with pytest.raises(SqlError, match=r"does not name: add SECRETS \(api_key\)"):
        rota.sql(f"CREATE JOB note {DAILY} {params}")
    rota.sql(f"CREATE JOB note {DAILY} SECRETS (api_key) {params}; EXECUTE JOB note")
    assert outcomes(rota) == [("COMPLETED", None)]
    assert seen(shop) == ["value of the key"]


@pytest.mark.parametrize("key", ["missing", "open to others"])
def test_a_worker_that_can_not_open_secrets_fails_the_attempt_and_leaves_the_rest_to_the_retry(opening, rota, shop, keys, key):
    rota.sql(f"CREATE JOB note {DAILY} SECRETS (api_key) AS 'INSERT INTO seen VALUES (:api_key)'; EXECUTE JOB note")
    if key == "missing":
        worker, said = opening(), "there is no master key here"
    else:
        keys.chmod(0o644)
        worker, said = opening(master_key_file=str(keys)), "chmod 600"
    ((failed, error),) = outcomes(worker)
    assert failed == "FAILED"
    assert said in error
    keys.chmod(0o600)
    rota.jobs.update(rota.jobs.list()[0].id, run_at=timedelta())
    assert [status for status, _ in outcomes(rota)] == ["FAILED", "COMPLETED"]
    assert seen(shop) == ["value of the key"]


@pytest.mark.parametrize(
    ("lost", "said"), [("SECRET api_key", "may not use secret 'api_key'"), ("CONNECTION shop", "may not use connection 'shop'")]
)
def test_a_run_whose_owner_has_lost_a_right_in_the_meantime_does_nothing_and_is_not_retried(rota, shop, lost, said):
    rota.sql("GRANT CREATE JOB TO bob; GRANT USE ON SECRET api_key TO bob; GRANT USE ON CONNECTION shop TO bob")
    rota.acting_as("bob").sql(f"CREATE JOB note {DAILY} SECRETS (api_key) AS 'INSERT INTO seen VALUES (:api_key)'; EXECUTE JOB note")
    rota.sql(f"REVOKE USE ON {lost} FROM bob")
    ((_, error),) = outcomes(rota)
    assert said in error
    assert rota.jobs.list()[0].status is Status.DEAD_LETTER
    assert seen(shop) == []


def test_a_run_is_given_no_secret_of_its_job_that_the_definition_does_not_name(rota, shop):
    rota.sql(f"CREATE JOB note {DAILY} SECRETS (api_key) AS 'INSERT INTO seen VALUES (:api_key)'")
    rota.sql("ALTER JOB note SET SECRET api_key = ?; ALTER JOB note SET SECRET spare = ?; EXECUTE JOB note", ["its own", "unused"])
    rota.turn()
    assert seen(shop) == ["its own"]
    (use,) = [each for each in rota.audit.list() if each.event == "SECRET_USED"]
    assert use.after == {"secrets": ["api_key"]}


@pytest.mark.parametrize("clause", ["SECRETS (api_key)", ""])
def test_who_may_not_use_a_secret_or_a_connection_is_told_that_there_is_none(rota, clause):
    rota.sql("GRANT CREATE JOB TO bob; GRANT USE ON CONNECTION shop TO bob" if clause else "GRANT CREATE JOB TO bob")
    with pytest.raises(SqlError, match=r"there is no (secret api_key|connection shop) in organization default that you may use"):
        rota.acting_as("bob").sql(f"CREATE JOB note {DAILY} {clause} AS 'SELECT 1'")


def test_who_changes_what_a_job_does_needs_the_rights_and_owns_it_then(rota, shop):
    rota.acting_as("ada").sql(f"CREATE JOB note {DAILY} AS 'INSERT INTO seen VALUES (1)'; GRANT ALTER, EXECUTE ON JOB note TO bob")
    bob = rota.acting_as("bob")
    with pytest.raises(SqlError, match="no connection shop"):
        bob.sql("ALTER JOB note SET AS 'INSERT INTO seen VALUES (2)'")
    rota.sql("GRANT USE ON CONNECTION shop TO bob")
    bob.sql("ALTER JOB note SET AS 'INSERT INTO seen VALUES (2)'")
    assert rota.schedules.get("note").created_by == "bob"
    rota.sql("REVOKE USE ON CONNECTION shop FROM bob; EXECUTE JOB note")
    ((_, error),) = outcomes(rota)
    assert "'bob', whose rights this job has, may not use connection 'shop' any more" in error
    assert seen(shop) == []
