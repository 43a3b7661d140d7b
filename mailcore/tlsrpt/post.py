"""Sends a report by HTTPS (RFC 8460 5.4): POST, the certificate checked, no redirect.

Law: any fault of the web server becomes a NotTaken after a bounded time and in bounded memory. An address that is not a public
one is refused: a record in the DNS of others must not make us talk to servers of our own network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Callable

from mailcore.frames import NextHop
from mailcore.routing.https_connection import connected, trusting
from mailcore.routing.mx import HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tlsrpt.record import Https

__all__ = ["NotTaken", "Post", "is_public"]

TIMEOUT_S = 60.0
LINE_BYTES_MAX = 1_000
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that IANA gives to networks; Teredo in it is not global
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 2.1
_SPECIAL = [ipaddress.IPv4Network(each) for each in ("192.0.0.0/24", "192.88.99.0/24")]  # RFC 6890, RFC 7526
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")


class NotTaken(Exception):
    """Says why a report was not sent."""


def is_public(address: str) -> bool:
    """Returns whether an address is one host of the internet, also after the translation of an IPv6 address into IPv4.

    Refused are the addresses that lead through a tunnel or translator of which the IPv4 address can't be judged: Teredo, and
    NAT64 with a local prefix (64:ff9b:1::/48, RFC 8215).
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is None:
            return found in _UNICAST and found.is_global
        found = inner
    return found.is_global and not found.is_multicast and not any(found in each for each in _SPECIAL)


class Post:
    """Sends. ``ca_file`` has CAs beside those of the system, "" for these alone; ``may_ask`` allows an address."""

    def __init__(self, finder: HostFinder, ca_file: str, may_ask: Callable[[str], bool] = is_public) -> None:
        self._finder = finder
        self._ca_file = ca_file
        self._may_ask = may_ask

    async def send(self, target: Https, content: bytes) -> None:
        """Raises NotTaken unless the server answers with 2xx."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._status(target, content)
        except TimeoutError:
            raise NotTaken(f"{target.host} did not answer in {TIMEOUT_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise NotTaken(f"the certificate of {target.host} is not valid: {error.verify_message}") from None
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise NotTaken(f"{target.host} can't be reached: {error}") from None
        if not 200 <= status < 300:
            raise NotTaken(f"{target.host} answered {status}")

    async def _status(self, target: Https, content: bytes) -> int:
        host, port, path = target
        addresses = await self._finder.find(NextHop(host, port, False))
        if isinstance(addresses, Refused):
            raise NotTaken(addresses.reply)
        allowed = [each for each in addresses if self._may_ask(each.address)]
        if not allowed:
            raise NotTaken(f"{host} has no public address")
        context = trusting(self._ca_file)
        reader, writer = await connected(allowed, host, port, context, TIMEOUT_S, LINE_BYTES_MAX)
        try:
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: {host if port == 443 else f'{host}:{port}'}\r\nUser-Agent: Waypost\r\n"
                f"Content-Type: application/tlsrpt+gzip\r\nContent-Length: {len(content)}\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
                + content
            )
            await writer.drain()
            found = _STATUS.match(await reader.readuntil(b"\n"))
            if found is None:
                raise NotTaken(f"{host} does not speak HTTP")
            return int(found[1])
        finally:
            writer.transport.abort()
