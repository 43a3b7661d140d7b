"""Messages of real shapes and sizes, the same again for the same seed.

Each message's first line is its id (``X-Ledger-Id:``), so that the lab compares every byte from there on; the one shape
that has no header at all is known by its sender. A message is made when it is sent and not kept, so that big ones do
not add up. Nothing here has a bare CR, a bare LF or a NUL: those are for the receiver's own tests.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["SHAPES", "Corpus", "Message"]

MEGABYTE = 1_000_000
LINE = 76  # RFC 2045 6.7, 6.8: what mail clients write
WORDS = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "seven",
    "wizards",
    "vex",
    "dozen",
    "jugs",
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send. ``data`` is what a client has, unstuffed, perhaps without a final newline."""

    number: int
    shape: str
    size_bytes: int  # about; what the builder aims at
    recipients: tuple[str, ...]
    eight_bit: bool
    seed: int

    def sender(self, ledger_id: str) -> str:
        return f"{ledger_id}@sender.example"

    def data(self, ledger_id: str) -> bytes:
        chance = random.Random(self.seed)
        body = SHAPES[self.shape](chance, self.size_bytes)
        return body if self.shape == "headless" else b"X-Ledger-Id: " + ledger_id.encode() + b"\r\n" + body


@dataclass(frozen=True, slots=True)
class Corpus:
    """``count`` messages; ``big`` of them above 10 MB, and one of 30 MB when there is at least one big one."""

    count: int
    seed: int
    big: int = 0
    domains: tuple[str, ...] = ("example.org",)
    recipients_max: int = 60  # of one message; now and then more than one transaction takes

    def __iter__(self) -> Iterator[Message]:
        chance = random.Random(self.seed)
        every = self.count // self.big if self.big else 0
        names = list(SHAPES)
        for number in range(self.count):
            shape, size = chance.choice(names), self._size(chance)
            if every and number % every == every // 2 and number // every < self.big:
                shape = chance.choice(("multipart", "eight_bit", "dots"))
                size = 30 * MEGABYTE if number // every == 0 else chance.randrange(10, 14) * MEGABYTE + 500_000
            many = self._recipient_count(chance) if size < MEGABYTE else 1
            yield Message(
                number=number,
                shape=shape,
                size_bytes=size,
                recipients=tuple(f"r{number}.{each}@{chance.choice(self.domains)}" for each in range(many)),
                eight_bit=shape in EIGHT_BIT,
                seed=chance.getrandbits(62),
            )

    def _size(self, chance: random.Random) -> int:
        if chance.random() < 0.05:  # around 64 kB, where data leaves the log for the spool
            return 65_536 + chance.randrange(-200, 200)
        return min(MEGABYTE, int(200 + chance.lognormvariate(7.5, 1.6)))

    def _recipient_count(self, chance: random.Random) -> int:
        dice = chance.random()
        if dice < 0.85:
            return 1
        return chance.randrange(2, 6) if dice < 0.99 else self.recipients_max


