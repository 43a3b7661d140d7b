"""Next hops that are tried when no host of the destination can be found or reached, and when they are not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.frames import Delivered, NextHop
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.routing.resolve import Refused
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

UNKNOWN = Refused(Status.BOUNCED, "5.4.4", "Host or domain name not found")
LATER = Refused(Status.DEFERRED, "4.4.3", "Host not found, try again")
NULL_MX = Refused(Status.BOUNCED, "5.1.10", "Domain example.org does not accept mail (nullMX)")
OURS = Refused(Status.DEFERRED, "4.3.0", "this host lacks what it needs to ask", ours=True)


class Hosts(HostFinder):
    """Finds what it was given for example.org and by name, and a host at 127.0.0.1 for all other next hops."""

    def __init__(
        self, found: tuple[Address, ...] | Refused, own: OwnAddresses | None = None, **by_name: Refused
    ) -> None:
        super().__init__(
            (), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: 0.0, own_addresses=own
        )
        self._first = found
        self.given: dict[str, tuple[Address, ...] | Refused] = dict(by_name)

    async def find(self, next_hop: NextHop, *, validated: bool = False) -> tuple[Address, ...] | Refused:
        if next_hop.host == "example.org":
            return self._first
        return self.given.get(next_hop.host) or (Address(next_hop.host, "127.0.0.1"),)


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


UNREACHABLE = (Address("mx.example.org", "127.0.0.9"),)
LOOP = Refused(Status.BOUNCED, "5.4.6", "mail for bad loops back to myself")


@pytest.mark.parametrize("bad", [UNKNOWN, NULL_MX, LOOP])
@pytest.mark.parametrize("found", [UNKNOWN, LATER, UNREACHABLE])
async def test_a_fallback_that_takes_no_mail_returns_none(
    tmp_path: Path, found: tuple[Address, ...] | Refused, bad: Refused
) -> None:
    """law: fallback-returns-nothing. The next one is tried. The site's own hosts decide whether it has failed."""
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port, Hosts(found, bad=bad))
        hops = [NextHop("bad", server.port, True)]
        alone = await Sender.send(sender, "to@example.org", "b@example.org")
        result = await sender.send("to@example.org", "b@example.org", fallbacks=hops)
        assert outcomes(result) == [("deferred", "4.3.5")] * 2
        assert words(result) == f"a fallback next hop cannot be used: {bad.reply}"
        assert (result.site_failure, result.transport_failure) == (alone.site_failure, alone.transport_failure)
        assert server.sessions == []
        hops.append(NextHop("backup.example.net", server.port, False))
        result = await sender.send("to@example.org", fallbacks=hops)
        assert outcomes(result) == [("delivered", "2.0.0")]


async def test_a_fallback_that_is_ourselves_gets_nothing(tmp_path: Path) -> None:
    """law: fallback-returns-nothing. A name in brackets that leads to our own receiver, as /etc/hosts may have it."""
    async with serving(ScriptedServer()) as ours, serving(ScriptedServer()) as other:
        own = OwnAddresses([("127.0.0.1", ours.port)])
        sender = Sender(tmp_path, other.port, Hosts(UNREACHABLE, own))
        hops = [NextHop("relay.example.net", ours.port, False)]
        result = await sender.send("to@example.org", fallbacks=hops)
        assert outcomes(result) == [("deferred", "4.3.5")]
        assert words(result).endswith("mail for relay.example.net loops back to myself")
        hops.append(NextHop("relay.example.net", other.port, False))
        assert outcomes(await sender.send("to@example.org", fallbacks=hops)) == [("delivered", "2.0.0")]
        assert ours.sessions == []


@pytest.mark.parametrize("form", ["0.0.0.0", "::ffff:127.0.0.1", "::ffff:7f00:1"])
async def test_a_fallback_that_is_ourselves_in_another_form_gets_nothing(tmp_path: Path, form: str) -> None:
    """law: fallback-returns-nothing. An address, and a name that leads to it."""
    async with serving(ScriptedServer()) as ours:
        finder = Hosts(UNREACHABLE, OwnAddresses([("127.0.0.1", ours.port)]))
        sender = Sender(tmp_path, ours.port, finder)
        for host in (form, "relay.example.net"):
            finder.given[host] = (Address(host, form),)
            result = await sender.send("to@example.org", fallbacks=[NextHop(host, ours.port, False)])
            assert outcomes(result) == [("deferred", "4.3.5")]
            assert words(result).endswith(f"mail for {host} loops back to myself")
        assert ours.sessions == []


async def test_a_domain_with_us_among_its_mx_hosts_asks_no_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """law: fallback-returns-nothing. The fallback would find us, and send the mail back."""
    async with serving(ScriptedServer()) as server:
        hop = NextHop("backup.example.net", server.port, False)
        sender = Sender(tmp_path, server.port, Hosts(UNREACHABLE))
        monkeypatch.setattr(sender.finder, "is_served_by_us", lambda next_hop: next_hop.host == "example.org")
        result = await sender.send("to@example.org", fallbacks=[hop])
        assert outcomes(result) == [("deferred", "4.4.1")]
        assert result.site_failure
        assert server.sessions == []


async def test_a_kept_connection_to_the_fallback_of_before_is_not_used(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as old, serving(ScriptedServer()) as new:
        sender = Sender(tmp_path, old.port, Hosts(UNREACHABLE))
        for server, sessions in ((old, 1), (old, 1), (new, 1), (old, 1)):
            hop = NextHop("backup.example.net", server.port, False)
            result = await sender.send("to@example.org", fallbacks=[hop])
            assert result.relay == f"backup.example.net[127.0.0.1]:{server.port}"
            assert len(server.sessions) == sessions
        result = await sender.send("to@example.org")
        assert outcomes(result) == [("deferred", "4.4.1")]
