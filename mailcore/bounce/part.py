"""The body parts of a report, each with its header (RFC 2045)."""

from __future__ import annotations

from mailcore.bounce.text import encode, is_seven_bit, quoted_printable

__all__ = ["part", "part_header"]


def part(media_type: str, body: bytes, description: str, wide: bool) -> bytes:
    """Returns one body part, in the simplest encoding that it permits."""
    charset = ""
    if media_type == "text/plain":
        charset = "; charset=us-ascii" if body.isascii() else "; charset=utf-8"
    if is_seven_bit(body):
        encoding = "7bit"
    elif wide and media_type == "message/global-delivery-status":
        encoding = "8bit"  # the message is UTF-8 anyway, and few programs decode this part
    else:
        encoding = "quoted-printable"
        body = quoted_printable(body)
    return part_header(f"{media_type}{charset}", description, encoding) + body


def part_header(content_type: str, description: str, encoding: str) -> bytes:
    """Returns the header of a body part, with the empty line at its end."""
    return encode(
        [
            f"Content-Description: {description}",
            f"Content-Type: {content_type}",
            f"Content-Transfer-Encoding: {encoding}",
            "",
        ]
    )
