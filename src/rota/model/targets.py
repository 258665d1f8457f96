"""Where a message may be sent: URLs as people give them, and addresses as the network knows them. Pure.

A name is looked up by whoever sends, and what it stands for may change from one moment to the next: so the address that is
connected to is asked about, not the name.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from rota.errors import InvalidOption

if TYPE_CHECKING:
    from rota.model.settings import Settings

URL_MAX = 2048
_HOST = re.compile(r"[^\s/?#@\\%<>\"`{}|^]+")
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""IPv4 as networks with IPv6 alone write it; the last 32 bits are the address."""
_UNICAST = IPv6Network("2000::/3")
"""All that the internet uses of IPv6: what lies outside is of a machine, of a site, or nobody's."""
_NEARBY = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
"""Addresses that look like others and are answered by the network one is in, or by a cloud's own machinery: not every Python knows."""


def target_of(url: object, settings: Settings) -> str:
    """Return the URL of a webhook, or refuse it, by what the settings allow."""
    return check_url(url, private=settings.webhook_private == "allow", plain_http=settings.webhook_http == "allow")


def check_url(given: object, *, private: bool, plain_http: bool, what: str = "the URL of a webhook") -> str:
    """Return a URL that messages may be sent to, or refuse it, saying what it was to be. What a name stands for is not asked here."""
    if not isinstance(given, str) or not given or len(given) > URL_MAX:
        raise InvalidOption(f"{str(given)[:60]!r} is not {what}: give https://… of at most {URL_MAX:,} characters")
    if not given.isascii() or not given.isprintable() or " " in given:
        raise InvalidOption(f"{given[:60]!r} is not {what}: write what is not ASCII as %XX, and a host's name as xn--…")
    parts = _split(given, what)
    if parts.scheme not in {"https", "http"}:
        raise InvalidOption(f"{given[:60]!r} is not {what}: it begins with https://")
    if parts.scheme == "http" and not plain_http:
        raise InvalidOption(
            f"{_shown(parts)}: http:// is refused, for everybody on the way can read it: give https://, or set webhook_http"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(f"{_shown(parts)}: a URL with a user's name or password is refused: the signature shows who sends")
    if "#" in given:
        raise InvalidOption(f"{_shown(parts)}: what follows # is never sent: leave it out")
    if not private and _is_known_private(parts.hostname or ""):
        raise InvalidOption(f"{_shown(parts)} is a private address: give a public one, or set webhook_private")
    return given


def _split(given: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or port == 0 or not (_HOST.fullmatch(host) or ":" in host):
        raise InvalidOption(f"{given[:60]!r} is not {what}: give for example https://example.com/hooks")
    return parts


def _shown(parts: SplitResult) -> str:
    """Return the part of a URL that gives nothing away: paths are secrets, with some receivers."""
    return f"{parts.scheme}://{parts.hostname}"


def _is_known_private(host: str) -> bool:
    """Say whether a host can be seen to be private without looking it up."""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not is_public(str(ip_address(host)))
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Say whether an address is one of the internet: not this machine's, this network's, or one that carries such a one inside."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(map(_is_global, _within(found)))


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    known = address in _UNICAST if isinstance(address, IPv6Address) else not any(address in each for each in _NEARBY)
    return known and address.is_global and not address.is_multicast and not address.is_reserved


def _within(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return an address and those that it may be turned into on its way."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[IPv4Address | IPv6Address] = []
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside += address.teredo
    if address in _TRANSLATED:
        # Not reserved as such: what counts is the address that is meant.
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, *inside]
