"""Templates and pauses: each change advances the version that every turn and enqueue looks at."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.errors import ChangedMeanwhile, InvalidOption, TemplateInUse, UnknownTemplate
from rota.model.definitions import Template, TemplateState
from rota.model.gate import Actor
from rota.model.templates import from_object
from rota.model.values import Held, Instant, moment
from rota.stores.verbs import limits
from rota.stores.verbs.db import Db
from rota.stores.verbs.verbs import audit

log = logging.getLogger("rota.store")

ADHOC_MAX = 1000
"""Types of jobs without a template, at most: each is one more that every worker asks for."""
ADHOC_LOOK = 10
"""How many of the oldest are looked at when one has to make room."""


def news(db: Db, present: Sequence[Template]) -> list[Template]:
    """Return those of which the store does not know what the code says."""
    known = {each.name: each for each in templates(db)}
    return [each for each in present if each.name not in known or known[each.name].broken or _said(each) != _said(known[each.name])]


def put_templates(db: Db, templates: Sequence[Template], actor: Actor, now: Instant) -> None:
    """Record what the code says, by name; templates of which it says the same change nothing."""
    changed = [template.name for template in templates if _put(db, template, actor, now)]
    for name in changed:
        try:
            with db.savepoint():
                _apply(db, name)
        except (*db.unwritable, *db.refused) as error:
            # What people said can't be read: other templates don't wait for it, and its own jobs do.
            log.error("what is said of template %s can't be shown to SQL: %s; `rota doctor` says more", name, error)  # noqa: TRY400 - it says all
    if changed:
        db.change("advance_definitions")


def set_template(
    db: Db,
    template: Template,
    actor: Actor,
    now: Instant,
    *,
    overrides: dict[str, object],
    unset: Sequence[str],
    version: int | None = None,
) -> Template:
    """Set and take back overrides, making the template if it is not there."""
    present = _find(db, template.name)
    _check_version(template.name, present, version)
    before = {} if present is None else present.overrides
    after = {name: value for name, value in (before | overrides).items() if name not in unset}
    if present is not None and present.broken is None and after == before:
        return present
    if present is None:
        _add(db, template, actor, now)
    elif present.broken is not None:
        log.warning(
            "template %s was set anew because %s; its row was: %s", template.name, present.broken, db.row("template", name=template.name)
        )
        _put(db, present, actor, now)
    db.change("set_overrides", name=template.name, overrides=_object(after), step=int(present is not None), now=now)
    _apply(db, template.name)
    db.change("advance_definitions")
    audit(db, actor, now, "template.set", ("template", template.name), before=None if present is None else before, after=after)
    return _there(db, template.name)


def set_template_state(db: Db, name: str, state: TemplateState, actor: Actor, now: Instant, *, version: int | None = None) -> Template:
    """Enable, disable or archive a template."""
    before = _there(db, name)
    _check_version(name, before, version)
    if not db.change("set_template_state", name=name, state=state, now=now):
        return before
    db.change("advance_definitions")
    audit(db, actor, now, "template.state", ("template", name), before={"state": before.state}, after={"state": state})
    return _there(db, name)


def look_for_jobs(db: Db, name: str) -> int:
    """Refuse a template that has jobs; return the newest job that was looked at. Long looks are made before a transaction, not in it."""
    template = _there(db, name)
    newest = int(db.value("newest_job"))
    if db.value("live_job_of_type", job_type=template.job_type):
        raise _in_use(name, "jobs that wait or run")
    if db.value("ended_job_of_type", job_type=template.job_type):
        raise _in_use(name, "jobs in its history")
    return newest


def drop_template(db: Db, name: str, actor: Actor, now: Instant, *, newest: int, version: int | None = None) -> None:
    """Remove a template that had no jobs up to the `newest`. Its row stays: what refers to it can still be read."""
    template = _there(db, name)
    _check_version(name, template, version)
    if db.value("newer_job_of_type", newest=newest, job_type=template.job_type):
        raise _in_use(name, "jobs that wait or run")
    if db.value("schedule_of_template", template_id=template.id):
        raise _in_use(name, "schedules")
    db.change("drop_template", name=name, now=now)
    db.change("advance_definitions")
    said = {"state": template.state, "defaults": template.defaults, "overrides": template.overrides}
    audit(db, actor, now, "template.drop", ("template", name), before=said)


def _check_version(name: str, present: Template | None, version: int | None) -> None:
    """Refuse a change of what the caller has not seen; 0 is the version of what is not there."""
    has = 0 if present is None else present.version
    if version is not None and version != has:
        raise ChangedMeanwhile(f"template {name!r}", has=has, given=version)


def templates(db: Db) -> list[Template]:
    """Return every template."""
    return [_template(row) for row in db.rows("templates")]


def has_adhoc_type(db: Db, job_type: str, handler: str) -> bool:
    """Say whether a type without a template has this handler. A template of that name wins: its handler would be called instead."""
    if _find(db, job_type) is not None:
        raise InvalidOption(f"{job_type!r} is a template: enqueue it by its name, or choose another job_type for {handler}")
    return bool(db.value("adhoc_type", job_type=job_type) == handler)


def put_adhoc_type(db: Db, job_type: str, handler: str, actor: Actor, now: Instant) -> None:
    """Record the handler of a type without a template; one that has no live job makes room if there are too many."""
    if has_adhoc_type(db, job_type, handler):
        return
    present = db.value("adhoc_type", job_type=job_type)
    if present is not None:
        raise InvalidOption(f"jobs of type {job_type!r} call {present}: choose another job_type for {handler}")
    if db.value("adhoc_count") >= ADHOC_MAX:
        _make_room(db, job_type)
    db.change("put_adhoc_type", job_type=job_type, handler=handler, actor=actor.name, now=now)
    db.change("advance_definitions")


def _make_room(db: Db, job_type: str) -> None:
    """Forget one of the oldest types that no live job has. Few are looked at: each look may walk all jobs that wait."""
    oldest = (row[0] for row in db.rows("oldest_adhoc_types", limit=ADHOC_LOOK))
    unused = next((each for each in oldest if not db.value("live_job_of_type", job_type=each)), None)
    if unused is None:
        raise InvalidOption(
            f"job_type={job_type!r} is one too many: at most {ADHOC_MAX:,} types of jobs have no template; use fewer, or a template"
        )
    db.change("drop_adhoc_type", job_type=unused)


def pause(db: Db, kind: str, name: str, actor: Actor, now: Instant) -> None:
    """Begin a pause; one that lasts already goes on."""
    if db.change("pause", kind=kind, name=name, actor=actor.name, now=now):
        db.change("advance_definitions")
        audit(db, actor, now, "pause", (kind, name), organization=name if kind == "organization" else msgspec.UNSET)


def resume(db: Db, kind: str, name: str, actor: Actor, now: Instant) -> None:
    """End a pause and give back what it parked."""
    if db.change("resume", kind=kind, name=name):
        limits.offer_again(db, f"{kind}:{name}")
        db.change("advance_definitions")
        audit(db, actor, now, "resume", (kind, name), organization=name if kind == "organization" else msgspec.UNSET)


def _put(db: Db, template: Template, actor: Actor, now: Instant) -> bool:
    values = {"template_id": template.id, "name": template.name, "job_type": template.job_type, "actor": actor.name, "now": now}
    return bool(db.change("put_template", defaults=_object(template.defaults), **values))


def _add(db: Db, template: Template, actor: Actor, now: Instant) -> None:
    values = {"template_id": template.id, "name": template.name, "job_type": template.job_type, "actor": actor.name, "now": now}
    db.change("add_template", state=template.state, defaults=_object(template.defaults), **values)


def _apply(db: Db, name: str) -> None:
    """Bring the columns that others read up to what is said now; rows that a changed limit had parked are offered again."""
    before = db.row("template_limits", name=name)
    db.change("show_what_is_said", name=name)
    after = db.row("template_limits", name=name)
    assert before is not None  # noqa: S101 - written in this transaction
    assert after is not None  # noqa: S101 - the same row
    if before[0] != after[0]:
        limits.offer_again(db, f"{Held.TEMPLATE_LIMIT}:{name}")
    if before[1:] != after[1:]:
        limits.offer_again(db, f"{Held.RATE_LIMIT}:{name}")


def _there(db: Db, name: str) -> Template:
    found = _find(db, name)
    if found is None:
        raise UnknownTemplate(f"there is no template {name!r}: `rota template list` shows them")
    return found


def _find(db: Db, name: str) -> Template | None:
    row = db.row("template", name=name)
    return None if row is None else _template(row)


def _template(row: tuple[Any, ...]) -> Template:
    """Build a Template. What can't be read of one is left out and named, so that it keeps no other from being used."""
    flaws: list[str] = []

    def read(name: str, text: str) -> dict[str, object]:
        try:
            value = msgspec.json.decode(text, type=dict[str, object])
            from_object(value)
        except ValueError:
            flaws.append(f"its {name} can't be read")
            return {}
        return value

    state = TemplateState.DISABLED
    try:
        state = TemplateState(row[3])
    except ValueError:
        flaws.append("its state can't be read")
    defaults, overrides = read("defaults", row[5]), read("overrides", row[6])
    return Template(
        id=row[0],
        name=row[1],
        job_type=row[2],
        state=state,
        version=row[4],
        defaults=defaults,
        overrides=overrides,
        created_at=moment(row[7]),
        updated_at=moment(row[8]),
        broken=", ".join(flaws) or None,
    )


def _said(template: Template) -> tuple[str, str]:
    return template.job_type, _object(template.defaults)


def _object(value: dict[str, object]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _in_use(name: str, what: str) -> TemplateInUse:
    return TemplateInUse(f"template {name!r} has {what} and can't be deleted: `rota template archive {name}` takes it out of use and sight")
