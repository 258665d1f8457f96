"""One event in Sentry for each failure, wherever the handler ran. With the real SDK, and a server that takes its envelopes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.contrib.sentry_server import SentryServer
from tests.support.app_module import HEAD
from tests.support.pace import patient
from tests.support.prepared import prepare

APP = """
import sentry_sdk
from sentry_sdk.integrations.logging import LoggingIntegration
from rota.contrib import sentry

# Without this each process imports every library that the SDK knows and finds here, which takes a second.
sentry_sdk.init({dsn!r}, release="1", disabled_integrations=[{disabled}], auto_enabling_integrations=False)
sentry.watch(rota{options})
sentry.watch(rota{options})

class OutOfStock(Exception):
    pass

def look(shelf):
    raise OutOfStock("no tea")

def restock(shelf=1):
    sentry_sdk.add_breadcrumb(message="looking")
    try:
        {{}}["tea"]
    except KeyError:
        look(shelf)

async def restock_async(shelf=1):
    sentry_sdk.add_breadcrumb(message="looking")
    look(shelf)

for place in ("inline", "thread", "process"):
    rota.job(restock, name=place, executor=place, max_retries=1, backoff=Backoff(base=0, jitter=0))
rota.job(restock_async, name="async", max_retries=1, backoff=Backoff(base=0, jitter=0))

@rota.job(timeout=0.1, max_retries=0)
def sleeps():
    import time
    time.sleep(2)

@rota.job
def fine():
    return 1

@rota.job(executor="process")
def says():
    sentry_sdk.capture_message("by the way")
    sentry_sdk.flush()

def run(*names):
    jobs = [rota.enqueue(name) for name in names]
    with rota.running(concurrency=2):
        for job in jobs:
            rota.wait(job.id, timeout={wait})
    rota.close()
    sentry_sdk.flush()

if __name__ == "__main__":
    run(*sys.argv[1:])
"""


@pytest.fixture
def server() -> Iterator[SentryServer]:
    made = SentryServer()
    yield made
    made.close()


def run(tmp_path, server, *names: str, logging: bool = True, options: str = "") -> list[dict]:
    """Run these in a program of its own; return the events that came."""
    script = tmp_path / "script.py"
    text = APP.format(dsn=server.dsn, disabled="" if logging else "LoggingIntegration()", options=options, wait=patient(30))
    head = HEAD.format(store=str(prepare(tmp_path / "rota.db"))).replace("import Context,", "import Backoff, Context,")
    script.write_text(head + text)
    done = subprocess.run([sys.executable, str(script), *names], capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    return server.events


@pytest.mark.parametrize("logging", [True, False])
def test_each_failed_attempt_is_one_event_with_its_tags_and_frames(tmp_path, server, logging):
    places = ("inline", "thread", "async", "process")
    events = run(tmp_path, server, *places, "fine", logging=logging)
    tags = [event["tags"] for event in events]
    assert sorted((tag["template"], int(tag["attempt"])) for tag in tags) == sorted(
        (place, attempt) for place in places for attempt in (1, 2)
    )
    assert len({tag["job"] for tag in tags}) == len(tags), "each attempt is a job of its own"
    for event in events:
        place = event["tags"]["template"]
        raised = event["exception"]["values"][-1]
        assert (raised["type"], raised["value"], raised["mechanism"]["type"], event["level"]) == ("OutOfStock", "no tea", "rota", "error")
        frames = raised["stacktrace"]["frames"]
        assert [frame["function"] for frame in frames] == ["restock_async" if place == "async" else "restock", "look"]
        assert frames[-1]["context_line"].strip() == 'raise OutOfStock("no tea")'
        assert frames[-1]["lineno"] > 0
        assert event["contexts"]["rota"]["worker"]
        assert event["tags"]["number"].startswith("JOB-")
        assert event["tags"]["organization"] == "default"
        messages = [crumb.get("message") for crumb in event.get("breadcrumbs", {}).get("values", [])]
        assert messages.count("looking") == (0 if place == "process" else 1), "of its own attempt only"


def test_only_dead_letters_if_asked_for(tmp_path, server):
    events = run(tmp_path, server, "thread", "process", options=", dead_letters_only=True")
    assert sorted((event["tags"]["template"], int(event["tags"]["attempt"])) for event in events) == [("process", 2), ("thread", 2)]


def test_a_timeout_is_an_event_without_an_exception(tmp_path, server):
    (event,) = run(tmp_path, server, "sleeps")
    assert "exception" not in event
    assert event["logentry"]["message"] == "sleeps failed: timed out after 0.1 s"
    assert event["tags"]["template"] == "sleeps"


def test_what_a_handler_sends_itself_has_the_tags_of_its_job(tmp_path, server):
    (event,) = run(tmp_path, server, "says")
    text = event.get("message") or event["logentry"]["message"]
    assert (text, event["tags"]["template"], int(event["tags"]["attempt"])) == ("by the way", "says", 1)


def test_rota_itself_imports_nothing_of_sentry():
    code = "import sys, rota; rota.Rota; assert not any(name.startswith('sentry') or 'contrib' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patient(30))


def test_without_the_sdk_it_says_what_to_install():
    code = "import sys; sys.modules['sentry_sdk'] = None\nfrom rota.contrib import sentry"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(30), check=False)
    assert "rota.contrib.sentry needs sentry-sdk: install Rota with its extra sentry" in done.stderr
