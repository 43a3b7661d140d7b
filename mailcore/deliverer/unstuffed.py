"""A message's data without the stuffed dots, as BDAT sends it (RFC 3030), and with them, as DATA sends it and as it is stored.

Keeps law: chunks-are-the-message (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mailcore.deliverer.message_data import MessageData

__all__ = ["stuffed", "unstuffed"]

BEGINNINGS = (b"\r\n.", b"\r\n", b"\r")  # of a stuffed dot that a block may cut, longest first


def unstuffed(data: MessageData) -> Iterator[bytes]:
    """Yields the data block by block without the stuffed dots. Raises DataError."""
    carried, at = b"\r\n", 0  # the beginning of the data is the beginning of a line
    skip = 2
    while at < data.length:
        block = data.read(at)
        at += len(block)
        block = carried + block if carried else block
        carried = b""
        for beginning in BEGINNINGS if at < data.length else ():
            if block.endswith(beginning):
                block, carried = block[: -len(beginning)], beginning
                break
        if b"." in block:  # none in base64, and one octet is found much faster than three
            block = block.replace(b"\r\n.", b"\r\n")  # any first dot, as who gets it with DATA (RFC 5321 4.5.2)
        octets = block[skip:]
        if block:
            skip = 0  # the line end in front was removed
        if octets:
            yield octets


def stuffed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields text with a second dot in front of each dot that begins a line."""
    carried, is_first = b"", True
    for piece in pieces:
        text = carried + piece
        if is_first and text:
            is_first = False
            text = b"." + text if text.startswith(b".") else text
        carried = b""
        for beginning in BEGINNINGS[1:]:
            if text.endswith(beginning):
                text, carried = text[: -len(beginning)], beginning
                break
        if text:
            yield text.replace(b"\r\n.", b"\r\n..")
    if carried:
        yield carried
