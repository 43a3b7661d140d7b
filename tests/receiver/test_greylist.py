"""The greylist: a first try is put off, a retry is accepted, and a broken or full store puts nothing off."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.config.greylist import Greylist
from mailcore.receiver.greylist import GreyStore
from mailcore.receiver.recipient_store import TRIM_EVERY, RecipientStore
from tests.deliverer.dns_server import NameServer, answering
from tests.receiver.configured_receiver import US, configured

LATER, ACCEPTED = "450 4.2.0", "250 2.1.5"
KIM, SENDER, CLIENT = "kim@example.org", "a@sender.example", "192.0.2.9"


class Grey:
    """A greylist whose clock the test moves."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.now = 1_000_000.0
        self.failures: list[str] = []
        self.damaged: list[str] = []
        self.full = 0
        self._stores: list[RecipientStore] = []

    def opened(self, **settings: object) -> GreyStore:
        store = RecipientStore(self.home / "receiver", asyncio.get_running_loop(), self)
        self._stores.append(store)
        return GreyStore(Greylist(enabled=True, **settings), store, self, lambda: self.now)  # type: ignore[arg-type]

    def recipient_store_failed(self, why: str) -> None:
        self.failures.append(why)

    def recipient_store_damaged(self, path: str, aside: str, why: str) -> None:
        self.damaged.append(f"{path} {aside} {why}")

    def greylist_full(self) -> None:
        self.full += 1

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture
async def grey(tmp_path: Path) -> AsyncIterator[Grey]:
    made = Grey(tmp_path)
    yield made
    made.close()


async def test_a_retry_after_the_delay_is_accepted(grey: Grey) -> None:
    greylist = grey.opened()
    reply = b"450 4.2.0 <kim@example.org>: Recipient address rejected: Greylisted, try again in 300 seconds"
    assert await greylist.refusal(KIM, SENDER, CLIENT) == reply
    grey.now += 100
    assert (await greylist.refusal(KIM, SENDER, CLIENT)).endswith(b"in 200 seconds")
    grey.now += 200
    assert await greylist.refusal("Kim@Example.org", SENDER, CLIENT) == b""
    grey.now += 34 * 86_400
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b""
    grey.now += 36 * 86_400
    assert (await greylist.refusal(KIM, SENDER, CLIENT))[:9] == b"450 4.2.0"


async def test_a_retry_that_is_too_late_is_a_first_try(grey: Grey) -> None:
    greylist = grey.opened()
    await greylist.refusal(KIM, SENDER, CLIENT)
    grey.now += 3 * 86_400
    assert (await greylist.refusal(KIM, SENDER, CLIENT)).endswith(b"in 300 seconds")


async def test_another_host_of_the_network_may_try_again_and_another_sender_may_not(grey: Grey) -> None:
    greylist = grey.opened()
    await greylist.refusal(KIM, "list+1-x7@sender.example", CLIENT)
    grey.now += 300
    assert await greylist.refusal(KIM, "list+2-x9@sender.example", "192.0.2.200") == b""
    for recipient, sender, client in (
        (KIM, "list+1@sender.example", "192.0.3.9"),
        (KIM, "other@sender.example", CLIENT),
        ("robin@example.org", "list+1@sender.example", CLIENT),
        (KIM, "", CLIENT),
    ):
        assert await greylist.refusal(recipient, sender, client)


async def test_a_client_that_passed_several_times_is_known(grey: Grey) -> None:
    greylist = grey.opened(passes=2)
    for sender in ("a@x.example", "b@x.example"):
        assert await greylist.refusal(KIM, sender, CLIENT)
        grey.now += 300
        assert await greylist.refusal(KIM, sender, CLIENT) == b""
    assert await greylist.refusal(KIM, "c@x.example", CLIENT) == b""
    assert await greylist.refusal(KIM, "c@x.example", "192.0.3.1")


async def test_receivers_share_what_they_know(grey: Grey) -> None:
    first, second = grey.opened(), grey.opened()
    assert await first.refusal(KIM, SENDER, CLIENT)
    grey.now += 300
    assert await second.refusal(KIM, SENDER, CLIENT) == b""
    assert await first.refusal(KIM, SENDER, CLIENT) == b""
    assert grey.failures == []


