"""Templates, pauses, and the version that every change to them advances."""

import pytest

from rota.errors import InvalidOption, TemplateInUse, UnknownTemplate
from rota.model.decide import Completed
from rota.model.definitions import Template, TemplateState
from rota.ports.turns import Choice
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


def test_code_that_speaks_again_leaves_state_and_overrides_as_they_are(desk):
    put(desk, template(desk))
    change(desk, priority=75)
    desk.store.set_template_state("t", TemplateState.DISABLED, actor=ANNA, now=desk.now)
    put(desk, template(desk, defaults={"priority": 10, "timeout": 5.0}))
    (found,) = desk.store.templates()
    assert (found.defaults, found.overrides, found.state) == ({"priority": 10, "timeout": 5.0}, {"priority": 75}, "DISABLED")


def test_every_change_to_templates_or_pauses_advances_the_version_once(desk):
    versions = [desk.store.definitions()]
    for verb in (
        lambda: put(desk, template(desk, "a"), template(desk, "b")),
        lambda: change(desk, "a", timeout=5.0, max_running=2),
        lambda: change(desk, "a", unset=("timeout", "max_running")),
        lambda: change(desk, "c", handler="shop:c"),
        lambda: desk.store.set_template_state("a", TemplateState.DISABLED, actor=ANNA, now=desk.now),
        lambda: desk.store.drop_template("c", actor=ANNA, now=desk.now),
        lambda: desk.store.pause("template", "a", actor=ANNA, now=desk.now),
        lambda: desk.store.resume("template", "a", actor=ANNA, now=desk.now),
    ):
        verb()
        versions.append(desk.store.definitions())
    assert versions == [versions[0] + step for step in range(9)]


def test_a_type_without_a_template_keeps_its_handler_and_advances_the_version_once(desk):
    def record(job_type, handler):
        desk.store.put_adhoc_type(job_type, handler, actor=ANNA, now=desk.now)

    version = desk.store.definitions()
    for _ in range(2):
        record("shop:tidy", "shop:tidy")
    record("tidying", "shop:tidy")
    assert desk.store.adhoc_types() == {"shop:tidy": "shop:tidy", "tidying": "shop:tidy"}
    assert desk.store.definitions() == version + 2
    put(desk, template(desk, "mail"))
    version = desk.store.definitions()
    for job_type, words in (("tidying", "call shop:tidy: choose another job_type"), ("mail", "'mail' is a template")):
        with pytest.raises(InvalidOption, match=words):
            record(job_type, "shop:other")
    assert desk.store.adhoc_types() == {"shop:tidy": "shop:tidy", "tidying": "shop:tidy"}
    assert desk.store.definitions() == version
    put(desk, template(desk, "tidying"))
    with pytest.raises(InvalidOption, match="'tidying' is a template"):
        record("tidying", "shop:tidy")


def test_a_job_keeps_its_own_policy_whatever_becomes_of_its_template(desk):
    put(desk, template(desk, defaults={"max_retries": 3}))
    job_id = desk.add(max_retries=3)
    put(desk, template(desk, defaults={"max_retries": 0}))
    assert desk.job(job_id).max_retries == 3


# ---- what people set -------------------------------------------------------------------------------------------------


def change(desk, name="t", *, unset=(), made=None, **overrides):
    return desk.store.set_template(
        made or template(desk, name, defaults={}), actor=ANNA, now=desk.now, overrides=overrides, unset=tuple(unset)
    )


def test_overrides_are_merged_field_by_field_and_taken_back_one_by_one(desk):
    put(desk, template(desk))
    change(desk, priority=75, timeout=5.0)
    change(desk, timeout=6.0, max_running=None)
    found = change(desk, unset=["priority"])
    assert (found.overrides, found.version) == ({"timeout": 6.0, "max_running": None}, 4)
    assert desk.store.templates() == [found]


def test_a_template_that_is_not_there_is_made_as_it_is_given(desk):
    made = template(desk, "new", defaults={"executor": "async"}, state=TemplateState.DISABLED)
    found = change(desk, made=made, handler="shop.jobs:new")
    assert (found.id, found.job_type, found.state, found.version) == (made.id, "new", "DISABLED", 1)
    assert (found.defaults, found.overrides) == ({"executor": "async"}, {"handler": "shop.jobs:new"})


def test_one_that_is_there_keeps_its_id_state_and_defaults_when_it_is_set(desk):
    put(desk, template(desk))
    (before,) = desk.store.templates()
    desk.advance(60)
    after = change(desk, made=template(desk, defaults={"priority": 1}, state=TemplateState.ARCHIVED), timeout=5.0)
    assert (after.id, after.state, after.defaults) == (before.id, "ENABLED", {"priority": 50})
    assert (after.created_at, after.updated_at > before.updated_at) == (before.created_at, True)


