"""Hostile messages: smuggling (CVE-2023-51764 and its kin), chunks, headers, TLS and logins."""

from __future__ import annotations

from tests.receiver.hostile_case import DATA, EHLO, MAIL, RCPT, TO_DATA, Case, Do, End, case
from tests.receiver.logins import b64, plain

BARE, NUL = "550 5.6.0 Message refused: it has a CR or LF", "550 5.6.0 Message refused: it has a NUL"
SMUGGLED = b"MAIL FROM:<evil@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\nevil\r\n"


def _smuggling(name: str, end: bytes) -> Case:
    """``end`` is the end of a message for some servers; for us the smuggled commands are data, and the message is refused."""
    return case(f"smuggled behind {name}", *TO_DATA, (b"Subject: x\r\n\r\nx" + end + SMUGGLED + b".\r\n", BARE))


def _passed(name: str, data: bytes, *, stored: bytes | None = None, at: str = "mx") -> Case:
    return case(name, *TO_DATA, (data + b".\r\n", "250 2.0.0"), stored=(data if stored is None else stored,), at=at)


SMUGGLING: tuple[Case, ...] = (
    _smuggling("LF . CR LF", b"\n.\r\n"),
    _smuggling("LF . LF", b"\n.\n"),
    _smuggling("CR LF . LF", b"\r\n.\n"),
    _smuggling("CR . CR LF", b"\r.\r\n"),
    _smuggling("CR . CR", b"\r.\r"),
    _smuggling("CR LF . CR", b"\r\n.\r"),
    _smuggling("LF . CR", b"\n.\r"),
    _smuggling("CR . LF", b"\r.\n"),
    _smuggling("CR LF . CR CR LF", b"\r\n.\r\r\n"),
    _smuggling("CR CR LF . CR LF", b"\r\r\n.\r\r\n"),
    case("smuggled behind NUL . CR LF", *TO_DATA, (b"x\r\n\0.\r\n" + SMUGGLED + b".\r\n", NUL)),
    case("smuggled behind CR LF NUL . CR LF", *TO_DATA, (b"x\r\n.\0\r\n" + SMUGGLED + b".\r\n", NUL)),
    _passed("CR LF . blank CR LF is data", b"x\r\n. \r\nMAIL FROM:<evil@example.com>\r\n"),
    _passed("a stuffed dot is data", b"x\r\n..\r\nMAIL FROM:<evil@example.com>\r\n"),
    _passed("NEL and LINE SEPARATOR end no line", "x\u0085.\u0085\u2028.\u2028\r\n".encode()),
    case("the end cut into bytes", *TO_DATA, *((bytes([octet]), "") for octet in b"x\r\n.\r"), (b"\n", "250 2.0.0"),
         stored=(b"x\r\n",)),
    case("a bare LF cut from its dot", *TO_DATA, (b"x\n", ""), (b".\r\n", ""), (SMUGGLED + b".\r\n", BARE)),
    case("commands behind the real end are commands", *TO_DATA,
         (b"x\r\n.\r\nRCPT TO:<c@example.org>\r\nNOOP\r\n", "250 2.0.0 / 503 5.5.1 / 250 2.0.0"), stored=(b"x\r\n",)),
    case("data sent before 354, with a refused recipient", MAIL,
         (b"RCPT TO:<bad>\r\nDATA\r\nSubject: x\r\n.\r\n", "501 5.1.3 / 554 5.5.1 / 221 2.7.0"), end=End.CLOSED),
    case("a dot alone is an empty message", *TO_DATA, (b".\r\n", "250 2.0.0"), stored=(b"",)),
    case("two ends", *TO_DATA, (b"x\r\n.\r\n.\r\n", "250 2.0.0 / 500 5.5.2"), stored=(b"x\r\n",)),
    # From a network whose bare LF are repaired, nothing is smuggled either: the line "." becomes "..".
    _passed("LF . CR LF that is repaired", b"x\n.\r\n" + SMUGGLED, stored=b"x\r\n..\r\n" + SMUGGLED, at="repairing"),
    _passed("LF . LF that is repaired", b"x\n.\n" + SMUGGLED, stored=b"x\r\n..\r\n" + SMUGGLED, at="repairing"),
    _passed("CR LF . LF that is repaired", b"x\r\n.\n" + SMUGGLED, stored=b"x\r\n..\r\n" + SMUGGLED, at="repairing"),
    case("a bare CR is not repaired", *TO_DATA, (b"x\r.\r\n.\r\n", BARE), at="repairing"),
)  # fmt: skip

