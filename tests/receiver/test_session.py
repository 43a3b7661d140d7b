"""A session's commands: the order of things, the replies, the limits. Real sockets."""

from __future__ import annotations

import pytest

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace
from tests.eventually import eventually
from tests.receiver.server_in_process import serving

MESSAGE = b"Subject: x\r\nMessage-ID: <1@example.com>\r\n\r\nbody\r\n"


async def test_a_message_goes_in_with_its_envelope() -> None:
    async with serving() as server:
        client = await server.client()
        assert await client.reply() == b"220 mx.example.net ESMTP Waypost\r\n"
        assert await client.ask(b"ehlo client.example") == (
            b"250-mx.example.net\r\n250-PIPELINING\r\n250-SIZE 52428800\r\n250-ENHANCEDSTATUSCODES\r\n"
            b"250-8BITMIME\r\n250-DSN\r\n250-SMTPUTF8\r\n250-DELIVERBY 60\r\n"
            b"250-MT-PRIORITY\r\n250-CHUNKING\r\n250-BINARYMIME\r\n250-LIMITS RCPTMAX=1000\r\n250 HELP\r\n"
        )
        assert await client.ask(b"MAIL FROM:<a@example.com> SIZE=100 BODY=8BITMIME") == b"250 2.1.0 Ok\r\n"
        assert await client.ask(b"RCPT TO:<b@example.org>") == b"250 2.1.5 Ok\r\n"
        assert await client.ask(b"DATA") == b"354 End data with <CR><LF>.<CR><LF>\r\n"
        await client.send(MESSAGE + b".\r\n")
        assert await client.reply() == b"250 2.0.0 Ok: queued as ID1\r\n"
        assert await client.ask(b"QUIT") == b"221 2.0.0 Bye\r\n"
        assert await client.rest() == b""
    ((envelope, more, data),) = server.intake.messages
    assert server.intake.content == MESSAGE
    assert more == ()
    assert (envelope.sender, envelope.recipients[0].address, envelope.recipient_count) == (
        "a@example.com",
        "b@example.org",
        1,
    )
    assert (envelope.helo, envelope.client_address, envelope.server_address) == (
        "client.example",
        "127.0.0.1",
        "127.0.0.1",
    )
    assert (envelope.eight_bit, envelope.smtputf8, envelope.tls) == (True, False, "")
    assert (envelope.message_id, envelope.size_bytes, envelope.data) == (
        "<1@example.com>",
        len(data),
        DataPlace.INLINE,
    )
    assert data.startswith(
        b"Received: from client.example (unknown [127.0.0.1])\r\n\tby mx.example.net (Waypost) with ESMTP"
    )
    assert b"\tfor <b@example.org>;" in data


async def test_commands_in_one_packet_get_their_replies_in_order() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(
            b"MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nRCPT TO:<bad>\r\nDATA\r\n" + MESSAGE + b".\r\n"
            b"MAIL FROM:<>\r\nRCPT TO:<c@example.org>\r\nDATA\r\n.\r\nNOOP\r\nQUIT\r\n"
        )
        codes = [reply[:3] for reply in await client.replies(11)]
        assert codes == [b"250", b"250", b"501", b"354", b"250", b"250", b"250", b"354", b"250", b"250", b"221"]
    assert [envelope.sender for envelope, _, _ in server.intake.messages] == ["a@example.com", ""]


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_a_conversation_may_be_cut_anywhere(size: int) -> None:
    conversation = (
        b"EHLO c\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n"
        b"X: y\r\n\r\n..dot\r\n.\r\n.\r\nNOOP\r\nQUIT\r\n"
    )
    async with serving() as server:
        client = await server.client()
        for at in range(0, len(conversation), size):
            await client.send(conversation[at : at + size])
        codes = [reply[:3] for reply in await client.replies(9)]
        assert codes == [b"220", b"250", b"250", b"250", b"354", b"250", b"500", b"250", b"221"]
    assert server.intake.content == b"X: y\r\n\r\n..dot\r\n"


