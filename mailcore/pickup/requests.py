"""The requests of ``sendmail -bv`` from their first look to the report: those that wait for a place, those that are answered,
and the answers until their report is queued.

Laws
- A bounded number of requests is answered at a time, those that wait longest first. A request that waits, for a place or for
  its answer, costs no work and no look at its file.
- An answer is kept until the file of its request is gone, so that a report that cannot be queued yet asks no server again.
  Until then the request has its place: what is kept is bounded by the places, and never dropped to make room.
- An answer belongs to the request that asked: one with the same name and other content is asked about again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from mailcore.bounce.verified import Finding
from mailcore.pickup.verification import Letter, Question, Verifier

__all__ = ["Answer", "Requests", "VerificationFailed"]


class VerificationFailed(Exception):
    """Raised if a request cannot be answered because of a fault of ours; it is asked again with the next look."""


class Answer(NamedTuple):
    """The answer to a request. ``more``: how many further addresses were not asked about."""

    findings: Sequence[Finding]
    more: int


class _Request(NamedTuple):
    content: int
    question: Question
    future: Future[list[Finding]]


class _Kept(NamedTuple):
    content: int
    answer: Answer


class Requests:
    """The requests, by the names of their files. Used by one thread. ``places``: requests that are answered at a time."""

    def __init__(self, verifier: Callable[[], Verifier], places: int) -> None:
        self._open = verifier
        self._places = places
        self._under_way: dict[str, _Request] = {}  # until the answer is fetched
        self._waiting: set[str] = set()  # for a place
        self._kept: dict[str, _Kept] = {}  # fetched; together with those under way at most ``places``

    def answer(self, letter: Letter, question: Callable[[], Question]) -> Answer | None:
        """Returns the answer; None while it is not there. ``question`` is called once a place is free.

        Raises VerificationFailed, and what ``question`` raises.
        """
        name, content = letter.name, hash(letter.submission)
        kept = self._kept.get(name)
        if kept is not None:
            if kept.content == content:
                return kept.answer
            del self._kept[name]
        request = self._under_way.get(name)
        if request is not None and request.content != content:
            self._under_way.pop(name).future.cancel()
            request = None
        if request is None:
            self._begin(name, content, question)
            return None
        return self._fetched(name, request) if request.future.done() else None

    def _begin(self, name: str, content: int, question: Callable[[], Question]) -> None:
        is_next = name in self._waiting or not self._waiting  # a later one does not go before those that wait
        if self._free() <= 0 or not is_next:
            self._waiting.add(name)
            return
        self._waiting.discard(name)
        asked = question()
        self._under_way[name] = _Request(content, asked, self._open().begin(asked))

    def _fetched(self, name: str, request: _Request) -> Answer:
        del self._under_way[name]
        try:
            found = request.future.result()
        except Exception as error:  # of any kind: the file stays, and the next look asks again
            raise VerificationFailed(f"verifying addresses: {error!r}") from error
        answer = Answer([*found, *request.question.known], request.question.more)
        self._kept[name] = _Kept(request.content, answer)
        return answer

    def _free(self) -> int:
        return self._places - len(self._under_way) - len(self._kept)

    def due(self, names: Sequence[str]) -> Iterator[str]:
        """Yields the names that are worth a look: no request without news, and of those that wait as many as have a place."""
        free = self._free()
        for name in names:
            if name in self._waiting:
                free -= 1
                if free < 0:
                    continue
            elif (request := self._under_way.get(name)) is not None and not request.future.done():
                continue
            yield name

    def keep(self, names: Collection[str]) -> None:
        """Forgets requests whose files are not among ``names``, and ends what is asked for them."""
        if not (self._under_way or self._waiting or self._kept):
            return
        there = set(names)
        self._waiting &= there
        for name in self._kept.keys() - there:
            del self._kept[name]
        for name in self._under_way.keys() - there:
            self._under_way.pop(name).future.cancel()
