"""Next hops that are tried when no host of the destination can be found or reached, and when they are not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.frames import Delivered, NextHop
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.resolve import Refused
from tests.deliverer.delivery import Sender, outcomes
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

UNKNOWN = Refused(Status.BOUNCED, "5.4.4", "Host or domain name not found")
LATER = Refused(Status.DEFERRED, "4.4.3", "Host not found, try again")
NULL_MX = Refused(Status.BOUNCED, "5.1.10", "Domain example.org does not accept mail (nullMX)")
OURS = Refused(Status.DEFERRED, "4.3.0", "this host lacks what it needs to ask", ours=True)


class Hosts(HostFinder):
    """Finds what it was given for example.org, and a host at 127.0.0.1 for all other next hops."""

    def __init__(self, found: tuple[Address, ...] | Refused) -> None:
        super().__init__((), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: 0.0)
        self._first = found

    async def find(self, next_hop: NextHop, *, validated: bool = False) -> tuple[Address, ...] | Refused:
        return self._first if next_hop.host == "example.org" else (Address(next_hop.host, "127.0.0.1"),)


async def sent(directory: Path, port: int, found: tuple[Address, ...] | Refused, *fallbacks: NextHop) -> Delivered:
    return await Sender(directory, port, Hosts(found)).send("to@example.org", fallbacks=fallbacks)


@pytest.mark.parametrize("found", [UNKNOWN, LATER, (Address("mx.example.org", "127.0.0.9"),)])
async def test_mail_that_finds_no_host_goes_by_the_fallback(
    tmp_path: Path, found: tuple[Address, ...] | Refused
) -> None:
    async with serving(ScriptedServer()) as server:
        result = await sent(tmp_path, server.port, found, NextHop("backup.example.net", server.port, False))
        assert outcomes(result) == [("delivered", "2.0.0")]
        assert result.relay == f"backup.example.net[127.0.0.1]:{server.port}"
        assert not result.site_failure


@pytest.mark.parametrize(("found", "expected"), [(NULL_MX, ("bounced", "5.1.10")), (OURS, ("deferred", "4.3.0"))])
async def test_a_domain_that_takes_no_mail_and_a_trouble_of_ours_ask_no_fallback(
    tmp_path: Path, found: Refused, expected: tuple[str, str]
) -> None:
    async with serving(ScriptedServer()) as server:
        result = await sent(tmp_path, server.port, found, NextHop("backup.example.net", server.port, False))
        assert outcomes(result) == [expected]
        assert server.sessions == []


@pytest.mark.parametrize("answers", [{"RCPT": b"550 5.1.1 Who\r\n"}, {"RCPT": b"450 4.2.1 Later\r\n"}])
async def test_what_a_host_answered_asks_no_fallback(tmp_path: Path, answers: dict[str, Answer | list[Answer]]) -> None:
    async with serving(ScriptedServer(answers)) as server:
        host = (Address("mx.example.org", "127.0.0.1"),)
        result = await sent(tmp_path, server.port, host, NextHop("backup.example.net", server.port, False))
        assert result.relay.startswith("mx.example.org")
        assert len(server.sessions) == 1


async def test_when_no_fallback_answers_it_is_a_failure_of_the_site(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"GREETING": Act.HANG_UP})) as server:
        hops = [NextHop("one.example.net", server.port, False), NextHop("two.example.net", server.port, False)]
        result = await sent(tmp_path, server.port, UNKNOWN, *hops)
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert len(server.sessions) == 2
        assert result.site_failure
