"""What can be done on pages: each act, by whom, and what is asked once."""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from html import unescape
from urllib.parse import quote

import pytest

from rota import Backoff, PermanentError, Rota, __version__
from rota.admission import Admission
from rota.model.states import Status
from tests.support.pace import patient
from tests.surfaces.http.pages_support import ACCEPT, Browser, browsing, said


@pytest.fixture
def store(shared: Rota) -> Rota:
    @shared.job(max_retries=0)
    def breaks() -> None:
        raise PermanentError("never")

    return shared


@pytest.fixture
def people(store: Rota):
    with browsing(store) as browser:
        yield browser


@pytest.fixture
def root(people) -> Browser:
    return people("root")


def queued(store: Rota, count: int = 1, **options) -> list:
    return [store.acting_as("root").enqueue("echo", {"text": str(place)}, organization="acme", **options) for place in range(count)]


# ---- jobs ------------------------------------------------------------------------------------------------------------


def test_a_job_is_enqueued_by_a_form(store: Rota, people):
    done = people("bob").act("/jobs", name="echo", params='{"text": "hello"}', priority="high")
    job = store.jobs.list(owner="bob")[0]
    assert (job.params, job.priority, job.organization) == ({"text": "hello"}, 75, "acme")
    assert said(done) == f"{job.number} is enqueued."
    assert done.url.path == f"/jobs/{job.id}"


def test_a_form_that_can_not_be_is_refused_in_words(root: Browser):
    for words, fields in {
        "the params are not JSON": {"name": "echo", "params": "{"},
        "not a JSON object": {"name": "echo", "params": "[1]"},
        "nobody's": {"name": "nobody's"},
        "name is empty": {"name": ""},
        "is not a moment": {"name": "echo", "run_at": "tomorrow"},
    }.items():
        answer = root.act("/jobs", **fields)
        assert answer.status_code == 422
        assert words in unescape(answer.text)


def test_a_job_is_found_by_what_an_operator_pastes(store: Rota, root: Browser):
    other, job = queued(store, 2)
    for pasted in (job.number, job.id, f" {job.number.lower()} ", job.number.split("-")[-1].lstrip("0")):
        listed = root.get(f"/jobs?text={quote(pasted)}").text
        assert f'href="/jobs/{job.id}"' in listed
        assert f'href="/jobs/{other.id}"' not in listed
        assert root.get(f"/jobs/find?job={quote(pasted)}").url.path == f"/jobs/{job.id}"


def test_the_field_of_the_header_is_on_every_page_and_searches_what_names_no_job(root: Browser):
    for path in ("/", "/jobs", "/schedules", "/dead", "/workers"):
        assert 'action="/jobs/find"' in root.get(path).text
    found = root.get("/jobs/find?job=invoice+9")
    assert (found.url.path, found.url.params["text"]) == ("/jobs", "invoice 9")


def test_a_list_of_failed_jobs_shows_the_error_and_not_the_params(store: Rota, root: Browser):
    @store.job(max_retries=1)
    def mails(to: str) -> None:
        raise ConnectionError("mail.example.org refused the connection")

    store.enqueue("mails", {"to": "ada"})
    store.turn()
    listed = root.get("/jobs?status=FAILED").text
    assert "mail.example.org refused the connection" in listed
    assert "&#34;ada&#34;" not in listed


def test_a_waiting_retry_shows_its_last_error_and_is_run_now(store: Rota, root: Browser):
    @store.job(max_retries=1, backoff=Backoff(base=1e9, cap=1e9, jitter=0))
    def mails() -> None:
        raise ConnectionError("mail.example.org refused the connection")

    job = store.enqueue("mails")
    store.turn()
    retry = store.jobs.attempts(job.id)[-1]
    shown = root.get(f"/jobs/{retry.id}").text
    assert "Attempt 1</a> failed: ConnectionError: mail.example.org refused the connection" in shown
    assert shown.count("due in") == 1
    done = root.act(f"/jobs/{retry.id}/now")
    assert said(done) == f"{retry.number} is due now."
    assert "Run now" in shown
    assert "Run now" not in done.text
    store.turn()
    assert store.jobs.get(retry.id).status is Status.DEAD_LETTER


def test_cancelling_asks_once(store: Rota, root: Browser):
    (job,) = queued(store)
    asked = root.post(f"/jobs/{job.id}/cancel", csrf=root.csrf)
    assert asked.headers["x-rota-ask"] == "1"
    assert f"Cancel {job.number}" in asked.text
    assert not store.jobs.get(job.id).status.ended
    done = root.post(f"/jobs/{job.id}/cancel", csrf=root.csrf, sure="yes")
    assert said(done) == f"{job.number} is cancelled."
    assert store.jobs.get(job.id).status is Status.CANCELLED


