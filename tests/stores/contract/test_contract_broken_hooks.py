"""Webhooks whose rows are damaged: jobs end all the same, other webhooks get their messages, and `rota doctor` names the broken one."""

from __future__ import annotations

import logging

import pytest

from rota.errors import InvalidOption
from rota.model.decide import Failed
from rota.model.webhooks import Event, WebhookState
from rota.ports.hooks import EndpointChange
from rota.stores.verbs import webhooks
from tests.stores.contract.test_contract_broken import look
from tests.stores.contract.test_contract_hooks import hook, take
from tests.stores.desk import ANNA

DAMAGES = {
    "events that are not a list": ("events = '{}'", "its events can't be read"),
    "job types that are not names": ("job_types = '[1]'", "its job_types can't be read"),
    "a URL that can't be taken apart": ("url = 'http://['", "its url can't be read"),
}


@pytest.mark.parametrize(("change", "why"), DAMAGES.values(), ids=DAMAGES)
def test_a_webhook_that_can_not_be_read_is_skipped_and_named_and_disabled_by_repair(maker, desk, caplog, change, why):
    hook(desk, "https://good.example/x")
    bad = hook(desk, "https://bad.example/x")
    given = f"x'{bad}'" if maker.name == "sqlite" else f"'{bad}'"
    maker.damage(f"UPDATE endpoints SET {change} WHERE endpoint_id = {given}")
    webhooks.log_skipped.cache_clear()
    first, second = desk.several(2)
    with caplog.at_level(logging.ERROR, logger="rota.store"):
        desk.done(desk.claim_one())
        desk.end(desk.claim_one(), Failed("x", permanent=True))
    assert [desk.status(first), desk.status(second)] == ["COMPLETED", "DEAD_LETTER"]
    assert [parcel.url for parcel in take(desk)] == ["https://good.example/x"] * 2
    (logged,) = [record.getMessage() for record in caplog.records]
    assert f"{why}. `rota repair` disables it" in logged

    shown = {each.url: each for each in desk.store.endpoints()}
    assert shown.pop("https://good.example/x").state is WebhookState.ENABLED
    (broken,) = shown.values()
    assert (broken.state, broken.reason) == (WebhookState.DISABLED, f"broken row: {why}")
    (problem,) = look(desk)
    assert why in problem.text
    assert broken.id in problem.text
    (done,) = desk.store.fix(now=desk.now)
    assert broken.id in done.text
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []

    with pytest.raises(InvalidOption, match="pass url, events and job_types"):
        desk.store.change_endpoint(bad, EndpointChange(state=WebhookState.ENABLED), version=None, actor=ANNA, now=desk.now)
    whole = EndpointChange(url="https://bad.example/y", events=(Event.COMPLETED,), job_types=("t",), state=WebhookState.ENABLED)
    changed = desk.store.change_endpoint(bad, whole, version=None, actor=ANNA, now=desk.now)
    assert (changed.state, changed.reason, changed.events) == (WebhookState.ENABLED, None, (Event.COMPLETED,))


def test_an_event_that_this_version_does_not_know_is_shown_and_the_others_are_told(maker, desk):
    hook(desk)
    maker.damage("""UPDATE endpoints SET events = '["run.exploded", "run.completed"]'""")
    (shown,) = desk.store.endpoints()
    assert (shown.state, shown.events) == (WebhookState.ENABLED, ("run.exploded", "run.completed"))
    desk.add()
    desk.done(desk.claim_one())
    assert len(take(desk)) == 1
    assert look(desk) == []
