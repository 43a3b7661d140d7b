"""Mail that would come back to a receiver of ours goes nowhere, as with Postfix: "mail for X loops back to myself"."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing.mx import HostFinder
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.routing.resolve import Refused
from tests.deliverer.dns_server import NameServer, answering

RECORDS = {
    "bare.test A": ["127.0.0.2"],
    "ours.test MX": ["10 other-name.test."],
    "behind.test MX": ["10 before.test.", "20 other-name.test.", "30 after.test."],
    "beside.test MX": ["10 before.test.", "10 other-name.test."],
    "other-name.test A": ["127.0.0.2"],
    "before.test A": ["127.0.0.3"],
    "after.test A": ["192.0.2.4"],
}


@pytest.mark.parametrize("listening", ["127.0.0.2", "0.0.0.0"])
async def test_no_host_of_a_domain_is_a_receiver_of_ours(tmp_path: Path, listening: str) -> None:
    async with answering(NameServer(RECORDS)) as names:
        finder = HostFinder(
            (names.text,), addresses_max=5, own_name="us.test", chance=random.Random(1), clock=lambda: 0.0,
            hosts_file=tmp_path / "hosts", own_addresses=OwnAddresses([(listening, 25), ("127.0.0.3", 2525)]),
        )  # fmt: skip
        for domain in ("bare.test", "ours.test", "beside.test") if listening == "127.0.0.2" else ("bare.test",):
            found = await finder.find(NextHop(domain, 25, True))
            assert found == Refused(Status.BOUNCED, "5.4.6", f"mail for {domain} loops back to myself")
        if listening == "127.0.0.2":
            behind = await finder.find(NextHop("behind.test", 25, True))
            assert not isinstance(behind, Refused)
            assert [address.address for address in behind] == ["127.0.0.3"]
            assert finder.is_served_by_us(NextHop("behind.test", 25, True))
        assert not finder.is_served_by_us(NextHop("bare.test", 26, True))
        assert not isinstance(await finder.find(NextHop("bare.test", 26, True)), Refused)  # another server's port
        assert not isinstance(await finder.find(NextHop("bare.test", 25, False)), Refused)  # as the operator says


def test_an_address_of_another_host_is_none_of_ours() -> None:
    own = OwnAddresses([("0.0.0.0", 25), ("::1", 587)])
    assert own.hold("127.0.0.9", 25)
    assert own.hold("::1", 587)
    assert not own.hold("192.0.2.1", 25)
    assert not own.hold("127.0.0.1", 587)


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("form", ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_an_address_of_ours_is_known_in_each_form(listening: str, form: str) -> None:
    """law: fallback-returns-nothing. An IPv4-mapped address is its IPv4 address; the unspecified one leads to loopback."""
    own = OwnAddresses([(listening, 25), ("192.0.2.1", 587)])
    assert own.hold(form, 25)
    assert not own.hold(form, 26)
    assert not own.hold(form, 587)
    assert own.hold("::ffff:192.0.2.1", 587)


async def test_a_host_of_a_domain_is_a_receiver_of_ours_in_another_form(tmp_path: Path) -> None:
    records = {"zero.test A": ["0.0.0.0"], "six.test AAAA": ["::ffff:127.0.0.2"], "any.test AAAA": ["::"]}
    async with answering(NameServer(records)) as names:
        finder = HostFinder(
            (names.text,), addresses_max=5, own_name="us.test", chance=random.Random(1), clock=lambda: 0.0,
            hosts_file=tmp_path / "hosts", own_addresses=OwnAddresses([("127.0.0.2", 25)]),
        )  # fmt: skip
        for domain in ("zero.test", "six.test", "any.test"):
            found = await finder.find(NextHop(domain, 25, True))
            assert found == Refused(Status.BOUNCED, "5.4.6", f"mail for {domain} loops back to myself")
