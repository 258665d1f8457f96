"""`@rota.job` returns a task: still the function, typed, with its own verbs."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from rota import Call, Context, Handle, NewJob, Rota, Settings, Status, Task
from rota.errors import InvalidHandler, InvalidInput, InvalidOption, InvalidParams, KeyTaken, PermissionDenied
from rota.model.schedule_options import TAKEN
from rota.model.templates import FIELDS
from rota.task import TAKES, EnqueueOptions, JobOptions
from tests.support.pace import patient
from tests.support.prepared import prepare
from tests.surfaces import task_shop

ROOT = Path(__file__).parents[2]


@pytest.fixture
def greet(rota: Rota):
    @rota.job(max_retries=2)
    def greet(ctx: Context, name: str, times: int = 1) -> list[str]:
        """Greet somebody."""
        return [name] * times

    return greet


@pytest.fixture
def shop(tmp_path):
    """The module's own Rota, on a store that is thrown away."""
    task_shop.rota._session.name_store(prepare(tmp_path / "shop.db"))
    yield task_shop.rota
    task_shop.rota.close()


# ---- a function, still ----------------------------------------------------------------------------------------------


def test_a_task_is_still_its_function(rota, greet):
    assert greet(object(), "Ada", 2) == ["Ada", "Ada"]
    assert (greet.__name__, greet.__doc__, greet.__module__) == ("greet", "Greet somebody.", __name__)
    assert list(inspect.signature(greet).parameters) == ["ctx", "name", "times"]
    assert inspect.isfunction(greet.__wrapped__)
    assert isinstance(greet, Task)
    assert "greet(name: 'str', times: 'int' = 1)" in repr(greet)


def test_what_is_attached_to_a_function_is_attached_to_its_task_and_hides_none_of_its_verbs(rota):
    def tagged() -> int:
        return 1

    tagged.tags, tagged.enqueue = ["slow"], "not a verb"
    task = rota.job(tagged)
    assert task.tags == ["slow"]
    assert task.enqueue().status() is Status.QUEUED


def test_the_engine_calls_the_function_and_not_the_task(rota, greet):
    assert rota._session.registry.handlers["greet"].function is greet.__wrapped__


def test_a_task_can_be_copied_deeply_like_a_function(greet):
    assert copy.deepcopy({"call": greet})["call"] is greet


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("plain", {"name": "a", "times": 2}),
        ("with_ctx", {"name": "a"}),
        ("awaited", {"name": "a"}),
        ("awaited_ctx", {"name": "a"}),
        ("counted", {"n": 1}),
        ("counted_ctx", {"n": 1}),
        ("steps", {"n": 1}),
        ("steps_ctx", {"n": 1}),
    ],
)
def test_each_kind_has_its_own_class_and_calls_its_function(name, args):
    task = getattr(task_shop, name)
    kinds = {
        "plain": "PlainTask",
        "with_ctx": "ContextTask",
        "awaited": "AsyncTask",
        "awaited_ctx": "AsyncContextTask",
        "counted": "GeneratorTask",
        "counted_ctx": "GeneratorContextTask",
        "steps": "AsyncGeneratorTask",
        "steps_ctx": "AsyncGeneratorContextTask",
    }
    assert type(task).__name__ == kinds[name]

    class Ctx:
        attempt = 1

    called = task(*([Ctx()] if "ctx" in name else []), **args)
    expected = task.__wrapped__(*([Ctx()] if "ctx" in name else []), **args)
    assert type(called) is type(expected)
    for each in (called, expected):
        if inspect.iscoroutine(each):
            each.close()


