"""The old host: its main.cf, services and tables, read once, and the settings that have a finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mailcore.import_postfix.defaults import DEFAULTS, of_host
from mailcore.import_postfix.main_cf import MainCf, parse_main_cf
from mailcore.import_postfix.master_cf import Service, parse_master_cf
from mailcore.import_postfix.tables import CONFIG_DIRECTORY, Tables

__all__ = ["Machine", "open_machine", "read_text"]

FILE_BYTES_MAX = 64 << 20


@dataclass
class Machine:
    """The configuration of a Postfix. ``seen``: names of main.cf with a finding. ``services``: None without master.cf."""

    directory: Path
    cf: MainCf
    services: list[Service] | None
    tables: Tables
    faults: list[str]
    seen: set[str] = field(default_factory=set)

    def where(self, name: str) -> str:
        """Returns the place of a setting, such as ``main.cf:12``; without a line if it is not set."""
        line = self.cf.lines.get(name)
        return "main.cf" if line is None else f"main.cf:{line}"

    def what(self, name: str) -> str:
        """Returns the setting as written, or Postfix's default with a note."""
        shown = " ".join(self.cf.raw(name).split())
        return f"{name} = {shown}" + ("" if name in self.cf else " (Postfix's default)")

    def look(self, name: str) -> str:
        """Returns the expanded value and marks the setting as having a finding."""
        self.seen.add(name)
        return self.cf.value(name)

    def other_instances(self) -> list[str]:
        """Returns the configuration directories of other Postfix instances on this host (postmulti(1))."""
        return self.cf.list("multi_instance_directories")

    def smtp_services(self) -> list[Service]:
        """Returns the services that deliver over SMTP."""
        return [each for each in self.services or () if each.kind == "unix" and each.command == "smtp"]


def read_text(path: Path) -> str:
    """Reads a file of at most FILE_BYTES_MAX. Raises OSError, UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(f"has more than {FILE_BYTES_MAX} bytes")
    return data.decode()


def open_machine(directory: Path, hostname: str) -> Machine:
    """Reads a configuration. Raises OSError, UnicodeDecodeError without a readable main.cf; a missing master.cf is a fault."""
    text = read_text(directory / "main.cf")
    given, _, _ = parse_main_cf(text)
    cf = MainCf(text, DEFAULTS | of_host(hostname, given))
    faults = list(cf.faults)
    services: list[Service] | None = None
    try:
        services, more = parse_master_cf(read_text(directory / "master.cf"))
        faults += more
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"master.cf: cannot be read; assuming Postfix's default listeners and transports ({error})")
    config_directory = Path(cf.value("config_directory") or CONFIG_DIRECTORY)
    return Machine(directory, cf, services, Tables(directory, read_text, config_directory), faults)
