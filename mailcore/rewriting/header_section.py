"""The header of a message as it passes by: each field is compared with the header checks, and its addresses are rewritten.
Behind the last one come those that are missing, if they are to be added.

Data is as on the wire: CRLF, dot-stuffed; a block may end in a line, never inside a CRLF. A field that nothing changes stays
byte for byte as it is. A line that is neither a field nor folded ends the header, as the empty line does.

Laws
- At most one field up to ``size_limit`` is kept. Of a longer one its beginning decides, and what follows goes the same way.
- A check that cannot be finished is a refusal for now (451), or as if there were none, by setting; never a lost message.
- What a check writes is a header field, or it is not written. A text for a reply, a reason or the log is cleaned first.
- Where fields are added, what was sent stays and is in one piece before or behind them. An empty line follows them if a
  line does that is not one. Header checks do not see them, and a field that a check removed is missing, as in Postfix.
- A header costs time by its bytes, however the client cuts it into pieces; the client's own time does not count.

Pure, except for the clock.

Keeps law: headers-checked-or-kept, law: missing-fields-are-only-added (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mailcore.dsn_request import NOTIFY_NEVER
from mailcore.envelope import Envelope, Recipient
from mailcore.rewriting.actions import Action, Deed
from mailcore.rewriting.budget import Budget, PatternTooSlow
from mailcore.rewriting.missing_fields import COUNTED, MissingFields, NewMessage, has_all, names_of
from mailcore.routing.address import is_mailbox
from mailcore.routing.route import TEXT_MAX

if TYPE_CHECKING:  # it loads the library of regular expressions
    from mailcore.rewriting.header_checks import HeaderChecks

__all__ = ["HeaderRules", "HeaderSection", "Note"]

TEMPFAIL = "451 4.3.0 Error: the header cannot be checked; try again later"
REJECTED = "message content rejected"  # as Postfix
NAME_BYTES_MAX = 1_000  # a line has at most 998 characters (RFC 5322 2.1.1)
NOTES_MAX = 100  # lines of the log about one message
COPIES_MAX = 100  # recipients that checks add to one message
REASON_MAX = 400  # characters of a reply or a reason
_FIELD_END = re.compile(rb"\r\n(?![ \t])")
_FIELD = re.compile(rb"\.?([!-9;-~]+)[ \t]*:")
_CODE = re.compile(r"([45])\.\d{1,3}\.\d{1,3}(?=\s|\Z)")
_MAILBOX_LINE = re.compile(rb">*From ", re.IGNORECASE)  # of a mailbox, at the top of a message
_MAILBOX_FIELD = b"X-Mailbox-Line: "  # as Postfix names it
_CRLF = b"\r\n"
_LINE_END = re.compile(r"\r?\n|\r")

Rewriter = Callable[[bytes, bytes, Budget], bytes]
"""Rewrites the addresses of a field: (name in lower case, field, time of the message) -> field."""


class HeaderRules(NamedTuple):
    """The checks and changes of headers."""

    checks: Sequence[HeaderChecks] = ()
    size_limit: int = 102_400
    time_s: float = 1.0
    passes_on_timeout: bool = False
    rewriter: Rewriter | None = None  # for clients whose header is rewritten
    # Returns whether the rewriter leaves a whole header section as it is; False: it may. None: always ask the rewriter.
    is_settled: Callable[[bytes], bool] | None = None


class Note(NamedTuple):
    """The text of a line in the log about a check."""

    action: str
    field: str
    text: str


class HeaderSection:
    """``feed`` the data, then ``end``; the result of the checks is in the other members."""

    def __init__(
        self,
        rules: HeaderRules,
        rewriter: Rewriter | None,
        clock: Callable[[], float],
        missing: MissingFields | None = None,
        message: NewMessage = ("", "", 0.0),
    ) -> None:
        """``missing`` makes the fields that are added to ``message``; None: none are."""
        self.refusal = ""  # the reply that refuses the message, without CRLF
        self.too_slow = ""  # why the checks did not end, if that refuses the message
        self.held_because = ""
        self.is_discarded = False
        self.redirect = ""  # the address that gets the message instead of its recipients
        self.copies: list[str] = []
        self.notes: list[Note] = []
        self.own_fields = 1  # at the top of the data: what became of the field of ``take``
        self._rules = rules
        self._rewriter = rewriter
        self._checks = rules.checks
        self._missing = missing
        self._message = message
        self._present: set[bytes] = set()  # the names of COUNTED that fields have; only filled for ``missing``
        self._looks_ahead = not rules.checks and (rewriter is None or rules.is_settled is not None)
        self._is_top = True  # nothing of the message has passed
        self._budget = Budget(rules.time_s, clock)
        self._held = b""  # the field that has begun
        self._sought = 0  # bytes of it in which its end was looked for
        self._is_over = False
        self._long = ""  # of a field beyond the limit: "keep" or "drop" what follows

    def take(self, field: bytes) -> bytes:
        """Returns what becomes of our own trace field, which is put in front of the data; comes first."""
        if not self._checks:  # it holds no address that is rewritten
            return field
        with self._budget:
            taken = self._field(field)
        self.own_fields = len(_FIELD_END.findall(taken))
        return taken

    def feed(self, block: bytes) -> bytes:
        """Returns what is certain of the message so far."""
        if self._is_over:
            return block
        with self._budget:
            ahead = self._ahead(block) if self._looks_ahead else None
            return self._fed(self._held + block) if ahead is None else ahead

    def _ahead(self, block: bytes) -> bytes | None:
        """Returns the first block if it has the whole header section, and no field changes in it; else None."""
        self._looks_ahead = False
        end = block.find(b"\r\n\r\n") + 2
        if end < 2:
            return None
        header = block[:end]
        is_settled = None if self._rewriter is None else self._rules.is_settled
        if is_settled is not None and not is_settled(header):
            return None
        if self._missing is None or has_all(header):
            self._is_over = True
            return block
        names = names_of(header)
        if names is None:
            return None
        self._is_over = True
        self._present.update(names)
        return header + self._addition(_CRLF) + block[end:]

    def _fed(self, data: bytes) -> bytes:
        if self._missing is not None and self._is_top and _is_mailbox_line(data):
            data = _MAILBOX_FIELD + data
        made: list[bytes] = []
        at = 0
        while not self.refusal and (end := self._next(data, at, made)) > at:
            at, self._sought = end, 0
        if self.refusal or end < 0:
            self._is_over = True
            made += (self._addition(data[at : at + 2]), data[at:])
            at = len(data)
        self._is_top = self._is_top and not at
        self._held = data[at:]
        self._sought = max(0, len(self._held) - 2)  # its last CRLF may be followed by a space
        return b"".join(made)

    def of_local_mail(self, envelope: Envelope) -> Envelope:
        """Returns the envelope of a message without a client that could be refused: it bounces, waits, or is thrown away."""
        route = "discard:" if self.is_discarded else ""
        if self.refusal:
            code, _, text = self.refusal.partition(" ")
            route = f"{'retry' if code[0] == '4' else 'error'}:{text[:TEXT_MAX]}"
        recipients = envelope.recipients if route else self.recipients(envelope.recipients)
        if route:
            recipients = tuple(msgspec.structs.replace(each, route=route) for each in recipients)
        return msgspec.structs.replace(
            envelope, recipients=recipients, recipient_count=len(recipients), held_because=self.held_because
        )

    def recipients(self, given: tuple[Recipient, ...]) -> tuple[Recipient, ...]:
        """Returns the recipients, or the one to whom a check sends the message, and who gets a copy."""
        first = (Recipient(0, self.redirect),) if self.redirect else given
        known = {each.address for each in first}
        copies = [address for address in dict.fromkeys(self.copies) if address not in known]
        return (*first, *(Recipient(len(first) + n, each, options=NOTIFY_NEVER) for n, each in enumerate(copies)))

    def _next(self, data: bytes, at: int, made: list[bytes]) -> int:
        """Takes the next field of the data, or a part of a long one; returns where it ends.

        The result is ``at`` if that is not known yet, and -1 if no field begins here.
        """
        if self._long:
            return self._skip(data, at, made)
        if _FIELD.match(data, at) is None:
            is_over = data.find(b"\r\n", at) >= 0 or len(data) - at > NAME_BYTES_MAX
            return -1 if is_over else at
        found = _FIELD_END.search(data, at + self._sought)
        if found is not None and found.end() < len(data):
            made.append(self._field(data[at : found.end()]))
            return found.end()
        if len(data) - at <= self._rules.size_limit:
            return at
        end = len(data) if found is None else found.start()
        made.append(self._field(data[at:end], is_whole=False))
        return end

    def end(self) -> bytes:
        """Returns the rest, at the end of the data."""
        rest, self._held = self._held, b""
        if self._is_over:
            return rest
        self._is_over = True
        with self._budget:
            is_begun = self._long == "keep"  # the line that the data ended in is longer than ``rest``
            if not self._long and _FIELD.match(rest) is None:
                return self._addition(rest[:2]) + rest
            last = (rest if is_begun else b"") if self._long else self._field(rest)
            addition = self._addition(b"")
        if addition and (last or is_begun) and not last.endswith(_CRLF):
            last += _CRLF
        return last + addition

    def _addition(self, follows: bytes) -> bytes:
        """Returns the fields that are missing, with an empty line if another one ``follows``; comes once."""
        missing = self._missing
        if missing is None or self.refusal:
            return b""
        try:
            fields = missing.made(self._message, self._present, self._budget)
        except PatternTooSlow as slow:
            self._too_slow(f"From: {self._message[1]}", slow)
            fields = missing.made(self._message, self._present)
        return fields + _CRLF if fields and follows and follows != _CRLF else fields

    def _skip(self, data: bytes, at: int, made: list[bytes]) -> int:
        """Takes the rest of a field that is too long; returns where it ends, or where its end may begin."""
        found = _FIELD_END.search(data, at)
        is_end = found is not None and found.end() < len(data)
        end = len(data) if found is None else found.end() if is_end else found.start()
        if self._long == "keep":
            made.append(data[at:end])
        if is_end:
            self._long = ""
        return end

    def _field(self, field: bytes, is_whole: bool = True) -> bytes:
        """Returns what becomes of a field."""
        before = b""
        action = self._find(field) if self._checks else None
        kept = field
        if action is not None:
            before, kept = self._act(action, field)
        if self._missing is not None and (found := _FIELD.match(kept)) and (name := found[1].lower()) in COUNTED:
            self._present.add(name)
        if not is_whole:
            self._long = "keep" if kept is field else "drop"
        elif self._rewriter is not None and kept and not self.refusal:
            kept = self._rewritten(kept)
        return before + kept

    def _rewritten(self, field: bytes) -> bytes:
        name = _FIELD.match(field)
        assert self._rewriter is not None
        if name is None:
            return field
        try:
            if self._budget.for_pattern() <= 0:
                raise PatternTooSlow("the addresses of the header take too long")
            return self._rewriter(name[1].lower(), field, self._budget)
        except PatternTooSlow as slow:
            self._too_slow(_text(field), slow)
            return field

    def _find(self, field: bytes) -> Action | None:
        text = _text(field[: self._rules.size_limit])
        try:
            for checks in self._checks:
                action = checks.find(text, self._budget)
                if action is not None:
                    return action
        except PatternTooSlow as slow:
            self._too_slow(text, slow)
        return None

    def _too_slow(self, text: str, slow: PatternTooSlow) -> None:
        self._checks, self._rewriter = (), None
        self._note("warning", text, str(slow))
        if not self._rules.passes_on_timeout:
            self.refusal, self.too_slow = TEMPFAIL, str(slow)

    def _act(self, action: Action, field: bytes) -> tuple[bytes, bytes]:
        """Does what a check says; returns what is put before the field, and what becomes of it."""
        deed, text = action.deed, action.text
        shown = _text(field)
        if deed is Deed.DUNNO:
            return b"", field
        if deed in (Deed.PREPEND, Deed.REPLACE):
            written = _written(text)
            if not written:
                self._note("warning", shown, f"{action.place}: {deed.name}: not a header field; nothing is changed")
                return b"", field
            self._note(deed, shown, text)
            return (written, field) if deed is Deed.PREPEND else (b"", written)
        if deed in (Deed.BCC, Deed.REDIRECT):
            if not is_mailbox(text) or len(self.copies) >= COPIES_MAX:
                self._note("warning", shown, f"{action.place}: {deed.name} {text}: not an address, or too many")
                return b"", field
            if deed is Deed.BCC:
                self.copies.append(text)
            else:
                self.redirect = text
        elif deed is Deed.REJECT:
            self.refusal = _refusal(text)
            self._checks = ()
        elif deed is Deed.HOLD:
            self.held_because = _clean(text) or f"header check {action.place}"
        elif deed is Deed.DISCARD:
            self.is_discarded = True
            self._checks = ()  # as Postfix; the message must not be refused after all
        elif deed is Deed.PASS:
            self._checks = ()
        if deed is not Deed.IGNORE:
            self._note("warning" if deed is Deed.WARN else deed, shown, text)
        return b"", b"" if deed in (Deed.IGNORE, Deed.STRIP) else field

    def _note(self, action: str, field: str, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(Note(str(action), field[:200], text))


def _is_mailbox_line(data: bytes) -> bool:
    """Returns whether a line that a mailbox has before a message is at the top; False also if it is not complete."""
    if _MAILBOX_LINE.match(data) is None or _FIELD.match(data) is not None:
        return False
    return _CRLF in data or len(data) > NAME_BYTES_MAX


def _text(field: bytes) -> str:
    """Returns a field as patterns see it."""
    unstuffed = field[1:] if field.startswith(b".") else field
    return unstuffed.replace(b"\r\n", b"\n").rstrip(b"\n").decode("utf-8", "surrogateescape")


def _written(text: str) -> bytes:
    """Returns the field that a check writes; b"" if its text is not one. Lines after the first are folded."""
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    folded = "\r\n".join([*lines[:1], *(line if line[0] in " \t" else f" {line}" for line in lines[1:])])
    field = folded.encode("utf-8", "surrogateescape") + b"\r\n"
    if field.startswith(b"."):
        field = b"." + field
    return field if _FIELD.match(field) and b"\0" not in field else b""


def _clean(text: str) -> str:
    """Returns a text on one line, without characters that cannot be shown; groups of a pattern may have any."""
    words = " ".join(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())[:REASON_MAX]
    return "".join(each if each.isprintable() else "?" for each in words)


def _refusal(text: str) -> str:
    """Returns the reply for REJECT; its text may begin with an enhanced status code."""
    text = _clean(text).encode("ascii", "replace").decode("ascii")
    code = _CODE.match(text)
    if code is None:
        return f"550 5.7.1 {text or REJECTED}"
    return f"{'450' if code[1] == '4' else '550'} {code[0]} {text[code.end() :].strip() or REJECTED}"
