"""Debian's Postfix with a configuration, a queue and a log of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.end_to_end.appliance import free_port
from tests.software.programs import program, run, started

__all__ = ["Postfix", "postfix"]

# chroot is off everywhere; pickup, qmgr and the delivery agents as in Debian's master.cf.
_MASTER = """\
{port} inet n - n - - smtpd
pickup unix n - n 1 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
lmtp unix - - n - - lmtp
proxymap unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


class Postfix:
    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.log_file = directory / "maillog"

    @property
    def route(self) -> str:
        return f"smtp:[127.0.0.1]:{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    async def sendmail(self, *arguments: str, message: bytes) -> None:
        """Hands a message in as a local user does."""
        await run(program("sendmail"), "-C", self.directory, *arguments, stdin=message)


@contextlib.asynccontextmanager
async def postfix(directory: Path, settings: Mapping[str, object]) -> AsyncIterator[Postfix]:
    """``directory`` is one that other users can enter."""
    made = Postfix(directory / "postfix", free_port())
    made.directory.mkdir()
    values = {
        "compatibility_level": "3.6",
        "queue_directory": made.directory / "queue",
        "data_directory": made.directory / "data",
        "maillog_file": made.log_file,
        "maillog_file_prefixes": made.directory,
        "myhostname": "postfix.example.test",
        "mydestination": "",
        "local_transport": "error:no local mail",
        "mynetworks": "127.0.0.0/8",
        "inet_interfaces": "loopback-only",
        "inet_protocols": "ipv4",
        "smtpd_relay_restrictions": "permit_mynetworks, reject",
        "alias_maps": "",
        "biff": "no",
        "smtputf8_enable": "yes",
        "minimal_backoff_time": "1s",
        "queue_run_delay": "1s",
        "smtp_tls_loglevel": "1",
        "smtpd_tls_loglevel": "1",
        "debug_peer_level": "3",
        **settings,
    }
    text = "".join(f"{name} = {value}\n" for name, value in values.items())
    (made.directory / "main.cf").write_text(text)
    (made.directory / "master.cf").write_text(_MASTER.format(port=f"127.0.0.1:{made.port}"))
    data = made.directory / "data"
    data.mkdir()
    shutil.chown(data, "postfix", "postfix")
    (made.directory / "queue").mkdir()
    command = (program("postfix"), "-c", made.directory, "start-fg")
    async with started(command, made.port, made.log_file):
        try:
            yield made
        finally:  # its master has a session of its own
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((made.directory / "queue" / "pid" / "master.pid").read_text()), signal.SIGTERM)
