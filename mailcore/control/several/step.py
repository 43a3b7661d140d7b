"""One step of a question to several shards, and what a client says about it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Step", "Taking"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a question to several shards: it opens one to a shard, gives the next part of its answer, or emits a part."""

    shard: int = 0
    operation: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    part: Any = None
    is_open: bool = False
    is_emit: bool = False


class Taking:
    """Gives the steps of one question. Before the next, the client says what the last one ``gave``, or why it ``failed``."""

    def __init__(self, steps: Generator[Step, Any, Any]) -> None:
        self._steps = steps
        self.gave: Any = None
        self.failed: Exception | None = None

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        gave, failed, self.gave, self.failed = self.gave, self.failed, None, None
        return self._steps.send(gave) if failed is None else self._steps.throw(failed)
