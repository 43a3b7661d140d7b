"""`waypost mailcore` as a child of a test: started, asked, killed in part or whole, started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from tests.eventually import PATIENCE_S, eventually
from tests.json_lines import read_list
from tests.running import loaded
from tests.running.loaded import COMMAND, alive

__all__ = ["COMMAND", "LINES_AS_THEY_ARE", "Appliance", "alive", "free_pair", "free_port"]

_returned: set[int] = set()  # the ports that this process has returned

LIST_PAGE = 1000


def free_port() -> int:
    """Returns a port below those that the kernel gives away by itself: between two starts of a core, a connection of another
    program may get one of those. It was not returned before: another server of the same test is to listen on that one.

    Each worker of a run has ports of its own, as none of them knows what the others return.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    first, count = (20_000, 12_000) if not worker else (20_000 + int(worker.removeprefix("gw")) % 8 * 1_500, 1_500)
    while True:
        port = first + secrets.randbelow(count)  # not of ``random``, which a test may have seeded as another has
        if port in _returned:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if len(_returned) > count // 2:
                _returned.clear()
            _returned.add(port)
            return port


def free_pair() -> int:
    """Returns such a port whose next one is free, too: a node uses both."""
    while True:
        port = free_port()
        if port + 1 in _returned:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port + 1))
            _returned.add(port + 1)
            return port


def _toml(value: object) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value)


# For a section of a transport: the corpus has lines of any length, and is compared byte for byte.
LINES_AS_THEY_ARE: Mapping[str, object] = {"line_length_limit": 0}


class Appliance:
    """``sections`` are merged over quick settings: short intervals, so that a retry takes a second and not five minutes."""

    def __init__(
        self, directory: Path, routes: Mapping[str, str], sections: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.port = free_port()
        self.config = directory / "waypost.toml"
        self.output = directory / "output"
        merged: dict[str, dict[str, object]] = {
            "receiver": {"listen": [f"127.0.0.1:{self.port}"], "connections_per_client_max": 1000},
            "queue": {"retry_ladder_s": [1, 5], "segment_bytes": 4 << 20, "checkpoint_interval_s": 0.3},
            "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 5.0},
            "export": {"enabled": False},  # tests/export has those that want events
            "rewriting": {
                "local_header_rewrite_clients": []
            },  # clients are servers elsewhere: their mail stays as it is
            "routes": dict(routes),
        }
        for section, values in (sections or {}).items():
            merged.setdefault(section, {}).update(values)
        lines = [f"home = {_toml(str(self.home))}"]
        for section, values in merged.items():
            lines.append(f"[{section}]")
            lines += [
                f"{json.dumps(key) if section == 'routes' else key} = {_toml(value)}" for key, value in values.items()
            ]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._process: loaded.Copy | subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    # --- life and death ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when it greets and its manager answers. Raises AssertionError with its output when it does not."""
        self.launch()
        await self.ready()

    async def ready(self) -> None:
        """Until it greets, its manager answers, and the supervisor has written the processes down."""
        await self.until(self._is_written_down, "processes.json")
        await self.until(self._greets, "the greeting")
        await self.until(self._answers, "an answer of the manager")

    def launch(self) -> None:
        """Starts it and waits for nothing."""
        with self.output.open("ab") as out:
            self._process = loaded.start(["mailcore", "--config", str(self.config)], out.fileno())

    def stop(self) -> None:
        """Ends everything; nothing of it is left when this returns."""
        self.kill_all()

    def kill_all(self) -> dict[str, int]:
        """SIGKILL of all processes at once; what they were."""
        assert self._process is not None
        processes = self.processes()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._process = None
        return processes

    async def kill(self, name: str) -> None:
        """SIGKILL of one process; returns when the appliance is whole again. The supervisor is started again by us."""
        before = self.processes()
        os.kill(before[name], signal.SIGKILL)
        if name == "supervisor":
            assert self._process is not None
            await asyncio.to_thread(self._process.wait, PATIENCE_S)
            self._process = None
            await self.until(lambda: not any(map(alive, before.values())), "the end of the supervisor's children")
            await self.start()
            return
        await self.until(lambda: self.processes().get(name, before[name]) != before[name], f"a new {name}")
        await self.ready()

    def processes(self) -> dict[str, int]:
        """Name to pid, as the supervisor wrote them down; {} while it has not."""
        try:
            found: dict[str, int] = json.loads((self.home / "run" / "processes.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found

    # --- questions --------------------------------------------------------------------------------------------------

    async def ask(self, *arguments: str) -> Any:
        """``waypost ARGUMENTS --json``; its output, or AssertionError with what it said."""
        code, out, err = await self._run(*arguments)
        assert code == 0, f"waypost {' '.join(arguments)}: {err or out}"
        return json.loads(out)

    async def ask_list(self, *arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """``waypost ARGUMENTS --json`` of a list; its items and its end, or AssertionError with what it said."""
        code, out, err = await self._run(*arguments)
        assert code == 0, f"waypost {' '.join(arguments)}: {err or out}"
        return read_list(out)

    async def _run(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(str(COMMAND), *arguments, "--json", "--config", str(self.config)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncControlClient]:
        """A client of the control socket: a question over it costs a hundredth of the processor time of a command."""
        client = AsyncControlClient(self.home / "run" / "control.sock", timeout_s=PATIENCE_S)
        try:
            yield client
        finally:
            await client.close()

    async def size(self) -> dict[str, Any]:
        async with self.client() as client:
            answer: dict[str, Any] = await client.call("size")
        return answer

    async def browse(self) -> list[dict[str, Any]]:
        """Every queued message, page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        async with self.client() as client:
            while cursor is not None:
                page = await client.call("list", {"cursor": cursor, "limit": LIST_PAGE, "filter": {}})
                found += page["items"]
                cursor = page["cursor"]
        return found

    async def until_empty(self) -> None:
        """Until nothing is queued."""
        size: dict[str, Any] = {}

        async def empty() -> bool:
            size.update(await self.size())
            return not size["messages"] and not size["unheard"]

        await eventually(empty, lambda: f"an empty queue; still queued: {size}\n{self._tail()}", look_every_s=0.1)

    async def until(self, true: Callable[[], Any], what: str) -> None:
        """``true`` may be a coroutine function."""

        async def so() -> bool:
            answer = true()
            if asyncio.iscoroutine(answer):
                answer = await answer
            ended = not answer and self._process is not None and self._process.poll() is not None
            assert not ended, f"it ended while {what} was waited for\n{self._tail()}"
            return bool(answer)

        await eventually(so, lambda: f"{what}\n{self._tail()}")

    def _tail(self) -> str:
        return self.output.read_text(errors="replace")[-4000:] if self.output.exists() else ""

    async def _is_written_down(self) -> bool:
        """Those that the one before wrote do not count. On a full disk nothing can be written down."""
        processes = self.processes()
        written = alive(processes.get("supervisor", 0)) and "manager" in processes  # of a node, its shard's come later
        return written or "processes.json can't be written" in self._tail()

    async def _greets(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(*self.address)
        except OSError:
            return False
        try:
            return (await asyncio.wait_for(reader.readline(), 5)).startswith(b"220")
        except (OSError, TimeoutError):
            return False
        finally:
            writer.transport.abort()

    async def _answers(self) -> bool:
        try:
            await self.size()
        except ControlError:
            return False
        return True
