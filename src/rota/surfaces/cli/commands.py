"""Commands made from operations: built when they are called, read as every surface reads, and shown by the views of their noun."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Mapping
from contextlib import ExitStack
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import UNSET
from typer.models import CommandInfo

from rota import wire
from rota.errors import InvalidOption, Refused, RotaError
from rota.operation import Field, Operation, noun, operations
from rota.surfaces.cli.examples import EXAMPLES, examples, generated
from rota.surfaces.cli.exits import report
from rota.surfaces.cli.options import AppOption, JsonOption, PairsOption, StoreOption, object_of, params_of, zoned
from rota.surfaces.cli.session import actor, session

if TYPE_CHECKING:
    from rota.app import Rota

LIMIT = 20
"""Rows that a list shows unless --limit is given: a screen of them."""
NONE = "none"
"""What takes an option back to its default, or a limit away. `catch_up` has this word for a value of its own."""
MAKES_STORE = frozenset({"grants", "organization create", "template load", "token create", "user create"})
"""Commands for which the store need not be there: they create it or, as grants, do not open it."""
LOOK_MAX = 10_000
"""How many are counted for a question, at most."""
MOMENT = re.compile(r"\d{4}-")
"""How a time begins; other texts where a time is taken are lengths of time."""
DAYS = frozenset({"since", "until"})
"""Parameters for which a day is enough: they mean its midnight."""
NAMES = {"run_at": ("--run-at", "--in")}
"""Further names of an option, by the parameter."""

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
EXTRAS: dict[str, dict[str, Any]] = {
    "job get": {
        "face": Annotated[
            str | None, typer.Option("--face", metavar="SYSTEM", help="Show the chain as another system does: background-job or monque.")
        ]
    },
    "job log": {
        "raw": Annotated[bool, typer.Option("--raw", help="Print only what the handler wrote, exactly as it is in the log.")],
        "follow": Annotated[
            bool,
            typer.Option("--follow", help="Print what the handler writes, as it writes it, from the first line on, until the job ends."),
        ],
    },
    "schedule get": {
        "face": Annotated[str | None, typer.Option("--face", metavar="SYSTEM", help="Show the schedule as another system does: monque.")]
    },
    "token create": {"quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print the secret and nothing else.")]},
}
"""Options that say how a result is shown. The operation does not know them."""


class Called(msgspec.Struct):
    """One call of a command: what its view needs besides the result."""

    words: str
    rota: Rota
    """As the actor."""
    asked: dict[str, Any]
    """The keywords of the operation."""
    extras: dict[str, Any]
    """How the result is to be shown."""
    adds: bool
    """Whether single params were given, to be added to those that are there."""
    stack: ExitStack
    """Left when the command ends."""


class Command(msgspec.Struct, frozen=True):
    """The command of an operation."""

    noun: str
    verb: str
    operation: Operation
    words: str
    """Those that call it."""
    several: bool
    """Whether it changes one job: then several can be given, and each is changed."""


def command_of(place: str) -> Command:
    """Return the command of an operation, given as `noun.verb`."""
    name, _, verb = place.partition(".")
    operation = operations(_class(name))[verb]
    several = not operation.reads and [field.name for field in operation.fields if field.positional] == ["job"]
    return Command(name, verb, operation, str(operation.cli), several)


@cache
def verbs_of(name: str) -> dict[str, str]:
    """Return the commands of a noun, as `noun.verb`, by the last of their words."""
    words = {verb: str(operation.cli).split() for verb, operation in operations(_class(name)).items() if operation.cli}
    return {each[-1]: f"{name}.{verb}" for verb, each in words.items() if len(each) > 1}


def info_of(place: str, *, panel: str | None = None) -> CommandInfo:
    """Return the command of an operation as typer takes it."""
    command = command_of(place)
    parameters = [parameter for field in command.operation.fields for parameter in _parameters(command, field)]
    common: dict[str, Any] = {"app": AppOption}
    common |= EXTRAS.get(command.words, {}) | ({"yes": YesOption} if command.operation.confirm else {})
    common |= {"store": StoreOption, "as_json": JsonOption}
    flags = {name for name, kind in common.items() if kind.__origin__ is bool}
    parameters += [_keyword(name, kind, default=False if name in flags else None) for name, kind in common.items()]

    call: Any = partial(_run, command)
    call.__signature__ = inspect.Signature(parameters)
    shown = examples(*EXAMPLES.get(command.words) or generated(command.operation, option_of))
    return CommandInfo(name=command.words.split()[-1], callback=call, help=_help(command.operation), epilog=shown, rich_help_panel=panel)


def option_of(field: Field) -> str:
    """Return the name of an option, without the other one of a pair such as --enabled/--disabled."""
    return f"--{(field.shape.option or field.name.replace('_', '-')).partition('/')[0]}"


# ---- what can be typed ----------------------------------------------------------------------------------------------


def _class(name: str) -> Any:
    if name == "rota":
        from rota.app import Rota  # noqa: PLC0415 - only few commands are made from the operations of a Rota itself

        return Rota
    return noun(name)


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parameters(command: Command, field: Field) -> list[inspect.Parameter]:
    """Return the argument or the options of one parameter; none for one that only Python can pass."""
    kind = wire.reader_of(field).wire
    if kind is None or field.shape.hidden:
        return []
    if field.positional and not _is_object(kind):
        return [_argument(field, several=wire.is_list(field) or (command.several and field.name == "job"))]
    words = _words(field)
    if kind is bool:
        return [_flag(field, words)]
    default = _default(command.operation, field)
    metavar, names = field.shape.metavar or field.name.upper(), NAMES.get(field.name) or (option_of(field),)
    text: Any = list[str] | None if wire.is_list(field) or len(names) > 1 else str | None
    if _is_object(kind):
        words = f"{words} A JSON object; @FILE reads a file, - reads standard input."
    elif field.name in wire.SECRETS:
        words = f"{words} Use @FILE or - (standard input): others can see a command line."
    choices = _choices(field.hint)
    if not all(choice.lower() in words.lower() for choice in choices):
        words = f"{words} One of {', '.join(choices)}."
    complete = (lambda incomplete: [choice for choice in choices if choice.lower().startswith(incomplete.lower())]) if choices else None
    option = typer.Option(*names, metavar=metavar, help=words, show_default=default is not None, autocompletion=complete)
    made = [_keyword(field.name, Annotated[text, option], default)]
    return [*made, _keyword("pairs", PairsOption, None)] if field.name == "params" else made


def _argument(field: Field, *, several: bool) -> inspect.Parameter:
    metavar = field.shape.metavar or field.name.upper()
    kind: Any = list[str] if several else str
    if field.required:
        return _keyword(field.name, Annotated[kind, typer.Argument(metavar=metavar, help=_words(field))])
    return _keyword(
        field.name, Annotated[kind | None, typer.Argument(metavar=f"[{metavar}]", help=_words(field), show_default=False)], None
    )


def _flag(field: Field, words: str) -> inspect.Parameter:
    yes, _, no = (field.shape.option or field.name.replace("_", "-")).partition("/")
    if field.default is False and not no:
        return _keyword(field.name, Annotated[bool, typer.Option(f"--{yes}", help=words)], default=False)
    name = f"--{yes}/--{no or f'no-{yes}'}"
    return _keyword(field.name, Annotated[bool | None, typer.Option(name, help=words, show_default=False)], default=None)


def _choices(hint: Any) -> list[str]:
    """Return the words of the enums and literals in an annotation."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(each) for each in hint]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [choice for each in typing.get_args(hint) for choice in _choices(each)]