def test_a_job_that_ended_badly_is_retried_and_removed(store: Rota, root: Browser):
    job = store.enqueue("breaks")
    store.turn()
    done = root.act(f"/jobs/{job.id}/retry")
    assert len(store.jobs.attempts(job.id)) == 2
    assert "is the next attempt" in said(done)
    store.turn()
    assert "is removed" in said(root.act(f"/jobs/{job.id}/discard"))
    assert store.jobs.list(job_type="breaks") == []


def test_a_waiting_job_is_changed_only_where_the_form_says_otherwise(store: Rota, root: Browser):
    first, second = queued(store, 2)
    root.act(f"/jobs/{first.id}/change", priority="50", params='{"text": "changed"}')
    assert store.jobs.get(first.id).params == {"text": "changed"}
    assert [job.id for job in store.queues.jobs()] == [first.id, second.id], "it keeps its place"
    root.act(f"/jobs/{second.id}/change", priority="high", params='{"text": "1"}')
    assert store.jobs.get(second.id).priority == 75
    assert said(root.act(f"/jobs/{first.id}/change", priority="50")) == "Nothing is changed."


def test_a_pending_job_is_given_another_time(store: Rota, root: Browser):
    (job,) = queued(store, run_at=timedelta(hours=1))
    root.act(f"/jobs/{job.id}/change", run_at="2026-12-24T18:00:00")
    assert f"{store.jobs.get(job.id).run_at:%Y-%m-%d %H:%M}" == "2026-12-24 18:00"


def test_jobs_change_places(store: Rota, root: Browser):
    first, second, third = queued(store, 3)
    text = root.get("/queue").text
    assert text.index(first.number) < text.index(third.number)
    root.act("/queue/move", move=f"{third.id} before {second.id}")
    root.act("/queue/move", move=f"{first.id} after {second.id}")
    assert [job.id for job in store.queues.jobs()] == [third.id, second.id, first.id]
    root.act("/queue/move", move=f"{first.id} front")
    assert store.queues.jobs()[0].id == first.id
    root.act(f"/jobs/{second.id}/front")
    assert store.queues.jobs()[0].id == second.id
    assert root.act("/queue/move", move=f"{first.id} sideways").status_code == 422


def test_all_that_match_are_acted_on_after_one_question_with_their_count(store: Rota, root: Browser):
    queued(store, 3)
    store.enqueue("breaks", run_at=timedelta(hours=1))
    asked = root.post("/jobs/act", csrf=root.csrf, what="cancel", job_type="echo")
    assert "Cancel 3 jobs (job_type echo)?" in asked.text
    assert said(root.act("/jobs/act", what="cancel", job_type="echo")) == "Cancelled 3 jobs."
    assert {job.status for job in store.jobs.list(job_type="echo")} == {Status.CANCELLED}
    assert store.jobs.list(job_type="breaks")[0].status is Status.PENDING
    assert said(root.act("/jobs/act", what="retry", status="CANCELLED")) == "Retried 3 jobs."
    assert "Nothing to retry" in said(root.act("/jobs/act", what="retry", job_type="breaks"))
    assert root.act("/jobs/act", what="explode").status_code == 422


def test_without_a_filter_all_jobs_are_named_and_no_button_offers_it(store: Rota, root: Browser):
    queued(store, 2)
    assert "Cancel all 2 live jobs of every type?" in root.post("/jobs/act", csrf=root.csrf, what="cancel").text
    assert 'id="cancel-all"' not in root.get("/jobs").text
    assert 'id="cancel-all"' in root.get("/jobs?job_type=echo").text


def test_lists_go_on_page_by_page(store: Rota, root: Browser):
    queued(store, 60)
    first = root.get("/jobs?job_type=echo").text
    older = unescape(first.split('">Older')[0].rpartition('href="')[2])
    assert "job_type=echo" in older
    second = root.get(older).text
    assert first.count('<th scope="row"') + second.count('<th scope="row"') == 60
    assert "Newest" in second


def test_filters_stand_in_the_address(store: Rota, root: Browser):
    (job,) = queued(store)
    for query, found in {
        "status=QUEUED": True,
        "status=RUNNING": False,
        "job_type=echo": True,
        "organization=beta": False,
        "owner=root": True,
        "since=1h": True,
        "since=2099-01-01": False,
        "text=nothing": False,
    }.items():
        assert (job.number in root.get(f"/jobs?{query}").text) is found, query


def test_the_log_is_there_as_text(store: Rota, root: Browser):
    (job,) = queued(store)
    store.turn()
    answer = root.get(f"/jobs/{job.id}/log")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "COMPLETED by system" in answer.text


# ---- rows that are ticked --------------------------------------------------------------------------------------------


def test_ticked_jobs_are_cancelled_after_one_question(store: Rota, root: Browser):
    first, second, kept = queued(store, 3)
    ticked = {"row": [first.id, second.id], "what": "cancel"}
    asked = root.post("/jobs/rows", csrf=root.csrf, **ticked)
    assert "Cancel 2 jobs? They are not retried automatically." in asked.text
    assert not store.jobs.get(first.id).status.ended
    assert said(root.act("/jobs/rows", **ticked)) == "2 jobs are cancelled."
    assert [store.jobs.get(job.id).status for job in (first, second, kept)] == [Status.CANCELLED, Status.CANCELLED, Status.QUEUED]
    assert {store.jobs.get(job.id).ended_by for job in (first, second)} == {"root"}


