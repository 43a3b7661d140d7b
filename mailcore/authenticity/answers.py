"""Answers of the DNS that evaluations share: each is kept for its TTL, and one question serves all that want its answer.

Laws: memory is bounded in bytes for any zone; at most ``at_once`` questions are under way; a failure is an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from mailcore.authenticity.sender_check import Ask

__all__ = ["Answer", "Answers", "is_askable"]

KEPT_BYTES_MAX = 16 << 20
ENTRY_BYTES = 300  # of an answer without records
RECORDS_MAX = 100  # of one name; a bound against a hostile zone
TTL_S_MAX = 3600.0


class Answer(NamedTuple):
    """The records of a name. ``failed``: a time-out, or an error of a name server; a name that is not there did not fail."""

    records: tuple[str, ...] = ()
    failed: bool = False


class Answers:
    """Asks for records of a kind ("TXT", "A" …), and remembers them. ``clock`` is monotonic seconds."""

    def __init__(self, ask: Ask, clock: Callable[[], float], at_once: int) -> None:
        self._ask = ask
        self._clock = clock
        self._places = asyncio.Semaphore(at_once)
        self._known: dict[tuple[str, str], tuple[float, Answer, int]] = {}  # until when, what, its bytes
        self._bytes = 0
        self._asking: dict[tuple[str, str], asyncio.Task[Answer]] = {}

    async def find(self, name: str, kind: str) -> Answer:
        """Returns the answer; a name that is not ASCII, or too long, has no records."""
        name = name.lower().removesuffix(".")
        if not name.isascii() or not is_askable(name):
            return Answer()
        question = name, kind
        known = self._known.get(question)
        if known is not None and known[0] > self._clock():
            return known[1]
        task = self._asking.get(question)
        if task is None:
            task = self._asking[question] = asyncio.create_task(self._find(question))
        return await asyncio.shield(task)  # an evaluation that gave up leaves the answer to others

    async def _find(self, question: tuple[str, str]) -> Answer:
        try:
            async with self._places:
                records, ttl_s, failed = await self._ask(*question)
            answer = Answer(tuple(records[:RECORDS_MAX]), failed)
            self._keep(question, min(ttl_s, TTL_S_MAX), answer)
            return answer
        finally:
            del self._asking[question]

    def _keep(self, question: tuple[str, str], ttl_s: float, answer: Answer) -> None:
        self._forget(question)
        size = ENTRY_BYTES + len(question[0]) + sum(map(len, answer.records))
        self._known[question] = self._clock() + ttl_s, answer, size
        self._bytes += size
        while self._bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._known)))  # the one remembered first

    def _forget(self, question: tuple[str, str]) -> None:
        known = self._known.pop(question, None)
        if known is not None:
            self._bytes -= known[2]


def is_askable(name: str) -> bool:
    """Returns whether the DNS can hold this name (RFC 1035 2.3.4)."""
    return len(name) <= 253 and all(1 <= len(label) <= 63 for label in name.split("."))
