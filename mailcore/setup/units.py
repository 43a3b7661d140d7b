"""Sets up systemd for ``waypost setup``: sockets as the settings say, units enabled and started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mailcore.config.settings import Settings

__all__ = ["CORE", "PORTAL", "PORTAL_SERVICES", "Systemd", "socket_addresses", "wanted_units"]

CORE, PORTAL = "waypost-core.socket", "waypost-portal.socket"
PORTAL_SERVICES = ("waypost-portal.service", "waypost-watch.service", "waypost-webhooks.service")
SERVICES = ("waypost-core.service", *PORTAL_SERVICES)
FIREWALL = "waypost-firewall.service"  # of the playbook
DROP_IN = "waypost-setup.conf"
BOOTED = Path("/run/systemd/system")  # sd_booted(3)
START_S = 120.0


class UnitsError(Exception):
    """systemd refused; the message says what it answered."""


def socket_addresses(settings: Settings) -> dict[str, list[str]]:
    """Returns the addresses of each socket unit."""
    return {CORE: [each.address for each in settings.all_listeners], PORTAL: [settings.portal.listen]}


@dataclass(frozen=True)
class Systemd:
    """The units of the package in ``shipped``; what the administrator's side adds to them is below ``own``."""

    shipped: Path = Path("/usr/lib/systemd/system")
    own: Path = Path("/etc/systemd/system")

    @property
    def runs(self) -> bool:
        """Returns whether systemd is the init of this host; it is not in most containers."""
        return BOOTED.is_dir()

    def units(self) -> list[str]:
        """Returns the installed units, in the order in which they start: those of the reports last."""
        known = [name for name in (CORE, PORTAL, *SERVICES) if self._is_there(name)]
        found = {path.name for place in (self.shipped, self.own) for path in place.glob("waypost-*.service")}
        return [*known, *sorted(found - set(known) - {FIREWALL})]

    def _is_there(self, name: str) -> bool:
        return (self.shipped / name).exists() or (self.own / name).exists()

    def set_addresses(self, unit: str, addresses: Sequence[str]) -> bool:
        """Makes the socket unit listen on ``addresses``; returns whether that is a change. Raises OSError."""
        lines = ["# Made by waypost setup from waypost.toml.", "[Socket]", "ListenStream="]
        text = "\n".join([*lines, *(f"ListenStream={each}" for each in addresses)]) + "\n"
        path = self.own / f"{unit}.d" / DROP_IN
        if path.is_file() and path.read_text() == text:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o644)
        new.replace(path)
        return True

    def is_active(self, unit: str) -> bool:
        """Returns whether it runs, or listens."""
        return self._call("is-active", "--quiet", unit).returncode == 0

    def is_enabled(self, unit: str) -> bool:
        """Returns whether it starts with the host."""
        return self._call("is-enabled", "--quiet", unit).returncode == 0

    def tell(self, *words: str) -> None:
        """Runs systemctl. Raises UnitsError."""
        done = self._call(*words)
        if done.returncode != 0:
            raise UnitsError(f"systemctl {' '.join(words)}: {done.stderr.strip() or 'failed'}")

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603  # our own command line
            ["systemctl", *words],  # noqa: S607  # in root's path
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            env={"PATH": os.defpath + ":/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"},
        )


def wanted_units(systemd: Systemd) -> list[str]:
    """Returns the installed units that do not both run and start with the host."""
    return [unit for unit in systemd.units() if not (systemd.is_active(unit) and systemd.is_enabled(unit))]