CONTENT: tuple[Case, ...] = (
    case("a NUL in the body", *TO_DATA, (b"x\r\n\r\n\0\r\n.\r\n", NUL)),
    case("a NUL in the header", *TO_DATA, (b"Subject: \0\r\n\r\n.\r\n", NUL)),
    case("a message above the limit", *TO_DATA, (b"x" * 1500 + b"\r\n.\r\n", "552 5.3.4"), at="small"),
    case("a message far above the limit", *TO_DATA, (b"x" * 200_000 + b"\r\n", "552 5.3.4"), end=End.CLOSED, at="small"),
    case("SIZE that lied", (b"MAIL FROM:<a@example.com> SIZE=1\r\n", "250 2.1.0"), RCPT, DATA,
         (b"x" * 1500 + b"\r\n.\r\n", "552 5.3.4"), at="small"),
    case("a loop", *TO_DATA, (b"Received: x\r\n" * 51 + b"\r\n.\r\n", "554 5.4.6")),
    case("a loop in small letters, with blanks", *TO_DATA, (b"received \t: x\r\n" * 51 + b"\r\n.\r\n", "554 5.4.6")),
    _passed("Received in the body is no loop", b"Subject: x\r\n\r\n" + b"Received: x\r\n" * 60),
    _passed("a header line of 100 000 bytes", b"X: " + b"x" * 100_000 + b"\r\n\r\nbody\r\n"),
    _passed("ten thousand header fields", b"X: y\r\n" * 10_000 + b"\r\nbody\r\n"),
    _passed("a header that never ends", b"X: y\r\n" * 100),
    _passed("a field folded a thousand times", b"Message-ID:" + b"\r\n\t" * 1000 + b"<1@x>\r\n\r\n"),
    _passed("8-bit bytes that are no UTF-8", b"Subject: \xff\xfe\r\n\r\n\x80\r\n"),
    _passed("escape sequences", b"Subject: \x1b]0;x\x07\r\nMessage-ID: \x1b[2J\r\n\r\n\x1b[2J\r\n"),
)  # fmt: skip


def _chunk(data: bytes, last: bool = False) -> bytes:
    return b"BDAT %d%b\r\n%b" % (len(data), b" LAST" if last else b"", data)


