"""Starts ``waypost mailcore`` as a copy of a Python that has loaded it: a fresh one takes 0.8 s of CPU, 300 times a run.

The copy is what the supervisor's own process would be after its imports: leader of a session of its own, with the environment,
directory and limits that its test has when it starts it. What has to be set before a Python starts (``LD_PRELOAD``,
``PYTHONPATH`` …) and has changed since gets a fresh one. tests/supervisor, the demo and the backups of older versions start the
command itself.

Laws
- What is copied has one thread, has loaded what the supervisor loads and nothing else, and has done nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from mailcore import processes
from mailcore.cli import mailcore
from mailcore.cli.main import main as command
from mailcore.supervisor.start import prepare_role

__all__ = ["COMMAND", "Copy", "start"]

COMMAND = Path(sys.executable).with_name("waypost")
ROOT = Path(__file__).resolve().parents[2]
ORDER_BYTES = 1 << 18  # an environment and a command
_READ_AT_START = ("LD_", "PYTHON", "FAKETIME", "MALLOC_", "GLIBC_", "LC_", "LANG")


class Copy:
    """A started core; to its test it is what a ``subprocess.Popen`` is."""

    def __init__(self, loaded: _Loaded, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loaded = loaded

    def poll(self) -> int | None:
        """Returns the exit status, -N after signal N, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._loaded.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("waypost mailcore", timeout)
            time.sleep(0.002)
        return status

    def terminate(self) -> None:
        """Sends SIGTERM; nothing if its end was seen already."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class _Loaded:
    """The Python that is copied: one for each process of tests, started with the first core, and parent of all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.environment = _of_a_start()

    def ask(self, order: dict[str, Any], *descriptors: int) -> Any:
        """Returns the answer to an order: the process id of a copy, or how one ended."""
        with self._lock:
            asked = self._asked()
            socket.send_fds(asked, [json.dumps(order).encode()], descriptors)
            answer = asked.recv(ORDER_BYTES)
        assert answer, "the Python that is copied has ended"
        return json.loads(answer)

    def _asked(self) -> socket.socket:
        if self._socket is None:
            self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:  # the last words: whose processes these are (waypost doctor looks at them)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.running.loaded", str(its.fileno()), str(COMMAND), "mailcore"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, pass_fds=[its.fileno()],
                    start_new_session=True,
                )  # fmt: skip
            atexit.register(self.close)
        return self._socket

    def close(self) -> None:
        """Ends it; the copies live on."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
        self._socket = self._process = None


def _of_a_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_START)}


_LOADED = _Loaded()


def start(arguments: list[str], output: int) -> Copy | subprocess.Popen[bytes]:
    """Starts ``waypost ARGUMENTS``, whose output goes to the descriptor ``output``."""
    if _of_a_start() != _LOADED.environment:
        return subprocess.Popen([str(COMMAND), *arguments], stdout=output, stderr=output, start_new_session=True)
    order = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    return Copy(_LOADED, _LOADED.ask(order, output))


# -- in the Python that is copied


def main() -> int:
    """Loads what the supervisor loads, then makes copies until the test's process closes its end."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    assert mailcore is not None  # its module is loaded
    for role in processes.ROLES.values():
        prepare_role(role)
    gc.collect()
    gc.freeze()  # no copy looks for garbage in what they share
    assert len(os.listdir("/proc/self/task")) == 1, "a copy would lack the threads"
    while True:
        said, descriptors, *_ = socket.recv_fds(asked, ORDER_BYTES, 1)
        if not said:
            return 0
        order = json.loads(said)
        answer = _ended(order["pid"]) if "pid" in order else _copy(order, *descriptors)
        asked.send(json.dumps(answer).encode())


def _ended(copy: int) -> int | None:
    pid, status = os.waitpid(copy, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def _copy(order: dict[str, Any], output: int) -> int:
    leads, led = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.close(led)
        _carry_out(order, output)
    os.close(led)
    os.close(output)
    os.read(leads, 1)  # until it leads a session: its test may end the group at once
    os.close(leads)
    return pid


def _carry_out(order: dict[str, Any], output: int) -> None:
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(order["files"]))
        _change_environment(order["environment"])
        time.tzset()
        os.chdir(order["directory"])
        sys.argv = [str(COMMAND), *order["arguments"]]
        status = command()
    except BaseException:  # nothing may return into the code above
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _change_environment(wanted: dict[str, str]) -> None:
    """Touches nothing that stays: setproctitle looks for its place between the arguments and the environment of the start."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


if __name__ == "__main__":
    sys.exit(main())