def test_what_can_not_be_done_to_a_row_is_named_with_its_reason_and_the_rest_is_done(store: Rota, root: Browser):
    waits, ended = queued(store, 2, run_at=timedelta(hours=1))
    store.jobs.cancel(ended.id)
    done = root.act("/jobs/rows", row=[ended.id, waits.id, "01981c5e-7a10-7000-8000-000000000000"], what="now", back="/jobs?job_type=echo")
    assert store.jobs.get(waits.id).run_at <= store.now
    errors = unescape(done.text.partition('id="row-errors"')[2].partition("</ul>")[0])
    assert "1 job is due now." in done.text
    assert f'<a href="/jobs/{ended.id}">{ended.number}</a>: ' in errors
    assert "CANCELLED" in errors
    assert "there is no job" in errors
    assert waits.number not in errors
    assert 'href="/jobs?job_type=echo">Back to the list' in done.text


def test_ticked_dead_letters_are_retried_and_removed(store: Rota, root: Browser):
    dead = [store.enqueue("breaks") for _ in range(3)]
    store.turn()
    assert said(root.post("/jobs/rows", csrf=root.csrf, row=[job.id for job in dead[:2]], what="retry")) == "2 jobs are retried."
    assert len(store.dead_letters.list()) == 1
    audited = [each for each in store.audit.list(subject="job") if each.action == "job.retry"]
    assert [(each.actor, each.subject_id) for each in audited] == [("root", job.id.replace("-", "")) for job in (dead[1], dead[0])]
    store.turn()
    asked = root.post("/jobs/rows", csrf=root.csrf, row=[job.id for job in dead], what="discard")
    assert "Remove 3 jobs with their runs and logs, for good?" in asked.text
    assert said(root.act("/jobs/rows", row=[job.id for job in dead], what="discard")) == "3 jobs are removed."
    assert store.jobs.list(job_type="breaks") == []


def test_a_member_of_a_group_that_waits_for_its_retry_is_run_now(store: Rota, root: Browser):
    @store.job(max_retries=1, backoff=Backoff(base=1e9, cap=1e9, jitter=0))
    def mails() -> None:
        raise ConnectionError("refused")

    group = store.group([("mails", {})], name="post")
    store.turn()
    assert said(root.act("/jobs/rows", row=group.members[0].root_id, what="now")) == "1 job is due now."


def test_ticked_schedules_are_paused_and_enabled(store: Rota, root: Browser):
    for name in ("a & b=c", "nightly", "kept"):
        store.schedules.create(name, "echo", cron="0 3 * * *")
    shown = re.findall(r'name="row" value="([^"]*)"', root.get("/schedules").text)
    rows = [unescape(value) for value in shown if "kept" not in value]
    assert said(root.act("/schedules/rows", row=rows, what="pause")) == "2 schedules are paused."
    assert {each.name: str(each.state) for each in store.schedules.list()} == {"a & b=c": "PAUSED", "nightly": "PAUSED", "kept": "ENABLED"}
    assert said(root.act("/schedules/rows", row=rows, what="enable")) == "2 schedules are enabled."


def test_rows_are_ticked_without_a_script_and_at_most_a_page(store: Rota, root: Browser):
    queued(store, 60)
    page = root.get("/jobs?job_type=echo").text
    assert (page.count('name="row"'), page.count(" checked>")) == (50, 0)
    everything = unescape(re.search(r'data-select-all href="([^"]*)"', page)[1])
    ticked = root.get(everything).text
    assert ticked.count(" checked>") == 50
    older = unescape(re.search(r'<a class="button" href="([^"]*)">Older</a>', ticked)[1])
    assert " checked>" not in root.get(older).text
    assert "no row is selected" in root.act("/jobs/rows", what="cancel").text
    assert "at most 100" in root.act("/jobs/rows", what="cancel", row=[str(place) for place in range(101)]).text
    assert root.act("/jobs/rows", what="explode", row="1").status_code == 422


def test_only_acts_that_the_visitor_may_do_are_offered_and_a_colleagues_row_is_out_of_reach(store: Rota, people):
    own, colleagues = store.acting_as("bob").enqueue("echo"), store.acting_as("ben").enqueue("echo")
    bob = people("bob")
    form = bob.get("/jobs").text.partition('id="rows"')[2].partition("</form>")[0]
    assert re.findall(r'value="(cancel|retry|now|discard)"', form) == ["cancel"]
    done = bob.act("/jobs/rows", row=[colleagues.id, own.id], what="cancel")
    assert "1 job is cancelled." in done.text
    assert colleagues.number not in done.text
    assert store.jobs.get(colleagues.id).status is Status.QUEUED
    assert bob.post("/jobs/rows", csrf=bob.csrf, row=own.id, what="retry").status_code == 403
    assert people("bob", "read").get("/jobs").text.count('name="row"') == 0


