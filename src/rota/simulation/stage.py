"""The stage of a simulation: a folder that is thrown away, a store in it, and a clock.

The store has the definitions and figures of the one that is simulated, and none of its jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec

from rota.engine.registry import Registry
from rota.model.definitions import Organization, Template, User
from rota.model.figures import FIGURES_H, TypeStats
from rota.model.gate import EVERYTHING, SYSTEM, Scope
from rota.model.schedules import Calendar, CatchUp, Schedule
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.clock import UuidV7
from rota.ports.store import Store
from rota.simulation.executor import Manners, SimulatedClock
from rota.simulation.fleet import Gear
from rota.simulation.report import Simulated, tell
from rota.simulation.run import Deed, Order, Simulation, settings_for
from rota.simulation.store import ThrowAway


class Definitions(msgspec.Struct, kw_only=True):
    """The definitions of a store, as far as somebody may see them."""

    organizations: list[Organization] = msgspec.field(default_factory=list)
    users: list[User] = msgspec.field(default_factory=list)
    templates: list[Template] = msgspec.field(default_factory=list)
    pauses: list[tuple[str, str]] = msgspec.field(default_factory=list)
    calendars: list[tuple[str, Calendar]] = msgspec.field(default_factory=list)
    schedules: list[Schedule] = msgspec.field(default_factory=list)
    figures: tuple[TypeStats, ...] = ()
    behind: dict[str, Instant] = msgspec.field(default_factory=dict)
    """Schedules, by id, one of whose due times before the start is to be fired at the start, and up to which moment they were fired."""


def read(store: Store, now: Instant, scope: Scope = EVERYTHING) -> Definitions:
    """Read what a simulation needs, inside a scope."""
    mine = scope.organization
    return Definitions(
        organizations=[each for each in store.organizations() if mine in {None, each.name}],
        users=[each for each in store.users() if mine in {None, each.organization}],
        templates=store.templates(),
        pauses=[(kind, name) for kind, name in store.pauses() if kind != "organization" or mine in {None, name}],
        calendars=store.calendars(organization=mine),
        schedules=store.schedules(scope=scope),
        figures=store.stats(now=now, hours=FIGURES_H, scope=scope).by_type,
    )


def write(store: Store, said: Definitions, start: Instant) -> None:
    """Write definitions into an empty store. Schedules begin at `start`: what was due before is not made up for."""
    for organization in said.organizations:
        store.put_organization(organization, actor=SYSTEM, now=start)
    # Those who were removed after the others: somebody has to stay a manager.
    for user in sorted(said.users, key=lambda user: user.removed):
        store.put_user(msgspec.structs.replace(user, removed=False), actor=SYSTEM, now=start)
        if user.removed:
            store.remove_user(user.name, actor=SYSTEM, now=start)
    for organization in said.organizations:
        store.set_organization_state(organization.name, organization.state, actor=SYSTEM, now=start)
    store.put_templates(said.templates, actor=SYSTEM, now=start)
    for template in said.templates:
        if template.overrides:
            store.set_template(template, actor=SYSTEM, now=start, overrides=template.overrides)
    for kind, name in said.pauses:
        store.pause(kind, name, actor=SYSTEM, now=start)
    for organization_name, calendar in said.calendars:
        store.put_calendar(calendar, organization=organization_name, actor=SYSTEM, now=start)
    for schedule in _in_order(said.schedules):
        behind = said.behind.get(schedule.id)
        begun = msgspec.structs.replace(schedule, cursor_at=start if behind is None else behind)
        if behind is not None:
            # Nothing else is ever late in a simulation without faults, so these rules decide about that due time alone.
            begun = msgspec.structs.replace(begun, catch_up=CatchUp.LAST, catch_up_lateness=None)
        store.add_schedule(begun, actor=SYSTEM, now=start)
    # Last: a schedule that is in use stays so when its template is disabled, but is not made for one that is.
    for template in said.templates:
        store.set_template_state(template.name, template.state, actor=SYSTEM, now=start)


def _in_order(schedules: list[Schedule]) -> list[Schedule]:
    """Return schedules as they were made, which is how those that are due at once are fired, and each after those it depends on."""
    left = {(each.organization, each.name): each for each in sorted(schedules, key=lambda each: each.id)}
    placed: dict[tuple[str, str], Schedule] = {}

    def place(key: tuple[str, str]) -> None:
        schedule = left.pop(key, None)
        if schedule is None:
            return
        for name in schedule.depends_on:
            place((schedule.organization, name))
        placed[key] = schedule

    for key in list(left):
        place(key)
    return list(placed.values())


# ---- the stage ------------------------------------------------------------------------------------------------------


class Stage:
    """Everything is in place; `play` lives through it."""

    def __init__(self, path: Path, said: Definitions, order: Order, settings: Settings) -> None:
        """Make the store and write the definitions into it."""
        self.path = path
        self.settings = settings_for(settings)
        self.clock = SimulatedClock(order.start)
        self.ids = UuidV7(Random(f"{order.seed}:ids"))  # noqa: S311 - a story, no secret
        self._order = order
        self._figures = said.figures
        self.store = ThrowAway(path, self.settings)
        self.store.migrate(now=order.start)
        write(self.store, said, order.start)

    def play(
        self,
        registry: Registry | None = None,
        *,
        limit: int,
        progress: Callable[[Instant], object] | None = None,
        deeds: Sequence[Deed] = (),
    ) -> Simulated:
        """Live through it and tell, in at most `limit` lines.

        A registry brings what code says of templates; deeds are what people do meanwhile.
        """
        registry = registry or Registry(self.settings, self.ids)
        registry.sync(self.store, self._order.start)
        ids = [schedule.id for schedule in self.store.schedules()]
        return tell(self.store, self.live(registry, progress=progress, deeds=deeds), ids, limit=limit)

    def live(
        self,
        registry: Registry,
        *,
        progress: Callable[[Instant], object] | None = None,
        deeds: Sequence[Deed] = (),
        remaining: Mapping[str, Instant] | None = None,
        longer: Callable[[], bool] | None = None,
    ) -> Simulation:
        """Live through it, and on after the end while `longer` says so. `remaining` says how long some jobs still run, by their ids."""
        order = self._order
        gear = Gear(
            path=self.path,
            settings=self.settings,
            clock=self.clock,
            ids=self.ids,
            rng=Random(f"{order.seed}:engine"),  # noqa: S311 - a story, no secret
            registry=registry,
            manners=Manners(self._figures, order.seed, failures=order.failures, remaining=remaining or {}),
        )
        simulation = Simulation(order, gear)
        simulation.run(progress, deeds, longer)
        return simulation

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


@contextmanager
def stage(said: Definitions, order: Order, settings: Settings, *, folder: Path | None = None) -> Iterator[Stage]:
    """Set up a stage for the time of a block, in a folder of its own unless one is given."""
    with (
        TemporaryDirectory(prefix="rota-simulation-") as temporary,
        closing(Stage((folder or Path(temporary)) / "simulated.db", said, order, settings)) as made,
    ):
        yield made
