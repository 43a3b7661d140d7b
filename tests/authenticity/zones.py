"""DNS answers out of a table, for evaluations without a name server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from mailcore.authenticity.answers import Answers


class Zone:
    """``records`` maps "name TYPE" to texts; the names in ``failing`` ("name TYPE" or "name") cannot be looked up."""

    def __init__(self, records: Mapping[str, Sequence[str]], failing: Sequence[str] = ()) -> None:
        self.records = {key.lower(): list(texts) for key, texts in records.items()}
        self.failing = {name.lower() for name in failing}
        self.asked: list[str] = []

    async def ask(self, name: str, kind: str) -> tuple[list[str], float, bool]:
        self.asked.append(f"{name} {kind}")
        for _ in range(8):
            if name.lower() in self.failing or f"{name} {kind}".lower() in self.failing:
                return [], 5.0, True
            alias = self.records.get(f"{name} cname".lower())
            if not alias:
                break
            name = alias[0].removesuffix(".")
        else:
            return [], 5.0, True
        return self.records.get(f"{name} {kind}".lower(), []), 60.0, False

    @property
    def answers(self) -> Answers:
        return Answers(self.ask, time.monotonic, 10)
