"""Sessions with milters on a real socket: what the milters see, what the client hears, and what is stored, byte for byte."""

from __future__ import annotations

import struct

import pytest

from mailcore.config.clients import Clients
from mailcore.log.data_blocks import sums_of
from tests.eventually import eventually
from tests.milter.scripted import (
    ACCEPT,
    CONTINUE,
    DISCARD,
    PROGRESS,
    REJECT,
    SKIP,
    TEMPFAIL,
    add_header,
    change_header,
    framed,
    insert_header,
    milter,
    quarantine,
    reply_code,
)
from tests.receiver.milters import BODY, MESSAGE, OK, send, session
from tests.receiver.server_in_process import serving, without_trace


async def test_a_milter_sees_each_step_as_the_client_said_it_with_its_macros() -> None:
    async with milter() as filter_, session(filter_) as (server, client):
        await client.hello()
        assert (await client.ask(b"MAIL FROM:<a@example.com> SIZE=1000 BODY=8BITMIME")).startswith(b"250")
        assert (await client.ask(b"RCPT TO:<b@example.org> NOTIFY=NEVER")).startswith(b"250")
        assert (await client.ask(b"DATA")).startswith(b"354")
        await client.send(MESSAGE + b".\r\n")
        assert await client.reply() == OK
        port = server.address[1]
        assert filter_.offer[0] == 6
        assert filter_.steps_seen() == "CHMRTLLLLNBE"
        seen = dict(filter_.seen)
        host, rest = seen["C"].split(b"\0", 1)
        assert (host, rest[:1], rest[3:]) == (b"unknown", b"4", b"127.0.0.1\0")
        assert struct.unpack("!H", rest[1:3])[0] == int(filter_.macros["C"]["{client_port}"]) != port
        assert seen["H"] == b"client.example\0"
        assert seen["M"] == b"<a@example.com>\0SIZE=1000\0BODY=8BITMIME\0"
        assert seen["R"] == b"<b@example.org>\0NOTIFY=NEVER\0"
        assert filter_.headers() == [
            (b"From", b"a@example.com"),
            (b"Subject", b"one\n\ttwo"),
            (b"X-Spam", b"1"),
            (b"x-spam", b"2"),
        ]
        assert filter_.body() == BODY
        assert filter_.macros["C"]["j"] == filter_.macros["C"]["{daemon_name}"] == "mx.example.net"
        assert filter_.macros["C"]["_"] == "unknown [127.0.0.1]"
        assert filter_.macros["M"]["{mail_addr}"] == "a@example.com"
        assert filter_.macros["R"] == {
            "{rcpt_addr}": "b@example.org",
            "{rcpt_host}": "example.org",
            "{rcpt_mailer}": "smtp",
        }
        assert filter_.macros["E"] == {"i": "ID1"}
        assert server.intake.content == MESSAGE


async def test_a_message_that_no_milter_changes_is_stored_as_it_came() -> None:
    async with milter() as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await send(client) == OK
        ((envelope, _, data),) = server.intake.messages
        assert without_trace(data) == MESSAGE
        assert envelope.data_sums == sums_of(data)
        assert envelope.size_bytes == len(data)


async def test_one_connection_serves_all_messages_of_a_session_and_ends_with_it() -> None:
    async with milter() as filter_, session(filter_) as (server, client):
        await client.hello()
        for _ in range(3):
            assert (await send(client)).startswith(b"250")
        assert filter_.connections == 1
        assert await client.ask(b"QUIT") == b"221 2.0.0 Bye\r\n"
        await eventually(lambda: not filter_.open)
        assert filter_.steps_seen() == "CH" + 3 * "MRTLLLLNBE" + "Q"
        assert len(server.intake.messages) == 3


