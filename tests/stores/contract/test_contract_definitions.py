"""Templates, pauses, and the version that every change to them advances."""

from rota.model.values import Template
from rota.ports.store import Choice
from tests.stores.desk import ANNA


def template(desk, name="t", **fields):
    values = {"id": desk.id(), "name": name, "job_type": name, "state": "ENABLED", "version": 0, "defaults": {"priority": 50}}
    return Template(**(values | fields))


def put(desk, *templates):
    desk.store.put_templates(templates, actor=ANNA, now=desk.now)


def test_templates_are_made_by_name_and_read_in_order(desk):
    b, a = template(desk, "b"), template(desk, "a", defaults={"priority": 75, "queue_ttl": None})
    put(desk, b, a)
    found = desk.store.templates()
    assert [each.name for each in found] == ["a", "b"]
    assert (found[0].id, found[0].defaults, found[0].state, found[0].version) == (a.id, {"priority": 75, "queue_ttl": None}, "ENABLED", 1)


def test_a_template_that_is_the_same_changes_nothing(desk):
    put(desk, template(desk))
    before = desk.store.templates(), desk.store.definitions()
    put(desk, template(desk))
    assert (desk.store.templates(), desk.store.definitions()) == before


def test_a_template_that_differs_keeps_its_id_and_gets_a_new_version(desk):
    put(desk, template(desk))
    (old,) = desk.store.templates()
    version = desk.store.definitions()
    put(desk, template(desk, defaults={"priority": 99}))
    (new,) = desk.store.templates()
    assert (new.id, new.version, new.defaults) == (old.id, old.version + 1, {"priority": 99})
    assert desk.store.definitions() == version + 1


def test_every_change_to_templates_or_pauses_advances_the_version_once(desk):
    versions = [desk.store.definitions()]
    for change in (
        lambda: put(desk, template(desk, "a"), template(desk, "b")),
        lambda: desk.store.pause("template", "a", actor=ANNA, now=desk.now),
        lambda: desk.store.resume("template", "a", actor=ANNA, now=desk.now),
    ):
        change()
        versions.append(desk.store.definitions())
    assert versions == [versions[0] + step for step in range(4)]


def test_a_job_keeps_its_own_policy_whatever_becomes_of_its_template(desk):
    put(desk, template(desk, defaults={"max_retries": 3}))
    job_id = desk.add(max_retries=3)
    put(desk, template(desk, defaults={"max_retries": 0}))
    assert desk.job(job_id).max_retries == 3


# ---- pauses ----------------------------------------------------------------------------------------------------------


def test_pauses_are_kept_and_ended_by_kind_and_name(desk):
    store = desk.store
    store.pause("template", "t", actor=ANNA, now=desk.now)
    store.pause("organization", "acme", actor=ANNA, now=desk.now)
    store.pause("all", "", actor=ANNA, now=desk.now)
    assert store.pauses() == [("all", ""), ("organization", "acme"), ("template", "t")]
    store.resume("organization", "acme", actor=ANNA, now=desk.now)
    assert store.pauses() == [("all", ""), ("template", "t")]


def test_pausing_or_resuming_again_changes_nothing_more(desk, maker):
    store = desk.store
    for verb in (store.pause, store.resume):
        verb("template", "t", actor=ANNA, now=desk.now)
        before = store.definitions(), store.pauses(), maker.audit()
        verb("template", "t", actor=ANNA, now=desk.now)
        assert (store.definitions(), store.pauses(), maker.audit()) == before


def test_pauses_are_audited(desk, maker):
    desk.store.pause("organization", "acme", actor=ANNA, now=desk.now)
    desk.store.resume("organization", "acme", actor=ANNA, now=desk.now)
    assert [(entry["action"], entry["subject"], entry["subject_id"], entry["actor"]) for entry in maker.audit()] == [
        ("pause", "organization", "acme", "anna"),
        ("resume", "organization", "acme", "anna"),
    ]


def test_what_a_pause_parked_comes_back_in_its_old_place_and_only_that(desk):
    a1, b1, a2, b2 = (desk.add(organization_id=name) for name in ("a", "b", "a", "b"))
    order = desk.order()

    def park(word, ids):
        def chooser(candidates, _):
            return Choice(take=[], park=[(job.number, word) for job in candidates if job.job_id in ids])

        desk.store.pause("organization", word.removeprefix("organization:"), actor=ANNA, now=desk.now)
        desk.claim(9, choose=chooser)

    park("organization:a", {a1, a2})
    park("organization:b", {b1})
    assert desk.order() == order
    assert desk.store.ahead(b2) == 0
    assert [job.job_id for job in desk.claim(9, choose=lambda jobs, _: Choice(take=[], park=[]))] == []
    desk.store.resume("organization", "a", actor=ANNA, now=desk.now)
    assert [desk.job(each).held for each in (a1, a2, b1, b2)] == [None, None, "organization:b", None]
    assert [job.job_id for job in desk.claim(9)] == [each for each in order if each != b1]


def test_a_parked_job_can_be_cancelled_moved_and_changed_like_any_queued_one(desk):
    first, second = desk.several(2)
    desk.claim(2, choose=lambda jobs, _: Choice(take=[], park=[(job.number, "organization:default") for job in jobs]))
    desk.store.move(second, actor=ANNA, now=desk.now, front=True)
    assert desk.order() == [second, first]
    desk.store.change(first, actor=ANNA, now=desk.now, priority=75)
    assert desk.order() == [first, second]
    desk.store.cancel(first, actor=ANNA, now=desk.now)
    assert desk.order() == [second]
