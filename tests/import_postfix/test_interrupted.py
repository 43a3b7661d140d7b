"""A queue taken straight from a Postfix that was killed at its work: out of active and incoming, each recipient once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import smtplib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.mta import Postfix
from tests.end_to_end.appliance import Appliance
from tests.eventually import eventually_blocking
from tests.import_postfix.importing import Import, arrived
from tests.import_postfix.interrupted import Interrupted, begun, delivering, kill, told_by_postfix
from tests.import_postfix.old_queue import OldQueue, send
from tests.running.catcher import Catcher

IN_ACTIVE = 4  # messages; what comes behind them stays in incoming
DATA = b"Subject: one\r\n\r\nx\r\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name, which Postfix's own user may enter: a Unix socket's path has 107 bytes."""
    if missing := Postfix.missing():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="wp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def send_all(old: Interrupted) -> dict[str, str]:
    """Queue ids by what each is for; when this returns, all that is not waiting for the next hop has come to its end."""
    ids = {
        "partly": send(
            old.postfix.port, "s@example.org",
            ["done1@example.org", "hang1@example.org", "later1@example.org", "no1@example.org"], DATA,
        )
    }  # fmt: skip
    for number in range(2, IN_ACTIVE + 1):
        both = [f"done{number}@example.org", f"hang{number}@example.org"]
        ids[f"active {number}"] = send(old.postfix.port, "s@example.org", both, DATA)
    eventually_blocking(lambda: len(old.files("active")) == IN_ACTIVE, "active to be full")
    for number in range(3):
        recipients = [f"new{number}.{part}@example.org" for part in range(2)]
        ids[f"incoming {number}"] = send(old.postfix.port, "", recipients, DATA)

    def finished() -> bool:
        partly = told_by_postfix(old.etc, old.files("active")[ids["partly"]])
        rest = [told_by_postfix(old.etc, path).done for path in old.files("active").values()]
        return set(partly.done) == {"done1@example.org", "no1@example.org"} and all(rest)

    eventually_blocking(finished, "what can be delivered to be")
    return ids