def test_setting_what_is_set_already_changes_nothing_more(desk, maker):
    change(desk, timeout=5.0)
    before = desk.store.templates(), desk.store.definitions(), maker.audit()
    desk.advance(60)
    change(desk, timeout=5.0)
    change(desk, unset=["priority"])
    assert (desk.store.templates(), desk.store.definitions(), maker.audit()) == before


def test_what_people_change_is_audited_with_what_was_before(desk, maker):
    change(desk, timeout=5.0)
    change(desk, timeout=6.0, priority=75)
    desk.store.set_template_state("t", TemplateState.ARCHIVED, actor=ANNA, now=desk.now)
    desk.store.drop_template("t", actor=ANNA, now=desk.now)
    told = [(entry["action"], entry["subject"], entry["subject_id"], entry["actor"]) for entry in maker.audit()]
    assert told == [(f"template.{verb}", "template", "t", "anna") for verb in ("set", "set", "state", "drop")]
    assert [(entry["before"], entry["after"]) for entry in maker.audit()] == [
        (None, {"timeout": 5.0}),
        ({"timeout": 5.0}, {"timeout": 6.0, "priority": 75}),
        ({"state": "ENABLED"}, {"state": "ARCHIVED"}),
        ({"state": "ARCHIVED", "defaults": {}, "overrides": {"timeout": 6.0, "priority": 75}}, None),
    ]


@pytest.mark.parametrize(
    ("word", "before", "after"),
    [
        ("template-limit:t", {"max_running": 1}, {"max_running": 2}),
        ("template-limit:t", {"max_running": 1}, {"max_running": None}),
        ("rate-limit:t", {"rate_limit": {"count": 1, "seconds": 60.0}}, {"rate_limit": {"count": 2, "seconds": 60.0}}),
        ("rate-limit:t", {"rate_limit": {"count": 1, "seconds": 60.0}}, {"rate_limit": {"count": 1, "seconds": 1.0}}),
    ],
)
@pytest.mark.parametrize("by", ["people", "code"])
def test_a_limit_that_changes_offers_again_what_it_had_parked(desk, word, before, after, by):
    def say(said):
        change(desk, **said) if by == "people" else put(desk, template(desk, defaults=said))

    say(before)
    job_id = desk.add()
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(job.number, word) for job in jobs]))
    change(desk, timeout=5.0)
    assert desk.job(job_id).held == word
    say(after)
    assert desk.job(job_id).held is None


def test_limits_stand_where_those_who_read_with_sql_look_for_them(desk, maker):
    put(desk, template(desk, defaults={"max_running": 5, "queue_ttl": 90.0, "display_name": "Tea", "concurrency": 3}))
    rate = {"rate_limit": {"count": 10, "seconds": 60.0}, "submit_limit": {"count": 100, "seconds": 0.5}}
    change(desk, max_running=None, payload_max=1000, dedup_window=0.0, requires_permission="brew", description="hot", **rate)
    assert maker.template_columns("t") == {
        "display_name": "Tea",
        "description": "hot",
        "requires_permission": "brew",
        "max_running": None,
        "concurrency": 3,
        "rate_limit": 10,
        "rate_window": 60_000_000,
        "submit_limit": 100,
        "submit_window": 500_000,
        "queue_ttl": 90_000_000,
        "payload_max": 1000,
        "dedup_window": 0,
        "default_params": "{}",
    }
    change(desk, unset=["max_running", "rate_limit"])
    columns = maker.template_columns("t")
    assert (columns["max_running"], columns["rate_limit"], columns["rate_window"]) == (5, None, None)


def test_default_params_stand_there_as_one_of_code_and_people_says_them_never_mixed(desk, maker):
    put(desk, template(desk, defaults={"default_params": {"a": 1, "b": {"c": 2}}}))
    assert maker.template_columns("t")["default_params"] == '{"a":1,"b":{"c":2}}'
    change(desk, default_params={"b": {"d": None}})
    assert maker.template_columns("t")["default_params"] == '{"b":{"d":null}}'
    change(desk, default_params=None)
    assert maker.template_columns("t")["default_params"] == "{}"
    change(desk, unset=["default_params"])
    assert maker.template_columns("t")["default_params"] == '{"a":1,"b":{"c":2}}'


# ---- state -----------------------------------------------------------------------------------------------------------


