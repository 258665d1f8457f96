"""Templates, what handlers take, lanes and pauses: each change advances the version that every turn and enqueue looks at."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.errors import ChangedMeanwhile, InvalidOption, Refused, TemplateInUse, UnknownTemplate
from rota.model.definitions import Template, TemplateState
from rota.model.gate import Actor
from rota.model.lanes import DEFAULT_QUEUE, JobLane, NewestParams, ParamNames, QueueInfo, Takes
from rota.model.schedules import IN_WORDS, JobKind
from rota.model.templates import from_object
from rota.model.values import Held, Instant, NewRow, moment
from rota.stores.verbs import limits
from rota.stores.verbs.db import Db, audit
from rota.stores.verbs.reads import workers

log = logging.getLogger("rota.store")

ADHOC_MAX = 1000
"""Types of jobs without a template, at most: each is one more that every worker asks for."""
ADHOC_LOOK = 10
"""How many of the oldest are looked at when one has to make room."""
HEADS = 50
"""How many at the front of each lane are looked at for the longest wait."""
DEFINITIONS = (1 << 40) - 1
"""The bits of the version that count changes of definitions; those above count lanes."""
STRAY_TYPES_MAX = 100
LINES_MAX = 5000
"""Lanes, by priority, whose ready jobs are counted."""
_names = msgspec.json.Decoder(ParamNames)


def news(db: Db, present: Sequence[Template]) -> list[Template]:
    """Return those of which the store does not know what the code says."""
    known = {each.name: each for each in templates(db)}
    return [each for each in present if each.name not in known or known[each.name].broken or _said(each) != _said(known[each.name])]


def put_templates(db: Db, templates: Sequence[Template], actor: Actor, now: Instant) -> None:
    """Record what the code says, by name; templates of which it says the same change nothing."""
    for template in templates:
        present = _find(db, template.name)
        if present is not None and present.kind is not JobKind.PYTHON:
            raise Refused(
                f"template {template.name!r} is {IN_WORDS[present.kind]}, and this process has a function of that name: "
                "name the function otherwise (@rota.job(name=…)), or delete the template"
            )
    changed = [template.name for template in templates if _put(db, "put_template", template, actor, now)]
    for name in changed:
        try:
            with db.savepoint(("template", name)):
                _apply(db, name)
        except (*db.unwritable, *db.refused) as error:
            # What people said can't be read: other templates don't wait for it, and its own jobs do.
            log.error("what is said of template %s can't be shown to SQL: %s; `rota doctor` says more", name, error)  # noqa: TRY400 - it says all
    if changed:
        db.change("advance_definitions")


def set_template(
    db: Db,
    template: Template,
    *,
    actor: Actor,
    now: Instant,
    overrides: dict[str, object],
    unset: Sequence[str] = (),
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
        _put(db, "add_template", template, actor, now, state=template.state)
    elif present.broken is not None:
        log.warning(
            "template %s was set anew because %s; its row was: %s", template.name, present.broken, db.row("template", name=template.name)
        )
        _put(db, "put_template", present, actor, now)
    db.change("set_overrides", name=template.name, overrides=_object(after), step=int(present is not None), now=now)
    _apply(db, template.name)
    db.change("advance_definitions")
    audit(db, actor, now, "template.set", ("template", template.name), before=None if present is None else before, after=after)
    return _there(db, template.name)


def define_template(db: Db, template: Template, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
    """Create or change a template that is SQL or a command. If nothing of it changes, nor does its version."""
    present = _find(db, template.name)
    _check_version(template.name, present, version)
    if present is not None and present.kind is JobKind.PYTHON:
        raise Refused(f"template {template.name!r} is Python: choose another name, or delete that template first")
    if present is not None and (present.kind, present.body, present.defaults) == (template.kind, template.body, template.defaults):
        return present
    db.change(
        "define_template",
        template_id=template.id,
        name=template.name,
        kind=template.kind,
        job_type=template.job_type,
        body=template.body,
        defaults=_object(template.defaults),
        actor=actor.name,
        now=now,
    )
    _apply(db, template.name)
    defined = _there(db, template.name)
    # Of a template of its own, which belongs to no schedule.
    db.change("add_version", template_id=defined.id, schedule_id=defined.id, actor=actor.name, now=now)
    db.change("advance_definitions")
    before, after = (None if each is None else _definition(each) for each in (present, defined))
    audit(db, actor, now, "template.define", ("template", template.name), before=before, after=after)
    return defined


def _definition(template: Template) -> dict[str, object]:
    """Return what the audit trail keeps of a definition: not its text, which may have a secret in it."""
    return {"kind": template.kind, "version": template.version, **template.defaults}


def set_template_state(db: Db, name: str, state: TemplateState, *, actor: Actor, now: Instant, version: int | None = None) -> Template:
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
    if db.value("schedule_of_template", template_id=template.id, job_type=template.job_type):
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


def definitions(db: Db) -> int:
    """Return the version of the definitions."""
    return int(db.value("definitions_version"))


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


def adhoc_types(db: Db) -> dict[str, str]:
    """Return the types without a template, with their handlers."""
    return dict(db.rows("adhoc_types"))


def _make_room(db: Db, job_type: str) -> None:
    """Forget one of the oldest types that no live job has. Few are looked at: each look may walk all jobs that wait."""
    oldest = (row[0] for row in db.rows("oldest_adhoc_types", limit=ADHOC_LOOK))
    unused = next((each for each in oldest if not db.value("live_job_of_type", job_type=each)), None)
    if unused is None:
        raise InvalidOption(
            f"job_type={job_type!r} is one too many: at most {ADHOC_MAX:,} types of jobs have no template; use fewer, or a template"
        )
    db.change("drop_adhoc_type", job_type=unused)


def pause(db: Db, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
    """Begin a pause; one that lasts already goes on."""
    if db.change("pause", kind=kind, name=name, actor=actor.name, now=now):
        db.change("advance_definitions")
        audit(db, actor, now, "pause", (kind, name), organization=name if kind == "organization" else msgspec.UNSET)


def resume(db: Db, kind: str, name: str, *, actor: Actor, now: Instant) -> None:
    """End a pause and give back what it parked."""
    if db.change("resume", kind=kind, name=name):
        limits.offer_again(db, f"{kind}:{name}")
        db.change("advance_definitions")
        audit(db, actor, now, "resume", (kind, name), organization=name if kind == "organization" else msgspec.UNSET)


def pauses(db: Db) -> list[tuple[str, str]]:
    """Return what is paused."""
    return [(row[0], row[1]) for row in db.rows("pauses")]


def _put(db: Db, statement: str, template: Template, actor: Actor, now: Instant, /, **values: str) -> int:
    """Write a template by `put_template`, as the code has it, or by `add_template`, with a state."""
    values |= {"template_id": template.id, "name": template.name, "job_type": template.job_type, "actor": actor.name}
    return db.change(statement, defaults=_object(template.defaults), now=now, **values)


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
        kind=JobKind(row[9]),
        body=row[10],
        created_by=row[11],
        broken=", ".join(flaws) or None,
    )


def _said(template: Template) -> tuple[str, str]:
    return template.job_type, _object(template.defaults)


def _object(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _in_use(name: str, what: str) -> TemplateInUse:
    return TemplateInUse(f"template {name!r} has {what} and can't be deleted: `rota template archive {name}` takes it out of use and sight")


def stated_by(templates: Sequence[Template]) -> dict[str, Takes]:
    """Return what the handlers of templates take, by job type, where it is stated."""
    return {each.job_type: each.takes for each in templates if each.takes is not None}


def unrecorded(db: Db, stated: Mapping[str, Takes]) -> dict[str, Takes]:
    """Return those whose parameters the store does not know, or knows as older ones, or without the schema that is stated."""
    if not stated:
        return {}
    rows = db.rows("param_digests", with_schema=int(any(takes.schema is not None for takes in stated.values())))
    known = {(job_type, digest): (recorded_at, schema) for job_type, digest, recorded_at, schema in rows}
    newest: dict[str, tuple[Instant, str]] = {}
    for (job_type, digest), (recorded_at, _) in known.items():
        newest[job_type] = max(newest.get(job_type, (-1, "")), (recorded_at, digest))
    return {job_type: takes for job_type, takes in stated.items() if _is_news(job_type, takes, known, newest)}


def _is_news(
    job_type: str, takes: Takes, known: dict[tuple[str, str], tuple[Instant, str | None]], newest: dict[str, tuple[Instant, str]]
) -> bool:
    found = known.get((job_type, takes.digest))
    if found is None:
        return True
    return takes.schema is not None and (found[1] != takes.schema or newest[job_type][1] != takes.digest)


def record(db: Db, stated: Mapping[str, Takes], now: Instant) -> None:
    """Record what handlers take, by job type, and add the lane that their jobs will wait in."""
    for job_type, takes in stated.items():
        values = {"job_type": job_type, "digest": takes.digest, "schema": takes.schema, "now": now}
        if not db.change("add_param_digest", param_names=_object(takes.names), **values) and takes.schema is not None:
            db.change("set_param_schema", **values)
        find_lane(db, job_type, takes.queue, takes.digest)
    if any(takes.schema is not None for takes in stated.values()):
        # Those who enqueue without the code check by the newest schema, which they know as of a version.
        db.change("advance_definitions")


def lane_for(db: Db, number: int, takes: Takes, now: Instant) -> int:
    """Return the lane of a job's type and queue for these parameters, adding what is not there."""
    job_type, queue = db.rows("type_and_queue", number=number)[0]
    db.change("add_param_digest", job_type=job_type, digest=takes.digest, param_names=_object(takes.names), schema=takes.schema, now=now)
    return find_lane(db, job_type, queue, takes.digest)


