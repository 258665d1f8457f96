"""What tests of pages share: a store with a day behind it, and browsers for everybody who looks at it."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Annotated

from msgspec import Meta
from starlette.testclient import TestClient

from rota import Context, NewJob, PermanentError, Rota, Settings
from rota.model.access import csrf_of
from rota.surfaces.http import make_app
from rota.surfaces.http.access import COOKIE
from tests.support.clock import ManualClock
from tests.support.pace import patient

HOSTILE = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
ACCEPT = {"accept": "text/html,application/xhtml+xml"}
HOURS = 24


class Browser:
    """A browser without JavaScript: it follows redirects, keeps cookies, and sends a form as the page has it."""

    def __init__(self, client: TestClient, secret: str | None = None) -> None:
        self.client = client
        if secret is not None:
            assert self.post("/login", token=secret).status_code == 200

    def get(self, path: str):
        return self.client.get(path, headers=ACCEPT)

    def post(self, path: str, **fields: object):
        return self.client.post(path, data=fields, headers=ACCEPT)

    @property
    def csrf(self) -> str:
        (session,) = (value for name, value in self.client.cookies.items() if name.startswith(COOKIE))
        return csrf_of(session)

    def act(self, path: str, **fields: object):
        """Send a form of the page's own, and say yes if it asks."""
        first = self.post(path, csrf=self.csrf, **fields)
        return self.post(path, csrf=self.csrf, sure="yes", **fields) if "x-rota-ask" in first.headers else first


def said(answer) -> str:
    """Return what a page says was done."""
    found = re.search(r'<p class="said" role="status">(.*?)</p>', answer.text, re.DOTALL)
    return found[1] if found else ""


@contextmanager
def browsing(rota: Rota) -> Iterator:
    """Lend a maker of browsers, each with a token of a user of the store."""
    app = make_app(rota)

    def browser(user: str | None, *permits: str) -> Browser:
        made = rota.tokens.create(f"of {user}", user=user, permits=permits or ("read", "submit", "operate", "manage"))
        return Browser(TestClient(app, base_url="http://localhost"), made.secret)

    yield browser


@dataclass
class Sender:
    """Whom a report comes from."""

    name: str
    address: Annotated[str, Meta(description="Replies go here.")]
    verified: bool = True


SHOP = """
from datetime import date, datetime
from typing import Annotated, Literal

from msgspec import Meta

from rota import Backoff, Context, PermanentError


@rota.job(description="Send one invoice by mail.", max_retries=1, backoff=Backoff(base=20, jitter=0))
def send_invoice(ctx: Context, order: int) -> str:
    day.work(1.2)
    if order % 23 == 0:
        raise ConnectionError("mail.example.org refused the connection")
    return f"invoice {order} is on its way"


@rota.job(description="Ask the partner for its stock.", max_retries=2, backoff=Backoff(base=60, jitter=0))
def sync_partner(ctx: Context, partner: str) -> dict[str, int]:
    day.work(9)
    if day.chance.random() < 0.12:
        raise TimeoutError(f"{partner} did not answer")
    return {"items": day.chance.randint(100, 900)}


@rota.job(description="Make thumbnails.", max_running=4)
def resize_images(ctx: Context, album: str, count: int) -> None:
    if day.past:
        return day.work(25)
    for step in range(count):
        ctx.progress(round(100 * step / count), f"image {step + 1} of {count}")
        if day.release.wait(0.3) or ctx.cancelled:
            return


@rota.job(description="Close the books of the day.", max_retries=0)
def close_books(ctx: Context) -> None:
    ctx.log.info("closing the books")
    day.work(40)
    ctx.log.warning("ledger and bank differ by 12.50")
    raise PermanentError("ledger and bank differ by 12.50: nobody may close these books")


@rota.job(description="Copy what is new to the warehouse.")
def load_warehouse(ctx: Context, table: str = "orders") -> None:
    day.work(15)


@rota.job(description="Send a report by mail.")
def send_report(
    recipient: Annotated[str, Meta(description="The mail address of the recipient.", min_length=3, max_length=120)],
    month: date,
    sender: Sender,
    layout: Literal["table", "chart"] = "table",
    copies: Annotated[int, Meta(ge=1, le=10, description="Printed copies.")] = 1,
    not_after: datetime | None = None,
    attach: bool = True,
    body: Annotated[str, Meta(max_length=2000)] = "Here is your report.",
    columns: list[str] = ["orders", "revenue"],
) -> None:
    day.work(1)


@rota.job(description="Throw away what nobody needs.", priority="low")
def clean_up() -> None:
    day.work(3)
"""


