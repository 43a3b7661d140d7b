"""Lists in the DNS decide about clients at RCPT; a list that does not work decides nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.dnsbl import Dnsbl
from mailcore.receiver.dns_lists import DnsLists
from tests.deliverer.dns_server import NameServer, answering
from tests.eventually import eventually
from tests.receiver.configured_receiver import US, configured

LISTED, ACCEPTED = "554 5.7.1", "250 2.1.5"
NAME = "9.0.0.127"  # of the client 127.0.0.9


def settings(server: NameServer, *sites: str, more: str = "") -> str:
    listed = ", ".join(f'"{each}"' for each in sites)
    return f'[deliverer]\nnameservers = ["{server.text}"]\n[dnsbl]\nsites = [{listed}]\n{more}\n'


def records(**answers: str) -> dict[str, list[str]]:
    return {f"{NAME}.{site}.example A": [answer] for site, answer in answers.items()}


async def test_a_listed_client_is_refused_at_rcpt_and_the_list_is_named(tmp_path: Path) -> None:
    dns = NameServer(records(bad="127.0.0.2") | {f"{NAME}.bad.example TXT": ['"see http://x.example/\\255\\010y"']})
    async with answering(dns), configured(tmp_path, settings(dns, "bad.example", more="has_texts = true")) as server:
        replies = await server.replies("kim@example.org", "postmaster@example.org", "kim@example.net")
        assert [each[:9] for each in replies] == [LISTED, ACCEPTED, LISTED]
        words = (
            "554 5.7.1 Service unavailable; Client host [127.0.0.9] blocked using bad.example; see http://x.example/"
        )
        assert replies[0].startswith(words)
        assert replies[0].isascii()
        assert replies[0].isprintable()
        assert "from=<a@sender.example> to=<kim@example.org>" in server.mail_log
        assert await server.codes("kim@example.org") == [LISTED]
        assert dns.asked.count(f"{NAME}.bad.example A") == 1
        assert await server.codes("kim@example.org", source=US) == [ACCEPTED]
        assert await server.codes("kim@example.org", source="127.0.0.10") == [ACCEPTED]
        assert dns.asked.count("1.0.0.127.bad.example A") == 1, "the test of the list; 127.0.0.1 is not looked up"


@pytest.mark.parametrize(
    ("sites", "threshold", "reply"),
    [
        (("bad.example", "worse.example"), 3, ACCEPTED),
        (("bad.example", "worse.example*2"), 3, LISTED),
        (("bad.example=127.0.0.[2..4]", "worse.example=127.0.0.10*2"), 3, LISTED),
        (("bad.example=127.0.0.[3..4]*9", "worse.example"), 2, ACCEPTED),
        (("bad.example=127.0.0.2", "bad.example=127.0.0.3*9"), 2, ACCEPTED),
        (("bad.example*3", "good.example*-2"), 2, ACCEPTED),
        (("bad.example*4", "good.example*-2"), 2, LISTED),
        (("other.example",), 1, ACCEPTED),
    ],
)
async def test_weights_are_added_up(tmp_path: Path, sites: tuple[str, ...], threshold: int, reply: str) -> None:
    dns = NameServer(records(bad="127.0.0.2", worse="127.0.0.10", good="127.0.4.3"))
    async with answering(dns), configured(tmp_path, settings(dns, *sites, more=f"threshold = {threshold}")) as server:
        assert await server.codes("kim@example.org") == [reply]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("127.255.255.254", "refuses our queries: it answered 127.255.255.254"),
        ("127.0.0.1", "refuses our queries: it answered 127.0.0.1"),
        ("192.0.2.1", "answered 192.0.2.1, which is not in 127.0.0.0/8"),
        ("", "cannot be asked"),
    ],
)
async def test_a_list_that_does_not_work_lists_no_client_and_is_in_the_log(
    tmp_path: Path, answer: str, said: str
) -> None:
    """A public list answers 127.255.255.254 to all who ask over a public resolver: all mail would be refused."""
    dns = NameServer(records(bad=answer) if answer else {}, bogus=() if answer else (f"{NAME}.bad.example A",))
    async with answering(dns), configured(tmp_path, settings(dns, "bad.example", "bad.example=127.0.0.1")) as server:
        assert await server.codes("kim@example.org") == [ACCEPTED]
        assert f"bad.example {said}; its clients count as not listed" in server.mail_log


async def test_a_list_that_is_late_delays_rcpt_for_a_bounded_time(tmp_path: Path) -> None:
    dns = NameServer(records(bad="127.0.0.2"))
    async with answering(dns) as server_of_names:
        text = settings(server_of_names, "bad.example", more="timeout_s = 0.2")
        dns.datagram_received = lambda data, address: None  # type: ignore[method-assign]
        async with configured(tmp_path, text) as server:
            assert await server.codes("kim@example.org") == [ACCEPTED]
            assert "bad.example does not answer in time" in server.mail_log


async def test_with_warn_the_client_is_only_logged(tmp_path: Path) -> None:
    dns = NameServer(records(bad="127.0.0.2"))
    async with answering(dns), configured(tmp_path, settings(dns, "bad.example", more='action = "warn"')) as server:
        assert await server.codes("kim@example.org") == [ACCEPTED]
        line = "[127.0.0.9] has a score of 1 by bad.example; from=<a@sender.example> to=<kim@example.org>; not refused"
        assert line in server.mail_log


class Asked:
    """Look-ups that are answered when the test says so."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.failures: list[str] = []
        self.tests = 0
        self.gate = asyncio.Event()
        self.lists_all = False
        self.now = 0.0

    async def lookup(self, name: str, kind: str) -> tuple[list[str], float, bool]:
        if name == "1.0.0.127.bad.example":
            self.tests += 1
            return (["127.0.0.2"] if self.lists_all else []), 5.0, False
        self.names.append(name)
        await self.gate.wait()
        return (["127.0.0.2"] if "bad" in name else []), 5.0, False

    def dns_list_failed(self, domain: str, why: str) -> None:
        self.failures.append(f"{domain} {why}")

    def lists(self, **more: Any) -> DnsLists:
        loop = asyncio.get_running_loop()
        return DnsLists(Dnsbl(sites=("bad.example",), **more), self.lookup, self, loop, lambda: self.now)


