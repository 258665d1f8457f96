"""Lists, figures, logs, dead letters and purges, as a program asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
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

    rota.organizations.create("acme")
    return rota


def numbers(page: list) -> list[str]:
    return [job.number for job in page]


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_pages_lead_from_one_to_the_next_and_end(shop: Rota):
    made = [shop.enqueue("good", {"n": n}) for n in range(7)]
    seen, page = [], shop.jobs.list(limit=3)
    sizes = [len(page)]
    while True:
        seen += numbers(page)
        if page.next is None:
            break
        page = shop.jobs.list(limit=3, before=page.next)
        sizes.append(len(page))
    assert seen == numbers(made)[::-1]
    assert sizes == [3, 3, 1]


def test_a_page_that_is_just_full_has_no_next(shop: Rota):
    shop.enqueue_many([("good", {})] * 3)
    assert shop.jobs.list(limit=3).next is None
    assert shop.jobs.list(limit=2).next is not None


def test_a_page_is_a_list(shop: Rota):
    shop.enqueue("good")
    page = shop.jobs.list()
    assert isinstance(page, Page)
    assert isinstance(page, list)
    assert page == list(page)


def test_filters_of_every_kind(shop: Rota, clock):
    first = shop.acting_as("anna").enqueue("good", {"n": 41})
    shop.turn()
    clock.advance(hours=1)
    second = shop.acting_as(MANAGER).enqueue("bad", organization="acme")
    shop.turn()
    clock.advance(hours=1)
    third = shop.enqueue("flaky")
    shop.turn()
    group = shop.group([("good", {})])
    assert numbers(shop.jobs.list(owner="anna")) == [first.number]
    assert numbers(shop.jobs.list(organization="acme")) == [second.number]
    assert numbers(shop.jobs.list(text="41")) == [first.number]
    assert numbers(shop.jobs.list(text="fire")) == [second.number]
    assert numbers(shop.jobs.list(error_type="permanent")) == [second.number]
    assert numbers(shop.jobs.list(since=timedelta(minutes=90), job_type="bad")) == [second.number]
    assert numbers(shop.jobs.list(until=timedelta(minutes=90))) == [first.number]
    assert len(shop.jobs.list(since=datetime(2026, 3, 1, 14, 0, tzinfo=UTC))) == 3
    assert [job.attempt for job in shop.jobs.list(chain=third.id)] == [2, 1]
    assert numbers(shop.jobs.list(chain=third.number)) == numbers(shop.jobs.list(chain=shop.jobs.get(third.id)))
    assert len(shop.jobs.list(group=group)) == len(shop.jobs.list(group=group.id)) == 1
    assert shop.jobs.list(schedule=first.id) == []


def test_a_text_that_names_a_job_finds_every_attempt_of_it(shop: Rota):
    shop.enqueue_many([("good", {"n": 0})] * 2)
    job = shop.enqueue("flaky")
    other = shop.enqueue("good", {"n": 3})
    shop.turn()
    chain = numbers(shop.jobs.attempts(job.id))[::-1]
    assert len(chain) == 2
    assert numbers(shop.jobs.list(text=job.number)) == chain
    assert numbers(shop.jobs.list(text=f" {job.number.lower()} ")) == chain
    assert numbers(shop.jobs.list(text=job.id)) == chain
    assert set(numbers(shop.jobs.list(text="3"))) == {*chain, other.number}
    assert numbers(shop.jobs.list(text=job.number, status="FAILED")) == chain[1:]
    assert numbers(shop.jobs.list(text="JOB-1999-00003")) == []


def test_a_bare_number_names_no_job_to_an_act_on_all_that_match(shop: Rota):
    job = [shop.enqueue("good", {"n": 0}) for _ in range(3)][-1]
    assert shop.jobs.cancel_all(text="3").done == 0
    assert shop.jobs.cancel_all(text=job.number).done == 1


def test_nobody_finds_the_job_of_another_organization_by_its_number(shop: Rota):
    job = shop.enqueue("good")
    assert shop.acting_as(ADMIN).jobs.list(text=job.number) == []


def test_jobs_of_a_schedule_are_found_by_its_name_and_after_its_end_by_its_id(shop: Rota, clock):
    schedule = shop.schedules.create("hourly", "good", every="1h")
    clock.advance(hours=1)
    shop.turn()
    by_hand = shop.schedules.fire("hourly")
    shop.enqueue("good")
    found = shop.jobs.list(schedule="hourly")
    assert [job.due_at for job in found] == [None, schedule.next_at]
    assert found[0].id == by_hand.id
    assert shop.jobs.list(schedule=schedule.id) == found
    shop.schedules.delete("hourly")
    assert shop.jobs.list(schedule=schedule.id) == found
    with pytest.raises(NotFound, match="no schedule 'hourly'"):
        shop.jobs.list(schedule="hourly")


def test_a_schedule_of_several_organizations_is_told_apart_and_none_of_another_is_named(shared: Rota, clock):
    shared.schedules.create("hourly", "echo", every="1h", organization="acme")
    shared.schedules.create("hourly", "echo", every="1h", organization="beta")
    shared.schedules.create("daily", "echo", every="1d", organization="beta")
    clock.advance(hours=1)
    shared.turn()
    with pytest.raises(InvalidOption, match="several organizations"):
        shared.jobs.list(schedule="hourly")
    assert [job.organization for job in shared.jobs.list(schedule="hourly", organization="beta")] == ["beta"]
    assert [job.organization for job in shared.acting_as("ada").jobs.list(schedule="hourly")] == ["acme"]
    with pytest.raises(NotFound, match="no schedule 'daily'"):
        shared.acting_as("ada").jobs.list(schedule="daily")


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
        shop.jobs.list(**options)
    assert str(next(iter(options.values())))[:8] in str(caught.value) or next(iter(options)) in str(caught.value)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_stats_tell_how_each_type_fared(shop: Rota, clock):
    shop.enqueue_many([("good", {})] * 3 + [("bad", {})])
    shop.turn()
    found = {each.job_type: each for each in shop.store.stats().by_type}
    assert (found["good"].completed, found["good"].failure_rate, found["bad"].failed, found["bad"].failure_rate) == (3, 0.0, 1, 1.0)
    assert shop.store.stats().failure_rate == 0.25
    clock.advance(hours=30)
    assert shop.store.stats().by_type == ()
    assert len(shop.store.stats(hours=48).by_type) == 2
    for hours in (0, 9601, 1.5):
        with pytest.raises(InvalidOption, match="hours"):
            shop.store.stats(hours=hours)


# ---- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_is_of_one_job_and_a_timeline_of_the_chain(shop: Rota, clock):
    job = shop.acting_as("anna").enqueue("flaky")
    shop.turn()
    clock.advance(seconds=10)
    shop.turn()
    chain = shop.jobs.attempts(job.id)
    first, second = (shop.jobs.log(each.id) for each in chain)
    assert [str(entry.to_status or entry.level) for entry in first] == ["QUEUED", "RUNNING", "WARNING", "FAILED"]
    assert [str(entry.to_status or entry.level) for entry in second] == ["PENDING", "QUEUED", "RUNNING", "WARNING", "DEAD_LETTER"]
    whole = shop.jobs.log(chain[1].number, chain=True)
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
    shop.acting_as("anna").jobs.retry(job.id)
    assert "#2  QUEUED by anna" in str(shop.jobs.log(job.id, chain=True))


def test_the_log_of_what_is_not_there_says_so(shop: Rota):
    for read in (shop.jobs.log, partial(shop.jobs.log, chain=True)):
        with pytest.raises(NotFound):
            read("JOB-2026-00099")
        with pytest.raises(NotFound):
            read("01981c5e-7a10-7000-8000-000000000000")


def test_what_people_changed_is_told_page_by_page(shop: Rota):
    job = shop.enqueue("good", run_at=timedelta(days=1))
    for priority in (10, 20, 30):
        shop.acting_as("anna").jobs.update(job.id, priority=priority)
    page = shop.audit.list(subject="job", limit=2)
    assert [entry.after["priority"] for entry in page] == [30, 20]
    rest = shop.audit.list(subject=f"job:{job.number}", limit=2, before=page.next)
    assert ([entry.after["priority"] for entry in rest], rest.next) == ([10], None)
    assert {entry.actor for entry in [*page, *rest]} == {"anna"}
    assert shop.audit.list(subject="organization:acme")[0].subject_id == "acme"
    with pytest.raises(NotFound):
        shop.audit.list(subject="job:99")


# ---- dead letters ----------------------------------------------------------------------------------------------------


@pytest.fixture
def graves(shop: Rota, clock) -> Rota:
    """Three of `bad`, one of them of acme, and one of `flaky`."""
    shop.enqueue("bad", {"word": "first"})
    shop.enqueue("bad", {"word": "second"})
    shop.acting_as(MANAGER).enqueue("bad", {"word": "third"}, organization="acme")
    shop.enqueue("flaky")
    shop.turn()
    clock.advance(seconds=10)
    shop.turn()
    return shop


def test_dead_letters_are_grouped_by_error_whatever_its_values(shop: Rota, clock):
    @shop.job(max_retries=0)
    def orders(number: int) -> None:
        raise LookupError(f"order {number} not found")

    for number in range(5):
        shop.enqueue("orders", {"number": number})
        clock.advance(seconds=60)
        shop.turn()
    shop.enqueue("bad", {"word": "w"})
    shop.turn()
    found = shop.dead_letters.groups()
    assert [(each.job_type, each.error_type, each.message, each.count) for each in found.groups] == [
        ("orders", "transient", "LookupError: order … not found", 5),
        ("bad", "permanent", found.groups[1].message, 1),
    ]
    largest = found.groups[0]
    assert (largest.error, (largest.last_at - largest.first_at).total_seconds()) == ("LookupError: order 4 not found", 240)
    assert shop.jobs.get(largest.example.id).params == {"number": 4}
    assert (found.count, found.more) == (6, False)
    cut = shop.dead_letters.groups(job_type="orders", look=2)
    assert ([each.count for each in cut.groups], cut.more) == ([2], True)

    same = {"job_type": "orders", "message": largest.message}
    page = shop.dead_letters.list(**same, limit=3)
    assert [job.params["number"] for job in page] == [4, 3, 2]
    assert [job.params["number"] for job in shop.dead_letters.list(**same, before=page.next)] == [1, 0]
    assert shop.dead_letters.list(message="LookupError: user 1 not found") == []
    assert len(shop.dead_letters.list(message="LookupError: order 77 not found")) == 5, "any of its errors names a group"
    assert len(shop.dead_letters.retry(message=largest.message, limit=2)) == 2
    assert shop.dead_letters.delete(message=largest.message).chains == 3
    assert [job.job_type for job in shop.dead_letters.list()] == ["bad"]


def test_a_page_of_one_error_looks_at_so_many_dead_letters_and_the_next_continues(shop: Rota, monkeypatch):
    monkeypatch.setattr("rota.resources.dead_letters.PAGE", 2)
    monkeypatch.setattr("rota.resources.dead_letters.MESSAGE_LOOK", 4)
    wanted = shop.enqueue("bad", {"word": "wanted"})
    for _ in range(5):
        shop.enqueue("flaky", max_retries=0)
    shop.turn()
    message = shop.dead_letters.groups(job_type="bad").groups[0].message
    first = shop.dead_letters.list(message=message)
    assert first == []
    assert [job.id for job in shop.dead_letters.list(message=message, before=first.next)] == [wanted.id]


def test_dead_letters_are_found_by_type_error_text_and_organization(graves: Rota):
    assert len(graves.dead_letters.list()) == 4
    assert {job.status for job in graves.dead_letters.list()} == {Status.DEAD_LETTER}
    assert len(graves.dead_letters.list(job_type="bad")) == 3
    assert [job.job_type for job in graves.dead_letters.list(error_type="transient")] == ["flaky"]
    assert [job.params for job in graves.dead_letters.list(text="second")] == [{"word": "second"}]
    assert [job.organization for job in graves.dead_letters.list(organization="acme")] == ["acme"]
    page = graves.dead_letters.list(limit=3)
    assert len(graves.dead_letters.list(limit=3, before=page.next)) == 1


def test_retrying_dead_letters_takes_those_that_match_and_each_once(graves: Rota):
    assert len(graves.dead_letters.retry(job_type="bad", text="first")) == 1
    assert len(graves.dead_letters.list(job_type="bad")) == 2
    assert [job.organization for job in graves.dead_letters.retry(organization="acme")] == ["acme"]
    assert [job.job_type for job in graves.dead_letters.retry(error_type="transient")] == ["flaky"]
    assert len(graves.dead_letters.retry(all=True)) == 1
    assert graves.dead_letters.retry(all=True) == []
    graves.turn()
    assert len(graves.dead_letters.list(job_type="bad")) == 3


def test_a_dead_letter_whose_key_is_taken_stays_dead(shop: Rota):
    shop.enqueue("bad", unique_key="k")
    shop.turn()
    shop.enqueue("bad", unique_key="k")
    assert shop.dead_letters.retry(all=True) == []
    assert len(shop.dead_letters.list()) == 1


def test_a_dead_letter_is_discarded_with_its_logs(graves: Rota):
    (dead,) = graves.dead_letters.list(job_type="flaky")
    logs = list(Path(graves._session.open().log_dir).rglob("*.log"))
    assert len(logs) == 2
    gone = graves.acting_as("anna").jobs.delete(dead.number)
    assert (gone.chains, gone.jobs) == (1, 2)
    assert not any(log.exists() for log in logs)
    with pytest.raises(NotFound):
        graves.jobs.get(dead.id)
    assert graves.audit.list(subject="job")[0].actor == "anna"


def test_discarding_what_lives_or_is_needed_is_refused(shop: Rota):
    dead = shop.enqueue("bad")
    child = shop.enqueue("good", depends_on=[dead.id])
    with pytest.raises(StillLive):
        shop.jobs.delete(dead.id)
    shop.turn()
    with pytest.raises(StillNeeded, match=child.number):
        shop.jobs.delete(dead.id)
    other = shop.enqueue("bad")
    shop.turn()
    done = shop.dead_letters.delete(all=True)
    assert (done.chains, done.kept) == (1, 1)
    assert shop.jobs.get(dead.id).status == "DEAD_LETTER"
    with pytest.raises(NotFound):
        shop.jobs.get(other.id)


def test_discarding_many_keeps_to_its_filters_and_its_limit(graves: Rota):
    assert graves.dead_letters.delete(job_type="bad", limit=2).chains == 2
    assert graves.dead_letters.delete(error_type="transient").jobs == 2
    assert len(graves.dead_letters.list()) == 1


# ---- purge -----------------------------------------------------------------------------------------------------------


def test_a_purge_needs_to_know_what_is_old(shop: Rota, clock):
    with pytest.raises(InvalidOption, match="retention is off"):
        shop.store.purge()
    for older_than in (-1, "soon", timedelta(days=-1)):
        with pytest.raises(InvalidOption, match="older_than"):
            shop.store.purge(older_than=older_than)
    shop.enqueue("good")
    shop.turn()
    clock.advance(days=2)
    assert shop.store.purge(older_than=3 * 86_400).chains == 0
    assert shop.store.purge(older_than=86_400.0).chains == 1


def test_without_an_age_the_setting_counts(tmp_path, clock):
    rota = Rota(tmp_path / "rota.db", clock=clock, settings=Settings(retention=86_400))
    rota.job(name="noop")(lambda: None)
    rota.enqueue("noop")
    rota.turn()
    clock.advance(hours=20)
    assert rota.store.purge(dry_run=True).chains == 0
    clock.advance(hours=5)
    assert rota.store.purge(dry_run=True).chains == 1
    rota.close()


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_an_admin_sees_and_retries_its_own_dead_letters_and_deletes_nothing(graves: Rota):
    assert [job.organization for job in graves.acting_as(ADMIN).dead_letters.list()] == ["acme"]
    assert graves.acting_as(ADMIN).dead_letters.list(organization="default") == []
    assert [job.organization for job in graves.acting_as(ADMIN).jobs.list()] == ["acme"]
    assert graves.acting_as(ADMIN).store.stats().by_status["DEAD_LETTER"] == 1
    assert {job.organization for job in graves.acting_as(ADMIN).dead_letters.retry(all=True)} == {"acme"}
    (other,) = graves.dead_letters.list(job_type="flaky")
    for refused in (
        lambda: graves.acting_as(ADMIN).jobs.delete(other.id),
        graves.acting_as(ADMIN).dead_letters.delete,
        lambda: graves.acting_as(ADMIN).store.purge(older_than=0),
    ):
        with pytest.raises(PermissionDenied, match="may not delete jobs"):
            refused()
    for chain in (False, True):
        with pytest.raises(NotFound):
            graves.acting_as(ADMIN).jobs.log(other.id, chain=chain)


def test_a_user_lists_its_own_and_reads_neither_logs_nor_figures(shop: Rota):
    own = shop.acting_as(USER).enqueue("good")
    shop.acting_as(MANAGER).enqueue("good", organization="acme")
    assert numbers(shop.acting_as(USER).jobs.list()) == [own.number]
    assert shop.acting_as(USER).jobs.list(owner="max") == []
    assert shop.acting_as(USER).dead_letters.list() == []
    for refused in (
        lambda: shop.acting_as(USER).jobs.log(own.id),
        lambda: shop.acting_as(USER).jobs.log(own.id, chain=True),
        shop.acting_as(USER).store.stats,
        shop.acting_as(USER).audit.list,
        shop.acting_as(USER).dead_letters.retry,
    ):
        with pytest.raises(PermissionDenied):
            refused()