# ---- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "params"),
    [
        (("Ada",), {}, {"name": "Ada"}),
        ((), {"name": "Ada"}, {"name": "Ada"}),
        (("Ada", 2), {}, {"name": "Ada", "times": 2}),
        (("Ada",), {"times": 2}, {"name": "Ada", "times": 2}),
    ],
)
def test_arguments_by_place_or_by_name_are_stored_by_name_and_defaults_are_not_stored(rota, greet, args, kwargs, params):
    handle = greet.enqueue(*args, **kwargs)
    assert rota.jobs.get(handle.id).params == params
    assert greet.bind(*args, **kwargs).params == params
    rota.turn()
    assert handle.result(timeout=0) == ["Ada"] * params.get("times", 1)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("Ada", 1, 2), {}, r"greet\(\): too many positional arguments; it takes \(name: 'str', times: 'int' = 1\)"),
        (("Ada",), {"name": "Bob"}, r"greet\(\): multiple values for argument 'name'"),
        ((), {}, r"greet\(\) needs a parameter 'name', which params do not have"),
        ((), {"nam": "Ada"}, r"greet\(\) needs a parameter 'name'"),
        (("Ada",), {"tmes": 2}, r"greet\(\) has no parameter 'tmes'; it takes: name, times"),
        (("Ada",), {"ctx": 2}, r"receives its Context in the parameter 'ctx'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_parameter(rota, greet, args, kwargs, words):
    with pytest.raises(InvalidParams, match=words):
        greet.enqueue(*args, **kwargs)
    assert rota.jobs.list() == []


def test_a_handler_may_have_parameters_with_the_names_of_options_and_any_others(shop):
    handle = task_shop.odd.enqueue("n", 7, self="s", options="o", job="j", more=1)
    shop.turn()
    assert handle.result(timeout=0) == ["n", 7, "s", "o", "j", {"more": 1}]


def test_keyword_only_parameters_are_given_by_name(rota):
    @rota.job
    def send(to, *, cc=None):
        return [to, cc]

    handle = send.enqueue("a", cc="b")
    rota.turn()
    assert handle.result(timeout=0) == ["a", "b"]
    with pytest.raises(InvalidParams, match="too many positional arguments"):
        send.enqueue("a", "b")


# ---- what is refused at decoration ----------------------------------------------------------------------------------


def positional_only(to, /): ...
def starred(*args, to): ...
def elsewhere(to, ctx: Context): ...
def otherwise(job: Context, to): ...
def long_name(context, to): ...
def not_first(to, ctx): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (positional_only, "parameter 'to' is positional-only"),
        (starred, r"parameter '\*args' takes values without names, and params are stored by name"),
        (elsewhere, "the Context is the first parameter and is called ctx; this one is called 'ctx' and is not the first"),
        (otherwise, "the Context is the first parameter and is called ctx; this one is called 'job'"),
        (long_name, "this one is called 'context'; a param of that name needs an annotation"),
        (not_first, "called 'ctx' and is not the first; a param of that name needs an annotation"),
        (7, "decorates nothing"),
    ],
)
def test_a_function_that_could_not_be_called_by_name_is_refused_when_it_is_decorated(rota, function, words):
    with pytest.raises(InvalidInput, match=words):
        rota.job(function)
    with pytest.raises(InvalidInput, match=words):
        rota.job(name="other")(function)


def test_a_wrapper_without_functools_wraps_is_refused_with_that_remedy(rota):
    def wrapper(*args, **kwargs): ...

    with pytest.raises(InvalidHandler, match=r"a decorator's wrapper needs functools\.wraps"):
        rota.job(wrapper)


def test_a_method_is_refused_with_the_remedy_and_a_bound_method_is_taken(rota):
    with pytest.raises(InvalidHandler, match=r"send\(\) is a method of .*Mailer, .* put @staticmethod above @rota.job"):

        class Mailer:
            @rota.job
            def send(self, to): ...

    class Bound:
        def send(self, to):
            return to

    handle = rota.job(Bound().send).enqueue("ada")
    rota.turn()
    assert handle.result(timeout=0) == "ada"


def test_a_function_of_no_class_may_call_its_first_parameter_self(rota):
    def of(self):
        return self

    handle = rota.job(of).enqueue("me")
    rota.turn()
    assert handle.result(timeout=0) == "me"


def test_an_option_that_is_not_there_is_refused_by_name(rota, greet):
    with pytest.raises(InvalidOption, match=r"@rota\.job has no option 'max_retires' \(did you mean 'max_retries'\?\): it takes name, "):
        rota.job(max_retires=3)
    with pytest.raises(
        InvalidOption, match=r"greet\.options\(\) has no option 'priorty' \(did you mean 'priority'\?\): it takes priority, run_at"
    ):
        greet.options(priorty="high")


def test_the_typed_options_are_those_that_are_taken():
    assert set(JobOptions.__annotations__) == set(TAKES)
    assert {"name", *FIELDS, *TAKEN} - {"handler"} <= set(TAKES)
    taken = set(EnqueueOptions.__annotations__) - {"organization", "transaction"}
    assert set(NewJob.__struct_fields__) - {"name", "params", "handler"} == taken


