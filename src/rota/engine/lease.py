"""What a worker knows of its own lease: when the store last acknowledged a beat, counted from when that beat was sent.

        sent                guard            end             lease_ttl
    ──────●──────────────────┼────────────────┼─────────────────┼────►   on this worker's monotonic clock
          │  runs handlers   │  stops them    │  has ended,     │  others, who saw the beat at `sent` or later,
          │                  │                │  if need be     │  take over

Nobody's clock is compared with anybody else's: an observer counts `lease_ttl` from when it first saw the beat, which can't
have been before it was sent.
"""

from __future__ import annotations

from rota.model.settings import Settings
from rota.ports.clock import Clock


class Renewal:
    """The lease of one worker, as far as it knows. Written by whoever sends beats, read by any thread."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        """Take the measures; the lease begins with the first `begin`."""
        self._clock = clock
        self.guard_s = settings.guard_s
        self.end_s = (settings.guard_s + settings.lease_ttl) / 2
        """When at the latest every handler is gone, this process with it if need be: as far from the guard as from the others' turn."""
        self.every_s = min(settings.beat, settings.guard_s / 3)
        """How often to beat: two may be lost before it is serious."""
        self.watched = False
        """There are, or were, workers that can tell only by our beat whether we live: those of other machines."""
        self.lost = False
        """Others have given us up."""
        self._sent = self._since = clock.monotonic()

    def begin(self, sent: float) -> None:
        """Begin a lease: the worker was registered, by what was sent then."""
        self._sent = self._since = sent
        self.lost = False

    def acknowledged(self, sent: float) -> None:
        """Take the store's word for a beat that was sent then."""
        if sent - self._sent > self.guard_s:
            self._since = sent
        self._sent = max(self._sent, sent)

    @property
    def left_s(self) -> float:
        """Return how long handlers may still run; 0 or less: no longer."""
        return self._sent + self.guard_s - self._clock.monotonic()

    @property
    def end_at(self) -> float:
        """Return the monotonic moment at which every handler has to be gone."""
        return self._sent + self.end_s

    @property
    def steady_s(self) -> float:
        """Return for how long our own beats have been acknowledged in time: who is cut off itself can't judge others."""
        return self._clock.monotonic() - self._since if self.left_s > 0 else 0.0
