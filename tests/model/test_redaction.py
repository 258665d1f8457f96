from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.redaction import MASK, Redactor

VALUE = 'hunter2/"Gänse" +secret?'
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\nxy==\n-----END KEY-----\n"


def streamed(redactor: Redactor, data: bytes, step: int) -> bytes:
    pieces = [redactor.feed(data[at : at + step]) for at in range(0, len(data), step)]
    return b"".join([*pieces, redactor.flush()])


FORMS = {
    "plain": VALUE,
    "json": json.dumps(VALUE)[1:-1],
    "json without escapes": json.dumps(VALUE, ensure_ascii=False)[1:-1],
    "json with escaped slashes": json.dumps(VALUE)[1:-1].replace("/", r"\/"),
    "url": quote(VALUE, safe=""),
    "url in a path": quote(VALUE),
    "url in a form": quote_plus(VALUE),
    "url in small letters": quote(VALUE, safe="")
    .replace("%2F", "%2f")
    .replace("%C3", "%c3")
    .replace("%A4", "%a4")
    .replace("%2B", "%2b")
    .replace("%3F", "%3f"),
    "hex": VALUE.encode().hex(),
    "large hex": VALUE.encode().hex().upper(),
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(VALUE.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_replaced_in_every_form(form):
    assert Redactor([VALUE]).text(f"<{form}>") == f"<{MASK}>"
    assert streamed(Redactor([VALUE]), f"<{form}>".encode(), 3) == f"<{MASK}>".encode()


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_value_inside_of_what_was_encoded_as_base64_is_replaced(before, encode):
    whole = encode(b"u" * before + VALUE.encode() + b":rest of the line").decode()
    shown = Redactor([VALUE]).text(whole)
    assert MASK in shown
    # What is left decodes to nothing of it but the bits of one neighbour.
    assert len(shown) <= len(MASK) + len(whole) - len(VALUE.encode()) * 8 // 6 + 1


def test_what_is_shorter_than_four_bytes_is_left_as_it_is():
    text = "abc def"
    assert Redactor(["abc"]).text(text) is text
    assert not Redactor(["abc", ""])
    assert Redactor(["äb"]).text("äb") == "äb"
    assert Redactor(["äbc"]).text("äbc") == MASK


def test_without_values_everything_is_the_same_object():
    redactor, data, text = Redactor([]), b"x" * 1000, '{"a": "\\n"}'
    assert redactor.feed(data) is data
    assert redactor.flush() == b""
    assert redactor.text(text) is text
    assert redactor.json(text) is text


def test_long_lines_of_a_value_are_replaced_where_they_are_alone():
    redactor = Redactor([PEM])
    assert redactor.text("found MIIEvQIBADANBgkqhkiG9w0BAQEFAASC in line 2") == f"found {MASK} in line 2"
    assert redactor.text("xy==") == "xy=="
    assert redactor.text(f"[{PEM}]") == f"[{MASK}]"


def test_values_that_overlap_are_replaced_together():
    assert Redactor(["abcdef", "defghi"]).text("-abcdefghi-abcdef-") == f"-{MASK}-{MASK}-"
    for step in range(1, 10):
        assert streamed(Redactor(["abcdef", "defghi"]), b"-abcdefghi-abcdef-", step) == f"-{MASK}-{MASK}-".encode()


def test_a_value_that_begins_like_a_longer_one_is_not_shown_by_halves():
    redactor = Redactor(["token", "token-and-more"])
    assert redactor.feed(b"a token") == b"a "
    assert redactor.feed(b"-and-more b") == MASK.encode() + b" b"


def test_only_what_may_be_the_beginning_of_a_value_is_kept():
    redactor = Redactor(["hunter2-hunter2-hunter2"])
    assert redactor.feed(b"waiting for input: ") == b"waiting for input: "
    assert redactor.feed(b"password hun") == b"password "
    assert redactor.feed(b"gry") == b"hungry"


def test_each_stream_has_its_own_redactor():
    first = Redactor(["hunter2"])
    first.feed(b"hunt")
    second = first.another()
    assert second.feed(b"er2") == b"er2"
    assert first.feed(b"er2") == MASK.encode()


ALPHABET = st.text(alphabet="ab\n", max_size=12)


@given(st.lists(st.text(alphabet="ab\n", min_size=4, max_size=9), max_size=3), st.lists(ALPHABET, max_size=12))
def test_the_pieces_of_a_stream_do_not_matter(values, pieces):
    redactor, whole = Redactor(values), "".join(pieces)
    shown = b"".join([*(redactor.feed(piece.encode()) for piece in pieces), redactor.flush()])
    assert shown.decode() == Redactor(values).text(whole)
    assert not any(value in shown.decode() for value in values)


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"a": VALUE, "b": [1, VALUE]}, {"a": MASK, "b": [1, MASK]}),
        ({VALUE: f"x{VALUE}y"}, {MASK: f"x{MASK}y"}),
        ({"pin": 483920175, "other": 4839}, {"pin": MASK, "other": 4839}),
        (["inner " + json.dumps({"a": VALUE})], ["inner " + json.dumps({"a": MASK})]),
        ({"a": 1.10, "b": None, "c": True}, {"a": 1.10, "b": None, "c": True}),
    ],
)
def test_json_stays_json(document, shown):
    redactor = Redactor([VALUE, "483920175"])
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        assert json.loads(redactor.json(text)) == shown


def test_a_value_behind_needless_escapes_is_found_in_json():
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in "hunter2")
    assert Redactor(["hunter2"]).json(f'{{"a": "{escaped}", "b": 1.10}}') == f'{{"a": "{MASK}", "b": 1.10}}'


def test_a_value_that_is_several_parts_of_a_document_takes_all_of_it():
    value = '{"user":"ada","key":"k"}'
    assert Redactor([value]).json(f'{{"result":{value}}}') == f'"{MASK}"'
    assert json.loads(Redactor(['","b":"']).json('{"a":"1","b":"2"}')) == MASK


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\1é'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="ab1"), inner),
    )
)
def test_any_json_stays_valid_and_has_no_value(document):
    redactor = Redactor(["aab1", "1111", 'b"\\a'])
    shown = redactor.json(json.dumps(document))
    json.loads(shown)
    assert redactor.text(shown) == shown
