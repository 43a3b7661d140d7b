"""Describes what is asked of which shard as steps without I/O, which a blocking client and one of an asyncio loop take alike.

A way (``ways``) is a generator of steps. It is sent what a step gave, and the error of a step is raised in it. A shard has one
open question at a time; a way that opens another one for it leaves the one before.

Keeps law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mailcore.config.known_shards import UNKNOWN, KnownShard
from mailcore.config.waiting import Waiting
from mailcore.control.control_errors import ControlError, NotRunning, Refused, Waits
from mailcore.control.several.step import Step
from mailcore.faults import Code, Fault
from mailcore.queue.queue_id import shard_of

__all__ = ["Answers", "Question", "Steps", "Way", "add", "emitted", "next_of", "opened", "words_of"]


def opened(shard: int, operation: str, arguments: dict[str, Any]) -> Step:
    """Sends a question to a shard."""
    return Step(shard=shard, operation=operation, arguments=arguments, is_open=True)


def next_of(shard: int) -> Step:
    """Gives the next part of the answer of a shard; None: there is none."""
    return Step(shard=shard)


def emitted(part: Any) -> Step:
    """Gives a part to the client."""
    return Step(part=part, is_emit=True)


Steps: TypeAlias = Generator[Step, Any, Any]


@dataclass(slots=True)
class Session:
    """Keeps the state of a client from one question to the next."""

    injecting: int | None = None  # the shard that takes the message which is handed in
    turn: int = field(default_factory=lambda: secrets.randbelow(64))  # of the shards, for the next message


@dataclass(slots=True)
class Answers:
    """The answers of some shards to one question, and the errors of the others."""

    by_shard: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, ControlError] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)  # of the shards at others

    def sum(self) -> Any:
        """Returns the sum of the answers."""
        total: Any = None
        for answer in self.by_shard.values():
            total = answer if total is None else add(total, answer)
        return total

    def unknown(self, what: str) -> list[str]:
        """Returns a sentence for each shard that did not answer."""
        return [
            f"{words_of(shard, self.nodes)} does not answer, and {what}: {error}"
            for shard, error in self.errors.items()
        ]

    def joined(self, key: str) -> str:
        """Returns the texts of all shards under a key, each with its shard."""
        return "; ".join(
            f"{words_of(shard, self.nodes)}: {answer[key]}"
            for shard, answer in self.by_shard.items()
            if answer.get(key)
        )


@dataclass(slots=True)
class Question:
    """One question of a client to all shards."""

    shards: Sequence[KnownShard]
    operation: str
    arguments: dict[str, Any]
    session: Session
    waits: Waiting | None = None  # the reason why the shard of this home is not here, if it waits

    @property
    def numbers(self) -> list[int]:
        """Returns the numbers of the shards."""
        return [each.number for each in self.shards]

    @property
    def here(self) -> list[int]:
        """Returns the numbers of the shards that run on this node. Raises Refused, Waits if none does."""
        found = [each.number for each in self.shards if each.is_here]
        if not found and self.waits is not None:
            raise Waits(self.waits)
        if not found:
            raise Refused("no shard is at this node now, and none of its processes can be asked", code=Code.UNAVAILABLE)
        return found

    @property
    def nodes(self) -> dict[int, str]:
        """Returns the nodes of the shards that are at others."""
        return {each.number: each.node for each in self.shards if not each.is_here}

    def words_of(self, shard: int) -> str:
        """Returns a shard as people read it."""
        return words_of(shard, self.nodes)

    def ask(self, shard: int, arguments: dict[str, Any] | None = None, operation: str = "") -> Steps:
        """Returns the last part of the answer of one shard."""
        parts = yield from self.parts(shard, arguments, operation)
        return parts[-1]

    def parts(self, shard: int, arguments: dict[str, Any] | None = None, operation: str = "") -> Steps:
        """Returns all parts of the answer of one shard."""
        yield opened(shard, operation or self.operation, self.arguments if arguments is None else arguments)
        parts = []
        while (part := (yield next_of(shard))) is not None:
            parts.append(part)
        return parts

    def each(
        self, arguments: dict[str, Any] | None = None, operation: str = "", numbers: Sequence[int] | None = None
    ) -> Steps:
        """Returns ``Answers`` of all shards, or of those with numbers. Raises the error of the first if none has an answer."""
        answers = Answers(nodes=self.nodes)
        for number in self.numbers if numbers is None else numbers:
            try:
                answers.by_shard[number] = yield from self.ask(number, arguments, operation)
            except ControlError as error:
                answers.errors[number] = error
        if not answers.by_shard:
            raise first_of(answers.errors)
        return answers

    def passed_on(self, shard: int) -> Steps:
        """Gives the parts of the answer of one shard as they come."""
        yield opened(shard, self.operation, self.arguments)
        while (part := (yield next_of(shard))) is not None:
            yield emitted(part)

    def shard_of(self, queue_id: object) -> int:
        """Returns the shard of a queue id; the first for what is not a queue id: it says so. Raises Refused."""
        try:
            if not isinstance(queue_id, str):
                return self.numbers[0]
            number = shard_of(queue_id)
        except ValueError:
            return self.numbers[0]
        for each in self.shards:
            if each.of_ids == number:
                return each.number
        raise Refused.of(self.elsewhere(number))

    def find(self, queue_id: object) -> Steps:
        """Returns the shard of a message, as ``shard_of``. Raises Refused.

        A queue that became a shard has messages whose ids bear no number, or an older one: then each shard is asked. One that
        does not answer may have it.
        """
        try:
            return self.shard_of(queue_id)
        except Refused:
            silent = Answers(nodes=self.nodes)
            for number in self.numbers:
                try:
                    parts = yield from self.parts(number, {"queue_id": queue_id, "limit": 1}, "search")
                except ControlError as error:
                    silent.errors[number] = error
                    continue
                if any(part["items"] for part in parts):
                    return number
            if silent.errors:
                raise Refused("; ".join(silent.unknown("may have the message")), code=Code.UNAVAILABLE) from None
            if isinstance(queue_id, str) and not shard_of(queue_id):
                return self.numbers[0]  # which knows of no such message
            raise

    def elsewhere(self, number: int) -> Fault:
        """Returns why nothing is known of a message of a shard that does not run here."""
        where = "no node has" if self.nodes else "does not run on this node"
        return Fault(Code.NOT_FOUND, f"the message is in shard {number}, which {where}")


Way: TypeAlias = Callable[[Question], Steps]


def first_of(errors: dict[int, ControlError]) -> ControlError:
    """Returns the error to raise if no shard has an answer: that no process listens says the least."""
    return next((each for each in errors.values() if not isinstance(each, NotRunning)), next(iter(errors.values())))


def words_of(shard: int, nodes: Mapping[int, str]) -> str:
    """Returns a shard as people read it, with its node if that is another one."""
    if shard == UNKNOWN:
        return "another node"
    return f"shard {shard} at {nodes[shard]}" if shard in nodes else f"shard {shard}"


def add(a: Any, b: Any) -> Any:
    """Returns the sum of two answers: numbers are added, keys and their values united; of all else it takes the first."""
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: add(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key)) for key in {**a, **b}}
    if isinstance(a, bool) or isinstance(b, bool):
        return a
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a + b
    return a if a is not None else b