# ---- dead letters, groups --------------------------------------------------------------------------------------------


def test_dead_letters_are_retried_and_removed_all_that_match(store: Rota, root: Browser):
    store.enqueue_many([("breaks", {})] * 3)
    store.turn()
    assert "Retry 3 dead letters" in root.post("/dead/retry", csrf=root.csrf, job_type="breaks").text
    assert said(root.act("/dead/retry", job_type="breaks")) == "3 jobs will be tried again."
    store.turn()
    assert said(root.act("/dead/discard", text="no such text")) == "0 dead letters removed."
    assert said(root.act("/dead/discard")) == "3 dead letters removed."
    assert store.dead_letters.list() == []


@pytest.fixture
def wreck(store: Rota) -> Rota:
    """Return a store with dead letters of two errors."""

    @store.job(max_retries=0)
    def orders(number: int) -> None:
        raise LookupError(f"order {number} not found in 'shop {number}'")

    for number in (17, 18, 19):
        store.enqueue("orders", {"number": number})
    store.enqueue("breaks")
    store.turn()
    return store


def test_dead_letters_are_shown_by_error_and_each_group_leads_to_its_rows(wreck: Rota, root: Browser):
    page = root.get("/dead").text
    largest = unescape(page.partition("<tbody>")[2].split("</tr>")[0])
    assert "LookupError: order … not found in …" in largest
    assert re.search(r'data-name="dead">3<', largest)
    assert "order 19 not found in 'shop 19'" in largest
    rows = root.get(re.search(r'<th scope="row" class="long"><a href="([^"]*)"', largest)[1]).text
    assert (rows.count('name="row"'), "PermanentError" in rows.partition("<tbody>")[2]) == (3, False)
    assert root.get("/dead?by=row").text.count('name="row"') == 4
    assert root.get("/dead?job_type=breaks").text.count('name="row"') == 1, "of one error the rows are shown"
    assert root.get("/dead?by=colour").status_code == 422


def test_all_dead_letters_of_a_group_are_retried_and_removed(wreck: Rota, root: Browser):
    same = {"job_type": "orders", "error_type": "transient", "message": "LookupError: order … not found in …"}
    asked = root.post("/dead/retry", csrf=root.csrf, **same)
    assert "Retry 3 dead letters" in asked.text
    assert said(root.act("/dead/retry", **same)) == "3 jobs will be tried again."
    wreck.turn()
    assert said(root.act("/dead/discard", **same)) == "3 dead letters removed."
    assert [job.job_type for job in wreck.dead_letters.list()] == ["breaks"]


def test_a_group_is_cancelled(store: Rota, root: Browser):
    group = store.group([("echo", {}), ("echo", {})], name="two")
    assert "Cancel the 2 jobs of two" in root.post(f"/groups/{group.id}/cancel", csrf=root.csrf).text
    root.act(f"/groups/{group.id}/cancel")
    assert store.groups.get(group.id).status == "CANCELLED"


def test_the_members_of_a_group_are_shown_by_the_hundred(store: Rota, root: Browser):
    group = store.group([("echo", {"text": str(place)}) for place in range(250)], name="many")
    sizes, address = [], f"/groups/{group.id}"
    for _ in range(3):
        page = root.get(address).text
        sizes.append(len(re.findall('data-name="place">', page)))
        following = re.search(r'<a class="button" href="([^"]*)">Next</a>', page)
        address = unescape(following[1]) if following else ""
    assert (sizes, address) == ([100, 100, 50], "")
    assert "201 to 250 of 250" in page
    back = unescape(re.search(r'<a class="button" href="([^"]*)">Previous</a>', page)[1])
    assert "101 to 200 of 250" in root.get(back).text
    assert "Previous</a>" not in root.get(f"/groups/{group.id}").text
    assert root.get(f"/groups/{group.id}?after=-1").status_code == 422
    assert "251 to" not in root.get(f"/groups/{group.id}?after=1000").text


def test_members_of_a_group_show_params_duration_and_error_and_are_filtered_by_status(store: Rota, root: Browser):
    group = store.group([("breaks", {}), ("echo", {"text": "fine"})], name="mixed", on_failure="continue")
    store.turn()
    store.turn()
    page = unescape(root.get(f"/groups/{group.id}").text)
    failed, well = page.partition("<tbody>")[2].split("</tr>")[:2]
    assert "PermanentError: never" in failed
    assert '{"text":"fine"}' in well
    assert re.search(r'data-name="duration">[^<]', well)
    only = root.get(f"/groups/{group.id}?status=DEAD_LETTER").text
    assert only.count('data-name="place"') == 1
    assert "PermanentError: never" in only
    assert root.get(f"/groups/{group.id}?status=GONE").status_code == 422


