from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ports.runner import BodyRefused
from rota.runners.placeholders import translate

NAMES = {"a", "b", "name", "größe"}
SHUT = [
    "':a'", "'it''s :a'", r"E'\':a'", "E'x'\n  '\\':a'", '":a"', '"x"":a"', "$$ :a $$", "$tag$ :a $$ $tag$", "-- :a\n", "x::int", "x = y",
    "/* :a /* :b */ :a */", "f(p := 1)", "days[1:a]", "f(x)[2:b]", "a$b$c", "naïve$$", "'\\'", "(", ")", ",", "\n", " ", "1.5", "'$1'",
    "->>", "?",
]  # fmt: skip
"""Pieces of SQL in which nothing is a placeholder."""


@given(st.lists(st.one_of(st.sampled_from(SHUT), st.sampled_from([f":{name}" for name in sorted(NAMES)])), max_size=12))
def test_placeholders_are_found_wherever_they_are_and_nowhere_else(pieces):
    body, expected, numbers, places = "", "", {}, []
    for piece in pieces:
        sent = piece
        body, expected = f"{body} ", f"{expected} "
        if piece.startswith(":"):
            sent = f"${numbers.setdefault(piece[1:], len(numbers) + 1)}"
            places.append((len(body), len(expected), len(piece), len(sent)))
        body, expected = body + piece, expected + sent
    translated = translate(body, NAMES)
    assert translated.text == expected
    assert translated.names == tuple(numbers)
    for start, sent_start, length, sent_length in places:
        assert translated.original(sent_start + 1) == start + 1
        assert translated.original(sent_start + sent_length + 1) == start + length + 1
    assert translated.original(len(expected) + 1) == len(body) + 1


@given(st.text(alphabet="abE:$'\"\\-/*;\n (=1é", max_size=40))
def test_any_text_is_read_to_its_end_and_changed_only_at_placeholders(body):
    refusal: BodyRefused | None = None
    try:
        translated = translate(body, NAMES)
    except BodyRefused as refused:
        refusal = refused
    if refusal is not None:
        assert refusal.position is not None
        assert body[refusal.position - 1] in ":$"
        return
    back, done = "", 0
    for piece in translated.pieces:
        back += translated.text[done : piece.sent_start] + body[piece.start : piece.end]
        done = piece.sent_end
    assert back + translated.text[done:] == body


def test_a_cast_behind_a_placeholder_stays_a_cast():
    assert translate("SELECT :a::int, :b, :a", NAMES).text == "SELECT $1::int, $2, $1"


def test_an_unknown_name_is_refused_with_its_place_and_the_names_there_are():
    with pytest.raises(BodyRefused, match=r":nmae is not a parameter of the job \(did you mean 'name'\?\)") as refused:
        translate("SELECT\n :nmae", NAMES)
    assert refused.value.position == 9
    assert refused.value.sqlstate == "42P02"


def test_a_parameter_by_number_is_refused():
    with pytest.raises(BodyRefused, match="name it"):
        translate("SELECT $1", NAMES)


def test_the_first_word_is_behind_comments():
    assert translate("-- c\n/* x */ call p()", ()).first_word == "CALL"
    assert translate("  (SELECT 1)", ()).first_word == ""