async def test_commands_behind_the_data_wait_for_the_disk() -> None:
    async with serving() as server:
        server.intake.hold = True
        client = await server.ready()
        await client.to_data()
        await client.send(MESSAGE + b".\r\nNOOP\r\n")
        await eventually(lambda: server.intake.held)
        await client.send(b"QUIT\r\n")
        server.intake.release()
        assert [reply[:3] for reply in await client.replies(3)] == [b"250", b"250", b"221"]


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([b"MAIL FROM:<a@b>"], b"503 5.5.1"),
        ([b"EHLO c", b"RCPT TO:<a@b>"], b"503 5.5.1"),
        ([b"EHLO c", b"DATA"], b"503 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"DATA"], b"503 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"MAIL FROM:<a@b>"], b"503 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"RSET", b"RCPT TO:<a@b>"], b"503 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"EHLO c", b"RCPT TO:<a@b>"], b"503 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"RCPT TO:<x>", b"DATA"], b"554 5.5.1"),
        ([b"EHLO c", b"MAIL FROM:<a@b>", b"RCPT TO:<c@d>", b"DATA now"], b"501 5.5.4"),
        ([b"EHLO"], b"501 5.5.4"),
        ([b"EHLO a b"], b"501 5.5.4"),
        ([b"EHLO a\x01"], b"501 5.5.4"),
        ([b"HELO " + b"x" * 256], b"501 5.5.4"),
        ([b"HELO c"], b"250 mx.example.net"),
        ([b"HELO c", b"MAIL FROM:<a@b> SIZE=1"], b"555 5.5.4"),
        ([b"EHLO c", b"MAIL FROM:<a@b> SIZE=99999999999"], b"552 5.3.4"),
        ([b"NOOP"], b"250 2.0.0"),
        ([b"NOOP anything"], b"250 2.0.0"),
        ([b"RSET"], b"250 2.0.0"),
        ([b"RSET x"], b"501 5.5.4"),
        ([b"QUIT x"], b"221 2.0.0"),
        ([b"VRFY joe"], b"252 2.0.0"),
        ([b"VRFY"], b"501 5.5.4"),
        ([b"HELP"], b"214 2.0.0"),
        ([b"EXPN list"], b"502 5.5.1"),
        ([b"AUTH PLAIN"], b"503 5.5.1"),
        ([b"STARTTLS"], b"503 5.5.1"),
        ([b"FROB"], b"500 5.5.2"),
        ([b""], b"500 5.5.2"),
        ([b" NOOP"], b"250 2.0.0"),
        ([b"\t noop"], b"250 2.0.0"),
        ([b"NOOP\tx"], b"250 2.0.0"),
        ([b"EHLO \t c"], b"250-mx.example.net"),
        ([b" \tEHLO\tc "], b"250-mx.example.net"),
        ([b" \t"], b"500 5.5.2"),
        ([b" FROB"], b"500 5.5.2"),
        ([b"EHLO c", b"MAIL FROM:<a@192.0.2.1>"], b"501 5.1.7"),
        ([b"EHLO c", b"MAIL FROM:<a@25>"], b"501 5.1.7"),
        ([b"EHLO c", b"MAIL FROM:<a@b.25x>"], b"250 2.1.0"),
        ([b"Subject: x"], b"221 2.7.0"),
        ([b":"], b"500 5.5.2"),
        ([b"NO\0OP"], b"500 5.5.2"),
        ([b"\xff\xfe"], b"500 5.5.2"),
        ([b"GET / HTTP/1.1"], b"221 2.7.0"),
    ],
)
async def test_the_reply_to_a_command(commands: list[bytes], code: bytes) -> None:
    async with serving() as server:
        client = await server.client()
        await client.reply()
        *before, last = commands
        for command in before:
            await client.ask(command)
        assert (await client.ask(last)).startswith(code)


async def test_a_bare_lf_ends_no_command() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(b"MAIL FROM:<a@example.com>\nRCPT TO:<b@example.org>\r\nNOOP\r\n")
        assert (await client.reply()).startswith(b"500 5.5.2")
        assert (await client.reply()).startswith(b"500 5.5.2")  # it begins behind a bare LF
        assert (await client.reply()).startswith(b"250")


