"""The whole appliance on a home of its own, a control client, and next hops behind it: for tests of what becomes of a message.

    async with Lab(["greylist(1):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        queue_id = await core.send("a@example.org")

Retries take one or two seconds, checkpoints a tenth of one. The home may be stopped and started again, its processes killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import smtplib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.faults import Code, Fault
from mailcore.lab.arrival import Arrival
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance, alive
from tests.eventually import PATIENCE_S, eventually
from tests.running.catcher import Catcher

__all__ = ["DATA", "SENDER", "RunningCore", "Sections", "recipients_of", "route_to", "running"]

SENDER = "author@sender.example"
Sections = Mapping[str, Mapping[str, object]]  # of the configuration file
DATA = b"Subject: a message\r\nMessage-ID: <one@sender.example>\r\n\r\nHello.\r\n.. two dots\r\n"
QUICK: dict[str, dict[str, object]] = {
    "queue": {"retry_ladder_s": [1, 2, 4], "segment_bytes": 1 << 20, "checkpoint_interval_s": 0.1},
    "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 2.0},
    "deliverer": {"connect_timeout_s": 2.0, "greeting_timeout_s": 60.0, "connection_idle_s": 0.2},
}


class RunningCore(Appliance):
    """An Appliance that is asked over its control socket."""

    def __init__(self, directory: Path, routes: Mapping[str, str], sections: Sections | None = None) -> None:
        merged = {section: dict(values) for section, values in QUICK.items()}
        for section, values in (sections or {}).items():
            merged.setdefault(section, {}).update(values)
        super().__init__(directory, routes, merged)
        self.control = AsyncControlClient(self.home / "run" / "control.sock", timeout_s=PATIENCE_S)

    # -- life

    async def _answers(self) -> bool:
        """The manager does, and has heard of every receiver: what they take from now on counts as accepted, not as found."""
        try:
            return not (await self.control.call("size"))["unheard"]
        except ControlError:
            return False

    async def again(self) -> None:
        """SIGKILL of everything, and a start."""
        self.stop()
        await self.control.close()
        await self.start()

    async def kill_now(self, name: str) -> None:
        """SIGKILL of one process; returns when that one has ended, whether there is a new one or not.

        Raises KeyError or ProcessLookupError if it is not there. An answer after it is one of its successor.
        """
        pid = self.processes()[name]
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not alive(pid), f"the end of {name}")

    # -- mail in

    async def send(self, *recipients: str, sender: str = SENDER, data: bytes = DATA, heard: bool = True) -> str:
        """Over SMTP; the queue id out of the 250. ``heard``: the manager has heard of it, too; not when it is away."""
        before = await self._heard_to() if heard else 0
        queue_id = await asyncio.to_thread(self._send, recipients, sender, data)

        async def heard_of() -> bool:
            return await self._heard_to() > before

        if heard:
            await self.eventually(heard_of, f"the manager to hear of {queue_id}")
        return queue_id

    async def _heard_to(self) -> int:
        """How far the manager has been told that the receivers' lanes are durable."""
        lanes = (await self.ask("state"))["lanes"]
        return sum(int(at["end"]) for lane, at in lanes.items() if lane.startswith("incoming."))

    def _send(self, recipients: tuple[str, ...], sender: str, data: bytes) -> str:
        with smtplib.SMTP("127.0.0.1", self.port, timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            assert client.mail(sender)[0] == 250
            for recipient in recipients:
                code, reply = client.rcpt(recipient)
                assert code == 250, reply
            code, reply = client.data(data)
        assert code == 250, reply
        return reply.decode().split()[-1]

    async def inject(self, *recipients: str, not_before: float | None = None, sender: str = SENDER) -> str:
        """Over the control socket; the queue id."""
        await self.ask("inject_begin", sender=sender, recipients=list(recipients), not_before=not_before)
        await self.ask("inject_data", data=DATA)
        answer = await self.ask("inject_end")
        return str(answer["queue_id"])

    # -- questions

    async def ask(self, operation: str, why: str = "", **arguments: Any) -> Any:  # type: ignore[override]
        """An operation of the control socket."""
        return await self.control.call(operation, arguments, why=why)

    async def order(self, operation: str, queue_id: str, why: str = "", **arguments: Any) -> None:
        """A change to one message, which must succeed."""
        await self._until_changed(queue_id, lambda: self.ask(operation, why, queue_ids=[queue_id], **arguments))

    async def _until_changed(self, queue_id: str, asked: Callable[[], Awaitable[Any]]) -> None:
        """Asks again while the message is moving, as the answer says."""
        answer: Any = None

        async def answered() -> bool:
            nonlocal answer
            answer = await asked()
            return all(each["code"] != Code.BUSY for each in answer["errors"].values())

        await self.eventually(answered, f"{queue_id} to rest")
        assert (answer["changed"], answer["errors"]) == (1, {}), answer

    async def insist(self, action: Callable[[], Awaitable[Any]]) -> Any:
        """Asks until there is an answer: a process may have just been killed, or the machine is slow."""

        async def answered() -> tuple[Any] | None:
            try:
                return (await action(),)
            except (ControlError, OSError):
                return None

        return (await eventually(answered, "an answer of control", look_every_s=0.2))[0]

    async def refusal(self, operation: str, queue_id: str, **arguments: Any) -> Fault:
        """Why a change can't be made."""
        answer = await self.ask(operation, queue_ids=[queue_id], **arguments)
        assert answer["changed"] == 0
        return msgspec.convert(answer["errors"][queue_id], Fault)

    async def size(self) -> dict[str, Any]:
        """When the receivers have told the manager how far they are."""

        async def whole() -> dict[str, Any] | None:
            size: dict[str, Any] = await self.ask("size")
            return None if size["unheard"] else size

        found: dict[str, Any] = await self.eventually(whole, "the receivers to be heard")
        return found

    async def listed(self, **filter_: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self.ask("list", cursor=cursor, limit=1000, filter=filter_)
            found += page["items"]
            cursor = page["cursor"]
        return found

    async def item(self, queue_id: str) -> dict[str, Any] | None:
        return next((each for each in await self.listed() if each["queue_id"] == queue_id), None)

    async def eventually(self, true: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Returns the first answer that is true. A failure shows what an operator would look at."""
        try:
            return await eventually(true, what, look_every_s=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._tail()}\n{await self._seen()}") from error

    async def _seen(self) -> str:
        """What an operator would look at, when a test has waited in vain."""
        try:
            asked = {question: await self.ask(question) for question in ("state", "size", "destinations")}
        except ControlError as error:
            asked = {"error": str(error)}
        return "\n".join([json.dumps(asked, indent=1), *(json.dumps(line) for line in self.log()[-30:])])

    async def until_in(self, queue_id: str, lane: str, deleted: bool = False) -> dict[str, Any]:
        """Until it rests in that lane (its beginning is enough)."""

        async def there() -> dict[str, Any] | None:
            found = await self.listed(lane="deleted") if deleted else await self.listed()
            for item in found:
                if item["queue_id"] == queue_id and item["lane"].startswith(lane) and item["state"] != "active":
                    return item
            return None

        item: dict[str, Any] = await self.eventually(there, f"{queue_id} in {lane}")
        return item

    async def until_in_flight(self, entries: int = 1) -> None:
        async def flying() -> bool:
            state = await self.ask("state")
            return sum(int(link["in_flight"]) for link in state["deliverers"]) >= entries

        await self.eventually(flying, f"{entries} deliveries in flight")

    async def until_empty(self) -> None:
        """Nothing is queued, and nothing is counted. Mail that was accepted just now may not have been heard of yet."""

        async def empty() -> bool:
            size = await self.size()
            return not size["messages"]

        await self.eventually(empty, "an empty queue")
        size = await self.size()
        is_empty = (size["messages"], size["recipients"], size["destinations"]) == (0, 0, {})
        assert is_empty, f"{size}\n{self._tail()}\n{await self._seen()}"

        async def unlisted() -> bool:
            return not await self.listed()

        await self.eventually(unlisted, "an empty list")  # the marks are written a little later

    def log(self) -> list[dict[str, Any]]:
        """The JSON log."""
        lines = (self.home / "log" / "mail.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _queue_ids(self, event: str) -> set[str]:
        return {line["queue_id"] for line in self.log() if line["event"] == event}

    async def until_accepted_is_removed(self) -> None:
        """Until there is mail in the log, and nothing of it is left to do."""

        async def removed() -> bool:
            accepted = self._queue_ids("accepted")
            return bool(accepted) and accepted <= self._queue_ids("removed")

        await self.eventually(removed, "the end of all mail that was accepted")

    async def until_removed(self, *queue_ids: str) -> None:
        """Until the log says that nothing of them is left to do."""

        async def removed() -> bool:
            return self._queue_ids("removed").issuperset(queue_ids)

        await self.eventually(removed, f"{queue_ids} in the log as removed")

    def spool_files(self) -> list[str]:
        return sorted(path.name for path in (self.home / "spool").glob("??/*"))


@asynccontextmanager
async def running(
    directory: Path,
    lab: Lab,
    sections: Sections | None = None,
    *,
    routes: Mapping[str, str] | None = None,
    author: Catcher | None = None,
) -> AsyncIterator[RunningCore]:
    """All mail goes to the first hop, mail for the sender's domain to ``author`` or the last hop; ``routes`` are added."""
    table = {"*": route_to(lab, 0), "sender.example": author.route if author else route_to(lab, -1), **(routes or {})}
    core = RunningCore(directory, table, sections)
    await core.start()
    try:
        yield core
    finally:
        await core.control.close()
        core.stop()


def route_to(lab: Lab, hop: int, transport: str = "smtp") -> str:
    host, port = lab.hops[hop].address
    return f"{transport}:[{host}]:{port}"


def recipients_of(arrivals: list[Arrival]) -> list[str]:
    """Everybody who got mail, as often as they got it."""
    return sorted(address for arrival in arrivals for address in arrival.recipients)
