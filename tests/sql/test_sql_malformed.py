"""The malformed inputs of the specification: each is refused with its place, code, SQLSTATE and words, however it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from rota import Rota
from rota.errors import SqlError
from rota.sql.tokens import SqlToken, TokenKind, tokens_of
from tests.stores.makers import MAKERS
from tests.support.prepared import prepare
from tests.support.proof import proving, size

SEED = Random().getrandbits(32) if proving() else 7
VARIANTS = size(5, prove=500)
"""Of each input."""
LATER = {
    34: "shards are known by name or id; what is not a shard is refused where a cluster is configured",
    50: "roles: see the tests of grants",
    51: "roles: see the tests of grants",
    58: "the SQL of a job is read by its runner",
    66: "the allowlist is a worker's: the command is refused when it is run",
    101: "grants have tests of their own",
    104: "stored settings have tests of their own",
    105: "stored settings have tests of their own",
    107: "sys.job_secrets has names alone: the value of a secret is no column",
}
"""Inputs that need a later part, or that are decided otherwise, with the reason."""


class Malformed(NamedTuple):
    """An input and its error; `…` in the words stands for any others."""

    number: int
    text: str
    code: str
    sqlstate: str
    offset: int
    words: str


def _read() -> Iterator[Malformed]:
    for entry in (Path(__file__).parent / "malformed.txt").read_text().strip().split("\n\n"):
        heading, _, error = entry.partition("\n  ")
        number, _, text = heading.partition(". ")
        if error == "later":
            assert int(number) in LATER
            continue
        code, sqlstate, column, words = re.fullmatch(r"(\w+) \[(\w{5})\] 1:(\d+): (.*)", error).groups()
        yield Malformed(int(number), text, code, sqlstate, int(column) - 1, words)


TABLE = {each.number: each for each in _read()}
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL work()"
NEEDED = {
    41: f"CREATE JOB a {HOURLY}; CREATE JOB b SCHEDULE = EVERY 1 HOUR DEPENDS ON a CALL work()",
    78: f"CREATE JOB existing {HOURLY}",
    88: f"CREATE JOB parent_of_others {HOURLY}; CREATE JOB load SCHEDULE = EVERY 1 HOUR DEPENDS ON parent_of_others CALL work();"
    "CREATE JOB reports SCHEDULE = EVERY 1 HOUR DEPENDS ON parent_of_others CALL work()",
}
"""Jobs that must be there for an input to have its error."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    rota = Rota(prepare(tmp_path_factory.mktemp("malformed") / "rota.db"))
    rota.job(name="work")(lambda: None)
    yield rota
    rota.close()


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.name)
def shared(request, tmp_path_factory):
    """A Rota on each store, which no input changes."""
    with closing(request.param(tmp_path_factory.mktemp("malformed"))) as maker, closing(Rota(maker.url, seed=7)) as rota:
        rota.job(name="work")(lambda: None)
        yield rota