def newest_params(db: Db, job_type: str) -> NewestParams | None:
    """Return what the handler takes that was recorded last."""
    row = db.row("newest_params", job_type=job_type)
    return None if row is None else NewestParams(row[0], _names.decode(row[1]), None if row[2] is None else msgspec.json.decode(row[2]))


def schemas_of_live_workers(db: Db, job_type: str) -> list[dict[str, Any] | None]:
    """Return the schemas of a type behind the digests that live workers announce; None among them: one is not recorded."""
    return [None if schema is None else msgspec.json.decode(schema) for (schema,) in db.rows("schemas_of_live_workers", job_type=job_type)]


def same_definitions(version: int, definitions: int) -> bool:
    """Say whether two versions are of the same definitions, whatever lanes have been added since.

    A job needs no lane that its caller knows, and a lane that the caller's own transaction has added is known to nobody else yet.
    """
    return (version ^ definitions) & DEFINITIONS == 0


def lane_of_row(db: Db, row: NewRow) -> int:
    """Return the lane of a new job. One that is not there yet is added, which advances the version of the definitions."""
    return row.lane or find_lane(db, row.job_type, row.queue, row.digest)


def find_lane(db: Db, job_type: str, queue: str, digest: str) -> int:
    """Return a lane, adding it if it is not there."""
    values = {"job_type": job_type, "queue": queue, "digest": digest}
    lane = db.value("lane_of", **values)
    if lane is None:
        db.change("add_lane", **values)
        lane = db.value("lane_of", **values)
    return int(lane)


