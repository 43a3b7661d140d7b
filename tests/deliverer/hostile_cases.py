"""What a hostile next hop does, and what must become of the mail: delivered, deferred or bounced; whose failure it is."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

from tests.deliverer.hostile_server import Endless, HostileAnswer, Slowly, Then
from tests.deliverer.scripted_server import Act

__all__ = ["CASES", "Case"]

Outcomes = tuple[tuple[str, str], ...]
DELIVERED: Outcomes = (("delivered", "2"),)
LOST: Outcomes = (("deferred", "4.4.2"),)
BROKEN: Outcomes = (("deferred", "4.5.0"),)
LATER: Outcomes = (("deferred", "4"),)
RETURNED: Outcomes = (("bounced", "5"),)
PIPELINED = ("PIPELINING", "8BITMIME")
ONE_BY_ONE = ("8BITMIME",)


@dataclass(frozen=True)
class Case:
    name: str
    answers: dict[str, HostileAnswer | list[HostileAnswer]]
    outcomes: Outcomes  # of each recipient: status, and the beginning of the enhanced code
    site: bool = False  # counts against the site (decision 0011)
    got: int = 0  # messages that the server has had with their dot
    keywords: tuple[str, ...] = PIPELINED
    refuse: dict[str, bytes] = field(default_factory=dict)
    recipients: tuple[str, ...] = ("a@example.org",)
    patience_s: float = 10.0  # the time-outs; short where the server says nothing
    tls: str = ""  # the level; "": the server has no TLS
    offers_tls: bool = True  # if ``tls``
    keywords_in_clear: tuple[str, ...] = ()  # besides the others, before TLS
    lmtp: bool = False
    smtputf8: bool = False
    big: bool = False  # a message of several blocks
    chunked: bool = False  # with BDAT


STAGES = ("GREETING", "EHLO", "MAIL", "RCPT", "DATA", "DOT")
CODES = {"GREETING": 220, "EHLO": 250, "MAIL": 250, "RCPT": 250, "DATA": 354, "DOT": 250}
A_LINE = b"250-" + b"x" * 200 + b"\r\n"


def _early(stage: str) -> bool:
    """Whether the host was not talked to yet: what happens counts against the site."""
    return stage in ("GREETING", "EHLO")


def _at(stage: str, what: str, answer: HostileAnswer, outcomes: Outcomes, **more: object) -> Case:
    got = 1 if stage == "DOT" else 0
    return Case(f"{what} at {stage}", {stage: answer}, outcomes, site=_early(stage), got=got, **more)  # type: ignore[arg-type]


def _rows(code: int) -> list[tuple[str, HostileAnswer, Outcomes, float]]:
    """What a server can say anywhere instead of a reply with this code."""
    return [
        ("it hangs up", Act.HANG_UP, LOST, 10),
        ("it resets", Act.RESET, LOST, 10),
        ("it says nothing", Act.SILENCE, LOST, 0.3),
        ("a reply without its end", b"%d Ok" % code, LOST, 0.3),
        ("a reply without its end, and it hangs up", Then(b"%d Ok" % code, Act.HANG_UP), LOST, 10),
        ("half a reply of several lines, and it hangs up", Then(b"%d-Ok\r\n" % code, Act.HANG_UP), LOST, 10),
        ("words", b"hello there\r\n", BROKEN, 10),
        ("an empty line", b"\r\n", BROKEN, 10),
        ("1xx", b"199 wait\r\n", BROKEN, 10),
        ("6xx", b"650 no\r\n", BROKEN, 10),
        ("a code of four digits", b"2500 Ok\r\n", BROKEN, 10),
        ("a code of Arabic digits", "٢٥٠ Ok\r\n".encode(), BROKEN, 10),
        ("two codes in one reply", b"%d-Ok\r\n550 5.1.1 No\r\n" % code, BROKEN, 10),
        ("a reply of endless lines", Endless(A_LINE), BROKEN, 10),
        ("a line without end", Endless(b"250 " + b"x" * 200), BROKEN, 10),
        ("421", b"421 4.3.2 going down\r\n", LATER, 10),
        ("4xx", b"451 4.3.0 later\r\n", LATER, 10),
    ]


def _everywhere() -> list[Case]:
    """What a server can do at any stage."""
    found: list[Case] = []
    for stage, keywords in itertools.product(STAGES, (PIPELINED, ONE_BY_ONE)):
        if _early(stage) and keywords is ONE_BY_ONE:
            continue
        code, how = CODES[stage], "" if keywords is PIPELINED else ", one by one"
        good = b"%d 2.0.0 Ok\r\n" % code
        rows = _rows(code)
        if keywords is PIPELINED:
            rows += [
                ("single bytes", Slowly(good if stage != "EHLO" else b"250-sink\r\n250 PIPELINING\r\n"), DELIVERED, 10),
                ("NUL, ESC and 8-bit", good[:-2] + b"\0\x1b[2J\xff\r\n", DELIVERED, 10),
                ("bare LF", good.replace(b"\r", b""), DELIVERED, 10),
            ]
        for what, answer, outcomes, patience_s in rows:
            case = _at(stage, what + how, answer, outcomes, patience_s=patience_s, keywords=keywords)
            if outcomes is DELIVERED or (stage, what) == ("EHLO", "4xx"):  # HELO follows, as in Postfix
                case = Case(case.name, case.answers, DELIVERED, got=1, patience_s=patience_s)
            found.append(case)
    return found


def _in_chunks() -> list[Case]:
    """What a server can do at a chunk, and at the last one."""
    found: list[Case] = []
    for stage, keywords in itertools.product(("BDAT", "LAST"), (PIPELINED, ONE_BY_ONE)):
        how = "" if keywords is PIPELINED else ", one by one"
        rows = _rows(250)
        rows += [
            ("5xx", b"550 5.7.1 no\r\n", RETURNED, 10),
            ("503", b"503 5.5.1 no\r\n", RETURNED, 10),
            ("502", b"502 5.5.1 what is BDAT\r\n", RETURNED if stage == "LAST" else LATER, 10),  # it took chunks before
            ("354", b"354 go ahead\r\n", BROKEN, 10),
            ("two codes of 2xx", b"250 2.0.0 Ok\r\n250 2.0.0 Ok\r\n", DELIVERED if stage == "LAST" else BROKEN, 10),
        ]
        for what, answer, outcomes, patience_s in rows:
            got = 1 if stage == "LAST" else 0
            offered = (*keywords, "CHUNKING")
            case = Case(
                f"{what} at {stage}{how}", {stage: answer}, outcomes, got=got, patience_s=patience_s, keywords=offered
            )
            found.append(dataclasses.replace(case, chunked=True, big=True))
    return found


def _permanent() -> list[Case]:
    """5xx, and 3xx where it has no meaning."""
    return [
        _at("GREETING", "5xx", b"554 5.7.1 go away\r\n", LATER),
        _at("GREETING", "3xx", b"354 go ahead\r\n", LATER),
        Case("5xx at EHLO and HELO", {"EHLO": b"550 5.7.1 no\r\n", "HELO": b"550 5.7.1 no\r\n"}, RETURNED),
        Case("5xx at EHLO, HELO does", {"EHLO": b"500 5.5.1 no\r\n"}, DELIVERED, got=1),
        Case("3xx at EHLO, HELO does", {"EHLO": b"354 go ahead\r\n"}, DELIVERED, got=1),
        *(_at(stage, "5xx", b"550 5.7.1 no\r\n", RETURNED) for stage in ("MAIL", "RCPT", "DATA", "DOT")),
        *(_at(stage, "354", b"354 go ahead\r\n", BROKEN) for stage in ("MAIL", "RCPT")),
        _at("DATA", "250", b"250 2.0.0 Ok\r\n", BROKEN),
        _at("DOT", "354", b"354 go ahead\r\n", LATER),
        _at("RCPT", "552, too many recipients,", b"552 5.5.3 too many\r\n", LATER),
        _at("DOT", "a 5xx with a temporary enhanced code", b"550 4.7.1 mixed\r\n", RETURNED),
        _at("DOT", "a 4xx with a final enhanced code", b"450 5.7.1 mixed\r\n", LATER),
        Case("a 2xx with a final enhanced code", {"DOT": b"250 5.7.1 mixed\r\n"}, DELIVERED, got=1),
        Case("a refusal of 60 kB", {"RCPT": b"550-" + b"x" * 500 + b"\r\n" + b"550 5.1.1 no\r\n"}, RETURNED),
    ]


TRICKS: list[Case] = [
    Case("a delivery reported before the dot", {"DATA": b"354 go\r\n250 2.0.0 Ok: queued\r\n"}, BROKEN),
    Case("a refusal before the dot", {"DATA": b"354 go\r\n550 5.7.1 no\r\n"}, RETURNED),
    Case("a delivery reported before the dot of a big message", {"DATA": b"354 go\r\n250 2.0.0 Ok\r\n"}, BROKEN, big=True),
    Case("two replies to the dot", {"DOT": b"250 2.0.0 Ok\r\n550 5.7.1 no\r\n"}, DELIVERED, got=1),
    Case("250, and RST behind it", {"DOT": Then(b"250 2.0.0 Ok\r\n", Act.RESET)}, DELIVERED, got=1),
    Case("RST behind the dot of a big message", {"DOT": Act.RESET}, LOST, got=1, big=True),
    Case("two greetings", {"GREETING": b"220 one\r\n220 two\r\n"}, BROKEN, site=True),
    Case("the reply to EHLO before EHLO", {"GREETING": b"220 sink\r\n250 sink\r\n"}, BROKEN, site=True),
    Case("all replies with the greeting",
         {"GREETING": b"220 sink\r\n250 a\r\n250 b\r\n250 c\r\n354 d\r\n250 e\r\n"}, BROKEN, site=True),
    Case("a hundred replies to MAIL", {"MAIL": b"250 2.1.0 Ok\r\n" * 100}, BROKEN),
    Case("two replies to MAIL, one by one", {"MAIL": b"250 2.1.0 Ok\r\n250 2.1.0 Ok\r\n"}, BROKEN, keywords=ONE_BY_ONE),
    Case("two replies to RCPT, one by one", {"RCPT": b"550 5.1.1 no\r\n250 2.1.5 Ok\r\n"},
         (("bounced", "5.1.1"),), keywords=ONE_BY_ONE),
    Case("a greeting of a thousand lines", {"GREETING": b"220-x\r\n" * 1000 + b"220 x\r\n"}, DELIVERED, got=1),
    Case("a greeting with the name of another", {"GREETING": b"220 localhost ESMTP\r\n"}, DELIVERED, got=1),
    Case("EHLO with a thousand keywords", {"EHLO": b"".join(b"250-X%d y\r\n" % n for n in range(1000)) + b"250 HELP\r\n"},
         DELIVERED, got=1),
    Case("EHLO with nonsense for keywords", {"EHLO": b"250-\r\n250- \r\n250-=\r\n250-\0\r\n250 \xff\xfe=\x1b\r\n"},
         DELIVERED, got=1),
    Case("EHLO with a keyword twice", {"EHLO": b"250-sink\r\n250-SIZE 1\r\n250 SIZE 100000\r\n"}, DELIVERED, got=1),
    Case("SIZE smaller than the message", {}, (("bounced", "5.3.4"),), keywords=(*PIPELINED, "SIZE 10")),
    Case("SIZE that is no number", {}, DELIVERED, got=1, keywords=(*PIPELINED, "SIZE ten")),
    Case("SIZE below zero", {}, DELIVERED, got=1, keywords=(*PIPELINED, "SIZE -1")),
    Case("SIZE of a thousand digits", {}, DELIVERED, got=1, keywords=(*PIPELINED, "SIZE " + "9" * 1000)),
    Case("SIZE in Arabic digits", {}, DELIVERED, got=1, keywords=(*PIPELINED, "SIZE ١")),
    Case("SIZE that lied", {"DOT": b"552 5.3.4 too big\r\n"}, (("bounced", "5.3.4"),), got=1,
         keywords=(*PIPELINED, "SIZE 100000")),
    Case("LIMITS of no recipient", {}, DELIVERED, got=1, keywords=(*PIPELINED, "LIMITS RCPTMAX=0 MAILMAX=0")),
    Case("LIMITS below zero", {}, DELIVERED, got=1, keywords=(*PIPELINED, "LIMITS RCPTMAX=-1")),
    Case("LIMITS of nonsense", {}, DELIVERED, got=1, keywords=(*PIPELINED, "LIMITS RCPTMAX= =1 x RCPTMAX")),
    Case("LIMITS that lied", {"RCPT": [b"250 2.1.5 Ok\r\n", b"452 4.5.3 too many\r\n"]},
         (("delivered", "2"), ("deferred", "4.5.3")), got=1, keywords=(*PIPELINED, "LIMITS RCPTMAX=100"),
         recipients=("a@example.org", "b@example.org")),
    Case("SMTPUTF8 offered and refused", {"MAIL": b"555 5.5.4 no SMTPUTF8\r\n"}, (("bounced", "5.5.4"),),
         keywords=(*PIPELINED, "SMTPUTF8"), smtputf8=True, recipients=("ä@example.org",)),
    Case("no SMTPUTF8 for who needs it", {}, (("bounced", "5.6.7"), ("delivered", "2")), got=1, smtputf8=True,
         recipients=("ä@example.org", "b@example.org")),
    Case("some refused, and it hangs up at DATA", {"DATA": Act.HANG_UP}, (("bounced", "5.1.1"), ("deferred", "4.4.2")),
         refuse={"a@example.org": b"550 5.1.1 no\r\n"}, recipients=("a@example.org", "b@example.org")),
    Case("some refused, and it hangs up behind the dot", {"DOT": Act.HANG_UP},
         (("bounced", "5.1.1"), ("deferred", "4.4.2")), got=1,
         refuse={"a@example.org": b"550 5.1.1 no\r\n"}, recipients=("a@example.org", "b@example.org")),
    Case("354 though all were refused", {"RCPT": b"550 5.1.1 no\r\n"}, (("bounced", "5.1.1"),)),
    Case("354 though all were refused, and it hangs up at the dot", {"RCPT": b"550 5.1.1 no\r\n", "DOT": Act.HANG_UP},
         (("bounced", "5.1.1"),)),
    Case("421 to one recipient of two", {"RCPT": [b"250 2.1.5 Ok\r\n", Then(b"421 4.3.2 bye\r\n", Act.HANG_UP)]},
         (("deferred", "4"), ("deferred", "4.3.2")), recipients=("a@example.org", "b@example.org")),
]  # fmt: skip

TLS: list[Case] = [
    Case("STARTTLS refused for now", {"STARTTLS": b"454 4.7.0 not now\r\n"}, DELIVERED, got=1, tls="may"),
    Case("STARTTLS refused, where it is demanded", {"STARTTLS": b"454 4.7.0 not now\r\n"}, (("deferred", "4.7.4"),),
         site=True, tls="encrypt"),
    Case("STARTTLS not offered, where it is demanded", {}, (("deferred", "4.7.4"),), site=True, tls="encrypt",
         offers_tls=False),
    Case("nonsense for a handshake", {"STARTTLS": Act.GARBAGE}, DELIVERED, got=1, tls="may"),
    Case("nonsense for a handshake, where it is demanded", {"STARTTLS": Act.GARBAGE}, (("deferred", "4.7.5"),), site=True,
         tls="encrypt"),
    Case("it hangs up at STARTTLS", {"STARTTLS": Act.HANG_UP}, DELIVERED, got=1, tls="may"),
    Case("it hangs up at STARTTLS, where it is demanded", {"STARTTLS": Act.HANG_UP}, (("deferred", "4.7.5"),), site=True,
         tls="encrypt"),
    Case("it hangs up for a handshake", {"STARTTLS": Then(b"220 2.0.0 go\r\n", Act.HANG_UP)}, DELIVERED, got=1,
         tls="may"),
    Case("it resets for a handshake", {"STARTTLS": Then(b"220 2.0.0 go\r\n", Act.RESET)}, (("deferred", "4.7.5"),),
         site=True, tls="encrypt"),
    Case("silence for a handshake", {"STARTTLS": Then(b"220 2.0.0 go\r\n", Act.SILENCE)}, (("deferred", "4.7.5"),), site=True,
         tls="encrypt", patience_s=0.5),
    Case("a reply injected behind STARTTLS", {"STARTTLS": b"220 2.0.0 go\r\n250-evil\r\n250 SIZE 1\r\n"},
         DELIVERED, got=1, tls="encrypt"),
    Case("a delivery injected behind STARTTLS",
         {"STARTTLS": b"220 2.0.0 go\r\n250 a\r\n250 b\r\n250 c\r\n354 d\r\n250 e\r\n"}, DELIVERED, got=1,
         tls="encrypt"),
    Case("words at STARTTLS", {"STARTTLS": b"go ahead\r\n"}, (("deferred", "4.7.5"),), site=True, tls="encrypt"),
    Case("354 at STARTTLS", {"STARTTLS": b"354 go\r\n"}, (("deferred", "4.7.4"),), site=True, tls="encrypt"),
    Case("a certificate of no one, where it must be verified", {}, (("deferred", "4.7.5"),), site=True, tls="verify"),
    Case("5xx at EHLO within TLS", {"EHLO": [b"250-x\r\n250 STARTTLS\r\n", b"550 5.7.1 no\r\n"],
         "HELO": b"550 5.7.1 no\r\n"}, RETURNED, tls="encrypt"),
    Case("it hangs up at EHLO within TLS", {"EHLO": [b"250-x\r\n250 STARTTLS\r\n", Act.HANG_UP]}, (("deferred", "4.4.2"),),
         site=True, tls="encrypt"),
    Case("it hangs up behind the dot within TLS", {"DOT": Act.HANG_UP}, LOST, got=1, tls="encrypt"),
    Case("SIZE only in the clear", {}, DELIVERED, got=1, tls="encrypt", keywords_in_clear=("SIZE 1",)),
]  # fmt: skip

THREE = ("a@example.org", "b@example.org", "c@example.org")
STORED = b"250 2.1.5 stored\r\n"
LMTP: list[Case] = [
    Case("LMTP: one reply for three", {"DOT": STORED}, (("delivered", "2"), *(LOST * 2)), got=1, recipients=THREE, lmtp=True,
         patience_s=0.5),
    Case("LMTP: one reply for three, and it hangs up", {"DOT": Then(STORED, Act.HANG_UP)}, (("delivered", "2"), *(LOST * 2)),
         got=1, recipients=THREE, lmtp=True),
    Case("LMTP: four replies for three", {"DOT": STORED * 3 + b"550 5.7.1 no\r\n"}, DELIVERED * 3, got=1, recipients=THREE,
         lmtp=True),
    Case("LMTP: words for the second", {"DOT": STORED + b"stored\r\n" + STORED}, (("delivered", "2"), *(BROKEN * 2)), got=1,
         recipients=THREE, lmtp=True),
    Case("LMTP: 421 for the second", {"DOT": STORED + b"421 4.3.2 bye\r\n" + STORED},
         (("delivered", "2"), ("deferred", "4.3.2"), ("delivered", "2")), got=1, recipients=THREE, lmtp=True),
    Case("LMTP: it speaks SMTP", {"LHLO": b"500 5.5.1 what\r\n"}, (("deferred", "4"),), site=True, lmtp=True),
    Case("LMTP: it hangs up at LHLO", {"LHLO": Act.HANG_UP}, LOST, site=True, lmtp=True),
    Case("LMTP: 354 though all were refused", {"RCPT": b"550 5.1.1 no\r\n"}, (("bounced", "5.1.1"),), lmtp=True),
]  # fmt: skip

CASES: tuple[Case, ...] = (*_everywhere(), *_in_chunks(), *_permanent(), *TRICKS, *TLS, *LMTP)
