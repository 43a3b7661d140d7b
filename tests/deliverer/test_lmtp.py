"""LMTP (RFC 2033): one reply for each recipient, over TCP and over a Unix socket; what is lost between two replies."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path

import msgspec
import pytest

from mailcore.deliverer.client import Client
from mailcore.frames import Delivered, NextHop
from mailcore.routing.mx import HostFinder
from tests.deliverer.delivery import BODY, LIMITS, FixedHosts, Sender, outcomes, words
from tests.deliverer.lmtp_server import Act, Answer, LmtpServer, storing
from tests.eventually import PATIENCE_S

A, B, C = "a@example.org", "b@example.org", "c@example.org"
SENT = ("delivered", "2.1.5")
LOST = ("deferred", "4.4.2")


class Storing(Sender):
    """A sender whose transport speaks LMTP, to a port or to a socket."""

    def __init__(self, directory: Path, server: LmtpServer, path: Path | None = None, **changes: float) -> None:
        finder = FixedHosts("127.0.0.1")
        if path is not None:
            chance = random.Random(1)
            finder = HostFinder((), addresses_max=5, own_name="our.example.net", chance=chance, clock=lambda: 0.0)  # type: ignore[assignment]
        super().__init__(directory, server.port, finder)
        self.path = path
        limits = dataclasses.replace(LIMITS, **changes)  # type: ignore[arg-type]
        self.client = Client(limits, finder, "our.example.net", asyncio.get_running_loop(), lmtp=["smtp"])

    async def store(self, *recipients: str, body: bytes = BODY) -> Delivered:
        work = self.work(*recipients, body=body)
        if self.path is not None:
            work = msgspec.structs.replace(work, next_hop=NextHop(str(self.path), 0, False))
        return await self.deliver(work)


async def test_each_recipient_has_a_fate_of_its_own(tmp_path: Path) -> None:
    fates = {B: b"452 4.2.2 Over quota\r\n", C: b"550 5.7.1 No\r\n"}
    async with storing(LmtpServer(fates)) as server:
        result = await Storing(tmp_path, server).store(A, B, C)
        assert outcomes(result) == [SENT, ("deferred", "4.2.2"), ("bounced", "5.7.1")]
        assert words(result) == f"250 2.1.5 {A} delivered"
        said = {verdict.number: verdict.reply for verdict in result.verdicts}
        assert said[1] == "host mx.example.org[127.0.0.1] said: 452 4.2.2 Over quota (in reply to end of DATA command)"
        assert server.sessions[0].verbs == ["LHLO", "MAIL", "RCPT", "RCPT", "RCPT", "DATA", "."]
        assert not result.site_failure


async def test_replies_belong_to_the_recipients_that_were_accepted(tmp_path: Path) -> None:
    """The replies to the dot are those of accepted recipients alone: counting all would give B the fate of C."""
    async with storing(LmtpServer({C: b"550 5.7.1 No\r\n"}, refuse={B: b"450 4.2.1 Later\r\n"})) as server:
        result = await Storing(tmp_path, server).store(A, B, C)
        assert outcomes(result) == [SENT, ("deferred", "4.2.1"), ("bounced", "5.7.1")]


@pytest.mark.parametrize("act", [Act.HANG_UP, Act.RESET])
async def test_a_connection_lost_between_replies_takes_no_answer_back(tmp_path: Path, act: Act) -> None:
    async with storing(LmtpServer({A: b"550 5.7.1 No\r\n", C: act})) as server:
        result = await Storing(tmp_path, server).store(A, B, C, "d@example.org")
        if act is Act.HANG_UP:
            assert outcomes(result) == [("bounced", "5.7.1"), SENT, LOST, LOST]
        else:  # a reset may throw away replies that were under way, never turn them into others
            assert set(outcomes(result)) <= {("bounced", "5.7.1"), SENT, LOST}
            assert outcomes(result)[2:] == [LOST, LOST]
        assert "message may be sent more than once" in max(result.verdicts, key=lambda each: each.number).reply
        assert not result.site_failure


async def test_a_server_that_answers_too_few_is_waited_for_and_the_rest_is_tried_again(tmp_path: Path) -> None:
    async with storing(LmtpServer({B: Act.SILENCE})) as server:
        result = await Storing(tmp_path, server, final_timeout_s=0.3).store(A, B)
        assert outcomes(result) == [SENT, LOST]
        assert len(server.sessions) == 1


async def test_a_421_in_the_middle_defers_that_one_and_the_rest(tmp_path: Path) -> None:
    fates: dict[str, Answer] = {B: b"421 4.3.2 Going down\r\n", C: Act.HANG_UP}
    async with storing(LmtpServer(fates)) as server:
        sender = Storing(tmp_path, server)
        assert outcomes(await sender.store(A, B, C)) == [SENT, ("deferred", "4.3.2"), LOST]
        assert outcomes(await sender.store(B)) == [("deferred", "4.3.2")]  # over a new connection
        assert len(server.sessions) == 2


async def test_no_reply_is_waited_for_when_every_recipient_was_refused(tmp_path: Path) -> None:
    """A server that says 354 all the same gives no reply to the dot: one that waited would wait ten minutes."""
    async with storing(LmtpServer(refuse={A: b"550 5.1.1 Who\r\n", B: b"450 4.2.1 Later\r\n"})) as server:
        async with asyncio.timeout(PATIENCE_S):
            result = await Storing(tmp_path, server).store(A, B)
        assert outcomes(result) == [("bounced", "5.1.1"), ("deferred", "4.2.1")]
        assert server.messages == []


async def test_a_reply_before_the_dot_bounces_no_recipient(tmp_path: Path) -> None:
    async with storing(LmtpServer(answers={"DATA": b"354 go\r\n550 5.7.1 No\r\n"})) as server:
        result = await Storing(tmp_path, server).store(A, B)
        assert {status for status, _ in outcomes(result)} == {"deferred"}


async def test_a_server_that_speaks_smtp_costs_no_mail(tmp_path: Path) -> None:
    async with storing(LmtpServer(answers={"LHLO": b"502 5.5.2 What\r\n"})) as server:
        result = await Storing(tmp_path, server).store(A)
        assert outcomes(result) == [("deferred", "4.5.2")]
        assert server.sessions[0].verbs[:1] == ["LHLO"]
        assert "HELO" not in server.sessions[0].verbs


async def test_the_connection_is_used_again(tmp_path: Path) -> None:
    async with storing(LmtpServer({B: b"452 4.2.2 Over quota\r\n"})) as server:
        sender = Storing(tmp_path, server)
        await sender.store(A, B)
        assert outcomes(await sender.store(A)) == [SENT]
        assert len(server.sessions) == 1


async def test_a_unix_socket_is_named_without_a_port(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    async with storing(LmtpServer(), path) as server:
        sender = Storing(tmp_path, server, path)
        result = await sender.store(A, B)
        assert outcomes(result) == [SENT, SENT]
        assert result.relay == f"our.example.net[{path}]"
        assert result.source_address == ""
        await sender.store(A)
        assert len(server.sessions) == 1


async def test_a_socket_that_is_not_there_is_a_failure_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    result = await Storing(tmp_path, LmtpServer(), path).store(A)
    assert outcomes(result) == [("deferred", "4.4.1")]
    assert words(result) == f"connect to our.example.net[{path}]: No such file or directory"
    assert result.site_failure


async def test_big_data_goes_over_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    async with storing(LmtpServer(), path) as server:
        body = b"Subject: big\r\n\r\n" + b"0123456789\r\n" * 100_000
        assert outcomes(await Storing(tmp_path, server, path).store(A, B, body=body)) == [SENT, SENT]
        assert server.messages[0].data == body
