"""The queue in the order in which it will be claimed; jobs of one line change places."""

from __future__ import annotations

from starlette.responses import Response

from rota.errors import InvalidOption
from rota.model.values import Job
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import Visit

router = page_router()

SHOWN = 100


class Place:
    """One place of the queue, and its neighbours: jobs of the same organization and priority, among which it can be moved."""

    def __init__(self, number: int, job: Job, before: Job | None) -> None:
        """Take the job, and the one before it in its line."""
        self.number = number
        self.job = job
        self.before = before
        self.after: Job | None = None


@router.get("/queue")
def show(visit: Visit) -> Response:
    """Show the head of the queue."""
    found = visit.rota.acting_as(visit.actor).queues.jobs(limit=SHOWN + 1)
    places: list[Place] = []
    last: dict[tuple[str, int], Place] = {}
    for number, job in enumerate(found[:SHOWN], 1):
        line = (job.organization, job.priority)
        neighbour = last.get(line)
        place = Place(number, job, None if neighbour is None else neighbour.job)
        if neighbour is not None:
            neighbour.after = job
        last[line] = place
        places.append(place)
    return visit.page("queue.html", places=places, more=len(found) > SHOWN, pauses=visit.rota.acting_as(visit.actor).store.pauses())


@router.post("/queue/move")
def move(visit: Visit) -> Response:
    """Move one job: `ID front`, `ID before OTHER` or `ID after OTHER`."""
    job, _, rest = visit.form.need("move").partition(" ")
    where, _, other = rest.partition(" ")
    if where == "front":
        done = visit.rota.acting_as(visit.actor).jobs.move(job, front=True)
    elif where == "before" and other:
        done = visit.rota.acting_as(visit.actor).jobs.move(job, before=other)
    elif where == "after" and other:
        done = visit.rota.acting_as(visit.actor).jobs.move(job, after=other)
    else:
        raise InvalidOption(f"move={rest[:40]!r} is not front, before or after another job")
    return visit.done(f"{done.number} is moved.", "/queue")
