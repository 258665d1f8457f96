"""The MCP server: its tools, and the process `rota mcp` with the official client."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading

import jsonschema
import pytest
from mcp.client.client import Client

from rota import Rota
from rota.model.gate import LOCAL, Actor, Right
from rota.operation import NOUNS, noun, operations
from rota.resources.jobs import Jobs
from rota.surfaces.mcp.server import Threads, make_server
from rota.surfaces.mcp.tools import ITEMS_MAX, all_tools, document
from tests.support.pace import patient
from tests.surfaces.cli_support import Cli
from tests.surfaces.mcp_support import MODES, names, ok, process, refused, run

READS = {tool.name for tool in all_tools().values() if tool.operation.reads}
BY_HAND = {"overview", "enqueue", "sql_query"}


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture
def served(shared: Rota):
    """Calls tools of a store that organizations share, in this process, as one of its users."""

    threads = Threads()

    def as_user(name: str | Actor | None) -> Client:
        return Client(make_server(shared, lambda _context: name, threads))

    yield as_user
    threads.close()


# ---- tools ------------------------------------------------------------------------------------------------------------


def test_every_operation_with_a_route_is_a_tool():
    wanted = {f"{name}_{verb}" for name in NOUNS for verb, operation in operations(noun(name)).items() if operation.path}
    own = {verb for verb, operation in operations(Rota).items() if operation.path}
    assert set(all_tools()) == wanted | own | BY_HAND
    assert {"jobs_list", "schedules_create", "forecast", "explain"} < set(all_tools())


@pytest.mark.parametrize("name", all_tools())
def test_every_tool_has_a_description_and_a_valid_schema(name):
    tool = all_tools()[name]
    assert tool.description
    jsonschema.Draft202012Validator.check_schema(tool.schema)


def test_hints_say_what_only_reads_and_what_destroys(served):
    async def story():
        async with served(None) as client:
            return {tool.name: tool.annotations for tool in (await client.list_tools()).tools}

    hints = run(story)
    assert set(hints) == set(all_tools())
    assert {name for name, hint in hints.items() if hint.read_only_hint} == READS
    assert {name for name, hint in hints.items() if hint.idempotent_hint} == READS
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {
        name for name, tool in all_tools().items() if tool.operation.confirm is not None
    }
    assert hints["jobs_cancel"].destructive_hint
    assert not hints["jobs_update"].destructive_hint


@pytest.mark.parametrize(
    ("user", "there", "not_there"),
    [
        (None, {"tokens_create", "store_pause", "jobs_delete", "jobs_list"}, set()),
        ("root", {"tokens_create", "store_pause", "jobs_delete", "jobs_list"}, set()),
        ("ada", {"jobs_update", "schedules_create", "audit_list", "enqueue"}, {"tokens_create", "store_pause", "jobs_delete"}),
        ("bob", {"jobs_list", "jobs_cancel", "enqueue", "forecast", "overview"}, {"jobs_update", "jobs_log", "schedules_create"}),
    ],
)
def test_an_actor_is_shown_the_tools_that_it_may_use(served, user, there, not_there):
    async def story():
        async with served(user) as client:
            return await names(client)

    found = run(story)
    assert there <= found
    assert not not_there & found


def test_a_token_that_may_only_read_is_shown_no_tool_that_writes(served):
    reader = Actor("root", role="system_manager", operations=frozenset(right for right in Right if right.name.startswith("READ")))

    async def story():
        async with served(reader) as client:
            assert await names(client) == READS
            assert "may not submit jobs" in await refused(client, "enqueue", name="echo")

    run(story)


def test_somebody_who_is_not_a_user_is_refused_with_words(served):
    async def story():
        async with served("mallory") as client:
            assert "'mallory'" in await refused(client, "jobs_list")
            with pytest.raises(Exception, match="'mallory'"):
                await client.list_tools()

    run(story)


def test_a_tool_that_may_not_be_used_is_refused_by_the_gate(served):
    async def story():
        async with served("bob") as client:
            return await refused(client, "store_pause")

    assert run(story) == "'bob' (user) may not operate workers, pauses, recovery and transactions"


# ---- calls ------------------------------------------------------------------------------------------------------------


def test_a_job_is_enqueued_found_explained_and_run(served, shared):
    async def story():
        async with served("ada") as client:
            job = await ok(client, "enqueue", name="echo", params={"text": "hello"}, priority="high", unique_key="once", run_at="0s")
            again = await ok(client, "enqueue", name="echo", unique_key="once")
            assert (job["existing"], again["existing"], again["id"]) == (False, True, job["id"])
            page = await ok(client, "jobs_list", status=["QUEUED"], limit=1)
            assert ([each["id"] for each in page["items"]], page["next"]) == ([job["id"]], None)
            assert (await ok(client, "jobs_get", job=job["number"]))["params"] == {"text": "hello"}
            assert (await ok(client, "explain", job=job["id"]))["job"]["id"] == job["id"]
            await asyncio.to_thread(shared.turn)
            (ended,) = (await ok(client, "jobs_runs", job=job["id"]))["items"]
            assert (ended["status"], ended["log_path"]) == ("COMPLETED", None)
            log = await ok(client, "jobs_log", job=job["id"])
            assert (log["items"][-1]["to_status"], log["next"], log["cut"]) == ("COMPLETED", None, False)

    run(story)


def test_pages_follow_each_other(served, shared):
    shared.acting_as("ada").enqueue_many([("echo", {"text": str(number)}) for number in range(5)])

    async def story():
        async with served("ada") as client:
            texts, before = [], None
            while True:
                page = await ok(client, "jobs_list", limit=2, **({} if before is None else {"before": before}))
                texts += [job["params"]["text"] for job in page["items"]]
                before = page["next"]
                if before is None:
                    return texts

    assert run(story) == list("43210")


def test_pages_of_the_ledger_follow_each_other(served, shared, clock):
    shared.acting_as("ada").schedules.create("often", "echo", every="1m", catch_up="all", overlap="allow")
    shared.turn()
    for _ in range(5):
        clock.advance(seconds=60)
        shared.turn()

    async def story():
        async with served("ada") as client:
            due, before = [], None
            while True:
                page = await ok(client, "schedules_occurrences", limit=2, **({} if before is None else {"before": before}))
                due += [row["due_at"] for row in page["items"]]
                before = page["next"]
                if before is None:
                    return due

    due = run(story)
    assert len(set(due)) == len(due) == 5


def test_a_schedule_is_created_forecast_planned_and_deleted(served):
    async def story():
        async with served("root") as client:
            made = await ok(client, "schedules_create", name="daily", template="echo", cron="0 9 * * *", timezone="Europe/Berlin")
            assert made["name"] == "daily"
            forecast = await ok(client, "forecast", hours=48)
            assert len(forecast["items"]) == 2
            assert forecast["cut"] is False
            plan = await ok(client, "plan", name="daily", days=7, cron="0 10 * * *")
            assert len(plan["added"]) == len(plan["removed"]) == 7
            assert await ok(client, "schedules_delete", name="daily") == {"result": None}
            assert (await ok(client, "schedules_list")) == {"items": [], "next": None}

    run(story)


def test_the_text_of_a_result_is_its_structured_content(served):
    async def story():
        async with served(None) as client:
            return [await client.call_tool(name, {}) for name in ("overview", "jobs_list", "store_stats", "store_pauses", "templates_list")]

    for result in run(story):
        assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("jobs_get", {"job": "JOB-2026-99999"}, "there is no job 'JOB-2026-99999' in this store"),
        ("jobs_list", {"limit": "ten"}, "limit='ten': expected int, got str"),
        ("jobs_list", {"colour": "red"}, "list has no parameter 'colour'"),
        ("jobs_list", {"since": "2026-01-01T00:00:00"}, "since: '2026-01-01T00:00:00' has no time zone"),
        ("enqueue", {"name": "nothing"}, "'nothing'"),
        ("enqueue", {"name": "echo", "params": {"volume": 11}}, "volume"),
        ("enqueue", {"name": "echo", "priority": 1000}, "1000"),
        ("no_such_tool", {}, "there is no tool 'no_such_tool'"),
    ],
)
def test_what_rota_refuses_is_an_error_with_its_words(served, name, arguments, words):
    async def story():
        async with served(None) as client:
            return await client.call_tool(name, arguments)

    result = run(story)
    assert result.is_error
    assert words in result.content[0].text
    assert result.structured_content["message"] == result.content[0].text
    assert result.structured_content["code"]


def test_what_nobody_expected_is_logged_and_not_shown(served, monkeypatch, caplog):
    def broken(*_args, **_keywords):
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(Jobs, "get", broken)

    async def story():
        async with served(None) as client:
            words = await refused(client, "jobs_get", job="1")
            await ok(client, "jobs_list")
            return words

    words = run(story)
    assert words == "the call failed because of an error in Rota; the server's log has the details"
    (record,) = [record for record in caplog.records if record.name == "rota.mcp"]
    assert record.getMessage() == "tool jobs_get failed"
    assert record.exc_info


def test_secrets_are_returned_once_and_never_logged(served, caplog):
    caplog.set_level(logging.DEBUG)

    async def story():
        async with served("root") as client:
            token = await ok(client, "tokens_create", name="ci", permits=["read"], expires_in="1h")
            webhook = await ok(client, "webhooks_create", url="https://example.com/hook")
            rotated = await ok(client, "webhooks_rotate", webhook=webhook["webhook"]["id"])
            shown = [await ok(client, name) for name in ("tokens_list", "webhooks_list", "audit_list")]
            return [token["secret"], webhook["secret"], rotated["result"]], shown

    secrets, shown = run(story)
    assert len({secret for secret in secrets if len(secret) > 20}) == 3
    for secret in secrets:
        assert secret not in json.dumps(shown)
        assert not [record for record in caplog.records if record.name.startswith("rota") and secret in record.getMessage()]


def test_a_token_that_may_not_read_is_told_only_that_its_act_has_worked(served, shared):
    job = shared.acting_as("ada").enqueue("echo", {"text": "secret"})
    writer = Actor("ada", "acme", "admin", operations=frozenset({Right.STEER, Right.SUBMIT, Right.CANCEL}))

    async def story():
        async with served(writer) as client:
            assert "jobs_get" not in await names(client)
            return await ok(client, "jobs_cancel", job=job.id)

    shown = run(story)
    assert shown["status"] == "CANCELLED"
    assert "params" not in shown


def test_calls_do_not_run_on_the_event_loop(served, monkeypatch):
    seen = []
    monkeypatch.setattr(Jobs, "attempts", lambda *_, **__: seen.append(threading.current_thread()) or [])

    async def story():
        async with served(None) as client:
            await ok(client, "jobs_attempts", job="1")
            return threading.current_thread()

    assert run(story) not in seen
    assert len(seen) == 1


def test_a_call_that_is_cancelled_holds_up_nobody(served, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_args, **_keywords):
        begun.set()
        go_on.wait(patient(20))
        return []

    monkeypatch.setattr(Jobs, "attempts", slow)

    async def story():
        async with served(None) as client:
            waiting = asyncio.create_task(client.call_tool("jobs_attempts", {"job": "1"}))
            await asyncio.to_thread(begun.wait, patient(10))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await ok(client, "jobs_list")
            go_on.set()
            await ok(client, "jobs_list")

    try:
        run(story)
    finally:
        go_on.set()


# ---- the process ------------------------------------------------------------------------------------------------------


@MODES
def test_the_process_lists_and_calls_tools(cli, mode):
    async def story():
        async with process(cli, "--app", "shop:rota", mode=mode) as client:
            assert client.server_info.name == "rota"
            assert await names(client) == set(all_tools())
            job = await ok(client, "enqueue", name="greet", params={"name": "Ada"})
            assert "there is no job" in await refused(client, "jobs_get", job="999")
            return job

    job = run(story)
    shown = cli.json("job", "get", job["number"])
    assert (shown["params"], shown["owner"]) == ({"name": "Ada"}, "tester")


def test_the_process_takes_twenty_calls_at_once(cli):
    async def story():
        async with process(cli, "--app", "shop:rota") as client:
            jobs = await asyncio.gather(*(ok(client, "enqueue", name="greet", params={"name": str(number)}) for number in range(20)))
            page = await ok(client, "jobs_list", limit=50)
            return jobs, page

    jobs, page = run(story)
    assert len({job["id"] for job in jobs}) == 20
    assert {job["id"] for job in page["items"]} == {job["id"] for job in jobs}


def test_the_process_acts_as_the_user_of_as(cli):
    cli.ok("user", "create", "tester", "--role", "system_manager")
    cli.ok("user", "create", "ada", "--role", "user")

    async def story():
        async with process(cli, "--as", "ada") as client:
            found = await names(client)
            assert {"jobs_list", "enqueue"} <= found
            assert not {"tokens_create", "jobs_update"} & found

    run(story)
    result = cli("mcp", "--as", "mallory")
    assert result.exit_code == 1
    assert "'mallory'" in result.stderr


async def begun(client: Client, **arguments: object) -> asyncio.Task:
    """Call a job directly, and return when its handler runs."""
    call = asyncio.create_task(client.call_tool("jobs_direct", {"name": "sleeps", "params": arguments}))
    while not (await ok(client, "jobs_list", status=["RUNNING"]))["items"]:  # noqa: ASYNC110 - another process is waited for
        await asyncio.sleep(0.05)
    return call


def test_a_client_that_cancels_does_not_hang_the_process(cli):
    async def story():
        async with process(cli, "--app", "shop:rota") as client:
            call = await begun(client, seconds=patient(30))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len((await ok(client, "jobs_list"))["items"]) == 1

    run(story)


def test_a_call_that_has_begun_is_finished_when_the_client_goes_away(cli):
    async def story():
        async with process(cli, "--app", "shop:rota") as client:
            call = await begun(client, seconds=0.5)
        call.cancel()

    run(story)
    (job,) = cli.lines("job", "list")
    assert job["status"] == "COMPLETED"


def test_what_an_application_prints_does_not_disturb_the_protocol(cli):
    shop = cli.folder / "shop.py"
    shop.write_text("print('loaded')\n" + shop.read_text())

    async def story():
        async with process(cli, "--app", "shop:rota") as client:
            return await ok(client, "templates_list")

    assert "greet" in [template["name"] for template in run(story)["items"]]


def test_the_process_ends_when_its_input_does(cli):
    cli.ok("user", "create", "tester", "--role", "system_manager")
    done = subprocess.run(
        cli.command("mcp"),
        cwd=cli.folder,
        env=cli.environment(),
        input="",
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_store_that_is_not_there_is_not_made(cli):
    result = cli("mcp")
    assert result.exit_code == 3
    assert not cli.store.exists()


def test_without_the_package_the_command_names_the_extra(cli, monkeypatch):
    monkeypatch.setattr("rota.surfaces.cli.mcp.find_spec", lambda _name: None)
    result = cli("mcp")
    assert result.exit_code == 1
    assert "pip install '.[mcp]'" in result.stderr


def test_the_package_is_imported_only_when_it_is_used(tmp_path):
    program = (
        "import sys; from rota import Rota; from rota.surfaces.http import make_app; import rota.surfaces.cli.mcp;"
        f"make_app(Rota({str(tmp_path / 'rota.db')!r})); sys.exit('mcp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=patient(30)).returncode == 0


# ---- queries ----------------------------------------------------------------------------------------------------------

MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i, :text AS text FROM n"


def test_statements_that_only_read_are_run(served, shared):
    shared.acting_as("ada").sql("CREATE JOB nightly SCHEDULE = EVERY 1 HOUR CALL echo()")

    async def story():
        async with served("ada") as client:
            found = await ok(
                client,
                "sql_query",
                sql="SELECT job_name FROM sys.jobs WHERE job_name = :name; SHOW JOBS; EXPLAIN JOB nightly; FORECAST FOR 2 HOURS",
                params={"name": "nightly"},
            )
            assert found["results"][0] == {
                "tag": "SELECT 1",
                "columns": ["job_name"],
                "rows": [["nightly"]],
                "count": 1,
                "cut": False,
                "notices": [],
            }
            assert len(found["results"]) == 4
            assert await ok(client, "sql_query", sql="PLAN DROP JOB nightly")
        async with served("eve") as client:
            assert (await ok(client, "sql_query", sql="SHOW JOBS"))["results"][0]["rows"] == []

    run(story)


@pytest.mark.parametrize(
    "text",
    [
        "DROP JOB nightly",
        "SHOW JOBS; EXECUTE JOB nightly",
        "CREATE JOB x SCHEDULE = EVERY 1 HOUR CALL echo()",
        "CREATE SECRET s VALUE 'hunter2'",
        "PAUSE JOB nightly",
    ],
)
def test_a_statement_that_changes_something_is_refused_before_any_is_run(served, shared, text):
    async def story():
        async with served("root") as client:
            return await refused(client, "sql_query", sql=text)

    words = run(story)
    assert "changes something; only SELECT, SHOW, EXPLAIN, PLAN and FORECAST are allowed here" in words
    assert "hunter2" not in words
    assert shared.sql("SHOW JOBS")[0].rows == ()


def test_a_long_answer_is_cut_and_says_so(served):
    async def story():
        async with served("ada") as client:
            (usual,) = (await ok(client, "sql_query", sql=MANY, params={"text": "a"}))["results"]
            assert (len(usual["rows"]), usual["count"], usual["cut"]) == (100, 3000, True)
            (wide,) = (await ok(client, "sql_query", sql=MANY, params={"text": "b" * 5000}, limit=1000))["results"]
            assert len(json.dumps(wide)) < 300_000
            assert len(wide["rows"][0][1]) == 2001
            assert wide["cut"]
            assert "limit" in await refused(client, "sql_query", sql=MANY, limit=5000)
            assert "1:8" in await refused(client, "sql_query", sql="SELECT nope FROM sys.jobs")

    run(story)


def test_a_long_list_is_cut_and_says_how_many_there_are():
    shown = document(list(range(ITEMS_MAX + 5)), LOCAL)
    assert (len(shown["items"]), shown["cut"], shown["count"]) == (ITEMS_MAX, True, ITEMS_MAX + 5)
    assert "cut" not in document(list(range(ITEMS_MAX)), LOCAL)
