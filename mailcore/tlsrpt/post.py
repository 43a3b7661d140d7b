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
from mailcore.routing.mx import HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tlsrpt.record import Https

__all__ = ["NotTaken", "Post", "is_public"]

TIMEOUT_S = 60.0
ADDRESSES_MAX = 3
LINE_BYTES_MAX = 1_000
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")


class NotTaken(Exception):
    """Says why a report was not sent."""


def is_public(address: str) -> bool:
    """Returns whether an address is one of the internet."""
    return ipaddress.ip_address(address).is_global


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
        context = ssl.create_default_context()
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        error: OSError | None = None
        for address in allowed[:ADDRESSES_MAX]:
            try:
                reader, writer = await asyncio.open_connection(
                    address.address, port, ssl=context, server_hostname=host, limit=LINE_BYTES_MAX
                )
            except ssl.SSLError:
                raise
            except OSError as failed:
                error = failed
                continue
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
        raise error or OSError("no address")
