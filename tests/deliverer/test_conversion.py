"""8-bit mail to a next hop without 8BITMIME: converted and signed on its way, returned, or sent as it is, by setting."""

from __future__ import annotations

import email
import time
from dataclasses import dataclass
from pathlib import Path

import dkim
import msgspec
import pytest

from mailcore.config.dkim import DkimKey
from mailcore.deliverer.conversion import Conversion
from mailcore.deliverer.message_data import DamagedError
from mailcore.deliverer.signing import Signing
from mailcore.dkim.key import SigningKey, new_key
from mailcore.log.data_blocks import sums_of
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.scripted_server import Answer, ScriptedServer, serving

SEVEN = ("PIPELINING", "SIZE 50000000")
HEADER = b"From: a@example.org\r\nSubject: x\r\nMIME-Version: 1.0\r\n"
TEXT = HEADER + b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
SMALL = TEXT + "..ein Punkt, ä und viel mehr Text\r\n".encode()
SIGNED = (
    HEADER
    + b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n\xc3\xa4\r\n--b\r\n"
    + b"Content-Type: application/pgp\r\n\r\nx\r\n--b--\r\n"
)
BIG_PARTS = ("Grüße, .\r\n.\r\n" * 60_000).encode(), bytes(range(14, 256)) * 4_000


def big() -> bytes:
    """Stored: with stuffed dots."""
    text, other = BIG_PARTS
    return (
        HEADER
        + b"Content-Type: multipart/mixed; boundary=outer\r\nContent-Transfer-Encoding: 8bit\r\n\r\n--outer\r\n"
        + b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
        + (b"\r\n" + text).replace(b"\r\n.", b"\r\n..")[2:]
        + b"--outer\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        + other
        + b"\r\n--outer--\r\n"
    )


def received(server: ScriptedServer) -> bytes:
    """The message as a server takes it, without stuffed dots."""
    (message,) = server.messages
    return (b"\r\n" + message.data).replace(b"\r\n..", b"\r\n.")[2:]


@pytest.mark.parametrize("keywords", [SEVEN, ("CHUNKING",), None], ids=["pipelining", "one by one", "HELO"])
async def test_text_is_converted_for_a_server_that_takes_seven_bits(
    tmp_path: Path, keywords: tuple[str, ...] | None
) -> None:
    answers: dict[str, Answer | list[Answer]] = {} if keywords is not None else {"EHLO": b"502 5.5.2 no\r\n"}
    async with serving(ScriptedServer(answers, keywords=keywords or ())) as server:
        sender = Sender(tmp_path, server.port)
        result = await sender.send(body=SMALL, eight_bit=True)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    message = received(server)
    assert message == TEXT.replace(b"8bit", b"quoted-printable") + b".ein Punkt, =C3=A4 und viel mehr Text\r\n"
    (mail,) = [line for line in server.sessions[0].lines if line.startswith("MAIL")]
    assert mail == "MAIL FROM:<from@example.net>" + (
        f" SIZE={len(server.messages[0].data)}" if keywords == SEVEN else ""
    )


async def test_damaged_data_is_not_converted(tmp_path: Path) -> None:
    data = big()
    async with serving(ScriptedServer(keywords=SEVEN)) as server:
        sender = Sender(tmp_path, server.port)
        work = sender.work(body=data, eight_bit=True)
        stored = sender.open(work, sums_of(data))
        result, fault = await sender.client.deliver(work, stored)
        assert (outcomes(result), fault) == ([("delivered", "2.0.0")], None)
        sender.change(work, 900_000)
        server.messages.clear()
        with pytest.raises(DamagedError):  # before anything is sent
            await sender.client.deliver(work, sender.open(work, sums_of(data)))
        assert outcomes(await sender.send(body=SMALL)) == [("delivered", "2.0.0")]
        sender.close()
        assert [len(message.data) < 1000 for message in server.messages] == [True]


