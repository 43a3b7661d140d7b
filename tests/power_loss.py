"""How a power loss comes out: one random way, or every way there is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Protocol

__all__ = ["SECTOR", "Choice", "PowerLoss", "RandomChoice", "every"]

SECTOR = 512  # bytes that a disk writes as one


class PowerLoss(BaseException):
    """The machine stopped before this call. No ``except Exception`` of the code under test may swallow it."""


class Choice(Protocol):
    def pick(self, count: int) -> int:
        """One of 0 .. count - 1."""

    def cut(self, length: int) -> int:
        """Where a write of ``length`` bytes is torn: 1 .. length - 1."""

    @property
    def coarse(self) -> bool:
        """True when all choices are gone through, so that there should be few."""


class RandomChoice:
    coarse = False

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, count: int) -> int:
        return self._random.randrange(count)

    def cut(self, length: int) -> int:
        # Half of them where sectors end: that is where disks tear; the other half anywhere.
        if length > SECTOR and self._random.random() < 0.5:
            return self._random.randrange(1, (length - 1) // SECTOR + 1) * SECTOR
        return self._random.randrange(1, length)


class _Enumeration:
    """Replays a prefix of decisions and takes the first answer for those behind it."""

    coarse = True

    def __init__(self, prefix: list[int]) -> None:
        self.taken: list[tuple[int, int]] = []
        self._prefix = prefix

    def pick(self, count: int) -> int:
        at = len(self.taken)
        answer = self._prefix[at] if at < len(self._prefix) else 0
        self.taken.append((answer, count))
        return answer

    def cut(self, length: int) -> int:
        return length // 2


def every(limit: int) -> Iterator[Choice]:
    """All ways the choices can come out, up to ``limit``; an AssertionError when there are more: use a smaller history."""
    prefix: list[int] = []
    for _ in range(limit):
        choice = _Enumeration(prefix)
        yield choice
        prefix = [answer for answer, _ in choice.taken]
        counts = [count for _, count in choice.taken]
        while prefix and prefix[-1] + 1 == counts[len(prefix) - 1]:
            prefix.pop()
        if not prefix:
            return
        prefix[-1] += 1
    raise AssertionError(f"more than {limit} ways to crash")
