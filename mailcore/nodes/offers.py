"""Keeps which nodes did not take a shard of a node that drains: others are asked first, then it waits.

A node does not take a shard for which it has no place, for instance because the place has the files of another queue. The node
that drains then takes it back and delivers its mail. Without this it would offer it to the same node again at once, and
deliver nothing of it for ten seconds each time.

Pure: rows and the time are arguments. After a restart each node is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mailcore.replication.shard import ShardRow

__all__ = ["AGAIN_S", "AGAIN_S_MAX", "Offers"]

AGAIN_S = 60.0  # until a node is asked for the same shard again; doubled each time
AGAIN_S_MAX = 3600.0


class _Refusal(NamedTuple):
    """How often a node did not take a shard, and when it is asked again."""

    times: int
    again_at: float


class Offers:
    """The offers of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._offered: dict[str, tuple[int, str]] = {}  # shard -> epoch in which it was handed over, and to whom
        self._refused: dict[str, dict[str, _Refusal]] = {}  # shard -> node

    def look(self, rows: Mapping[str, ShardRow], now: float) -> None:
        """Takes over what the rows say: a shard that was handed over and is ours again was not taken."""
        for name in (self._offered.keys() | self._refused.keys()) - rows.keys():
            self._forget(name)
        for name, row in rows.items():
            if row.node != self._node:
                self._forget(name)
            elif row.is_released:
                self._offered[name] = (row.epoch, row.wanted)
            elif name in self._offered and row.epoch > self._offered[name][0]:
                _, node = self._offered.pop(name)
                refused = self._refused.setdefault(name, {})
                times = refused[node].times + 1 if node in refused else 1
                refused[node] = _Refusal(times, now + min(AGAIN_S * 2 ** (times - 1), AGAIN_S_MAX))

    def clear(self) -> None:
        """Forgets all: the node does not drain."""
        self._offered.clear()
        self._refused.clear()

    def may(self, shard: str, node: str, now: float) -> bool:
        """Returns whether a node may be asked to take a shard now."""
        refusal = self._refused.get(shard, {}).get(node)
        return refusal is None or now >= refusal.again_at

    def has_refusals(self) -> bool:
        """Returns whether a node did not take a shard."""
        return bool(self._refused)

    def troubles(self, now: float, others: Iterable[str]) -> list[str]:
        """Returns a sentence for each shard that was not taken. ``others``: the nodes that could be asked."""
        found = []
        for shard, refused in sorted(self._refused.items()):
            names = ", ".join(sorted(refused))
            able = list(others)
            wait_s = max(min((refused[each].again_at for each in able if each in refused), default=now) - now, 0.0)
            if not able:
                begins, then = "waits", "; no other node lives and takes shards"
            elif not refused.keys() >= set(able):
                begins, then = "asks another node", ""
            elif wait_s:
                begins, then = "waits", f"; asked again in {round(wait_s)} s"
            else:
                begins, then = "asks again", ""
            found.append(
                f"the drain {begins}: {names} did not take shard {shard}, and waypost node state there says why{then}"
            )
        return found

    def _forget(self, shard: str) -> None:
        self._offered.pop(shard, None)
        self._refused.pop(shard, None)
