"""The requests that handlers make through their Context, done by their worker's Rota in the name of the job's owner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from rota.engine.patience import Patience
from rota.errors import NotFound
from rota.executors.calls import NewCall, read_call, read_page_request, written_page
from rota.model.call import NewJob
from rota.model.checks import unknown_option
from rota.model.values import Claimed, dashed, undashed
from rota.orders import Orders, encoded_order, owner_of
from rota.ports.executor import Question, Request
from rota.ports.store import Store
from rota.session import Session
from rota.submission import submit

PAGE = 100
"""Results that are read at once."""
OPTIONS = tuple(name for name in NewJob.__struct_fields__ if name not in {"name", "params", "handler"})


class HandlerCalls:
    """Answers the requests of a worker's handlers. Any thread may call it."""

    def __init__(self, session: Session, store: Store) -> None:
        """Take the session of the worker's Rota, and the store that the worker is on."""
        self._session = session
        self._store = store
        self._orders = Orders(session, store)

    def __call__(self, job: Claimed, request: Request, check: Callable[[], None]) -> str:
        """Do what the handler of a job asks for. While the store is away it is tried again, for as long as the handler may run."""
        match request.question:
            case Question.ENQUEUE:
                ask = self._enqueuing(job, read_call(request.body))
            case Question.RESULTS:
                ask = self._reading(job, request.body)
            case Question.ORDER:
                ask = partial(encoded_order, self._orders, job)

        def checked() -> str:
            check()
            return ask()

        return Patience(outage_s=job.timeout or self._session.settings.busy_timeout).ask(checked)

    def _reading(self, job: Claimed, body: str) -> Callable[[], str]:
        request = read_page_request(body)
        wanted = request.wanted

        def read() -> str:
            root_id = None if wanted.job is None else self._root_of(wanted.job)
            page = self._store.results_before(job.root_id, after=request.after, limit=PAGE, template=wanted.template, parent=root_id)
            return written_page(page.results, page.next)

        return read

    def _root_of(self, given: str) -> str:
        """Return the chain of a job; "" for one that is not there, which no job has waited for."""
        try:
            job = self._store.job(self._session.job_id(given))
        except NotFound:
            return ""
        return "" if job is None else undashed(job.root_id) or ""

    def _enqueuing(self, job: Claimed, call: NewCall) -> Callable[[], str]:
        unknown = next((name for name in call.options if name not in OPTIONS), None)
        if unknown is not None:
            raise unknown_option("ctx.enqueue", unknown, OPTIONS)
        session = self._session
        # One id for every try: a second one finds what the first has written.
        own_id = dashed(session.ids.take(1, session.clock.now())[0])
        options = {"job_id": own_id} | call.options

        def enqueue() -> str:
            owner = owner_of(session, self._store, job.owner, job.organization_id)
            made = submit(session, owner, call.name, call.params, **options).job()
            if "job_id" not in call.options and made.id == own_id:
                made.existing = False
            return msgspec.json.encode(made).decode()

        return enqueue