async def test_what_is_being_delivered_or_has_just_come_arrives_once_and_what_is_finished_does_not(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with delivering(place, f"qmgr_message_active_limit = {IN_ACTIVE}\n") as old, contextlib.ExitStack() as stack:
        ids = await asyncio.to_thread(send_all, old)
        half = stack.enter_context(begun(old.postfix.port, "half@example.org", 300_000))
        await asyncio.to_thread(
            eventually_blocking, lambda: len(old.files("incoming")) == 4, "a file that is not complete"
        )
        kill(old.postfix)
        half.close()
        taken = sorted(old.hop.taken)
    incoming = old.files("incoming")
    assert set(old.files("active")) == {ids[name] for name in ids if not name.startswith("incoming")}
    (half_id,) = set(incoming) - set(ids.values())
    assert incoming[half_id].stat().st_mode & 0o777 == 0o600
    cut = incoming[ids["incoming 2"]]  # as after a crash that lost its end, though it is marked as complete
    cut.write_bytes(cut.read_bytes()[:-20])
    (old.queue / "incoming" / "123456.7890").touch()  # what cleanup begins with
    (old.queue / "corrupt" / "4BADBADBAD").touch()
    before = {path: path.read_bytes() for path in old.queue.rglob("*") if path.is_file()}

    expected = [f"hang{number}@example.org" for number in range(1, IN_ACTIVE + 1)] + ["later1@example.org"]
    expected += [f"new{number}.{part}@example.org" for number in range(2) for part in range(2)]
    async with Catcher() as catcher:
        appliance = Appliance(place, {"*": catcher.route})
        await appliance.start()
        try:
            run = Import(OldQueue(old.etc, old.queue, ids, 0), appliance, capsys)
            told = await run.told("--queue", status=1)
            stays = {each["queue_id"]: each["why"] for each in told["stays"]}
            assert stays.keys() == {half_id, cut.name, "incoming/123456.7890"}
            assert "not complete: Postfix was still receiving it" in stays[half_id]
            assert re.search("ends (at byte|within)", stays[cut.name])
            assert "is not a message, by its name" in stays["incoming/123456.7890"]
            assert (told["messages"], told["recipients"]) == (IN_ACTIVE + 2, len(expected))
            assert told["done_before"] == IN_ACTIVE + 1
            assert (told["unsent_bounces"], told["corrupt"]) == ([ids["partly"]], ["4BADBADBAD"])
            assert await arrived(catcher, len(expected)) == sorted(expected)
            again = await run("--queue", status=1)
            assert f"{IN_ACTIVE + 2} messages were imported before" in again
            for name in (*stays, ids["partly"], "4BADBADBAD"):
                assert f"  {name}" in again
            done = (await run("--list-done")).split()
            assert sorted(done) == sorted({*ids.values()} - {cut.name})
            assert await arrived(catcher, len(expected)) == sorted(expected)
        finally:
            appliance.stop()
    assert taken == [f"done{number}@example.org" for number in range(1, IN_ACTIVE + 1)]
    assert {path: path.read_bytes() for path in old.queue.rglob("*") if path.is_file()} == before


# -- under load

SENDERS = 8
KINDS = ("done", "done", "done", "later", "no", "hang")


class Load:
    """Clients that send as fast as they are answered. ``accepted``: recipients of what got its 250; no address comes twice."""

    def __init__(self, port: int, seed: int) -> None:
        self.accepted: list[str] = []
        self._port = port
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(seed, number)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self, seed: int, sender: int) -> None:
        chance = random.Random(f"{seed} {sender}")
        with contextlib.suppress(OSError, smtplib.SMTPException, AssertionError):  # it has died
            while not self._stop.is_set():
                number = chance.getrandbits(48)
                recipients = [
                    f"{chance.choice(KINDS) if part else 'done'}{number}.{part}@example.org"
                    for part in range(chance.randrange(1, 5))
                ]
                data = DATA + b"y" * 70 * chance.randrange(100)
                send(self._port, f"done.s{number}@example.org", recipients, data)
                self.accepted += recipients

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
async def test_killed_under_load_nobody_is_forgotten_and_nobody_served_again_whom_postfix_had_finished(
    place: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    chance = random.Random(seed)
    after_s = chance.uniform(1.0, 4.0)
    with delivering(place, f"qmgr_message_active_limit = {chance.choice([20, 20_000])}\n", 0.005) as old:
        load = Load(old.postfix.port, seed)
        await asyncio.sleep(after_s)
        if seed % 3:
            kill(old.postfix)
        else:
            await asyncio.to_thread(old.postfix.stop)  # postfix abort: its processes hear of it
        load.end()
    queues = ("active", "incoming", "deferred")
    files = {path for queue in queues for path in old.files(queue).values()}
    whole = {path for path in files if path.stat().st_mode & 0o100}
    told = [told_by_postfix(old.etc, path) for path in whole]
    waiting = Counter(address for each in told for address in each.waiting)
    finished = {address for each in told for address in each.done}
    async with Catcher() as catcher:
        appliance = Appliance(place, {"*": catcher.route})
        await appliance.start()
        try:
            run = Import(OldQueue(old.etc, old.queue, {}, 0), appliance, capsys)
            found = await run.told("--queue", status=1 if files != whole else 0)
            assert {each["queue_id"] for each in found["stays"]} == {path.name for path in files - whole}
            assert found["recipients"] == waiting.total()
            ours = Counter(await arrived(catcher, waiting.total()))
            assert (await run.told("--queue", status=1 if files != whole else 0))["messages"] == 0
            assert Counter(await arrived(catcher, waiting.total())) == ours == waiting
        finally:
            appliance.stop()
    unmarked = set(ours) & set(old.hop.taken)  # Postfix would have sent them twice as well
    with capsys.disabled():
        print(
            f"\nseed {seed}: {len(load.accepted)} recipients accepted, {len(old.hop.taken)} taken by the next hop, "
            f"{len(unmarked)} of these not marked yet; {len(whole)} files, {len(files - whole)} not complete; "
            f"{found['recipients']} recipients imported, {len(finished)} finished in the files"
        )
    assert set(ours.values()) == {1}
    assert not finished & set(ours)
    refused = {address for address in load.accepted if address.startswith("no")}
    assert set(load.accepted) <= {*old.hop.taken, *refused, *ours}, "somebody was forgotten"
