"""Debian's Exim, which cannot be installed beside Postfix: unpacked, with a configuration, a spool and a log of its own.

Its user does not exist then, so it runs in a mount namespace with a passwd file of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.end_to_end.appliance import free_port
from tests.software.programs import program, started, unpacked

__all__ = ["PACKAGES", "Exim", "exim"]

PACKAGES = ("exim4-daemon-light", "libidn12")  # nothing else that ./test installs needs libidn
USER_ID = 64_999
BEHIND = "driver = manualroute\n  route_list = * localhost byname"
_CONFIGURATION = """
exim_path = {binary}
exim_user = Debian-exim
exim_group = Debian-exim
primary_hostname = exim.example.test
spool_directory = {directory}/spool
log_file_path = {directory}/log/%slog
log_selector = +all
daemon_smtp_ports = {port}
local_interfaces = 127.0.0.1
disable_ipv6 = true
keep_environment = LD_LIBRARY_PATH
deliver_drop_privilege = true
never_users =
acl_smtp_rcpt = rcpt
smtputf8_advertise_hosts = *
chunking_advertise_hosts = *
dsn_advertise_hosts = *
tls_advertise_hosts = *
tls_certificate = {pem}
tls_privatekey = {pem}

begin acl
rcpt:
  deny local_parts = gone
    message = no such user
  accept

begin routers
all:
  {router}
  self = send
  transport = out

begin transports
out:
  driver = smtp
  port = {behind}
  allow_localhost
  hosts_try_chunking = *
{transport}

begin retry
* * F,2h,1s
"""


class Exim:
    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port

    @property
    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted((self.directory / "log").glob("*log")))


def _name_the_user(directory: Path) -> None:
    for name, line in (
        ("passwd", f"Debian-exim:x:{USER_ID}:{USER_ID}::/:/bin/false"),
        ("group", f"Debian-exim:x:{USER_ID}:"),
    ):
        (directory / name).write_text(Path("/etc", name).read_text() + line + "\n")


@contextlib.asynccontextmanager
async def exim(
    directory: Path, behind: int, pem: Path, transport: str = "", router: str = BEHIND
) -> AsyncIterator[Exim]:
    """``directory`` is one that other users can enter; mail goes on to the port ``behind``, as ``transport`` says.

    It goes to localhost, or to the hosts that ``router`` finds.
    """
    made = Exim(directory / "exim", free_port())
    for name in ("spool", "log"):
        (made.directory / name).mkdir(parents=True)
    os.chmod(pem, 0o644)
    for path in (made.directory, *made.directory.iterdir()):
        os.chown(path, USER_ID, USER_ID)
    usr = unpacked(directory, *PACKAGES) / "usr"
    binary = usr / "sbin" / "exim4"
    (library,) = usr.glob("lib/*/libidn.so.12")
    configuration = directory / "exim.conf"
    values = {"binary": binary, "directory": made.directory, "port": made.port, "pem": pem, "behind": behind}
    configuration.write_text(_CONFIGURATION.format(transport=transport, router=router, **values))
    _name_the_user(directory)
    binds = " && ".join(f"mount --bind {directory / name} /etc/{name}" for name in ("passwd", "group"))
    command = f"{binds} && exec {binary} -C {configuration} -bdf -q1s"
    async with started(
        (program("unshare"), "-m", "/bin/sh", "-c", command),
        made.port,
        made.directory / "log" / "mainlog",
        {"LD_LIBRARY_PATH": str(library.parent)},
    ):
        yield made
