"""What those who watch ask of a store: what is new, what runs, what ended, how many there are."""

from rota.model.decide import Failed
from rota.model.definitions import Organization
from rota.model.gate import Scope
from rota.model.values import SECOND
from rota.ports.events import ProgressNow, Span
from rota.ports.executor import Report
from tests.stores.desk import ANNA


def everything(desk):
    return [Span(1, desk.store.marks().number)]


def test_marks_of_an_empty_store_are_where_it_begins(store):
    marks = store.marks()
    assert (marks.number, marks.audit_id) == (0, 0)
    assert marks.definitions == store.definitions()


def test_a_new_job_moves_the_mark_to_its_number(desk):
    desk.several(3)
    assert desk.store.marks().number == 3


def test_new_jobs_are_read_by_their_numbers_and_no_more_than_asked_for(desk):
    ids = desk.several(5, owner="ada")
    found = desk.store.made_in([Span(4, 4), Span(1, 2)], limit=10)
    assert [job.job_id for job in found] == [ids[0], ids[1], ids[3]]
    assert [job.number for job in found] == [1, 2, 4]
    assert found[0].owner == "ada"
    assert len(desk.store.made_in(everything(desk), limit=2)) == 2
    assert desk.store.made_in([], limit=10) == []


def test_a_job_is_shown_as_it_stands(desk):
    job_id = desk.add("mail", priority=70)
    (waiting,) = desk.store.made_in(everything(desk), limit=10)
    assert (waiting.job_id, waiting.root_id, waiting.status, waiting.job_type, waiting.priority) == (job_id, job_id, "QUEUED", "mail", 70)
    assert (waiting.attempt, waiting.root_number, waiting.organization) == (1, 1, "default")
    assert (waiting.started_at, waiting.finished_at) == (None, None)
    desk.advance(1)
    job = desk.claim_one(types=("mail",))
    desk.advance(2)
    desk.done(job)
    (ended,) = desk.store.jobs_now([job.number])
    assert (ended.status, ended.started_at, ended.finished_at) == ("COMPLETED", desk.now - 2 * SECOND, desk.now)


def test_a_further_attempt_has_a_number_of_its_own_and_names_its_chains(desk):
    root = desk.add()
    desk.run_to(Failed("no"))
    first, second = desk.store.made_in(everything(desk), limit=10)
    assert (first.status, first.error_type) == ("FAILED", "transient")
    assert (second.root_id, second.root_number, second.attempt, second.number) == (root, 1, 2, 2)


def test_what_runs_is_told_with_its_progress(desk):
    desk.several(3)
    first, second = desk.claim(2)
    desk.turn(reports=[Report(first.number, progress=40, message="half way, nearly")])
    found = {each.number: each for each in desk.store.progress_now(limit=10)}
    assert found == {first.number: ProgressNow(first.number, 40, "half way, nearly"), second.number: ProgressNow(second.number, None, None)}
    assert len(desk.store.progress_now(limit=1)) == 1


def test_what_ended_is_found_by_its_moment_type_by_type(desk):
    desk.add("a"), desk.add("b"), desk.add("a")
    one, two, three = sorted(desk.claim(3, types=("a", "b")), key=lambda job: job.number)
    desk.done(one)
    desk.advance(10)
    desk.done(two, three)
    assert sorted(map(sorted, desk.store.ended_since(desk.now, limit=10))) == [[two.number], [three.number]]
    since = desk.store.ended_since(desk.now - 10 * SECOND, limit=10)
    assert sorted(since) == [[two.number], [three.number, one.number]]
    assert [3] in desk.store.ended_since(0, limit=1)
    assert desk.store.ended_since(desk.now + 1, limit=10) == []


def test_jobs_that_are_gone_are_left_out(desk):
    desk.add()
    desk.done(desk.claim_one())
    assert [job.number for job in desk.store.jobs_now([1, 2, 99])] == [1]


def test_changes_of_definitions_are_read_in_their_order_and_changes_of_jobs_are_not(desk):
    job_id = desk.add()
    desk.store.change(job_id, actor=ANNA, now=desk.now, priority=10)
    desk.store.pause("all", "", actor=ANNA, now=desk.now)
    desk.store.put_organization(Organization(name="acme", display_name="Acme"), actor=ANNA, now=desk.now)
    found = desk.store.definition_changes(after=0, limit=10)
    assert [(each.action, each.subject, each.name) for each in found] == [
        ("pause", "all", ""),
        ("organization.create", "organization", "acme"),
    ]
    assert found[1].organization == "acme"
    assert desk.store.definition_changes(after=found[0].audit_id, limit=10) == found[1:]
    assert desk.store.definition_changes(after=0, limit=1) == found[:1]
    assert desk.store.marks().audit_id == found[1].audit_id


def test_jobs_are_counted_by_state_of_one_organization_or_of_all(desk):
    desk.several(2)
    desk.add(organization_id="acme")
    desk.add(organization_id="acme", delay=60)
    desk.done(*desk.claim(2))
    counts, own = desk.store.counts(), desk.store.counts(scope=Scope("acme"))
    assert counts == desk.store.stats(now=desk.now).by_status
    assert own == desk.store.stats(now=desk.now, scope=Scope("acme")).by_status
    assert (own["QUEUED"] + own["COMPLETED"], own["PENDING"]) == (1, 1)
