"""Which host, which connection, which encryption: the client against servers on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.frames import Delivered
from mailcore.routing.resolve import Refused
from tests.deliverer.delivery import BODY, LIMITS, FixedHosts, Sender, outcomes, words
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, Session, server_tls, serving

DELIVERED = [("delivered", "2.0.0")]
TLS_OFFERED = ("PIPELINING", "STARTTLS")


async def ended(session: Session) -> None:
    await session.ended.wait()


# Hosts


async def test_the_next_address_is_tried_at_once_and_the_relay_names_the_one_that_took_it(tmp_path: Path) -> None:
    async with serving(ScriptedServer(), "127.0.0.2") as server:
        result = await Sender(tmp_path, server.port, FixedHosts("127.0.0.1", "127.0.0.2")).send()
        assert outcomes(result) == DELIVERED
        assert result.relay == f"mx.example.org[127.0.0.2]:{server.port}"


async def test_nobody_listening_anywhere_is_a_failure_of_the_site(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        port = taken.getsockname()[1]
        result = await Sender(tmp_path, port, FixedHosts("127.0.0.1", "127.0.0.1")).send(
            "a@example.org", "b@example.org"
        )
    assert outcomes(result) == [("deferred", "4.4.1")] * 2
    assert words(result) == f"connect to mx.example.org[127.0.0.1]:{port}: Connection refused"
    assert result.site_failure
    assert result.relay == f"mx.example.org[127.0.0.1]:{port}"


async def test_no_more_addresses_are_tried_than_the_setting_says(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"GREETING": b"421 busy\r\n"})) as server:
        await Sender(tmp_path, server.port, FixedHosts(*["127.0.0.1"] * 4), addresses_max=2).send()
        assert len(server.sessions) == 2


@pytest.mark.parametrize(
    ("answers", "expected", "text"),
    [
        ({"GREETING": b"421 4.3.2 busy\r\n"}, ("deferred", "4.3.2"), "refused to talk to me: 421 4.3.2 busy"),
        ({"GREETING": b"554 5.7.1 go away\r\n"}, ("deferred", "4.7.1"), "refused to talk to me: 554 5.7.1 go away"),
        ({"GREETING": Act.HANG_UP}, ("deferred", "4.4.2"), "while receiving the initial server greeting"),
        ({"GREETING": Act.RESET}, ("deferred", "4.4.2"), "while receiving the initial server greeting"),
        ({"GREETING": Act.SILENCE}, ("deferred", "4.4.2"), "timed out while receiving the initial server greeting"),
        ({"GREETING": b"SSH-2.0-OpenSSH\r\n"}, ("deferred", "4.5.0"), "protocol error"),
        ({"EHLO": Act.HANG_UP}, ("deferred", "4.4.2"), "while performing the EHLO handshake"),
        ({"EHLO": b"421 4.3.2 no\r\n"}, ("deferred", "4.3.2"), "refused to talk to me: 421 4.3.2 no"),
        ({"EHLO": b"502 no\r\n", "HELO": b"450 4.7.1 no\r\n"}, ("deferred", "4.7.1"), "refused to talk to me: 450"),
    ],
)
async def test_a_host_that_does_not_begin_well_is_a_failure_of_the_site(
    tmp_path: Path, answers: dict[str, Answer | list[Answer]], expected: tuple[str, str], text: str
) -> None:
    async with serving(ScriptedServer(answers)) as server:
        result = await Sender(tmp_path, server.port, greeting_timeout_s=0.3).send()
        assert outcomes(result) == [expected]
        assert text in words(result)
        assert result.site_failure


async def test_a_host_that_greets_badly_leaves_the_mail_to_the_next(tmp_path: Path) -> None:
    async with (
        serving(ScriptedServer({"GREETING": b"554 no\r\n"})) as bad,
        serving(ScriptedServer(), "127.0.0.2", bad.port) as good,
    ):
        assert outcomes(await Sender(tmp_path, good.port, FixedHosts("127.0.0.1", "127.0.0.2")).send()) == DELIVERED


async def test_an_endless_greeting_is_given_up(tmp_path: Path) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"220-" + b"x" * 500 + b"\r\n")
                await writer.drain()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    result = await Sender(tmp_path, server.sockets[0].getsockname()[1]).send()
    assert outcomes(result) == [("deferred", "4.5.0")]
    server.close()


async def test_who_deferred_all_leaves_it_to_one_more_host_but_not_to_a_third(tmp_path: Path) -> None:
    later = {"RCPT": b"450 4.2.0 later\r\n", "DATA": b"503 5.5.1 no\r\n"}
    hosts = FixedHosts("127.0.0.1", "127.0.0.2", "127.0.0.3")
    async with (
        serving(ScriptedServer({**later})) as first,
        serving(ScriptedServer({**later}), "127.0.0.2", first.port) as second,
        serving(ScriptedServer(), "127.0.0.3", first.port) as third,
    ):
        result = await Sender(tmp_path, first.port, hosts).send()
        assert outcomes(result) == [("deferred", "4.2.0")]
        assert not result.site_failure
        assert [len(server.sessions) for server in (first, second, third)] == [1, 1, 0]


async def test_after_the_dot_no_other_host_is_tried(tmp_path: Path) -> None:
    async with (
        serving(ScriptedServer({"DOT": Act.HANG_UP})) as first,
        serving(ScriptedServer(), "127.0.0.2", first.port) as second,
    ):
        result = await Sender(tmp_path, first.port, FixedHosts("127.0.0.1", "127.0.0.2")).send()
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert second.sessions == []


async def test_one_final_verdict_keeps_the_others_from_the_next_host(tmp_path: Path) -> None:
    refuse = {"no@example.org": b"550 5.1.1 no\r\n", "later@example.org": b"450 4.2.0 later\r\n"}
    async with (
        serving(ScriptedServer({"DATA": b"503 5.5.1 no\r\n"}, refuse=refuse)) as first,
        serving(ScriptedServer(), "127.0.0.2", first.port) as second,
    ):
        hosts = FixedHosts("127.0.0.1", "127.0.0.2")
        result = await Sender(tmp_path, first.port, hosts).send("no@example.org", "later@example.org")
        assert outcomes(result) == [("bounced", "5.1.1"), ("deferred", "4.2.0")]
        assert second.sessions == []


async def test_what_dns_refuses_is_the_verdict_of_all(tmp_path: Path) -> None:
    refused = Refused(Status.BOUNCED, "5.1.10", "Domain example.org does not accept mail (nullMX)")
    result = await Sender(tmp_path, 1, FixedHosts(refused=refused)).send("a@example.org", "b@example.org")
    assert outcomes(result) == [("bounced", "5.1.10")] * 2
    assert (result.relay, result.site_failure, words(result)) == ("none", False, refused.reply)


async def test_helo_is_said_where_ehlo_is_not_understood(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"EHLO": b"502 5.5.2 what?\r\n"})) as server:
        assert outcomes(await Sender(tmp_path, server.port).send()) == DELIVERED
        assert server.sessions[0].lines[:3] == [
            "EHLO our.example.net",
            "HELO our.example.net",
            "MAIL FROM:<from@example.net>",
        ]


# TLS


async def test_starttls_is_used_when_offered_whatever_the_certificate(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=TLS_OFFERED, tls=server_tls(tmp_path))) as server:
        result = await Sender(tmp_path, server.port).send()
        assert outcomes(result) == DELIVERED
        assert result.tls.startswith("TLSv1.3 TLS_")
        assert server.sessions[0].tls
        assert server.sessions[0].verbs[:4] == ["EHLO", "STARTTLS", "EHLO", "MAIL"]
        assert server.messages[0].data == BODY


async def test_big_data_goes_through_tls_whole(tmp_path: Path) -> None:
    body = (b"x" * 76 + b"\r\n") * 30_000
    async with serving(ScriptedServer(keywords=TLS_OFFERED, tls=server_tls(tmp_path))) as server:
        assert outcomes(await Sender(tmp_path, server.port).send(body=body)) == DELIVERED
        assert server.messages[0].data == body


async def test_level_none_never_says_starttls(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=TLS_OFFERED, tls=server_tls(tmp_path))) as server:
        result = await Sender(tmp_path, server.port).send(tls="none")
        assert (outcomes(result), result.tls) == (DELIVERED, "")


@pytest.mark.parametrize("broken", [Act.GARBAGE, Act.HANG_UP])
async def test_a_broken_handshake_is_followed_by_one_try_in_the_clear_and_remembered(
    tmp_path: Path, broken: Act
) -> None:
    async with serving(ScriptedServer({"STARTTLS": broken}, keywords=TLS_OFFERED)) as server:
        sender = Sender(tmp_path, server.port, connection_uses_max=1)
        assert outcomes(await sender.send()) == DELIVERED
        assert ["STARTTLS" in session.verbs for session in server.sessions] == [True, False]
        assert outcomes(await sender.send()) == DELIVERED
        assert ["STARTTLS" in session.verbs for session in server.sessions] == [True, False, False]


async def test_a_refused_starttls_goes_on_in_the_clear_on_the_same_connection(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"STARTTLS": b"454 4.7.0 not now\r\n"}, keywords=TLS_OFFERED)) as server:
        assert outcomes(await Sender(tmp_path, server.port).send()) == DELIVERED
        assert len(server.sessions) == 1


@pytest.mark.parametrize(
    ("keywords", "starttls", "dsn"),
    [
        (("PIPELINING",), b"", "4.7.4"),
        (TLS_OFFERED, b"454 4.7.0 not now\r\n", "4.7.4"),
        (TLS_OFFERED, Act.GARBAGE, "4.7.5"),
        (TLS_OFFERED, Act.HANG_UP, "4.7.5"),
    ],
)
async def test_level_encrypt_defers_rather_than_send_in_the_clear(
    tmp_path: Path, keywords: tuple[str, ...], starttls: Answer, dsn: str
) -> None:
    async with serving(ScriptedServer({"STARTTLS": starttls}, keywords=keywords)) as server:
        result = await Sender(tmp_path, server.port).send(tls="encrypt")
        assert outcomes(result) == [("deferred", dsn)]
        assert result.site_failure
        assert all("MAIL" not in session.verbs for session in server.sessions)


async def test_replies_injected_before_the_handshake_are_not_believed(tmp_path: Path) -> None:
    """RFC 3207 6: who sits in between may add replies in the clear; afterwards they would be those of the server."""
    answers: dict[str, Answer | list[Answer]] = {
        "STARTTLS": b"220 go\r\n250 injected\r\n250 injected\r\n250 injected\r\n"
    }
    async with serving(ScriptedServer(answers, keywords=TLS_OFFERED, tls=server_tls(tmp_path))) as server:
        result = await Sender(tmp_path, server.port).send(tls="encrypt")
        if server.messages:
            assert words(result) == "250 2.0.0 Ok: queued as 4F"
        else:
            assert outcomes(result)[0][0] == "deferred"


# Connections kept


async def test_a_kept_connection_is_used_again_without_dns(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        hosts = FixedHosts("127.0.0.1")
        sender = Sender(tmp_path, server.port, hosts)
        results = [await sender.send() for _ in range(3)]
        assert [outcomes(result) for result in results] == [DELIVERED] * 3
        assert (len(server.sessions), len(server.messages), hosts.asked) == (1, 3, 1)
        assert [result.connect_s > 0 for result in results] == [True, False, False]
        assert "RSET" not in server.sessions[0].verbs


async def test_a_connection_to_the_same_address_serves_another_next_hop(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send(host="one.example.org")
        await sender.send(host="two.example.org")
        assert (len(server.sessions), len(server.messages)) == (1, 2)


async def test_a_kept_connection_is_not_shared_between_tls_levels(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send(tls="may")
        assert outcomes(await sender.send(tls="encrypt")) == [("deferred", "4.7.4")]
        assert len(server.messages) == 1


async def test_a_connection_is_used_no_more_often_than_the_setting_says(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port, connection_uses_max=2)
        for _ in range(4):
            await sender.send()
        assert len(server.sessions) == 2
        for session in server.sessions:
            await ended(session)
            assert session.verbs[-1] == "QUIT"


async def test_an_idle_connection_is_closed_with_quit(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port, connection_idle_s=0.1)
        await sender.send()
        await ended(server.sessions[0])
        assert server.sessions[0].verbs[-1] == "QUIT"
        await sender.send()
        assert len(server.sessions) == 2


async def test_no_more_connections_rest_than_the_setting_says(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port, connections_idle_max=2)
        await asyncio.gather(*(sender.send() for _ in range(5)))
        ends = [asyncio.create_task(ended(session)) for session in server.sessions]
        while sum(task.done() for task in ends) < 3:
            await asyncio.wait([task for task in ends if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        await sender.send()
        assert sum(session.ended.is_set() for session in server.sessions) == 3
        for task in ends:
            task.cancel()


@pytest.mark.parametrize("act", [Act.HANG_UP, Act.RESET, b"421 4.4.2 idle for too long\r\n"])
@pytest.mark.parametrize("keywords", [("PIPELINING",), ()])
async def test_a_kept_connection_found_dead_is_replaced_and_no_failure(
    tmp_path: Path, act: Answer, keywords: tuple[str, ...]
) -> None:
    async with serving(ScriptedServer({"MAIL": [b"250 Ok\r\n", act, b"250 Ok\r\n"]}, keywords=keywords)) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send()
        result = await sender.send()
        assert outcomes(result) == DELIVERED
        assert result.connect_s > 0
        assert len(server.sessions) == 2
        assert len(server.messages) == 2


async def test_a_fresh_connection_lost_at_once_is_a_failure_not_a_loop(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"MAIL": [b"250 Ok\r\n", Act.HANG_UP]})) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send()
        assert outcomes(await sender.send()) == [("deferred", "4.4.2")]
        assert len(server.sessions) == 2


async def test_a_resting_connection_that_speaks_is_not_used_again(tmp_path: Path) -> None:
    """A reply nobody asked for would be taken for that to the next command."""
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send()
        writer = server.sessions[0].writer
        assert writer is not None
        writer.write(b"250 2.0.0 I was not asked\r\n")
        async with asyncio.timeout(LIMITS.connection_idle_s / 2):  # at once, not when it has rested enough
            await ended(server.sessions[0])
        assert outcomes(await sender.send()) == DELIVERED
        assert len(server.sessions) == 2


async def test_a_connection_left_in_the_middle_is_not_used_again(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": [b"421 4.3.2 going down\r\n", b"250 2.0.0 Ok\r\n"]})) as server:
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send()) == [("deferred", "4.3.2")]
        assert outcomes(await sender.send()) == DELIVERED
        assert len(server.sessions) == 2


async def test_a_hundred_deliveries_at_once_come_out_one_by_one(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        results: list[Delivered] = await asyncio.gather(*(sender.send(f"{n}@example.org") for n in range(100)))
        assert all(outcomes(result) == DELIVERED for result in results)
        assert sorted(message.recipients[0] for message in server.messages) == sorted(
            f"<{n}@example.org>" for n in range(100)
        )
