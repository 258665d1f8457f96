"""The stage of a simulation: a folder that is thrown away, a store in it that has the definitions, and a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rota.engine.registry import Registry
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.clock import UuidV7
from rota.simulation.clock import SimulatedClock
from rota.simulation.definitions import Definitions, write
from rota.simulation.executor import Manners
from rota.simulation.run import Deed, Order, Simulation, settings_for
from rota.simulation.store import ThrowAway
from rota.simulation.telling import Simulated, tell


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
        simulation = Simulation(
            self.path,
            self._order,
            registry=registry,
            clock=self.clock,
            ids=self.ids,
            settings=self.settings,
            manners=Manners(self._figures, self._order.seed, failures=self._order.failures, remaining=remaining or {}),
        )
        simulation.run(progress, deeds, longer)
        return simulation

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


@contextmanager
def stage(said: Definitions, order: Order, settings: Settings, *, folder: Path | None = None) -> Iterator[Stage]:
    """Set up a stage for the time of a block, in a folder of its own unless one is given."""
    with TemporaryDirectory(prefix="rota-simulation-") as temporary:
        made = Stage((folder or Path(temporary)) / "simulated.db", said, order, settings)
        try:
            yield made
        finally:
            made.close()
