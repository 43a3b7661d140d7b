"""The stores of the control process in a shard that a database keeps: of mail that is handed in here, and of the pickup's lane.

Only types. They are missing in a queue that is alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mailcore.config.settings import Settings
from mailcore.control.orders import Orders
from mailcore.log.store import Store
from mailcore.queue.reserved_time import Keeper

__all__ = ["LocalStores", "OpenLocalStores", "no_stores"]


@dataclass(frozen=True)
class LocalStores:
    """``end_at`` is the end of the records of the pickup's lane; None: its files say it. ``number`` is that of the shard."""

    control: Store
    pickup: Store
    end_at: int | None
    reserved: Keeper
    number: int
    orders: Orders


OpenLocalStores = Callable[[Settings], LocalStores | None]


def no_stores(_: Settings) -> None:
    """Stands for ``OpenLocalStores`` in a queue that is alone."""
