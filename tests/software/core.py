"""A running core between programs that are not ours, and what the tests need to compare what came out."""

from __future__ import annotations

import contextlib
import json
import smtplib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from tests.deliverer.authority import Authority, Issued
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore, Sections

__all__ = ["core_with", "exact", "smtp_session", "tls_files", "with_key"]


def with_key(issued: Issued) -> bytes:
    """Returns a certificate and its key as PEM."""
    key = issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key + issued.pem


def tls_files(directory: Path, authority: Authority, *names: str) -> Path:
    """Returns a PEM file with a key and its certificate for ``names``."""
    pem = directory / f"{names[0]}.pem"
    pem.write_bytes(with_key(authority.issue(*names)))
    return pem


@contextlib.asynccontextmanager
async def core_with(
    directory: Path,
    port: int,
    authority: Authority,
    sections: Sections | None = None,
    routes: Mapping[str, str] | None = None,
    listeners: Sequence[Mapping[str, str]] = (),
    certificates: Sequence[Mapping[str, object]] = (),
) -> AsyncIterator[RunningCore]:
    """A core with a certificate, whose next hop is at ``port``; ``certificates`` are further ones, by name."""
    pem = str(tls_files(directory, authority, "mx.waypost.test", "localhost"))
    receiver = {"hostname": "mx.waypost.test", "tls_certificate": pem, "tls_key": pem}
    # On a busy machine a deliverer may wait for a CPU longer than for a dead host, which no test here has.
    deliverer = {"connect_timeout_s": PATIENCE_S}
    merged = dict(sections or {})
    for section, values in (("receiver", receiver), ("deliverer", deliverer)):
        merged[section] = {**values, **merged.get(section, {})}
    core = RunningCore(directory, {"*": f"smtp:[127.0.0.1]:{port}", **(routes or {})}, merged)
    with core.config.open("a") as config:
        for table, rows in (("listener", listeners), ("certificate", certificates)):
            for row in rows:
                lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items())
                config.write(f"\n[[{table}]]\n{lines}")
    await core.start()
    try:
        yield core
    finally:
        await core.control.close()
        core.stop()


def smtp_session(
    port: int, sender: str, recipients: Sequence[str], data: bytes, mail: Sequence[str], rcpt: Sequence[str]
) -> None:
    """Sends a message with Python's smtplib and these parameters of MAIL and RCPT."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=PATIENCE_S) as client:
        client.ehlo()
        client.command_encoding = "utf-8"
        assert client.mail(sender, mail)[0] == 250
        for recipient in recipients:
            assert client.rcpt(recipient, rcpt)[0] == 250
        assert client.data(data)[0] == 250


def exact(wire: bytes, message: bytes) -> bool:
    """Whether dot-stuffed data is ``message`` byte for byte, behind trace fields."""
    data = wire[1:] if wire.startswith(b".") else wire
    return data.replace(b"\r\n..", b"\r\n.").endswith(message)
