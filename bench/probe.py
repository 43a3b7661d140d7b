"""Messages that tell how long they took: each from the MAIL command of its client to its final dot at the next hop."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import aiosmtplib

from mailcore.lab.hop import Hop

__all__ = ["Delays", "Probe", "hand_over"]

SENDER = "probe@sender.example"
DATA = b"From: probe@sender.example\r\nSubject: how long\r\n\r\n" + b"0123456789abcdef\r\n" * 32
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds of some messages; those that did not arrive in time count as having taken until then."""

    seconds: tuple[float, ...]
    lost: int  # that did not arrive in time

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def worst(self) -> float:
        return max(self.seconds)

    def __str__(self) -> str:
        late = f", {self.lost} not there in time" if self.lost else ""
        return f"median {self.median * 1000:.1f} ms, worst {self.worst * 1000:.1f} ms of {len(self.seconds)}{late}"


async def hand_over(address: tuple[str, int], sender: str, recipients: list[str], data: bytes = DATA) -> None:
    """One message, acknowledged when this returns. Raises SMTPException."""
    host, port = address
    async with aiosmtplib.SMTP(hostname=host, port=port, local_hostname="client.example", start_tls=False) as client:
        await client.sendmail(sender, recipients, data)


class Probe:
    """Sends messages of one recipient at a pace, over one connection; ``hop`` is where they arrive."""

    def __init__(self, address: tuple[str, int], hop: Hop, domain: str) -> None:
        self._address = address
        self._hop = hop
        self._domain = domain
        self._numbers: Iterator[int] = itertools.count()

    async def run(self, count: int, pace_s: float, patience_s: float = PATIENCE_S) -> Delays:
        """``count`` messages, one each ``pace_s``; returns when the last has arrived, or nothing did for long."""
        begun: dict[str, float] = {}
        known = len(self._hop.messages)
        host, port = self._address
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with aiosmtplib.SMTP(
            hostname=host, port=port, local_hostname="client.example", start_tls=False
        ) as client:
            for number in range(count):
                await asyncio.sleep(start + number * pace_s - loop.time())
                recipient = f"p{next(self._numbers)}@{self._domain}"
                begun[recipient] = time.time()
                await client.sendmail(SENDER, [recipient], DATA)
        end = loop.time() + patience_s
        arrived: dict[str, float] = {}
        while len(arrived) < count and loop.time() < end:
            await asyncio.sleep(0.02)
            for arrival in self._hop.messages[known:]:
                if arrival.recipients[0] in begun:
                    arrived.setdefault(arrival.recipients[0], arrival.at)
            known = len(self._hop.messages)
        now = time.time()
        seconds = tuple(arrived.get(recipient, now) - at for recipient, at in begun.items())
        return Delays(seconds, count - len(arrived))
