"""Every statement that the language can say is rendered to text that says it, and no text does more than be refused."""

from __future__ import annotations

import time
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import SqlError
from rota.sql import syntax
from rota.sql.grammar import CLAUSES, KEYWORDS
from rota.sql.parser import parse, parse_script
from rota.sql.render import render
from rota.sql.tokens import TokenKind, tokens_of
from tests.sql.generated import LETTERS, PIECES, Statements
from tests.support.proof import proving, size

SEED = Random().getrandbits(32) if proving() else 7
DAMAGE = [
    "",
    "'",
    '"',
    "$",
    "$$",
    ";",
    "(",
    ")",
    ",",
    " AS ",
    "é",
    "1",
    "--",
    "/*",
    "*/",
    " SET ",
    "=",
    "?",
    "-",
    ".",
    "\n",
    " NONE ",
    " 'x' ",
]
SPACES = (" ", "  ", "\n", "\t", " -- x\n", "/* ' /* \" */ */", "\r\n")
WITHOUT_CASE = KEYWORDS | {choice.upper() for clause in CLAUSES for choice in clause.choices or ()}
WORDS = (*PIECES, *DAMAGE, "CREATE", "JOB", "ALTER", "SCHEDULE", "EVERY", "1", "H")


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_rendered_statement_is_read_as_the_same_and_rendered_the_same_again():
    statements = Statements(SEED)
    for number in range(size(600, prove=20_000)):
        statement = statements()
        text = render(statement, secrets=True)
        read = parse(text)
        assert read == statement, (SEED, number, text)
        assert repr(read) == repr(statement), (SEED, number, text)
        assert render(read, secrets=True) == text, (SEED, number)


def test_every_kind_of_statement_is_generated():
    statements = Statements(SEED)
    assert {type(statements()) for _ in range(600)} == set(get_args(syntax.Statement))


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_case_of_keywords_and_spaces_and_comments_between_tokens_mean_nothing():
    statements, chance = Statements(SEED + 3), Random(SEED)
    for _ in range(size(300, prove=20_000)):
        statement = statements()
        # A query is its text, and the value of a setting may be a word that keeps its case.
        if isinstance(statement, syntax.Select | syntax.AlterSystem):
            continue
        pieces = []
        for token in tokens_of(render(statement, secrets=True)):
            is_keyword = token.kind is TokenKind.WORD and token.word in WITHOUT_CASE
            pieces += [token.text.swapcase() if is_keyword and chance.random() < 0.5 else token.text, chance.choice(SPACES)]
        assert parse("".join(pieces)) == statement, (SEED, pieces)


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_script_of_rendered_statements_has_each_in_its_place():
    statements = Statements(SEED + 1)
    for _ in range(size(60, prove=2_000)):
        several = [statements() for _ in range(5)]
        script = "\n;\n-- between; them\n".join(render(each, secrets=True) for each in several)
        parsed = parse_script(script)
        assert [each.statement for each in parsed] == several
        for each in parsed:
            assert parse(script[each.start : each.end]) == each.statement


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_damaged_statement_parses_or_raises_one_kind_of_error():
    statements, chance = Statements(SEED + 2), Random(SEED)
    for _ in range(size(600, prove=20_000)):
        text = render(statements(), secrets=True)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(DAMAGE) + text[at + chance.randrange(6) :]
        read(text)


@pytest.mark.prove
@given(st.text(alphabet=LETTERS + "\0\ud800\r") | st.lists(st.sampled_from(WORDS)).map(" ".join))
@settings(max_examples=size(300, prove=20_000), deadline=None)
def test_any_text_parses_or_raises_one_kind_of_error(text):
    read(text)


def error_of(text: str) -> SqlError | None:
    """Return the error of a text, if it has one."""
    try:
        parse_script(text)
    except SqlError as error:
        return error
    return None


def read(text: str) -> None:
    """Read a text; an error has to be whole."""
    error = error_of(text)
    if error is None:
        return
    assert text[: error.position - 1].count("\n") + 1 == error.line
    assert error.position - text.rfind("\n", 0, error.position - 1) - 1 == error.column
    assert 1 <= error.position <= len(text) + 1
    assert len(error.sqlstate) == 5
    assert str(error) == f"{error.line}:{error.column}: {error.message}"
    assert error.report().startswith(f"{error.code} [{error.sqlstate}] {error}")


LONG = {
    "statements": lambda n: "DROP JOB j;" * n,
    "semicolons": lambda n: "SHOW JOBS" + ";" * n,
    "names": lambda n: "CREATE JOB j SCHEDULE = EVERY 1 H DEPENDS ON " + ",".join(f"a{number}" for number in range(n)) + " AS 'x'",
    "a string": lambda n: f"CREATE JOB j SCHEDULE = EVERY 1 H AS '{'x' * n}'",
    "quotes in a string": lambda n: f"CREATE JOB j SCHEDULE = EVERY 1 H AS '{chr(39) * 2 * n}x'",
    "no closing quote": lambda n: f"CREATE JOB j SCHEDULE = EVERY 1 H AS '{chr(39) * 2 * n}",
    "a name": lambda n: f"DROP JOB {'x' * n}",
    "an unknown word": lambda n: f"{'x' * n} JOB",
    "digits": lambda n: f"CREATE JOB j SCHEDULE = EVERY {'1' * n}x AS 'x'",
    "numbers": lambda n: f"CREATE JOB j SCHEDULE = EVERY {'1 S ' * n} AS 'x'",
    "parentheses": lambda n: f"CREATE JOB j PARTITION BY DYNAMIC {'(' * n}",
    "parentheses side by side": lambda n: f"CREATE JOB j PARTITION BY DYNAMIC ({'() ' * n}) SCHEDULE = EVERY 1 H AS 'x'",
    "comments": lambda n: f"SHOW JOBS {'/* x */' * n}",
    "nested comments": lambda n: f"SHOW JOBS {'/*' * n}{'*/' * n}",
    "comments that do not end": lambda n: "/*/" * n,
    "dollars": lambda n: "SELECT " + "$a$ $ $b$ " * n,
    "JSON": lambda n: f"EXECUTE JOB j WITH PARAMS '{{{chr(34)}a{chr(34)}: {'[' * n}'",
    "arguments": lambda n: f"CREATE JOB j SCHEDULE = EVERY 1 H CALL p({'1,' * n}1)",
    "cron": lambda n: f"CREATE JOB j SCHEDULE = CRON '{'1,' * n}1 * * * *' AS 'x'",
    "a command": lambda n: f"CREATE JOB j SCHEDULE = EVERY 1 H EXEC '/bin/true {'x ' * n}'",
    "dots": lambda n: f"DROP JOB a{'.a' * n}",
    "a query": lambda n: f"SELECT {'(1 + ' * n}",
    "lines": lambda n: "\n" * n + "SHOW NOTHING",
    "grantees": lambda n: "GRANT CREATE JOB TO " + ", ".join(f"u{number}" for number in range(n)),
}


@pytest.mark.parametrize("shape", LONG)
def test_the_time_to_read_a_text_grows_with_its_length_and_not_faster(shape):
    def cost(n: int) -> float:
        text, best = LONG[shape](n), float("inf")
        for _ in range(3):
            start = time.process_time()
            error = error_of(text)
            best = min(best, time.process_time() - start)
        assert error is None or len(error.report()) < 2_000
        return best

    short, long = cost(1_000), cost(8_000)
    assert long < 8 * 4 * short + 0.05
