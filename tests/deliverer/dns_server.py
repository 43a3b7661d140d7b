"""A name server on loopback, made with dnspython, that sets the AD bit as a validating resolver does for signed names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

TTL_S = 300


class NameServer(asyncio.DatagramProtocol):
    """``records`` maps "name TYPE" to texts; ``signed`` are domains whose names get AD; ``bogus`` "name TYPE" get SERVFAIL."""

    def __init__(
        self, records: dict[str, list[str]], *, signed: tuple[str, ...] = (), bogus: tuple[str, ...] = ()
    ) -> None:
        self.records = records
        self.signed = signed
        self.bogus = set(bogus)
        self.unsigned: tuple[str, ...] = ()  # names below these get no AD nevertheless
        self.asked: list[str] = []
        self.text = ""  # for ``nameservers``

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # uvloop's is of another class

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query, recursion_available=True)
        (question,) = query.question
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append(f"{name} {kind}")
        if f"{name} {kind}" in self.bogus:
            response.set_rcode(dns.rcode.SERVFAIL)
        else:
            secure = self._is_signed(name)
            while alias := self.records.get(f"{name} CNAME"):
                response.answer.append(dns.rrset.from_text(name + ".", TTL_S, "IN", "CNAME", *alias))
                name = alias[0].rstrip(".")
                secure = secure and self._is_signed(name)
            found = self.records.get(f"{name} {kind}")
            if found:
                response.answer.append(dns.rrset.from_text(name.rstrip(".") + ".", TTL_S, "IN", kind, *found))
            elif not any(key.split()[0] == name or key.split()[0].endswith("." + name) for key in self.records):
                response.set_rcode(dns.rcode.NXDOMAIN)
            if secure and query.flags & dns.flags.AD:
                response.flags |= dns.flags.AD
        self._transport.sendto(response.to_wire(), address)

    def _is_signed(self, name: str) -> bool:
        def is_below(domains: tuple[str, ...]) -> bool:
            return any(name == domain or name.endswith("." + domain) for domain in domains)

        return is_below(self.signed) and not is_below(self.unsigned)


@contextlib.asynccontextmanager
async def answering(server: NameServer, host: str = "127.0.0.1") -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=(host, 0))
    server.text = f"{host}:{transport.get_extra_info('sockname')[1]}"
    try:
        yield server
    finally:
        transport.close()
