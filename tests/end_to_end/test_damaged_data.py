"""Bytes of stored data that change on disk: what was changed is never delivered, and everything else is.

The mail waits where mail does: small data in the log, big data in spool files, deferred data in spool files. One byte of each
of 200 messages is changed, at a random place, while the manager already has the envelope.
"""

from __future__ import annotations

import asyncio
import random
import smtplib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mailcore.lab.arrival import content_digest
from mailcore.lab.lab import Lab
from tests.backup.place import backed_up, destroyed_and_restored
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore, route_to, running

SEED = 20261123
DEFERRED, SMALL, BIG = 70, 80, 50  # messages; one byte of each is changed
WHOLE = 20  # messages that nothing happens to


def contents(chance: random.Random, count: int, least: int, most: int) -> Iterator[bytes]:
    for _ in range(count):
        name = f"{chance.getrandbits(64):016x}"
        body = b"".join(b"%x\r\n" % chance.getrandbits(288) for _ in range(chance.randrange(least, most) // 74 + 1))
        yield b"X-Ledger-Id: " + name.encode() + b"\r\n\r\n" + body


def send(port: int, messages: Iterable[bytes]) -> dict[str, bytes]:
    """By queue id."""
    found = {}
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        for data in messages:
            assert client.mail("author@sender.example")[0] == 250
            assert client.rcpt("reader@example.org")[0] == 250
            code, reply = client.data(data)
            assert code == 250, reply
            found[reply.decode().split()[-1]] = data
    return found


async def until_all(core: RunningCore, messages: Iterable[str], state: str) -> None:
    async def so() -> bool:
        states = {item["queue_id"]: item["state"] for item in await core.listed()}
        return all(states.get(queue_id) == state for queue_id in messages)

    await core.eventually(so, f"all messages to be {state}")


def flip(path: Path, at: int, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ 1 << chance.randrange(8)]))


def place_of(core: RunningCore, queue_id: str, data: bytes) -> tuple[Path, int]:
    """The file with the data, and where in it the data begins."""
    spooled = list((core.home / "spool").glob(f"??/{queue_id}"))
    queue = core.home / "queue"
    # Deferred data is carried along: what is left in the receiver's lane is garbage.
    for path in spooled or [*queue.glob("retry.*/*.seg"), *queue.glob("incoming.*/*.seg")]:
        if (at := path.read_bytes().find(data)) >= 0:
            return path, at
    raise AssertionError(f"the data of {queue_id} is nowhere")


async def test_of_200_changed_bytes_none_is_delivered_and_all_are_reported(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with (
        Lab(["reject(1, 451, rcpt):127.0.0.1:0"], seed=SEED) as lab,
        running(tmp_path, lab, {"queue": {"retry_ladder_s": [600], "segment_bytes": 32 << 20}}) as core,
    ):
        deferred = await asyncio.to_thread(send, core.port, contents(chance, DEFERRED, 500, 30_000))
        await until_all(core, deferred, "deferred")
        await core.ask("suspend", destination=route_to(lab, 0), until=None)
        await lab.hops[0].set_behaviour("accept")
        small = await asyncio.to_thread(send, core.port, contents(chance, SMALL, 500, 30_000))
        big = await asyncio.to_thread(send, core.port, contents(chance, BIG, 270_000, 600_000))
        whole = await asyncio.to_thread(send, core.port, contents(chance, WHOLE, 500, 200_000))
        await until_all(core, small | big | whole, "suspended")
        changed = deferred | small | big
        for queue_id, data in changed.items():
            path, at = place_of(core, queue_id, data)
            flip(path, at + chance.randrange(len(data)), chance)
        await core.ask("retry", queue_ids=list(deferred))
        await core.ask("resume", destination=route_to(lab, 0))
        held: dict[str, dict[str, Any]] = {}

        async def settled() -> bool:
            """A message that moves while a list is read may be missing from it: the size counts it."""
            held.clear()
            held.update({item["queue_id"]: item for item in await core.listed() if item["state"] == "held"})
            return bool((await core.size())["messages"] == len(held))

        await core.eventually(settled, "everything to be delivered or held")
        sent = {content_digest(data) for data in (changed | whole).values()}
        arrived = [arrival.sha256 for arrival in lab.messages]
        altered = [digest for digest in arrived if digest not in sent]
        assert (len(altered), len(arrived), len(held)) == (0, WHOLE, len(changed))
        assert sorted(arrived) == sorted(content_digest(data) for data in whole.values())
        assert held.keys() == changed.keys()


async def damaged_in_spool(core: RunningCore, chance: random.Random) -> tuple[str, Path, bytes]:
    """A deferred message of which one byte is changed; its spool file, and what was in it before."""
    (queue_id,) = await asyncio.to_thread(send, core.port, contents(chance, 1, 270_000, 400_000))
    await until_all(core, [queue_id], "deferred")
    (path,) = (core.home / "spool").glob(f"??/{queue_id}")
    before = path.read_bytes()
    flip(path, len(before) // 2, chance)
    return queue_id, path, before


async def test_a_file_that_is_put_back_is_delivered_after_a_release(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with (
        Lab(["reject(1, 451, rcpt):127.0.0.1:0"], seed=SEED) as lab,
        running(tmp_path, lab, {"queue": {"retry_ladder_s": [600]}}) as core,
    ):
        queue_id, path, before = await damaged_in_spool(core, chance)
        await lab.hops[0].set_behaviour("accept")
        await core.order("retry", queue_id)
        for _ in range(2):  # a release without a whole file holds it again
            item = await core.until_in(queue_id, "hold")
            assert str(path) in item["reason"]
            await core.order("release", queue_id)
        await core.until_in(queue_id, "hold")
        path.write_bytes(before)
        await core.order("release", queue_id)
        await core.until_empty()
        assert len(lab.messages) == 1
        events = (await core.ask("history", queue_id=queue_id))["events"]
        assert [each["who"] for each in events if each.get("operation") == "hold"] == ["waypost"] * 3


async def test_damage_that_a_backup_took_along_is_found_after_the_restore(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with (
        Lab(["reject(1, 451, rcpt):127.0.0.1:0"], seed=SEED) as lab,
        running(tmp_path, lab, {"queue": {"retry_ladder_s": [600]}}) as core,
    ):
        queue_id, _, _ = await damaged_in_spool(core, chance)
        (whole,) = await asyncio.to_thread(send, core.port, contents(chance, 1, 270_000, 400_000))
        await until_all(core, [whole], "deferred")
        await destroyed_and_restored(core, await backed_up(core, "--queue"))
        await lab.hops[0].set_behaviour("accept")
        await core.start()
        await until_all(core, [queue_id, whole], "held")
        for each in (queue_id, whole):
            await core.order("release", each)
        await core.until_removed(whole)
        item = await core.until_in(queue_id, "hold")
        assert queue_id in item["reason"]
        assert len(lab.messages) == 1
