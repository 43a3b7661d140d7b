"""A new ESMTP extension is one row: its parameters come from the client through the queue to the next hop and the bounce.

The row below is made up. Receiver, manager and deliverer are the real ones, in the test's process, so that the row can be
given to them; the manager is killed while the message waits for its retry.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mailcore.bounce import Bounce as Report
from mailcore.bounce import bounce
from mailcore.config.queue import Queue
from mailcore.config.settings import Bounce, Receiver, Relay, Settings
from mailcore.deliverer.deliverer import Deliverer
from mailcore.dsn_request import NOTIFY_NEVER
from mailcore.envelope import Envelope, Recipient, Status, Verdict
from mailcore.esmtp import EXTENSIONS, Extension, Parameter, ReplyOf
from mailcore.frames import Deliver, Delivered, FrameDecoder, NextHop, encode
from mailcore.log.disk import Disk
from mailcore.manager import notices
from mailcore.queue.spool import Spool
from mailcore.receiver.receiver import Receiving
from tests.deliverer.scripted_server import ScriptedServer
from tests.deliverer.scripted_server import serving as next_hop
from tests.eventually import eventually
from tests.manager.manager_in_process import Deliverers, Home
from tests.receiver.server_in_process import Client

WITH_KEYWORD = ("PIPELINING", "8BITMIME", "X-TEST")
WITHOUT_KEYWORD = ("PIPELINING", "8BITMIME")
MODES = {"FAST": "fast", "SLOW": "slow"}


def _mode(value: str | None) -> str | ReplyOf:
    return MODES.get(value.upper() if value else "") or ReplyOf(b"501 5.5.4 X-MODE is FAST or SLOW")


def row(missing_dsn: str = "") -> Extension:
    return Extension(
        "X-TEST",
        lambda offering: f"X-TEST {'TLS' if offering.is_encrypted else 'CLEAR'}",
        mail=(Parameter("X-MODE", _mode),),
        rcpt=(Parameter("X-ROLE", lambda value: value or ""),),
        missing_dsn=missing_dsn,
    )


class Appliance:
    """A receiver, a manager that can be killed, and a deliverer, which all have the row."""

    def __init__(self, directory: Path, *extensions: Extension) -> None:
        self.extensions = (*EXTENSIONS, *extensions)
        self.home = Home(directory)
        self.bounce = Bounce()
        self.settings = Settings(
            home=directory,
            queue_directory=directory / "queue",
            spool_directory=directory / "spool",
            run_directory=directory / "run",
            log_directory=directory / "log",
            receiver=dataclasses.replace(Receiver(), hostname="mx.example.net", processes=2),
            relay=Relay(networks=("127.0.0.0/8",)),
        )
        loop = asyncio.get_running_loop()
        self.receiving = Receiving(self.settings, 1, loop, extensions=self.extensions)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.receiving.server.start([self._listener])
        self._deliverer = Deliverer(self.settings, 0, loop, self.extensions)
        self.deliverers: Deliverers

    async def accept(self, *commands: bytes) -> list[bytes]:
        client = Client(*await asyncio.open_connection(*self._listener.getsockname()))
        replies = [await client.reply(), *[await client.ask(command) for command in commands]]
        await client.close()
        return replies

    def start_manager(self) -> None:
        spooled = Queue(segment_bytes=1 << 20, reserve_bytes=0, retry_ladder_s=(1, 2), refer_deferred=False)
        manager = self.home.start(bounce=self.bounce, queue=spooled)
        manager.durable("incoming.1", self.receiving.writer.durable)
        self.deliverers = Deliverers(manager)

    async def entry(self) -> Deliver:
        """What the manager gives the deliverer next, as it comes out of the frame."""
        await eventually(lambda: self.deliverers.waiting)
        (frame,) = FrameDecoder().feed(encode(self.deliverers.waiting.pop()))
        assert isinstance(frame, Deliver)
        return frame

    async def deliver(self, work: Deliver, hop: ScriptedServer) -> Delivered:
        here = msgspec.structs.replace(work, next_hop=NextHop("127.0.0.1", hop.port, mx=False))
        result = await self._deliverer.deliver(here)
        self.deliverers.manager.flow.delivered(self.deliverers.link, [result])
        return result

    async def settled(self) -> None:
        """Until the pass is over and what came of it is on disk."""
        manager = self.deliverers.manager
        await eventually(lambda: not manager.context.queue.active)
        await manager._checkpoint()  # what the manager wrote into its own lanes is read from then on

    async def close(self) -> None:
        await eventually(lambda: not self.receiving.server.sessions)
        self.home.kill()
        self._deliverer.close()
        self.receiving.close()


SESSION = (
    b"EHLO client.example",
    b"MAIL FROM:<author@sender.example> X-MODE=fast",
    b"RCPT TO:<first@example.org> X-ROLE=reader",
    b"RCPT TO:<second@example.org>",
    b"RCPT TO:<third@example.org> x-role",
    b"DATA",
    b"Subject: options\r\n\r\nHello.\r\n.",
)
OPTIONS = (("X-MODE", "fast"),)
RECIPIENT_OPTIONS = ((("X-ROLE", "reader"),), (), (("X-ROLE", ""),))


async def deferred_once(appliance: Appliance) -> Deliver:
    """Takes the message in, has its first attempt deferred, restarts the manager; the entry of the second attempt."""
    replies = await appliance.accept(*SESSION)
    assert b"250 X-TEST CLEAR\r\n" in replies[1]
    assert [reply[:3] for reply in replies] == [b"220", b"250", b"250", b"250", b"250", b"250", b"354", b"250"]
    appliance.start_manager()
    first = await appliance.entry()
    assert (first.options, first.recipient_options) == (OPTIONS, RECIPIENT_OPTIONS)
    async with next_hop(ScriptedServer({"MAIL": b"450 4.2.0 Later\r\n"}, keywords=WITH_KEYWORD)) as hop:
        await appliance.deliver(first, hop)
    await appliance.settled()
    spooled, _ = Spool(Disk(), str(appliance.settings.spool_directory)).read_envelope(first.queue_id)
    assert spooled.options == OPTIONS, "for a rebuild of the queue from the spool alone"
    assert tuple(recipient.options for recipient in spooled.recipients) == RECIPIENT_OPTIONS
    appliance.home.kill()
    appliance.start_manager()
    second = await appliance.entry()
    assert (second.options, second.recipient_options) == (OPTIONS, RECIPIENT_OPTIONS)
    return second


async def test_the_parameters_arrive_at_a_next_hop_that_offers_the_keyword(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, row())
    work = await deferred_once(appliance)
    async with next_hop(ScriptedServer(keywords=WITH_KEYWORD)) as hop:
        result = await appliance.deliver(work, hop)
        assert hop.sessions[0].lines[1:5] == [
            "MAIL FROM:<author@sender.example> X-MODE=fast",
            "RCPT TO:<first@example.org> X-ROLE=reader",
            "RCPT TO:<second@example.org>",
            "RCPT TO:<third@example.org> X-ROLE",
        ]
    assert {verdict.status for verdict in result.verdicts} == {Status.DELIVERED}
    await appliance.close()


async def test_a_next_hop_without_the_keyword_gets_the_mail_without_the_parameters(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, row())
    work = await deferred_once(appliance)
    async with next_hop(ScriptedServer(keywords=WITHOUT_KEYWORD)) as hop:
        result = await appliance.deliver(work, hop)
        assert hop.sessions[0].lines[1:3] == ["MAIL FROM:<author@sender.example>", "RCPT TO:<first@example.org>"]
    assert {verdict.status for verdict in result.verdicts} == {Status.DELIVERED}
    await appliance.close()


async def test_mail_that_needs_the_extension_bounces_at_a_next_hop_without_it_and_the_bounce_has_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounced: list[tuple[Envelope, Sequence[tuple[Recipient, Verdict]]]] = []

    def watched(envelope: Envelope, failures: Sequence[tuple[Recipient, Verdict]], *rest: Any, **more: Any) -> Report:
        bounced.append((envelope, failures))
        return bounce(envelope, failures, *rest, **more)

    monkeypatch.setattr(notices, "bounce", watched)
    appliance = Appliance(tmp_path, row(missing_dsn="5.7.9"))
    work = await deferred_once(appliance)
    async with next_hop(ScriptedServer(keywords=WITHOUT_KEYWORD)) as hop:
        result = await appliance.deliver(work, hop)
        assert hop.messages == []
    assert [(verdict.status, verdict.dsn) for verdict in result.verdicts] == [(Status.BOUNCED, "5.7.9")] * 3
    assert result.verdicts[0].reply.startswith("X-TEST is required, but was not offered by host 127.0.0.1[127.0.0.1]")
    await appliance.settled()
    notice = await appliance.entry()
    assert notice.recipients == ((0, "author@sender.example"),)
    assert (notice.options, notice.recipient_options) == ((), (NOTIFY_NEVER,))
    ((envelope, failures),) = bounced
    assert envelope.options == OPTIONS
    assert tuple(recipient.options for recipient, _ in failures) == RECIPIENT_OPTIONS
    await appliance.close()


async def test_a_bad_value_and_an_unknown_parameter_are_refused(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, row())
    replies = await appliance.accept(
        b"HELO client.example",
        b"MAIL FROM:<a@sender.example> X-MODE=fast",
        b"EHLO client.example",
        b"MAIL FROM:<a@sender.example> X-MODE=purple",
        b"MAIL FROM:<a@sender.example> X-ROLE=reader",
        b"MAIL FROM:<a@sender.example>",
        b"RCPT TO:<b@example.org> X-MODE=fast",
    )
    assert [reply[:9] for reply in replies[2:]] == [
        b"555 5.5.4", b"250-mx.ex", b"501 5.5.4", b"555 5.5.4", b"250 2.1.0", b"555 5.5.4",
    ]  # fmt: skip
    await eventually(lambda: not appliance.receiving.server.sessions)
    appliance.receiving.close()
