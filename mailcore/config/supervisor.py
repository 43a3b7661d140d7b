"""The section [supervisor]: the process that starts the others."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import number

__all__ = ["Supervisor"]


@dataclass(frozen=True, kw_only=True)
class Supervisor:
    """[supervisor]: starts the mail processes and restarts any that exit."""

    silent_s: float = number(
        60.0, 5, 3600, "seconds", "time without progress after which a process is killed and restarted"
    )
    reload_s: float = number(
        1.5,
        0,
        60,
        "seconds",
        "time that a reload gives clients and deliveries to end what they have begun; then their connections are closed",
    )