def _words(field: Field) -> str:
    """Return the help of a parameter, with an example where it has a form of its own."""
    shape = field.shape
    if shape.metavar == "CURSOR":
        return "Continue after the cursor printed below the previous page."
    words = f"{shape.help} A time without an offset is in the zone of --zone." if shape.metavar == "TIME" else shape.help
    if shape.metavar not in {"CRON", "RATE", "SPAN", "TIME", "ZONE"} or not words.endswith(".") or "such as" in words:
        return words
    return words if shape.example is None else f"{words} Example: {shape.example}."


def _default(operation: Operation, field: Field) -> str | None:
    if field.name == "limit" and operation.reads:
        return str(LIMIT)
    return str(field.default) if isinstance(field.default, str | int) else None


def _help(operation: Operation) -> str:
    """Return the docstring in the words of a command: it shows what Python returns, and names options."""
    names = {field.name: option_of(field) for field in operation.fields if not field.positional}
    text = re.sub(r"`(\w+)`", lambda word: f"`{names.get(word[1], word[1])}`", inspect.getdoc(operation.body) or "")
    text = re.sub(r"\bNone (takes|removes)", r"`none` \1", text)
    for python, command in (("Returns", "Shows"), ("returned", "shown"), ("Return", "Show"), ("return", "show")):
        text = re.sub(rf"\b{python}\b", command, text)
    hidden = next((field.name for field in operation.fields if field.shape.hidden), None)
    where = f"\n\nThe {hidden} is read from standard input; on a terminal it is asked for and not shown."
    return text if hidden is None else text + where


