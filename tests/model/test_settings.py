"""Settings: defaults, the environment, ranges."""

import math

import pytest

from rota.errors import InvalidOption
from rota.model.settings import DOCS, Settings


def test_the_defaults_are_those_of_the_design():
    settings = Settings()
    assert (settings.max_retries, settings.max_crashes, settings.timeout, settings.priority) == (5, 3, 300.0, 50)
    assert (settings.backoff_base, settings.backoff_factor, settings.backoff_cap, settings.backoff_jitter) == (60.0, 2.0, 86_400.0, 0.2)
    assert (settings.shutdown_grace, settings.kill_grace, settings.lease_ttl, settings.beat) == (30.0, 2.0, 30.0, 10.0)
    assert (settings.reservation_ttl, settings.direct_wait, settings.poll) == (600.0, 300.0, 0.025)
    assert (settings.payload_max, settings.result_max, settings.error_max, settings.log_max) == (2**20, 2**20, 2**16, 2**20)
    assert (settings.name_max, settings.key_max) == (255, 1024)


def test_every_setting_says_what_it_is_for():
    assert set(DOCS) == set(Settings.__struct_fields__)
    assert all(doc.what for doc in DOCS.values())


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_can_be_given_by_the_environment(name):
    default = getattr(Settings(), name)
    settings = Settings.from_environment({f"ROTA_{name.upper()}": str(default)})
    assert getattr(settings, name) == default
    assert type(getattr(settings, name)) is type(default)


def test_what_is_given_wins_over_the_environment_and_that_over_the_default():
    environment = {"ROTA_MAX_RETRIES": "7", "ROTA_TIMEOUT": "2.5", "OTHER": "x"}
    settings = Settings.from_environment(environment, max_retries=1)
    assert (settings.max_retries, settings.timeout, settings.max_crashes) == (1, 2.5, 3)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ROTA_BATCH": "many"}, "ROTA_BATCH='many' is not a whole number"),
        ({"ROTA_BATCH": "2.5"}, "ROTA_BATCH='2.5' is not a whole number"),
        ({"ROTA_BATCH": ""}, "ROTA_BATCH='' is not a whole number"),
        ({"ROTA_TIMEOUT": "soon"}, "ROTA_TIMEOUT='soon' is not a number"),
        ({"ROTA_BATCH": "0"}, "setting batch=0 is out of range: give between 1 and 10000"),
        ({"ROTA_TIMEOUT": "-1"}, "setting timeout=-1.0 is out of range: give at least 0"),
        ({"ROTA_SYNCHRONOUS": "OFF"}, "setting synchronous='OFF' is not one of FULL, NORMAL"),
        ({"ROTA_TIMEOUT": "nan"}, "setting timeout=nan"),
        ({"ROTA_TIMEOUT": "inf"}, "setting timeout=inf"),
    ],
)
def test_a_bad_value_in_the_environment_is_refused_by_name(environment, words):
    with pytest.raises(InvalidOption) as refusal:
        Settings.from_environment(environment)
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", [name for name, doc in DOCS.items() if doc.low is not None])
def test_a_value_below_its_range_is_refused(name):
    with pytest.raises(InvalidOption, match=f"setting {name}="):
        Settings(**{name: DOCS[name].low - 1})


@pytest.mark.parametrize("name", [name for name, doc in DOCS.items() if doc.high is not None])
def test_a_value_above_its_range_is_refused(name):
    with pytest.raises(InvalidOption, match=f"setting {name}="):
        Settings(**{name: DOCS[name].high + 1})


@pytest.mark.parametrize("value", ["8", None, True, [1], math.nan])
def test_a_value_that_is_no_number_is_refused(value):
    with pytest.raises(InvalidOption, match="setting concurrency="):
        Settings(concurrency=value)


def test_a_fraction_is_no_whole_number():
    with pytest.raises(InvalidOption, match=r"setting batch=2\.5"):
        Settings(batch=2.5)


def test_a_whole_number_is_a_number_of_seconds():
    assert Settings(timeout=5).timeout == 5


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(InvalidOption, match="there is no setting 'colour'"):
        Settings.from_environment({}, colour="red")
