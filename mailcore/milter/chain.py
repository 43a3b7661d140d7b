"""The milters of one SMTP session, in order. At each step the first one that decides, decides; a later one sees what earlier
ones have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from mailcore.config.milters import Milter
from mailcore.milter.away import Away
from mailcore.milter.decision import Decision, Kind
from mailcore.milter.filter import Filter
from mailcore.milter.message import Message
from mailcore.milter.protocol import Step

__all__ = ["Chain"]


class Chain:
    """The filters of a session. ``failed`` is called for each that fails, for the log. ``away``: those not to be waited for."""

    def __init__(
        self, milters: Sequence[Milter], failed: Callable[[Milter, str, str], None], away: Away | None = None
    ) -> None:
        self._filters = [Filter(each, failed, away) for each in milters]
        self._discarding = False  # the message under way

    async def open(self) -> None:
        """Connects to all, at the same time."""
        await asyncio.gather(*(each.open() for each in self._filters))

    def wants(self, step: Step) -> bool:
        """Returns whether a filter has anything to do or say at this step."""
        return not self._discarding and any(each.wants(step) for each in self._filters)

    def answers(self, step: Step) -> bool:
        """Returns whether a filter must be waited for at this step."""
        return not self._discarding and any(each.answers(step) for each in self._filters)

    @property
    def refusal(self) -> Decision | None:
        """Returns the first decision that refuses for the whole session, if there is one."""
        for each in self._filters:
            if each.refusal is not None and each.refusal.kind is Kind.REFUSE:
                return each.refusal
        return None

    async def command(self, step: Step, values: Mapping[str, str], *parts: bytes) -> Decision | None:
        """Sends a step to each; returns the first decision that refuses or discards."""
        if self._discarding:
            return None
        for each in self._filters:
            decision = await each.command(step, values, *parts)
            if self._decides(decision):
                return decision
        return None

    @property
    def wants_refused(self) -> bool:
        """Returns whether a filter sees recipients that we refuse."""
        return not self._discarding and any(each.wants_refused for each in self._filters)

    async def refused_recipient(self, values: Mapping[str, str], *parts: bytes) -> None:
        """Sends a recipient that we refuse to those that asked for it. Their decisions change nothing, as in Postfix."""
        for each in self._filters:
            if each.wants_refused:
                await each.command(Step.RCPT, values, *parts)

    def tell(self, step: Step, values: Mapping[str, str], *parts: bytes) -> Decision | None:
        """Sends a step that no filter answers to each; returns the first decision that refuses."""
        for each in () if self._discarding else self._filters:
            decision = each.tell(step, values, *parts)
            if self._decides(decision):
                return decision
        return None

    def _decides(self, decision: Decision | None) -> bool:
        if decision is None or decision.kind is Kind.HOLD:
            return False
        self._discarding = decision.kind is Kind.DISCARD
        return True

    async def message(self, message: Message, values: Mapping[str, str]) -> Decision | None:
        """Sends the message to each, with its changes; returns the first decision that refuses or discards."""
        if self._discarding:
            return None
        for each in self._filters:
            decision = await each.message(message, values)
            if decision is None:
                continue
            if decision.kind is not Kind.HOLD:
                return decision
            message.hold(decision.milter, decision.reason)
        return None

    @property
    def discards(self) -> bool:
        """Returns whether the message under way is thrown away."""
        return self._discarding

    def end_message(self) -> None:
        """Ends the message under way, if there is one."""
        self._discarding = False
        for each in self._filters:
            each.end_message()

    def close(self) -> None:
        """Ends all connections."""
        for each in self._filters:
            each.close()
