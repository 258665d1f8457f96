"""What looks at pages in a real browser: Chromium, the two sizes of its window, and a server with every page."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from rota.surfaces.http import make_app
from rota.surfaces.http.pages.context import NAV
from tests.support.pace import patient
from tests.support.waiting import eventually
from tests.surfaces.http.pages_support import Day, LongNames

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """Lend a Chromium for the time of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


QUERY = "SELECT job_type, count(*) AS jobs, max(attempt) AS attempts FROM sys.history GROUP BY job_type; SELECT * FROM sys.queue"
"""A query whose results have a chart, many columns, and the longest names."""


class Served:
    """A store with a day behind it, a worker, and a server on a port of its own."""

    def __init__(self, folder: Path, day: type[Day | LongNames] = Day) -> None:
        self.day = day(folder)
        self.rota = self.day.rota
        self.rota.start(concurrency=4)
        self.secret = self.rota.tokens.create("picture", user=self.day.user, permits=["manage"]).secret
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._app, self._mounted = make_app(self.rota), make_app(self.rota)
        site = Starlette(routes=[Mount("/rota", self._mounted), Mount("/", self._app)])
        self._server = uvicorn.Server(uvicorn.Config(site, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._app.state.closing.set()
        self._mounted.state.closing.set()
        self._server.should_exit = True
        self._thread.join(patient(10))
        self.day.close()

    def pages(self) -> dict[str, str]:
        """Return every page, with one of each thing."""
        dead, running = self.rota.dead_letters.list()[0], eventually(self.rota.workers.jobs)[0]
        return {href: href for href, _, _ in NAV} | {
            "dead job": f"/jobs/{dead.id}",
            "running job": f"/jobs/{running.id}",
            "waiting job": f"/jobs/{self.day.parent.id}",
            "schedule": f"/schedules/one?{urlencode({'name': self.day.schedule})}",
            "month": "/schedules/month",
            "group": f"/groups/{self.day.group.id}",
            "template": f"/templates/one?{urlencode({'name': self.day.template})}",
            "template of SQL": f"/templates/one?{urlencode({'name': self.day.sql_template})}",
            "job of SQL": f"/jobs/{self.day.rows}",
            "define a template": "/templates/define",
            "change a definition": f"/templates/define?{urlencode({'name': self.day.sql_template})}",
            "choose a template": "/jobs/new",
            "enqueue": f"/jobs/new?{urlencode({'name': self.day.form})}",
            "enqueue, as JSON": f"/jobs/new?{urlencode({'name': self.day.form, 'params_as': 'json'})}",
            "choose a schedule's template": "/schedules/new",
            "create a schedule": f"/schedules/new?{urlencode({'template': self.day.form})}",
            "change a schedule": f"/schedules/one/change?{urlencode({'name': self.day.schedule})}",
            "change": f"/jobs/{self.day.parent.id}/change",
            "query": f"/sql?{urlencode({'sql': QUERY})}",
        }

    def session(self, browser: Browser) -> dict:
        """Log in by the link that the terminal prints, and return the cookies."""
        context = browser.new_context()
        context.set_default_timeout(patient(30_000))
        page = context.new_page()
        page.goto(f"{self.base}/login#token={self.secret}")
        page.wait_for_url(f"{self.base}/")
        state = context.storage_state()
        context.close()
        return state
