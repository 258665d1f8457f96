"""Default params of a template: under what each job says itself, however it is made."""

import pytest

from rota import NewJob, Rota
from rota.errors import DuplicateJob, InvalidOption, InvalidParams, PayloadTooLarge


@pytest.fixture
def seen(rota):
    """What a handler with defaults was called with."""
    calls = []

    @rota.job(default_params={"to": "ada", "options": {"html": True}})
    def send(to, options, subject="hello"):
        calls.append((to, options, subject))

    return calls


@pytest.mark.parametrize(
    "make",
    [
        lambda rota, params: rota.enqueue("send", params),
        lambda rota, params: rota.enqueue("send", params, priority="high"),
        lambda rota, params: rota.enqueue_many([("send", params)]),
        lambda rota, params: rota.enqueue_many([NewJob(name="send", params=params)]),
        lambda rota, params: rota.group([("send", params)]),
    ],
    ids=["enqueue", "with options", "pairs", "new jobs", "group"],
)
def test_they_are_under_the_params_of_every_job(rota, seen, make):
    make(rota, {"subject": "tea"})
    make(rota, {"to": "bob", "options": None})
    rota.turn()
    # Whole values take each other's place; objects are not mixed.
    assert seen == [("ada", {"html": True}, "tea"), ("bob", None, "hello")]


def test_a_job_without_params_of_its_own_has_them_alone(rota, seen):
    assert rota.jobs.get(rota.enqueue("send")).params == {"to": "ada", "options": {"html": True}}
    rota.enqueue_many(["send"])
    rota.turn()
    assert seen == [("ada", {"html": True}, "hello")] * 2


def test_a_direct_execution_has_them_too(rota, seen):
    rota.jobs.direct("send", {"subject": "now"})
    assert seen == [("ada", {"html": True}, "now")]


def test_a_schedule_has_its_own_params_over_them_and_a_job_fired_by_hand_its_own_over_both(rota, clock, seen):
    rota.schedules.create("hourly", "send", every="1h", params={"subject": "the hour"})
    clock.advance(hours=1)
    rota.turn()
    rota.schedules.fire("hourly", {"to": "eve"})
    rota.turn()
    assert seen == [("ada", {"html": True}, "the hour"), ("eve", {"html": True}, "the hour")]


def test_what_is_no_object_is_refused_as_ever(rota, seen):
    with pytest.raises(InvalidParams, match="params must be an object"):
        rota.enqueue("send", [1])


def test_a_job_that_lacks_what_neither_gives_is_refused(rota):
    @rota.job(default_params={"a": 1})
    def add(a, b):
        return a + b

    with pytest.raises(InvalidParams, match="needs a parameter 'b'"):
        rota.enqueue("add", {"a": 2})
    assert rota.jobs.get(rota.enqueue("add", {"b": 2})).params == {"a": 1, "b": 2}


def test_duplicates_are_known_by_the_params_they_come_to(rota):
    rota.job(lambda a=0, b=0: None, name="once", default_params={"a": 1}, dedup_window="1h")
    rota.enqueue("once", {"b": 2})
    with pytest.raises(DuplicateJob):
        rota.enqueue("once", {"b": 2, "a": 1})
    rota.enqueue("once", {"b": 2, "a": 3})


def test_people_set_others_take_them_away_and_go_back_to_what_the_code_says(rota, seen):
    rota.templates.update("send", default_params={"to": "bob"})
    view = rota.templates.get("send")
    assert (view.default_params, view.sources["default_params"]) == ({"to": "bob"}, "people")
    with pytest.raises(InvalidParams, match="options"):
        rota.enqueue("send")
    rota.templates.update("send", default_params=None)
    assert rota.templates.get("send").default_params is None
    rota.templates.reset("send", "default_params")
    assert rota.jobs.get(rota.enqueue("send")).params["to"] == "ada"


def test_a_program_that_only_enqueues_learns_them_from_the_record(rota, seen):
    rota.turn()
    client = Rota(rota.store.url, clock=rota._session.clock)
    assert client.jobs.get(client.enqueue("send")).params["to"] == "ada"
    client.close()


def test_what_no_job_could_have_is_refused(rota, seen):
    with pytest.raises(InvalidOption, match="the handler has no parameter 'too'; it takes: options, subject, to"):
        rota.templates.update("send", default_params={"too": 1})
    with pytest.raises(InvalidOption, match=r"default_params are too large: .*payload_max"):
        rota.templates.update("send", default_params={"to": "x" * 2_000_000})
    with pytest.raises(InvalidOption, match="default_params are too large"):
        rota.templates.update("send", payload_max=10)
    with pytest.raises(InvalidOption, match="no parameter 'b'"):
        rota.job(lambda a: None, name="bad", default_params={"b": 1})
    with pytest.raises(PayloadTooLarge):
        rota.enqueue("send", {"subject": "x" * (rota.settings.payload_max - 40)})


def test_a_definitions_file_has_them_as_a_table(rota, tmp_path, seen):
    file = tmp_path / "jobs.toml"
    file.write_text('[templates.send]\ndefault_params = { to = "bob", options = { html = false } }\n')
    assert rota.store.load(file).changed == ("template send",)
    assert rota.store.load(file).unchanged == ("template send",)
    assert rota.jobs.get(rota.enqueue("send")).params == {"to": "bob", "options": {"html": False}}
    file.write_text('[templates.send]\ndefault_params = "none"\n')
    rota.store.load(file)
    assert rota.templates.get("send").default_params is None