def test_the_list_of_groups_says_how_many_failed(store: Rota, root: Browser):
    @store.job(max_retries=0)
    def fails() -> None:
        raise PermanentError("no")

    store.group([("fails", {}), ("fails", {}), ("echo", {})], name="mixed", on_failure="continue")
    store.turn()
    row = re.search(r"<tr><th[^>]*><a[^>]*>mixed</a>.*?</tr>", root.get("/groups").text, re.DOTALL)[0]
    assert "2 failed" in row


def test_a_group_names_what_follows_it(store: Rota, root: Browser):
    group = store.group([("echo", {})], name="one", then=("echo", {}), on_parent_failure="run")
    page = root.get(f"/groups/{group.id}").text
    assert f'<a href="/jobs/{group.then.root_id}">{group.then.number}</a>' in page
    assert "if a member fails: run" in page
    assert "waits for group one: 1 of 1 members have not ended" in root.get(f"/jobs/{group.then.root_id}").text


# ---- schedules -------------------------------------------------------------------------------------------------------


def test_a_schedule_is_made_changed_fired_paused_and_removed(store: Rota, root: Browser):
    about = {"name": "nightly", "organization": "acme"}
    made = root.act("/schedules", template="echo", cron="0 3 * * *", timezone="Europe/Berlin", params='{"text": "x"}', **about)
    assert "Schedule nightly is created" in said(made)
    assert store.schedules.get("nightly").timezone == "Europe/Berlin"
    root.act("/schedules/one/change", cron="0 4 * * *", timezone="Europe/Berlin", params='{"text": "x"}', **about)
    assert store.schedules.get("nightly").cron == "0 4 * * *"
    assert said(root.act("/schedules/one/change", cron="0 4 * * *", **about)) == "Nothing is changed."
    fired = root.act("/schedules/one/fire", **about)
    assert store.jobs.list(schedule="nightly")[0].number in said(fired)
    for verb, state in (("pause", "PAUSED"), ("enable", "ENABLED"), ("disable", "DISABLED"), ("enable", "ENABLED")):
        root.act(f"/schedules/one/{verb}", **about)
        assert store.schedules.get("nightly").state == state
    assert "Remove the schedule nightly" in root.post("/schedules/one/delete", csrf=root.csrf, **about).text
    root.act("/schedules/one/delete", **about)
    assert store.schedules.list() == []
    assert root.act("/schedules/one/explode", **about).status_code == 422


def test_a_schedule_is_renamed_by_its_form(store: Rota, root: Browser):
    store.schedules.create("nightly", "echo", cron="0 3 * * *")
    store.schedules.create("taken", "echo", cron="0 3 * * *")
    assert 'name="new_name"' in root.get("/schedules/one/change?name=nightly").text
    assert root.act("/schedules/one/change", name="nightly", new_name="taken").status_code == 409
    done = root.act("/schedules/one/change", name="nightly", new_name="at night")
    assert "at night is changed" in said(done)
    assert {each.name for each in store.schedules.list()} == {"at night", "taken"}


def test_a_form_says_why_a_template_that_takes_no_jobs_gets_no_schedule(store: Rota, root: Browser):
    store.schedules.create("off", "echo", cron="0 3 * * *", enabled=False)
    assert '<option value="echo">' in root.get("/schedules/new").text
    store.templates.disable("echo")
    assert '<option value="echo">' not in root.get("/schedules/new").text
    for answer in (
        root.act("/schedules", name="new", template="echo", cron="0 3 * * *"),
        root.act("/schedules/one/enable", name="off"),
    ):
        assert answer.status_code == 422
        assert "rota template enable echo" in answer.text
    assert [each.name for each in store.schedules.list()] == ["off"]


def test_a_form_that_was_opened_before_somebodys_change_takes_nothing_back(store: Rota, root: Browser):
    store.schedule("nightly", "echo", cron="0 3 * * *")
    about = {"name": "nightly", "version": str(store.schedules.get("nightly").version)}
    store.schedules.update("nightly", cron="0 5 * * *")
    stale = root.act("/schedules/one/change", cron="0 3 * * *", description="mine", **about)
    assert stale.status_code == 412
    assert "read it again" in stale.text
    assert store.schedules.get("nightly").cron == "0 5 * * *"
    version = str(store.templates.get("echo").version)
    assert f'name="version" value="{version}"' in root.get("/templates/one?name=echo").text
    store.templates.update("echo", max_running=3)
    assert root.act("/templates/one/set", name="echo", version=version, max_running="").status_code == 412
    assert store.templates.get("echo").max_running == 3


def test_the_ledger_goes_on_page_by_page_and_is_narrowed(store: Rota, root: Browser, clock):
    store.schedule("often", "echo", every=60, catch_up="none")
    for _ in range(60):
        clock.advance(seconds=60)
        store.turn()
    page = root.get("/schedules/one?name=often").text
    older = unescape(page.split('">Older')[0].rpartition('href="')[2])
    assert "fired" in root.get(older).text
    assert "Everything ran." in root.get("/schedules/one?name=often&fate=not_ran").text
    assert root.get("/schedules/one?name=often&before=nonsense").status_code == 422


