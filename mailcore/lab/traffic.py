"""Gentle mixed mail, as a small company sends it: single letters, a few to several people, newsletters, some big ones.

Messages a second and messages at once are bounded. While the server is away or refuses mail, it waits and tries again with
other mail. Everything is made up from a seed.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import aiosmtplib

__all__ = ["Letter", "Traffic"]

UNDER_WAY_MAX = 8
PAUSE_S = 2.0  # after the server did not take one
WAVE_S = 600.0  # the rate swings by a third in this time, so that lines are not straight
LINE = "The quick brown fox jumps over the lazy dog, and comes back to say so again.\r\n"
SENDERS = (
    "anna@shop.example",
    "billing@shop.example",
    "ben@works.example",
    "carla@works.example",
    "alerts@machine.example",
)
PEOPLE = (
    "ada",
    "bela",
    "chen",
    "dora",
    "emil",
    "fatima",
    "georg",
    "hana",
    "ivan",
    "judit",
    "karl",
    "lena",
    "mei",
    "nils",
)
SUBJECTS = (
    "Your order",
    "Minutes of Monday",
    "Invoice",
    "Re: the drawings",
    "Backup finished",
    "Lunch?",
    "Delivery note",
)
WEIGHTS = {
    "swift.example": 30,
    "steady.example": 20,
    "drowsy.example": 6,
    "narrow.example": 8,
    "greylisted.example": 6,
    "picky.example": 5,
    "overloaded.example": 2,
    "fragile.example": 4,
    "sometimes.example": 6,
    "hostile.example": 1,
}
BULK = ("readers.example", "members.example")
HOSTILE_SUBJECT = "<img src=x onerror=alert(1)> \u202eevil\u202c =cmd()"
HOSTILE_SENDER = '"<i>odd</i>"@shop.example'
HOSTILE_RECIPIENT = '"<script>x()</script>"@hostile.example'
HOSTILE_HELO = "<b>.example"


@dataclass(frozen=True, slots=True)
class Letter:
    """One message to send."""

    sender: str
    recipients: tuple[str, ...]
    data: bytes
    helo: str = "client.demo.example"


class Traffic:
    """Sends made-up mail at an average rate until it is cancelled."""

    def __init__(self, address: tuple[str, int], *, rate: float = 4.0, seed: int = 0) -> None:
        """``rate``: messages a second, on the average."""
        self.rate = rate
        self.sent = 0
        self._address = address
        self._chance = random.Random(seed)  # noqa: S311 - made-up mail, no secret
        self._room = asyncio.Semaphore(UNDER_WAY_MAX)
        self._number = 0

    async def run(self) -> None:
        """Sends mail until it is cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                now = self.rate * (1 + math.sin(loop.time() * math.tau / WAVE_S) / 3)
                await asyncio.sleep(self._chance.expovariate(now))
                await self._room.acquire()
                group.create_task(self._send(self.letter()))

    async def _send(self, letter: Letter) -> None:
        host, port = self._address
        try:
            async with aiosmtplib.SMTP(hostname=host, port=port, local_hostname=letter.helo, timeout=60) as client:
                await client.sendmail(letter.sender, list(letter.recipients), letter.data, mail_options=["SMTPUTF8"])
            self.sent += 1
        except (aiosmtplib.SMTPException, OSError):
            await asyncio.sleep(PAUSE_S)
        finally:
            self._room.release()

    # -- what is sent

    def letter(self) -> Letter:
        """Returns the next message; the seed decides which."""
        self._number += 1
        chance = self._chance.random()
        if chance < 0.015:
            return self._letter("newsletter@shop.example", self._readers(), "Our news", lines=60)
        if chance < 0.03:
            return self._letter(self._one(SENDERS), self._people(1), "The drawings, all of them", lines=15_000)
        if chance < 0.04:
            letter = self._letter(HOSTILE_SENDER, [HOSTILE_RECIPIENT], HOSTILE_SUBJECT)
            return Letter(letter.sender, letter.recipients, letter.data, HOSTILE_HELO)
        if chance < 0.2:
            return self._letter(
                self._one(SENDERS), self._people(self._chance.randint(2, 8)), self._one(SUBJECTS), lines=40
            )
        return self._letter(
            self._one(SENDERS), self._people(1), self._one(SUBJECTS), lines=self._chance.randint(3, 200)
        )

    def _one(self, these: Sequence[str]) -> str:
        return self._chance.choice(these)

    def _people(self, count: int) -> list[str]:
        domains = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
        return list(dict.fromkeys(f"{self._one(PEOPLE)}@{domain}" for domain in domains))

    def _readers(self) -> list[str]:
        count = self._chance.randint(20, 120)
        return [f"reader{self._chance.randint(1, 99_999)}@{self._one(BULK)}" for _ in range(count)]

    def _letter(self, sender: str, recipients: list[str], subject: str, lines: int = 10) -> Letter:
        to = recipients[0] if len(recipients) < 20 else "undisclosed-recipients:;"
        message_id = f"{self._number}.{self._chance.getrandbits(48):x}@demo.example"
        head = f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\nMessage-ID: <{message_id}>\r\n"
        return Letter(sender, tuple(recipients), (head + "MIME-Version: 1.0\r\n\r\n" + LINE * lines).encode())