# ---- what was typed -------------------------------------------------------------------------------------------------


def _typed(operation: Operation, given: dict[str, Any], pairs: list[str] | None) -> dict[str, Any]:
    """Return what was typed, as `wire.read` takes it."""
    typed: dict[str, Any] = {}
    for field in operation.fields:
        value = given.get(field.name)
        if field.name == "params" and (value != NONE or pairs):
            value = params_of("{}" if value == NONE else value, pairs)
        if field.shape.hidden:
            typed[field.name] = _hidden(field)
        elif value is not None and value != [] and not (value is False and field.default is False):
            typed[field.name] = _value(field, value)
    return typed


def _hidden(field: Field) -> str:
    """Return a secret from standard input, without the newline at its end; on a terminal it is asked for and not shown."""
    if has_terminal():
        asked: str = typer.prompt(field.name.capitalize(), hide_input=True, err=True)
        return asked
    try:
        text = typer.get_text_stream("stdin").read()
    except UnicodeDecodeError:
        raise typer.BadParameter("standard input is not UTF-8: encode the value, as base64 for one") from None
    return text.removesuffix("\n").removesuffix("\r")


def _refuse_empty(operation: Operation, typed: dict[str, Any]) -> None:
    """Refuse an update without anything to update, before a store is opened."""
    fields = operation.fields
    options = [field for field in fields if not field.positional and (field.name, field.default) != ("organization", None)]
    if sum(field.positional for field in fields) == 1 and not any(field.name in typed for field in options):
        raise InvalidOption(f"nothing to change: use {', '.join(map(option_of, options))}")


def _value(field: Field, value: Any) -> Any:
    """Return one value: `none` where that takes something away, objects from their JSON, the lines of an @FILE."""
    reader = wire.reader_of(field)
    if field.name in NAMES:
        if len(value) > 1:
            raise typer.BadParameter(f"use one of {' and '.join(NAMES[field.name])}, once")
        value = value[0]
    if field.shape.metavar == "TIME" and isinstance(value, str) and MOMENT.match(value):
        try:
            return zoned(value, day=field.name in DAYS).isoformat()
        except InvalidOption as error:
            raise InvalidOption(f"{field.name}: {error}") from None
    if isinstance(value, list):
        if value == [NONE] and not field.positional:
            return None if reader.null and field.default is UNSET else []
        return [line for item in value for line in _lines(item)] if field.positional else value
    if value == NONE and reader.null and field.default is UNSET and field.name != "catch_up":
        return None
    if field.name in wire.SECRETS:
        return next(iter(_lines(value)), "")
    is_text = isinstance(value, str) and _is_object(reader.wire)
    return object_of(value, option_of(field), pairs=field.name == "backoff") if is_text else value