# ---- definitions and people ------------------------------------------------------------------------------------------


def test_a_templates_limits_are_set_and_taken_back(store: Rota, root: Browser):
    done = root.act("/templates/one/set", name="echo", max_running="3", rate_limit="10/60s", timeout="5m", priority="50")
    assert said(done) == "echo: timeout, max_running, rate_limit set."
    view = store.templates.get("echo")
    assert (view.max_running, str(view.rate_limit), view.timeout) == (3, "10/60s", 300.0)
    root.act("/templates/one/set", name="echo", max_running="")
    assert store.templates.get("echo").max_running is None
    assert root.act("/templates/one/set", name="echo", max_retries="").status_code == 422
    root.act("/templates/one/reset", name="echo", field="rate_limit")
    assert store.templates.get("echo").rate_limit is None


def test_a_template_is_disabled_archived_and_removed(store: Rota, root: Browser):
    root.act("/templates/one/disable", name="echo")
    assert store.templates.get("echo").state == "DISABLED"
    root.act("/templates/one/enable", name="echo")
    root.act("/templates/one/archive", name="echo")
    assert "echo" not in root.get("/templates").text.split("<main")[1]
    assert "echo" in root.get("/templates?archived=yes").text
    root.act("/templates/one/delete", name="echo")


def test_pauses_begin_and_end(store: Rota, root: Browser):
    assert "Pause everything?" in root.post("/pauses", csrf=root.csrf, what="pause", kind="all").text
    root.act("/pauses", what="pause", kind="all")
    root.act("/pauses", what="pause", kind="template", name="echo")
    assert set(store.store.pauses()) == {("all", ""), ("template", "echo")}
    assert "Everything is paused" in root.get("/queue").text
    root.act("/pauses", what="resume", kind="all")
    root.act("/pauses", what="resume", kind="template", name="echo")
    assert store.store.pauses() == []
    assert root.act("/pauses", what="pause", kind="weather").status_code == 422


def test_an_admin_pauses_its_own_organization_and_no_other(store: Rota, people):
    ada = people("ada")
    ada.act("/pauses", what="pause", kind="organization", name="acme")
    assert store.store.pauses() == [("organization", "acme")]
    assert ada.act("/pauses", what="pause", kind="organization", name="beta").status_code in {403, 404}
    assert ada.act("/pauses", what="pause", kind="all").status_code == 403


def test_organizations_and_users_are_managed(store: Rota, root: Browser):
    root.act("/organizations/create", name="gamma", max_running="5")
    root.act("/organizations/change", name="gamma", display_name="Gamma Ltd", max_queued="10")
    found = store.organizations.get("gamma")
    assert (found.display_name, found.max_running, found.max_queued) == ("Gamma Ltd", None, 10)
    form = root.get("/organizations?name=gamma").text.split('id="edit"')[1]
    assert 'value="Gamma Ltd"' in form
    assert 'value="10"' in form
    for verb, state in (("suspend", "SUSPENDED"), ("resume", "ACTIVE"), ("remove", "REMOVED"), ("resume", "ACTIVE")):
        root.act(f"/organizations/{verb}", name="gamma")
        assert store.organizations.get("gamma").state == state
    root.act("/users/add", name="gil", organization="gamma", role="admin", permissions="mail, print")
    assert 'value="mail, print"' in root.get("/users?name=gil").text
    root.act("/users/change", name="gil", organization="gamma", role="user", permissions="print")
    found = next(user for user in store.users.list() if user.name == "gil")
    assert (found.role, found.permissions) == ("user", ("print",))
    assert "Remove the user gil" in root.post("/users/remove", csrf=root.csrf, name="gil").text
    root.act("/users/remove", name="gil")
    assert "gil" not in {user.name for user in store.users.list()}


def test_a_tokens_secret_is_shown_once(store: Rota, root: Browser):
    fields = {"csrf": root.csrf, "name": "ci", "user": "ada", "permit": ["read", "submit"], "expires_in": "30d"}
    made = root.client.post("/tokens", data=fields, headers=ACCEPT)
    secret = made.text.split('class="secret" tabindex="0">')[1].split("<")[0]
    assert Admission(store).authenticate(secret).name == "ada"
    assert secret not in root.get("/tokens").text
    token = next(each for each in store.tokens.list() if each.name == "ci")
    assert "Revoke ci?" in root.post("/tokens/revoke", csrf=root.csrf, id=token.id, name="ci").text
    root.act("/tokens/revoke", id=token.id, name="ci")
    assert "ci" not in {each.name for each in store.tokens.list()}


