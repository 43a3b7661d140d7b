"""The way in which a process is given the files of [rewriting], so that one without them does not load what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mailcore.config.live_maps import LiveMaps

__all__ = ["OpenRewriting", "no_rewriting"]

OpenRewriting = Callable[..., "LiveMaps | None"]
"""Opens the files: (settings, log, threads). None if nothing is rewritten."""


def no_rewriting(settings: Any, *_: object) -> None:
    """Stands for ``OpenRewriting`` in tests of processes that rewrite nothing."""
    if settings.rewriting.is_on:  # mail would go to addresses that are not final
        raise RuntimeError("[rewriting] is set, and this process has nothing that reads its files")