def test_a_state_is_set_once(desk, maker):
    put(desk, template(desk))
    found = desk.store.set_template_state("t", TemplateState.DISABLED, actor=ANNA, now=desk.now)
    assert (found.state, found.version) == ("DISABLED", 2)
    before = desk.store.templates(), desk.store.definitions(), maker.audit()
    assert desk.store.set_template_state("t", TemplateState.DISABLED, actor=ANNA, now=desk.now) == found
    assert (desk.store.templates(), desk.store.definitions(), maker.audit()) == before


def test_what_is_not_there_has_no_state_and_cannot_be_dropped(desk):
    for verb in (
        lambda: desk.store.set_template_state("nobody", TemplateState.DISABLED, actor=ANNA, now=desk.now),
        lambda: desk.store.drop_template("nobody", actor=ANNA, now=desk.now),
    ):
        with pytest.raises(UnknownTemplate, match="there is no template 'nobody'"):
            verb()


def test_waiting_jobs_of_a_disabled_or_archived_template_still_run(desk):
    put(desk, template(desk))
    job_id = desk.add()
    desk.store.set_template_state("t", TemplateState.ARCHIVED, actor=ANNA, now=desk.now)
    assert desk.claim_one().job_id == job_id


# ---- dropping --------------------------------------------------------------------------------------------------------


def test_a_template_without_jobs_can_be_dropped_and_made_anew(desk):
    put(desk, template(desk), template(desk, "other"))
    (_, before) = desk.store.templates()
    desk.add("other")
    desk.store.drop_template("t", actor=ANNA, now=desk.now)
    assert [each.name for each in desk.store.templates()] == ["other"]
    with pytest.raises(UnknownTemplate):
        desk.store.drop_template("t", actor=ANNA, now=desk.now)
    put(desk, template(desk))
    (_, after) = desk.store.templates()
    assert (after.version, after.overrides, after.id != before.id) == (1, {}, True)


def ready(desk):
    desk.add()


def parked(desk):
    desk.add()
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(job.number, "template-limit:t") for job in jobs]))


def due_later(desk):
    desk.add(delay=60)


def waiting_for_another(desk):
    desk.grouped([desk.row("first"), desk.row()])


def running(desk):
    desk.add()
    desk.claim_one()


def direct(desk):
    desk.reserve()


def ended(desk):
    desk.add()
    desk.run_to(Completed())


def cancelled(desk):
    desk.store.cancel(desk.add(), actor=ANNA, now=desk.now)


@pytest.mark.parametrize("job", [ready, parked, due_later, waiting_for_another, running, direct, ended, cancelled])
def test_a_template_with_a_job_of_any_kind_cannot_be_dropped(desk, job):
    put(desk, template(desk))
    job(desk)
    before = desk.store.templates(), desk.store.definitions()
    with pytest.raises(TemplateInUse, match="`rota template archive t`"):
        desk.store.drop_template("t", actor=ANNA, now=desk.now)
    assert (desk.store.templates(), desk.store.definitions()) == before


def test_a_template_of_a_schedule_cannot_be_dropped(desk, maker):
    put(desk, template(desk))
    maker.schedule(desk.store.templates()[0].id, desk.id())
    with pytest.raises(TemplateInUse, match="has schedules"):
        desk.store.drop_template("t", actor=ANNA, now=desk.now)


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
        def chooser(candidates, _, usage):
            return Choice(take=[], park=[(job.number, word) for job in candidates if job.job_id in ids])

        desk.store.pause("organization", word.removeprefix("organization:"), actor=ANNA, now=desk.now)
        desk.claim(9, choose=chooser)

    park("organization:a", {a1, a2})
    park("organization:b", {b1})
    assert desk.order() == order
    assert desk.store.ahead(b2) == 0
    assert [job.job_id for job in desk.claim(9, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[]))] == []
    desk.store.resume("organization", "a", actor=ANNA, now=desk.now)
    assert [desk.job(each).held for each in (a1, a2, b1, b2)] == [None, None, "organization:b", None]
    assert [job.job_id for job in desk.claim(9)] == [each for each in order if each != b1]


def test_a_parked_job_can_be_cancelled_moved_and_changed_like_any_queued_one(desk):
    first, second = desk.several(2)
    desk.claim(2, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(job.number, "organization:default") for job in jobs]))
    desk.store.move(second, actor=ANNA, now=desk.now, front=True)
    assert desk.order() == [second, first]
    desk.store.change(first, actor=ANNA, now=desk.now, priority=75)
    assert desk.order() == [first, second]
    desk.store.cancel(first, actor=ANNA, now=desk.now)
    assert desk.order() == [second]
