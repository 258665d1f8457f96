"""The output of one command: passed on as it comes, cut at a bound, and what the outcome needs of it.

Secrets are replaced before anything is cut: nobody would recognize a part of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from rota.model.redaction import Redactor
from rota.ports.runner import Control, Stream
from rota.runners.external.config import Limits

TAIL = 64 * 1024
"""Bytes of the end of the output that become the message."""
LINE_TAIL = 4 * 1024
"""Bytes of the end of stderr in which its last line is looked for."""


class Output:
    """Takes what a command writes. Used by one thread."""

    def __init__(self, control: Control, limits: Limits, *, result_max: int, secrets: Iterable[str] = ()) -> None:
        """Take where to pass it on to, and what must not be in what is shown."""
        self._control, self._limits, self._result_max = control, limits, result_max
        self._redactor = Redactor(secrets)
        self._redactors = {stream: self._redactor.another() for stream in Stream}
        self._shown = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._errors = bytearray()
        self.total = 0

    def take(self, stream: Stream, data: bytes) -> None:
        """Take a piece, pass on what is below the bound, and keep what the outcome needs."""
        self.total += len(data)
        self._take(stream, self._redactors[stream].feed(data))

    def _take(self, stream: Stream, data: bytes) -> None:
        room = max(0, self._limits.output_bytes - self._shown) if self._limits.output_bytes else len(data)
        self._shown += len(data)
        if kept := data[:room]:
            self._control.output(stream, kept)
            if stream is Stream.OUT:
                self._head += kept[: max(0, self._result_max - len(self._head))]
        _append(self._tail, data, TAIL)
        if stream is Stream.ERR:
            _append(self._errors, data, LINE_TAIL)

    @property
    def is_flood(self) -> bool:
        """Whether it is so much that the command is to be killed."""
        return 0 < self._limits.flood < self.total

    @property
    def dropped(self) -> int:
        """How many bytes were not passed on."""
        return max(0, self._shown - self._limits.output_bytes) if self._limits.output_bytes else 0

    def finish(self) -> None:
        """Pass on what could have been the beginning of a secret, and say in the log what was cut."""
        for stream, redactor in self._redactors.items():
            self._take(stream, redactor.flush())
        if self.dropped:
            self._control.output(Stream.ERR, f"\n[{self._cut()}]\n".encode())

    def result(self) -> str:
        """Return stdout as a JSON string that is no longer than a result may be."""
        text = self._text(self._head)
        encoded = json.dumps(text, ensure_ascii=False)
        while len(encoded.encode()) > self._result_max:
            # Quotes, and characters that JSON escapes, take more than they had.
            text = text[: len(text) - max(1, (len(encoded.encode()) - self._result_max) // 6)]
            encoded = json.dumps(text, ensure_ascii=False)
        return encoded

    def message(self) -> str:
        """Return the end of the output, and what was cut of it."""
        text = self._text(self._tail).strip("\n")
        return "\n".join(part for part in (text, f"[{self._cut()}]" if self.dropped else "") if part)

    def last_error_line(self) -> str:
        """Return the last line of stderr that is not blank; "" if there is none."""
        lines = [line.strip() for line in self._text(self._errors).splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def _text(self, data: bytearray) -> str:
        """Return it as a text that every store can keep, without secrets."""
        # Once more: a secret can come in two parts, by stdout and stderr.
        return self._redactor.text(data.decode("utf-8", "replace").replace("\0", "�"))

    def _cut(self) -> str:
        return f"{self.dropped:,} bytes of output were dropped: output_bytes is {self._limits.output_bytes:,}"


def _append(end: bytearray, data: bytes, most: int) -> None:
    end += data[-most:]
    if len(end) > most:
        del end[:-most]
