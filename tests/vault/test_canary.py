"""The value of a secret is looked for wherever it could have been left, in every form; and the search is shown to find it."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.errors import RotaError
from rota.model.redaction import MASK, Redactor, forms_of
from rota.model.secrets import Sealed
from rota.resources import secrets as secrets_resource
from rota.surfaces.cli.sql_history import History
from rota.surfaces.http import make_app
from tests.stores.makers import MongoMaker, PostgresMaker
from tests.support.keys import add_key, key_file
from tests.support.prepared import prepare
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.api_support import Caller
from tests.vault.dumps import dump_of, sqlite_dump

CANARY = 'cAnary/7c1e+Zx"q\nthe second line of it=='
SIGNING = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5"
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"


class Story:
    """All that is done with secrets, and whatever was seen of it."""

    def __init__(self, rota: Rota, folder: Path, keys: Path) -> None:
        self.rota = rota
        self.folder = folder
        self.keys = keys
        self.seen: list[str] = []

    def try_(self, act) -> None:
        """Do something and keep what came of it, an error too, as people and logs are shown it."""
        try:
            shown = act()
        except RotaError as error:
            shown = (str(error), repr(error), vars(error), error.__cause__, error.report() if hasattr(error, "report") else "")
        self.seen += [repr(shown), str(shown)]

    def tell(self) -> None:
        rota, quoted = self.rota, CANARY.replace("'", "''")
        rota.job(lambda: None, name="report")
        with rota.events() as events:
            rota.sql(f"CREATE JOB nightly {HOURLY}")
            self.act(quoted)
            while (event := events.next(timeout=0.3)) is not None:
                self.seen.append(repr(event))
        assert any("nightly" in each for each in self.seen)

    def act(self, quoted: str) -> None:
        rota = self.rota
        rota.users.create("root", role="system_manager")
        rota.users.create("bob", role="user")
        for act in (
            lambda: rota.secrets.create("PYTHON", CANARY),
            lambda: rota.secrets.create("PYTHON", CANARY),
            lambda: rota.secrets.create("no name", CANARY),
            lambda: rota.secrets.create("LIST", [CANARY]),
            lambda: rota.secrets.create("LARGE", CANARY * 5000),
            lambda: rota.secrets.update("PYTHON", CANARY, job="nosuch"),
            lambda: rota.secrets.update("PYTHON", CANARY, job="nightly"),
            lambda: rota.acting_as("bob").secrets.update("PYTHON", CANARY),
            lambda: rota.webhooks.create("https://example.com/hook", secret=SIGNING),
            lambda: rota.webhooks.create("https://example.com/hook", secret=f"{SIGNING}!"),
        ):
            self.try_(act)
        for text in (
            f"CREATE SECRET literal VALUE '{quoted}'",
            f"CREATE SECRET literal VALUE '{quoted}'",
            f"ALTER SECRET literal VALUE '{quoted}'",
            f"ALTER SECRET nosuch VALUE '{quoted}'",
            f"ALTER JOB nightly SET SECRET k = '{quoted}'",
            f"ALTER JOB nosuch SET SECRET k = '{quoted}'",
            f"CREATE SECRET wrong VALUE '{quoted}' '{quoted}'",
            f"CREATE SECRET wrong VALUE '{quoted}",
            f"CREATE SECRET a-b VALUE '{quoted}'; SELECT 1",
            f"CREATE SECRET other VALUE '{quoted}'; SELEC 1",
        ):
            self.try_(lambda text=text: rota.sql(text))
            self.try_(lambda text=text: rota.acting_as("bob").sql(text))
            self.history(text)
        self.try_(lambda: rota.sql("CREATE SECRET bound VALUE ?; ALTER JOB nightly SET SECRET n = ?", [CANARY, CANARY]))
        self.try_(lambda: rota.sql("CREATE SECRET bound VALUE :v", {"v": CANARY}))
        self.try_(lambda: rota.sql("CREATE SECRET bound VALUE ?", CANARY))
        self.over_http(quoted)
        self.look()
        add_key(self.keys)
        self.try_(rota.secrets.rotate)
        self.keys.chmod(0o644)
        self.try_(lambda: rota.secrets.update("PYTHON", CANARY))
        self.keys.chmod(0o600)
        self.look()
        self.try_(lambda: rota.secrets.delete("PYTHON"))

    def over_http(self, quoted: str) -> None:
        with TestClient(make_app(self.rota), raise_server_exceptions=False) as client:
            caller = Caller(client, self.rota.tokens.create("all", permits=["manage"]).secret)
            bob = Caller(client, self.rota.tokens.create("bob", user="bob", permits=["manage"]).secret)
            for who in (caller, bob):
                for method, path, body in (
                    ("POST", "/secrets", {"name": "HTTP", "value": CANARY}),
                    ("POST", "/secrets", {"name": "HTTP", "value": CANARY}),
                    ("PUT", "/secrets/HTTP", {"value": CANARY}),
                    ("PUT", "/secrets/HTTP", {"value": [CANARY]}),
                    ("PUT", "/secrets/HTTP", {"value": CANARY, "valeu": CANARY}),
                    ("POST", "/sql", {"sql": f"CREATE SECRET http_sql VALUE '{quoted}'"}),
                    ("POST", "/sql", {"sql": f"CREATE SECRET http_sql VALUE '{quoted}' x"}),
                    ("POST", "/sql", {"sql": "ALTER SECRET http_sql VALUE ?", "params": [CANARY]}),
                    ("GET", "/secrets", None),
                    ("GET", "/secrets/HTTP", None),
                    ("GET", "/audit", None),
                    ("POST", "/secrets/rotate", None),
                ):
                    answer = who(method, path, body)
                    self.seen += [answer.text, str(answer.headers)]

    def history(self, text: str) -> None:
        History(self.folder / "sql_history").add(text)

    def look(self) -> None:
        rota = self.rota
        for act in (
            rota.secrets.list,
            lambda: rota.audit.list(limit=500),
            rota.webhooks.list,
            rota.store.doctor,
            lambda: rota.sql("SHOW SECRETS; SHOW SECRETS FOR nightly; SELECT * FROM sys.secrets; SELECT * FROM sys.job_secrets"),
            lambda: rota.sql("SELECT * FROM sys.audit; SHOW CREATE JOB nightly; SHOW JOB nightly; SHOW SETTINGS"),
        ):
            self.try_(act)


def found_in(places: dict[str, bytes], value: str = CANARY) -> set[str]:
    """Return where a value, or a form of it, is."""
    forms = forms_of(value)
    return {name for name, content in places.items() if any(form in content for form in forms)}


def everything(story: Story, caplog: pytest.LogCaptureFixture) -> dict[str, bytes]:
    """Return all that was left behind: files, a dump, log lines, and what callers were shown."""
    places = {path.name: path.read_bytes() for path in story.folder.rglob("*") if path.is_file() and path != story.keys}
    formatter = logging.Formatter()
    lines = [formatter.format(record) + repr(record.args) for record in caplog.records]
    return places | {"logs": "\n".join(lines).encode(errors="replace"), "seen": "\n".join(story.seen).encode(errors="replace")}


@pytest.fixture
def keys(tmp_path):
    return key_file(tmp_path)


def story_on(where, folder: Path, keys: Path) -> tuple[Rota, Story]:
    folder.mkdir(exist_ok=True)
    settings = Settings(master_key_file=str(keys), http_log="yes", log_level="debug", synchronous="NORMAL")
    rota = Rota(where, settings=settings)
    return rota, Story(rota, folder, keys)


def told(tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture) -> dict[str, bytes]:
    folder = tmp_path / "store"
    folder.mkdir()
    rota, story = story_on(prepare(folder / "rota.db"), folder, keys)
    with closing(rota), caplog.at_level(0):
        story.tell()
        rota.store.promote(folder / "copy.db", keep=True)
        rota.enqueue("report")  # opens the store again, so that its log is not merged into the file yet
        places = everything(story, caplog) | {"dump": sqlite_dump(folder / "rota.db")}
    assert {"rota.db", "copy.db", "dump", "logs", "seen"} <= places.keys()
    assert "sql_history" not in places
    assert b"PYTHON" in places["dump"]
    assert b"/api/v1/secrets" in places["logs"]
    return places


def test_the_value_of_a_secret_is_nowhere(tmp_path, keys, caplog):
    places = told(tmp_path, keys, caplog)
    assert found_in(places) == set()
    # Of a webhook it is shown once, to its creator.
    assert found_in({name: content for name, content in places.items() if name != "seen"}, SIGNING) == set()


def test_the_search_finds_a_value_that_is_not_encrypted(tmp_path, keys, caplog, monkeypatch):
    def plain(keyring, place, version, value):
        return Sealed(
            organization=place.organization,
            name=place.name,
            job=place.job,
            version=version,
            key_id=keyring.current,
            wrapped=b"",
            body=value.encode(),
        )

    monkeypatch.setattr(secrets_resource, "seal", plain)
    found = found_in(told(tmp_path, keys, caplog))
    assert {"copy.db", "dump"} <= found
    assert found & {"rota.db", "rota.db-wal"}


def test_the_search_finds_a_signing_secret_that_is_not_encrypted(tmp_path, caplog):
    folder = tmp_path / "store"
    rota, story = story_on(prepare((folder.mkdir() or folder) / "rota.db"), folder, tmp_path / "none")
    rota.close()
    with closing(Rota(folder / "rota.db", settings=Settings(synchronous="NORMAL"))) as plain:
        plain.webhooks.create("https://example.com/hook", secret=SIGNING)
        assert "dump" in found_in(everything(story, caplog) | {"dump": sqlite_dump(folder / "rota.db")}, SIGNING)


@pytest.mark.parametrize("form", ["shown", "logged"])
def test_the_search_finds_a_value_in_answers_and_log_lines(tmp_path, keys, caplog, form):
    rota, story = story_on(prepare(tmp_path / "rota.db"), tmp_path / "store", keys)
    with closing(rota), caplog.at_level(0):
        if form == "shown":
            story.try_(lambda: {"value": CANARY})
        else:
            logging.getLogger("rota.test").info("value %s", CANARY)
        assert found_in(everything(story, caplog)) == {{"shown": "seen", "logged": "logs"}[form]}


def test_output_is_redacted_and_the_search_finds_it_where_it_is_not(tmp_path):
    printed = b"".join(b"<" + form + b">" for form in forms_of(CANARY))
    redactor = Redactor([CANARY])
    shown = b"".join([*(redactor.feed(printed[at : at + 7]) for at in range(0, len(printed), 7)), redactor.flush()])
    assert found_in({"redacted": shown, "plain": printed}) == {"plain"}
    assert MASK.encode() in shown


@pytest.mark.parametrize("maker", [PostgresMaker, MongoMaker], indirect=True, ids=["postgres", "mongodb"])
def test_the_value_of_a_secret_is_nowhere_on_a_server(maker, tmp_path, keys, caplog):
    rota, story = story_on(maker.url, tmp_path / "seen", keys)
    with closing(rota), caplog.at_level(0):
        story.tell()
        dump = dump_of(maker)
        assert b"PYTHON" in dump
        assert found_in(everything(story, caplog) | {"dump": dump}) == set()


def test_the_command_line_leaves_no_value_behind(tmp_path, keys):
    cli = Cli(tmp_path)
    cli.env["ROTA_MASTER_KEY_FILE"] = str(keys)
    cli.ok("organization", "create", "acme")
    literal = f"CREATE SECRET k2 VALUE '{CANARY}'"
    calls = [
        *((words, CANARY) for words in (["create", "KEY"], ["create", "KEY"], ["set", "no name"], ["set", "KEY"])),
        *((words, None) for words in (["list"], ["get", "KEY", "--json"], ["rotate"])),
    ]
    try:
        outputs = [cli("secret", *words, stdin=stdin).output for words, stdin in calls]
        outputs += [cli("sql", "-c", text).output for text in (literal, literal, f"{literal} x")]
        outputs += [cli("sql", stdin=f"{literal};\n").output, cli("audit").output, cli("doctor").output]
        dump = sqlite_dump(tmp_path / "rota.db")
        places = {path.name: path.read_bytes() for path in tmp_path.rglob("rota.db*") if path.is_file()}
        assert found_in(places | {"dump": dump, "outputs": "\n".join(outputs).encode()}) == set()
        assert dump.count(b"secret.create") == 2
    finally:
        cli.close()