async def test_exempted_recipients_and_networks_are_not_put_off(grey: Grey) -> None:
    greylist = grey.opened(
        recipients_exempt=(KIM, "open.example", ".wide.example"), networks_exempt=("198.51.100.0/24",)
    )
    for recipient in ("KIM@example.org", "x@open.example", "x@a.wide.example"):
        assert await greylist.refusal(recipient, SENDER, CLIENT) == b""
    assert await greylist.refusal("robin@example.org", SENDER, "198.51.100.7") == b""
    assert await greylist.refusal("robin@example.org", SENDER, CLIENT)
    assert await greylist.refusal("x@wide.example", SENDER, CLIENT)


async def test_a_store_that_cannot_be_used_puts_nothing_off(grey: Grey) -> None:
    (grey.home / "receiver").write_text("in the way")
    greylist = grey.opened()
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b""
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b""
    assert len(grey.failures) == 1
    assert "recipients.sqlite3: [Errno" in grey.failures[0]


async def test_a_greylist_that_is_full_of_new_entries_puts_nothing_off(grey: Grey) -> None:
    """Else a flood of invented senders would push out each entry before its retry, and no mail would arrive."""
    greylist = grey.opened(entries_max=1_000)
    await greylist.refusal(KIM, SENDER, CLIENT)
    database = sqlite3.connect(grey.home / "receiver" / "recipients.sqlite3")
    with database:
        rows = [(bytes([*divmod(number, 256)]), grey.now, grey.now) for number in range(1_100)]
        database.executemany("INSERT INTO grey (triplet, first, at, passed) VALUES (?, ?, ?, 0)", rows)
    greylist._writes = TRIM_EVERY - 1
    await greylist.refusal(KIM, "x@sender.example", CLIENT)
    assert grey.full == 1
    assert await greylist.refusal(KIM, "y@sender.example", CLIENT) == b""
    grey.now += 400
    assert await greylist.refusal(KIM, "z@sender.example", CLIENT)
    assert database.execute("SELECT count(*) FROM grey").fetchone()[0] <= 1_001
    database.close()


def counted(grey: Grey) -> tuple[int, int]:
    """How many entries wait, and how many have passed."""
    database = sqlite3.connect(grey.home / "receiver" / "recipients.sqlite3")
    (waiting, passed) = database.execute("SELECT count(*) FILTER (WHERE NOT passed), sum(passed) FROM grey").fetchone()
    database.close()
    return waiting, passed


async def test_one_network_neither_fills_the_greylist_nor_erases_it(grey: Grey) -> None:
    greylist = grey.opened(entries_max=1_000, passes=0)
    await greylist.refusal(KIM, SENDER, CLIENT)
    grey.now += 300
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b"", "learned"
    grey.now += 1
    for number in range(1_500):
        flooded = await greylist.refusal(f"user{number}@example.org", SENDER, f"198.51.100.{number % 250}")
        assert flooded.startswith(b"450 4.2.0")
    assert (grey.full, counted(grey)) == (0, (100, 1))
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b"", "still known"
    assert (await greylist.refusal("lee@example.org", SENDER, "203.0.113.1")).startswith(b"450 4.2.0")
    grey.now += 300
    assert await greylist.refusal("lee@example.org", SENDER, "203.0.113.1") == b""
    assert await greylist.refusal("user3@example.org", SENDER, "198.51.100.1") == b"", (
        "a retry of the flood passes, too"
    )
    assert (await greylist.refusal("new@example.org", SENDER, "198.51.100.1")).startswith(b"450 4.2.0")
    assert counted(grey) == (100, 3), "in its place another one waits"


async def test_a_flood_of_many_networks_erases_nothing_that_was_accepted(grey: Grey) -> None:
    greylist = grey.opened(entries_max=1_000, passes=0)
    for number in range(50):
        await greylist.refusal(f"user{number}@example.org", SENDER, CLIENT)
    grey.now += 300
    for number in range(50):
        assert await greylist.refusal(f"user{number}@example.org", SENDER, CLIENT) == b""
    grey.now += 1
    for number in range(1_100):
        await greylist.refusal(KIM, SENDER, f"198.{number % 250}.{number // 250}.1")
    assert grey.full, "and it lets mail pass, because no retry could"
    assert counted(grey)[1] == 50


