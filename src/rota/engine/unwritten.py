"""Reports of handlers that no turn has written yet, and the handlers that wait for it."""

from __future__ import annotations

from rota.engine.sink import Inbox, newest
from rota.ports.executor import Answer, Receipt, Report
from rota.ports.turns import Turned


class UnwrittenReports:
    """What handlers have reported since the last turn. Belongs to the worker's thread."""

    def __init__(self) -> None:
        """Start with nothing reported."""
        self.reports: list[Report] = []
        self._unanswered: list[tuple[int, Answer]] = []
        """Checkpoints among these, by the number of their job: their handlers wait."""

    def take(self, inbox: Inbox) -> None:
        """Take over what has arrived."""
        came = inbox.take_reports()
        for report, answer in inbox.take_checkpoints():
            came.append(report)
            self._unanswered.append((report.number, answer))
        if came:
            self.reports = newest(self.reports + came)

    def written(self, turned: Turned) -> None:
        """Forget what a turn has written, and let the handlers continue whose checkpoints are committed."""
        self.reports, unanswered, self._unanswered = [], self._unanswered, []
        for number, answer in unanswered:
            answer(turned.unkept.get(number, Receipt.WRITTEN))

    def refuse(self) -> None:
        """Tell every handler that still waits that its checkpoint is not written."""
        for _, answer in self._unanswered:
            answer(Receipt.REFUSED)
