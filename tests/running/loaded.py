"""Starts ``waypost mailcore`` as a copy of a Python that has loaded it: a fresh one takes 0.8 s of CPU, 300 times a run.

The copy is what the supervisor's own process would be after its imports: leader of a session of its own, with the environment,
directory and limits that its test has when it starts it. What has to be set before a Python starts (``LD_PRELOAD``,
``PYTHONPATH`` …) and has changed since gets a fresh one. tests/supervisor, the demo and the backups of older versions start the
command itself.

Laws
- What is copied has one thread, has loaded what the supervisor loads and nothing else, and has done nothing.
- What happens to a test, or to what is copied, makes no later start fail.
"""

from __future__ import annotations

import atexit
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
from pathlib import Path
from typing import Any

from mailcore import processes
from mailcore.cli import mailcore
from mailcore.cli.main import main as command
from mailcore.supervisor.forked import run_and_exit
from mailcore.supervisor.start import prepare_role

__all__ = ["COMMAND", "Copy", "alive", "start"]

COMMAND = Path(sys.executable).with_name("waypost")
ROOT = Path(__file__).resolve().parents[2]
ORDER_BYTES = 1 << 18  # an environment and a command
UNKNOWN = 255  # the exit status of a copy whose parent was killed
_READ_AT_START = ("LD_", "PYTHON", "FAKETIME", "MALLOC_", "GLIBC_", "LC_", "LANG")


class Copy:
    """A started core; to its test it is what a ``subprocess.Popen`` is."""

    def __init__(self, loaded: _Loaded, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loaded = loaded
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Returns the exit status, -N after signal N, or None while it runs."""
        with self._lock:  # the status is there once, and two threads may wait for it
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
        atexit.register(self.close)

    def ask(self, order: dict[str, Any], *descriptors: int) -> Any:
        """Returns the answer to an order: the process id of a copy, or how one ended. Raises OSError."""
        with self._lock:
            try:
                answer = self._answer(order, descriptors)
            except ConnectionError:  # it was killed
                answer = self._answer(order, descriptors)
        if isinstance(answer, dict):
            raise OSError(answer["error"])
        return answer

    def _answer(self, order: dict[str, Any], descriptors: tuple[int, ...]) -> Any:
        try:
            asked = self._asked()
            socket.send_fds(asked, [json.dumps(order).encode()], descriptors)
            answer = asked.recv(ORDER_BYTES)
            if not answer:
                raise ConnectionResetError("the Python that is copied has ended")
        except BaseException:  # a time-out of the test, too: the next order would get this answer
            self.close()
            raise
        return json.loads(answer)

    def _asked(self) -> socket.socket:
        if self._socket is None:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:  # the last words: whose processes these are (waypost doctor looks at them)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.running.loaded", str(its.fileno()), str(COMMAND), "mailcore"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, pass_fds=[its.fileno()],
                    start_new_session=True, env=_without_those_of_a_start() | self.environment,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
            finally:
                its.close()
            self._socket = ours
        return self._socket

    def close(self) -> None:
        """Ends it; the copies live on, and the next order starts another."""
        asked, process = self._socket, self._process
        self._socket = self._process = None
        if asked is not None:
            asked.close()
        if process is not None:
            process.kill()
            process.wait()


def _of_a_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_START)}


def _without_those_of_a_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_START)}


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


def alive(pid: int) -> bool:
    """Returns whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
        answer: int | dict[str, str] | None
        try:
            answer = _ended(order["pid"]) if "pid" in order else _copy(order, *descriptors)
        except Exception as error:  # no process may be started now, say: it is the trouble of this test alone
            answer = {"error": f"no copy of Python: {error!r}"}
        for each in descriptors:
            os.close(each)
        asked.send(json.dumps(answer).encode())


def _ended(copy: int) -> int | None:
    try:
        pid, status = os.waitpid(copy, os.WNOHANG)
    except ChildProcessError:  # one before this has started it, or told its end to a test that did not listen any more
        return None if alive(copy) else UNKNOWN
    return os.waitstatus_to_exitcode(status) if pid else None


def _copy(order: dict[str, Any], output: int) -> int:
    leads, led = os.pipe()
    with open(leads, "rb", buffering=0) as leading:
        with open(led, "wb", buffering=0):
            pid = os.fork()
            if not pid:
                run_and_exit(lambda: _carry_out(order, output, led))
        leading.read(1)  # until it leads a session: its test may end the group at once
    return pid


def _carry_out(order: dict[str, Any], output: int, led: int) -> int:
    """Runs the command in the copy; returns its exit status."""
    os.setsid()
    os.close(led)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(order["files"]))
    _change_environment(order["environment"])
    time.tzset()
    os.chdir(order["directory"])
    sys.argv = [str(COMMAND), *order["arguments"]]
    return command()


def _change_environment(wanted: dict[str, str]) -> None:
    """Touches nothing that stays: setproctitle looks for its place between the arguments and the environment of the start."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


if __name__ == "__main__":
    sys.exit(main())
