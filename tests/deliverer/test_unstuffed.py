"""The dots are taken out of the data whole, wherever its blocks end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import cast

from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.unstuffed import unstuffed

LENGTH_MAX = 5  # a stuffed dot behind a line end, and one octet before and behind


class Blocks:
    """Data that is read in blocks with the ends ``cuts``."""

    def __init__(self, data: bytes, cuts: tuple[int, ...]) -> None:
        self.length = len(data)
        self._blocks = {start: data[start:end] for start, end in pairwise((0, *cuts, len(data)))}

    def read(self, start: int) -> bytes:
        return self._blocks[start]


def cut_anywhere() -> Iterator[tuple[bytes, tuple[int, ...]]]:
    for length in range(LENGTH_MAX + 1):
        for octets in product(b"\r\n.a", repeat=length):
            for count in range(max(length, 1)):
                for cuts in combinations(range(1, length), count):
                    yield bytes(octets), cuts


def test_the_octets_are_the_same_wherever_the_blocks_end() -> None:
    wrong = []
    for data, cuts in cut_anywhere():
        expected = (b"\r\n" + data).replace(b"\r\n.", b"\r\n")[2:]  # RFC 5321 4.5.2
        if b"".join(unstuffed(cast(MessageData, Blocks(data, cuts)))) != expected:
            wrong.append((data, cuts))
    assert not wrong