ORDERS_SQL = """SELECT id, customer, region, total, note
  FROM orders
 WHERE region = :region
 ORDER BY id"""


def run_sql(rota: Rota, folder: Path, name: str, region: str) -> str:
    """Define a template of SQL and run one job of it; return the id of the job."""
    with closing(sqlite3.connect(folder / "shop.db")) as raw, raw:
        raw.execute("CREATE TABLE orders (id INTEGER, customer TEXT, region TEXT, total REAL, note TEXT)")
        orders = [(id_, f"customer {id_ % 7}", region, id_ * 12.5, None if id_ % 3 else HOSTILE) for id_ in range(1, 13)]
        raw.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", orders)
    rota.connections.create("shop", f"sqlite:///{folder}/shop.db")
    rota.templates.sql(name, ORDERS_SQL, connection="shop", description="Orders of one region.", timeout="5m")
    return rota.jobs.direct(name, {"region": region}).job_id


class LongNames:
    """A store in which everything has a name of 255 characters without a break."""

    def __init__(self, folder: Path) -> None:
        self.release = threading.Event()
        self.schedule, self.template, self.form = ("".join((kind, "x" * (255 - len(kind)))) for kind in ("schedule", "dies", "runs"))
        self.rota = rota = Rota(folder / "rota.db", settings=Settings(poll_hinted=0.05, sql_paths=str(folder)))

        @rota.job(name=self.template, max_retries=0)
        def dies(text: str) -> None:
            raise PermanentError(text)

        @rota.job(name=self.form)
        def runs(ctx: Context, text: str = "") -> None:
            ctx.progress(10, text)
            self.release.wait()

        rota.schedule(self.schedule, self.form, cron="0 * * * *", params={"text": "p" * 255})
        dead = rota.enqueue(self.template, {"text": "e" * 255}, unique_key="k" * 255)
        rota.turn()
        assert rota.jobs.get(dead.id).status == "DEAD_LETTER"
        rota.enqueue(self.form, {"text": "t" * 255})
        self.parent = rota.enqueue(self.form, {"text": "w" * 255}, run_at=timedelta(hours=2))
        rota.enqueue(self.template, {"text": "c" * 255}, depends_on=[self.parent])
        rota.templates.pause(self.template)
        for _ in range(3):
            rota.enqueue(self.template, {"text": "q" * 255})
        self.group = rota.group([NewJob(name=self.template, params={"text": "g"})] * 2, name="g" * 255, mode="sequential")
        self.user = "u" * 255
        rota.organizations.create("o" * 255)
        rota.users.create(self.user, organization="o" * 255, role="system_manager")
        self.sql_template = "w" * 255
        self.rows = run_sql(rota, folder, self.sql_template, "n" * 255)
        rota.connections.create("c" * 255, f"postgresql://{'h' * 255}/{'d' * 255}", login="l" * 255, secret_name="s" * 128)

    def close(self) -> None:
        self.release.set()
        self.rota.close()


class Crowd:
    """A store with lists of a thousand rows, and a group of ten thousand members, each with a name of 255 characters without a break."""

    user = None

    def __init__(self, folder: Path) -> None:
        self.rota = rota = Rota(folder / "rota.db", settings=Settings(poll_hinted=0.05, synchronous="NORMAL"))
        name = "job" + "x" * 252
        rota.job(name=name)(lambda text="": None)
        rota.templates.pause(name)
        for number in range(1000):
            rota.schedules.create(f"{number:04}" + "s" * 251, name, cron="0 0 1 1 *")
        self.group = rota.group([NewJob(name=name, params={"text": "g" * 255})] * 10_000, name="g" * 255)
        self.paths = ["/", "/schedules", "/groups", f"/groups/{self.group.id}", "/jobs", "/queue", "/templates", "/audit"]

    def close(self) -> None:
        self.rota.close()


