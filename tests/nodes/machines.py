"""Machines without a kernel of their own: network namespaces with addresses, that are cut off, and killed as a whole.

Two networks, one of the database and one of mail, are bridges in a namespace of their own. The test goes into that namespace,
so nothing of it is seen outside: no interface, no port.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.eventually import eventually_blocking
from tests.running.loaded import alive

__all__ = ["DATABASE", "MAIL", "Machine", "Networks", "faked", "missing", "networks"]

DATABASE, MAIL = "database", "mail"
NETWORKS = {DATABASE: "10.78.1", MAIL: "10.78.2"}
SWITCH = 1  # the last number of the test's own addresses
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def missing() -> str:
    """Says why there can be no machines here; "" when there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    lacking = [name for name in ("ip", "nsenter", "setpriv") if shutil.which(name) is None]
    return f"missing: {', '.join(lacking)}" if lacking else ""


def faked(offset_s: float, directory: Path) -> dict[str, str]:
    """The environment of a program whose wall clock is wrong; its monotonic clock is real."""
    (library,) = glob.glob(_LIBRARY)
    # Python sleeps until an instant of the monotonic clock, for which this library answers EINVAL. Every Python reads this
    # first.
    (directory / "sitecustomize.py").write_text(
        "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"
    )
    return {
        "LD_PRELOAD": library, "FAKETIME": f"{offset_s:+.0f}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1", "PYTHONPATH": str(directory),
    }  # fmt: skip


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Machine:
    """A namespace with an address in each of its networks, and a directory."""

    def __init__(self, space: str, switch: str, name: str, number: int, directory: Path) -> None:
        self.space = space
        self.name = name
        self.directory = directory
        self._switch = switch
        self._number = number
        self._started: list[subprocess.Popen[bytes]] = []

    def address(self, network: str) -> str:
        return f"{NETWORKS[network]}.{self._number}"

    def start(
        self, words: Sequence[str], *, user: str = "", environment: Mapping[str, str] | None = None, log: str = "log"
    ) -> subprocess.Popen[bytes]:
        """Starts a program here; what it says is in the directory."""
        # Set behind the change of user: what libfaketime makes in shared memory belongs to who loads it first.
        given = ["env", *(f"{name}={value}" for name, value in (environment or {}).items())]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        with (self.directory / log).open("ab") as out:
            process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.space}", *become, *given, *words], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True, cwd=self.directory,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        self._started.append(process)
        return process

    def said(self, *words: str) -> str:
        """What a command says that is run here, and ends."""
        return _run("nsenter", f"--net=/run/netns/{self.space}", *words)

    def pids(self) -> list[int]:
        return [pid for pid in map(int, _run("ip", "netns", "pids", self.space).split()) if alive(pid)]

    def kill(self) -> None:
        """Kills every process here at once, as a power failure would, except that the disk keeps what was written."""

        def none_is_left() -> bool:
            for pid in (left := self.pids()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started:
                process.poll()
            return not left

        eventually_blocking(none_is_left, f"the end of {self.name}")
        for process in self._started:
            process.kill()
            process.wait()
        self._started = []

    def cut(self, network: str) -> None:
        """Takes its cable out of the switch: what it sends gets no answer, and no error."""
        _run("ip", "-n", self._switch, "link", "set", _port(self.name, network), "nomaster")

    def mend(self, network: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", _port(self.name, network), "master", network)


def _port(name: str, network: str) -> str:
    return f"{name}.{network}"[:15]


class Networks:
    """The switch, and its machines by name."""

    def __init__(self, prefix: str, directory: Path) -> None:
        self.switch = f"{prefix}-switch"
        self.directory = directory
        self._prefix = prefix
        self._stack = ExitStack()
        self._count = SWITCH

    def open(self) -> None:
        self._add(self.switch)
        for network, base in NETWORKS.items():
            _run("ip", "-n", self.switch, "link", "add", network, "type", "bridge")
            _run("ip", "-n", self.switch, "addr", "add", f"{base}.{SWITCH}/24", "dev", network)
            _run("ip", "-n", self.switch, "link", "set", network, "up")

    def close(self) -> None:
        self._stack.close()

    def _add(self, space: str) -> None:
        _run("ip", "netns", "add", space)
        self._stack.callback(_run, "ip", "netns", "delete", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")

    def machine(self, name: str, *of: str) -> Machine:
        """Makes one with an address in these networks; it is killed and gone at the end."""
        self._count += 1
        directory = self.directory / name
        directory.mkdir(mode=0o755)
        made = Machine(f"{self._prefix}-{name}", self.switch, name, self._count, directory)
        self._add(made.space)
        self._stack.callback(made.kill)
        for network in of:
            ours = _port(name, network)
            _run(
                "ip",
                "-n",
                self.switch,
                "link",
                "add",
                ours,
                "type",
                "veth",
                "peer",
                "name",
                network,
                "netns",
                made.space,
            )
            _run("ip", "-n", self.switch, "link", "set", ours, "master", network, "up")
            _run("ip", "-n", made.space, "addr", "add", f"{made.address(network)}/24", "dev", network)
            _run("ip", "-n", made.space, "link", "set", network, "up")
        return made


@contextmanager
def networks(directory: Path) -> Iterator[Networks]:
    """Makes the networks, and takes this thread into them: its sockets, and the processes and threads that it starts."""
    made = Networks(f"wp{os.getpid()}", directory)
    try:
        made.open()
        with _inside(made.switch):
            yield made
    finally:
        made.close()


@contextmanager
def _inside(space: str) -> Iterator[None]:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(before)
        os.close(there)
        os.close(before)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
