"""A param that has the name of the handler's Context parameter: the handler could never be passed it, so it is refused on every way in."""

from contextlib import closing

import pytest

from rota import Context, NewJob, Rota
from rota.errors import InvalidOption, InvalidParams, RotaError
from tests.support.runs import run_of

REFUSAL = r"f\(\) receives its Context in the parameter 'ctx', so params can't have that name: rename the param"


def edited_schedule(rota, params):
    rota.schedules.create("hourly", "f", every="1h")
    rota.schedules.update("hourly", params=params)


def fired(rota, params):
    rota.schedules.create("hourly", "f", every="1h")
    rota.schedules.fire("hourly", params)


WAYS_IN = {
    "enqueue": lambda rota, params: rota.enqueue("f", params),
    "with options": lambda rota, params: rota.enqueue("f", params, priority="high"),
    "pairs": lambda rota, params: rota.enqueue_many([("f", params)]),
    "new jobs": lambda rota, params: rota.enqueue_many([NewJob(name="f", params=params)]),
    "group": lambda rota, params: rota.group([("f", params)]),
    "direct": lambda rota, params: rota.jobs.direct("f", params),
    "schedule": lambda rota, params: rota.schedule("hourly", "f", every="1h", params=params),
    "create_schedule": lambda rota, params: rota.schedules.create("hourly", "f", every="1h", params=params),
    "edit_schedule": edited_schedule,
    "fire": fired,
    "change": lambda rota, params: rota.jobs.update(rota.enqueue("f").id, params=params),
}


@pytest.fixture
def anything(rota: Rota) -> Rota:
    def f(ctx: Context, **kw):
        return kw

    rota.job(f)
    return rota


@pytest.mark.parametrize("way", WAYS_IN.values(), ids=WAYS_IN.keys())
def test_it_is_refused_on_every_way_in_also_by_a_handler_that_takes_anything(anything, way):
    with pytest.raises(RotaError, match=REFUSAL):
        way(anything, {"ctx": 1})


def test_it_is_refused_by_a_handler_that_names_its_parameters(rota):
    @rota.job
    def f(ctx: Context, word):
        return word

    with pytest.raises(InvalidParams, match=REFUSAL):
        rota.enqueue("f", {"word": 1, "ctx": 1})


def test_it_is_refused_as_a_default_param_of_code(rota):
    with pytest.raises(InvalidOption, match=REFUSAL):
        rota.job(lambda ctx, **kw: None, name="f", default_params={"ctx": 1})


def test_it_is_refused_as_a_default_param_of_people(rota, anything):
    with pytest.raises(InvalidOption, match=REFUSAL):
        rota.templates.update("f", default_params={"ctx": 1})


def test_every_other_name_is_passed_on(anything):
    job = anything.enqueue("f", {"context": 1, "self": 2})
    anything.turn()
    assert run_of(anything, job.id).result == {"context": 1, "self": 2}


def test_where_the_handler_takes_no_context_the_name_is_as_good_as_any(rota):
    rota.job(lambda **kw: kw, name="g")
    job = rota.enqueue("g", {"ctx": 1})
    rota.turn()
    assert run_of(rota, job.id).result == {"ctx": 1}


def test_a_job_of_a_process_that_did_not_know_the_handler_fails_for_good_and_says_why(rota, tmp_path):
    """An application that runs the job has other code than the one that enqueued it."""
    rota.job(lambda **kw: kw, name="f")
    job = rota.enqueue("f", {"ctx": 1})
    with closing(Rota(tmp_path / "rota.db", clock=rota._session.clock)) as other:
        other.job(lambda ctx, **kw: kw, name="f")
        other.turn()
        assert other.jobs.get(job.id).status == "DEAD_LETTER"
        assert "receives its Context in the parameter 'ctx'" in run_of(other, job.id).error