def test_a_webhook_is_made_disabled_and_deleted_and_its_secret_shown_once(store: Rota, root: Browser):
    made = root.act("/webhooks", url="https://example.org/hook", event="run.failed", description="for the pager")
    secret = made.text.split('class="secret" tabindex="0">')[1].split("<")[0]
    assert secret.startswith("whsec_")
    assert secret not in root.get("/webhooks").text
    hook = store.webhooks.list()[0]
    assert "another secret" in root.act(f"/webhooks/{hook.id}/rotate").text
    for verb, state in (("disable", "DISABLED"), ("enable", "ENABLED")):
        root.act(f"/webhooks/{hook.id}/{verb}")
        assert store.webhooks.list()[0].state == state
    root.act(f"/webhooks/{hook.id}/delete")
    assert store.webhooks.list() == []
    assert root.act("/webhooks/redeliver/1").status_code == 404


def test_a_connection_is_created_changed_and_deleted(store: Rota, root: Browser, people):
    fields = {"name": "dw", "url": "postgresql://wh/dw", "login": "etl", "secret_name": "pw", "organization": "acme"}
    assert said(root.act("/connections/create", **fields)) == "Connection dw is created. Test it before jobs use it."
    store.acting_as("ada").grants.create("USE", "bob", connection="dw")
    shown = root.get("/connections").text
    assert all(words in shown for words in ("postgresql://wh/dw", "login etl, password in secret pw", ">bob<"))
    assert 'value="postgresql://wh/dw"' in root.get("/connections?name=dw&organization=acme").text
    root.act("/connections/change", **fields | {"url": "postgresql://wh2/dw", "secret_name": "", "multi": "yes"})
    changed = store.connections.get("dw", organization="acme")
    assert (changed.url, changed.secret_name, changed.multi, changed.version) == ("postgresql://wh2/dw", None, True, 2)
    refused = root.act("/connections/change", **fields | {"url": "postgresql://u:hunter2@wh/dw"})
    assert refused.status_code == 422
    assert "hunter2" not in refused.text
    for_bob = people("bob").get("/connections").text
    assert "dw" in for_bob
    assert not any(words in for_bob for words in ("wh2", "etl", "/connections/test"))
    assert "Delete connection dw, and everybody" in unescape(root.post("/connections/delete", csrf=root.csrf, **fields).text)
    assert said(root.act("/connections/delete", name="dw", organization="acme")) == "Connection dw is deleted."
    assert store.connections.list() == []


# ---- roles -----------------------------------------------------------------------------------------------------------

MANAGERS_ONLY = [
    ("/templates/one/set", {"name": "echo", "max_running": "1"}),
    ("/templates/one/archive", {"name": "echo"}),
    ("/organizations/create", {"name": "new"}),
    ("/organizations/remove", {"name": "beta"}),
    ("/users/add", {"name": "new"}),
    ("/users/remove", {"name": "bob"}),
    ("/tokens", {"name": "new", "permit": "manage"}),
    ("/dead/discard", {}),
    ("/pauses", {"what": "pause", "kind": "all"}),
    ("/schedules/one/delete", {"name": "nightly"}),
]
ADMINS_TOO = [
    ("/schedules", {"name": "mine", "template": "echo", "every": "1h"}),
    ("/schedules/one/fire", {"name": "nightly"}),
    ("/schedules/one/disable", {"name": "nightly"}),
    ("/dead/retry", {}),
    ("/jobs/act", {"what": "retry"}),
    ("/jobs/rows", {"what": "retry", "row": "1"}),
    ("/schedules/rows", {"what": "pause", "row": "name=nightly"}),
    ("/queue/move", {"move": "1 front"}),
    ("/webhooks", {"url": "https://example.org/hook"}),
    ("/connections/create", {"name": "dw", "url": "sqlite:////x.db"}),
    ("/connections/delete", {"name": "dw"}),
]


def test_what_one_may_not_do_is_refused_in_the_gates_words_without_a_question(people):
    for user, refused in (("ada", MANAGERS_ONLY), ("bob", MANAGERS_ONLY + ADMINS_TOO)):
        browser = people(user)
        for path, fields in refused:
            answer = browser.post(path, csrf=browser.csrf, **fields)
            assert answer.status_code == 403, f"{user}: {path}"
            assert "may not" in unescape(answer.text)


def test_a_user_cancels_its_own_job_and_does_not_see_a_colleagues(store: Rota, people):
    own = store.acting_as("bob").enqueue("echo")
    colleagues = store.acting_as("ben").enqueue("echo")
    bob = people("bob")
    assert colleagues.number not in bob.get("/jobs").text
    assert bob.act(f"/jobs/{colleagues.id}/cancel").status_code == 404
    assert "is cancelled" in said(bob.act(f"/jobs/{own.id}/cancel"))
    text = bob.get(f"/jobs/{own.id}").text
    assert "Only admins can read logs." in text
    assert "/retry" not in text


def test_the_list_of_schedules_says_each_zone_once_and_what_a_pause_skips(store: Rota, root: Browser):
    store.schedule("nightly", "echo", cron="0 2 * * *", timezone="Europe/Berlin")
    listed = root.get("/schedules").text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert listed.count("Europe/Berlin") == 1
    assert "skips the one" not in listed
    store.schedules.pause("nightly")
    assert "skips the one" in root.get("/schedules").text