OCTETS, BDAT_END = "250 2.0.0 Ok: ", End.CLOSED
CHUNKS: tuple[Case, ...] = (
    case("BDAT without size", MAIL, RCPT, (b"BDAT\r\n", "501 5.5.4"), end=BDAT_END),
    case("a negative size", MAIL, RCPT, (b"BDAT -1\r\nNOOP\r\n", "501 5.5.4"), end=BDAT_END),
    case("a hexadecimal size", MAIL, RCPT, (b"BDAT 0x10\r\nNOOP\r\n", "501 5.5.4"), end=BDAT_END),
    case("a size in Arabic digits", MAIL, RCPT, ("BDAT ٣\r\nNOOP\r\n".encode(), "501 5.5.4"), end=BDAT_END),
    case("a size of 21 digits", MAIL, RCPT, (b"BDAT " + b"9" * 21 + b"\r\n", "501 5.5.4"), end=BDAT_END),
    case("a size of 2^63", MAIL, RCPT, (b"BDAT 9223372036854775808\r\n", "552 5.3.4"), end=BDAT_END),
    case("a word that is not LAST", MAIL, RCPT, (b"BDAT 4 FIRST\r\nNOOP\r\n", "501 5.5.4"), end=BDAT_END),
    case("octets of a refused chunk are no commands", MAIL, (_chunk(SMUGGLED), "503 5.5.1")),
    case("octets before MAIL are no commands", (_chunk(SMUGGLED, True), "503 5.5.1")),
    case("a chunk of commands is data", MAIL, RCPT, (_chunk(b"x\r\n" + SMUGGLED, True), "250 2.0.0"),
         stored=(b"x\r\n" + SMUGGLED,)),
    case("a dot in a chunk ends nothing", MAIL, RCPT, (_chunk(b"x\r\n.\r\ny\r\n", True), "250 2.0.0"),
         stored=(b"x\r\n..\r\ny\r\n",)),
    case("an end cut into chunks ends nothing", MAIL, RCPT,
         (_chunk(b"x\r\n.") + _chunk(b"\r") + _chunk(b"\ny\r\n", True), f"{OCTETS} / {OCTETS} / 250 2.0.0"),
         stored=(b"x\r\n..\r\ny\r\n",)),
    case("a bare LF in a chunk", MAIL, RCPT, (_chunk(b"x\n.\r\n", True), BARE)),
    case("a bare CR at the end of the last chunk", MAIL, RCPT, (_chunk(b"x\r", True), BARE)),
    case("a NUL in a chunk", MAIL, RCPT, (_chunk(b"\0", True), NUL)),
    case("DATA between chunks", MAIL, RCPT, (_chunk(b"x\r\n") + b"DATA\r\n", f"{OCTETS} / 503 5.5.1")),
    case("RCPT between chunks", MAIL, RCPT, (_chunk(b"x\r\n") + b"RCPT TO:<c@example.org>\r\n", f"{OCTETS} / 503 5.5.1")),
    case("RSET between chunks", MAIL, RCPT, (_chunk(b"x\r\n") + b"RSET\r\n" + _chunk(b"y", True),
         f"{OCTETS} / 250 2.0.0 / 503 5.5.1")),
    case("DATA for BINARYMIME", (b"MAIL FROM:<a@example.com> BODY=BINARYMIME\r\n", "250 2.1.0"), RCPT,
         (b"DATA\r\n", "503 5.5.1")),
    case("chunks above the limit", MAIL, RCPT, (_chunk(b"x" * 900) + _chunk(b"x" * 900) + _chunk(b"x" * 900, True),
         f"{OCTETS} / 552 5.3.4 / 503 5.5.1"), at="small"),
    case("a chunk that never comes", MAIL, RCPT, (b"BDAT 1000\r\nNOOP\r\nQUIT\r\n", ""), end=End.SILENT),
)  # fmt: skip

