"""The values in a line of the mail log: text from outside made harmless, delays in Postfix's form.

Law: for any text of a client, a server or an operator, a line stays one line of printable ASCII, and this text cannot begin a
field: the result never contains ``=<`` or the end of a field. No function here raises.

Keeps law: log-line-stays-one-line (docs/laws.md).
"""

from __future__ import annotations

import re

__all__ = ["client_text", "free", "inside", "seconds", "word"]

TEXT_MAX = 1_000  # characters of one text; an RFC 5321 reply line has at most 512, ours may join several
SHORTENED = "..."

_HUNDREDTHS = 1_000  # delays below 10 s are looked up


def _ascii(text: str) -> str:
    """Returns printable ASCII, of at most TEXT_MAX characters; others become backslash escapes, then backslashes do
    too."""
    if len(text) > TEXT_MAX:
        text = text[:TEXT_MAX] + SHORTENED
    if text.isascii() and text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")


def free(text: str) -> str:
    """Returns text for the end of a line: a reply, a reason."""
    text = _ascii(text)
    if "=<" in text:
        text = text.replace("=<", "=\\x3c")
    if "forwarded as" in text:  # pflogsumm does not count a message with this text as delivered
        text = text.replace("forwarded as", "forwarded\\x20as")
    return text


# Characters that end or begin a field, escaped like the others.
_INSIDE = str.maketrans({"<": "\\x3c", ">": "\\x3e", " ": "\\x20"})
_WORD = str.maketrans({"<": "\\x3c", ">": "\\x3e", " ": "\\x20", ",": "\\x2c", ";": "\\x3b", "=": "\\x3d"})
_not_plain = re.compile(r"[^!-~]|[<>,;=]").search


def inside(text: str) -> str:
    """Returns text for inside angle brackets: an address, a HELO name, a Message-ID."""
    text = _ascii(text)
    return text.translate(_INSIDE) if "<" in text or ">" in text or " " in text else text


def word(text: str) -> str:
    """Returns text that stands between separators: a host, a relay, a file."""
    if len(text) <= TEXT_MAX and _not_plain(text) is None:
        return text
    return _ascii(text).translate(_WORD)


def _format(value: float) -> str:
    """Formats with two significant digits, at most two decimals, no trailing zeros, as Postfix's format_tv(3) does."""
    if value < 0.995:
        text = f"{value:.2f}"
    elif value < 9.95:
        text = f"{value:.1f}"
    else:
        return f"{value:.0f}"
    return text.rstrip("0").rstrip(".")


_SECONDS = tuple(_format(hundredths / 100) for hundredths in range(_HUNDREDTHS))


def seconds(value: float) -> str:
    """Returns a delay as text: 0.05, 1.2, 12. A negative one (a clock set back) and NaN are 0."""
    if 0.0 <= value < 9.99:
        return _SECONDS[int(value * 100 + 0.5)]
    return _format(value) if 0.0 < value < 1e12 else "0"


def client_text(name: str, address: str) -> str:
    """Returns name[address]; a bracket in a name from the DNS is escaped, so that it cannot begin another address."""
    return f"{word(name).replace('[', chr(92) + 'x5b') or 'unknown'}[{word(address)}]"