def place_strays(db: Db) -> int:
    """Put live jobs without a lane, which a program of an earlier version has written, into the lane of their type. Return how many."""
    types = [job_type for (job_type,) in db.rows("stray_types", limit=STRAY_TYPES_MAX)]
    return sum(db.change("place_strays", job_type=each, lane=find_lane(db, each, DEFAULT_QUEUE, "")) for each in types)


def has_strays(db: Db) -> bool:
    """Say whether there are such jobs."""
    return bool(db.rows("stray_types", limit=1))


def lanes_of_types(db: Db, types: Sequence[str]) -> dict[int, str]:
    """Return every lane of these types."""
    return dict(db.rows("lanes_of_types", types=types)) if types else {}


def lanes(db: Db) -> list[JobLane]:
    """Return every lane."""
    return [
        JobLane(lane, job_type, queue, digest, None if names is None else _names.decode(names))
        for lane, job_type, queue, digest, names in db.rows("all_lanes")
    ]


class _Sum(msgspec.Struct):
    waiting: int = 0
    at_least: bool = False
    since: Instant | None = None
    running: int = 0

    def add(self, count: int, since: Instant | None, *, more: bool) -> None:
        self.waiting += count
        self.at_least = self.at_least or more
        self.since = since if self.since is None else self.since if since is None else min(self.since, since)


def queues(db: Db, *, look: int) -> list[QueueInfo]:
    """Return every queue that has or had jobs, is served by name, or is paused."""
    sums: dict[str, _Sum] = defaultdict(_Sum)
    names = {lane.id: lane.queue for lane in lanes(db)}
    for name in {DEFAULT_QUEUE, *names.values()}:
        sums[name]
    for _, _, queue, _, most, count, since in db.rows("ready_lanes", limit=LINES_MAX, look=look, few=HEADS):
        sums[queue].add(count, since, more=count >= most)
    _add_held(db, sums, names, look)
    for lane, count in db.rows("running_by_lane"):
        sums[names.get(lane, DEFAULT_QUEUE)].running += count
    serving = [worker for worker in workers(db) if worker.kind == "worker" and worker.ended_at is None and worker.stopping_at is None]
    paused = {name for kind, name in db.rows("pauses") if kind == "queue"}
    for name in {*paused, *(queue for worker in serving for queue in worker.queues or ())}:
        sums[name]
    return [
        QueueInfo(
            name=name,
            waiting=each.waiting,
            at_least=each.at_least,
            oldest=moment(each.since),
            running=each.running,
            workers=sum(worker.queues is None or name in worker.queues for worker in serving),
            paused=name in paused,
        )
        for name, each in sorted(sums.items())
    ]


def _add_held(db: Db, sums: dict[str, _Sum], names: Mapping[int, str], look: int) -> None:
    rows = db.rows("held_by_lane", look=look)
    more = sum(count for _, count, _ in rows) >= look
    for lane, count, since in rows:
        sums[names.get(lane, DEFAULT_QUEUE)].add(count, since, more=more)
