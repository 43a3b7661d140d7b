"""Hostile commands: their syntax and order, lines, addresses, parameters, limits, and other protocols."""

from __future__ import annotations

from tests.receiver.hostile_case import DATA, EHLO, MAIL, RCPT, TO_DATA, Case, Do, End, case
from tests.receiver.test_proxy_header import binary, text

UNKNOWN, SYNTAX, CONTROL = "500 5.5.2", "501 5.5.4", "500 5.5.2 Error: bad syntax"
SENDER, RECIPIENT = "501 5.1.7", "501 5.1.3"

VERBS: tuple[Case, ...] = (
    case("an empty line", (b"\r\n", UNKNOWN)),
    case("blanks only", (b"   \r\n", UNKNOWN)),
    case("a blank before the verb", (b" NOOP\r\n", "250 2.0.0")),
    case("a tab behind the verb", (b"NOOP\tx\r\n", "250 2.0.0")),
    case("an unknown verb", (b"FROB x\r\n", UNKNOWN)),
    case("a verb of 8-bit bytes", (b"\xff\xfe\xfd\r\n", UNKNOWN)),
    case("a verb in full-width letters", ("ＮＯＯＰ\r\n".encode(), UNKNOWN)),
    case("a verb that Unicode would fold (U+017F)", ("REſET\r\nRſET\r\n".encode(), f"{UNKNOWN} / {UNKNOWN}")),
    case("a verb without its last letter", (b"MAI FROM:<a@b>\r\n", UNKNOWN)),
    case("a verb run into its argument", (b"EHLOclient.example\r\n", UNKNOWN)),
    case("the name of a method of Python", (b"__init__\r\nsmtp_NOOP\r\n", f"{UNKNOWN} / {UNKNOWN}")),
    case("RSET with an argument", (b"RSET now\r\n", SYNTAX)),
    case("DATA with an argument", MAIL, RCPT, (b"DATA now\r\n", SYNTAX)),
    case("QUIT with an argument", (b"QUIT now\r\n", "221 2.0.0"), end=End.CLOSED),
    case("STARTTLS with an argument", (b"STARTTLS now\r\n", SYNTAX), at="tls"),
    case("EXPN of a list", (b"EXPN all\r\n", "502 5.5.1")),
    case("TURN", (b"TURN\r\n", "502 5.5.1")),
    case("VRFY tells nothing", (b"VRFY root\r\nVRFY no-such-user\r\n", "252 2.0.0 / 252 2.0.0")),
    case("HTTP", (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "221 2.7.0"), end=End.CLOSED, hello=False),
    case("HTTP that posts a mail", (b"POST / HTTP/1.1\r\n\r\nEHLO x\r\nMAIL FROM:<>\r\n", "221 2.7.0"), end=End.CLOSED),
    case("HTTP CONNECT", (b"CONNECT mx:25 HTTP/1.1\r\n", "221 2.7.0"), end=End.CLOSED, hello=False),
    case("SSH", (b"SSH-2.0-OpenSSH_9.2\r\n", UNKNOWN), hello=False),
    case("a TLS ClientHello in the clear", (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n", UNKNOWN), hello=False),
)

ORDER: tuple[Case, ...] = (
    case("MAIL before EHLO", (b"MAIL FROM:<a@b>\r\n", "503 5.5.1"), hello=False),
    case("RCPT before MAIL", (b"RCPT TO:<a@b>\r\n", "503 5.5.1")),
    case("DATA before MAIL", (b"DATA\r\n", "503 5.5.1")),
    case("DATA before RCPT", MAIL, (b"DATA\r\n", "503 5.5.1")),
    case("DATA when every recipient was refused", MAIL, (b"RCPT TO:<bad>\r\nDATA\r\n", f"{RECIPIENT} / 554 5.5.1")),
    case("MAIL in a transaction", MAIL, (b"MAIL FROM:<x@example.com>\r\n", "503 5.5.1")),
    case("EHLO in a transaction ends it", MAIL, RCPT, EHLO, (b"DATA\r\n", "503 5.5.1")),
    case("RSET before EHLO does not greet", (b"RSET\r\nMAIL FROM:<>\r\n", "250 2.0.0 / 503 5.5.1"), hello=False),
    case("a refused MAIL begins nothing", (b"MAIL FROM:<a\r\nRCPT TO:<b@example.org>\r\n", f"{SENDER} / 503 5.5.1")),
    case("a refused EHLO keeps the transaction", MAIL, (b"EHLO\r\n", SYNTAX), RCPT, DATA, (b"x\r\n.\r\n", "250 2.0.0"),
         stored=(b"x\r\n",)),
    case("QUIT in a transaction", MAIL, RCPT, (b"QUIT\r\nDATA\r\n", "221 2.0.0"), end=End.CLOSED),
    case("two EHLO at once, the second with no name", (b"EHLO a\r\nEHLO\r\n", f"250-mx / {SYNTAX}")),
    case("a client that speaks before the greeting", MAIL, RCPT),
)  # fmt: skip

LINES: tuple[Case, ...] = (
    case("a bare LF between two commands", (b"NOOP\nNOOP\r\n", f"{UNKNOWN} / {UNKNOWN}")),
    case("a bare LF is answered at once", (b"NOOP\n", UNKNOWN), (b"\r\n", UNKNOWN)),
    case("a bare LF cut from its line", (b"NOOP", ""), (b"\n", UNKNOWN), (b"\r\n", UNKNOWN)),
    case("LF CR", (b"NOOP\n\rNOOP\r\n", f"{UNKNOWN} / {CONTROL}")),
    case("a bare CR", (b"NOOP\rNOOP\r\n", CONTROL)),
    case("two CR before the LF", (b"NOOP\r\r\n", CONTROL)),
    case("a NUL in the verb", (b"NO\0OP\r\n", CONTROL)),
    case("a NUL behind the verb", (b"NOOP\0\r\n", CONTROL)),
    case("a NUL in an address", (b"MAIL FROM:<a\0@example.com>\r\n", CONTROL)),
    case("a smuggled RCPT behind a bare LF", MAIL, (b"RCPT TO:<b@example.org>\nDATA\r\n", f"{UNKNOWN} / {UNKNOWN}"),
         (b"DATA\r\n", "503 5.5.1")),
    case("a line one byte too long", (b"NOOP " + b"x" * 506 + b"\r\n", UNKNOWN), at="small"),
    case("a line of a million bytes", (b"A" * 1_000_000, ""), (b"\r\n", UNKNOWN), at="small"),
    case("a line too long that ends with a bare LF", (b"A" * 10_000 + b"\n", UNKNOWN), (b"\r\n", UNKNOWN),
         at="small"),
    case("a line too long with a command behind a bare CR", (b"A" * 10_000 + b"\rNOOP\r\n", UNKNOWN), at="small"),
    case("a line too long whose CRLF is cut", (b"A" * 10_000, ""), (b"\r", ""), (b"\n", UNKNOWN), at="small"),
    case("a line without end", (b"MAIL FROM:<", ""), end=End.SILENT),
    case("CR at the end of what comes", (b"NOOP\r", ""), (b"\n", "250 2.0.0")),
    case("an address with backspaces", (b"MAIL FROM:<a\x08\x08@example.com>\r\n", SENDER)),
    case("an escape sequence in HELO", (b"HELO \x1b[2J\r\n", SYNTAX)),
    case("8-bit bytes in HELO", (b"HELO \xc3\xa9\r\n", SYNTAX)),
    case("two names in EHLO", (b"EHLO a b\r\n", SYNTAX)),
    case("EHLO with a name of 256 bytes", (b"EHLO " + b"x" * 256 + b"\r\n", SYNTAX)),
    case("twenty lines in one packet, ten of them empty",
         (b"NOOP\r\n\r\n" * 10, " / ".join(["250 2.0.0", UNKNOWN] * 10)), at="patient"),
)  # fmt: skip


def _rcpt(name: str, argument: bytes, reply: str, mail: bytes = b"") -> Case:
    begin = (MAIL[0].replace(b">", b">" + mail) if isinstance(MAIL[0], bytes) else b"", MAIL[1])
    return case(name, begin, (b"RCPT TO:" + argument + b"\r\n", reply))


def _mail(name: str, argument: bytes, reply: str) -> Case:
    return case(name, (b"MAIL FROM:" + argument + b"\r\n", reply))


ADDRESSES: tuple[Case, ...] = (
    _rcpt("no brackets", b"b@example.org", RECIPIENT),
    _rcpt("one bracket", b"<b@example.org", RECIPIENT),
    _rcpt("brackets in brackets", b"<<b@example.org>>", RECIPIENT),
    _rcpt("two addresses", b"<b@example.org><c@example.org>", RECIPIENT),
    _rcpt("two addresses with a blank are a bad parameter", b"<b@example.org> <c@example.org>", SYNTAX),
    _rcpt("no recipient", b"<>", RECIPIENT),
    _rcpt("two at signs", b"<a@b@example.org>", RECIPIENT),
    _rcpt("an empty local part", b"<@example.org>", RECIPIENT),
    _rcpt("an empty domain", b"<b@>", RECIPIENT),
    _rcpt("an empty label", b"<b@example..org>", RECIPIENT),
    _rcpt("a label that begins with a hyphen", b"<b@-oProxyCommand=x>", RECIPIENT),
    _rcpt("a label of 64 letters", b"<b@" + b"x" * 64 + b".org>", RECIPIENT),
    _rcpt("an address of 255 bytes", b"<" + b"x" * 243 + b"@example.org>", RECIPIENT),
    _rcpt("a pipe is an atom, and nothing runs it", b"<|/bin/sh@example.org>", "250 2.1.5"),
    _rcpt("a pipe with a blank", b"<|/bin/sh -c id@example.org>", RECIPIENT),
    _rcpt("a quoted pipe is a name like any other", b'<"|/bin/sh -c id"@example.org>', "250 2.1.5"),
    _rcpt("a quote without its end", b'<"b@example.org>', RECIPIENT),
    _rcpt("an address literal that is none", b"<b@[192.0.2.256]>", RECIPIENT),
    _rcpt("an IPv6 literal with a zone", b"<b@[IPv6:fe80::1%lo]>", RECIPIENT),
    _rcpt("a literal with a tag of no standard", b"<b@[x:/etc/passwd]>", RECIPIENT),
    _rcpt("a thousand source routes", b"<" + b",".join([b"@h"] * 400) + b":b@example.org>", "250 2.1.5"),
    _rcpt("the percent hack is a name like any other", b"<victim%example.com@elsewhere.example>", "250 2.1.5"),
    case("the percent hack from outside", MAIL, (b"RCPT TO:<victim%example.com@elsewhere.example>\r\n", "554 5.7.1"),
         at="outside"),
    case("a source route from outside", MAIL, (b"RCPT TO:<@example.org:victim@elsewhere.example>\r\n", "554 5.7.1"),
         at="outside"),
    case("an address literal from outside", MAIL, (b"RCPT TO:<b@[127.0.0.1]>\r\n", "554 5.7.1"), at="outside"),
    case("our domain as a subdomain of another's", MAIL, (b"RCPT TO:<b@example.org.evil.example>\r\n", "554 5.7.1"),
         at="outside"),
    case("another domain that ends with ours", MAIL, (b"RCPT TO:<b@notexample.org>\r\n", "554 5.7.1"), at="outside"),
    _rcpt("8-bit without SMTPUTF8", "<bé@example.org>".encode(), "553 5.6.7"),
    _rcpt("overlong UTF-8 of a slash", b"<b\xc0\xaf@example.org>", RECIPIENT, b" SMTPUTF8"),
    _rcpt("overlong UTF-8 of NUL", b"<b\xc0\x80@example.org>", RECIPIENT, b" SMTPUTF8"),
    _rcpt("a surrogate in UTF-8", b"<b\xed\xa0\x80@example.org>", RECIPIENT, b" SMTPUTF8"),
    _rcpt("UTF-8 beyond Unicode", b"<b\xf5\x80\x80\x80@example.org>", RECIPIENT, b" SMTPUTF8"),
    _rcpt("UTF-8 cut off", b"<b\xe2\x82@example.org>", RECIPIENT, b" SMTPUTF8"),
    _rcpt("a C1 control (NEL)", "<b\x85@example.org>".encode(), RECIPIENT, b" SMTPUTF8"),
    _rcpt("Latin-1", b"<b\xe9@example.org>", RECIPIENT, b" SMTPUTF8"),
    _mail("FROM without colon", b"<a@example.com>".replace(b"<", b" <"), "250 2.1.0"),
    _mail("a sender with a line end in quotes", b'<"a\nb"@example.com>', f"{UNKNOWN} / {UNKNOWN}"),
    _mail("no sender", b"", SENDER),
    _mail("a sender without domain", b"<root>", SENDER),
    case("TO in MAIL", (b"MAIL TO:<a@example.com>\r\n", SYNTAX)),
)  # fmt: skip

PARAMETERS: tuple[Case, ...] = (
    _mail("an unknown parameter", b"<a@example.com> FROB=1", "555 5.5.4"),
    _mail("a parameter twice", b"<a@example.com> SIZE=1 SIZE=2", SYNTAX),
    _mail("SIZE without value", b"<a@example.com> SIZE", SYNTAX),
    _mail("a negative SIZE", b"<a@example.com> SIZE=-1", SYNTAX),
    _mail("a SIZE of 21 digits", b"<a@example.com> SIZE=" + b"9" * 21, SYNTAX),
    _mail("a SIZE in Arabic digits", "<a@example.com> SIZE=١٢".encode(), SYNTAX),
    _mail("a SIZE above the limit", b"<a@example.com> SIZE=99999999999", "552 5.3.4"),
    _mail("BODY of no standard", b"<a@example.com> BODY=9BIT", SYNTAX),
    _mail("SMTPUTF8 with a value", b"<a@example.com> SMTPUTF8=yes", SYNTAX),
    _mail("AUTH that claims a user, without login", b"<a@example.com> AUTH=root", "503 5.5.4"),
    _mail("ENVID of 101 characters", b"<a@example.com> ENVID=" + b"x" * 101, SYNTAX),
    _mail("ENVID that is no xtext", b"<a@example.com> ENVID=a+0Ab+XX", SYNTAX),
    _mail("ENVID that hides a line end", b"<a@example.com> ENVID=a+0D+0ABcc:", SYNTAX),
    _mail("RET of no standard", b"<a@example.com> RET=BODY", SYNTAX),
    _rcpt("NOTIFY=NEVER with another", b"<b@example.org> NOTIFY=NEVER,SUCCESS", SYNTAX),
    _rcpt("ORCPT without type", b"<b@example.org> ORCPT=b@example.org", SYNTAX),
    _rcpt("ORCPT that hides a line end", b"<b@example.org> ORCPT=rfc822;b+0D+0ABcc:", SYNTAX),
    _rcpt("a parameter of MAIL", b"<b@example.org> SIZE=1", "555 5.5.4"),
    case("parameters after HELO", (b"HELO c\r\nMAIL FROM:<a@b> SIZE=1\r\n", "250 mx / 555 5.5.4"), hello=False),
)

LIMITS: tuple[Case, ...] = (
    case("more recipients than the limit", MAIL, (b"".join(b"RCPT TO:<%d@example.org>\r\n" % n for n in range(5)),
         "250 2.1.5 / 250 2.1.5 / 250 2.1.5 / 452 4.5.3 / 452 4.5.3"), at="small"),
    case("errors up to the limit", (b"FROB\r\n" * 7 + b"NOOP\r\n", " / ".join([UNKNOWN] * 5 + ["421 4.7.0"])),
         end=End.CLOSED, at="small"),
    case("bare LF count as errors", (b"\n" * 100, " / ".join([UNKNOWN] * 5 + ["421 4.7.0"])), end=End.CLOSED, at="small"),
    case("recipients of others count as errors", MAIL, (b"RCPT TO:<x@elsewhere.example>\r\n" * 9,
         " / ".join(["554 5.7.1"] * 5 + ["421 4.7.0"])), end=End.CLOSED, at="outside"),
    case("junk commands beyond the limit", (b"NOOP\r\n" * 5 + b"RSET\r\n" * 6,
         " / ".join(["250 2.0.0"] * 9 + ["421 4.7.0"])), end=End.CLOSED, at="small"),
    case("silence", (Do.WAIT, "421 4.4.2"), end=End.CLOSED, at="impatient"),
    case("silence before EHLO", (Do.WAIT, "421 4.4.2"), end=End.CLOSED, at="impatient", hello=False),
    case("silence inside a line", (b"MAIL FROM:<a@exa", "421 4.4.2"), end=End.CLOSED, at="impatient"),
    case("silence inside a line too long", (b"x" * 10_000, "421 4.4.2"), end=End.CLOSED, at="impatient"),
    case("silence inside the data", *TO_DATA, (b"x\r\n.\r", "421 4.4.2"), end=End.CLOSED, at="impatient"),
    case("silence inside a chunk", MAIL, RCPT, (b"BDAT 10\r\n123", "421 4.4.2"), end=End.CLOSED, at="impatient"),
    case("FIN inside a command", MAIL, (b"RCPT TO:<b@ex", ""), (Do.CLOSE_WRITING, ""), end=End.CLOSED),
    case("FIN inside the data", *TO_DATA, (b"x\r\n", ""), (Do.CLOSE_WRITING, ""), end=End.CLOSED),
    case("FIN behind the data", *TO_DATA, (b"x\r\n.\r\n", "250 2.0.0"), (Do.CLOSE_WRITING, ""), end=End.CLOSED,
         stored=(b"x\r\n",)),
)  # fmt: skip

NAMED: tuple[Case, ...] = (
    case("XCLIENT from a host that is not listed", (b"XCLIENT ADDR=127.0.0.1\r\n", "550 5.7.0")),
    case("XFORWARD from a host that is not listed", (b"XFORWARD ADDR=127.0.0.1\r\n", "550 5.7.0")),
    case("XCLIENT without attributes", (b"XCLIENT\r\n", "501 5.5.4"), at="named"),
    case("XCLIENT with an unknown attribute", (b"XCLIENT FROB=1\r\n", "501 5.5.4"), at="named"),
    case("XCLIENT with a wrong address changes nothing",
         (b"XCLIENT NAME=evil ADDR=1.2.3.4.5\r\n", "501 5.5.4"), MAIL, RCPT, at="named"),
    case("XCLIENT with a hidden line end", (b"XCLIENT NAME=a+0D+0AX:\r\n", "501 5.5.4"), at="named"),
    case("XCLIENT that names a user", (b"XCLIENT LOGIN=root\r\n", "501 5.5.4"), at="named"),
    case("XCLIENT in a transaction", MAIL, (b"XCLIENT ADDR=203.0.113.9\r\n", "503 5.5.1"), at="named"),
    case("who was named does not relay", (b"XCLIENT ADDR=203.0.113.9\r\n", "220 "), EHLO, MAIL,
         (b"RCPT TO:<x@elsewhere.example>\r\n", "554 5.7.1"), at="named"),
    case("who was named names no other", (b"XCLIENT ADDR=203.0.113.9\r\nXCLIENT ADDR=127.0.0.1\r\n", "220 / 220"),
         EHLO, at="named"),
    case("a balancer without header", (b"EHLO x\r\n", ""), end=End.CLOSED, at="proxy", hello=False),
    case("a header that is text and wrong", (b"PROXY TCP4 1 2 3 4\r\n", ""), end=End.CLOSED, at="proxy", hello=False),
    case("a header without end", (b"PROXY " + b"x" * 200, ""), end=End.CLOSED, at="proxy", hello=False),
    case("a binary header cut off", (binary()[:20], ""), (Do.CLOSE_WRITING, ""), end=End.CLOSED, at="proxy", hello=False),
    case("a header that comes late", (b"PROXY TCP4", ""), (Do.WAIT, ""), end=End.CLOSED, at="proxy", hello=False),
    case("a second header is a command", (text() + text(), f"220 / {UNKNOWN}"), EHLO, at="proxy", hello=False),
    case("a header where none is expected", (text(), UNKNOWN), hello=False),
    case("a client behind a balancer does not relay", (text(), "220"), EHLO, MAIL,
         (b"RCPT TO:<x@elsewhere.example>\r\n", "554 5.7.1"), at="proxy", hello=False),
)  # fmt: skip

COMMAND_CASES = (*VERBS, *ORDER, *LINES, *ADDRESSES, *PARAMETERS, *LIMITS, *NAMED)
