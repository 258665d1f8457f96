"""The form for params: from a handler's schema to fields, and back to params."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from rota import Rota
from rota.model.handler import inspect_handler
from rota.surfaces.http.pages.params_form import Field, Kind, ParamsForm, form_for, is_same
from tests.surfaces.http.pages_support import HOSTILE, Browser, browsing, said


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict, total=False):
    width: int
    height: int


@dataclass
class Line:
    sku: str
    amount: Decimal = Decimal(1)
    gift: bool = False


@dataclass
class Tree:
    name: str
    left: Tree | None = None


@dataclass
class Order:
    customer: str
    first: Line
    size: Size = field(default_factory=dict)  # type: ignore[assignment]
    more: list[Line] = field(default_factory=list)
    note: str | None = None


def shop(
    name: Annotated[str, Meta(description="Who pays.", min_length=1, max_length=80)],
    order: Order,
    at: datetime,
    ok: bool,
    color: Color,
    cc: str | None,
    mode: Literal["a", "b"] | None = None,
    level: Literal[1, 2, None] = 1,  # noqa: PYI061 - msgspec writes it otherwise
    times: Annotated[int, Meta(ge=1, le=10)] = 1,
    ratio: Annotated[float, Meta(gt=0)] | None = None,
    loud: bool = True,
    maybe: bool | None = None,
    extra: Line | None = None,
    standard: Line = Line("x"),  # noqa: B008 - never changed
    body: Annotated[str, Meta(max_length=4000)] = "Hello,\n\nAda",
    day: date | None = None,
    due: datetime | None = None,
    spell: timedelta = timedelta(minutes=5),
    key: UUID | None = None,
    path: Path = Path("/x"),
    noon: time | None = None,
    tags: list[str] = ["a"],  # noqa: B006 - never changed
    tree: Tree | None = None,
    either: int | str = 1,
    plain=3,
) -> None: ...


CODEC = inspect_handler("shop", shop, None).codec
SCHEMA = CODEC.schema
PARAMS: dict[str, Any] = {
    "name": "Ada",
    "order": {"customer": "Bob", "first": {"sku": "s1"}},
    "at": "2026-11-15T08:00:00+02:00",
    "ok": False,
    "color": "red",
    "cc": None,
}


def form(params: dict[str, Any] | None = None, defaults: dict[str, Any] | None = None, schema: Any = SCHEMA) -> ParamsForm:
    built = form_for(schema, params, defaults)
    assert built is not None
    return built


def sent(built: ParamsForm, **typed: str) -> dict[str, str]:
    """Return what a browser sends, with other texts for some fields.

    A box without its tick is not sent, lines end with CRLF, and where none of the choices is chosen the first one is.
    """
    leaves = [each for each in built.root.walk() if each.kind is not Kind.OBJECT]
    texts = {each.key: each.text for each in leaves if each.kind is not Kind.CHECK or each.text}
    texts |= {each.key: each.choices[0][0] for each in leaves if each.kind is Kind.CHOICE and each.text not in dict(each.choices)}
    texts |= {f"p/{name.replace('__', '/')}": text for name, text in typed.items()}
    lines = {each.key for each in leaves if each.kind in {Kind.LINES, Kind.JSON}}
    return {key: text.replace("\n", "\r\n") if key in lines else text for key, text in texts.items()}


def named(built: ParamsForm, place: str) -> Field:
    return next(each for each in built.root.walk() if each.path and each.place == place)


def errors(built: ParamsForm) -> list[str]:
    return [each.error for each in built.errors]


# ---- from a schema to fields -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "kind"),
    {
        "name": "text",
        "order": "object",
        "order.customer": "text",
        "order.first": "object",
        "order.first.amount": "text",
        "order.size.width": "integer",
        "order.more": "json",
        "at": "moment",
        "ok": "check",
        "color": "choice",
        "cc": "text",
        "mode": "choice",
        "times": "integer",
        "ratio": "number",
        "loud": "check",
        "maybe": "choice",
        "extra": "object",
        "body": "lines",
        "day": "date",
        "spell": "text",
        "tags": "json",
        "tree.left": "json",
        "either": "json",
        "plain": "json",
    }.items(),
)
def test_each_type_has_its_kind_of_field(place, kind):
    assert named(form(), place).kind == kind


def test_fields_are_in_the_order_of_the_signature():
    assert [each.name for each in form().fields] == list(SCHEMA["properties"])


def test_a_field_says_what_fits():
    built = form()
    assert named(built, "name").description == "Who pays."
    assert named(built, "name").hint == "1 to 80 characters"
    assert named(built, "name").attributes == {"minlength": 1, "maxlength": 80}
    assert named(built, "times").hint == "1 to 10; if empty: 1"
    assert named(built, "times").attributes == {"step": 1, "min": 1, "max": 10}
    assert named(built, "ratio").hint == "more than 0; if empty: no value"
    assert named(built, "ratio").attributes == {"step": "any", "min": 0}
    assert named(built, "at").hint == "UTC"
    assert named(built, "tags").hint == 'JSON array; if empty: ["a"]'
    assert [each.name for each in built.fields if each.must_fill] == ["name", "order", "at", "color"]
    assert not named(built, "extra.sku").must_fill, "nothing in an object that may be absent is insisted on"


def test_choices_offer_nothing_only_where_it_means_something():
    built = form()
    assert named(built, "color").choices == [("", "Choose"), ('"blue"', "blue"), ('"red"', "red")]
    assert named(built, "mode").choices == [("", "no value"), ('"a"', "a"), ('"b"', "b")]
    assert named(built, "level").choices == [("null", "no value"), ("1", "1"), ("2", "2")]
    assert named(built, "maybe").choices == [("", "no value"), ("true", "yes"), ("false", "no")]
    assert named(form({"color": "green"}), "color").choices[-1] == ('"green"', "green (not one of the values)")


def test_defaults_are_filled_in_and_those_of_the_template_come_first():
    built = form(defaults={"times": 4, "name": "Eve"})
    assert [named(built, place).text for place in ("times", "name", "loud", "standard.sku", "body")] == [
        "4",
        "Eve",
        "true",
        "x",
        "Hello,\n\nAda",
    ]
    assert not named(built, "name").required


@pytest.mark.parametrize("function", [lambda **kw: kw, lambda a, b=1: (a, b)])
def test_handlers_without_annotations_or_with_any_names_have_no_form(function):
    assert form_for(inspect_handler("f", function, None).codec.schema) is None


def test_a_handler_without_parameters_has_an_empty_form():
    built = form(schema=inspect_handler("f", lambda: None, None).codec.schema)
    assert built.fields == []
    assert built.read({}) == {}


def test_no_schema_is_too_odd():
    for odd in (None, {}, {"type": "object"}, {"properties": []}, {"properties": {}, "additionalProperties": {"type": "integer"}}):
        assert form_for(odd) is None
    loop = {"properties": {"a": {"$ref": "#/$defs/A"}}, "additionalProperties": False, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert form_for(loop) is None
    many = {"properties": {f"a{n}": {"type": "string"} for n in range(300)}, "additionalProperties": False}
    assert form_for(many) is None


words = st.sampled_from(
    ["type", "enum", "anyOf", "oneOf", "$ref", "properties", "required", "default", "minimum", "format", "maxLength", "const"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "object", "integer", "null", "date-time", "#/$defs/A"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(words, values, max_size=4), max_size=3), st.dictionaries(words, values))
def test_what_is_no_schema_of_ours_makes_no_trouble(properties, definition):
    built = form_for({"properties": properties, "additionalProperties": False, "$defs": {"A": definition}})
    if built is not None:
        built.read(sent(built))


# ---- and back --------------------------------------------------------------------------------------------------------


def test_a_new_form_leaves_out_what_was_left_as_it_was():
    built = form()
    typed = sent(built, name="Ada", order__customer="Bob", order__first__sku="s1", at="2026-11-15T08:00", color='"red"')
    assert built.read(typed) == PARAMS | {"at": "2026-11-15T08:00:00Z"}
    CODEC.encode(built.read(typed))


def test_what_is_emptied_is_left_out():
    built = form(PARAMS | {"times": 5, "tags": ["b"], "day": "2026-11-15", "mode": "a"})
    assert built.read(sent(built, times="", tags="", day="", mode="")) == PARAMS


@pytest.mark.parametrize(
    ("place", "text", "value"),
    [
        ("times", "3", 3),
        ("times", "1e1", 10),
        ("ratio", "0.25", 0.25),
        ("ratio", "2", 2),
        ("mode", '"b"', "b"),
        ("level", "null", None),
        ("maybe", "false", False),
        ("body", " two\nlines ", " two\nlines "),
        ("day", "2026-11-15", "2026-11-15"),
        ("due", "2026-11-15T08:00", "2026-11-15T08:00:00Z"),
        ("spell", " PT1H ", "PT1H"),
        ("key", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("noon", "12:30:00", "12:30:00"),
        ("tags", '["x", "y"]', ["x", "y"]),
        ("either", '"x"', "x"),
        ("cc", "x", "x"),
    ],
)
def test_what_is_typed_is_read_by_its_type(place, text, value):
    built = form(PARAMS)
    read = built.read(sent(built, **{place: text}))
    assert errors(built) == []
    assert is_same(read, PARAMS | {place: value})
    CODEC.encode(read)


@pytest.mark.parametrize(
    ("place", "text", "error"),
    [
        ("name", "", "name: required"),
        ("name", "x" * 81, "name: expected 1 to 80 characters, got 81"),
        ("order__first__sku", "", "order.first.sku: required"),
        ("order__first__amount", "much", "order.first.amount: expected decimal number, got 'much'"),
        ("times", "many", "times: expected a whole number, got 'many'"),
        ("times", "1.5", "times: expected a whole number, got '1.5'"),
        ("times", "11", "times: expected 1 to 10, got 11"),
        ("times", "9" * 500, f"times: expected a whole number, got '{'9' * 60}…'"),
        ("ratio", "0", "ratio: expected more than 0, got 0"),
        ("ratio", "nan", "ratio: expected a number, got 'nan'"),
        ("mode", '"c"', "mode: expected one of no value, a, b, got '\"c\"'"),
        ("at", "tomorrow", "at: expected date and time, such as 2026-11-15T08:00:00, got 'tomorrow'"),
        ("day", "32", "day: expected date, such as 2026-11-15, got '32'"),
        ("spell", "5m", "spell: expected ISO 8601 duration, such as PT5M, got '5m'"),
        ("key", "k", "key: expected UUID, got 'k'"),
        ("tags", "[", "tags: not JSON: Input data was truncated"),
    ],
)
def test_what_does_not_fit_is_named_and_stays(place, text, error):
    built = form(PARAMS)
    built.read(sent(built, **{place: text}))
    assert errors(built) == [error]
    assert named(built, place.replace("__", ".")).text == text


def test_an_object_that_may_be_absent_is_built_once_something_is_in_it():
    def read(params: dict[str, Any], *unticked: str, **typed: str) -> tuple[dict[str, Any], list[str]]:
        built = form(params)
        return built.read({key: text for key, text in sent(built, **typed).items() if key not in unticked}), errors(built)

    assert read(PARAMS) == (PARAMS, [])
    assert read(PARAMS, extra__sku="s2") == (PARAMS | {"extra": {"sku": "s2"}}, [])
    assert read(PARAMS, extra__gift="true")[1] == ["extra.sku: required"]
    assert read(PARAMS, standard__amount="3")[0]["standard"] == {"sku": "x", "amount": "3", "gift": False}
    given = PARAMS | {"extra": {"sku": "s2", "gift": True}}
    assert read(given) == (given, [])
    assert read(given, "p/extra/gift", extra__sku="", extra__amount="") == (PARAMS, [])


def test_what_no_field_can_show_is_shown_as_json_and_kept():
    odd = {**PARAMS, "times": "many", "name": "a\rb", "day": "soon", "extra": [1], "unknown": {"a": 1}}
    built = form(odd)
    assert {named(built, place).kind for place in ("times", "name", "day", "extra")} == {Kind.JSON}
    assert built.read(sent(built)) == odd


def test_a_browser_may_leave_out_seconds():
    built = form(PARAMS)
    assert named(built, "at").text == "2026-11-15T06:00:00", "in UTC"
    assert built.read(sent(built, at="2026-11-15T06:00")) == PARAMS


def test_names_may_have_any_characters():
    schema = {
        "properties": {
            "a/b": {"type": "string"},
            "a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "~1": {"type": "string"},
        }
    }
    built = form(schema=schema | {"additionalProperties": False})
    keys = [each.key for each in built.root.walk()]
    assert len(set(keys)) == len(keys)
    assert built.read({"p/a~1b": "x", "p/a/b": "y", "p/~01": "z"}) == {"a/b": "x", "a": {"b": "y"}, "~1": "z"}


def test_a_refusal_of_the_handler_is_shown_beside_its_field():
    for message, place in {
        "params.order.first.amount: expected decimal, got str 'x'": "order.first.amount",
        "params.order.more[1].sku: expected str": "order.more",
        "shop() needs a parameter 'color', which params do not have": "color",
    }.items():
        built = form(PARAMS)
        built.blame(message)
        assert [each.place for each in built.errors] == [place]
    built = form(PARAMS)
    built.blame("the queue is full")
    assert built.errors == []


text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"), max_size=12)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)).map(lambda at: f"{at.isoformat()}Z")  # noqa: DTZ001 - the Z is added
lines = st.fixed_dictionaries({"sku": text}, optional={"amount": st.sampled_from(["1", "2.50"]), "gift": st.booleans()})
sizes = st.fixed_dictionaries({}, optional={"width": st.integers(-9, 9)})
orders = st.fixed_dictionaries(
    {"customer": text, "first": lines}, optional={"size": sizes, "more": st.lists(lines, max_size=2), "note": st.none() | text}
)
some_params = st.fixed_dictionaries(
    {
        "name": text.filter(bool),
        "order": orders,
        "at": moments,
        "ok": st.booleans(),
        "color": st.sampled_from(["red", "blue"]),
        "cc": st.none() | text,
    },
    optional={
        "mode": st.sampled_from(["a", "b", None]),
        "level": st.sampled_from([1, 2, None]),
        "times": st.integers(1, 10),
        "ratio": st.none() | st.floats(0.001, 1e9),
        "loud": st.booleans(),
        "maybe": st.sampled_from([True, False, None]),
        "extra": st.none() | lines,
        "standard": lines,
        "body": text,
        "day": st.none() | st.dates().map(date.isoformat),
        "due": st.none() | moments,
        "tags": st.lists(text, max_size=2),
        "either": st.integers(-5, 5) | text,
        "plain": st.none() | st.integers().filter(lambda n: abs(n) < 2**60) | text,
    },
)


@settings(max_examples=60)
@given(some_params)
def test_an_untouched_form_changes_nothing(params):
    built = form(params)
    assert is_same(built.read(sent(built)), params)
    assert built.errors == []


@settings(max_examples=60)
@given(some_params, some_params)
def test_what_the_fields_can_show_comes_back_the_same(before, after):
    built = form(before)
    shown = built.fill(after)
    typed = {**sent(built)}
    if shown:
        again = form(before)
        assert is_same(again.read(typed), after)
        assert msgspec.json.decode(CODEC.encode(again.read(typed))) == after


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        ({"type": "boolean"}, {"f": False}, {}),
        ({"enum": ["red", "green"], "default": "green"}, {"f": "red"}, {}),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": "a"}, {"f": "b"}, {}),
        ({"enum": ["a", None]}, {"f": "a"}, {}),
    ],
)
def test_a_choice_that_was_taken_out_is_not_chosen_again_by_the_browser(schema, before, after):
    whole = {"type": "object", "properties": {"f": schema}, "additionalProperties": False}
    built = form(before, schema=whole)
    shown = built.fill(after)
    typed = sent(built)
    again = form(before, schema=whole)
    assert not shown or again.read(typed) == after


# ---- on pages --------------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Reads the form that posts to an address, as a browser would send it."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action = action
        self.fields: dict[str, str] = {}
        self.labels: set[str] = set()
        self.ids: dict[str, str] = {}
        self._inside = False
        self._name: str | None = None
        self._kind = ""
        self._is_first = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = about["action"] == self.action
        if not self._inside:
            return
        name, is_set = about.get("name", ""), "checked" in about or about.get("type") != "checkbox"
        if tag in {"input", "select", "textarea"} and "id" in about:
            self.ids[name] = about["id"]
        if tag == "label" and "for" in about:
            self.labels.add(about["for"])
        if tag == "input" and is_set:
            self.fields[name] = about.get("value", "")
        if tag in {"select", "textarea"}:
            self._name, self._kind, self.fields[name], self._is_first = name, tag, "", True
        if tag == "option" and self._name and ("selected" in about or self._is_first):
            self.fields[self._name], self._is_first = about["value"], False

    def handle_data(self, data: str) -> None:
        if self._name and self._kind == "textarea":
            self.fields[self._name] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in {"select", "textarea"} and self._name:
            # A browser leaves out the first line break.
            if tag == "textarea":
                self.fields[self._name] = self.fields[self._name].removeprefix("\n").replace("\n", "\r\n")
            self._name = None
        self._inside = self._inside and tag != "form"


def form_on(answer: Any, action: str = "/jobs") -> dict[str, str]:
    reader = Reader(action)
    reader.feed(answer.text)
    return {name: value for name, value in reader.fields.items() if name not in {"csrf", ""}}


def warnings(answer: Any) -> list[str]:
    return [unescape(each) for each in re.findall(r'<p class="wrong" id="[^"]+">(.*?)</p>', answer.text)]


@pytest.fixture
def store(shared: Rota) -> Rota:
    shared.job(shop, name="shop", max_retries=0)

    @shared.job
    def coded(code: Annotated[str, Meta(pattern="^[a-z]+$")], line: Line | None = None) -> None: ...

    @shared.job
    def free(**anything: int) -> None: ...

    @shared.job
    def bare(text):
        return text

    @shared.job
    def nothing() -> None: ...

    shared.turn()
    return shared


@pytest.fixture
def people(store: Rota):
    with browsing(store) as browser:
        yield browser


@pytest.fixture
def bob(people) -> Browser:
    return people("bob")


@pytest.fixture
def root(people) -> Browser:
    return people("root")


TYPED = {
    "p/name": "Ada",
    "p/order/customer": "Bob",
    "p/order/first/sku": "s1",
    "p/at": "2026-11-15T08:00",
    "p/color": '"red"',
    "p/times": "3",
    "p/body": "one\r\ntwo",
}


def test_a_job_is_enqueued_by_its_fields(store: Rota, bob: Browser):
    shown = bob.get("/jobs/new?name=shop")
    done = bob.act("/jobs", **form_on(shown) | TYPED | {"priority": "high"})
    job = store.jobs.list(owner="bob")[0]
    assert said(done) == f"{job.number} is enqueued."
    assert job.params == PARAMS | {"at": "2026-11-15T08:00:00Z", "times": 3, "body": "one\ntwo"}
    assert job.priority == 75


def test_every_field_has_its_label_and_what_is_known_of_it(bob: Browser):
    page = bob.get("/jobs/new?name=shop")
    reader = Reader("/jobs")
    reader.feed(page.text)
    unlabelled = [name for name, id_ in reader.ids.items() if id_ not in reader.labels]
    assert all(re.search(rf'<label><input type="checkbox" id="{reader.ids[name]}"', page.text) for name in unlabelled), unlabelled
    assert "Who pays.<br>1 to 80 characters" in page.text
    assert '<input id="p1" name="p/name" required aria-describedby="p1-hint" type="text" minlength="1" maxlength="80"' in page.text
    assert re.search(r'type="number" step="1" min="1" max="10" value="1"', page.text)
    assert re.search(r'type="datetime-local" step="1" value="".*?UTC', page.text)
    assert "<legend>order " in page.text


def test_what_is_refused_comes_back_beside_the_form_with_what_was_typed(store: Rota, bob: Browser):
    typed = form_on(bob.get("/jobs/new?name=shop")) | TYPED | {"p/times": "99", "p/order/first/sku": "", "p/tags": "[1", "priority": "low"}
    typed.pop("p/loud")
    answer = bob.act("/jobs", **typed)
    assert answer.status_code == 422
    assert warnings(answer) == ["order.first.sku: required", "times: expected 1 to 10, got 99", "tags: not JSON: Input data was truncated"]
    assert form_on(answer) == typed
    assert store.jobs.list(owner="bob") == []
    mended = bob.act("/jobs", **typed | {"p/times": "9", "p/order/first/sku": "s", "p/tags": "[]"})
    assert "is enqueued" in said(mended)
    assert store.jobs.list(owner="bob")[0].params["loud"] is False


@pytest.mark.parametrize(
    ("wrong", "words"),
    {"priority": "hihg", "run_at": "tomorrow", "unique_key": "x" * 5000}.items(),
)
def test_a_wrong_option_loses_nothing_that_was_typed(store: Rota, bob: Browser, wrong, words):
    typed = form_on(bob.get("/jobs/new?name=shop")) | TYPED | {wrong: words}
    answer = bob.act("/jobs", **typed)
    assert answer.status_code == 422
    assert words[:4] in re.search(r'role="alert">(.*?)</div>', answer.text, re.DOTALL)[1]
    assert form_on(answer) == typed
    assert store.jobs.list(owner="bob") == []


def test_a_refusal_of_the_handler_comes_back_beside_its_field(bob: Browser):
    typed = form_on(bob.get("/jobs/new?name=coded")) | {"p/code": "A1"}
    answer = bob.act("/jobs", **typed)
    assert answer.status_code == 422
    assert warnings(answer) == ["params.code: expected str matching regex '^[a-z]+$', got str 'A1'"]
    assert form_on(answer) == typed


def test_the_whole_is_shown_as_json_and_as_fields_again(store: Rota, bob: Browser):
    typed = form_on(bob.get("/jobs/new?name=shop")) | TYPED
    as_json = bob.act("/jobs", **typed, switch="json")
    assert as_json.status_code == 200
    assert msgspec.json.decode(form_on(as_json)["params"]) == PARAMS | {"at": "2026-11-15T08:00:00Z", "times": 3, "body": "one\ntwo"}
    fields = bob.act("/jobs", **form_on(as_json), switch="fields")
    expected = form_on(bob.get("/jobs/new?name=shop")) | TYPED | {"p/at": "2026-11-15T08:00:00"}
    assert form_on(fields) == expected
    assert store.jobs.list(owner="bob") == []
    odd = bob.act("/jobs", **form_on(as_json) | {"params": '{"times": "many"}'}, switch="fields")
    assert odd.status_code == 422
    assert "cannot show these params" in odd.text
    assert form_on(odd)["params"] == '{"times": "many"}'
    wrong = bob.act("/jobs", **typed | {"p/times": "x"}, switch="json")
    assert warnings(wrong) == ["times: expected a whole number, got 'x'"]
    assert form_on(bob.get("/jobs/new?name=shop&params_as=json"))["params"] == "{}"


def test_a_template_without_a_form_takes_json(store: Rota, bob: Browser):
    for name, params in (("free", {"a": 1}), ("bare", {"text": "x"})):
        page = bob.get(f"/jobs/new?name={name}")
        assert "Edit as" not in page.text
        wrong = bob.act("/jobs", **form_on(page) | {"params": "{"})
        assert wrong.status_code == 422
        assert form_on(wrong)["params"] == "{"
        bob.act("/jobs", **form_on(page) | {"params": msgspec.json.encode(params).decode()})
        assert store.jobs.list(owner="bob")[0].params == params
    assert "has no parameters" in bob.get("/jobs/new?name=nothing").text
    assert "is enqueued" in said(bob.act("/jobs", **form_on(bob.get("/jobs/new?name=nothing"))))


def test_a_template_is_chosen_first(bob: Browser):
    page = bob.get("/jobs/new")
    assert '<option value="shop">shop</option>' in page.text
    assert 'href="/jobs/new"' in bob.get("/jobs").text
    assert 'href="/jobs/new?name=shop"' in bob.get("/templates/one?name=shop").text
    assert bob.get("/jobs/new?name=nobody").status_code == 422


def test_who_may_not_submit_is_not_offered_the_form(people):
    reader = people("bob", "read")
    assert "/jobs/new" not in reader.get("/jobs").text
    assert reader.get("/jobs/new?name=shop").status_code == 403


def test_the_defaults_of_the_template_are_filled_in(store: Rota, bob: Browser):
    store.acting_as("root").templates.update("shop", default_params={"times": 7, "name": "Eve"})
    typed = form_on(bob.get("/jobs/new?name=shop"))
    assert (typed["p/times"], typed["p/name"]) == ("7", "Eve")
    bob.act("/jobs", **typed | TYPED | {"p/times": "7", "p/name": "Eve"})
    job = store.jobs.list(owner="bob")[0]
    assert (job.params["times"], job.params["name"]) == (7, "Eve")


def test_a_waiting_job_is_changed_by_its_fields(store: Rota, root: Browser):
    first, second = (store.acting_as("root").enqueue("shop", PARAMS | {"body": "a\nb"}, organization="acme") for _ in range(2))
    address = f"/jobs/{first.id}/change"
    assert f'href="{address}"' in root.get(f"/jobs/{first.id}").text
    typed = form_on(root.get(address), address)
    assert (typed["p/name"], typed["p/at"], typed["p/body"], typed["p/color"]) == ("Ada", "2026-11-15T06:00:00", "a\r\nb", '"red"')
    assert said(root.act(address, **typed)) == "Nothing is changed."
    wrong = root.act(address, **typed | {"p/times": "0", "p/name": HOSTILE})
    assert wrong.status_code == 422
    assert warnings(wrong) == ["times: expected 1 to 10, got 0"]
    assert HOSTILE not in wrong.text
    assert form_on(wrong, address)["p/name"] == HOSTILE
    assert "is changed" in said(root.act(address, **typed | {"p/times": "4", "p/body": ""}))
    assert store.jobs.get(first.id).params == PARAMS | {"times": 4}
    assert [job.id for job in store.queues.jobs()] == [first.id, second.id], "it keeps its place"


def test_params_that_somebody_else_changed_are_not_overwritten_unseen(store: Rota, root: Browser):
    job = store.acting_as("root").enqueue("shop", PARAMS, organization="acme")
    address = f"/jobs/{job.id}/change"
    typed = form_on(root.get(address), address) | {"p/name": "Eve"}
    store.acting_as("root").jobs.update(job, params=PARAMS | {"times": 5})
    answer = root.act(address, **typed)
    assert answer.status_code == 412
    assert "were changed after this page was opened" in answer.text
    assert store.jobs.get(job.id).params == PARAMS | {"times": 5}
    assert form_on(answer, address)["p/name"] == "Eve"
    root.act(address, **form_on(answer, address))
    assert store.jobs.get(job.id).params == PARAMS | {"name": "Eve", "times": 1}


def test_a_typing_mistake_does_not_take_the_params_of_somebody_else_for_seen(store: Rota, root: Browser):
    job = store.acting_as("root").enqueue("shop", PARAMS, organization="acme")
    address = f"/jobs/{job.id}/change"
    typed = form_on(root.get(address), address) | {"p/name": "Eve"}
    store.acting_as("root").jobs.update(job, params=PARAMS | {"times": 5})
    mistaken = root.act(address, **typed | {"p/times": "0"})
    assert mistaken.status_code == 422
    assert root.act(address, **form_on(mistaken, address) | {"p/times": "1"}).status_code == 412
    assert store.jobs.get(job.id).params == PARAMS | {"times": 5}


def test_a_job_that_has_started_is_not_changed(store: Rota, root: Browser):
    job = store.acting_as("root").enqueue("nothing", organization="acme")
    store.turn()
    page = root.get(f"/jobs/{job.id}/change")
    assert "has started" in page.text
    answer = root.act(f"/jobs/{job.id}/change", priority="high")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text


def test_a_schedule_is_created_and_changed_by_the_fields_of_its_params(store: Rota, root: Browser):
    assert '<option value="shop">' in root.get("/schedules/new").text
    shown = form_on(root.get("/schedules/new?template=shop"), "/schedules")
    wrong = root.act("/schedules", **shown | TYPED | {"name": "daily", "cron": "0 3 * * *", "p/times": "0"})
    assert (wrong.status_code, warnings(wrong)) == (422, ["times: expected 1 to 10, got 0"])
    typed = form_on(wrong, "/schedules")
    assert (typed["name"], typed["cron"], typed["p/name"]) == ("daily", "0 3 * * *", "Ada")
    done = root.act("/schedules", **typed | {"p/times": "3"})
    assert said(done).startswith("Schedule daily is created: every day at 03:00")
    assert store.schedules.get("daily").params == PARAMS | {"at": "2026-11-15T08:00:00Z", "times": 3, "body": "one\ntwo"}

    address = "/schedules/one/change"
    typed = form_on(root.get(f"{address}?name=daily"), address)
    assert (typed["cron"], typed["p/times"], typed["p/color"]) == ("0 3 * * *", "3", '"red"')
    assert said(root.act(address, **typed)) == "Nothing is changed."
    as_json = root.act(address, **typed | {"switch": "json", "p/times": "4"})
    assert msgspec.json.decode(form_on(as_json, address)["params"])["times"] == 4
    refused = root.act(address, **typed | {"cron": "61 * * * *"})
    assert (refused.status_code, form_on(refused, address)["cron"]) == (422, "61 * * * *")
    assert "daily is changed" in said(root.act(address, **typed | {"p/times": "5", "p/body": ""}))
    assert store.schedules.get("daily").params == PARAMS | {"at": "2026-11-15T08:00:00Z", "times": 5}


def test_a_schedule_of_a_template_without_a_form_takes_json(store: Rota, root: Browser):
    shown = form_on(root.get("/schedules/new?template=bare"), "/schedules")
    assert shown["params_as"] == "json"
    assert root.act("/schedules", **shown | {"name": "s", "every": "1h", "params": "[1]"}).status_code == 422
    root.act("/schedules", **shown | {"name": "s", "every": "1h", "params": '{"text": "x"}'})
    assert store.schedules.get("s").params == {"text": "x"}


def test_what_others_wrote_runs_nowhere(store: Rota, root: Browser):
    store.acting_as("root").templates.update("shop", default_params={"name": HOSTILE, "tags": [HOSTILE, "</textarea>"]})
    page = root.get("/jobs/new?name=shop")
    assert HOSTILE not in page.text
    assert form_on(page)["p/name"] == HOSTILE
    assert msgspec.json.decode(form_on(page)["p/tags"]) == [HOSTILE, "</textarea>"]
    assert "<script>" not in root.act("/jobs", **form_on(page) | {"p/day": HOSTILE}).text
