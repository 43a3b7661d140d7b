"""Functions that read the files of the settings, for a process that is given them: rooms know ``Settings`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.config.managed import Managed
from mailcore.config.settings import Settings

__all__ = ["IN_FORCE", "SettingsFiles"]

IN_FORCE = "settings.json"  # in the run directory: the settings of the processes; the supervisor replaces it


@dataclass(frozen=True, slots=True)
class SettingsFiles:
    """Holds the functions of ``mailcore.config.load``; all but the last raise ConfigError."""

    load: Callable[[Path], Settings]  # of the configuration file, with the managed one above it
    load_managed: Callable[[Path, str], tuple[Settings, Managed]]  # with this text as that of the managed file
    managed_path: Callable[[Mapping[str, Any], Path], Path | None]  # of what the configuration file says
