"""Starts programs that are not ours: each in a directory of its own, on free loopback ports, ended by its own process id."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.eventually import PATIENCE_S, eventually

__all__ = ["DOWNLOADED", "downloaded", "open_directory", "program", "run", "started", "unpacked"]

DOWNLOADED = (
    "WAYPOST_TEST_PACKAGES"  # in the environment: a directory with Debian packages, for tests without a network
)
PLACES = "/usr/sbin:/usr/bin:/usr/lib/postfix/sbin:/usr/local/sbin"


def program(name: str) -> str:
    """Returns the path of a program; ./test --long installs it."""
    found = shutil.which(name) or shutil.which(name, path=PLACES)
    assert found is not None, f"Debian's {name} is missing; ./test --long installs it"
    return found


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that other users can enter: servers drop root, and pytest's directories are root's alone."""
    if os.geteuid() != 0:
        pytest.skip("servers of other users need root")
    path = Path(tempfile.mkdtemp(prefix="wp-soft."))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _packages() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="wp-deb."))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def downloaded(package: str) -> Path:
    """Gets a Debian package from ``$WAYPOST_TEST_PACKAGES`` or, once a run, from Debian; returns its file."""
    given = os.environ.get(DOWNLOADED)
    directory = Path(given) if given else _packages()
    if not (found := list(directory.glob(f"{package}_*.deb"))):
        assert not given, f"{package} is not in {given}"
        command = ["apt-get", "download", package]
        got = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S)
        assert got.returncode == 0, f"{' '.join(command)}: {got.stdout}{got.stderr}"
        found = list(directory.glob(f"{package}_*.deb"))
    (file,) = found
    return file


def unpacked(directory: Path, *packages: str) -> Path:
    """Unpacks Debian packages that cannot be installed beside Postfix; returns the directory that holds their files."""
    target = directory / "unpacked"
    target.mkdir()
    for package in packages:
        subprocess.run(["dpkg", "-x", downloaded(package), target], check=True, timeout=PATIENCE_S)
    return target


async def run(
    *command: str | Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None, code: int | None = 0
) -> str:
    """Runs a program to its end; returns what it wrote. ``code``: the exit status that it must have; None: any."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
    )
    output, _ = await asyncio.wait_for(process.communicate(stdin), PATIENCE_S)
    text = output.decode("utf-8", "replace")
    assert code is None or process.returncode == code, f"{command[0]} ended with {process.returncode}:\n{text}"
    return text


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str | Path], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """A server, from when it accepts connections on ``port``; it ends with its whole process group."""
    with log.with_suffix(".out").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdout=out,
            stderr=out,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        await eventually(
            lambda: _listens(port) or process.returncode is not None, lambda: f"{command[0]}\n{_read(log)}"
        )
        assert process.returncode is None, f"{command[0]} has ended:\n{_read(log)}"
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _read(log: Path) -> str:
    return "\n".join(
        path.read_text(errors="replace")[-3000:] for path in (log, log.with_suffix(".out")) if path.exists()
    )
