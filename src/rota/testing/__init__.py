"""A kit for testing programs that use Rota: their own Rota, on a store that is thrown away, with a clock that is moved.

    from rota import testing

    with testing.use(app) as kit:
        sign_up("ada@example.org")                       # the program's own code, which enqueues on `app`
        kit.assert_enqueued("welcome", {"to": "ada@example.org"})
        kit.drain(raise_errors=True)                     # runs it, here, in this thread

`import rota` does not import this module.
"""

from __future__ import annotations

from rota.testing.context import Recorded, context
from rota.testing.kit import Clock, Kit, use

__all__ = ["Clock", "Kit", "Recorded", "context", "use"]