CHANGES = [
    (add_header("X-New", b"at the end"), MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-New: at the end\r\n")),
    (insert_header(1, "X-Top", b"first"), b"X-Top: first\r\n" + MESSAGE),
    (insert_header(2, "X-Second", b"x"), MESSAGE.replace(b"Subject", b"X-Second: x\r\nSubject")),
    (insert_header(99, "X-Last", b"x"), MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-Last: x\r\n")),
    (change_header(1, "subject", b"new"), MESSAGE.replace(b"Subject: one\r\n\ttwo", b"subject: new")),
    (change_header(2, "X-SPAM", b"3"), MESSAGE.replace(b"x-spam:2", b"X-SPAM: 3")),
    (change_header(1, "X-Spam", b""), MESSAGE.replace(b"X-Spam: 1\r\n", b"")),
    (
        change_header(1, "X-Spam", b"") + change_header(1, "X-Spam", b""),
        MESSAGE.replace(b"X-Spam: 1\r\nx-spam:2\r\n", b""),
    ),
    (change_header(7, "X-Spam", b"7"), MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-Spam: 7\r\n")),
    (change_header(7, "X-Spam", b""), MESSAGE),
    (
        add_header("X-Long", b"a\n\tb\nc\r\n d"),
        MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-Long: a\r\n\tb\r\n\tc\r\n d\r\n"),
    ),
    (add_header("X-End", b"a\n\n\nTo: x"), MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-End: a\r\n\tTo: x\r\n")),
    (framed("b", b"new\r\n.\r\n.x\nbare lf"), MESSAGE.partition(b"Hello")[0] + b"new\r\n..\r\n..x\r\nbare lf\r\n"),
    (framed("b", b"a\r") + framed("b", b"\n.") + framed("b", b".b"), MESSAGE.partition(b"Hello")[0] + b"a\r\n...b\r\n"),
    (framed("b", b""), MESSAGE.partition(b"Hello")[0]),
    (insert_header(1, ".Dot", b"x"), b"..Dot: x\r\n" + MESSAGE),
]


@pytest.mark.parametrize(("change", "stored"), CHANGES)
@pytest.mark.parametrize("inline_limit", [65_536, 10])
async def test_what_a_milter_changes_is_exactly_what_is_stored(change: bytes, stored: bytes, inline_limit: int) -> None:
    async with (
        milter(script={"E": change + CONTINUE}) as filter_,
        session(filter_, inline_limit=inline_limit) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        ((envelope, _, data),) = server.intake.messages
        assert without_trace(data) == stored
        assert envelope.data_sums == sums_of(data)
        assert envelope.size_bytes == len(data)
        assert server.intake.failures == []
        assert all(each.closed for each in server.intake.scratches)


async def test_place_0_is_above_our_own_received_field() -> None:
    async with (
        milter(script={"E": insert_header(0, "X-Top", b"1") + CONTINUE}) as filter_,
        milter() as second,
        session(filter_, second) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        assert [name for name, _ in second.headers()] == [b"X-Top", b"From", b"Subject", b"X-Spam", b"x-spam"]
        ((_, _, data),) = server.intake.messages
        assert data.startswith(b"X-Top: 1\r\nReceived: from ")


async def test_a_message_id_that_a_milter_writes_is_that_of_the_message() -> None:
    async with (
        milter(script={"E": add_header("Message-ID", b"<new@example.com>") + CONTINUE}) as filter_,
        session(filter_) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        assert server.intake.messages[0][0].message_id == "<new@example.com>"


async def test_a_milter_changes_sender_and_recipients() -> None:
    changes = (
        framed("-", b"<B@Example.org>\0")
        + framed("+", b"c@example.org\0")
        + framed("2", b"<d@example.org>\0NOTIFY=NEVER\0")
        + framed("e", b"<new@example.com>\0RET=HDRS\0")
    )
    async with milter(script={"E": changes + CONTINUE}) as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await send(client) == OK
        ((envelope, _, _),) = server.intake.messages
        assert envelope.sender == "new@example.com"
        assert envelope.options == (("RET", "HDRS"),)
        assert [(each.number, each.address, each.options) for each in envelope.recipients] == [
            (0, "c@example.org", ()),
            (1, "d@example.org", (("NOTIFY", "NEVER"),)),
        ]
        assert envelope.recipient_count == 2


async def test_a_message_without_recipients_is_discarded_and_logged() -> None:
    async with (
        milter(script={"E": framed("-", b"<b@example.org>\0") + CONTINUE}) as filter_,
        session(filter_) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        assert server.intake.messages == []
        assert [each.action for each in server.intake.milters_acted] == ["discard"]


REFUSALS = [
    (REJECT, b"550 5.7.1 Command rejected\r\n"),
    (TEMPFAIL, b"451 4.7.1 Service unavailable - try again later\r\n"),
    (reply_code(b"554 5.7.1 100%% spam"), b"554 5.7.1 100% spam\r\n"),
    (reply_code(b"450-4.2.0 one\r\n450 4.2.0 two"), b"450-4.2.0 one\r\n450 4.2.0 two\r\n"),
]


@pytest.mark.parametrize(("answer", "reply"), REFUSALS)
@pytest.mark.parametrize("step", "MRTLNBE")
async def test_a_refusal_at_a_step_is_the_reply_to_its_command(step: str, answer: bytes, reply: bytes) -> None:
    async with milter(script={step: [answer, CONTINUE]}) as filter_, session(filter_) as (server, client):
        await client.hello()
        commands = {"M": b"MAIL FROM:<a@example.com>", "R": b"RCPT TO:<b@example.org>", "T": b"DATA"}
        for each, command in commands.items():
            heard = await client.ask(command)
            if each == step:
                break
        else:
            await client.send(MESSAGE + b".\r\n")
            heard = await client.reply()
        assert heard == reply
        assert server.intake.messages == []
        assert server.intake.refusals[0].milter == filter_.address
        await client.ask(b"RSET")
        assert (await send(client)).startswith(b"250 ")
        assert server.intake.content == MESSAGE


@pytest.mark.parametrize("step", "CH")
async def test_a_refusal_of_the_client_is_said_at_mail_and_stays(step: str) -> None:
    async with milter(script={step: REJECT}) as filter_, session(filter_) as (server, client):
        await client.hello()
        for _ in range(2):
            assert await client.ask(b"MAIL FROM:<a@example.com>") == b"550 5.7.1 Command rejected\r\n"
        assert (await client.ask(b"NOOP")).startswith(b"250")
        assert server.intake.refusals[0].milter == filter_.address


@pytest.mark.parametrize("step", "CHMRE")
async def test_421_ends_the_session(step: str) -> None:
    async with milter(script={step: reply_code(b"421 4.7.0 go away")}) as filter_, session(filter_) as (server, client):
        if step != "C":
            assert (await client.reply()).startswith(b"220")
        heard = b""
        if step in "MRE":
            await client.ask(b"EHLO client.example")
            heard = await (send(client) if step == "E" else client.ask(b"MAIL FROM:<a@example.com>"))
        if step == "R":
            heard = await client.ask(b"RCPT TO:<b@example.org>")
        if step == "H":
            heard = await client.ask(b"EHLO client.example")
        assert heard + await client.rest() == b"421 4.7.0 go away\r\n"
        assert server.intake.refusals[-1].milter == filter_.address
        assert server.intake.messages == []


@pytest.mark.parametrize("step", "MRTLNBE")
async def test_a_message_that_is_discarded_is_answered_with_success_and_not_stored(step: str) -> None:
    async with milter(script={step: [DISCARD, CONTINUE]}) as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await send(client) == OK
        assert server.intake.messages == []
        (event,) = server.intake.milters_acted
        assert (event.milter, event.action) == (filter_.address, "discard")
        assert (event.queue_id, event.sender, event.recipients) == ("ID1", "a@example.com", ("b@example.org",))
        assert (await send(client)).startswith(b"250")
        assert server.intake.content == MESSAGE


async def test_a_message_in_quarantine_is_held_with_the_reason() -> None:
    async with (
        milter(script={"E": quarantine(b"looks bad") + CONTINUE}) as filter_,
        session(filter_) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        assert server.intake.messages[0][0].held_because == "looks bad"
        assert [each.action for each in server.intake.milters_acted] == ["hold"]


@pytest.mark.parametrize("step", "CHMRTLNBE")
async def test_after_accept_a_milter_sees_no_more_of_it(step: str) -> None:
    async with milter(script={step: ACCEPT}) as filter_, session(filter_) as (server, client):
        await client.hello()
        for _ in range(2):
            assert (await send(client)).startswith(b"250")
        order = "CHMRTLNBE"
        whole = "CHMRTLLLLNBE"
        first = whole[: whole.index(step) + 1]
        if step in "CH":
            assert filter_.steps_seen() in (first, first + "Q")
        else:
            again = first[2:]
            assert filter_.steps_seen().replace("A", "") == "CH" + 2 * again
        assert order
        assert len(server.intake.messages) == 2


async def test_steps_that_are_left_out_and_not_answered_cost_no_wait() -> None:
    steps = 0x0FF080 | 0x1 | 0x20  # no CONNECT, no headers; no answer to anything but the end
    async with milter(steps=steps) as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await send(client) == OK
        assert filter_.steps_seen() == "HMRTNBE"
        assert server.intake.content == MESSAGE


async def test_a_filter_chooses_its_macros() -> None:
    lists = struct.pack("!I", 2) + b"{client_addr} {mail_addr}\0"
    async with milter(macro_lists=lists) as filter_, session(filter_) as (_, client):
        await client.hello()
        assert await send(client) == OK
        assert filter_.macros["M"] == {"{client_addr}": "127.0.0.1", "{mail_addr}": "a@example.com"}
        assert "{rcpt_addr}" in filter_.macros["R"]


async def test_a_later_milter_sees_what_an_earlier_one_changed() -> None:
    async with (
        milter(script={"E": add_header("X-One", b"1") + framed("b", b"new\r\n.dot\r\n") + CONTINUE}) as one,
        milter(script={"E": change_header(1, "X-One", b"2") + CONTINUE}) as two,
        session(one, two) as (server, client),
    ):
        await client.hello()
        assert await send(client) == OK
        assert two.headers()[-1] == (b"X-One", b"1")
        assert two.body() == b"new\r\n.dot\r\n"
        stored = (
            MESSAGE.partition(b"Hello")[0].replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-One: 2\r\n") + b"new\r\n..dot\r\n"
        )
        assert server.intake.content == stored


@pytest.mark.parametrize("size", [65_534, 65_535, 65_536, 131_070, 200_000])
@pytest.mark.parametrize("inline_limit", [10, 1 << 20])
async def test_a_body_comes_in_chunks_and_is_whole(size: int, inline_limit: int) -> None:
    lines = b"".join(b"..%08d\r\n" % number for number in range((size - 20) // 12))
    stored_body = lines + (size - len(lines) - 2) * b"x" + b"\r\n"
    message = b"Subject: x\r\n\r\n" + stored_body
    plain = (b"\r\n" + stored_body).replace(b"\r\n.", b"\r\n")[2:]
    async with (
        milter(script={"E": PROGRESS + add_header("X-New", b"1") + PROGRESS + CONTINUE}, piecewise=True) as filter_,
        session(filter_, inline_limit=inline_limit) as (server, client),
    ):
        await client.hello()
        assert await send(client, message) == OK
        assert filter_.body() == plain
        assert max(len(data) for code, data in filter_.seen if code == "B") <= 65_535
        assert server.intake.content == b"Subject: x\r\nX-New: 1\r\n\r\n" + stored_body
        ((envelope, _, data),) = server.intake.messages
        assert envelope.data_sums == sums_of(data)


async def test_skip_ends_the_body_and_nothing_else() -> None:
    message = b"Subject: x\r\n\r\n" + 4000 * (70 * b"x" + b"\r\n")
    async with milter(script={"B": SKIP}, steps=0x400) as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await send(client, message) == OK
        assert filter_.steps_seen() == "CHMRTLNBE"
        assert server.intake.content == message


async def test_a_message_without_header_is_body_to_the_milter() -> None:
    async with (
        milter(script={"E": add_header("X-New", b"1") + CONTINUE}) as filter_,
        session(filter_) as (server, client),
    ):
        await client.hello()
        assert await send(client, b"no header here\r\nat all\r\n") == OK
        assert filter_.headers() == []
        assert filter_.body() == b"no header here\r\nat all\r\n"
        assert server.intake.content == b"X-New: 1\r\n\r\nno header here\r\nat all\r\n"


async def test_commands_sent_in_one_piece_are_answered_in_order() -> None:
    async with milter(script={"R": [REJECT, CONTINUE]}) as filter_, session(filter_) as (server, client):
        await client.reply()
        await client.send(
            b"EHLO client.example\r\nMAIL FROM:<a@example.com>\r\n"
            b"RCPT TO:<no@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n"
            + MESSAGE
            + b".\r\nNOOP\r\nWRONG\r\nQUIT\r\n"
        )
        codes = [each[:3] for each in await client.replies(9)]
        assert codes == [b"250", b"250", b"550", b"250", b"354", b"250", b"250", b"500", b"221"]
        assert server.intake.content == MESSAGE
        assert [each.address for each in server.intake.messages[0][0].recipients] == ["b@example.org"]
        await eventually(lambda: not filter_.open)
        assert filter_.steps_seen() == "CHMRRTLLLLNBEUQ"


async def test_a_transaction_that_ends_early_is_aborted() -> None:
    async with milter() as filter_, session(filter_) as (_, client):
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RSET")
        await client.ask(b"NOOP")
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"EHLO again.example")
        assert filter_.steps_seen() == "CHMAMAH"


async def test_a_header_that_is_too_big_for_the_milters_is_refused() -> None:
    message = 20_000 * (b"X-Field: " + 60 * b"x" + b"\r\n") + b"\r\nbody\r\n"
    async with milter() as filter_, session(filter_) as (server, client):
        await client.hello()
        assert (await send(client, message)).startswith(b"552 5.3.4 ")
        assert server.intake.messages == []


async def test_the_client_that_xclient_names_is_the_client_of_the_milters() -> None:
    clients = Clients(xclient_networks=("127.0.0.0/8",))
    async with milter() as filter_, session(filter_, clients=clients, domains=("example.org",)) as (_, client):
        await client.hello()
        greeting = await client.ask(b"XCLIENT NAME=far.example ADDR=192.0.2.9 PORT=77")
        assert greeting.startswith(b"220 ")
        await client.ask(b"EHLO far.example")
        assert (await send(client)).startswith(b"250")
        connects = [data for code, data in filter_.seen if code == "C"]
        assert connects[-1] == b"far.example\x004\0\x4d192.0.2.9\0"
        assert len(connects) == 2
        assert filter_.macros["M"]["{client_addr}"] == "192.0.2.9"
        await client.ask(b"XCLIENT ADDR=[UNAVAILABLE]")
        assert [data for code, data in filter_.seen if code == "C"][-1] == b"unknown\0U\0"


async def test_a_listener_without_milters_has_a_session_that_knows_none() -> None:
    async with serving() as server:
        client = await server.ready()
        (made,) = server.server.sessions
        assert type(made).__name__ == "ServerSession"
        assert await send(client) == OK
