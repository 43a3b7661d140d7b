"""The third part of a report: the message that came back, or its header section (RFC 3462, RFC 6532 3.7).

A returned message is not rewritten: data with eight-bit lines goes as 8bit, and the report then needs 8BITMIME.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.bounce.text import header_section, is_seven_bit, quoted_printable

__all__ = ["Returned", "returned"]


class Returned(NamedTuple):
    """A body part: its headers' values, and its body in lines that end in CRLF, not dot-stuffed."""

    media_type: str
    description: str
    encoding: str
    body: bytes


def returned(stored: bytes, whole: bool, wide: bool) -> Returned:
    """Returns the part. ``stored``: data as stored; all of it if ``whole``. ``wide``: the report may be UTF-8."""
    return _message(stored) if whole else _header_section(stored, wide)


def _message(stored: bytes) -> Returned:
    body = stored.removeprefix(b".").replace(b"\r\n.", b"\r\n")  # without the dots of dot-stuffing, RFC 5321 4.5.2
    if not body.endswith(b"\r\n"):
        body += b"\r\n"
    header = body.partition(b"\r\n\r\n")[0]
    media_type = "message/global" if not header.isascii() and _is_utf8(header) else "message/rfc822"
    return Returned(media_type, "Undelivered message", "7bit" if is_seven_bit(body) else "8bit", body)


def _header_section(stored: bytes, wide: bool) -> Returned:
    body = header_section(stored)
    media_type = "message/global-headers" if wide and not body.isascii() else "text/rfc822-headers"
    if not body.isascii() and media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    description = "Message header section"
    if is_seven_bit(body):
        return Returned(media_type, description, "7bit", body)
    return Returned(media_type, description, "quoted-printable", quoted_printable(body))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
