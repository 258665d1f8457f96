"""A JobSet: tasks that a module declares without importing its application."""

from __future__ import annotations

import pytest

from rota import JobSet, Rota, testing
from rota.errors import InvalidHandler, InvalidOption, InvalidSchedule, UnknownTemplate
from tests.support.pace import patient
from tests.support.prepared import prepare
from tests.surfaces import task_shop


@pytest.fixture
def jobs():
    made = JobSet()

    @made.job(max_retries=7)
    def send(to: str) -> str:
        return f"sent to {to}"

    @made.job(every="1h")
    def tidy() -> None: ...

    made.send, made.tidy = send, tidy
    return made


def test_the_tasks_of_a_set_are_registered_under_the_prefix(rota, jobs):
    rota.include(jobs, prefix="mail.")
    handle = jobs.send.enqueue("ada")
    assert (jobs.send.name, rota.jobs.get(handle.id).job_type, rota.jobs.get(handle.id).max_retries) == ("mail.send", "mail.send", 7)
    assert [each.name for each in rota.schedules.list()] == ["mail.tidy"]
    rota.turn()
    assert handle.result(timeout=0) == "sent to ada"
    assert rota.jobs.get(rota.enqueue("mail.send", {"to": "bob"})).job_type == "mail.send"
    assert repr(jobs.send.bind("ada")) == "mail.send.bind(to='ada')"


def test_without_a_prefix_they_have_their_own_names(rota, jobs):
    rota.include(jobs)
    assert rota.jobs.get(jobs.send.enqueue("ada").id).job_type == "send"


def test_a_task_of_a_set_that_is_in_no_rota_says_so_and_is_still_a_function(jobs):
    assert jobs.send("ada") == "sent to ada"
    for use in (lambda: jobs.send.enqueue("ada"), lambda: jobs.send.handle("x"), lambda: jobs.send.options(priority=1).enqueue("a")):
        with pytest.raises(InvalidOption, match=r"send: its JobSet is in no Rota yet; call rota\.include\(jobs\) first"):
            use()


def test_what_was_derived_from_a_task_before_it_was_included_is_included_with_it(rota, jobs):
    urgent, call = jobs.send.options(priority="high"), jobs.send.bind("ada")
    rota.include(jobs, prefix="mail.")
    assert rota.jobs.get(urgent.enqueue("ada").id).job_type == "mail.send"
    assert rota.jobs.get(rota.enqueue(call).id).job_type == "mail.send"


def test_a_task_that_is_declared_later_is_registered_at_once(rota, jobs):
    rota.include(jobs, prefix="mail.")

    @jobs.job
    def later() -> int:
        return 1

    assert rota.jobs.get(later.enqueue().id).job_type == "mail.later"


def test_a_set_is_included_once(rota, live, jobs):
    rota.include(jobs, prefix="mail.")
    for other in (rota, live):
        with pytest.raises(
            InvalidOption, match=r"this JobSet is in the Rota of .* already, where its tasks enqueue: use a JobSet of its own"
        ):
            other.include(jobs)
    assert jobs.send.name == "mail.send"


def test_a_set_with_a_name_that_is_taken_is_not_included(rota, jobs):
    @rota.job(name="mail.send")
    def other() -> None: ...

    with pytest.raises(InvalidHandler, match=r"'mail\.send' is registered already"):
        rota.include(jobs, prefix="mail.")
    rota.include(jobs, prefix="post.")
    assert jobs.send.name == "post.send"


def test_a_decorator_that_could_never_work_is_refused_where_it_stands(jobs):
    with pytest.raises(InvalidHandler, match="positional-only"):

        @jobs.job
        def wrong(to, /): ...

    with pytest.raises(InvalidOption, match="no option 'max_retires'"):
        jobs.job(max_retires=1)


def test_an_option_that_the_registry_refuses_is_refused_when_it_is_included(rota):
    jobs = JobSet()
    jobs.job(cron="not a cron", name="wrong")(lambda: None)
    with pytest.raises(InvalidSchedule, match="not a cron"):
        rota.include(jobs)


def test_a_set_is_tested_with_its_application(tmp_path, jobs):
    app = Rota(prepare(tmp_path / "real.db"))
    app.include(jobs, prefix="mail.")
    with testing.use(app) as kit:
        handle = jobs.send.enqueue("ada")
        kit.assert_enqueued("mail.send", {"to": "ada"})
        kit.drain()
        assert handle.result(timeout=0) == "sent to ada"
    app.close()


def test_a_task_of_a_set_runs_in_a_process(tmp_path):
    app = Rota(prepare(tmp_path / "shop.db"))
    app.include(task_shop.mail, prefix="mail.")
    with app.running():
        assert task_shop.send.enqueue("ada").result(timeout=patient(50)) == "sent to ada"
    app.close()


def test_a_call_of_a_set_that_is_in_no_rota_is_refused_although_a_template_has_its_name(rota):
    jobs = JobSet()

    @jobs.job
    def send() -> None: ...

    rota.job(lambda: None, name="send")
    for enqueue in (lambda: rota.enqueue(send), lambda: rota.enqueue(send.bind()), lambda: rota.enqueue_many([send.bind()])):
        with pytest.raises(InvalidOption, match="its JobSet is in no Rota yet"):
            enqueue()
    assert not rota.jobs.list()


def test_an_include_that_fails_registers_nothing(rota):
    jobs = JobSet()

    @jobs.job(every="1h")
    def tick() -> None: ...

    @jobs.job
    def send() -> None: ...

    rota.job(lambda: None, name="send")
    with pytest.raises(InvalidHandler, match="'send' is registered already"):
        rota.include(jobs)
    with pytest.raises(UnknownTemplate):
        rota.enqueue("tick")
    rota.include(jobs, prefix="mail.")
    tick.enqueue()
    assert [schedule.name for schedule in rota.schedules.list()] == ["mail.tick"]
