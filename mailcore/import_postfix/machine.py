"""The old machine: its main.cf, its services and its tables, read once; and which settings somebody has looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mailcore.import_postfix.defaults import DEFAULTS, of_host
from mailcore.import_postfix.main_cf import MainCf, parse_main_cf
from mailcore.import_postfix.master_cf import Service, parse_master_cf
from mailcore.import_postfix.tables import Tables

__all__ = ["Machine", "open_machine", "read_text"]

FILE_BYTES_MAX = 64 << 20


@dataclass
class Machine:
    """``seen``: names of main.cf that have a finding. ``services`` is None where there is no master.cf."""

    directory: Path
    cf: MainCf
    services: list[Service] | None
    tables: Tables
    faults: list[str]
    seen: set[str] = field(default_factory=set)

    def where(self, name: str) -> str:
        """``main.cf:12``; where it is not set, Postfix's default holds."""
        line = self.cf.lines.get(name)
        return "main.cf" if line is None else f"main.cf:{line}"

    def what(self, name: str) -> str:
        """As it stands there."""
        shown = " ".join(self.cf.raw(name).split())
        return f"{name} = {shown}" + ("" if name in self.cf else " (Postfix's default)")

    def look(self, name: str) -> str:
        """The value, and a note that somebody says what becomes of it."""
        self.seen.add(name)
        return self.cf.value(name)

    def other_instances(self) -> list[str]:
        """Configuration directories of more Postfixes on this host, each with a queue of its own (postmulti(1))."""
        return self.cf.list("multi_instance_directories")

    def smtp_services(self) -> list[Service]:
        """Those that deliver over SMTP."""
        return [each for each in self.services or () if each.kind == "unix" and each.command == "smtp"]


def read_text(path: Path) -> str:
    """Raises OSError, UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(f"has more than {FILE_BYTES_MAX} bytes")
    return data.decode()


def open_machine(directory: Path, hostname: str) -> Machine:
    """Raises OSError and UnicodeDecodeError where there is no main.cf to read; a missing master.cf is only told."""
    text = read_text(directory / "main.cf")
    given, _, _ = parse_main_cf(text)
    cf = MainCf(text, DEFAULTS | of_host(hostname, given))
    faults = list(cf.faults)
    services: list[Service] | None = None
    try:
        services, more = parse_master_cf(read_text(directory / "master.cf"))
        faults += more
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"master.cf: cannot be read, so listeners and transports are Postfix's usual ones ({error})")
    return Machine(directory, cf, services, Tables(directory, read_text), faults)
