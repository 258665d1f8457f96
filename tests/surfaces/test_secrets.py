"""Secrets in Python, over HTTP and by commands: set, listed, never shown; rotated, moved and checked with their keys."""

from __future__ import annotations

import threading
from contextlib import closing

import apsw
import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.errors import CopyRefused, InvalidName, InvalidOption, NotFound, PermissionDenied, Refused, SecretUnavailable, StillNeeded
from rota.model.findings import State
from rota.model.gate import Actor, Role
from rota.surfaces.http import make_app
from rota.vault import open_secrets
from tests.support.keys import add_key, id_of, key_file, write_keys
from tests.support.prepared import prepare
from tests.support.proof import size
from tests.support.receiver import receiving
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.api_support import Caller, code_of

VALUE = "correct horse"
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"


@pytest.fixture
def keys(tmp_path):
    return key_file(tmp_path)


@pytest.fixture
def rota(tmp_path, keys):
    with closing(Rota(prepare(tmp_path / "rota.db"), settings=settings_of(keys))) as made:
        made.job(lambda: None, name="report")
        made.organizations.create("acme")
        for name, organization, role in (
            ("root", "default", "system_manager"),
            ("ada", "acme", "admin"),
            ("bob", "acme", "user"),
            ("eve", "default", "admin"),
        ):
            made.users.create(name, organization=organization, role=role)
        yield made


def settings_of(keys, **more):
    return Settings(master_key_file=str(keys), synchronous="NORMAL", lease_ttl=1, **more)


def opened(rota, *names, job=None, organization="default"):
    session = rota._session
    return open_secrets(session.keyring(), session.open().store.sealed_secrets(organization, job, names))


def values_of(rota):
    """Return every value that can be opened, by name."""
    return opened(rota, *(each.name for each in rota.secrets.list()))


# ---- Python ------------------------------------------------------------------------------------------------------------


def test_a_secret_is_created_set_listed_and_deleted_without_its_value(rota):
    made = rota.secrets.create("DB_PASSWORD", VALUE)
    assert (made.name, made.organization, made.job, made.version, made.created_by) == ("DB_PASSWORD", "default", None, 1, "local")
    assert made.key_id == rota._session.keyring().current
    with pytest.raises(Refused, match="already"):
        rota.secrets.create("DB_PASSWORD", "other")
    again = rota.secrets.update("DB_PASSWORD", "other")
    assert (again.id, again.version) == (made.id, 2)
    assert rota.secrets.update("NEW_ONE", VALUE).version == 1
    assert [each.name for each in rota.secrets.list()] == ["DB_PASSWORD", "NEW_ONE"]
    assert rota.secrets.get("DB_PASSWORD") == again
    assert values_of(rota) == {"DB_PASSWORD": "other", "NEW_ONE": VALUE}
    rota.secrets.delete("DB_PASSWORD")
    with pytest.raises(NotFound, match="no secret 'DB_PASSWORD'"):
        rota.secrets.get("DB_PASSWORD")
    assert [each.event for each in rota.audit.list() if each.subject == "secret"][::-1] == [
        "SECRET_CREATED",
        "SECRET_CHANGED",
        "SECRET_CREATED",
        "SECRET_DROPPED",
    ]


def test_a_secret_of_a_job_is_its_own(rota):
    rota.sql(f"CREATE JOB nightly {HOURLY}")
    job = rota.schedules.get("nightly")
    rota.secrets.update("KEY", "of the organization")
    rota.secrets.update("KEY", "of the job", job="nightly")
    assert [each.job for each in rota.secrets.list()] == [None, "nightly"]
    assert [each.job for each in rota.secrets.list(job="nightly")] == ["nightly"]
    assert rota.secrets.get("KEY", job="nightly").job_id == job.id
    assert opened(rota, "KEY", job=job.id.replace("-", "")) == {"KEY": "of the job"}
    rota.secrets.delete("KEY", job="nightly")
    assert opened(rota, "KEY", job=job.id.replace("-", "")) == {"KEY": "of the organization"}
    with pytest.raises(NotFound):
        rota.secrets.update("KEY", "x", job="no such job")


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 70_000, None, 5])
def test_what_can_not_be_a_value_is_refused(rota, value):
    with pytest.raises(InvalidOption):
        rota.secrets.create("NAME", value)
    with pytest.raises(InvalidName):
        rota.secrets.create("no-name", VALUE)
    assert rota.secrets.list() == []