def test_the_list_of_schedules_shows_the_last_outcomes_as_marks_and_in_words(store: Rota, root: Browser, clock):
    store.schedule("good", "echo", every="1h")
    store.schedule("bad", "breaks", every="1h")
    for _ in range(11):
        clock.advance(hours=1)
        store.turn()
        store.turn()
    bad, good = root.get("/schedules").text.partition("<tbody>")[2].split("</tr>")[:2]
    assert good.count(">✓</span>") == 10
    assert good.count("completed,") == 9
    assert bad.count(">✗</span>") == 10
    assert bad.count("failed,") == 9


def test_what_waits_for_its_time_or_a_live_parent_is_not_stuck(store: Rota, root: Browser):
    parent = store.enqueue("echo", run_at=timedelta(hours=1))
    child = store.enqueue("echo", depends_on=[parent])

    def stuck() -> str:
        return root.get("/").text.partition('id="stuck"')[2].partition("</section>")[0]

    assert "no job waits longer than usual" in stuck()
    store.jobs.cancel(parent.id)
    assert child.number in stuck()


def test_the_health_box_says_each_sentence_once_and_links_to_its_remedy(store: Rota, root: Browser):
    store.enqueue("breaks")
    store.turn()
    health = root.get("/").text.partition('id="health"')[2].partition("</section>")[0]
    assert health.lower().count("1 job was dead-lettered in the last hour") == 1
    assert '<a href="/dead">See the dead letters</a>' in health
    assert "rota dead list" not in health


def test_a_job_names_what_it_waits_for_and_what_waits_for_it_near_the_top(store: Rota, root: Browser):
    parent = store.enqueue("echo", run_at=timedelta(hours=1))
    child = store.enqueue("echo", depends_on=[parent])
    page = root.get(f"/jobs/{child.id}").text
    around = page.partition('id="around"')[2].partition("</section>")[0]
    assert "<dt>Waits for</dt>" in around
    assert f'<a href="/jobs/{parent.id}">{parent.number}</a> echo <span class="chip is-pending">' in around
    assert page.index('id="around"') < page.index('id="chain"')
    assert f"waits for {parent.number}" not in page.partition('id="around"')[2], "it is said once"
    assert "<dt>Is awaited by</dt>" in root.get(f"/jobs/{parent.id}").text
    assert 'id="around"' not in root.get(f"/jobs/{store.enqueue('echo').id}").text


def test_the_owner_of_a_job_is_named_plainly(store: Rota, root: Browser):
    owner = root.get(f"/jobs/{store.enqueue('echo').id}").text.partition("<dt>Owner</dt>")[2].partition("</dd>")[0]
    assert owner == "<dd>local"
    group = store.group([("echo", {})], name="one")
    assert "in a group" in root.get(f"/jobs/{group.members[0].root_id}").text


def test_the_audit_trail_says_what_changed_and_leads_to_the_job(store: Rota, root: Browser):
    job = store.enqueue("echo", {"text": "old"}, run_at=timedelta(hours=1))
    store.acting_as("root").jobs.update(job.id, priority="high")
    row = unescape(root.get("/audit").text.partition("<tbody>")[2].partition("</tr>")[0])
    assert f'<a href="/jobs/{job.id}">job {job.id}</a>' in row
    assert re.search(r"priority:</span> <del>50</del> → <ins>75</ins>", row)
    assert "old" not in row, "what stayed as it was is left out"


def test_workers_show_their_last_beat_and_what_they_run(live: Rota):
    begun, go = threading.Event(), threading.Event()

    @live.job
    def slow() -> None:
        begun.set()
        go.wait(patient(20))

    live.users.create("root", role="system_manager")
    job = live.enqueue("slow")
    live.start(concurrency=3)
    assert begun.wait(patient(20))
    try:
        with browsing(live) as browser:
            row = browser("root").get("/workers").text.partition("<tbody>")[2].partition("</tr>")[0]
    finally:
        go.set()
    assert re.search(r'data-name="slots used">1 of 3', row)
    assert f'href="/jobs/{job.id}"' in row
    assert f"pid {os.getpid()}<" in row
    assert f"Rota {__version__}<" in row
    assert re.search(r">\d+ MiB<", row)
    assert re.search(r'data-name="last beat" class="nowrap">(just now|[^<]+ ago)<', row)


def test_the_organization_that_came_with_the_store_has_no_made_up_date(root: Browser):
    listed = root.get("/organizations").text
    assert "1970" not in listed
    assert "with the store" in listed


@pytest.mark.parametrize(
    "path", ["/organizations", "/users", "/tokens", "/webhooks", "/connections", "/schedules/new?template=echo", "/templates/one?name=echo"]
)
def test_forms_have_the_words_that_people_search_for(root: Browser, path):
    shown = root.get(path).text
    assert ">Create<" in shown or ">Save<" in shown
    assert not re.search(r"Make it|Make one|Change it|Whose word|Name for people", shown)
