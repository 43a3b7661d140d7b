"""The name of a client's address: its PTR record, if that name leads back to the address (as Postfix's smtpd_peer.c).

Laws
- A name is used only if one of its A or AAAA records is the address: anyone may write any name into their own PTR.
- Who asks does not wait. Look-ups are bounded in number, answers are kept for their TTL in bounded memory, and one look-up
  serves all that want the same address.

Keeps law: reverse-name-verified (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
from collections.abc import Awaitable, Callable

__all__ = ["Lookup", "ReverseNames"]

# Returns the records of a name as text, how many seconds they hold, and whether the look-up failed.
Lookup = Callable[[str, str], Awaitable[tuple[list[str], float, bool]]]
Named = Callable[[str, str], None]  # gets the address and its name, "" if it is unknown

ENTRIES_MAX = 10_000  # addresses remembered, about 300 bytes each
LOOKUPS_MAX = 100  # at once; further addresses stay unknown, so that no flood of clients becomes one of questions
NAMES_MAX = 3  # PTR records of one address that are verified; most addresses have one
TTL_S_MAX = 3600.0
NAME_MAX = 255  # RFC 1035 2.3.4
LOOPBACK = "localhost"  # RFC 6761 6.3: needs no look-up
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_HOST = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}")  # a name of digits only looks like an address


class ReverseNames:
    """The names of client addresses. ``clock`` is monotonic seconds."""

    def __init__(self, lookup: Lookup, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._lookup = lookup
        self._loop = loop
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}  # until when, the name
        self._wanted: dict[str, list[Named]] = {}  # by address: who wants the answer of the look-up under way
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, address: str, named: Named) -> None:
        """Calls ``named`` once: now if the name is known or cannot be looked up, else when the answer has come."""
        known = self._known.get(address)
        if known is not None and known[0] > self._clock():
            named(address, known[1])
        elif (waiting := self._wanted.get(address)) is not None:
            waiting.append(named)
        else:
            try:
                parsed = ipaddress.ip_address(address)
            except ValueError:
                named(address, "")
                return
            if parsed.is_loopback or len(self._wanted) >= LOOKUPS_MAX:
                named(address, LOOPBACK if parsed.is_loopback else "")
                return
            self._wanted[address] = [named]
            task = self._loop.create_task(self._ask(parsed))
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._answered, address))

    async def _ask(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        pointers, ttl_s, _ = await self._lookup(address.reverse_pointer, "PTR")
        found = ""
        for pointer in pointers[:NAMES_MAX]:
            name = pointer.lower().removesuffix(".")
            if len(name) > NAME_MAX or not _HOST.fullmatch(name):
                continue
            addresses, forward_ttl_s, _ = await self._lookup(name, "A" if address.version == 4 else "AAAA")
            ttl_s = min(ttl_s, forward_ttl_s)
            if any(_is_same(each, address) for each in addresses):
                found = name
                break
        while len(self._known) >= ENTRIES_MAX:
            del self._known[next(iter(self._known))]  # the one remembered first
        self._known.pop(str(address), None)
        self._known[str(address)] = self._clock() + min(ttl_s, TTL_S_MAX), found

    def _answered(self, address: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None
        name = "" if failed else self._known.get(address, (0.0, ""))[1]
        for named in self._wanted.pop(address):
            named(address, name)

    def close(self) -> None:
        """Ends the look-ups, for tests."""
        for task in self._tasks:
            task.cancel()


def _is_same(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(text) == address
    except ValueError:
        return False