def test_without_a_key_secrets_are_refused_and_everything_else_works(tmp_path):
    with closing(Rota(prepare(tmp_path / "rota.db"), settings=Settings())) as rota:
        rota.job(lambda: None, name="report")
        with pytest.raises(SecretUnavailable, match="master_key_file"):
            rota.secrets.create("NAME", VALUE)
        with pytest.raises(SecretUnavailable):
            rota.secrets.rotate()
        assert rota.secrets.list() == []
        rota.sql(f"CREATE JOB nightly {HOURLY}")
        assert rota.webhooks.create("https://example.com/x").secret.startswith("whsec_")


def test_a_key_file_that_others_can_read_is_refused_with_the_remedy(rota, keys):
    keys.chmod(0o644)
    with pytest.raises(InvalidOption, match="chmod 600"):
        rota.secrets.create("NAME", VALUE)


def test_rights(rota):
    ada, bob, eve = (rota.acting_as(name) for name in ("ada", "bob", "eve"))
    assert ada.secrets.create("KEY", VALUE).organization == "acme"
    for act in (
        lambda: bob.secrets.create("MINE", VALUE),
        lambda: bob.secrets.update("KEY", "x"),
        lambda: bob.secrets.delete("KEY"),
        ada.secrets.rotate,
    ):
        with pytest.raises(PermissionDenied):
            act()
    with pytest.raises(PermissionDenied):
        eve.secrets.create("KEY", VALUE, organization="acme")
    assert rota.acting_as("root").secrets.update("KEY", "newer", organization="acme").version == 2
    assert [len(each.secrets.list()) for each in (ada, bob, eve)] == [1, 0, 0]
    with pytest.raises(NotFound):
        bob.secrets.get("KEY")
    ada.grants.create("USE", "bob", secret_name="KEY")
    assert [each.name for each in bob.secrets.list()] == ["KEY"]
    with pytest.raises(PermissionDenied):
        bob.secrets.update("KEY", "x")


def test_a_grant_needs_a_secret_that_is_there_and_goes_with_it(rota):
    ada = rota.acting_as("ada")
    with pytest.raises(NotFound, match="no secret 'KEY' in organization 'acme'"):
        ada.grants.create("USE", "bob", secret_name="KEY")
    ada.secrets.create("KEY", VALUE)
    ada.grants.create("USE", "bob", secret_name="KEY")
    ada.secrets.delete("KEY")
    ada.secrets.create("KEY", VALUE)
    assert rota.grants.list() == []
    assert rota.acting_as("bob").secrets.list() == []


def test_the_owner_of_a_job_sees_the_names_of_its_secrets(rota):
    owner = rota.acting_as(Actor("bob", "acme", Role.ADMIN))
    owner.sql(f"CREATE JOB nightly {HOURLY}; CREATE JOB weekly {HOURLY}")
    owner.sql("ALTER JOB nightly SET SECRET KEY = :v", {"v": VALUE})
    assert [(each.name, each.job) for each in rota.acting_as("bob").secrets.list()] == [("KEY", "nightly")]
    assert rota.acting_as("eve").secrets.list() == []


# ---- rotation ----------------------------------------------------------------------------------------------------------


