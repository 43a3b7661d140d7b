"""The SMTP session that milters see of mail that does not come over SMTP, as Postfix's cleanup(8) simulates it.

The client is localhost, 127.0.0.1, and it says EHLO localhost. ``envelope`` comes first, then ``message`` with the recipients
that no milter refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailcore.milter.chain import Chain
from mailcore.milter.decision import Decision, Kind
from mailcore.milter.message import Message
from mailcore.milter.protocol import Step
from mailcore.routing.address import split

__all__ = ["CLIENT_ADDRESS", "CLIENT_NAME", "Answer", "SimulatedSession"]

CLIENT_NAME, CLIENT_ADDRESS = "localhost", "127.0.0.1"  # as Postfix's cleanup_milter_client_init
_CLIENT = CLIENT_NAME.encode() + b"\0" + b"4" + (0).to_bytes(2, "big") + CLIENT_ADDRESS.encode()


class Answer(NamedTuple):
    """The answer of the milters: a decision about the whole message, or None, and the stage at which it fell."""

    stage: str
    decision: Decision | None = None


class SimulatedSession:
    """One message's session. ``refused``: the recipients that a milter refuses for good, by address."""

    def __init__(self, chain: Chain, hostname: str, queue_id: str) -> None:
        self.refused: dict[str, Decision] = {}
        self._chain = chain
        self._values = {
            "j": hostname,
            "v": "Waypost",
            "_": f"{CLIENT_NAME} [{CLIENT_ADDRESS}]",
            "i": queue_id,
            "{daemon_name}": hostname,
            "{client_addr}": CLIENT_ADDRESS,
            "{client_name}": CLIENT_NAME,
            "{client_port}": "0",
        }

    async def envelope(self, sender: str, recipients: Sequence[str]) -> Answer:
        """Shows the client, the sender and each recipient."""
        chain, values = self._chain, self._values
        await chain.open()
        mailer = {"{mail_addr}": sender, "{mail_host}": split(sender)[1], "{mail_mailer}": "smtp"}
        for step, part, more in (
            (Step.CONNECT, _CLIENT, {}),
            (Step.HELO, CLIENT_NAME.encode(), {}),
            (Step.MAIL, _path(sender), mailer),
        ):
            values |= more
            decision = await chain.command(step, values, part)
            if decision is not None:
                return Answer(step.name, decision)
        for address in recipients:
            values |= {"{rcpt_addr}": address, "{rcpt_host}": split(address)[1], "{rcpt_mailer}": "smtp"}
            decision = await chain.command(Step.RCPT, values, _path(address))
            if decision is None:
                continue
            if decision.kind is not Kind.REFUSE or decision.reply[:1] != b"5":
                return Answer("RCPT", decision)
            self.refused[address] = decision
        return Answer("RCPT")

    async def message(self, message: Message) -> Answer:
        """Shows the message, which the milters may change."""
        decision = await self._chain.command(Step.DATA, self._values)
        if decision is not None:
            return Answer("DATA", decision)
        return Answer("END-OF-MESSAGE", await self._chain.message(message, self._values))


def _path(address: str) -> bytes:
    return b"<" + address.encode("utf-8", "surrogateescape") + b">"