async def test_a_line_too_long_is_refused_and_the_next_one_is_heard() -> None:
    async with serving(command_line_limit=512) as server:
        client = await server.ready()
        await client.send(b"NOOP " + b"x" * 505 + b"\r\n" + b"NOOP " + b"x" * 506 + b"\r\nNOOP\r\n")
        assert [reply[:9] for reply in await client.replies(3)] == [b"250 2.0.0", b"500 5.5.2", b"250 2.0.0"]
        for piece in (b"x" * 600, b"y" * 100_000, b"\r", b"\nNOOP\r\n"):
            await client.send(piece)
        assert [reply[:3] for reply in await client.replies(2)] == [b"500", b"250"]


async def test_recipients_are_counted_and_each_taken_once() -> None:
    async with serving(recipient_limit=2) as server:
        client = await server.ready()
        await client.ask(b"MAIL FROM:<a@example.com>")
        replies = [await client.ask(b"RCPT TO:<%c@example.org>" % name) for name in b"aabbca"]
        assert [reply[:9] for reply in replies] == [b"250 2.1.5"] * 4 + [b"452 4.5.3", b"250 2.1.5"]
        await client.ask(b"DATA")
        await client.send(MESSAGE + b".\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert [each.address for each in envelope.recipients] == ["a@example.org", "b@example.org"]
    assert b"\tfor <" not in data


async def test_many_recipients_leave_the_envelope() -> None:
    count = 2 * RECIPIENTS_PER_RECORD + 1
    async with serving(recipient_limit=count) as server:
        client = await server.ready()
        await client.send(
            b"MAIL FROM:<>\r\n" + b"".join(b"RCPT TO:<r%d@example.org>\r\n" % n for n in range(count)) + b"DATA\r\n"
        )
        assert {reply[:3] for reply in await client.replies(count + 1)} == {b"250"}
        assert (await client.reply()).startswith(b"354")
        await client.send(b".\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, more, _),) = server.intake.messages
    assert (len(envelope.recipients), envelope.recipient_count, len(more)) == (
        RECIPIENTS_PER_RECORD,
        count,
        count - 1000,
    )
    assert [each.number for each in (*envelope.recipients, *more)] == list(range(count))


async def test_too_many_errors_end_the_session() -> None:
    async with serving(error_limit=3) as server:
        client = await server.ready()
        await client.send(b"FROB\r\nFROB\r\nFROB\r\nNOOP\r\n")
        assert [reply[:3] for reply in await client.replies(4)] == [b"500", b"500", b"500", b"421"]
        assert await client.rest() == b""


async def test_mail_makes_errors_forgotten() -> None:
    async with serving(error_limit=2) as server:
        client = await server.ready()
        for _ in range(3):
            assert (await client.ask(b"FROB")).startswith(b"500")
            await client.to_data()
            await client.send(MESSAGE + b".\r\n")
            assert (await client.reply()).startswith(b"250")


async def test_endless_noops_are_errors() -> None:
    async with serving(error_limit=2) as server:
        client = await server.ready()
        await client.send(b"NOOP\r\n" * 200)
        assert (await client.rest()).endswith(b"421 4.7.0 mx.example.net Error: too many errors\r\n")


async def test_a_stranger_may_not_relay_and_it_is_recorded() -> None:
    async with serving(networks=(), domains=("example.org",)) as server:
        client = await server.ready()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert await client.ask(b"RCPT TO:<joe@other.example>") == (
            b"554 5.7.1 <joe@other.example>: Relay access denied\r\n"
        )
        assert (await client.ask(b"RCPT TO:<joe@example.org>")).startswith(b"250")
        assert (await client.ask(b"RCPT TO:<postmaster>")).startswith(b"554 5.7.1")  # our name is no relay domain here
    first = server.intake.refusals[0]
    assert (first.stage, first.sender, first.recipient, first.helo) == (
        "RCPT",
        "a@example.com",
        "joe@other.example",
        "client.example",
    )


async def test_postmaster_is_at_home_here() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.to_data(b"a@example.com", b"Postmaster")
        await client.send(MESSAGE + b".\r\n")
        assert (await client.reply()).startswith(b"250")
    assert server.intake.messages[0][0].recipients[0].address == "Postmaster@mx.example.net"


async def test_addresses_in_their_own_script_need_smtputf8() -> None:
    async with serving() as server:
        client = await server.ready()
        assert (await client.ask("MAIL FROM:<ä@example.com>".encode())).startswith(b"553 5.6.7")
        assert (await client.ask("MAIL FROM:<ä@example.com> SMTPUTF8".encode())).startswith(b"250")
        assert (await client.ask("RCPT TO:<ö@example.org>".encode())).startswith(b"250")
        await client.ask(b"DATA")
        await client.send(MESSAGE + b".\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.sender, envelope.smtputf8) == ("ä@example.com", True)
    assert b"with UTF8SMTP id" in data
    assert "for <ö@example.org>".encode() in data


@pytest.mark.parametrize("where", ["store", "MAIL"])
async def test_a_bug_of_ours_is_a_451_that_tells_nothing(where: str) -> None:
    async with serving() as server:
        client = await server.ready()
        if where == "store":
            server.intake.raises = OSError("secret path")
            await client.to_data()
            await client.send(MESSAGE + b".\r\n")
            reply = await client.reply()
        else:
            server.intake.unavailable = None  # type: ignore[method-assign,assignment]
            reply = await client.ask(b"MAIL FROM:<a@example.com>")
        assert reply == b"451 4.3.0 Error: internal error\r\n"
        assert (await client.ask(b"NOOP")).startswith(b"250")
    assert len(server.intake.failures) == 1


async def test_no_room_no_mail() -> None:
    async with serving() as server:
        server.intake.mail_reply = b"452 4.3.1 Insufficient system storage"
        client = await server.ready()
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"452 4.3.1")
        server.intake.mail_reply = b""
        await client.to_data()
        server.intake.reply = b"451 4.3.0 Error: queue file write error"
        await client.send(MESSAGE + b".\r\n")
        assert (await client.reply()).startswith(b"451 4.3.0")
        assert (await client.ask(b"NOOP")).startswith(b"250")
    assert [refusal.stage for refusal in server.intake.refusals] == ["MAIL", "END-OF-MESSAGE"]


@pytest.mark.parametrize(
    ("parameter", "reply"),
    [(b"AUTH=<>", b"250 2.1.0"), (b"AUTH=a@b", b"503 5.5.4"), (b"AUTH=", b"501 5.5.4"), (b"AUTH", b"503 5.5.4"),
     (b"AUTH=<> AUTH=<>", b"501 5.5.4"), (b"RCPTMAX=5", b"555 5.5.4"), (b"LIMITS", b"555 5.5.4")],
)  # fmt: skip
async def test_auth_that_claims_nothing_is_ignored_where_no_client_can_log_in(parameter: bytes, reply: bytes) -> None:
    async with serving(recipient_limit=7) as server:
        client = await server.client()
        await client.reply()
        assert b"250-CHUNKING\r\n250-BINARYMIME\r\n250-LIMITS RCPTMAX=7\r\n" in await client.ask(b"EHLO client.example")
        assert (await client.ask(b"MAIL FROM:<a@example.com> " + parameter)).startswith(reply)


@pytest.mark.parametrize(
    ("priority", "trusted", "reply"),
    [
        (b"3", False, b"250 2.3.6 0 is"),
        (b"-3", False, b"250 2.3.6 0 is"),
        (b"0", False, b"250 2.1.0"),
        (b"3", True, b"250 2.1.0"),
    ],
)
async def test_a_client_hears_that_its_priority_does_not_count(priority: bytes, trusted: bool, reply: bytes) -> None:
    async with serving(networks=("127.0.0.0/8",) if trusted else (), domains=("example.org",)) as server:
        client = await server.ready()
        assert (await client.ask(b"MAIL FROM:<a@example.com> MT-PRIORITY=" + priority)).startswith(reply)
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
