"""A client may raise the priority of its mail up to a bound, and hears which one counts (MT-PRIORITY, RFC 6710 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.esmtp import Esmtp
from tests.receiver.logins import submission, user
from tests.receiver.server_in_process import Client, MemoryIntake, serving

BOUNDS = Esmtp(priority_max=5, login_priority_max=2)
LOWERED = b"250 2.3.6 %d is the new priority assigned to the message\r\n"
KEPT = b"250 2.1.0 Ok\r\n"


async def asked(client: Client, intake: MemoryIntake, priority: int) -> tuple[bytes, int]:
    """The reply to MAIL, and the priority that is stored."""
    reply = await client.ask(b"MAIL FROM:<alice@example.org> MT-PRIORITY=%d" % priority)
    await client.ask(b"RCPT TO:<b@example.org>")
    await client.ask(b"DATA")
    assert (await client.ask(b"x\r\n.")).startswith(b"250 ")
    return reply, int(dict(intake.messages[-1][0].options).get("MT-PRIORITY", "0"))


@pytest.mark.parametrize(
    ("given", "reply", "stored"), [(9, LOWERED % 5, 5), (5, KEPT, 5), (-9, KEPT, -9), (0, KEPT, 0)]
)
async def test_a_client_of_our_networks(given: int, reply: bytes, stored: int) -> None:
    async with serving(esmtp=BOUNDS) as server:
        assert await asked(await server.ready(), server.intake, given) == (reply, stored)


@pytest.mark.parametrize(
    ("bounds", "given", "reply", "stored"),
    [
        (BOUNDS, 9, LOWERED % 2, 2), (BOUNDS, 2, KEPT, 2), (BOUNDS, -4, KEPT, -4),
        (Esmtp(), 9, LOWERED % 0, 0), (Esmtp(), -1, KEPT, -1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("networks", [("192.0.2.0/24",), ("127.0.0.0/8",)])
async def test_a_user_who_has_logged_in(
    tmp_path: Path, networks: tuple[str, ...], bounds: Esmtp, given: int, reply: bytes, stored: int
) -> None:
    async with submission(tmp_path, user(), networks=networks, esmtp=bounds) as server:
        assert await asked(await server.logged_in(), server.intake, given) == (reply, stored)


@pytest.mark.parametrize("given", [9, -9])
async def test_the_mail_of_other_clients_has_none(given: int) -> None:
    async with serving(networks=(), domains=("example.org",), esmtp=BOUNDS) as server:
        assert await asked(await server.ready(), server.intake, given) == (LOWERED % 0, 0)
