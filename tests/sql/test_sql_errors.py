"""Statements that are refused: the place, the code, the SQLSTATE and the words of each error."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import pytest

from rota.errors import InvalidInput, SqlError
from rota.sql import errors
from rota.sql.parser import SCRIPT_MAX_CHARS, parse, parse_script
from rota.sql.tokens import NESTING_MAX
from tests.support.proof import proving, size

SEED = Random().getrandbits(32) if proving() else 7
TABLE = (Path(__file__).parent / "refused.txt").read_text().strip().split("\n\n")


@pytest.mark.parametrize("pair", TABLE, ids=lambda pair: pair.partition("\n")[0][:60])
def test_a_statement_is_refused_with_its_place_its_code_and_its_words(pair):
    text, _, wanted = pair.partition("\n  ")
    error = refused(text)
    assert error.report().partition("\n")[0] == wanted
    assert error.position == error.column


def refused(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    return caught.value


NOT_OURS = [
    ("CREATE JOB j SCHEDULE = AT '2020-01-01T00:00:00Z' AS 'SELECT 1'", "schedule.at", 28),
    ("CREATE JOB j SCHEDULE = EVERY 1 HOUR ENDS '2020-01-01T00:00:00Z' AS 'SELECT 1'", "schedule.ends", 43),
    ("CREATE JOB j PARTITION BY SINGLE_SHARD 'nope' SCHEDULE = EVERY 1 H AS 'SELECT 1'", "partition", 40),
    ("CREATE JOB j DEPENDS ON nosuch SCHEDULE = EVERY 1 H AS 'SELECT 1'", "depends_on.0", 25),
    ("CREATE JOB j DEPENDS ON a, nosuch SCHEDULE = EVERY 1 H AS 'SELECT 1'", "depends_on.1", 28),
    ("ALTER JOB a SET DEPENDS ON b", "depends_on.0", 28),
    ("CREATE JOB j SCHEDULE = EVERY 1 H RUN AS nobody AS 'SELECT 1'", "run_as", 42),
    ("CREATE JOB j SCHEDULE = EVERY 1 H AS 'SELEC 1'", "body", 38),
    ("CREATE JOB j SCHEDULE = EVERY 1 H CALL no_such_proc()", "body", 40),
    ("CREATE JOB j SCHEDULE = EVERY 1 H EXEC '/opt/report.sh'", "body", 40),
    ("CREATE JOB existing SCHEDULE = EVERY 1 H AS 'SELECT 1'", "name", 12),
    ("ALTER JOB nosuch SET STATE = PAUSED", "name", 11),
    ("DROP JOB nosuch", "name", 10),
    ("EXECUTE JOB nosuch", "name", 13),
    ("CANCEL JOB RUN 00000000-0000-0000-0000-000000000000", "run", 16),
    ("GRANT EXECUTE ON JOB j TO nobody", "grantees.0", 27),
    ("GRANT EXECUTE ON JOB j TO nobody", "target", 22),
    ("ALTER SYSTEM SET scheduler.nosuch = 1", "setting", 18),
    ("ALTER SYSTEM SET scheduler.enabled = maybe", "value", 38),
    ("SHOW JOB nosuch", "job", 10),
    ("SELECT * FROM jobs", "text", 1),
]


@pytest.mark.parametrize(("text", "part", "column"), NOT_OURS)
def test_what_only_a_store_can_refuse_is_read_and_its_place_is_known(text, part, column):
    (parsed,) = parse_script(text)
    assert parsed.location(part).column == column


# ---- what an error has ------------------------------------------------------------------------------------------------


def test_an_error_names_line_column_position_and_what_was_expected_and_found():
    error = refused("CREATE JOB j\n  SCHEDULE = EVERY 1 H\n  CATCHUP = LAST\n  AS 'SELECT 1'")
    assert (error.line, error.column, error.position) == (3, 3, 39)
    assert error.found == "CATCHUP"
    assert error.suggestion == "CATCH_UP"
    assert {"CATCH_UP", "TIMEOUT", "AS", "CALL", "EXEC"} <= set(error.expected)
    assert "SCHEDULE" not in error.expected
    assert error.message.endswith("; did you mean CATCH_UP?")
    assert str(error).startswith("3:3: CREATE JOB has no clause CATCHUP: it takes CLASS, ")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("CREATE JOB j SCHEDULE = EVRY 1 H AS 'x'", "EVERY"),
        ("CREATE JOB j SCHEDULE = EVERY 5 MINTUES AS 'x'", "MINUTES"),
        ("DROP JOB j KEEP HISTRY", "HISTORY"),
        ("DROP JOB j KEP HISTORY", "KEEP"),
        ("GRANT CREATE JOBS TO ada", "JOB"),
        ("CREAT JOB j", "CREATE"),
        ("SHOW SETTNGS", "SETTINGS"),
        ("CREATE JOB j PARTITION BY ALL_SHARD SCHEDULE = EVERY 1 H AS 'x'", "ALL_SHARDS"),
        ("CREATE JOB j CLASS = LEADER_ONYL SCHEDULE = EVERY 1 H AS 'x'", "LEADER_ONLY"),
        ("ALTER JOB j SET STAET = PAUSED", "STATE"),
        ("ALTER JOB j SET STATE = PAUSE", "PAUSED"),
        ("GRANT EXECUT ON JOB j TO ada", "EXECUTE"),
        ("GRANT EXECUTE ON JOB j TO ada WITH GRANT OPTIONS", "OPTION"),
        ("REVOKE ALL ON JOB j FRM ada", "FROM"),
        ("SHOW JOB RUNS FOR j LIMT 5", "LIMIT"),
        ("ALTER SYSTEM RESTE scheduler.enabled", "RESET"),
    ],
)
def test_a_misspelt_word_gets_the_word_that_was_meant(text, suggestion):
    error = refused(text)
    assert error.suggestion == suggestion
    assert f"did you mean {suggestion}?" in error.message


def test_a_report_shows_the_line_up_to_the_error_without_the_contents_of_strings():
    error = refused("SHOW JOBS;\nCREATE JOB j DESCRIPTION = 'private' SCHEDULE = EVERY soon AS 'also private'")
    assert error.report() == (
        "sql_syntax [42601] 2:55: EVERY needs a duration, such as EVERY 15 MINUTES; found soon; nothing of the script was executed\n"
        "CREATE JOB j DESCRIPTION = '…' SCHEDULE = EVERY soon …\n"
        "                                                ^"
    )


def test_a_report_of_a_line_that_begins_inside_a_string_leaves_that_out_too():
    error = refused("CREATE JOB j DESCRIPTION = 'one\ntwo' FLY")
    assert error.excerpt == "… FLY\n  ^"


def test_a_report_shows_one_line_of_a_name_that_has_several():
    assert refused('SHOW JOBS;\nDROP JOB "a\nb" KEEP HISTORY').excerpt == 'DROP JOB "a …\n         ^'


def test_the_caret_of_a_long_line_is_under_the_error():
    error = refused(f"CREATE JOB {'x' * 200} FLY")
    line, caret = error.excerpt.split("\n")
    assert line[caret.index("^") :].startswith("FLY")
    assert len(line) < 210


def test_an_error_at_the_end_points_behind_the_last_token():
    assert refused("DROP JOB   \n\n -- nothing more\n").position == 9


def test_nothing_of_a_script_counts_if_a_later_statement_is_wrong():
    error = refused("SHOW JOBS; DROP TABLE jobs; SHOW ROLES")
    assert error.message == "DROP is followed by JOB, ROLE, SECRET or CONNECTION; found TABLE; nothing of the script was executed"


def test_the_first_error_of_a_script_is_reported_even_if_a_quote_is_open_later():
    assert refused("FLY JOB j; SHOW JOBS LIKE 'x").column == 1
    assert "write a quote inside a text twice" in refused("ALTER JOB j SET DESCRIPTION = 'it's' SET TIMEOUT = 5").message


def test_an_error_is_refused_input_and_survives_a_pickle():
    error = refused("FLY")
    assert isinstance(error, InvalidInput)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.report(), copy.expected) == (str(error), error.report(), error.expected)


def test_every_kind_of_error_has_its_own_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SqlError)]
    assert len({kind.code for kind in kinds}) == len(kinds) == 16


@pytest.mark.parametrize(("text", "position"), [("SHOW JOBS\0", 10), ("SHOW\nJOBS LIKE '\ud800'", 17), ("\ud800 \0", 1), ("\0\ud800", 1)])
def test_characters_that_no_store_can_keep_are_refused(text, position):
    error = refused(text)
    assert (error.position, error.sqlstate) == (position, "22021")


def test_a_script_has_a_bound():
    error = refused("SHOW JOBS" + " " * SCRIPT_MAX_CHARS)
    assert (error.code, error.sqlstate) == ("invalid_option", "54000")


def test_errors_after_a_secret_in_a_script_say_where_and_what_was_expected():
    error = refused(f"CREATE SECRET k VALUE '{CANARY}'; DROP TABLE x")
    assert error.report() == (
        "sql_syntax [42601] 1:44: expected JOB, ROLE, SECRET or CONNECTION; more is not shown, because the script has a secret before this"
        " place; nothing of the script was executed"
    )
    assert refused("CREATE SECRET k VALUE ?; DROP TABLE x").found == "TABLE"


def test_nesting_has_a_bound():
    def comment(depth: int) -> str:
        return f"SHOW JOBS {'/*' * depth}{'*/' * depth}"

    def parentheses(depth: int) -> str:
        return f"CREATE JOB j PARTITION BY DYNAMIC {'(' * depth}1{')' * depth} SCHEDULE = EVERY 1 H AS 'x'"

    def json(depth: int) -> str:
        return f"EXECUTE JOB j WITH PARAMS '{{\"a\":{'[' * (depth - 1)}{']' * (depth - 1)}}}'"

    for text in (comment, parentheses, json):
        parse(text(NESTING_MAX))
        assert "nested too deeply" in refused(text(NESTING_MAX + 2)).message
        assert "nested too deeply" in refused(text(100_000)).message


def test_one_statement_is_one():
    with pytest.raises(SqlError, match="1:12: expected one statement; found several"):
        parse("SHOW JOBS; SHOW ROLES")


# ---- secrets ----------------------------------------------------------------------------------------------------------

CANARY = "hunter2zebra"
WITH_SECRETS = [
    f"CREATE SECRET api_key VALUE '{CANARY}'",
    f"CREATE SECRET api_key = '{CANARY}'",
    f'ALTER SECRET "api key" SET VALUE = $x${CANARY}$x$',
    f"ALTER JOB j SET SECRET 'API_KEY' = '{CANARY}'",
    f"SHOW JOBS;\nALTER JOB j SET SECRET k '{CANARY} it''s {CANARY}'; SHOW ROLES",
]


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_an_error_after_the_value_of_a_secret_does_not_show_it(text):
    for tail in (" garbage", " ;;FLY", f" {CANARY}", f"'{CANARY}", "'", '"', f" '{CANARY}'", "$$", "/*", f"-{CANARY}", ", x = 'y'"):
        show_nothing(text + tail)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE SECRET k VALUE {CANARY}",
        f'CREATE SECRET k VALUE "{CANARY}"',
        f"CREATE SECRET k VALUE = {CANARY}-{CANARY}",
        f"CREATE SECRET k {CANARY}",
        f"CREATE SECRET k VALUE '{CANARY}",
        f"CREATE SECRET k VALUE 'it's {CANARY}'",
        f"CREATE SECRET k VALUE 1{CANARY}",
        f"CREATE SECRT k VALUE {CANARY}",
        f"CRETE SECRET k VALUE '{CANARY}'",
        f"ALTER JOB j SET SECRET k = {CANARY}",
        f"ALTER JOB j SET SECRET k = {CANARY} SET STATE = PAUSED",
        f"ALTER JOB j SET STATE = PAUSED SET SECRET k = '{CANARY}'",
        f"ALTER JOB j SET SECRT k = '{CANARY}'",
        f"CREATE CONNECTION c URL = 'postgresql://u:{CANARY}@h/d'",
        f"CREATE CONNECTION c URL = 'postgresql://h/d' PASSWORD = '{CANARY}'",
        f"CREATE CONNECTION c URL = 'postgresql://h/d' SECRET = '' '{CANARY}'",
    ],
)
def test_an_error_before_or_at_the_value_of_a_secret_does_not_show_it(text):
    show_nothing(text)
    refused(text)


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_damaged_statement_with_a_secret_never_shows_it():
    chance = Random(SEED)
    for _ in range(size(500, prove=20_000)):
        text = chance.choice(WITH_SECRETS)
        for _ in range(chance.randrange(1, 3)):
            # Behind the word that says that a secret follows: before it, anything may be said of anything.
            at = chance.randrange(text.upper().index("SECRET ") + 7, len(text) + 1)
            text = text[:at] + chance.choice(["", "'", '"', "$", ";", "(", "=", " x ", "--", "/*", "\n", "-", ".", "?"]) + text[at:]
        show_nothing(text)


def show_nothing(text: str) -> None:
    """Look for pieces of the secret in everything that an error has."""
    try:
        parse_script(text)
    except SqlError as error:
        said = f"{error} {error.report()} {error!r} {vars(error)}"
    else:
        return
    assert not [piece for piece in ("hunt", "unter", "zebr", "ebra") if piece in said], text
