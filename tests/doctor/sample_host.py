"""Who is host in these tests: a home, processes that may pass for Waypost's, certificates."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host

__all__ = ["NOBODY", "certificate", "children", "found", "of_nobody", "open_to_all", "running", "sample_host", "states"]

NOBODY = 65_534

SLEEPER = "import time; print(flush=True); time.sleep(100)"


def sample_host(directory: Path, text: str = "", **more: Any) -> Host:
    """Of a home that has its directories, and nothing in them."""
    config = directory / "waypost.toml"
    config.write_text(f'home = "home"\n{text}')
    settings = load(config)
    for each in (settings.queue_directory, settings.spool_directory, settings.run_directory, settings.log_directory):
        each.mkdir(mode=0o750, parents=True, exist_ok=True)
    return Host.of(settings, config, **more)


def found(findings: Iterable[Finding], what: str) -> Finding:
    """The one about it; the worst when there are several."""
    order = list(State)
    about = sorted((each for each in findings if what in each.what), key=lambda each: order.index(each.state))
    assert about, f"nothing was found about {what}"
    return about[0]


def states(findings: Iterable[Finding]) -> set[State]:
    return {each.state for each in findings}


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that passes for one of Waypost's, by its command line."""
    given = command or (sys.executable, "-c", SLEEPER, "mailcore.process.of.a.test")
    with subprocess.Popen(given, stdout=None if command else subprocess.PIPE) as process:
        try:
            if process.stdout is not None:
                process.stdout.readline()  # before, it has no command line and next to no memory
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def of_nobody(settings: Settings, name: str) -> Iterator[int]:
    """A process of another user that passes for the one with this name; only root can start it."""
    command = ["/usr/bin/env", "python3", "-c", SLEEPER, "mailcore.of.a.test"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children(settings, {name: process.pid})
        try:
            yield process.pid
        finally:
            process.kill()


def open_to_all(directory: Path) -> None:
    """Lets every user reach it."""
    for each in (directory, *directory.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)


def children(settings: Settings, pids: Mapping[str, int | None], restarts: int = 0, age_s: float = 0.0) -> None:
    """As the supervisor writes them down."""
    booted_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    told = {
        name: {
            "pid": pid, "started_at": time.time() - age_s, "since_boot_s": booted_s,
            "restarts": restarts if name != "supervisor" else 0,
        }
        for name, pid in pids.items()
    }  # fmt: skip
    (settings.run_directory / "children.json").write_text(json.dumps(told))


def certificate(directory: Path, name: str, days_left: float, days_old: float = 60) -> Path:
    """A PEM file with a key and a certificate signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "by the name of old")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=days_old))
        .not_valid_after(now + datetime.timedelta(days=days_left))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{name.replace('*', 'star')}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path
