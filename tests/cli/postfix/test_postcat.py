"""The command postcat shows header and body of a message, however the pieces of its data are divided."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mailcore.cli.postfix import postcat
from mailcore.control.client import ControlClient
from mailcore.control.protocol.messages import DataPiece

MESSAGES = [
    (b"A: 1\r\nB: 2\r\n C\r\n\r\nbody\r\n\r\nmore\r\n", b"A: 1\nB: 2\n C\n", b"\nbody\n\nmore\n"),
    (b"A: 1\r\n\r\n", b"A: 1\n", b"\n"),
    (b"\r\nbody\r\n\r\nmore\r\n", b"", b"\nbody\n\nmore\n"),
    (b"A: 1\r\n", b"A: 1\n", b""),
]


class Divided:
    """Stands for a control client whose answer comes in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)

    def ask(self, operation: str, result: type, arguments: dict[str, Any]) -> DataPiece:
        piece = self._pieces.pop(0)
        offset = arguments["offset"]
        return DataPiece(offset=offset, data=piece, more=bool(self._pieces), size_bytes=0)


def shown(pieces: list[bytes], *, header: bool, body: bool) -> bytes:
    control = cast(ControlClient, Divided(pieces))
    return b"".join(postcat._lines(control, "Q", header=header, body=body))


@pytest.mark.parametrize(("data", "header", "body"), MESSAGES)
def test_header_and_body_are_the_same_however_they_are_divided(data: bytes, header: bytes, body: bytes) -> None:
    cuts = [(first, second) for first in range(len(data) + 1) for second in range(first, len(data) + 1)]
    for first, second in cuts:
        pieces = [data[:first], data[first:second], data[second:]]
        assert shown(pieces, header=True, body=False) == header, pieces
        assert shown(pieces, header=False, body=True) == body, pieces
        assert shown(pieces, header=True, body=True) == header + body, pieces
    single = [data[at : at + 1] for at in range(len(data))]
    assert shown(single, header=True, body=True) == header + body
