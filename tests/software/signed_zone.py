"""A zone signed by BIND's tools, its name server, and a second BIND that validates it: what DANE needs, on loopback."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.end_to_end.appliance import free_port
from tests.software.programs import program, started

__all__ = ["validating_server"]

_OPTIONS = """
options {{
    directory "{directory}";
    pid-file "{directory}/{name}.pid";
    session-keyfile none;
    managed-keys-directory "{directory}";
    listen-on port {port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    notify no;
    {more}
}};
controls {{ }};
"""
_ZONE = """$TTL 300
@ IN SOA ns.{name}. hostmaster.{name}. 1 3600 600 86400 60
@ IN NS ns.{name}.
ns IN A 127.0.0.1
{records}"""


def _signed(directory: Path, name: str, records: str) -> tuple[Path, str]:
    """Signs a zone; returns its file and the public part of its key."""
    kind = ("-q", "-K", directory, "-a", "ECDSAP256SHA256", "-n", "ZONE")
    for more in (("-f", "KSK"), ()):
        subprocess.run([program("dnssec-keygen"), *kind, *more, name], check=True, capture_output=True)
    file = directory / f"{name}.zone"
    file.write_text(_ZONE.format(name=name, records=records))
    sign = (program("dnssec-signzone"), "-S", "-K", directory, "-o", name, file)
    subprocess.run(sign, check=True, capture_output=True, cwd=directory)
    keys = [path.read_text() for path in directory.glob(f"K{name}.*.key")]
    (found,) = [match for text in keys if (match := re.search(r"DNSKEY 257 3 13 (.+)", text))]
    return directory / f"{name}.zone.signed", found[1].replace(" ", "")


@contextlib.asynccontextmanager
async def validating_server(directory: Path, zones: Mapping[str, str], port: int = 0) -> AsyncIterator[str]:
    """``zones`` maps names to records. Yields the address for ``nameservers``; its answers about them have the AD bit.

    It has any free port, or ``port``.
    """
    authority, resolver = free_port(), port or free_port()
    served, anchors, forwarded = "", "", ""
    for name, records in zones.items():
        file, key = _signed(directory, name, records)
        served += f'zone "{name}" {{ type primary; file "{file}"; }};\n'
        anchors += f'{name}. static-key 257 3 13 "{key}";\n'
        forwarded += f'zone "{name}" {{ type forward; forward only; forwarders {{ 127.0.0.1 port {authority}; }}; }};\n'
    commands = []
    for role, its_port, more, rest in (
        ("authority", authority, "recursion no; dnssec-validation no;", served),
        ("resolver", resolver, "recursion yes; dnssec-validation yes;", f"trust-anchors {{\n{anchors}}};\n{forwarded}"),
    ):
        path = directory / f"{role}.conf"
        path.write_text(_OPTIONS.format(directory=directory, name=role, port=its_port, more=more) + rest)
        commands.append((program("named"), "-g", "-n", "1", "-c", path))
    async with (
        started(commands[0], authority, directory / "authority.log"),
        started(commands[1], resolver, directory / "resolver.log"),
    ):
        yield f"127.0.0.1:{resolver}"