def test_rotation_puts_everything_under_the_first_key_while_values_stay(rota, keys):
    old = id_of(keys.read_text().strip())
    for number in range(130):
        rota.secrets.create(f"S{number}", f"value {number}")
    before = values_of(rota)
    new = add_key(keys)
    assert values_of(rota) == before
    rota.secrets.update("S0", "newer")
    done = rota.secrets.rotate()
    assert (done.key_id, done.secrets, done.webhooks, done.left, done.missing) == (new, 129, 0, 0, ())
    assert rota.secrets.rotate().secrets == 0
    write_keys(keys, keys.read_text().splitlines()[:1])
    assert values_of(rota) == {**before, "S0": "newer"}
    assert old not in {each.key_id for each in rota.secrets.list()}
    rotated = [each for each in rota.audit.list(limit=100) if each.event == "SECRET_ROTATED"]
    assert sum(each.after["secrets"] for each in rotated) == 129


@pytest.mark.prove
def test_values_open_and_are_set_while_keys_rotate(rota, keys, tmp_path):
    count = size(20, prove=1000)
    names = [f"S{number}" for number in range(count)]
    for name in names:
        rota.secrets.create(name, f"first {name}")
    (tmp_path / "old").mkdir()
    old = write_keys(tmp_path / "old" / "master-key", keys.read_text().splitlines())
    new = add_key(keys)
    errors, done, worked = [], threading.Event(), []

    def repeat(work):
        def run():
            times = 0
            try:
                while not done.is_set() or not times:
                    work(names[times * 7 % count])
                    times += 1
            except Exception as error:
                errors.append(error)
            worked.append(times)

        return threading.Thread(target=run)

    def read(name):
        assert opened(rota, name)[name] in {f"first {name}", f"second {name}"}

    with closing(Rota(rota.store.url, settings=settings_of(old))) as late:
        threads = [repeat(read), repeat(read), repeat(lambda name: late.secrets.update(name, f"second {name}"))]
        for thread in threads:
            thread.start()
        first = rota.secrets.rotate()
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert all(worked)
    last = rota.secrets.rotate()
    assert first.secrets + last.secrets >= count
    assert last.left == 0
    write_keys(keys, keys.read_text().splitlines()[:1])
    assert {each.key_id for each in rota.secrets.list()} == {new}
    assert values_of(rota).keys() == set(names)


def test_a_rotation_without_the_old_key_names_it_and_does_the_rest(rota, keys):
    rota.secrets.create("LOST", VALUE)
    lost = id_of(keys.read_text().strip())
    write_keys(keys, [])
    key_file(keys.parent)
    rota.secrets.create("HERE", VALUE)
    new = add_key(keys)
    done = rota.secrets.rotate()
    assert (done.key_id, done.secrets, done.left, done.missing) == (new, 1, 1, (lost,))


def test_doctor_names_missing_keys_wrong_modes_and_unfinished_rotation(rota, keys):
    def found():
        return [each for each in rota.store.doctor() if each.name == "secrets"]

    assert [(each.state, each.text) for each in found()] == [(State.OK, "there are none")]
    rota.webhooks.create("https://example.com/x")
    rota.secrets.create("KEY", VALUE)
    old = id_of(keys.read_text().strip())
    assert [each.text for each in found()] == [f"1 are encrypted with the master key {old}"]
    add_key(keys)
    (unfinished,) = found()
    assert unfinished.state is State.ADVICE
    assert f"2 secrets are still encrypted with the old master key {old}" in unfinished.text
    assert "rota secret rotate" in unfinished.remedy
    write_keys(keys, keys.read_text().splitlines()[:1])
    (missing,) = found()
    assert missing.state is State.PROBLEM
    assert f"the master key {old}, which this process does not have" in missing.text
    keys.chmod(0o640)
    (mode,) = found()
    assert (mode.state, "mode 0640" in mode.text, "chmod 600" in mode.text) == (State.PROBLEM, True, True)


# ---- webhooks ----------------------------------------------------------------------------------------------------------


def stored(rota):
    with closing(apsw.Connection(str(rota.store.url))) as raw:
        return [text for row in raw.execute("SELECT secret, previous FROM hook_secrets") for text in row if text is not None]


