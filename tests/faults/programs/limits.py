"""Imported for its effect: no program of these tests outlives them."""

import faulthandler

HARD_S = 58.0
faulthandler.dump_traceback_later(HARD_S, exit=True)
