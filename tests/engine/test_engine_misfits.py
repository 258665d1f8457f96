"""Rolling deploys: a job runs on a worker whose handler takes the parameters that it was enqueued for."""

from __future__ import annotations

import pytest

from rota import Rota, Settings
from rota.errors import InvalidParams
from rota.model.states import Status
from tests.support.runs import run_of

PATIENCE_S = 600


@pytest.fixture
def again(tmp_path, clock, rota):
    """Make further Rotas on the same store: programs of another version."""
    made = []

    def make(handler, **options):
        other = Rota(rota.store.url.removeprefix("sqlite:///"), clock=clock, settings=Settings(**options), seed=9 + len(made))
        other.job(handler, name="act")
        made.append(other)
        return other

    yield make
    for other in made:
        other.close()


def takes_a(a):
    return ["a", a]


def takes_a_and_b(a, b):
    return ["a and b", a, b]


def takes_a_and_maybe_b(a, b=2):
    return ["a and maybe b", a, b]


def takes_c(c):
    return ["c", c]


def status(rota, job):
    return str(rota.jobs.get(job.id).status)


def result(rota, job):
    return run_of(rota, rota.jobs.attempts(job.id)[-1].id).result


def test_a_job_carries_the_digest_of_the_handler_that_it_was_enqueued_for(rota, again):
    rota.job(takes_a, name="act")
    newer = again(takes_a_and_b)
    jobs = [rota.enqueue("act", {"a": 1}), newer.enqueue("act", {"a": 1, "b": 2})]
    digests = [rota.jobs.get(job.id).digest for job in jobs]
    assert all(digests)
    assert digests[0] != digests[1]
    assert digests[0] == rota.jobs.get(jobs[0]).digest


def test_a_job_by_name_has_no_digest(rota, by_name):
    rota.job(takes_a, name="act")
    rota.turn()
    job = by_name({"a": 1})
    assert rota.jobs.get(job.id).digest is None


@pytest.mark.parametrize(
    ("older", "newer", "params"),
    [(takes_a, takes_a_and_b, {"a": 1, "b": 2}), (takes_a_and_b, takes_a, {"a": 1}), (takes_a, takes_c, {"c": 1})],
)
def test_an_added_a_removed_and_a_renamed_parameter_wait_for_a_worker_that_takes_them(rota, again, older, newer, params):
    rota.job(older, name="act")
    deployed = again(newer)
    job = deployed.enqueue("act", params)
    rota.turn()
    assert status(rota, job) == "QUEUED"
    deployed.turn()
    assert status(rota, job) == "COMPLETED"
    assert result(rota, job) == newer(**params)


def test_a_handler_with_one_more_optional_parameter_takes_the_jobs_of_the_one_before(rota, again):
    rota.job(takes_a, name="act")
    job = rota.enqueue("act", {"a": 1})
    newer = again(takes_a_and_maybe_b)
    newer.turn()
    assert result(rota, job) == ["a and maybe b", 1, 2]


def test_a_handler_that_takes_any_name_takes_the_jobs_of_all(rota, again):
    rota.job(takes_a, name="act")
    job = rota.enqueue("act", {"a": 1})
    newer = again(lambda **params: params)
    newer.turn()
    assert result(rota, job) == {"a": 1}


@pytest.fixture
def by_name(rota, clock):
    """Enqueue by name from a process that has no handlers."""
    client = Rota(rota.store.url.removeprefix("sqlite:///"), clock=clock, seed=99)
    yield lambda params: client.enqueue("act", params)
    client.close()


def test_a_job_by_name_that_does_not_fit_is_given_back_once_and_runs_where_it_fits(rota, again, by_name):
    rota.job(takes_a, name="act")
    newer = again(takes_c)
    rota.turn()
    newer.turn()
    job = by_name({"c": 3})
    rota.turn()
    rota.turn()
    first, second = rota.jobs.attempts(job.id)
    assert (str(first.status), first.reason) == ("SKIPPED", "given back: act() needs a parameter 'a', which params do not have")
    assert (str(second.status), second.attempt, second.failures) == ("QUEUED", 2, 0)
    newer.turn()
    assert result(rota, job) == ["c", 3]
    assert len(rota.jobs.attempts(job.id)) == 2


def test_a_job_by_name_is_refused_if_neither_the_newest_nor_a_live_worker_takes_it(rota, again, by_name, clock):
    rota.job(takes_a, name="act")
    rota.turn()
    clock.advance(seconds=1)
    newer = again(takes_c)
    newer.turn()
    by_name({"c": 1})
    by_name({"a": 1})
    with pytest.raises(InvalidParams, match=r"^act\(\) needs a parameter 'c', which params do not have$"):
        by_name({"d": 1})
    rota.close()
    with pytest.raises(InvalidParams, match="needs a parameter 'c'"):
        by_name({"a": 1})


def test_a_job_by_name_that_fits_runs_at_once(rota, again, by_name):
    rota.job(takes_a, name="act")
    rota.turn()
    job = by_name({"a": 1})
    rota.turn()
    assert result(rota, job) == ["a", 1]
    assert len(rota.jobs.attempts(job.id)) == 1