def test_what_signs_webhooks_is_encrypted_where_there_is_a_key(tmp_path, keys):
    settings = settings_of(keys, webhook_private="allow", webhook_http="allow")
    with receiving() as receiver, closing(Rota(prepare(tmp_path / "rota.db"), settings=settings)) as rota:
        made = rota.webhooks.create(receiver.url())
        assert all(text.startswith("sealed:") for text in stored(rota))
        assert rota.webhooks.test(made.webhook.id).accepted
        receiver.received[-1].verify(made.secret)
        assert rota.webhooks.rotate(made.webhook.id, secret=made.secret) == made.secret
        assert len(stored(rota)) == 1
        rota.webhooks.rotate(made.webhook.id)
        assert len(stored(rota)) == 2
        write_keys(keys, [])
        key_file(keys.parent)
        tested = rota.webhooks.test(made.webhook.id)
        assert (tested.accepted, tested.error) == (False, "its secret can't be opened by the worker, whose log says why")


def test_plain_secrets_of_webhooks_are_read_and_are_encrypted_by_a_rotation(tmp_path, keys):
    plain = Settings(synchronous="NORMAL", webhook_private="allow", webhook_http="allow")
    path = prepare(tmp_path / "rota.db")
    with receiving() as receiver:
        with closing(Rota(path, settings=plain)) as rota:
            made = rota.webhooks.create(receiver.url())
            rota.webhooks.rotate(made.webhook.id)
            rota.webhooks.rotate()
            assert not any(text.startswith("sealed:") for text in stored(rota))
        with closing(Rota(path, settings=settings_of(keys, webhook_private="allow", webhook_http="allow"))) as rota:
            assert rota.webhooks.test(made.webhook.id).accepted
            (plain_finding,) = [each for each in rota.store.doctor() if each.name == "secrets"]
            assert "3 webhook secrets are not encrypted" in plain_finding.text
            assert (rota.secrets.rotate().webhooks, rota.secrets.rotate().webhooks) == (2, 0)
            assert all(text.startswith("sealed:") for text in stored(rota))
            assert rota.webhooks.test(made.webhook.id).accepted
            receiver.received[-1].verify(made.secret)


# ---- moving a store ----------------------------------------------------------------------------------------------------


def test_secrets_move_sealed_with_their_store(rota, keys, tmp_path):
    rota.secrets.create("KEY", VALUE)
    add_key(keys)
    rota.secrets.create("OTHER", VALUE)
    sealed = rota._session.open().store.sealed_secrets("default", None, ["KEY", "OTHER"])
    done = rota.store.promote(tmp_path / "there.db")
    assert (done.tables["secrets"].rows, done.missing_keys) == (2, [])
    with closing(Rota(tmp_path / "there.db", settings=rota.settings)) as there:
        assert there._session.open().store.sealed_secrets("default", None, ["KEY", "OTHER"]) == sealed
        assert values_of(there) == {"KEY": VALUE, "OTHER": VALUE}


def test_a_store_is_not_moved_without_the_keys_of_its_secrets(rota, keys, tmp_path):
    rota.secrets.create("LOST", VALUE)
    rota.webhooks.create("https://example.com/x")
    lost = id_of(keys.read_text().strip())
    write_keys(keys, [])
    key_file(keys.parent)
    rota.secrets.create("KEPT", VALUE)
    with pytest.raises(CopyRefused, match=f"the master key {lost}, which is not here.*--without-secrets"):
        rota.store.promote(tmp_path / "there.db")
    assert not (tmp_path / "there.db").exists()
    for again in (False, True):
        done = rota.store.promote(tmp_path / "there.db", without_secrets=True, keep=not again)
        assert (done.tables["secrets"].rows, done.tables["hook_secrets"].rows, done.missing_keys, done.already) == (1, 0, [lost], again)
    with closing(Rota(tmp_path / "there.db", settings=rota.settings)) as there:
        assert values_of(there) == {"KEPT": VALUE}


