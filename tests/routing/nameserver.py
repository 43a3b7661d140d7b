"""Debian's BIND on free loopback ports, with zones the tests write; it ends with the test that started it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import pytest

from tests.eventually import PATIENCE_S

_CONFIGURATION = """
options {{
    directory "{directory}";
    pid-file "{directory}/named.pid";
    session-keyfile none;
    managed-keys-directory "{directory}";
    listen-on port {port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    recursion no;
    notify no;
    dnssec-validation no;
    querylog yes;
}};
controls {{ }};
"""

_ZONE = 'zone "{name}" {{ type primary; file "{file}"; }};\n'

_BEGIN = """$TTL 300
@ IN SOA ns.{name}. hostmaster.{name}. 1 3600 600 86400 60
@ IN NS ns.{name}.
ns IN A 127.0.0.1
"""


class NameServer:
    """``text`` is what goes into ``nameservers``; ``log`` is what BIND wrote, one line a query among them."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.log = log
        self.text = f"127.0.0.1:{port}"

    def queries(self, name: str) -> int:
        """How often ``name`` was asked for, whatever the type."""
        return sum(f"query: {name} IN" in line for line in self.log.read_text("utf-8", "replace").splitlines())


@contextlib.contextmanager
def name_server(directory: Path, zones: Mapping[str, str]) -> Iterator[NameServer]:
    """``zones`` maps names to records; SOA and NS are added. A zone with nonsense in it answers SERVFAIL."""
    program = shutil.which("named", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.fail("BIND is missing: apt-get install bind9")
    port = _free_port()
    configuration = _CONFIGURATION.format(directory=directory, port=port)
    for name, records in zones.items():
        file = directory / f"{name}.zone"
        file.write_text(_BEGIN.format(name=name) + records, encoding="utf-8")
        configuration += _ZONE.format(name=name, file=file)
    path = directory / "named.conf"
    path.write_text(configuration, encoding="utf-8")
    log = directory / "named.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-g", "-n", "1", "-c", str(path), "-p", str(port)], stdout=output, stderr=output
        )
    try:
        _wait(port, process, log)
        yield NameServer(port, log)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    """Free for UDP and TCP."""
    while True:
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            stream.bind(("127.0.0.1", 0))
            port: int = stream.getsockname()[1]
            with contextlib.suppress(OSError):
                datagrams.bind(("127.0.0.1", port))
                return port


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers."""
    question = dns.message.make_query("version.bind.", "TXT", "CH")
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(dns.exception.DNSException, OSError):
            dns.query.udp(question, "127.0.0.1", timeout=0.5, port=port)
            return
        time.sleep(0.05)
    pytest.fail(f"named does not answer:\n{log.read_text('utf-8', 'replace')[-3000:]}")