def wait(clock, *rotas, seconds):
    """Let time pass as workers see it: in steps."""
    for _ in range(20):
        clock.advance(seconds=seconds / 20)
        for rota in rotas:
            rota.turn()


def test_a_job_that_nobody_fits_is_dead_after_misfit_patience_and_says_why(rota, again, clock):
    rota.job(takes_a, name="act")
    rota.turn()
    newer = again(takes_c)
    job = newer.enqueue("act", {"c": 1})
    wait(clock, rota, seconds=PATIENCE_S * 0.9)
    assert status(rota, job) == "QUEUED"
    wait(clock, rota, seconds=PATIENCE_S * 0.3)
    assert status(rota, job) == "DEAD_LETTER"
    run = run_of(rota, job.id)
    assert run.error == (
        "it was enqueued for act(c), and no worker that takes this came in 600 s: act() needs a parameter 'a', which params do not have"
    )
    assert (str(run.error_type), run.error_code) == ("permanent", "params_mismatch")
    assert len(rota.jobs.attempts(job.id)) == 1


def test_a_job_by_name_that_nobody_fits_is_dead_after_misfit_patience_and_is_given_back_once(rota, again, by_name, clock):
    rota.job(takes_a, name="act")
    rota.turn()
    newer = again(takes_c)
    newer.turn()
    job = by_name({"c": 1})
    newer.close()
    wait(clock, rota, seconds=PATIENCE_S * 0.9)
    assert [str(each.status) for each in rota.jobs.attempts(job.id)] == ["SKIPPED", "QUEUED"]
    wait(clock, rota, seconds=PATIENCE_S * 0.3)
    assert [str(each.status) for each in rota.jobs.attempts(job.id)] == ["SKIPPED", "DEAD_LETTER"]


def test_no_job_is_dead_while_a_worker_that_takes_it_lives(rota, again, clock):
    rota.job(takes_a, name="act")
    newer = again(takes_c, worker_exclude="other")
    newer.turn()
    newer.templates.pause("act")
    job = newer.enqueue("act", {"c": 1})
    wait(clock, rota, newer, seconds=PATIENCE_S * 2)
    assert status(rota, job) == "QUEUED"
    newer.templates.resume("act")
    newer.turn()
    assert status(rota, job) == "COMPLETED"


def test_what_fits_after_all_runs_when_nobody_else_has_come(rota, again, clock):
    """The parameter that is gone was optional, and this job does not have it."""
    rota.job(takes_a, name="act")
    rota.turn()
    older = again(takes_a_and_maybe_b)
    jobs = [older.enqueue("act", {"a": 1}), older.enqueue("act", {"a": 1, "b": 2})]
    rota.turn()
    assert [status(rota, job) for job in jobs] == ["QUEUED", "QUEUED"]
    wait(clock, rota, seconds=PATIENCE_S * 1.2)
    assert [status(rota, job) for job in jobs] == ["COMPLETED", "DEAD_LETTER"]


def test_explain_names_the_mismatch_all_along(rota, again, by_name):
    rota.job(takes_a_and_maybe_b, name="act")
    newer = again(takes_c)
    job, named = newer.enqueue("act", {"c": 1}), by_name({"d": 1})
    rota.turn()
    said = "it was enqueued for act({}), and live workers have act(a, b=…): it waits for a worker that takes its parameters"
    assert rota.explain(job.id).summary == said.format("c")
    assert rota.explain(named.id).summary == said.format("d")
    rota.turn()
    assert rota.explain(job.id).summary == said.format("c")
    assert rota.explain(named.id).summary == said.format("d")


def test_the_doctor_and_the_first_screen_name_the_mismatch(rota, again):
    rota.job(takes_a, name="act")
    rota.turn()
    newer = again(takes_c)
    newer.enqueue("act", {"c": 1})
    (finding,) = [each for each in rota.store.doctor() if each.name == "parameters"]
    assert finding.text == "jobs wait for a worker that takes their parameters: act(c) (1); live workers have act(a)"
    (stuck,) = rota.overview().stuck
    assert stuck.words == "it was enqueued for act(c), and live workers have act(a): it waits for a worker that takes its parameters"


def test_the_schema_of_the_newest_handler_is_shown_with_its_template(rota, again, clock):
    rota.job(takes_a, name="act")
    rota.turn()
    first = rota.templates.get("act")
    assert first.params_schema["required"] == ["a"]
    clock.advance(seconds=1)
    newer = again(takes_c)
    newer.turn()
    second = rota.templates.get("act")
    assert second.params_schema["required"] == ["c"]
    assert first.digest != second.digest


def test_strangers_can_not_make_up_any_number_of_lanes(rota, by_name, monkeypatch):
    monkeypatch.setattr("rota.engine.definitions_cache.LANES_MAX", 5)
    rota.job(takes_a, name="act")
    rota.templates.get("act")
    jobs = [by_name({f"x{number}": 1}) for number in range(9)]
    for _ in range(12):
        rota.turn()
    assert len(rota._session.open().store.lanes()) == 5
    assert [rota.jobs.attempts(job.id)[-1].status for job in jobs] == [Status.QUEUED] * 3 + [Status.DEAD_LETTER] * 6
    assert run_of(rota, jobs[-1].id).error == "act() needs a parameter 'a', which params do not have"
