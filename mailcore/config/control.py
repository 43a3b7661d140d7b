"""The section [control]: the control socket."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import number, text, whole
from mailcore.config import values

__all__ = ["Control"]


@dataclass(frozen=True, kw_only=True)
class Control:
    """[control]: the control socket, which the command line and the portal use."""

    group: str = text(
        "",
        "a group whose members may use the control socket, beside root and the user of the daemon",
        values.group,
        special={"": "no group"},
    )
    clients_max: int = whole(200, 1, 10_000, "connections", "maximum concurrent connections")
    simulations_max: int = whole(
        2,
        0,
        100,
        "simulations",
        "maximum concurrent simulations, each a process of its own",
        special={0: "simulations are switched off"},
    )
    simulation_timeout_s: float = number(30.0, 1, 3600, "seconds", "time after which a simulation is ended")
    simulation_entries_max: int = whole(
        30_000,
        1_000,
        10_000_000,
        "deliveries",
        "maximum deliveries of one simulation; of a longer queue only a part is simulated",
    )
