"""What travels between a worker and its handler processes: msgpack frames, each behind its length."""

from __future__ import annotations

import struct
from typing import Generic, TypeAlias, TypeVar, get_args

import msgspec

from rota.executors.locate import Address
from rota.model.decide import Failed, Outcome
from rota.model.settings import MIB, Settings
from rota.model.signals import Rules
from rota.model.values import Claimed, Instant
from rota.ports.executor import Receipt, Reply, Report, Request


class Program(msgspec.Struct):
    """The worker's own program: where it finds modules, how it was called, and where its main module is if a handler lives there.

    Names of files are bytes here: not every one is valid text.
    """

    path: list[bytes]
    argv: list[bytes]
    main_name: str | None = None
    main_path: bytes | None = None


class Init(msgspec.Struct, tag="init"):
    """First to a child: what it needs to find handlers and to run them."""

    settings: Settings
    log_dir: str | None
    program: Program
    modules: list[str]
    """To import before the first job."""
    store: str | None = None
    """The address of the worker's store."""
    app: Address | None = None
    """Where the program's Rota is, if it has middleware or hooks for handler processes."""


class Start(msgspec.Struct, tag="start"):
    """To a child: run this."""

    job: Claimed
    address: Address
    now: Instant
    """What the worker's clock shows: the handler's goes on from there."""
    rules: Rules | None = None
    """Which of its errors are tried again."""
    middleware: int = 0
    """How much middleware the worker has: it runs nowhere with less."""


class Find(msgspec.Struct, tag="find"):
    """To an idle child: import this, and say whether that works."""

    address: Address


class Stop(msgspec.Struct, tag="stop"):
    """To a child: raise Cancelled into this job, if it still runs."""

    number: int


class Lease(msgspec.Struct, tag="lease"):
    """To a child: run handlers until this monotonic moment, which all processes of a machine share; None: for ever."""

    until: float | None


class Kept(msgspec.Struct, tag="kept"):
    """To a child: the receipt for the checkpoint that it sent under this ticket."""

    ticket: int
    receipt: Receipt


class Replied(msgspec.Struct, tag="replied"):
    """To a child: the reply to the request that it sent under this ticket."""

    ticket: int
    reply: Reply


class Exit(msgspec.Struct, tag="exit"):
    """To an idle child: end."""


class Ready(msgspec.Struct, tag="ready"):
    """From a child: handlers are imported, jobs may come."""


class Found(msgspec.Struct, tag="found"):
    """From a child: whether it could import what it was asked to find; it is idle again."""

    address: Address
    error: str | None


class Started(msgspec.Struct, tag="started"):
    """From a child: the handler is about to be entered. Before this, its job can still be given to another."""

    number: int


class Lapsed(msgspec.Struct, tag="lapsed"):
    """From a child: its lease was not renewed, and it ends itself. Its last word."""


class Note(msgspec.Struct, tag="note"):
    """From a child: something its handler reports. A checkpoint has a ticket, under which the child waits for its receipt."""

    report: Report
    ticket: int | None = None


class Asked(msgspec.Struct, tag="asked"):
    """From a child: something its handler asks for. It waits for the reply under this ticket."""

    number: int
    request: Request
    ticket: int


class Done(msgspec.Struct, tag="done"):
    """From a child: the handler is over. `reached`: it was asked to stop before that."""

    number: int
    kind: str
    body: msgspec.Raw
    at: Instant
    seconds: float
    log_path: str | None
    reached: bool


ToChild: TypeAlias = Init | Start | Find | Stop | Lease | Kept | Replied | Exit
FromChild: TypeAlias = Ready | Found | Started | Lapsed | Note | Asked | Done
Message = TypeVar("Message")

FRAME_MAX = 128 * MIB
"""Above any job or outcome within its bounds: what claims to be longer is not ours."""
_LENGTH = struct.Struct("!I")
_encode = msgspec.msgpack.Encoder().encode
_outcomes: dict[str, msgspec.msgpack.Decoder[Outcome]] = {kind.__name__: msgspec.msgpack.Decoder(kind) for kind in get_args(Outcome)}


def frame(message: ToChild | FromChild) -> bytes:
    """Return a message as bytes to be sent."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def pack_outcome(outcome: Outcome) -> tuple[str, msgspec.Raw]:
    """Return an outcome as its kind and body: the union has no tags of its own. An exception does not travel: its text does."""
    if isinstance(outcome, Failed):
        outcome.exception = None
    return type(outcome).__name__, msgspec.Raw(_encode(outcome))


def unpack_outcome(done: Done) -> Outcome:
    """Return the outcome that a child sent."""
    return _outcomes[done.kind].decode(done.body)


class Frames(Generic[Message]):
    """Puts messages together again from whatever pieces arrive."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Message]) -> None:
        """Take the decoder for this direction."""
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now. Raise msgspec.MsgspecError if it is not messages that arrive."""
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._buffer, start)[0]
            if length > FRAME_MAX:
                raise msgspec.DecodeError(f"a frame of {length:,} bytes; the limit is {FRAME_MAX:,}")
            end = start + _LENGTH.size + length
            if end > len(self._buffer):
                break
            messages.append(self._decode(bytes(self._buffer[start + _LENGTH.size : end])))
            start = end
        del self._buffer[:start]
        return messages


def for_child() -> Frames[ToChild]:
    """Return a reader for the child's end."""
    return Frames(msgspec.msgpack.Decoder(ToChild))


def from_child() -> Frames[FromChild]:
    """Return a reader for the worker's end."""
    return Frames(msgspec.msgpack.Decoder(FromChild))