async def test_a_list_that_was_shut_down_lists_no_client(tmp_path: Path) -> None:
    """Its domain has another owner, who answers 127.0.0.2 to every name: all mail would be refused."""
    dns = NameServer(records(bad="127.0.0.2") | {"1.0.0.127.bad.example A": ["127.0.0.2"]})
    async with answering(dns), configured(tmp_path, settings(dns, "bad.example")) as server:
        assert await server.codes("kim@example.org") == [ACCEPTED]
        said = "bad.example lists every client: it answered 127.0.0.2 for 127.0.0.1; its clients count as not listed"
        assert said in server.mail_log


async def test_a_list_is_tested_again_after_its_longest_time() -> None:
    asked = Asked()
    asked.gate.set()
    lists = asked.lists(max_ttl_s=600)
    for number in range(3):
        assert (await lists.listing(f"192.0.2.{number}")).score == 1
    assert asked.tests == 1
    asked.lists_all = True
    asked.now = 601.0
    for number in range(3):
        assert (await lists.listing(f"192.0.2.{number}")).score == 0
    assert asked.tests == 2
    assert asked.failures == ["bad.example lists every client: it answered 127.0.0.2 for 127.0.0.1"]
    asked.lists_all = False
    asked.now = 1_202.0
    assert (await lists.listing("192.0.2.1")).score == 1


