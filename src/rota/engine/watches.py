"""What a worker does beside its turns, each on a thread of its own: the look for overdue due times, and the pulse."""

from __future__ import annotations

from rota.engine.outside_pulse import OutsidePulse, Turning
from rota.engine.overdue_watch import OverdueWatch
from rota.engine.parts import Parts
from rota.engine.ticker import Ticker


def tickers_of(worker: Turning, parts: Parts) -> list[Ticker]:
    """Return the tickers of a worker; its driver starts and stops them."""
    store, registry, clock, settings = parts.store, parts.registry, parts.clock, parts.settings
    watch = OverdueWatch(store, registry, clock=clock, settings=settings)
    tickers = [Ticker(watch.look, every_s=watch.every_s, name="overdue")]
    if parts.caller is not None:
        pulse = OutsidePulse(worker, parts.caller, store, registry, clock=clock, settings=settings)
        tickers.append(Ticker(pulse.send, every_s=settings.pulse_every, name="pulse"))
    return tickers
