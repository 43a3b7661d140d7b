"""The old host: its main.cf, services and tables, read once, and the settings that have a finding."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from mailcore.import_postfix.defaults import DEFAULTS, of_host
from mailcore.import_postfix.main_cf import MainCf, parse_main_cf
from mailcore.import_postfix.master_cf import Service, parse_master_cf
from mailcore.import_postfix.tables import CONFIG_DIRECTORY, Tables, is_of_this_host

__all__ = ["Machine", "open_machine", "read_text"]

FILE_BYTES_MAX = 64 << 20


@dataclass
class Machine:
    """The configuration of a Postfix. ``seen``: names of main.cf with a finding. ``services``: None without master.cf.

    ``has_name``: whether the name of its host is known.
    """

    directory: Path
    cf: MainCf
    services: list[Service] | None
    tables: Tables
    faults: list[str]
    has_name: bool = True
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

    def needs_name(self, name: str) -> bool:
        """Tells whether the value of a setting depends on the name of the host, and that is not known."""
        if self.has_name:
            return False
        names = [each for each in ("myhostname", "mydomain") if each not in self.cf]
        return self.cf.value(name, dict.fromkeys(names, "a")) != self.cf.value(name, dict.fromkeys(names, "b"))

    def other_instances(self) -> list[str]:
        """Returns the configuration directories of other Postfix instances on its host (postmulti(1))."""
        return self.cf.list("multi_instance_directories")

    def delivering_services(self) -> list[Service]:
        """Returns the services that deliver over SMTP or LMTP."""
        return [each for each in self.services or () if each.kind == "unix" and each.command in ("smtp", "lmtp")]


def read_text(path: Path) -> str:
    """Reads a file of at most FILE_BYTES_MAX. Raises OSError, UnicodeDecodeError."""
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"has more than {FILE_BYTES_MAX} bytes", str(path))
    return data.decode()


def _at_once(path: str, flags: int) -> int:
    """Opens a file also if it is a named pipe without a writer, which would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_machine(directory: Path, hostname: str) -> Machine:
    """Reads a configuration. ``hostname``: that of its host, used if main.cf sets none; "" if it is not known.

    Raises OSError, UnicodeDecodeError without a readable main.cf; a missing master.cf is a fault.
    """
    text = read_text(directory / "main.cf")
    given, _, _ = parse_main_cf(text)
    own = os.path.abspath(directory) if is_of_this_host(directory) else str(CONFIG_DIRECTORY)
    cf = MainCf(text, DEFAULTS | of_host(hostname, given) | {"config_directory": own})
    faults = list(cf.faults)
    services: list[Service] | None = None
    try:
        services, more = parse_master_cf(read_text(directory / "master.cf"))
        faults += more
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else "not UTF-8"
        faults.append(f"master.cf: cannot be read; assuming Postfix's default listeners and transports ({why})")
    config_directory = Path(cf.value("config_directory") or own)
    has_name = bool(hostname or "myhostname" in cf)
    return Machine(directory, cf, services, Tables(directory, read_text, config_directory), faults, has_name)
