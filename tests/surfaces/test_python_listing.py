"""Lists, figures, logs, dead letters and purges, as a program asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import Actor, Backoff, Context, PermanentError, Rota, Settings, Status
from rota.errors import InvalidOption, NotFound, PermissionDenied, StillLive, StillNeeded
from rota.model.gate import Role
from rota.results import Page

ADMIN = Actor("ada", "acme", Role.ADMIN)
USER = Actor("uma", "acme", Role.USER)
MANAGER = Actor("max", role=Role.MANAGER)


@pytest.fixture
def settings() -> Settings:
    return Settings(retention=0)


@pytest.fixture
def shop(rota: Rota) -> Rota:
    """Handlers that end in every way, and a second organization."""

    @rota.job
    def good(ctx: Context, n: int = 0) -> int:
        ctx.log.info("got %d", n)
        return n

    @rota.job(max_retries=1, backoff=Backoff(base=10, jitter=0))
    def flaky(ctx: Context) -> None:
        ctx.log.warning("attempt %d", ctx.attempt)
        raise ValueError("smoke")

    @rota.job
    def bad(word: str = "fire") -> None:
        raise PermanentError(word)

    rota.create_organization("acme")
    return rota


def numbers(page: list) -> list[str]:
    return [job.number for job in page]


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_pages_lead_from_one_to_the_next_and_end(shop: Rota):
    made = [shop.enqueue("good", {"n": n}) for n in range(7)]
    seen, page = [], shop.find(limit=3)
    sizes = [len(page)]
    while True:
        seen += numbers(page)
        if page.next is None:
            break
        page = shop.find(limit=3, before=page.next)
        sizes.append(len(page))
    assert seen == numbers(made)[::-1]
    assert sizes == [3, 3, 1]


def test_a_page_that_is_just_full_has_no_next(shop: Rota):
    shop.enqueue_many([("good", {})] * 3)
    assert shop.find(limit=3).next is None
    assert shop.find(limit=2).next is not None


def test_a_page_is_a_list(shop: Rota):
    shop.enqueue("good")
    page = shop.find()
    assert isinstance(page, Page)
    assert isinstance(page, list)
    assert page == list(page)


def test_filters_of_every_kind(shop: Rota, clock):
    first = shop.enqueue("good", {"n": 41}, actor="anna")
    shop.turn()
    clock.advance(hours=1)
    second = shop.enqueue("bad", organization="acme", actor=MANAGER)
    shop.turn()
    clock.advance(hours=1)
    third = shop.enqueue("flaky")
    shop.turn()
    group = shop.group([("good", {})])
    assert numbers(shop.find(owner="anna")) == [first.number]
    assert numbers(shop.find(organization="acme")) == [second.number]
    assert numbers(shop.find(text="41")) == [first.number]
    assert numbers(shop.find(text="fire")) == [second.number]
    assert numbers(shop.find(error_type="permanent")) == [second.number]
    assert numbers(shop.find(since=timedelta(minutes=90), job_type="bad")) == [second.number]
    assert numbers(shop.find(until=timedelta(minutes=90))) == [first.number]
    assert len(shop.find(since=datetime(2026, 3, 1, 14, 0, tzinfo=UTC))) == 3
    assert [job.attempt for job in shop.find(chain=third.id)] == [2, 1]
    assert numbers(shop.find(chain=third.number)) == numbers(shop.find(chain=shop.get(third.id)))
    assert len(shop.find(group=group)) == len(shop.find(group=group.id)) == 1
    assert shop.find(schedule=first.id) == []


def test_jobs_of_a_schedule_are_found_by_its_name_and_after_its_end_by_its_id(shop: Rota, clock):
    schedule = shop.create_schedule("hourly", "good", every="1h")
    clock.advance(hours=1)
    shop.turn()
    by_hand = shop.fire("hourly")
    shop.enqueue("good")
    found = shop.find(schedule="hourly")
    assert [job.due_at for job in found] == [None, schedule.next_at]
    assert found[0].id == by_hand.id
    assert shop.find(schedule=schedule.id) == found
    shop.delete_schedule("hourly")
    assert shop.find(schedule=schedule.id) == found
    with pytest.raises(NotFound, match="no schedule 'hourly'"):
        shop.find(schedule="hourly")


def test_a_schedule_of_several_organizations_is_told_apart_and_none_of_another_is_named(shared: Rota, clock):
    shared.create_schedule("hourly", "echo", every="1h", organization="acme")
    shared.create_schedule("hourly", "echo", every="1h", organization="beta")
    shared.create_schedule("daily", "echo", every="1d", organization="beta")
    clock.advance(hours=1)
    shared.turn()
    with pytest.raises(InvalidOption, match="several organizations"):
        shared.find(schedule="hourly")
    assert [job.organization for job in shared.find(schedule="hourly", organization="beta")] == ["beta"]
    assert [job.organization for job in shared.find(schedule="hourly", actor="ada")] == ["acme"]
    with pytest.raises(NotFound, match="no schedule 'daily'"):
        shared.find(schedule="daily", actor="ada")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"status": "BROKEN"}, InvalidOption),
        ({"error_type": "broken"}, InvalidOption),
        ({"limit": 0}, InvalidOption),
        ({"limit": 10**6}, InvalidOption),
        ({"before": 0}, InvalidOption),
        ({"before": "7"}, InvalidOption),
        ({"since": datetime(2026, 1, 1)}, InvalidOption),  # noqa: DTZ001 - that is what is refused
        ({"until": -5}, InvalidOption),
        ({"since": timedelta(days=-1)}, InvalidOption),
        ({"group": "x"}, NotFound),
        ({"chain": "x"}, NotFound),
        ({"schedule": "x"}, NotFound),
    ],
)
def test_filters_that_make_no_sense_are_refused_with_the_value(shop: Rota, options, error):
    with pytest.raises(error) as caught:
        shop.find(**options)
    assert str(next(iter(options.values())))[:8] in str(caught.value) or next(iter(options)) in str(caught.value)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_stats_tell_how_each_type_fared(shop: Rota, clock):
    shop.enqueue_many([("good", {})] * 3 + [("bad", {})])
    shop.turn()
    found = {each.job_type: each for each in shop.stats().by_type}
    assert (found["good"].completed, found["good"].failure_rate, found["bad"].failed, found["bad"].failure_rate) == (3, 0.0, 1, 1.0)
    assert shop.stats().failure_rate == 0.25
    clock.advance(hours=30)
    assert shop.stats().by_type == ()
    assert len(shop.stats(hours=48).by_type) == 2
    for hours in (0, 9601, 1.5):
        with pytest.raises(InvalidOption, match="hours"):
            shop.stats(hours=hours)


# ---- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_is_of_one_job_and_a_timeline_of_the_chain(shop: Rota, clock):
    job = shop.enqueue("flaky", actor="anna")
    shop.turn()
    clock.advance(seconds=10)
    shop.turn()
    chain = shop.chain(job.id)
    first, second = (shop.log(each.id) for each in chain)
    assert [str(entry.to_status or entry.level) for entry in first] == ["QUEUED", "RUNNING", "WARNING", "FAILED"]
    assert [str(entry.to_status or entry.level) for entry in second] == ["PENDING", "QUEUED", "RUNNING", "WARNING", "DEAD_LETTER"]
    whole = shop.timeline(chain[1].number)
    assert [(entry.at, entry.attempt) for entry in whole] == sorted((entry.at, entry.attempt) for entry in whole)
    assert {entry.attempt for entry in whole} == {1, 2}
    assert len(whole) == len(first) + len(second)
    assert whole.text == first.text + second.text
    assert "  #1  QUEUED by anna" in str(whole)
    assert "  #2  DEAD_LETTER by system: ValueError: smoke" in str(whole)
    assert "#1" not in str(first)


def test_a_timeline_names_who_asked_for_one_more_attempt(shop: Rota):
    job = shop.enqueue("bad")
    shop.turn()
    shop.retry(job.id, actor="anna")
    assert "#2  QUEUED by anna" in str(shop.timeline(job.id))


def test_the_log_of_what_is_not_there_says_so(shop: Rota):
    for read in (shop.log, shop.timeline):
        with pytest.raises(NotFound):
            read("JOB-2026-00099")
        with pytest.raises(NotFound):
            read("01981c5e-7a10-7000-8000-000000000000")


def test_what_people_changed_is_told_page_by_page(shop: Rota):
    job = shop.enqueue("good", run_at=timedelta(days=1))
    for priority in (10, 20, 30):
        shop.change(job.id, priority=priority, actor="anna")
    page = shop.audit(subject="job", limit=2)
    assert [entry.after["priority"] for entry in page] == [30, 20]
    rest = shop.audit(subject=f"job:{job.number}", limit=2, before=page.next)
    assert ([entry.after["priority"] for entry in rest], rest.next) == ([10], None)
    assert {entry.actor for entry in [*page, *rest]} == {"anna"}
    assert shop.audit(subject="organization:acme")[0].subject_id == "acme"
    with pytest.raises(NotFound):
        shop.audit(subject="job:99")


# ---- dead letters ----------------------------------------------------------------------------------------------------


@pytest.fixture
def graves(shop: Rota, clock) -> Rota:
    """Three of `bad`, one of them of acme, and one of `flaky`."""
    shop.enqueue("bad", {"word": "first"})
    shop.enqueue("bad", {"word": "second"})
    shop.enqueue("bad", {"word": "third"}, organization="acme", actor=MANAGER)
    shop.enqueue("flaky")
    shop.turn()
    clock.advance(seconds=10)
    shop.turn()
    return shop


def test_dead_letters_are_found_by_type_error_text_and_organization(graves: Rota):
    assert len(graves.dead_letters()) == 4
    assert {job.status for job in graves.dead_letters()} == {Status.DEAD_LETTER}
    assert len(graves.dead_letters(job_type="bad")) == 3
    assert [job.job_type for job in graves.dead_letters(error_type="transient")] == ["flaky"]
    assert [job.params for job in graves.dead_letters(text="second")] == [{"word": "second"}]
    assert [job.organization for job in graves.dead_letters(organization="acme")] == ["acme"]
    page = graves.dead_letters(limit=3)
    assert len(graves.dead_letters(limit=3, before=page.next)) == 1


def test_retrying_dead_letters_takes_those_that_match_and_each_once(graves: Rota):
    assert len(graves.retry_dead(job_type="bad", text="first")) == 1
    assert len(graves.dead_letters(job_type="bad")) == 2
    assert [job.organization for job in graves.retry_dead(organization="acme")] == ["acme"]
    assert [job.job_type for job in graves.retry_dead(error_type="transient")] == ["flaky"]
    assert len(graves.retry_dead()) == 1
    assert graves.retry_dead() == []
    graves.turn()
    assert len(graves.dead_letters(job_type="bad")) == 3


def test_a_dead_letter_whose_key_is_taken_stays_dead(shop: Rota):
    shop.enqueue("bad", unique_key="k")
    shop.turn()
    shop.enqueue("bad", unique_key="k")
    assert shop.retry_dead() == []
    assert len(shop.dead_letters()) == 1


def test_a_dead_letter_is_discarded_with_its_logs(graves: Rota):
    (dead,) = graves.dead_letters(job_type="flaky")
    logs = list(Path(graves._session.open().log_dir).rglob("*.log"))
    assert len(logs) == 2
    gone = graves.discard(dead.number, actor="anna")
    assert (gone.chains, gone.jobs) == (1, 2)
    assert not any(log.exists() for log in logs)
    with pytest.raises(NotFound):
        graves.get(dead.id)
    assert graves.audit(subject="job")[0].actor == "anna"


def test_discarding_what_lives_or_is_needed_is_refused(shop: Rota):
    dead = shop.enqueue("bad")
    child = shop.enqueue("good", depends_on=[dead.id])
    with pytest.raises(StillLive):
        shop.discard(dead.id)
    shop.turn()
    with pytest.raises(StillNeeded, match=child.number):
        shop.discard(dead.id)
    other = shop.enqueue("bad")
    shop.turn()
    done = shop.discard_dead()
    assert (done.chains, done.kept) == (1, 1)
    assert shop.get(dead.id).status == "DEAD_LETTER"
    with pytest.raises(NotFound):
        shop.get(other.id)


def test_discarding_many_keeps_to_its_filters_and_its_limit(graves: Rota):
    assert graves.discard_dead(job_type="bad", limit=2).chains == 2
    assert graves.discard_dead(error_type="transient").jobs == 2
    assert len(graves.dead_letters()) == 1


# ---- purge -----------------------------------------------------------------------------------------------------------


def test_a_purge_needs_to_know_what_is_old(shop: Rota, clock):
    with pytest.raises(InvalidOption, match="retention is off"):
        shop.purge()
    for older_than in (-1, "soon", timedelta(days=-1)):
        with pytest.raises(InvalidOption, match="older_than"):
            shop.purge(older_than=older_than)
    shop.enqueue("good")
    shop.turn()
    clock.advance(days=2)
    assert shop.purge(older_than=3 * 86_400).chains == 0
    assert shop.purge(older_than=86_400.0).chains == 1


def test_without_an_age_the_setting_counts(tmp_path, clock):
    rota = Rota(tmp_path / "rota.db", clock=clock, settings=Settings(retention=86_400))
    rota.job(name="noop")(lambda: None)
    rota.enqueue("noop")
    rota.turn()
    clock.advance(hours=20)
    assert rota.purge(dry_run=True).chains == 0
    clock.advance(hours=5)
    assert rota.purge(dry_run=True).chains == 1
    rota.close()


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_an_admin_sees_and_retries_its_own_dead_letters_and_deletes_nothing(graves: Rota):
    assert [job.organization for job in graves.dead_letters(actor=ADMIN)] == ["acme"]
    assert graves.dead_letters(organization="default", actor=ADMIN) == []
    assert [job.organization for job in graves.find(actor=ADMIN)] == ["acme"]
    assert graves.stats(actor=ADMIN).by_status["DEAD_LETTER"] == 1
    assert {job.organization for job in graves.retry_dead(actor=ADMIN)} == {"acme"}
    (other,) = graves.dead_letters(job_type="flaky")
    for refused in (
        lambda: graves.discard(other.id, actor=ADMIN),
        lambda: graves.discard_dead(actor=ADMIN),
        lambda: graves.purge(older_than=0, actor=ADMIN),
    ):
        with pytest.raises(PermissionDenied, match="may not delete jobs"):
            refused()
    for hidden in (graves.log, graves.timeline):
        with pytest.raises(NotFound):
            hidden(other.id, actor=ADMIN)


def test_a_user_lists_its_own_and_reads_neither_logs_nor_figures(shop: Rota):
    own = shop.enqueue("good", actor=USER)
    shop.enqueue("good", organization="acme", actor=MANAGER)
    assert numbers(shop.find(actor=USER)) == [own.number]
    assert shop.find(owner="max", actor=USER) == []
    assert shop.dead_letters(actor=USER) == []
    for refused in (
        lambda: shop.log(own.id, actor=USER),
        lambda: shop.timeline(own.id, actor=USER),
        lambda: shop.stats(actor=USER),
        lambda: shop.audit(actor=USER),
        lambda: shop.retry_dead(actor=USER),
    ):
        with pytest.raises(PermissionDenied):
            refused()
