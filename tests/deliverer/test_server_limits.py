"""The limits that a next hop announces (RFC 9422) are kept, and every recipient still gets exactly one verdict."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.deliverer.server_limits import ServerLimits, limits_of
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.scripted_server import Act, ScriptedServer, serving

FIVE = tuple(f"r{number}@example.org" for number in range(5))


def offering(limits: str) -> tuple[str, ...]:
    return ("PIPELINING", "DSN", f"LIMITS {limits}")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("RCPTMAX=2", ServerLimits(rcpt_max=2)),
        ("mailmax=3 RcptDomainMax=1 RCPTMAX=999999", ServerLimits(3, 999_999, 1)),
        ("X=1 RCPTMAX=7 Y", ServerLimits(rcpt_max=7)),
        ("", None),
        ("RCPTMAX=0", None),
        ("RCPTMAX=-1", None),
        ("RCPTMAX=01", None),
        ("RCPTMAX=1000000", None),
        ("RCPTMAX=٣", None),
        ("RCPTMAX", None),
        ("RCPTMAX=", None),
        ("RCPTMAX = 5", None),
    ],
)
def test_a_limit_is_a_number_of_at_most_six_digits(text: str, limits: ServerLimits | None) -> None:
    assert limits_of({"limits": text}) == limits
    assert limits_of({}) is None


async def test_more_recipients_than_the_server_takes_go_out_in_several_transactions(tmp_path: Path) -> None:
    refuse = {"r3@example.org": b"550 5.1.1 no\r\n", "r1@example.org": b"450 4.2.0 later\r\n"}
    async with serving(ScriptedServer(keywords=offering("RCPTMAX=2"), refuse=refuse)) as server:
        sender = Sender(tmp_path, server.port)
        options = tuple(() if number % 2 else (("ORCPT", f"rfc822;o{number}"),) for number in range(5))
        work = msgspec.structs.replace(sender.work(*FIVE), recipient_options=options)
        result = await sender.deliver(work)
        sender.close()
    delivered = ("delivered", "2.0.0")
    assert outcomes(result) == [delivered, ("deferred", "4.2.0"), delivered, ("bounced", "5.1.1"), delivered]
    assert [message.recipients for message in server.messages] == [
        ["<r0@example.org> ORCPT=rfc822;o0"],
        ["<r2@example.org> ORCPT=rfc822;o2"],
        ["<r4@example.org> ORCPT=rfc822;o4"],
    ]
    assert len({message.data for message in server.messages}) == 1
    assert len(server.sessions) == 1


async def test_a_server_that_takes_few_messages_in_a_session_gets_another_session(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=offering("RCPTMAX=1 MAILMAX=2"))) as server:
        sender = Sender(tmp_path, server.port)
        result = await sender.send(*FIVE)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")] * 5
    assert [session.verbs.count("MAIL") for session in server.sessions] == [2, 2, 1]
    assert [session.verbs[-1] for session in server.sessions[:2]] == ["QUIT"] * 2


async def test_the_domains_of_a_transaction_can_be_limited(tmp_path: Path) -> None:
    addresses = ("a@one.example", "b@two.example", "c@ONE.example", "d@three.example")
    async with serving(ScriptedServer(keywords=offering("RCPTDOMAINMAX=1"))) as server:
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send(*addresses)) == [("delivered", "2.0.0")] * 4
        sender.close()
    assert [len(message.recipients) for message in server.messages] == [2, 1, 1]


async def test_a_server_that_hangs_up_is_not_asked_again_for_each_part(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": Act.HANG_UP}, keywords=offering("RCPTMAX=1"))) as server:
        sender = Sender(tmp_path, server.port)
        result = await sender.send(*FIVE)
        sender.close()
    assert outcomes(result) == [("deferred", "4.4.2")] * 5
    assert "lost connection" in words(result)
    assert len(server.sessions) == 1
