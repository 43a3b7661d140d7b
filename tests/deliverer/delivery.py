"""What the tests of the client share: an entry to deliver, a client with short time-outs, hosts that need no DNS."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from mailcore.config.client_auth import NO_LOGINS, ClientAuth
from mailcore.config.settings import Deliverer
from mailcore.deliverer.client import Client
from mailcore.deliverer.conversion import Conversion
from mailcore.deliverer.keyword_masks import KeywordMasks
from mailcore.deliverer.message_data import DataFiles, MessageData
from mailcore.deliverer.mta_sts import StsPolicies
from mailcore.deliverer.tls_counting import TlsCounting
from mailcore.envelope import Status
from mailcore.frames import Deliver, Delivered, NextHop
from mailcore.log.disk import Disk
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tls.ca_file import Complain, silent
from mailcore.tls.policy import Policies

BODY = b"Subject: test\r\n\r\nHello\r\n..dots are stuffed already\r\n"

# Long enough for a busy machine; where a test waits for a time-out it sets its own.
LIMITS = Deliverer(
    connect_timeout_s=10,
    greeting_timeout_s=10,
    command_timeout_s=10,
    data_timeout_s=10,
    final_timeout_s=10,
    connection_idle_s=10,
)


class FixedHosts(HostFinder):
    """Finds the addresses it was given, whatever is asked."""

    def __init__(self, *addresses: str, refused: Refused | None = None) -> None:
        super().__init__((), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: 0.0)
        self._fixed = refused or tuple(Address("mx.example.org", address) for address in addresses)
        self.asked = 0

    async def find(self, next_hop: NextHop, *, validated: bool = False) -> tuple[Address, ...] | Refused:
        self.asked += 1
        return self._fixed


class Sender:
    """A client, its files, and the message it sends."""

    def __init__(
        self,
        directory: Path,
        port: int,
        finder: HostFinder | None = None,
        limits: Deliverer = LIMITS,
        policies: Policies | None = None,
        auth: ClientAuth = NO_LOGINS,
        sts: StsPolicies | None = None,
        masks: KeywordMasks | None = None,
        conversion: Conversion | None = None,
        counting: TlsCounting | None = None,
        chunked: Collection[str] = (),
        lmtp: Collection[str] = (),
        complain: Complain = silent,
        **changes: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.directory = directory
        self.port = port
        self.finder = finder or FixedHosts("127.0.0.1")
        self.files = DataFiles(Disk(), loop)
        limits = replace(limits, **changes)  # type: ignore[arg-type]
        self.client = Client(
            limits,
            self.finder,
            "our.example.net",
            loop,
            policies=policies,
            auth=auth,
            sts=sts,
            masks=masks,
            conversion=conversion,
            counting=counting,
            chunked=chunked,
            lmtp=lmtp,
            complain=complain,
        )
        self._entries = 0

    def work(
        self,
        *recipients: str,
        sender: str = "from@example.net",
        body: bytes = BODY,
        tls: str = "may",
        eight_bit: bool = False,
        smtputf8: bool = False,
        host: str = "example.org",
        fallbacks: Sequence[NextHop] = (),
    ) -> Deliver:
        self._entries += 1
        path = self.directory / f"data.{self._entries}"
        path.write_bytes(b"before" + body + b"behind")
        return Deliver(
            entry=self._entries,
            queue_id=f"Q{self._entries}",
            transport="smtp",
            next_hop=NextHop(host, self.port, True),
            sender=sender,
            recipients=tuple(enumerate(recipients or ("to@example.org",))),
            path=str(path),
            offset=6,
            length=len(body),
            eight_bit=eight_bit,
            smtputf8=smtputf8,
            tls=tls,
            fallbacks=tuple(fallbacks),
        )

    def open(self, work: Deliver, sums: bytes = b"") -> MessageData:
        return self.files.open(work.path, work.offset, work.length, sums)

    def change(self, work: Deliver, at: int) -> None:
        """Changes one bit of one byte of the stored data."""
        content = bytearray(Path(work.path).read_bytes())
        content[work.offset + at] ^= 1
        Path(work.path).write_bytes(content)

    async def deliver(self, work: Deliver) -> Delivered:
        data = self.open(work)
        try:
            result, data_error = await self.client.deliver(work, data)
        finally:
            data.close()
        assert not data_error
        assert sorted(verdict.number for verdict in result.verdicts) == [number for number, _ in work.recipients]
        return result

    async def send(self, *recipients: str, **changes: object) -> Delivered:
        return await self.deliver(self.work(*recipients, **changes))  # type: ignore[arg-type]

    def close(self) -> None:
        self.client.close()
        self.files.close()


def outcomes(result: Delivered) -> list[tuple[str, str]]:
    """(status, dsn) by recipient."""
    return [
        (Status(verdict.status).name.lower(), verdict.dsn)
        for verdict in sorted(result.verdicts, key=lambda verdict: verdict.number)
    ]


def words(result: Delivered) -> str:
    """The words of the first recipient."""
    return min(result.verdicts, key=lambda verdict: verdict.number).reply