async def test_entries_that_have_passed_leave_room_for_those_that_wait(grey: Grey) -> None:
    greylist = grey.opened(entries_max=1_000, passes=0)
    await greylist.refusal(KIM, SENDER, CLIENT)
    database = sqlite3.connect(grey.home / "receiver" / "recipients.sqlite3")
    with database:
        rows = [(bytes([*divmod(number, 256)]), grey.now, grey.now + number) for number in range(1_100)]
        database.executemany("INSERT INTO grey (triplet, first, at, passed) VALUES (?, ?, ?, 1)", rows)
    database.close()
    greylist._writes = TRIM_EVERY - 1
    assert await greylist.refusal(KIM, "x@sender.example", CLIENT)
    assert counted(grey) == (2, 750)
    grey.now += 300
    assert await greylist.refusal(KIM, SENDER, CLIENT) == b""
    assert grey.full == 0


async def test_a_store_of_an_earlier_version_is_brought_up(grey: Grey) -> None:
    (grey.home / "receiver").mkdir(mode=0o700)
    database = sqlite3.connect(grey.home / "receiver" / "recipients.sqlite3")
    database.executescript(
        "CREATE TABLE verified (key TEXT PRIMARY KEY, valid INTEGER, at REAL, reply TEXT) WITHOUT ROWID;"
        "CREATE TABLE grey (triplet BLOB PRIMARY KEY, first REAL, at REAL, passed INTEGER) WITHOUT ROWID;"
        "INSERT INTO grey VALUES (x'00', 999000, 999900, 1); PRAGMA user_version = 1;"
    )
    database.close()
    greylist = grey.opened()
    assert (await greylist.refusal(KIM, SENDER, CLIENT)).startswith(b"450 4.2.0")
    assert counted(grey) == (1, 1)
    again = grey.opened()
    grey.now += 300
    assert await again.refusal(KIM, SENDER, CLIENT) == b""
    assert (grey.failures, grey.damaged) == ([], [])


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from mailcore.config.greylist import Greylist
from mailcore.receiver.greylist import GreyStore
from mailcore.receiver.recipient_store import RecipientStore

async def main():
    store = RecipientStore(Path(sys.argv[1]), asyncio.get_running_loop(), print)
    greylist = GreyStore(Greylist(), store, None, lambda: 1_000_000.0)
    print(await greylist.refusal("kim@example.org", "a@sender.example", "192.0.2.9"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_killed_receiver_loses_no_entry(grey: Grey) -> None:
    command = [sys.executable, "-c", KILLED, str(grey.home / "receiver")]
    killed = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    assert killed.stdout.startswith(b"b'450 4.2.0")
    assert killed.returncode == -9
    grey.now += 300
    assert await grey.opened().refusal(KIM, SENDER, CLIENT) == b""


async def test_rcpt_gets_450_and_our_own_clients_do_not(tmp_path: Path) -> None:
    async with configured(tmp_path, "[greylist]\nenabled = true\n") as server:
        codes = await server.codes(KIM, "postmaster@example.org", "x@other.example")
        assert codes == [LATER, ACCEPTED, "554 5.7.1"]
        assert await server.codes(KIM, source=US) == [ACCEPTED]
        assert "<kim@example.org>: Recipient address rejected: Greylisted, try again in 300 seconds" in server.mail_log


async def test_a_client_on_a_list_of_good_ones_is_not_put_off(tmp_path: Path) -> None:
    async with answering(NameServer({"9.0.0.127.good.example A": ["127.0.4.3"]})) as dns:
        text = f"""
[greylist]
enabled = true
[deliverer]
nameservers = ["{dns.text}"]
[dnsbl]
sites = ["good.example*-1"]
"""
        async with configured(tmp_path, text) as server:
            assert await server.codes(KIM) == [ACCEPTED]
            assert await server.codes(KIM, source="127.0.1.9") == [LATER]