class Day:
    """A store with a day behind it and work before it."""

    schedule, template, form, sql_template = "partner stock", "send_invoice", "send_report", "orders_by_region"
    user = None

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rota.db"
        self.clock = ManualClock(datetime.now(UTC) - timedelta(hours=HOURS))
        self.release = threading.Event()
        self.chance = Random(11)
        with_history = Rota(self.path, clock=self.clock, seed=3)
        self._define(with_history)
        self._live_through(with_history)
        with_history.close()
        self.rota = Rota(self.path, settings=Settings(poll_hinted=0.05, sql_paths=str(folder)))
        self._define(self.rota)
        self._begin()
        self.rows = run_sql(self.rota, folder, self.sql_template, "north")

    def _define(self, rota: Rota) -> None:
        """Let a Rota know the jobs of the shop, as if they stood in a module of its own."""
        exec(compile(SHOP, "shop/jobs.py", "exec"), {"__name__": "shop.jobs", "rota": rota, "day": self, "Sender": Sender})

    def work(self, seconds: float) -> None:
        """Let time pass in a handler."""
        self.clock.advance(seconds=self.chance.uniform(0.4, 1.6) * seconds)

    @property
    def past(self) -> bool:
        """Say whether the day is still being lived through."""
        return not hasattr(self, "rota")

    def _live_through(self, rota: Rota) -> None:
        rota.schedule("hourly load", "load_warehouse", every="1h")
        rota.schedule("partner stock", "sync_partner", cron="*/30 * * * *", params={"partner": "Globex"}, description="What they have left")
        rota.schedule("nightly books", "close_books", cron="30 2 * * *", timezone="Europe/Berlin")
        rota.schedule("weekly clean-up", "clean_up", cron="0 5 * * 0", timezone="America/New_York")
        rota.schedule("tidy", "clean_up", cron="15 */4 * * *")
        rota.schedules.pause("tidy")
        end, order = datetime.now(UTC) - timedelta(seconds=40), 1
        while self.clock.now() < end.timestamp() * 1e6:
            rota.enqueue_many([("send_invoice", {"order": order + place}) for place in range(self.chance.randint(4, 16))])
            order += 16
            rota.enqueue("resize_images", {"album": f"summer {order}", "count": 20})
            rota.turn()
            left = end.timestamp() - self.clock.now() / 1e6
            self.clock.advance(seconds=max(1.0, min(1200.0, left)))
        rota.turn()

    def _begin(self) -> None:
        """Leave something running, waiting, stuck and broken."""
        rota = self.rota
        rota.enqueue("resize_images", {"album": "wedding", "count": 300}, priority="high")
        rota.enqueue("resize_images", {"album": "harbour", "count": round(patient(900))})  # still running at the end of the tests
        self.parent = rota.enqueue("load_warehouse", {"table": "orders"}, run_at=timedelta(hours=2))
        rota.enqueue("load_warehouse", {"table": "margins"}, depends_on=[self.parent])
        rota.templates.pause("sync_partner")
        for partner in ("Initech", "Hooli", "Umbrella", "Stark"):
            rota.enqueue("sync_partner", {"partner": partner})
        self.group = rota.group(
            [NewJob(name="clean_up"), NewJob(name="load_warehouse", params={"table": "stock"})], name="evening", mode="sequential"
        )
        rota.templates.update("send_invoice", rate_limit="100/60s")
        rota.connections.create("warehouse", "postgresql://wh.shop.example/dw", login="etl", secret_name="wh_password")
        rota.connections.create("ledger", "sqlite:////var/lib/shop/ledger.db", multi=True)
        rota.grants.create("USE", "PUBLIC", connection="warehouse")

    def close(self) -> None:
        self.release.set()
        self.rota.close()