# ---- decorators above and below -------------------------------------------------------------------------------------


def test_a_task_works_under_staticmethod_and_above_it(rota):
    class Box:
        @staticmethod
        @rota.job
        def under(x):
            return x + 1

        @rota.job
        @staticmethod
        async def above(x):
            return x + 2

    handles = [Box.under.enqueue(1), Box().under.enqueue(2)]
    assert Box.under(1) == 2
    assert type(Box.above).__name__ == "AsyncTask"
    rota.turn()
    assert [handle.result(timeout=0) for handle in handles] == [2, 3]


def test_a_task_works_above_a_decorator_that_uses_functools_wraps(rota):
    def twice(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return [function(*args, **kwargs)] * 2

        return call

    @rota.job
    @twice
    def word(text: str):
        return text

    handle = word.enqueue("a")
    rota.turn()
    assert handle.result(timeout=0) == ["a", "a"]
    assert word("b") == ["b", "b"]


def test_a_partial_and_an_object_that_can_be_called_are_tasks_too(rota):
    class Adder:
        def __call__(self, x):
            return x + 1

    adder = rota.job(Adder(), name="adder")
    half = rota.job(functools.partial(lambda a, b: [a, b], b=2), name="half")
    handles = [adder.enqueue(1), half.enqueue(1)]
    rota.turn()
    assert [handle.result(timeout=0) for handle in handles] == [2, [1, 2]]


def test_a_task_is_registered_with_another_rota_as_its_function(rota, tmp_path, greet):
    other = Rota(prepare(tmp_path / "other.db"))
    assert other.job(greet).enqueue("Ada").status() is Status.QUEUED
    assert rota.jobs.list() == []
    other.close()


# ---- options, calls, actors -----------------------------------------------------------------------------------------


def test_options_are_of_the_job_and_leave_the_task_as_it_was(rota, greet):
    urgent = greet.options(priority="high", max_retries=7).options(run_at=timedelta(minutes=5), priority="critical", unique_key="ada")
    job = rota.jobs.get(urgent.enqueue("Ada").id)
    assert (job.priority, job.max_retries, job.status, job.unique_key) == (100, 7, Status.PENDING, "ada")
    assert urgent.enqueue("Bob").existing
    assert type(urgent) is type(greet)
    plain = rota.jobs.get(greet.enqueue("Ada").id)
    assert (plain.priority, plain.unique_key) == (50, None)


@pytest.mark.parametrize(("span", "seconds"), [("5m", 300), (300, 300), (timedelta(minutes=5), 300), ("1h30m", 5400), (1.5, 1.5)])
def test_spans_are_taken_as_text_number_or_timedelta_wherever_a_job_is_enqueued(rota, greet, span, seconds):
    ids = [
        rota.enqueue("greet", {"name": "a"}, timeout=span, queue_ttl=span).id,
        greet.options(timeout=span, queue_ttl=span).enqueue("a").id,
        *rota.enqueue_many([NewJob(name="greet", params={"name": "a"}, timeout=span, queue_ttl=span)]),
        *rota.enqueue_many([greet.options(timeout=span, queue_ttl=span).bind("a")]),
    ]
    for job in map(rota.jobs.get, ids):
        assert (job.timeout, job.expires_at - job.run_at) == (seconds, timedelta(seconds=seconds))


@pytest.mark.parametrize("option", ["timeout", "queue_ttl"])
@pytest.mark.parametrize("span", ["soon", -1, timedelta(days=-1), object(), "5 weeks"])
def test_a_span_that_is_none_is_refused_by_name(rota, greet, option, span):
    with pytest.raises(InvalidOption, match=f"{option}="):
        greet.options(**{option: span}).enqueue("a")
    with pytest.raises(InvalidOption, match=f"{option}="):
        rota.enqueue("greet", {"name": "a"}, **{option: span})


def test_a_call_is_a_value_and_nothing_is_written_before_it_is_enqueued(rota, greet):
    call = greet.options(priority="high").bind("Ada", times=2)
    assert isinstance(call, Call)
    assert repr(call) == "greet.bind(name='Ada', times=2)"
    assert rota.jobs.list() == []
    handle = rota.enqueue(call)
    assert isinstance(handle, Handle)
    assert rota.jobs.get(handle.id).priority == 75
    assert rota.jobs.get(rota.enqueue(call, priority="low", unique_key="k").id).priority == 25


def test_a_task_is_enqueued_like_a_name_and_both_give_a_handle(rota, greet):
    for name in (greet, "greet"):
        handle = rota.enqueue(name, {"name": "Ada"})
        rota.turn()
        assert handle.result(timeout=0) == ["Ada"]
    with pytest.raises(InvalidParams, match="needs a parameter 'name'"):
        rota.enqueue(greet)
    with pytest.raises(InvalidParams, match=r"greet\.bind\(name='a'\) has its params already"):
        rota.enqueue(greet.bind("a"), {"name": "b"})
    with pytest.raises(InvalidOption, match="pass one of them"):
        rota.enqueue(greet.bind("a"), handler="shop:f")


def test_many_calls_are_enqueued_beside_pairs_and_new_jobs_in_their_order(rota, greet):
    calls = [
        greet.bind("a"),
        ("greet", {"name": "b"}),
        greet.options(priority="high").bind("c"),
        NewJob(name="greet", params={"name": "d"}),
    ]
    bulk = rota.enqueue_many(calls)
    assert [rota.jobs.get(each).params["name"] for each in bulk] == ["a", "b", "c", "d"]
    assert rota.jobs.get(bulk.ids[2]).priority == 75
    assert len(rota.enqueue_many(greet.bind(name) for name in "xyz")) == 3


def test_a_call_that_is_not_for_a_bulk_is_refused_with_the_item(rota, greet):
    for call, option in [(greet.options(transaction=object()).bind("b"), "transaction"), (greet.acting_as("ada").bind("b"), "actor")]:
        with pytest.raises(InvalidOption, match=rf"item 1: greet\.bind\(name='b'\) has its own {option}, .* pass {option}=…"):
            rota.enqueue_many([greet.bind("a"), call])
    with pytest.raises(InvalidParams, match=r"item 0: .* is not a job: give task\.bind"):
        rota.enqueue_many([greet])


def test_a_group_takes_calls_and_handles(rota, greet):
    group = rota.group(
        [greet.bind("a"), greet.options(priority="high").bind("b"), greet.enqueue("c"), ("greet", {"name": "d"})], mode="parallel"
    )
    assert [rota.jobs.get(member.root_id).params["name"] for member in group.members] == ["a", "b", "c", "d"]


def test_a_job_can_wait_for_handles(rota, greet):
    first, second = greet.enqueue("a"), greet.enqueue("b")
    child = greet.options(depends_on=[first, second]).enqueue("c")
    only = greet.options(depends_on=first).enqueue("d")
    assert (child.status(), only.status()) == (Status.PENDING, Status.PENDING)
    rota.turn()
    assert (child.status(), only.status()) == (Status.COMPLETED, Status.COMPLETED)


def test_a_schedule_takes_a_call_or_a_task(rota, greet):
    made = rota.schedule("daily", greet.options(priority="high").bind("Ada", times=2), cron="0 9 * * *", timezone="Europe/Berlin")
    assert (made.template, made.params, made.priority) == ("greet", {"name": "Ada", "times": 2}, 75)
    assert rota.schedule("hourly", greet, every="1h", params={"name": "Bob"}).params == {"name": "Bob"}
    assert rota.schedules.create("weekly", greet.bind("Ada"), cron="0 9 * * MON").params == {"name": "Ada"}
    with pytest.raises(InvalidOption, match=r"params is in greet\.bind\(name='Ada'\) and beside it: say it once"):
        rota.schedule("twice", greet.bind("Ada"), every="1h", params={"name": "Bob"})
    with pytest.raises(InvalidOption, match="greet: a schedule's jobs can't have unique_key="):
        rota.schedule("keyed", greet.options(unique_key="k").bind("Ada"), every="1h")


def test_a_task_acts_as_somebody_and_so_do_its_handles(shared):
    @shared.job
    def work() -> int:
        return 1

    handle = work.acting_as("bob").enqueue()
    assert (shared.jobs.get(handle.id).owner, shared.jobs.get(handle.id).organization) == ("bob", "acme")
    assert work.acting_as("bob").handle(handle.id).cancel().ended_by == "bob"
    with pytest.raises(PermissionDenied, match="'nobody'"):
        work.acting_as("nobody").enqueue()
    with pytest.raises(LookupError):
        work.acting_as("fay").handle(handle.id).status()
    assert shared.enqueue(work.acting_as("bob").bind()).number


def test_a_transaction_is_an_option(rota, greet):
    def takes_it_back():
        with rota.transaction() as tx:
            greet.options(transaction=tx).enqueue("Ada")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        takes_it_back()
    assert rota.jobs.list() == []
    with rota.transaction() as tx:
        handle = greet.options(transaction=tx).enqueue("Ada")
    assert handle.status() is Status.QUEUED


def test_a_key_that_a_colleague_holds_is_refused_as_ever(shared):
    @shared.job
    def work() -> int:
        return 1

    work.acting_as("bob").options(unique_key="k").enqueue()
    with pytest.raises(KeyTaken):
        work.acting_as("ben").options(unique_key="k").enqueue()


# ---- where it runs --------------------------------------------------------------------------------------------------


def run_all(shop):
    """Enqueue a task of each kind in each place, run them, and return their results by name."""
    calls = {
        "plain": task_shop.plain.enqueue("a", times=2),
        "with_ctx": task_shop.with_ctx.enqueue("a", 2),
        "inline": task_shop.inline.enqueue("a"),
        "awaited": task_shop.awaited.enqueue("a", 3),
        "awaited_ctx": task_shop.awaited_ctx.enqueue(name="a"),
        "counted": task_shop.counted.enqueue(3),
        "counted_ctx": task_shop.counted_ctx.enqueue(3),
        "steps": task_shop.steps.enqueue(3),
        "steps_ctx": task_shop.steps_ctx.enqueue(3),
        "apart": task_shop.apart.enqueue("a", times=2),
        "apart_ctx": task_shop.apart_ctx.enqueue("a"),
        "apart_awaited": task_shop.apart_awaited.enqueue("a"),
        "apart_decorated": task_shop.apart_decorated.enqueue("a"),
        "boxed": task_shop.Box.boxed.enqueue(1),
        "fails_first": task_shop.fails_first.enqueue(),
    }
    with shop.running(concurrency=4):
        return {name: handle.result(timeout=patient(50)) for name, handle in calls.items()}


RESULTS = {
    "plain": ["a", "a"],
    "with_ctx": ["1:a", "1:a"],
    "inline": "1:a",
    "awaited": "aaa",
    "awaited_ctx": "1:a",
    "counted": "counted 3",
    "counted_ctx": "1: counted 3",
    "steps": None,
    "steps_ctx": None,
    "apart": ["a", "a"],
    "apart_ctx": "1:a",
    "apart_awaited": "1:a",
    "apart_decorated": "A",
    "boxed": 2,
    "fails_first": 3,
}


def test_tasks_of_every_kind_run_in_all_four_executors(shop):
    assert run_all(shop) == RESULTS


def test_tasks_of_every_kind_run_in_all_four_executors_on_postgresql(database):
    task_shop.rota._session.name_store(database.server.url())
    try:
        assert run_all(task_shop.rota) == RESULTS
        bulk = task_shop.rota.enqueue_many(task_shop.plain.bind(str(number)) for number in range(5))
        assert len(bulk) == 5
        child = task_shop.plain.options(depends_on=task_shop.plain.enqueue("a"), timeout="5m").enqueue("b")
        task_shop.rota.turn()
        assert child.result(timeout=patient(20)) == ["b"]
    finally:
        task_shop.rota.close()


def test_a_handler_that_only_a_template_names_may_be_a_task(tmp_path):
    rota = Rota(prepare(tmp_path / "named.db"), settings=Settings(handler_modules="tests.surfaces.task_shop"))
    try:
        job = rota.enqueue(handler="tests.surfaces.task_shop:plain", params={"name": "a"})
        rota.templates.update("named", handler="tests.surfaces.task_shop:with_ctx")
        other = rota.enqueue("named", {"name": "b"})
        rota.turn()
        assert rota.wait(job, timeout=0).result == ["a"]
        assert rota.wait(other, timeout=0).result == ["1:b"]
    finally:
        rota.close()


def test_enqueue_async_and_result_async_are_awaited(shop):
    async def both():
        handle = await task_shop.plain.enqueue_async("a", times=2)
        return await handle.result_async(timeout=patient(20))

    with shop.running():
        assert asyncio.run(both()) == ["a", "a"]


# ---- pickling -------------------------------------------------------------------------------------------------------


def test_a_task_pickles_by_its_name_with_its_options(shop):
    assert pickle.loads(pickle.dumps(task_shop.plain)) is task_shop.plain
    assert pickle.loads(pickle.dumps(task_shop.Box.boxed)) is task_shop.Box.boxed
    urgent = pickle.loads(pickle.dumps(task_shop.plain.options(priority="high").acting_as("ada")))
    assert type(urgent) is type(task_shop.plain)
    assert shop.jobs.get(urgent.enqueue("a").id).priority == 75
    assert pickle.loads(pickle.dumps(task_shop.under_a_decorator.__wrapped__)) is task_shop.under_a_decorator.__wrapped__


def test_a_task_that_another_process_would_not_find_is_not_pickled(greet):
    with pytest.raises(pickle.PicklingError, match=r"the task 'greet' can't be pickled: .* decorate its function at the module level"):
        pickle.dumps(greet)


def test_a_handle_of_another_rota_than_its_tasks_is_not_pickled(shop, rota):
    rota.job(task_shop.plain)
    handle = rota.enqueue(task_shop.plain.bind("a"))
    with pytest.raises(pickle.PicklingError, match="its task belongs to another Rota; pass its id"):
        pickle.dumps(handle)


def test_a_task_and_a_handle_are_used_in_another_process(shop, tmp_path):
    handle = task_shop.plain.enqueue("a", times=2)
    with shop.running():
        handle.result(timeout=patient(20))
    (tmp_path / "pickled").write_bytes(pickle.dumps((task_shop.plain, handle)))
    program = (
        "import pickle, sys\n"
        "from tests.surfaces import task_shop\n"
        "task_shop.rota._session.name_store(sys.argv[1])\n"
        "task, handle = pickle.load(open(sys.argv[2], 'rb'))\n"
        "assert task is task_shop.plain\n"
        "print(handle.result(timeout=0), handle.number, handle.existing, task.enqueue('b').status())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, shop.store.url, tmp_path / "pickled"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=patient(50),
    )
    assert done.stdout.split("] ")[0] + "]" == "['a', 'a']"
    assert done.stdout.split()[-3:] == [handle.number, "False", "QUEUED"]


MAIN = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rota import Rota

rota = Rota(sys.argv[1])


@rota.job
def greet(name: str) -> str:
    return f"Hello, {name}"


def enqueue(task, name):
    handle = task.enqueue(name)
    rota.turn()
    return handle


if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        handle = pool.submit(enqueue, greet, "Ada").result()
    print(handle.result(timeout=0), handle.existing)
"""


def test_a_task_of_the_main_program_goes_to_another_process_and_its_handle_comes_back(tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    command = [sys.executable, tmp_path / "main.py", tmp_path / "main.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patient(50), cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Hello, Ada False\n", "")


# ---- decorators and objects around handlers -----------------------------------------------------------------------------


def passing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Greeter:
    async def __call__(self, name: str) -> str:
        return f"called {name}"


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator", "object", "awaited inside"])
def test_what_a_plain_wrapper_hides_is_run_to_its_end(rota, kind):
    ran = []

    async def coroutine(name: str) -> str:
        ran.append(name)
        return f"hello {name}"

    def generator(name: str):
        yield 50
        ran.append(name)
        return f"hello {name}"

    async def async_generator(name: str):
        yield 50
        ran.append(name)

    @functools.wraps(coroutine)
    def awaited(name: str) -> str:
        ran.append(name)
        return f"hello {name}"

    function, wanted = {
        "coroutine": (passing(coroutine), "hello Ada"),
        "generator": (passing(generator), "hello Ada"),
        "async generator": (passing(async_generator), None),
        "object": (Greeter(), "called Ada"),
        "awaited inside": (awaited, "hello Ada"),
    }[kind]
    task = rota.job(name="greet", max_retries=0)(function)
    handle = task.enqueue("Ada")
    rota.turn()
    assert handle.result() == wanted
    assert ran == ([] if kind == "object" else ["Ada"])


def test_a_parameter_that_begins_with_two_underscores_is_refused_at_decoration(rota):
    with pytest.raises(InvalidHandler, match="parameter '__y' begins with two underscores"):
        rota.job(name="odd")(lambda __y: None)


def test_a_handle_is_copied_as_itself(rota):
    @rota.job
    def work() -> None: ...

    handle = work.enqueue()
    assert copy.copy(handle) is handle
    assert copy.deepcopy([handle]) == [handle]