def error_of(rota: Rota, text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        rota.sql(text)
    return caught.value


def check(error: SqlError, wanted: Malformed, text: str, offset: int, said: Callable[[str], str] = str) -> None:
    """Compare an error with the one that the table has."""
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    assert (error.code, error.sqlstate, error.line, error.column) == (wanted.code, wanted.sqlstate, line, column), (text, error)
    pattern = re.escape(said(wanted.words)).replace("…", ".*")
    assert re.fullmatch(pattern, error.message), (text, error.message, pattern)
    assert error.position == offset + 1
    assert error.executed == 0


def test_the_table_has_all_inputs_of_the_specification():
    assert sorted([*TABLE, *LATER]) == list(range(1, 121))


@pytest.mark.parametrize("number", TABLE)
def test_a_malformed_input_is_refused_with_its_place_its_code_and_its_words(shared, number):
    assert shared.sql("SHOW JOBS")[0].rows == (), "the inputs before have left nothing behind"
    if number in NEEDED:
        shared.sql(NEEDED[number])
    before = shared.sql("SHOW JOBS")[0].rows
    wanted = TABLE[number]
    check(error_of(shared, wanted.text), wanted, wanted.text, wanted.offset)
    assert shared.sql("SHOW JOBS")[0].rows == before
    for job in reversed(re.findall(r"CREATE JOB (\w+)", NEEDED.get(number, ""))):
        shared.sql(f"DROP JOB {job}")


# ---- varied -----------------------------------------------------------------------------------------------------------

NAMES = frozenset(
    [
        "j",
        "a",
        "b",
        "c",
        "p",
        "x",
        "k",
        "ada",
        "nosuch",
        "existing",
        "nobody",
        "many",
        "fast",
        "parent_of_others",
        "load",
        "reports",
        "no_such_proc",
        "garbage",
        "nocolumn",
        "soon",
    ]
)
"""Words of the inputs in whose place any other name will do."""
NUMBERS_SAID = {22, 42, 44, 46}
"""Inputs whose numbers are part of the error's words."""
WORD = r"(\ba\b(?! →|\.|$))|\w+"
"""A word of an error, or the article."""
SPACES = (" ", "  ", "\n", "\t", " -- x; 'y\n", " /* a /* b */ ; */ ", "\r\n ", "\n\n")
LETTERS = "abcxyzABCXYZ_éß漢"
LARGE = 1000


class Variant:
    """An input with other names, numbers and white space."""

    def __init__(self, wanted: Malformed, chance: Random) -> None:
        self._chance = chance
        self._number = wanted.number
        # In order: an error that lists names sorts them.
        self.names = dict(zip(sorted(NAMES), sorted(self._name() for _ in NAMES), strict=True))
        self._numbers: dict[str, str] = {}
        self.text, self.offset = self._varied(wanted.text, wanted.offset)

    def said(self, words: str) -> str:
        """Return the words of an error about the names and numbers of this variant."""
        return re.sub(WORD, lambda word: word[0] if word[1] else self._replaced(word[0]), words)

    def renamed(self, text: str) -> str:
        """Return a text with the names of this variant."""
        return re.sub(r"\w+", lambda word: self.names.get(word[0], word[0]), text)

    def _replaced(self, word: str) -> str:
        return self.names.get(word) or (self._numbers.get(word, word) if self._number in NUMBERS_SAID else word)

    def _name(self) -> str:
        # With a Z and a number, it is no word of the language, and near to none.
        return self._chance.choice(LETTERS) + f"Zq{self._chance.randrange(10**6)}_{self._chance.choice(LETTERS)}"

    def _varied(self, text: str, offset: int) -> tuple[str, int]:
        pieces, end, found = [self._space() if text != ";;;" else ""], 0, None
        for token in tokens_of(text)[:-1]:
            if token.start > end:
                pieces.append(self._space())
            if token.start <= offset < token.end:
                found = sum(map(len, pieces)) + offset - token.start
            pieces.append(self._token(token) or text[token.start : token.end])
            end = token.end
        if found is None:
            found = sum(map(len, pieces))
        is_open = text[-1] != ";" and tokens_of(text)[-2].kind is TokenKind.BAD
        return "".join([*pieces, "" if is_open else self._space()]), found

    def _space(self) -> str:
        return "".join(self._chance.choice(SPACES) for _ in range(self._chance.randrange(1, 3)))

    def _token(self, token: SqlToken) -> str | None:
        """Return what takes the place of a token; None: it stays."""
        if token.kind is TokenKind.WORD:
            return self.names.get(token.text)
        if token.kind is TokenKind.NUMBER and token.text.isdigit() and token.text != "0":
            large = int(token.text) > LARGE
            number = self._chance.randrange(LARGE + 1, 10**9) if large else self._chance.randrange(2, 30)
            return self._numbers.setdefault(token.text, str(number))
        return None


@pytest.mark.prove
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", TABLE)
def test_the_error_is_the_same_with_other_names_numbers_and_white_space(filled, number):
    chance = Random(SEED + number)
    for _ in range(VARIANTS):
        variant = Variant(TABLE[number], chance)
        if number in NEEDED:
            filled.sql(variant.renamed(NEEDED[number]))
        check(error_of(filled, variant.text), TABLE[number], variant.text, variant.offset, variant.said)


def test_a_variant_has_the_error_where_the_input_has_it():
    wanted = TABLE[23]
    variant = Variant(wanted, Random(1))
    assert variant.text != wanted.text
    assert variant.text[variant.offset :].startswith("FORTNIGHTS")
    assert len({Variant(wanted, Random(seed)).text for seed in range(50)}) == 50
