"""What clients send that the RFCs do not allow, or hardly, and how the conversation stands when they do.

A case is sent at once, with a QUIT behind it, so that the replies are complete when the server closes: no silence is timed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CASES", "Case"]

QUIT = b"QUIT\r\n"
DATA = (b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.org>", b"DATA")
LONG = 3_000  # longer than Postfix's line_length_limit (2048) and than our lines


class Case(NamedTuple):
    """``before``: commands whose replies are awaited one by one, after the greeting. ``sent``: the bytes that are compared."""

    name: str
    before: tuple[bytes, ...]
    sent: bytes


def _short(name: str) -> str:
    """The name with ``l...250`` for 250 times l."""
    return re.sub(r"((.{1,2}?)\2{9,})", lambda run: f"{run[2]}...{len(run[1]) // len(run[2])}", name)


def _hello(name: str, line: bytes) -> Case:
    return Case(name, (), line + b"\r\n" + QUIT)


def _command(name: str, sent: bytes) -> Case:
    return Case(name, (b"EHLO client.example",), sent + QUIT)


def _mail(argument: str) -> Case:
    return _command(_short(f"MAIL {argument}"), f"MAIL {argument}\r\n".encode())


def _rcpt(argument: str) -> Case:
    before = (b"EHLO client.example", b"MAIL FROM:<a@sender.example>")
    return Case(_short(f"RCPT {argument}"), before, f"RCPT {argument}\r\n".encode() + QUIT)


def _data(name: str, sent: bytes) -> Case:
    """``sent``: the message with the end that is tried; the right end comes behind it."""
    return Case(f"data: {name}", (b"EHLO client.example", *DATA), sent + b"\r\n.\r\n" + QUIT)


def _smuggled(end: str, octets: bytes) -> Case:
    return _data(f"{end} in the middle", b"Subject: x\r\n\r\nx" + octets + b"RSET\r\nx")


_HELLOS = [
    _hello("EHLO a b", b"EHLO a b"),
    _hello("HELO a b", b"HELO a b"),
    _hello("EHLO without a name", b"EHLO"),
    _hello("HELO without a name", b"HELO"),
    _hello("EHLO, a blank at the end", b"EHLO client.example "),
    _hello("EHLO, two blanks before the name", b"EHLO  client.example"),
    _hello("EHLO, a tab before the name", b"EHLO\tclient.example"),
    _hello("EHLO with a literal", b"EHLO [192.0.2.1]"),
    _hello("EHLO with a wrong literal", b"EHLO [192.0.2]"),
    _hello("EHLO a_b", b"EHLO a_b.example"),
    _hello("EHLO -a", b"EHLO -a.example"),
    _hello("EHLO a..b", b"EHLO a..b"),
    _hello("EHLO in UTF-8", "EHLO ä.example".encode()),
    _hello("EHLO in Latin-1", b"EHLO \xe4.example"),
    _hello("EHLO with 300 octets", b"EHLO " + b"x" * 300),
    _hello("ehlo in lower case", b"ehlo client.example"),
    _hello("EHLO ended by a bare LF, then an empty line", b"EHLO client.example\n"),
    _hello("MAIL before EHLO", b"MAIL FROM:<a@sender.example>"),
]
_MAILS = [
    _mail(argument)
    for argument in (
        "FROM:<>", "FROM: <>", "FROM:<> ", "FROM:< >", "FROM:", "FROM", "FROM:<", "FROM:>", "FROM <>", "from:<>",
        "FROM:<> SIZE=1",
        "FROM:<>SIZE=1", "FROM:<a@sender.example>", "FROM: <a@sender.example>", "FROM:   <a@sender.example>",
        "FROM :<a@sender.example>", "FROM:<a@sender.example>  SIZE=1", "FROM:<a@sender.example> SIZE=1 SIZE=1",
        "FROM:<a@sender.example> SIZE=x", "FROM:<a@sender.example> SIZE=-1", "FROM:<a@sender.example> SIZE=",
        "FROM:<a@sender.example> SIZE", "FROM:<a@sender.example> BODY=8bitmime", "FROM:<a@sender.example> BODY=9",
        "FROM:<a@sender.example> XYZ=1", "FROM:<a@sender.example> AUTH=<>", "FROM:<a@sender.example> RET=X",
        "FROM:<a@sender.example> ENVID=+x", "FROM:a@sender.example", "FROM:a@sender.example SIZE=1", "FROM:a", "FROM:<a>",
        "FROM:<a@>", "FROM:<@sender.example>", "FROM:<a..b@sender.example>", "FROM:<.a@sender.example>",
        "FROM:<a.@sender.example>",
        "FROM:<a@sender.example.>", "FROM:<a@sender..example>", "FROM:<a@.sender.example>", "FROM:<a@sender.example..>",
        "FROM:<a b@sender.example>", 'FROM:<"a b"@sender.example>', 'FROM:<"a@b"@sender.example>', 'FROM:<"a@sender.example>',
        'FROM:<"a\\"b"@sender.example>', 'FROM:<"a\\>b"@sender.example>', 'FROM:<""@sender.example>', "FROM:<a@[192.0.2.1]>",
        "FROM:<a@[192.0.2]>", "FROM:<a@192.0.2.1>", "FROM:<a@[IPv6:2001:db8::1]>", "FROM:<a@[IPv6:x]>",
        "FROM:<a@[2001:db8::1]>",
        "FROM:<a@[x-tag:y]>", "FROM:<@one.example:a@sender.example>", "FROM:<@one.example,@two.example:a@sender.example>",
        "FROM:<a@b@sender.example>", "FROM:<a%b@sender.example>", "FROM:<a!b@sender.example>", "FROM:<a,b@sender.example>",
        "FROM:<a;b@sender.example>", "FROM:<a(b)@sender.example>", "FROM:<a:b@sender.example>", "FROM:<<a@sender.example>>",
        "FROM:<a@sender.example", "FROM:a@sender.example>", "FROM:<a@sender.example>x", "FROM:A. Kim <a@sender.example>",
        "FROM:<a@-sender.example>", "FROM:<a@sender_x.example>", "FROM:<a@sender!x.example>", "FROM:<ä@sender.example>",
        "FROM:<ä@sender.example> SMTPUTF8", "FROM:<a@ä.example> SMTPUTF8", "FROM:<a@sender.example> SMTPUTF8=x",
        f"FROM:<{'l' * 64}@sender.example>", f"FROM:<{'l' * 65}@sender.example>", f"FROM:<{'l' * 250}@sender.example>",
        f"FROM:<a@{'d' * 64}.example>", f"FROM:<a@{'d.' * 140}example>", "TO:<a@sender.example>", "<a@sender.example>", "",
    )
]  # fmt: skip
_RCPTS = [
    _rcpt(argument)
    for argument in (
        "TO:<b@example.org>", "TO: <b@example.org>", "TO:   <b@example.org>", "TO :<b@example.org>",
        "to:<b@example.org>", "TO:<>",
        "TO:< >", "TO:", "TO", "", "TO:<b>", "TO:b", "TO:b@example.org", "TO:<b@>", "TO:<@example.org>", "TO:<postmaster>",
        "TO:<Postmaster>", "TO:<b..c@example.org>", "TO:<.b@example.org>", "TO:<b.@example.org>", "TO:<b@example.org.>",
        "TO:<b@example..org>", "TO:<b@.example.org>", "TO:<b@example.org..>", "TO:<b c@example.org>", 'TO:<"b c"@example.org>',
        'TO:<"b@c"@example.org>', 'TO:<"b%c"@example.org>', 'TO:<"b"@example.org>', 'TO:<""@example.org>',
        'TO:<"b@example.org>',
        "TO:<b@[192.0.2.1]>", "TO:<b@[192.0.2]>", "TO:<b@192.0.2.1>", "TO:<b@[IPv6:2001:db8::1]>", "TO:<b@[2001:db8::1]>",
        "TO:<b@[x]>", "TO:<@one.example:b@example.org>", "TO:<@one.example,@two.example:b@example.org>",
        "TO:<@one.example b@example.org>", "TO:<b@c@example.org>", "TO:<b%other.example@example.org>", "TO:<b%@example.org>",
        "TO:<%b@example.org>", "TO:<other.example!b@example.org>", "TO:<b@other.example>", "TO:<b%example.org@other.example>",
        "TO:<b,c@example.org>", "TO:<b@example.org>,<c@example.org>", "TO:<b@example.org> <c@example.org>", "TO:<b@example.org",
        "TO:b@example.org>", "TO:<b@example.org>x", "TO:<<b@example.org>>", "TO:B. Kim <b@example.org>", "TO:<|b@example.org>",
        "TO:<-b@example.org>", "TO:</b@example.org>", "TO:<b+c@example.org>", "TO:<b@example_x.org>", "TO:<b@EXAMPLE.ORG>",
        "TO:<ä@example.org>", "TO:<b@example.org> XYZ=1", "TO:<b@example.org> NOTIFY=X", "TO:<b@example.org> NOTIFY=NEVER",
        "TO:<b@example.org> NOTIFY=NEVER,SUCCESS", "TO:<b@example.org> ORCPT=b@example.org",
        "TO:<b@example.org> ORCPT=rfc822;b",
        "TO:<b@example.org> SIZE=1", f"TO:<{'l' * 65}@example.org>", f"TO:<{'l' * 250}@example.org>", "FROM:<b@example.org>",
    )
]  # fmt: skip
_COMMANDS = [
    _command("an empty line", b"\r\n"),
    _command("a line of blanks", b"   \r\n"),
    _command("a blank before NOOP", b" NOOP\r\n"),
    _command("a tab before NOOP", b"\tNOOP\r\n"),
    _command("a blank behind NOOP", b"NOOP \r\n"),
    _command("NOOP x", b"NOOP x\r\n"),
    _command("RSET x", b"RSET x\r\n"),
    _command("a blank behind RSET", b"RSET \r\n"),
    _command("QUIT x", b"QUIT x\r\n"),
    _command("VRFY a", b"VRFY a\r\n"),
    _command("VRFY a@sender.example", b"VRFY a@sender.example\r\n"),
    _command("VRFY without an address", b"VRFY\r\n"),
    _command("VRFY <>", b"VRFY <>\r\n"),
    _command("EXPN a", b"EXPN a\r\n"),
    _command("HELP", b"HELP\r\n"),
    _command("HELP x", b"HELP x\r\n"),
    _command("ETRN example.org", b"ETRN example.org\r\n"),
    _command("TURN", b"TURN\r\n"),
    _command("SEND FROM:<a@sender.example>", b"SEND FROM:<a@sender.example>\r\n"),
    _command("an unknown command", b"XYZZY\r\n"),
    _command("a command in lower case", b"noop\r\n"),
    _command("GET / HTTP/1.1", b"GET / HTTP/1.1\r\n"),
    _command("Subject: as a command", b"Subject: x\r\n"),
    # An empty line ends what a server may still refuse behind a bare LF.
    _command("NOOP ended by a bare LF, then an empty line", b"NOOP\n\r\n"),
    _command("two commands ended by bare LF, then an empty line", b"NOOP\nRSET\n\r\n"),
    _command("NOOP ended by a bare LF, then RSET", b"NOOP\nRSET\r\n"),
    _command("a bare CR inside a command", b"NOOP\rRSET\r\n"),
    _command("CR CR LF behind NOOP", b"NOOP\r\r\n"),
    _command("a NUL inside a command", b"NOOP a\0b\r\n"),
    _command("a NUL behind a command", b"NOOP\0\r\n"),
    _command("a control character inside a command", b"NOOP a\x01b\r\n"),
    _command("an overlong NOOP", b"NOOP " + b"x" * LONG + b"\r\n"),
    _command("an overlong MAIL", b"MAIL FROM:<a@sender.example> " + b"x" * LONG + b"\r\n"),
    _command("an overlong unknown command", b"x" * LONG + b"\r\n"),
    _command("NOOP with 1000 octets", b"NOOP " + b"x" * 993 + b"\r\n"),
    _command("RCPT before MAIL", b"RCPT TO:<b@example.org>\r\n"),
    _command("DATA before MAIL", b"DATA\r\n"),
    _command("MAIL twice", b"MAIL FROM:<a@sender.example>\r\nMAIL FROM:<b@sender.example>\r\n"),
    _command("EHLO between MAIL and RCPT", b"MAIL FROM:<a@sender.example>\r\nEHLO c\r\nRCPT TO:<b@example.org>\r\n"),
    _command("DATA without a recipient", b"MAIL FROM:<a@sender.example>\r\nDATA\r\n"),
    _command("the same recipient twice", b"MAIL FROM:<>\r\nRCPT TO:<b@example.org>\r\nRCPT TO:<b@example.org>\r\n"),
    _command("DATA x", b"MAIL FROM:<>\r\nRCPT TO:<b@example.org>\r\nDATA x\r\n"),
    _command("STARTTLS x", b"STARTTLS x\r\n"),
    _command("AUTH without a mechanism", b"AUTH\r\n"),
    _command("AUTH PLAIN where it is not offered", b"AUTH PLAIN AGEAYg==\r\n"),
    _command("BDAT without a size", b"BDAT\r\n"),
    _command("BDAT before MAIL", b"BDAT 3 LAST\r\nabc"),
    _command("XCLIENT from a client that may not", b"XCLIENT ADDR=192.0.2.1\r\n"),
]
_CHUNKS = [
    Case(f"BDAT: {name}", (b"EHLO client.example", *DATA[:2]), sent + QUIT)
    for name, sent in (
        ("a whole message", b"BDAT 17 LAST\r\nSubject: x\r\n\r\nx\r\n"),
        ("a message without a last CRLF", b"BDAT 15 LAST\r\nSubject: x\r\n\r\nx"),
        ("nothing", b"BDAT 0 LAST\r\n"),
        ("two chunks", b"BDAT 12\r\nSubject: x\r\nBDAT 5 LAST\r\n\r\nx\r\n"),
        ("a bare LF", b"BDAT 14 LAST\r\nSubject: x\n\nx\n"),
        ("a size with a sign", b"BDAT +3 LAST\r\n"),
        ("a size that is not a number", b"BDAT x LAST\r\n"),
        ("a word that is not LAST", b"BDAT 0 FIRST\r\n"),
        ("DATA behind it", b"BDAT 12\r\nSubject: x\r\nDATA\r\n"),
        ("RCPT behind it", b"BDAT 12\r\nSubject: x\r\nRCPT TO:<c@example.org>\r\n"),
        ("RSET behind it", b"BDAT 12\r\nSubject: x\r\nRSET\r\n"),
    )
]
_DATA = [
    _data("nothing but the end", b""),
    _data("a header only", b"Subject: x"),
    _data("no header", b"x"),
    _data("an empty line only", b"\r\n"),
    _data("8-bit data that was not announced", "Subject: x\r\n\r\nä".encode()),
    _data("a NUL", b"Subject: x\r\n\r\na\0b"),
    _data("a bare CR", b"Subject: x\r\n\r\na\rb"),
    _data("a bare LF", b"Subject: x\r\n\r\na\nb"),
    _data("a bare LF in the header", b"Subject: x\nFrom: a\r\n\r\nx"),
    _data("nothing but bare LF", b"Subject: x\n\nx\n"),
    _data("a line of 999 octets", b"Subject: x\r\n\r\n" + b"x" * 999),
    _data("a line of 3000 octets", b"Subject: x\r\n\r\n" + b"x" * LONG),
    _data("a line of 200000 octets", b"Subject: x\r\n\r\n" + b"x" * 200_000),
    _data("a header line of 3000 octets", b"Subject: " + b"x" * LONG + b"\r\n\r\nx"),
    _data("a header of 200000 octets", b"Subject: x\r\n" + b"X-Y: z\r\n" * 25_000 + b"\r\nx"),
    _data("60 Received fields", b"Received: x\r\n" * 60 + b"\r\nx"),
    _data("a dot that is not doubled", b"Subject: x\r\n\r\n.x"),
    _data("From_ at the top", b"From a@sender.example Mon Nov 23\r\nSubject: x\r\n\r\nx"),
    _data(">From_ at the top", b">From a@sender.example Mon Nov 23\r\nSubject: x\r\n\r\nx"),
    _smuggled("LF . LF", b"\n.\n"),
    _smuggled("LF . CR LF", b"\n.\r\n"),
    _smuggled("CR LF . LF", b"\r\n.\n"),
    _smuggled("CR . CR", b"\r.\r"),
    _smuggled("CR LF . CR", b"\r\n.\r"),
    _smuggled("CR . CR LF", b"\r.\r\n"),
    _smuggled("CR LF . CR CR LF", b"\r\n.\r\r\n"),
    _smuggled("CR LF NUL . CR LF", b"\r\n\0.\r\n"),
    _smuggled("CR LF . blank CR LF", b"\r\n. \r\n"),
    Case(
        "data: another command behind DATA in the same write",
        (b"EHLO client.example", *DATA[:2]),
        b"DATA\r\nSubject: x\r\n\r\nx\r\n.\r\nNOOP\r\n" + QUIT,
    ),
]
CASES = _HELLOS + _MAILS + _RCPTS + _COMMANDS + _CHUNKS + _DATA