async def test_the_text_has_no_time_beyond_that_of_the_lists() -> None:
    texts: list[str] = []

    async def lookup(name: str, kind: str) -> tuple[list[str], float, bool]:
        if kind == "TXT":
            await asyncio.sleep(0)  # also the shortest wait is too long now
            texts.append(name)
            return ["because"], 5.0, False
        if "late" in name:
            await asyncio.sleep(3600)
        return (["127.0.0.2"] if "127" not in name else []), 5.0, False

    asked, loop = Asked(), asyncio.get_running_loop()
    sites = ("bad.example", "late.example")
    lists = DnsLists(Dnsbl(sites=sites, has_texts=True, timeout_s=0.1), lookup, asked, loop, lambda: 0.0)
    assert await lists.listing("192.0.2.1") == (1, ("bad.example",), "")
    assert texts == []
    lists = DnsLists(Dnsbl(sites=sites[:1], has_texts=True, timeout_s=60), lookup, asked, loop, lambda: 0.0)
    assert await lists.listing("192.0.2.1") == (1, ("bad.example",), "because")


async def test_a_dead_list_does_not_keep_each_new_client_waiting() -> None:
    """Three clients wait for it, and then one in each ``late_rest_s``; when it answers, it is asked for each again."""
    asked, loop = Asked(), asyncio.get_running_loop()
    settings = Dnsbl(sites=("dead.example",), timeout_s=0.1, late_rest_s=60)
    lists = DnsLists(settings, asked.lookup, asked, loop, lambda: asked.now)
    numbers = iter(range(1, 250))

    def questions() -> int:
        return sum(name.endswith("2.0.192.dead.example") for name in asked.names)

    async def clients(count: int) -> list[int]:
        """The look-ups of the dead list that each new client caused."""
        caused = []
        for _ in range(count):
            before = questions()
            await lists.listing(f"192.0.2.{next(numbers)}")
            caused.append(questions() - before)
        return caused

    assert await clients(6) == [1, 1, 1, 0, 0, 0]
    assert asked.failures[-1] == "dead.example does not answer in time and is not asked for 60 s"
    asked.now = 61.0
    assert await clients(3) == [1, 0, 0], "one client tries it again"
    asked.now = 122.0
    await asyncio.gather(*(lists.listing(f"192.0.2.{next(numbers)}") for _ in range(3)))
    assert questions() == 5, "one of three that come at the same time"
    asked.gate.set()
    asked.now = 183.0
    assert await clients(3) == [1, 1, 1]


async def test_names_of_ipv6_addresses_have_nibbles() -> None:
    asked = Asked()
    asked.gate.set()
    lists = asked.lists()
    assert (await lists.listing("2001:db8::1")).score == 1
    assert (await lists.listing("::ffff:192.0.2.9")).score == 1
    assert (await lists.listing("unknown")).score == 0
    nibbles = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2"
    assert asked.names == [f"{nibbles}.bad.example", "9.2.0.192.bad.example"]


async def test_answers_are_kept_for_a_bounded_time_and_number() -> None:
    asked = Asked()
    asked.gate.set()
    lists = asked.lists(clients_max=100)
    for number in range(102):
        await lists.listing(f"192.0.2.{number}")
    assert len(lists._known) == 100
    await lists.listing("192.0.2.101")
    assert len(asked.names) == 102
    asked.now = 61.0  # min_ttl_s; the answer's own was 5 s
    await lists.listing("192.0.2.101")
    assert len(asked.names) == 103


async def test_a_flood_of_clients_is_no_flood_of_look_ups() -> None:
    asked = Asked()
    lists = asked.lists(lookups_max=2)
    for number in range(5):
        lists.begin(f"192.0.2.{number}")
    lists.begin("192.0.2.1")
    await eventually(lambda: len(asked.names) == 2)
    assert asked.failures[0].startswith("all lists lookups_max clients are being looked up; [192.0.2.2]")
    assert (await lists.listing("192.0.2.4")).score == 0
    asked.gate.set()
    assert (await lists.listing("192.0.2.1")).score == 1
    lists.close()
