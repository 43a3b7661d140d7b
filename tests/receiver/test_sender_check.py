"""Sessions with the check of senders, with real sockets and a real name server: what is written, refused and stored."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.authenticity.evaluation import Client as Sender
from mailcore.authenticity.evaluation import Evaluation, Evaluator
from mailcore.authenticity.policy import open_policy
from mailcore.config.authenticity import Authenticity
from mailcore.config.listeners import MX, Listener
from mailcore.config.settings import Deliverer, Relay
from mailcore.log.data_blocks import sums_of
from mailcore.milter.fields import Fields
from mailcore.receiver.receiver import Receiving
from mailcore.routing.mx import HostFinder
from tests.authenticity.mail import MESSAGE, dkimpy_verifies, rsa_key, signed, stuffed
from tests.deliverer.dns_server import NameServer, answering
from tests.eventually import eventually
from tests.milter.scripted import ScriptedMilter, milter
from tests.receiver.logins import submission, user
from tests.receiver.running_receiver import settings_in
from tests.receiver.server_in_process import Client, Serving, serving, without_trace

OK = b"250 2.0.0 Ok: queued as "
KEY = rsa_key()[1]
RECORDS = {
    "s._domainkey.shop.example TXT": [f'"{KEY[:200]}" "{KEY[200:]}"'],
    "shop.example TXT": ['"v=spf1 ip4:127.0.0.9 -all"'],
    "_dmarc.shop.example TXT": ['"v=DMARC1; p=reject"'],
}


def ask_of(names: NameServer) -> Any:
    loop = asyncio.get_running_loop()
    finder = HostFinder((names.text,), addresses_max=5, own_name="", chance=random.Random(1), clock=loop.time)

    async def ask(name: str, kind: str) -> tuple[list[str], float, bool]:
        return await (finder.texts(name) if kind == "TXT" else finder.lookup(name, kind))

    return ask


@contextlib.asynccontextmanager
async def checking(
    names: NameServer | None = None,
    *,
    milters: tuple[ScriptedMilter, ...] = (),
    fails: bool = False,
    inline_limit: int = 65_536,
    **settings: Any,
) -> AsyncIterator[Serving]:
    """A server that checks mail of clients outside 127.0.0.1."""
    async with answering(names or NameServer(RECORDS)) as answers:
        failures: list[BaseException] = []
        policy = open_policy(
            Authenticity(evaluate="mx", **settings),
            "mx.example.net",
            ask_of(answers),
            lambda address, error: failures.append(error),
        )
        rule = Listener(milters=tuple(each.address for each in milters)) if milters else MX
        async with serving(
            networks=("127.0.0.1/32",),
            domains=("example.org",),
            sender_check=policy,
            inline_limit=inline_limit,
            rule=rule,
        ) as server:
            yield server
            assert server.intake.failures == []
            assert bool(failures) is fails


async def send(
    server: Serving, message: bytes, source: str = "127.0.0.9", sender: bytes = b"ann@shop.example"
) -> bytes:
    client = await server.client(source)
    await client.hello()
    await client.to_data(sender)
    await client.send(stuffed(message) + b".\r\n")
    return await client.reply()


def results(server: Serving) -> bytes:
    """Our field of the one message, unfolded."""
    content = server.intake.content
    name, _, rest = content.partition(b":")
    assert name == b"Authentication-Results"
    lines = rest.split(b"\r\n")
    value = [
        lines[0],
        *(line for line in lines[1 : next(n for n, line in enumerate(lines[1:], 1) if line[:1] != b"\t")]),
    ]
    return b"".join(value).replace(b"\t", b" ").strip()


def stored(server: Serving) -> bytes:
    """The one message below our two fields."""
    _, _, below = server.intake.content.partition(b"\r\n" + b"DKIM-Signature")
    return b"DKIM-Signature" + below


async def test_the_results_are_written_above_a_message_that_is_stored_as_it_came() -> None:
    async with checking() as server:
        assert (await send(server, signed())).startswith(OK)
        ((envelope, _, data),) = server.intake.messages
        assert results(server).startswith(
            b"mx.example.net; spf=none smtp.helo=client.example; spf=pass smtp.mailfrom=ann@shop.example; "
            b"dkim=pass header.d=shop.example header.s=s header.a=rsa-sha256 header.b="
        )
        assert results(server).endswith(b"; dmarc=pass (p=reject applied=none) header.from=shop.example")
        assert envelope.authentication == "spf=pass dkim=pass arc=none dmarc=pass"
        content = stored(server)
        assert dkimpy_verifies(content.replace(b"\r\n..", b"\r\n."), KEY)  # the field above breaks nothing
        assert (envelope.data_sums, envelope.size_bytes) == (sums_of(data), len(data))


async def test_a_message_in_a_file_is_evaluated_and_stored_whole() -> None:
    message = signed(MESSAGE + b".line\r\n" * 20_000)
    async with checking(inline_limit=1_000) as server:
        assert (await send(server, message)).startswith(OK)
        assert b"dkim=pass" in results(server)
        assert stored(server) == stuffed(message)
        ((envelope, _, data),) = server.intake.messages
        assert (envelope.data_sums, envelope.size_bytes) == (sums_of(data), len(data))
        assert all(scratch.closed for scratch in server.intake.scratches)


async def test_chunks_are_evaluated_as_the_message_that_they_make() -> None:
    message = signed()
    async with checking() as server:
        client = await server.client("127.0.0.9")
        await client.hello()
        await client.ask(b"MAIL FROM:<ann@shop.example>")
        await client.ask(b"RCPT TO:<b@example.org>")
        await client.send(b"BDAT %d\r\n%s" % (len(message[:300]), message[:300]))
        assert (await client.reply()).startswith(b"250")
        await client.send(b"BDAT %d LAST\r\n%s" % (len(message[300:]), message[300:]))
        assert (await client.reply()).startswith(OK)
        assert b"dkim=pass" in results(server)
        assert stored(server) == stuffed(message)


FORGED = (
    b"Authentication-Results: mx.example.net; dmarc=pass",
    b"authentication-results:mx.example.net;dmarc=pass",
    b"AUTHENTICATION-RESULTS: MX.Example.NET; dmarc=pass",
    b"Authentication-Results : mx.example.net; dmarc=pass",
    b"Authentication-Results:\r\n\tmx.example.net; dmarc=pass",
    b"Authentication-Results:\r\n\t\r\n mx.example.net\r\n ;\r\n dmarc=pass",
    b"Authentication-Results: mx.example.net 1; dmarc=pass",
    b"Authentication-Results: mx.example.net/1; dmarc=pass",
    b"Authentication-Results: (x) mx.example.net (y); dmarc=pass",
    b"Authentication-Results: (a (b \\) c)\r\n d) mx.example.net; dmarc=pass",
    b'Authentication-Results: "mx.example.net"; dmarc=pass',
    b'Authentication-Results: "mx\\.example.net"; dmarc=pass',
    b"Authentication-Results: mx.example.net.; dmarc=pass",
    b"Authentication-Results: mx.example.net",
    b"Authentication-Results: mx(x).example.net; dmarc=pass",
    b"Authentication-Results: ; mx.example.net; dmarc=pass",
    b'Authentication-Results: "mx.example.net; dmarc=pass',
    b"Authentication-Results: (mx.example.net; dmarc=pass",
    b"Authentication-Results: \xef\xbd\x8d\xef\xbd\x98.example.net; dmarc=pass",
)
OTHERS = (
    b"Authentication-Results: mx.other.example; dmarc=fail",
    b"Authentication-Results: mx.example.net.other.example; dkim=pass (mx.example.net)",
    b"X-Authentication-Results: mx.example.net; dmarc=pass",
)


@pytest.mark.parametrize("field", FORGED, ids=repr)
async def test_a_result_that_claims_to_be_ours_is_removed(field: bytes) -> None:
    async with checking() as server:
        lines = [OTHERS[0], field, OTHERS[1], b"From: ann@shop.example", field, OTHERS[2]]
        assert (await send(server, b"\r\n".join([*lines, b"", field, b""]))).startswith(OK)
        header, _, body = server.intake.content.partition(b"\r\n\r\n")
        kept = b"\r\n".join([OTHERS[0], OTHERS[1], b"From: ann@shop.example", OTHERS[2]])
        assert header.endswith(b"header.from=shop.example\r\n" + kept)
        assert body == field + b"\r\n"
        assert header.lower().count(b"mx.example.net;") == 2 - (b"mx.example.net;" not in OTHERS[2])


async def test_results_of_clients_in_our_networks_are_left_and_nothing_is_asked() -> None:
    names = NameServer(RECORDS)
    async with checking(names) as server:
        message = FORGED[0] + b"\r\n" + MESSAGE
        assert (await send(server, message, source="127.0.0.1")).startswith(OK)
        assert server.intake.content == stuffed(message)
        assert (names.asked, server.intake.messages[0][0].authentication) == ([], "")


async def test_a_user_who_logged_in_can_claim_no_results_and_is_not_evaluated() -> None:
    class Message:
        sender = "ann@shop.example"
        held_because = authentication = ""

        def __init__(self) -> None:
            self.fields, _ = Fields.parse(b"Received: x\r\n" + FORGED[0] + b"\r\nFrom: ann@shop.example\r\n")
            self.body: Any = None

    async def never(name: str, kind: str) -> Any:
        raise AssertionError(name)

    policy = open_policy(Authenticity(evaluate="all"), "mx.example.net", never, lambda address, error: None)
    message = Message()
    assert await policy.examine(message, "192.0.2.1", "x", is_ours=True) == b""
    assert message.fields.data == b"Received: x\r\nFrom: ann@shop.example\r\n"


@pytest.mark.parametrize("evaluate", ["mx", "all"])
async def test_users_of_a_submission_listener_can_claim_no_results(tmp_path: Path, evaluate: str) -> None:
    """(law: forged-results-removed)"""

    async def never(name: str, kind: str) -> Any:
        raise AssertionError(name)

    policy = open_policy(Authenticity(evaluate=evaluate), "mx.example.net", never, lambda address, error: None)
    async with submission(tmp_path, user(), sender_check=policy) as server:
        client = await server.logged_in()
        await client.to_data(b"alice@example.org", b"b@example.org")
        await client.send(OTHERS[0] + b"\r\n" + FORGED[0] + b"\r\n" + stuffed(MESSAGE) + b".\r\n")
        assert (await client.reply()).startswith(OK)
        ((envelope, _, data),) = server.intake.messages
    assert without_trace(data) == OTHERS[0] + b"\r\n" + stuffed(MESSAGE)
    assert envelope.authentication == ""


@pytest.mark.parametrize(
    ("purpose", "evaluate", "has"),
    [("mx", "mx", True), ("submission", "mx", False), ("submission", "all", True), ("mx", "off", False)],
)
def test_mail_is_evaluated_by_the_purpose_of_its_listener(purpose: str, evaluate: str, has: bool) -> None:
    async def never(name: str, kind: str) -> Any:
        raise AssertionError(name)

    policy = open_policy(Authenticity(evaluate=evaluate), "x", never, lambda address, error: None)
    assert policy.is_for(purpose) is has


CHANGED = signed().replace(b"noon", b"night")
REFUSED_DMARC = b"550 5.7.1 Error: mail of shop.example is refused by the DMARC policy of this domain\r\n"


@pytest.mark.parametrize(
    ("settings", "message", "source", "reply"),
    [
        ({}, CHANGED, "127.0.0.8", OK),
        ({"dmarc": "reject"}, CHANGED, "127.0.0.8", REFUSED_DMARC),
        ({"dmarc": "reject"}, CHANGED, "127.0.0.9", OK),  # SPF is aligned
        ({"dmarc": "reject"}, signed(), "127.0.0.8", OK),  # DKIM is
        ({"dmarc": "reject"}, b"From: x@other.example\r\n" + MESSAGE, "127.0.0.8", OK),
        ({"bad_from": "reject"}, b"From: x@other.example\r\n" + MESSAGE, "127.0.0.8", b"550 5.7.1 Error: the message"),
        ({"bad_from": "reject"}, MESSAGE.replace(b"From", b"Fro"), "127.0.0.8", b"550 5.7.1 Error: the message"),
        ({"spf_fail": "reject"}, MESSAGE, "127.0.0.8", b"550 5.7.23 Error: SPF"),
        ({"spf_fail": "reject"}, signed(), "127.0.0.8", OK),  # forwarded
        ({"dkim_fail": "reject"}, MESSAGE, "127.0.0.8", OK),
        ({"dkim_fail": "reject"}, CHANGED, "127.0.0.8", b"550 5.7.20 Error: no valid DKIM"),
        ({"dkim_fail": "reject"}, CHANGED, "127.0.0.9", OK),
    ],
)
async def test_mail_is_refused_by_setting(settings: dict[str, Any], message: bytes, source: str, reply: bytes) -> None:
    async with checking(**settings) as server:
        assert (await send(server, message, source)).startswith(reply)
        assert len(server.intake.messages) == (reply is OK)
        if reply is not OK:
            (refusal,) = server.intake.refusals
            assert (refusal.stage, refusal.queue_id, refusal.milter) == ("END-OF-MESSAGE", "ID1", "")


@pytest.mark.parametrize("settings", [{"dmarc": "quarantine"}, {"dmarc": "quarantine", "quarantine": "header"}])
async def test_quarantine_holds_a_message_or_marks_it(settings: dict[str, Any]) -> None:
    async with checking(**settings) as server:
        assert (await send(server, CHANGED, "127.0.0.8")).startswith(OK)
        ((envelope, _, data),) = server.intake.messages
        reason = "DMARC of shop.example wants reject"
        assert envelope.held_because == ("" if "quarantine" in settings else reason)
        assert (b"\r\nX-Quarantine: " + reason.encode() in data) is ("quarantine" in settings)


@pytest.mark.parametrize("temperror", ["accept", "defer"])
async def test_a_name_server_in_trouble_costs_no_mail(temperror: str) -> None:
    bogus = ("s._domainkey.shop.example TXT", "shop.example TXT", "_dmarc.shop.example TXT")
    async with checking(NameServer({}, bogus=bogus), temperror=temperror, dmarc="reject", spf_fail="reject") as server:
        reply = await send(server, signed())
        if temperror == "accept":
            assert reply.startswith(OK)
            assert (
                server.intake.messages[0][0].authentication == "spf=temperror dkim=temperror arc=none dmarc=temperror"
            )
        else:
            assert reply == b"451 4.7.1 Error: the sender cannot be checked now; try again later\r\n"


@pytest.mark.parametrize("temperror", ["accept", "defer"])
async def test_an_evaluation_with_a_bug_costs_no_mail(temperror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Evaluator, client: Sender, header: bytes, body: Any) -> Evaluation:
        raise ZeroDivisionError

    monkeypatch.setattr(Evaluator, "evaluate", broken)
    async with checking(temperror=temperror, fails=True) as server:
        reply = await send(server, FORGED[0] + b"\r\n" + signed())
        assert reply.startswith(OK if temperror == "accept" else b"451 4.7.1")
        assert len(server.intake.messages) == (temperror == "accept")
        assert not any(FORGED[0] in data for _, _, data in server.intake.messages)


async def test_a_client_that_leaves_during_the_evaluation_leaves_nothing() -> None:
    class Silent(NameServer):
        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            self.asked.append("")

    names = Silent({})
    async with checking(names, inline_limit=100) as server:
        client: Client = await server.client("127.0.0.9")
        await client.hello()
        await client.to_data()
        await client.send(stuffed(signed()) + b".\r\n")
        await eventually(lambda: bool(names.asked))
        client.reset()
        await eventually(lambda: not server.server.sessions)
        assert server.intake.messages == []
        await eventually(lambda: all(scratch.closed for scratch in server.intake.scratches))


async def test_milters_come_after_the_check_and_see_its_results() -> None:
    async with milter() as filter_, checking(milters=(filter_,)) as server:
        assert (await send(server, FORGED[0] + b"\r\n" + MESSAGE)).startswith(OK)
        seen = filter_.headers()
        assert [name for name, _ in seen].count(b"Authentication-Results") == 1
        assert seen[0][0] == b"Authentication-Results"
        assert without_trace(server.intake.messages[0][2]).startswith(b"Authentication-Results: mx.example.net;")
    async with milter() as filter_, checking(milters=(filter_,), dmarc="reject") as server:
        assert await send(server, CHANGED, "127.0.0.8") == REFUSED_DMARC
        assert "E" not in filter_.steps_seen()


async def test_a_receiver_with_the_setting_asks_its_name_servers_and_logs_the_results(tmp_path: Path) -> None:
    async with answering(NameServer(RECORDS)) as names:
        settings = dataclasses.replace(
            settings_in(tmp_path),
            authenticity=Authenticity(evaluate="mx", authserv_id="results.example.org"),
            relay=Relay(networks=(), domains=("example.org",)),
            deliverer=dataclasses.replace(Deliverer(), nameservers=(names.text,)),
        )
        receiving = Receiving(settings, 0, asyncio.get_running_loop(), open_check=open_policy)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        receiving.start([listener])
        try:
            client = Client(*await asyncio.open_connection(*listener.getsockname()))
            await client.hello()
            await client.to_data(b"ann@shop.example")
            await client.send(stuffed(signed()) + b".\r\n")
            assert (await client.reply()).startswith(OK)
            log = tmp_path / "log"
            line = ": spf=fail dkim=pass arc=none dmarc=pass\n"
            await eventually(lambda: line in (log / "mail.log").read_text())
            assert '"authentication":"spf=fail dkim=pass arc=none dmarc=pass"' in (log / "mail.jsonl").read_text()
            await client.close()
        finally:
            receiving.close()