# ---- HTTP and commands -------------------------------------------------------------------------------------------------


def test_secrets_over_http(rota):
    with TestClient(make_app(rota)) as client:
        ada, bob = (Caller(client, rota.tokens.create(name, user=name, permits=["manage"]).secret) for name in ("ada", "bob"))
        made = ada.post("/secrets", {"name": "KEY", "value": VALUE})
        assert (made.status_code, made.json()["version"]) == (201, 1)
        assert code_of(ada.post("/secrets", {"name": "KEY", "value": VALUE})) == "refused"
        assert ada("PUT", "/secrets/KEY", {"value": "newer"}).json()["version"] == 2
        assert [each["name"] for each in ada.get("/secrets").json()["items"]] == ["KEY"]
        assert bob.get("/secrets").json()["items"] == []
        assert code_of(bob.get("/secrets/KEY")) == "not_found"
        assert code_of(bob("PUT", "/secrets/KEY", {"value": "x"})) == "permission_denied"
        refused = ada("PUT", "/secrets/KEY", {"value": [VALUE]})
        assert (refused.status_code, VALUE in refused.text) == (422, False)
        assert code_of(ada.post("/secrets", {"name": "no name", "value": VALUE})) == "invalid_name"
        assert ada.delete("/secrets/KEY").status_code == 204
        operator = Caller(client, rota.tokens.create("op", permits=["manage"]).secret)
        assert operator.post("/secrets/rotate").json()["left"] == 0


@pytest.fixture
def cli(tmp_path, keys):
    made = Cli(tmp_path)
    made.env["ROTA_MASTER_KEY_FILE"] = str(keys)
    yield made
    made.close()


def test_the_command_line_reads_a_value_from_standard_input_or_asks_for_it(cli):
    cli.ok("organization", "create", "acme")
    made = cli("secret", "set", "KEY", "--organization", "acme", stdin=f"{VALUE}\n")
    assert made.exit_code == 0, made.output
    assert VALUE not in made.output
    assert "secret KEY of organization acme, version 1" in made.output
    asked = cli.asked("secret", "create", "OTHER", answer="typed")
    assert "typed" not in asked.output
    with closing(Rota(cli.store, settings=Settings(master_key_file=cli.env["ROTA_MASTER_KEY_FILE"]))) as rota:
        assert opened(rota, "KEY", organization="acme") == {"KEY": VALUE}
        assert opened(rota, "OTHER") == {"OTHER": "typed"}
    assert cli("secret", "set", "KEY", VALUE).exit_code == 2
    assert cli("secret", "set", "KEY", "--value", VALUE).exit_code == 2
    assert cli("secret", "set", "KEY", stdin="").exit_code != 0
    assert [each["name"] for each in cli.lines("secret", "list")] == ["KEY", "OTHER"]
    assert "KEY" in cli.ok("secret", "list")
    assert cli.json("secret", "get", "OTHER")["version"] == 1
    assert "Nothing is left" in cli.ok("secret", "rotate")
    cli.ok("secret", "delete", "OTHER", "--yes")


def test_the_command_line_makes_keys(cli, tmp_path):
    line = cli.ok("secret", "key")
    assert line != cli.ok("secret", "key")
    assert len(id_of(line)) == 16
    assert cli.json("secret", "key").keys() == {"key"}
    path = write_keys(tmp_path / "other", [line.strip()])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_secret_that_jobs_name_is_not_deleted(rota):
    rota.secrets.create("KEY", VALUE)
    rota.sql(f"CREATE JOB nightly {HOURLY}")
    with closing(apsw.Connection(str(rota.store.url))) as raw:
        raw.execute("UPDATE templates SET defaults = json_set(defaults, '$.secrets', json('[\"KEY\"]')) WHERE name = 'nightly'")
    with pytest.raises(StillNeeded, match="change nightly first"):
        rota.secrets.delete("KEY")
