"""Imported for its effect: no program of these tests outlives them. The kernel kills it, whatever it is doing."""

import os
import signal

HARD_S = float(os.environ.get("ROTA_TEST_HARD_S", "60"))
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, HARD_S)
