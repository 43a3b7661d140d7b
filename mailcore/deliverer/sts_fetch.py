"""Fetches the policy of a domain over HTTPS, as RFC 8461 3.3 says: certificate checked, no redirect, 64 kB at most.

Law: any fault of the web server becomes a PolicyError after a bounded time and in bounded memory.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
from typing import Any, cast

from mailcore.deliverer.sts_policy import PolicyError
from mailcore.frames import NextHop
from mailcore.routing.https_connection import connected, trusting
from mailcore.routing.mx import HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tls.ca_file import CaFile, Complain, silent
from mailcore.tls_result import Result

__all__ = ["PolicyFetcher"]

POLICY_BYTES_MAX = 64 * 1024  # RFC 8461 3.3 allows this limit; a real policy has some hundred
RESPONSE_BYTES_MAX = 2 * POLICY_BYTES_MAX + 32 * 1024  # with its header fields, and in chunks
HTTPS_PORT = 443
NOT_FETCHED = Result.STS_POLICY_FETCH_ERROR


class PolicyFetcher:
    """Fetches policies. ``ca_file`` has CAs beside those of the system, "" for these alone."""

    def __init__(
        self, finder: HostFinder, ca_file: str, timeout_s: float, port: int = HTTPS_PORT, complain: Complain = silent
    ) -> None:
        self._finder = finder
        self._cas = CaFile(ca_file, trusting, complain)
        self._timeout_s = timeout_s
        self._port = port

    async def fetch(self, domain: str) -> str:
        """Returns the text of the policy of a domain. Raises PolicyError."""
        host = f"mta-sts.{domain}"
        try:
            async with asyncio.timeout(self._timeout_s):
                return _body(await self._get(host))
        except TimeoutError:
            raise PolicyError(f"https://{host} did not answer in {self._timeout_s:g} s", NOT_FETCHED) from None
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of https://{host} is not valid: {error.verify_message}"
            raise PolicyError(reason, Result.STS_WEBPKI_INVALID) from None
        except (OSError, ValueError) as error:
            raise PolicyError(f"https://{host} can't be reached: {error}", NOT_FETCHED) from None

    async def _get(self, host: str) -> bytes:
        addresses = await self._finder.find(NextHop(host, self._port, False))
        if isinstance(addresses, Refused):
            raise PolicyError(addresses.reply, NOT_FETCHED)
        reader, writer = await connected(addresses, host, self._port, self._cas.context(), self._timeout_s)
        try:
            writer.write(
                f"GET /.well-known/mta-sts.txt HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Waypost\r\n"
                "Accept: text/plain\r\nConnection: close\r\n\r\n".encode()
            )
            return await _read(reader)
        finally:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    received = b""
    while more := await reader.read(65_536):
        received += more
        if len(received) > RESPONSE_BYTES_MAX:
            raise PolicyError(f"the answer has more than {RESPONSE_BYTES_MAX} bytes")
    return received


class _Received:
    """A socket that has received all there is, which is what http.client asks for."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        """Returns the data as a file."""
        del mode
        return io.BytesIO(self._data)


def _body(received: bytes) -> str:
    """Returns the body of an answer to GET. Raises PolicyError."""
    response = http.client.HTTPResponse(cast(Any, _Received(received)), method="GET")
    try:
        response.begin()
        if response.status != 200:
            raise PolicyError(
                f"the web server answered {response.status}", NOT_FETCHED
            )  # a redirect must not be followed (3.3)
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if kind != "text/plain":
            raise PolicyError(f"the policy is not text/plain, but {kind[:100] or 'of no type'}")
        if response.getheader("Content-Encoding"):
            raise PolicyError("the policy is compressed")
        body = response.read(POLICY_BYTES_MAX + 1)
        if len(body) > POLICY_BYTES_MAX:
            raise PolicyError(f"the policy has more than {POLICY_BYTES_MAX} bytes")
        if response.length:
            raise PolicyError("the policy was cut off", NOT_FETCHED)
        return body.decode("utf-8")
    except (http.client.HTTPException, ValueError, OSError) as error:
        raise PolicyError(f"the web server's answer can't be read: {type(error).__name__}", NOT_FETCHED) from None
