"""Runs a test in a network, mounts and processes of its own, where it can have port 53, port 25 and an /etc/resolv.conf.

Programs that are not ours ask the name server of /etc/resolv.conf, and send mail to port 25 of its answers. pytest starts once
more for the test, in new namespaces; when it ends, the kernel ends all that it has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import PATIENCE_S
from tests.software.programs import DOWNLOADED, downloaded, open_directory

__all__ = ["ADDRESS", "in_own_network"]

ADDRESS = "192.0.2.25"  # beside 127.0.0.1, where a client takes us for itself; RFC 5737: for examples
_INSIDE = "WAYPOST_TEST_OWN_NETWORK"
_ROOT = Path(__file__).parents[2]
_RESOLV = (
    "nameserver 127.0.0.1\noptions trust-ad\n"  # resolv.conf(5): the C library hides the AD bit from Exim without it
)
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_ENTER = f"""
set -eu
mount --bind "$1" /etc/resolv.conf
ip link set lo up
ip address add {ADDRESS}/32 dev lo
shift
"$@"
"""

Test = Callable[..., Awaitable[None]]


def in_own_network(*packages: str) -> Callable[[Test], Test]:
    """Runs a test there, with these Debian packages at hand. Skips it where no such network can be made."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        async def run_inside(**arguments: Any) -> None:
            if os.environ.get(_INSIDE):
                _check_inside()
                await test(**arguments)
            else:
                before = _of_this_host()
                await _run_again(packages)
                assert _of_this_host() == before, "the test has changed this host"

        return run_inside

    return decorate


def _of_this_host() -> tuple[bytes, str]:
    return Path("/etc/resolv.conf").read_bytes(), "".join(
        line for line in Path("/proc/self/mountinfo").read_text().splitlines(True) if " /etc/" in line
    )


def _check_inside() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert Path("/etc/resolv.conf").read_text() == _RESOLV


async def _run_again(packages: tuple[str, ...]) -> None:
    """Runs the present test inside. Fails with its output if it fails there."""
    with open_directory() as directory:
        _skip_if_impossible()
        resolv = directory / "resolv.conf"
        resolv.write_text(_RESOLV)
        for package in packages:
            (directory / downloaded(package).name).symlink_to(downloaded(package))
        # Not below the directory of the outer test: the path of a Unix socket has at most 107 bytes.
        again = (sys.executable, "-m", "pytest", "--long", "--basetemp", str(directory / "t"), "-p", "no:cacheprovider")
        process = await asyncio.create_subprocess_exec(
            *(*_UNSHARE, "sh", "-c", _ENTER, "sh", str(resolv), *again, _present_test()),
            cwd=_ROOT,
            env={**os.environ, _INSIDE: "1", DOWNLOADED: str(directory), "TMPDIR": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()  # it has the patience of any test, and the outer one pytest's
        finally:  # its child gets SIGKILL with it, and with that one everything inside
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0 or b"1 passed" not in output:  # it may not have been run
        pytest.fail(output.decode(errors="replace"), pytrace=False)


def _present_test() -> str:
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]


def _skip_if_impossible() -> None:
    for name, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(name) is None:
            pytest.skip(f"a network of its own needs {name} of Debian's {package}")
    tried = subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    if tried.returncode:
        pytest.skip(f"no network of its own can be made here: {tried.stderr.strip()}")
