"""Milters: whether each that is used can be reached, and agrees on the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from mailcore.config.milters import Milter, milters_of
from mailcore.doctor.finding import Finding, bad, good
from mailcore.doctor.host import Host
from mailcore.milter.connection import MilterFailed, connect
from mailcore.milter.protocol import BadPacket, Step, packet, read_negotiation, write_negotiation

__all__ = ["look"]

WAIT_S = 5.0  # far less than connect_timeout_s, which is for a milter under load
CONSEQUENCES = {
    "tempfail": "mail gets 451 until then",
    "accept": "mail is accepted without it",
    "reject": "mail is refused with 550",
    "quarantine": "mail is held",
}


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each milter."""
    settings = host.settings
    lists = [*(each.milters for each in settings.all_listeners), settings.receiver.non_smtpd_milters]
    addresses = list(dict.fromkeys(address for each in lists for address in each))
    if not addresses:
        yield good("milters", "none is configured")
        return
    milters = milters_of(addresses, settings.milter)
    for milter, failure in zip(milters, asyncio.run(_ask(milters)), strict=True):
        if failure:
            yield bad(
                milter.address,
                f"{failure}; {CONSEQUENCES[milter.default_action]}",
                _fix(milter.address, settings.receiver.non_smtpd_milters),
            )
        else:
            yield good(milter.address, "answers")


def _fix(address: str, local: tuple[str, ...]) -> str:
    users = "the user of the receivers"
    if address in local:
        users = "the users of the receivers and of the control process"
    return f"Start the milter, or correct its address; {users} must be allowed to open its socket."


async def _ask(milters: tuple[Milter, ...]) -> list[str]:
    return list(await asyncio.gather(*map(_failure, milters)))


async def _failure(milter: Milter) -> str:
    """Returns what is wrong with a milter; "" if it works."""
    try:
        connection = await connect(milter.address, WAIT_S)
        try:
            connection.send(write_negotiation())
            read_negotiation(await connection.receive(WAIT_S))
        finally:
            connection.close(packet(Step.QUIT))
    except (MilterFailed, BadPacket) as error:
        return str(error)
    return ""