def _lines(item: str) -> list[str]:
    """Return one item of several; of @FILE, or - for stdin, its lines, without remarks."""
    if item != "-" and not item.startswith("@"):
        return [item]
    try:
        text = typer.get_text_stream("stdin").read() if item == "-" else Path(item[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{item[1:]} can't be read: {error}") from None
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if not lines:
        raise typer.BadParameter(f"{'standard input' if item == '-' else item[1:]} is empty: give at least one line")
    return lines


def _is_object(kind: Any) -> bool:
    return typing.get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


# ---- the call -------------------------------------------------------------------------------------------------------


def _run(command: Command, /, **given: Any) -> None:
    """Read, ask, call and show."""
    operation, words = command.operation, command.words
    extras = {name: given.pop(name) for name in EXTRAS.get(words, ())}
    store, as_json, app, pairs = given.pop("store"), given.pop("as_json"), given.pop("app"), given.pop("pairs", None)
    yes = given.pop("yes", True) or bool(given.get("dry_run"))
    typed = _typed(operation, given, pairs)
    several = typed.pop("job") if command.several else None
    if command.verb == "update":
        _refuse_empty(operation, typed)
    calls = [wire.read(operation, typed if several is None else typed | {"job": job}, text=True) for job in several or (None,)]
    adds = bool(pairs) and given["params"] is None
    makes_store = given.get("make_templates", False) or (words in MAKES_STORE and not given.get("dry_run"))
    codes: list[int] = []
    with ExitStack() as stack, session(store, app=app, make=makes_store) as rota:
        me = rota.acting_as(actor())
        if not yes:
            _confirm(command, me, {**typed, "job": ", ".join(several or ())}, calls[0])
        for asked in calls:
            try:
                _call(command, Called(words, me, asked, extras, adds, stack), as_json=as_json)
            except RotaError as error:
                if len(calls) == 1:
                    raise
                # One that is refused does not keep the others from it; the first refusal gives the exit code.
                codes.append(report(error))
    if codes:
        raise typer.Exit(codes[0])


def _call(command: Command, called: Called, *, as_json: bool) -> None:
    from rota.surfaces.cli.views import View, show, views_of  # noqa: PLC0415 - no page of help needs it

    views = views_of(command.words)
    view = views.get(command.words)
    expected = None if view is None or view.prepare is None else view.prepare(called)
    owner: Any = called.rota if command.noun == "rota" else getattr(called.rota, command.noun)
    method = getattr(owner if expected is None else owner.if_match(expected), command.verb)
    result = wire.call(method, command.operation, called.asked)
    show(view or views.get(type(result)) or View(), result, called, as_json=as_json)


# ---- the question before what can't be undone -----------------------------------------------------------------------


def _confirm(command: Command, rota: Rota, typed: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Ask once, with the number of things that match where there are filters. If none matches, nothing is asked."""
    question = str(command.operation.confirm).format(**typed)
    count = _matching(command, rota, asked)
    if count == "":
        return
    if count is not None:
        question = f"{count} {question}"
    if not has_terminal():
        raise Refused(f"{question} There is no terminal to ask on: pass --yes to confirm")
    typer.confirm(question, abort=True, err=True)


def has_terminal() -> bool:
    """Say whether somebody can answer."""
    return sys.stdin is not None and sys.stdin.isatty()


def _matching(command: Command, rota: Rota, asked: Mapping[str, Any]) -> str | None:
    """Return how many the act would change, in words; empty: none. None: it has no filters that the list of its noun has, too."""
    from rota.resources.filters import refuse_unfiltered  # noqa: PLC0415 - only a question needs it
    from rota.resources.jobs import live_states  # noqa: PLC0415 - as above

    fields = {field.name: field for field in command.operation.fields}
    if any(field.required for field in fields.values()) or "limit" not in fields:
        return None
    listing = {field.name for field in operations(type(getattr(rota, command.noun)))["list"].fields}
    filters = {name: value for name, value in asked.items() if name in listing and name != "limit"}
    cancels = command.verb == "cancel_all"
    if cancels:
        filters["status"] = live_states(filters.get("status"))
        if not filters["status"]:
            return ""
    if "all" in fields:
        refuse_unfiltered(*filters.values(), everything="all" in asked)
    page = getattr(rota, command.noun).list(**filters, limit=min(asked.get("limit", fields["limit"].default), LOOK_MAX))
    # A job that was asked to stop is not asked again.
    count = sum(not cancels or job.cancel_requested_at is None for job in page)
    if page.next is not None:
        return f"More than {count:,} match."
    return f"{count:,} {'matches' if count == 1 else 'match'}." if count else ""
