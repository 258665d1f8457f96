"""A handler is looked at once: which parameter gets the Context, which are needed, where it runs."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import rota
from rota import Context
from rota.errors import InvalidHandler, InvalidParams
from rota.model.handler import inspect_handler


def plain(to, subject="hi"): ...
def by_name(ctx, to): ...
def by_annotation(ctx: Context, to): ...
def by_dotted_annotation(ctx: rota.Context, to): ...
def by_optional(ctx: Context | None, to): ...
def by_any(ctx: Any, to): ...
def by_object(ctx: object, to): ...
def annotated_otherwise(ctx: dict, to): ...
def another_context(to, context: str): ...
def another_ctx(to, ctx: int): ...
def anything(**params): ...
def anything_and_context(ctx, **params): ...
def nothing(): ...


class Unreadable:
    __signature__ = 7

    def __call__(self): ...


async def coroutine(to): ...
async def steps_async(to):
    yield 1


def steps(to):
    yield 1


@pytest.mark.parametrize(
    ("function", "context", "required", "allowed"),
    [
        (plain, None, {"to"}, {"to", "subject"}),
        (by_name, "ctx", {"to"}, {"to"}),
        (by_annotation, "ctx", {"to"}, {"to"}),
        (by_dotted_annotation, "ctx", {"to"}, {"to"}),
        (by_optional, "ctx", {"to"}, {"to"}),
        (by_any, "ctx", {"to"}, {"to"}),
        (by_object, "ctx", {"to"}, {"to"}),
        (annotated_otherwise, None, {"ctx", "to"}, {"ctx", "to"}),
        (another_context, None, {"to", "context"}, {"to", "context"}),
        (another_ctx, None, {"to", "ctx"}, {"to", "ctx"}),
        (anything, None, set(), None),
        (anything_and_context, "ctx", set(), None),
        (nothing, None, set(), set()),
    ],
)
def test_the_signature_says_what_a_handler_takes(function, context, required, allowed):
    handler = inspect_handler("h", function, None)
    assert (handler.context, handler.required, handler.allowed) == (context, required, allowed)


@pytest.mark.parametrize(
    ("function", "is_async", "is_generator", "place"),
    [
        (plain, False, False, "thread"),
        (coroutine, True, False, "async"),
        (steps, False, True, "thread"),
        (steps_async, True, True, "async"),
    ],
)
def test_the_kind_of_function_says_where_it_runs_by_default(function, is_async, is_generator, place):
    handler = inspect_handler("h", function, None)
    assert (handler.is_async, handler.is_generator, handler.executor) == (is_async, is_generator, place)


def test_a_partial_and_a_bound_method_are_handlers_too():
    class Mailer:
        def send(self, to): ...

    assert inspect_handler("h", functools.partial(plain, subject="x"), None).required == {"to"}
    assert inspect_handler("h", Mailer().send, None).required == {"to"}


@pytest.mark.parametrize(
    ("function", "executor", "words"),
    [
        (7, None, "can't be called"),
        (plain, "moon", "'moon' is not one of inline, thread, async, process"),
        (coroutine, "thread", "is async and can't run on a plain thread"),
        (plain, "async", "is not async"),
    ],
)
def test_a_handler_that_could_never_run_is_refused(function, executor, words):
    with pytest.raises(InvalidHandler) as refusal:
        inspect_handler("h", function, executor)
    assert words in str(refusal.value)


def test_a_positional_only_parameter_is_refused_by_name():
    def handler(to, /): ...

    with pytest.raises(InvalidHandler, match="parameter 'to' is positional-only"):
        inspect_handler("h", handler, None)


def test_a_positional_only_context_is_refused_by_name_too():
    def handler(ctx, /, to): ...

    with pytest.raises(InvalidHandler, match="parameter 'ctx' is positional-only"):
        inspect_handler("h", handler, None)


def long_name(context, to): ...
def not_first(to, ctx): ...
def elsewhere(to, job: Context): ...
def otherwise(job: rota.Context, to): ...
def by_name_only(*, ctx: Context): ...


@pytest.mark.parametrize("function", [long_name, not_first, elsewhere, otherwise, by_name_only])
def test_a_context_in_another_place_or_under_another_name_is_refused(function):
    with pytest.raises(InvalidHandler, match=r"h\(\): (the Context is the first parameter and is called ctx; this one is called)"):
        inspect_handler("h", function, None)


def test_values_without_names_are_refused():
    with pytest.raises(InvalidHandler, match=r"parameter '\*args' takes values without names"):
        inspect_handler("h", lambda *args, to: None, None)


def test_a_signature_that_can_not_be_read_is_refused():
    with pytest.raises(InvalidHandler, match="the signature of 'h' can't be read"):
        inspect_handler("h", Unreadable(), None)


def test_params_are_checked_against_the_signature_by_name():
    handler = inspect_handler("send", plain, None)
    handler.check({"to": 1})
    handler.check({"to": 1, "subject": 2})
    with pytest.raises(InvalidParams, match=r"send\(\) needs a parameter 'to'"):
        handler.check({"subject": 1})
    with pytest.raises(InvalidParams, match=r"send\(\) has no parameter 'cc'; it takes: subject, to"):
        handler.check({"to": 1, "cc": 2})
    inspect_handler("any", anything, None).check({"whatever": 1})