async def test_what_arrives_of_big_data_is_what_was_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=SEVEN)) as server:
        sender = Sender(tmp_path, server.port)
        result = await sender.send(body=big(), eight_bit=True)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    message = received(server)
    assert message.isascii()
    parsed = email.message_from_bytes(message)
    assert parsed["Content-Transfer-Encoding"] == "7bit"
    decoded = [part.get_payload(decode=True) for part in parsed.get_payload()]  # type: ignore[union-attr]
    assert decoded == [BIG_PARTS[0][:-2], BIG_PARTS[1]]


async def test_mail_in_seven_bits_goes_as_it_is(tmp_path: Path) -> None:
    data = SIGNED.replace(b"\xc3\xa4", b"a =20 ")
    async with serving(ScriptedServer(keywords=SEVEN)) as server:
        result = await Sender(tmp_path, server.port).send(body=data, eight_bit=True)
    assert outcomes(result) == [("delivered", "2.0.0")]
    assert received(server) == data


async def test_a_signed_part_with_eight_bits_is_returned_and_not_changed(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=SEVEN)) as server:
        sender = Sender(tmp_path, server.port)
        result = await sender.send("a@example.org", "b@example.org", body=SIGNED)
        again = await sender.send(body=SMALL)  # the connection is as good as before
        sender.close()
    assert outcomes(result) == [("bounced", "5.6.5")] * 2
    assert words(result).startswith(
        "cannot convert the message to 7 bits for host mx.example.org[127.0.0.1]: a part of type"
    )
    assert outcomes(again) == [("delivered", "2.0.0")]
    assert (len(server.messages), len(server.sessions)) == (1, 1)


@pytest.mark.parametrize(("mode", "outcome"), [("bounce", ("bounced", "5.6.3")), ("off", ("delivered", "2.0.0"))])
async def test_a_setting_returns_such_mail_or_sends_it_as_it_is(
    tmp_path: Path, mode: str, outcome: tuple[str, str]
) -> None:
    async with serving(ScriptedServer(keywords=SEVEN)) as server:
        sender = Sender(tmp_path, server.port, conversion=Conversion({"smtp": mode}))
        assert outcomes(await sender.send(body=SMALL)) == [outcome]
        assert outcomes(await sender.send(body=SMALL.replace("ä".encode(), b"a"))) == [("delivered", "2.0.0")]
        sender.close()
    assert [message.data.isascii() for message in server.messages] == ([True] if mode == "bounce" else [False, True])


@dataclass
class OwnDomain:
    """A domain of ours with a key, and the DNS of a verifier."""

    signing: Signing
    key: SigningKey

    def is_signed(self, message: bytes) -> bool:
        record = self.key.record.encode()
        return bool(dkim.verify(message, dnsfunc=lambda name, timeout=5: record))


@pytest.fixture
def domain(tmp_path: Path) -> OwnDomain:
    path = tmp_path / "key.pem"
    key = new_key("rsa")
    path.write_bytes(key.pem)
    path.chmod(0o600)
    keys = [DkimKey(domain="example.org", selector="s", key=str(path))]
    return OwnDomain(Signing(keys, lambda *_: None, time.monotonic, time.time), key)


@pytest.mark.parametrize("data", [SMALL, big()], ids=["small", "big"])
async def test_our_signature_is_of_what_is_sent(tmp_path: Path, domain: OwnDomain, data: bytes) -> None:
    for keywords in (SEVEN, (*SEVEN, "8BITMIME")):
        async with serving(ScriptedServer(keywords=keywords)) as server:
            sender = Sender(tmp_path, server.port, conversion=Conversion({}, domain.signing))
            work = msgspec.structs.replace(sender.work(body=data, eight_bit=True), is_ours=True)
            stored = sender.open(work)
            result, _ = await sender.client.deliver(work, await domain.signing.sign(work.path, work.offset, stored))
            sender.close()
        assert outcomes(result) == [("delivered", "2.0.0")]
        message = received(server)
        assert message.isascii() == (keywords == SEVEN)
        assert message.count(b"DKIM-Signature:") == 1
        assert domain.is_signed(message)
