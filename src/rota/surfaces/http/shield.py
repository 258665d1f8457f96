"""What stands before the app: only names of our own are served, every answer is told to be strict, and no surprise gets out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.surfaces.http.problems import OWN, problem, surprise

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise itself."""
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
ANY = "*"
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
"""An address in brackets, which is checked on its own, or a name or address without; then a port (RFC 3986, section 3.2)."""


class Hosts:
    """The names under which an app may be asked for.

    A page of a stranger whose name is made to lead here (DNS rebinding) comes with the stranger's name: that is refused. An address in
    digits can't be made to lead elsewhere, so all of them are good.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Take names beside `localhost`; `*` lets every name in."""
        self._names = {name.strip().lower().rstrip(".") for name in names} - {""} | {"localhost"}

    def holds(self, header: str) -> bool:
        """Say whether a Host header names us."""
        name = _name_of(header)
        return ANY in self._names or name in self._names or name.endswith(".localhost") or _is_address(name)


class Shield:
    """The outermost part of the app."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts | None) -> None:
        """Take the names that are served; None: any."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with our headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def strict(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _RAW if each[0] not in given)]
            await send(message)

        malformed = _malformed_host(scope)
        if malformed is not None:
            code = HTTPStatus.BAD_REQUEST
            detail = f"{malformed[:100]!r} is not a valid Host header: send a name or an address, and a port if it is not the usual one"
            await problem(code, OWN[code], detail, headers={"Connection": "close"})(scope, receive, strict)
            return
        wrong = None if self._hosts is None else _wrong_host(scope, self._hosts)
        if wrong is not None:
            code = HTTPStatus.MISDIRECTED_REQUEST
            detail = f"{wrong[:100]!r} is no name of this server: name it in the setting http_hosts, or use the address that is printed"
            await problem(code, OWN[code], detail)(scope, receive, strict)
            return
        try:
            await self._app(scope, receive, strict)
        except Exception as error:
            answer = surprise(scope["method"], scope["path"], error)
            if begun:
                # The connection is closed: half an answer must not look like a whole one.
                raise
            await answer(scope, receive, strict)


def _malformed_host(scope: Scope) -> str | None:
    """Return the Host header of a request if it is neither a name nor an address, with or without a port."""
    for name, value in scope["headers"]:
        if name == b"host":
            given: str = value.decode("latin-1").strip()
            found = _HOST.fullmatch(given)
            if found is None or (found[1] is not None and not _is_address(found[1])):
                return given
    return None


def _wrong_host(scope: Scope, hosts: Hosts) -> str | None:
    """Return the name that a request is for, if it is none of ours. One without any comes from no browser."""
    for name, value in scope["headers"]:
        if name == b"host":
            given: str = value.decode("latin-1")
            if not hosts.holds(given):
                return given
    return None


def _name_of(header: str) -> str:
    """Return the name in a Host header, without its port."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0].rstrip(".") if text.count(":") == 1 else text.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
