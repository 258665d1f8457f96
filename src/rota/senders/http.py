"""Messages by HTTP: signed, to an address that was looked at, once, and never for longer than is allowed.

What a name stands for is looked up here and nowhere else, and the address that was looked at is the one that is connected to. No proxy,
no redirect, no cookie, and one connection for each message: nothing of one receiver is left for the next.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import httpcore2
import httpx2
from standardwebhooks import Webhook

from rota.errors import RotaError
from rota.model.settings import Settings
from rota.model.targets import is_public
from rota.model.webhooks import Sent
from rota.ports.sender import Message

ANSWER_MAX = 4096
"""Bytes of an answer that are read: its status is what counts."""
AGENT = "Rota-Webhooks"
PULSE_AGENT = "Rota-Pulse"
_ALLOW = "allow"
log = logging.getLogger("rota.webhooks")
OpenSecret = Callable[[str, str], str]


class Refused(Exception):  # noqa: N818 - a word between two functions of this module
    """The target is one that nothing is sent to."""


class HttpSender:
    """Implements `rota.ports.sender.Sender` and `Caller`."""

    def __init__(self, settings: Settings, *, trusted: bool = False, open_secret: OpenSecret | None = None) -> None:
        """Take what is allowed. Certificates are read once, when the first message asks for them.

        `open_secret` decrypts a secret of an owner, as the store keeps it; without it secrets are used as they are.
        `trusted`: what is called was set by the operator, who may name a machine of the own network, over http:// too.
        """
        self._timeout_s = settings.webhook_timeout
        self._private = trusted or settings.webhook_private == _ALLOW
        self._plain = trusted or settings.webhook_http == _ALLOW
        self._open_secret = open_secret
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def send(self, message: Message) -> Sent:
        """Send a message and say what came of it."""
        try:
            headers = self._signed(message)
        except RotaError as error:
            # The receiver's people may read this error: the path of a key file is not for them.
            log.warning("a webhook message can't be signed: %s", error)
            return Sent(error="its secret can't be opened by the worker, whose log says why")
        return self._sent("POST", message.url, headers, message.payload.encode())

    def call(self, url: str) -> Sent:
        """Ask for a URL and say what came of it."""
        return self._sent("GET", url, {"user-agent": PULSE_AGENT, "connection": "close"}, b"")

    def _sent(self, method: str, url: str, headers: dict[str, str], content: bytes) -> Sent:
        begun = time.monotonic()
        try:
            status = self._exchange(httpx2.Request(method, url, headers=headers, content=content or None), content, begun + self._timeout_s)
        except Exception as error:  # noqa: BLE001 - whatever a receiver provokes is its own failure
            return Sent(error=self._why(error), took_s=time.monotonic() - begun)
        return Sent(status=status, took_s=time.monotonic() - begun)

    def _exchange(self, request: httpx2.Request, content: bytes, deadline: float) -> int:
        if request.url.scheme == "http" and not self._plain:
            raise Refused("http:// is refused: give https://, or set webhook_http")
        with _Guarded(deadline, private=self._private) as network, self._pool(request.url.scheme, network) as pool:
            answer = pool.handle_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(
                        scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=content,
                    extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_s)},
                )
            )
            _read_a_little(answer)
            return int(answer.status)

    def _signed(self, message: Message) -> dict[str, str]:
        opened = message.secrets if self._open_secret is None else [self._open_secret(message.owner, each) for each in message.secrets]
        signatures = [Webhook(secret).sign(message.key, message.at, message.payload) for secret in opened]
        return {
            "content-type": "application/json",
            "user-agent": AGENT,
            "connection": "close",
            "webhook-id": message.key,
            "webhook-timestamp": str(int(message.at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }

    def _pool(self, scheme: str, network: httpcore2.NetworkBackend) -> httpcore2.ConnectionPool:
        tls = self._context() if scheme == "https" else None
        return httpcore2.ConnectionPool(ssl_context=tls, max_connections=1, max_keepalive_connections=0, network_backend=network)

    def _context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = httpx2.create_ssl_context()
            return self._tls

    def _why(self, error: Exception) -> str:
        """Return what is kept of a failure: neither a URL nor what the receiver said."""
        if isinstance(error, Refused):
            return str(error)
        if isinstance(error, _Late | httpcore2.TimeoutException):
            return f"no answer within {self._timeout_s:g} s"
        if isinstance(error, socket.gaierror):
            return "the host's name could not be looked up"
        if isinstance(error, httpcore2.ConnectError):
            cause = error.__cause__ or error.__context__
            return "its certificate is not trusted" if isinstance(cause, ssl.SSLCertVerificationError) else "could not be connected to"
        if isinstance(error, httpcore2.NetworkError | httpcore2.RemoteProtocolError):
            return "the connection was closed before an answer came"
        return f"could not be sent: {type(error).__name__}"


class _Late(Exception):  # noqa: N818 - a word between two functions of this module
    """The time is over."""


class _Guarded(httpcore2.NetworkBackend):
    """Connects to addresses that are allowed, and ends a connection when its time is over, whatever it is doing.

    Timeouts of single reads would not do: a receiver that sends a byte now and then keeps each of them.
    """

    def __init__(self, deadline: float, *, private: bool) -> None:
        self._deadline = deadline
        self._private = private
        self._network = httpcore2.SyncBackend()
        self._timer: threading.Timer | None = None
        self._twin: socket.socket | None = None
        self._late = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._twin is not None:
            self._twin.close()
        if self._late and kind is not None:
            raise _Late

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first address that can be."""
        failed: Exception = _Late()
        for address in self._addresses(host, port):
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise _Late
            try:
                stream = self._network.connect_tcp(address, port, min(left_s, timeout or left_s), local_address, socket_options)
            except httpcore2.ConnectError as error:
                failed = error
                continue
            self._watch(stream.get_extra_info("socket"))
            return stream
        raise failed

    def _addresses(self, host: str, port: int) -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        allowed = [address for address in addresses if self._private or is_public(address)]
        if not allowed:
            raise Refused(f"{host} is at a private address: give a public one, or set webhook_private")
        return allowed

    def _watch(self, connection: socket.socket) -> None:
        # A twin of the descriptor: TLS takes the connection out of the socket we know.
        self._twin = twin = connection.dup()

        def end() -> None:
            self._late = True
            with suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

        self._timer = threading.Timer(max(0.0, self._deadline - time.monotonic()), end)
        self._timer.daemon = True
        self._timer.start()


def _read_a_little(answer: httpcore2.Response) -> None:
    """Read the beginning of an answer, so that the receiver is not cut short, and close it; what it says does not matter."""
    seen = 0
    try:
        with suppress(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
            for part in answer.iter_stream():
                seen += len(part)
                if seen >= ANSWER_MAX:
                    return
    finally:
        with suppress(Exception):
            answer.close()