def _text(chance: random.Random, size: int) -> bytes:
    """Lines of words, CRLF, some ``size`` bytes; big ones repeat a block, which costs no time to make."""
    lines = []
    length = 0
    aim = min(size, 20_000)
    while length < aim:
        line = " ".join(chance.choices(WORDS, k=12))[:LINE]
        lines.append(line)
        length += len(line) + 2
    block = ("\r\n".join(lines) + "\r\n").encode()
    return (block * (size // len(block) + 1))[: max(size, LINE)].rsplit(b"\r\n", 1)[0] + b"\r\n"


def _header(chance: random.Random, *more: bytes) -> bytes:
    fields = [
        b"From: =?utf-8?q?J=C3=BCrgen?= <juergen@sender.example>",
        b"To: undisclosed-recipients:;",
        b"Subject: " + b" ".join(word.encode() for word in chance.choices(WORDS, k=5)),
        b"Message-ID: <%016x@sender.example>" % chance.getrandbits(64),
        b"Date: Fri, 20 Nov 2026 09:30:00 +0100",
        *more,
    ]
    return b"\r\n".join(fields) + b"\r\n"


def plain(chance: random.Random, size: int) -> bytes:
    return _header(chance) + b"\r\n" + _text(chance, size)


def header_only(chance: random.Random, size: int) -> bytes:
    """No blank line, no body."""
    del size
    return _header(chance)


def empty_body(chance: random.Random, size: int) -> bytes:
    del size
    return _header(chance) + b"\r\n"


def headless(chance: random.Random, size: int) -> bytes:
    """Begins with the blank line: no header at all, so no id line either."""
    return b"\r\n" + _text(chance, size)


def blank_lines(chance: random.Random, size: int) -> bytes:
    return (
        _header(chance)
        + b"\r\n" * chance.randrange(2, 50)
        + _text(chance, size // 2)
        + b"\r\n \r\n\t\r\n"
        + b"\r\n" * 9
    )


def no_final_newline(chance: random.Random, size: int) -> bytes:
    return _header(chance) + b"\r\n" + _text(chance, size).removesuffix(b"\r\n")


def final_dot(chance: random.Random, size: int) -> bytes:
    """Ends in a line that is one dot, without a newline."""
    return _header(chance) + b"\r\n" + _text(chance, size) + b"."


def dots(chance: random.Random, size: int) -> bytes:
    """Every way a line can begin with dots, the end of data itself included."""
    odd = [b".", b"..", b"...", b". ", b".x", b"..x", b" .", b".\t", b"", b".." * 40, b"QUIT", b".", b"."]
    chance.shuffle(odd)
    block = b"\r\n".join(odd) + b"\r\n" + _text(chance, 300)
    return _header(chance) + b"\r\n" + block * max(1, size // len(block))


def long_lines(chance: random.Random, size: int) -> bytes:
    """Above RFC 5321's 998, as real senders write them; in the header, too."""
    line = bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz .,<>=\"'", k=max(1_200, min(size, 150_000))))
    return _header(chance, b"X-Long: " + line[:4_000]) + b"\r\n" + line + b"\r\n." + line[:999] + b"\r\nshort\r\n"


def eight_bit(chance: random.Random, size: int) -> bytes:
    """UTF-8, Latin-1 and bytes of no character set, in the body; raw UTF-8 in the Subject, as many send it."""
    high = bytes(byte for byte in range(1, 256) if byte not in (0x0A, 0x0D))
    block = "Grüße aus Köln, 日本語\r\n".encode() + "Fuß\r\n".encode("latin-1") + high + b"\r\n"
    head = _header(chance, "X-Note: für Jürgen".encode(), b"Content-Transfer-Encoding: 8bit")
    return head + b"\r\n" + block * max(1, size // len(block))


def quoted_printable(chance: random.Random, size: int) -> bytes:
    text = _text(chance, size).replace(b"jugs", b"jugs=20=\r\n").replace(b"fox", b"f=C3=B6x")
    return _header(chance, b"Content-Transfer-Encoding: quoted-printable") + b"\r\n" + text


def multipart(chance: random.Random, size: int) -> bytes:
    """Text, HTML and an attachment in base64."""
    boundary = b"=_%016x" % chance.getrandbits(64)
    attachment = base64.encodebytes(chance.randbytes(max(100, size * 70 // 100))).replace(b"\n", b"\r\n")
    head = _header(chance, b"MIME-Version: 1.0", b'Content-Type: multipart/mixed;\r\n\tboundary="' + boundary + b'"')
    parts = [
        b"Content-Type: text/plain\r\n\r\n" + _text(chance, 300),
        b"Content-Type: text/html\r\n\r\n<p>" + _text(chance, 300) + b"</p>\r\n",
        b'Content-Type: application/pdf; name="x.pdf"\r\nContent-Transfer-Encoding: base64\r\n\r\n' + attachment,
    ]
    between = b"--" + boundary + b"\r\n"
    return head + b"\r\nThis is MIME.\r\n" + between + between.join(parts) + b"--" + boundary + b"--\r\n"


def forwarded(chance: random.Random, size: int) -> bytes:
    """Came a long way: trace fields and signatures of its own, folded header lines."""
    received = b"".join(
        b"Received: from mx%d.example.net (mx%d.example.net [192.0.2.%d])\r\n"
        b"\tby relay.example.net (Postfix) with ESMTPS id %X\r\n"
        b"\tfor <x@example.org>; Fri, 20 Nov 2026 08:00:00 +0000 (UTC)\r\n" % (hop, hop, hop, chance.getrandbits(40))
        for hop in range(chance.randrange(2, 9))
    )
    signature = (
        b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/simple; d=example.net;\r\n  h=from:to;\r\n  b=" + b"Ab/+" * 40
    )
    return received + _header(chance, signature) + b"\r\n" + _text(chance, size)


SHAPES: dict[str, Callable[[random.Random, int], bytes]] = {
    "plain": plain,
    "header_only": header_only,
    "empty_body": empty_body,
    "headless": headless,
    "blank_lines": blank_lines,
    "no_final_newline": no_final_newline,
    "final_dot": final_dot,
    "dots": dots,
    "long_lines": long_lines,
    "eight_bit": eight_bit,
    "quoted_printable": quoted_printable,
    "multipart": multipart,
    "forwarded": forwarded,
}
EIGHT_BIT = frozenset({"eight_bit"})
