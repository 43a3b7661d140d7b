"""Makes text from outside fit for a bounce: addresses, replies, and the header section of the returned message.

Laws: for any input, the result has no control character, no line break of the input, and a bounded length. No function here
raises.
"""

from __future__ import annotations

import binascii
import re
import textwrap
from collections.abc import Sequence

__all__ = [
    "ADDRESS_MAX",
    "address_field",
    "clean",
    "encode",
    "folded",
    "header_address",
    "header_section",
    "is_seven_bit",
    "quoted_printable",
]

LINE_WIDTH = 72
LINE_MAX = 998  # RFC 5322 2.1.1, without CRLF
ADDRESS_MAX = 900  # characters, and bytes where UTF-8 stands; RFC 5321 allows 320, more would break the line limit
HEADERS_MAX = 50_000  # bytes of the returned header section; Postfix's bounce_size_limit
SHORTENED = "..."

# As what is not in them: a set that names a million characters takes 10 ms to compile
_ATOM = r'[^\x00-\x20"(),.:;<>@\[\\\]\x7f]+'
_DOT_ATOM = rf"{_ATOM}(?:\.{_ATOM})*"
_QUOTED = r'"(?:[^\x00-\x1f"\\\x7f]|\\[ -~])*"'
_mailbox = re.compile(rf"(?:{_DOT_ATOM}|{_QUOTED})@(?:{_DOT_ATOM}|\[[!-Z^-~]+\])").fullmatch
# RFC 6533 section 3: QCHAR stands for itself, everything else is \x{HEX} in the seven-bit form
_not_qchar = re.compile(r"[^!-*,-<>-\[\]-~]")
# A seven-bit part may hold printable ASCII, tab and line ends only
_not_plain = re.compile(rb"[^\t\r\n -~]").search


def clean(text: str, length_max: int) -> str:
    """Returns one line of printable characters."""
    if len(text) > length_max:
        text = text[:length_max] + SHORTENED
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text).strip()


def folded(text: str, first: str = "", others: str | None = None) -> list[str]:
    """Returns the text in lines of LINE_WIDTH. A longer word stays whole, unless its line would be too long for mail.

    ``first`` and ``others`` begin the first and all further lines.
    """
    wrapper = textwrap.TextWrapper(
        LINE_WIDTH,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    lines = wrapper.wrap(text)
    if any(len(line.encode("utf-8", "replace")) > LINE_MAX for line in lines):
        wrapper.break_long_words = True
        lines = wrapper.wrap(text)
    return lines


def encode(lines: Sequence[str]) -> bytes:
    """Returns the lines in UTF-8, each with CRLF."""
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace")


def address_field(address: str, wide: bool) -> str:
    """Returns the value of Final-Recipient: type and address (RFC 3464 2.3.2, RFC 6533 3). ``wide``: UTF-8 is allowed."""
    address = clean(address, ADDRESS_MAX)
    if address.isascii():
        return f"rfc822; {address}"
    if wide:
        return f"utf-8; {address.encode('utf-8', 'replace')[:ADDRESS_MAX].decode('utf-8', 'ignore')}"
    # Whole characters only: one escape is at most ten long.
    escaped = _not_qchar.sub(lambda match: f"\\x{{{ord(match[0]):X}}}", address[: ADDRESS_MAX // 10])
    return f"utf-8; {escaped}"


def header_address(address: str) -> str:
    """Returns the value of To: the address, or a group without members when it is not a valid one.

    So an address cannot smuggle in a second one.
    """
    if address.isprintable() and len(address.encode("utf-8", "replace")) <= ADDRESS_MAX and _mailbox(address):
        return f"<{address}>"
    return "undisclosed-recipients:;"


def header_section(stored: bytes) -> bytes:
    """Returns the header section of a message as stored: dots unstuffed, whole lines, at most HEADERS_MAX bytes."""
    lines: list[bytes] = []
    size = 0
    for line in stored[: HEADERS_MAX + 2].split(b"\r\n"):
        if not line:
            break
        text = line.removeprefix(b".") if line.startswith(b".") else line
        size += len(text) + 2
        if size > HEADERS_MAX:
            break
        lines.append(text)
    return b"".join(line + b"\r\n" for line in lines)


def is_seven_bit(body: bytes) -> bool:
    """Returns whether the body can be sent as 7bit: short lines that end in CRLF, and printable ASCII only."""
    if _not_plain(body) is not None:
        return False
    return all(len(line) <= LINE_MAX and b"\r" not in line and b"\n" not in line for line in body.split(b"\r\n"))


def quoted_printable(body: bytes) -> bytes:
    """Returns the same lines in quoted-printable (RFC 2045 6.7)."""
    encoded = (binascii.b2a_qp(line, istext=False).replace(b"\n", b"\r\n") for line in body.split(b"\r\n"))
    return b"\r\n".join(encoded)
