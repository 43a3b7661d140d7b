"""Names of client addresses: verified, asked for once, remembered for their time, and bounded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mailcore.routing import reverse_names
from mailcore.routing.mx import HostFinder
from mailcore.routing.reverse_names import ReverseNames
from tests.eventually import eventually
from tests.routing.nameserver import name_server

FOUR, SIX = "192.0.2.1", "2001:db8::1"
POINTER = "1.2.0.192.in-addr.arpa"
POINTER_SIX = "1." + "0." * 23 + "8.b.d.0.1.0.0.2.ip6.arpa"


class FakeDns:
    def __init__(self, records: Mapping[tuple[str, str], Sequence[str]], ttl_s: float = 300.0) -> None:
        self.records = records
        self.ttl_s = ttl_s
        self.asked: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.now = 0.0
        self.raises: Exception | None = None
        self.names = ReverseNames(self.lookup, asyncio.get_running_loop(), lambda: self.now)

    async def lookup(self, name: str, kind: str) -> tuple[list[str], float, bool]:
        self.asked.append((name, kind))
        await self.gate.wait()
        if self.raises is not None:
            raise self.raises
        found = list(self.records.get((name, kind), ()))
        return found, self.ttl_s if found else 60.0, False

    async def find(self, address: str) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.names.find(address, lambda _, name: done.set_result(name))
        return await done


GOOD = {(POINTER, "PTR"): ["Client.Example."], ("client.example", "A"): ["192.0.2.7", FOUR]}


async def test_a_name_that_leads_back_is_the_client_s() -> None:
    fake = FakeDns(GOOD)
    assert await fake.find(FOUR) == "client.example"
    assert await fake.find(FOUR) == "client.example"
    assert fake.asked == [(POINTER, "PTR"), ("client.example", "A")]


async def test_ipv6_is_asked_for_as_such() -> None:
    fake = FakeDns({(POINTER_SIX, "PTR"): ["six.example."], ("six.example", "AAAA"): ["2001:DB8:0::1"]})
    assert await fake.find(SIX) == "six.example"


@pytest.mark.parametrize(
    ("pointers", "addresses"),
    [
        (["client.example."], ["192.0.2.7"]),
        (["client.example."], []),
        (["client.example."], ["nonsense"]),
        ([], [FOUR]),
        (["1.2.0.192."], [FOUR]),
        (["192.0.2.1."], [FOUR]),
        (["a..b."], [FOUR]),
        (["client.example)[10.0.0.1]."], [FOUR]),
        (["-client.example."], [FOUR]),
        (["x" * 64 + ".example."], [FOUR]),
        (["a." * 129], [FOUR]),
        (["."], [FOUR]),
        (["a\\032b.example."], [FOUR]),
    ],
)
async def test_a_name_that_does_not_lead_back_is_not_used(pointers: list[str], addresses: list[str]) -> None:
    names = {pointer.lower().removesuffix(".") for pointer in pointers}
    fake = FakeDns({(POINTER, "PTR"): pointers, **{(name, "A"): addresses for name in names or {"client.example"}}})
    assert await fake.find(FOUR) == ""


async def test_the_second_of_several_names_may_be_the_one() -> None:
    fake = FakeDns({**GOOD, (POINTER, "PTR"): ["other.example.", "client.example."]})
    assert await fake.find(FOUR) == "client.example"


async def test_a_hostile_list_of_names_costs_few_questions() -> None:
    fake = FakeDns({(POINTER, "PTR"): [f"n{number}.example." for number in range(1000)]})
    assert await fake.find(FOUR) == ""
    assert len(fake.asked) == 1 + reverse_names.NAMES_MAX


async def test_loopback_and_what_is_no_address_need_no_question() -> None:
    fake = FakeDns({})
    assert [await fake.find(each) for each in ("127.0.0.1", "::1", "unknown")] == ["localhost", "localhost", ""]
    assert fake.asked == []


async def test_one_look_up_serves_all_and_nobody_waits() -> None:
    fake = FakeDns(GOOD)
    fake.gate.clear()
    got: list[str] = []
    for _ in range(5):
        fake.names.find(FOUR, lambda _, name: got.append(name))
    await asyncio.sleep(0)
    assert got == []
    fake.gate.set()
    await eventually(lambda: len(got) == 5)
    assert len(fake.asked) == 2


async def test_an_answer_is_kept_for_its_time() -> None:
    fake = FakeDns(GOOD, ttl_s=100_000.0)
    await fake.find(FOUR)
    fake.now = reverse_names.TTL_S_MAX - 1
    await fake.find(FOUR)
    assert len(fake.asked) == 2
    fake.now += 2
    fake.records = {}
    assert await fake.find(FOUR) == ""


async def test_look_ups_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reverse_names, "ENTRIES_MAX", 3)
    fake = FakeDns({})
    fake.gate.clear()
    got: list[str] = []
    for number in range(reverse_names.LOOKUPS_MAX + 10):
        fake.names.find(f"198.51.100.{number}", lambda _, name: got.append(name))
    assert len(got) == 10, "those beyond the bound are unknown at once"
    fake.gate.set()
    await eventually(lambda: len(got) == reverse_names.LOOKUPS_MAX + 10)
    assert len(fake.names._known) == 3
    assert not fake.names._wanted
    assert not fake.names._tasks


async def test_a_failure_leaves_the_name_unknown() -> None:
    fake = FakeDns(GOOD)
    fake.raises = OSError("no descriptors")
    assert await fake.find(FOUR) == ""
    fake.raises = None
    assert await fake.find(FOUR) == "client.example"


async def test_a_real_name_server_is_asked(tmp_path: Path) -> None:
    zones = {
        "2.0.192.in-addr.arpa": "1 IN PTR client.example.\n2 IN PTR liar.example.\n",
        "example": "client IN A 192.0.2.1\nliar IN A 198.51.100.1\n",
    }
    with name_server(tmp_path, zones) as server:
        loop = asyncio.get_running_loop()
        finder = HostFinder([server.text], addresses_max=5, own_name="", chance=random.Random(1), clock=loop.time)
        names = ReverseNames(finder.lookup, loop, loop.time)
        got: dict[str, str] = {}
        for number in (1, 2, 3):
            names.find(f"192.0.2.{number}", got.__setitem__)
        await eventually(lambda: len(got) == 3)
    assert got == {"192.0.2.1": "client.example", "192.0.2.2": "", "192.0.2.3": ""}