REFUSED, NEEDS_TLS = "535 5.7.8", "538 5.7.0"
AUTH: tuple[Case, ...] = (
    case("AUTH where it is off", (b"AUTH PLAIN " + plain() + b"\r\n", "503 5.5.1")),
    case("AUTH in the clear", (b"AUTH PLAIN " + plain() + b"\r\n", "530 5.7.0"), at="starttls"),
    case("a wrong password", (b"AUTH PLAIN " + plain(password="x") + b"\r\n", REFUSED), at="submission"),
    case("a user who does not exist", (b"AUTH PLAIN " + plain("mallory") + b"\r\n", REFUSED), at="submission"),
    case("an unknown mechanism", (b"AUTH GSSAPI\r\n", "504 5.5.4"), at="submission"),
    case("no mechanism", (b"AUTH\r\n", "501 5.5.4"), at="submission"),
    case("three words", (b"AUTH PLAIN a b\r\n", "501 5.5.4"), at="submission"),
    case("no base64", (b"AUTH PLAIN ###\r\n", "501 5.5.2"), at="submission"),
    case("base64 with more behind its end", (b"AUTH PLAIN AGE=AGE=\r\n", "501 5.5.2"), at="submission"),
    case("base64 of too few parts", (b"AUTH PLAIN " + b64("alice") + b"\r\n", "501 5.5.2"), at="submission"),
    case("base64 of bytes that are no UTF-8", (b"AUTH PLAIN " + b64(b"\0\xff\0\xfe") + b"\r\n", "5"), at="submission"),
    case("another user's name for the identity", (b"AUTH PLAIN " + plain(authzid="root") + b"\r\n", REFUSED),
         at="submission"),
    case("an exchange that is cancelled", (b"AUTH PLAIN\r\n", "334 "), (b"*\r\n", "501 5.7.0"), at="submission"),
    case("a password sent before the challenge", (b"AUTH PLAIN\r\n" + plain() + b"\r\n", "503 5.5.1 / 500 5.5.2"),
         at="submission"),
    case("a response without end", (b"AUTH LOGIN\r\n", "334 "), (b"x" * 100_000 + b"\r\n", "500 5.5.6"), at="submission"),
    case("a response that a bare LF ends", (b"AUTH LOGIN\r\n", "334 "), (b64("alice") + b"\n", "501 5.5.2"),
         (b"\r\n", "500 5.5.2"), at="submission"),
    case("AUTH twice", (b"AUTH PLAIN " + plain() + b"\r\n", "235 2.7.0"), (b"AUTH PLAIN " + plain() + b"\r\n", "503 5.5.1"),
         at="submission"),
    case("AUTH in a transaction", (b"AUTH PLAIN " + plain() + b"\r\n", "235 2.7.0"), MAIL, (b"AUTH PLAIN\r\n", "503 5.5.1"),
         at="submission"),
    case("MAIL before AUTH", (b"MAIL FROM:<a@example.com>\r\n", "530 5.7.0"), at="submission"),
    case("SCRAM with a nonce of another", (b"AUTH SCRAM-SHA-256 " + b64("n,,n=alice,r=abc") + b"\r\n", "334 "),
         (b64("c=biws,r=xyz,p=AAAA") + b"\r\n", "5"), at="scram"),
    case("SCRAM with channel binding", (b"AUTH SCRAM-SHA-256 " + b64("p=tls-unique,,n=alice,r=abc") + b"\r\n", "5"),
         at="scram"),
    case("SCRAM without its proof", (b"AUTH SCRAM-SHA-256 " + b64("n,,n=alice,r=abc") + b"\r\n", "334 "),
         (b"\r\n", "5"), at="scram"),
)  # fmt: skip

RCPT_UNBEGUN = (b"RCPT TO:<b@example.org>\r\n", "503 5.5.1")
TLS: tuple[Case, ...] = (
    case("STARTTLS where there is no certificate", (b"STARTTLS\r\n", "503 5.5.1")),
    case("commands injected behind STARTTLS", (b"STARTTLS\r\nEHLO evil\r\nMAIL FROM:<evil@example.com>\r\n", "220 2.0.0"),
         (Do.TLS, ""), RCPT_UNBEGUN, EHLO, RCPT_UNBEGUN, at="tls"),
    case("a plain command where the handshake belongs", (b"STARTTLS\r\n", "220 2.0.0"), (b"NOOP\r\n", ""), end=End.CLOSED,
         at="tls"),
    case("what was said in the clear is forgotten", MAIL, RCPT, (b"STARTTLS\r\n", "220 2.0.0"), (Do.TLS, ""),
         (b"DATA\r\n", "503 5.5.1"), (b"MAIL FROM:<a@example.com>\r\n", "503 5.5.1"), at="tls"),
    case("STARTTLS twice", (b"STARTTLS\r\n", "220 2.0.0"), (Do.TLS, ""), EHLO, (b"STARTTLS\r\n", "503 5.5.1"), at="tls"),
    case("MAIL in the clear where TLS is demanded", (b"MAIL FROM:<a@example.com>\r\n", "530 5.7.0"), at="starttls"),
    case("RCPT, DATA, BDAT in the clear where TLS is demanded",
         (b"RCPT TO:<b@c>\r\nDATA\r\nBDAT 4\r\nQUIT", "530 5.7.0 / 530 5.7.0 / 530 5.7.0"), at="starttls"),
    case("no handshake in time", (b"STARTTLS\r\n", "220 2.0.0"), (Do.WAIT, ""), end=End.CLOSED, at="impatient"),
)  # fmt: skip

MESSAGE_CASES = (*SMUGGLING, *CONTENT, *CHUNKS, *AUTH, *TLS)
