"""From what a caller says to a row: refused before anything is written, each with its own error."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rota import Backoff, NewJob, Rota, Settings
from rota.errors import (
    DuplicateId,
    InvalidHandler,
    InvalidName,
    InvalidOption,
    InvalidParams,
    PayloadTooLarge,
    RateLimited,
    TemplateUnavailable,
    UnknownTemplate,
)
from tests.stores.makers import SqliteMaker

NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture
def send(rota):
    return rota.job(lambda to, subject="hi": None, name="send")


@pytest.mark.parametrize(
    ("name", "params", "options", "refusal", "words"),
    [
        ("nobody", {}, {}, UnknownTemplate, "no template 'nobody'; known here: send"),
        ("", {}, {}, InvalidName, "'' is not a template name"),
        ("  ", {}, {}, InvalidName, "is not a template name"),
        ("x" * 256, {}, {}, InvalidName, "has 256 characters; at most 255"),
        ("bad\nname", {}, {}, InvalidName, "can't be printed"),
        ("send", {"to": object()}, {}, InvalidParams, "params.to is an object"),
        ("send", {"to": "x" * 2**20}, {}, PayloadTooLarge, "payload_max"),
        ("send", {}, {}, InvalidParams, "send() needs a parameter 'to'"),
        ("send", {"to": 1, "cc": 2}, {}, InvalidParams, "send() has no parameter 'cc'; it takes: subject, to"),
        ("send", ["to"], {}, InvalidParams, "not list"),
        ("send", {"to": 1}, {"priority": "urgent"}, InvalidOption, "priority 'urgent'"),
        ("send", {"to": 1}, {"max_retries": -1}, InvalidOption, "max_retries=-1"),
        ("send", {"to": 1}, {"max_retries": True}, InvalidOption, "max_retries=True"),
        ("send", {"to": 1}, {"timeout": -1}, InvalidOption, "timeout=-1"),
        ("send", {"to": 1}, {"timeout": float("nan")}, InvalidOption, "timeout=nan"),
        ("send", {"to": 1}, {"queue_ttl": "soon"}, InvalidOption, "queue_ttl='soon'"),
        ("send", {"to": 1}, {"unique_key": ""}, InvalidOption, "unique_key ''"),
        ("send", {"to": 1}, {"unique_key": "k" * 1025}, InvalidOption, "1 to 1024"),
        ("send", {"to": 1}, {"unique_key": "a\0b"}, InvalidOption, "can't be kept"),
        ("send", {"to": 1}, {"unique_key": "a\ud800"}, InvalidOption, "can't be kept"),
        ("send", {"to": 1}, {"run_at": NAIVE}, InvalidOption, "has no time zone"),
        ("send", {"to": 1}, {"run_at": "tomorrow"}, InvalidOption, "is not a moment"),
        ("send", {"to": 1}, {"job_id": "7"}, InvalidOption, "is not a UUIDv7"),
        ("send", {"to": 1}, {"job_id": "a1b2c3d4-0000-4000-8000-000000000000"}, InvalidOption, "is not a UUIDv7"),
    ],
)
def test_a_refusal_says_what_and_writes_nothing(rota, send, name, params, options, refusal, words):
    with pytest.raises(refusal) as refused:
        rota.enqueue(name, params, **options)
    assert words in str(refused.value)
    assert rota.jobs.list() == []


@pytest.mark.parametrize("state", ["DISABLED", "ARCHIVED"])
def test_a_disabled_or_archived_template_takes_no_new_jobs_also_when_another_process_did_it(rota, send, tmp_path, state):
    kept = rota.enqueue("send", {"to": 1})
    maker = SqliteMaker(tmp_path)
    maker._sql("UPDATE templates SET state = ?", (state,))
    maker._sql("UPDATE meta SET value = value + 1 WHERE key = 'definitions_version'")
    with pytest.raises(TemplateUnavailable, match=f"'send' is {state.lower()}"):
        rota.enqueue("send", {"to": 2})
    assert [job.id for job in rota.jobs.list()] == [kept.id]
    maker._sql("UPDATE templates SET state = 'ENABLED'")
    maker._sql("UPDATE meta SET value = value + 1 WHERE key = 'definitions_version'")
    assert rota.jobs.get(rota.enqueue("send", {"to": 3})).status == "QUEUED"


def test_a_template_another_process_registered_can_be_enqueued_by_name_with_its_policy(rota, tmp_path, clock):
    rota.job(lambda to: None, name="far", priority="high", max_retries=7, timeout=9, queue_ttl=60)
    rota._session.registry.sync(rota._session.open().store, clock.now())
    client = Rota(tmp_path / "rota.db", clock=clock, seed=9)
    job = client.enqueue("far", {"anything": 1})
    assert (client.jobs.get(job).priority, client.jobs.get(job).max_retries, client.jobs.get(job).timeout) == (75, 7, 9.0)
    assert client.jobs.get(job).expires_at == client.jobs.get(job).created_at + timedelta(seconds=60)
    client.close()


def test_one_jobs_own_options_win_over_its_template(rota):
    rota.job(lambda: None, name="act", priority="low", max_retries=1, timeout=5, backoff=Backoff(base=1))
    job = rota.enqueue("act", priority="high", max_retries=9, timeout=50)
    assert (
        rota.jobs.get(job).priority,
        rota.jobs.get(job).max_retries,
        rota.jobs.get(job).timeout,
        rota.jobs.get(job).backoff["base"],
    ) == (75, 9, 50.0, 1)


def test_settings_are_the_last_word_where_nobody_said_anything(tmp_path, clock):
    made = Rota(tmp_path / "s.db", clock=clock, settings=Settings(priority=10, max_retries=2, timeout=7, backoff_base=3), seed=1)
    made.job(lambda: None, name="act")
    job = made.enqueue("act")
    assert (
        made.jobs.get(job).priority,
        made.jobs.get(job).max_retries,
        made.jobs.get(job).timeout,
        made.jobs.get(job).backoff["base"],
    ) == (10, 2, 7.0, 3.0)
    made.close()


def test_the_same_chosen_id_is_one_job_and_of_another_type_a_refusal(rota, send):
    rota.job(lambda: None, name="other")
    job_id = "0195a000-0000-7000-8000-000000000001"
    first = rota.enqueue("send", {"to": 1}, job_id=job_id)
    again = rota.enqueue("send", {"to": 1}, job_id=job_id)
    assert (first.id, again.id, again.existing) == (job_id, job_id, True)
    with pytest.raises(DuplicateId):
        rota.enqueue("other", job_id=job_id)


def test_a_bulk_keeps_its_order_and_says_how_many_were_accepted_before_a_bad_one(rota, send):
    items = [("send", {"to": n}) for n in range(5)] + [("send", {"cc": 1}), ("send", {"to": 9})]
    with pytest.raises(InvalidParams, match=r"item 5: .*5 jobs before it were accepted"):
        rota.enqueue_many(items)
    assert [job.params["to"] for job in rota.queues.jobs()] == list(range(5))


def test_a_bulk_takes_new_jobs_with_their_own_options(rota, send):
    bulk = rota.enqueue_many(
        [NewJob(name="send", params={"to": 1}, priority="low"), ("send", {"to": 2}), NewJob(name="send", params={"to": 3}, priority="high")]
    )
    assert (bulk.accepted, bulk.existing) == (3, 0)
    assert [job.params["to"] for job in rota.queues.jobs()] == [3, 2, 1]


def test_two_handlers_of_one_name_are_refused_and_one_twice_is_not(rota):
    def act(): ...

    rota.job(act)
    rota.job(act)
    with pytest.raises(InvalidHandler, match="'act' is registered already"):
        rota.job(lambda: None, name="act")


def test_a_moment_in_another_zone_is_the_same_moment(rota, send):
    from datetime import timezone

    at = datetime(2026, 3, 1, 15, 0, tzinfo=timezone(timedelta(hours=2)))
    assert rota.jobs.get(rota.enqueue("send", {"to": 1}, run_at=at)).run_at == at.astimezone(UTC)


def test_a_chunk_the_store_refuses_says_which_items_it_is_about_and_keeps_what_the_error_knows(rota):
    rota._session.submitter._settings = msgspec.structs.replace(rota.settings, bulk_chunk=2)

    @rota.job(submit_limit="3/60s")
    def limited(n): ...

    with pytest.raises(RateLimited, match=r"items 2 to 3: .*the 2 jobs before it were accepted") as caught:
        rota.enqueue_many([("limited", {"n": n}) for n in range(5)])
    assert 0 < caught.value.retry_after_s <= 60
    assert rota.store.stats().by_status["QUEUED"] == 2


def test_a_job_has_tags_and_lists_are_narrowed_to_one(rota):
    rota.job(lambda: None, name="act")
    job = rota.enqueue("act", tags=["eu", "import", "eu"])
    rota.enqueue_many([NewJob(name="act", tags=("us",)), ("act", None)])
    assert rota.jobs.get(job).tags == ("eu", "import")
    assert [each.id for each in rota.jobs.list(tag="eu")] == [job.id]
    assert len(rota.jobs.list(tag="us")) == 1


@pytest.mark.parametrize("tags", ["eu", [""], [7], ["x" * 65], [str(number) for number in range(21)], 7])
def test_tags_are_a_few_short_labels(rota, tags):
    rota.job(lambda: None, name="act")
    with pytest.raises(InvalidOption, match="tags"):
        rota.enqueue("act", tags=tags)


def test_a_job_may_have_a_backoff_of_its_own(rota, clock):
    @rota.job(backoff=Backoff(base=1000, jitter=0))
    def fails():
        raise ValueError("no")

    job = rota.enqueue("fails", backoff=Backoff(base=5, jitter=0))
    rota.turn()
    assert rota.explain(job.id).summary.startswith("due in 5 s")
    with pytest.raises(InvalidOption, match="backoff"):
        rota.enqueue("fails", backoff="soon")
