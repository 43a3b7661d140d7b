"""The evaluation of one message: SPF, DKIM, ARC and DMARC beside one another, within one time.

Laws
- It ends within ``timeout_s`` after the body was read; what has no answer then is temperror.
- The body is read once, in blocks, and is never in memory as a whole; other sessions have their turn between two blocks.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeVar

from mailcore.authenticity.answers import Answers
from mailcore.authenticity.arc import ArcResult, message_signature, verify_chain
from mailcore.authenticity.arc_chain import chain_of
from mailcore.authenticity.author import author_of
from mailcore.authenticity.dkim import DkimResult, signatures_of, unread, verified
from mailcore.authenticity.dmarc import DmarcResult, evaluate_dmarc
from mailcore.authenticity.sender_check import Ask
from mailcore.authenticity.signed import BodyCheck, Field, Signature
from mailcore.authenticity.spf import SpfResult, check_host
from mailcore.authenticity.summary import summary_of
from mailcore.config.authenticity import Authenticity
from mailcore.dkim.canonical import fields_of, unstuffed

__all__ = ["Client", "Evaluation", "Evaluator"]

_T = TypeVar("_T")
_LATE = "the time was over"


class Client(NamedTuple):
    """The client that sent a message: ``sender`` is that of MAIL FROM, "" for a bounce."""

    address: str
    helo: str
    sender: str


class Evaluation(NamedTuple):
    """The results for one message. ``mail_from`` is that of HELO if there is no sender."""

    helo: SpfResult
    mail_from: SpfResult
    signatures: tuple[DkimResult, ...]
    arc: ArcResult
    dmarc: DmarcResult

    @property
    def summary(self) -> str:
        """Returns the results for the log: "spf=pass dkim=none arc=none dmarc=pass"."""
        return summary_of(self.mail_from.result, self.dkim, self.arc.result, self.dmarc.result)

    @property
    def dkim(self) -> str:
        """Returns the result that counts for the message: the best of its signatures."""
        results = [each.result for each in self.signatures]
        for result in ("pass", "temperror"):
            if result in results:
                return result
        return results[0] if results else "none"


class Evaluator:
    """Evaluates messages; one for a process. ``clock`` is monotonic, ``wall`` wall-clock seconds."""

    def __init__(
        self,
        settings: Authenticity,
        ask: Ask,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._answers = Answers(ask, clock, settings.lookups_max)
        self._wall = wall
        self._chance = chance

    async def evaluate(self, client: Client, header: bytes, body: AsyncIterator[bytes]) -> Evaluation:
        """Evaluates a message: its header section as the client sent it, and the blocks of its body, as they are stored."""
        settings, answers = self._settings, self._answers
        fields = fields_of(unstuffed(header))
        signatures = signatures_of(fields, settings.signatures_max)
        chain = chain_of(fields)
        readable = [each for each in signatures if isinstance(each, Signature)]
        newest = message_signature(chain)
        check = BodyCheck([*readable, newest] if newest is not None else readable)
        if check:
            async for block in body:
                check.feed(block)
                await asyncio.sleep(0)  # a block takes a millisecond; other sessions have their turn
        check.end()

        timeout_at = asyncio.get_running_loop().time() + settings.timeout_s
        domain = client.sender.rpartition("@")[2]
        make = asyncio.ensure_future
        helo = make(check_host(answers, client.address, client.helo, "", client.helo))
        mail_from = helo  # a bounce's sender is that of HELO (RFC 7208 2.4)
        if client.sender:
            mail_from = make(check_host(answers, client.address, domain, client.sender, client.helo))
        dkim = {each: make(self._verified(each, fields, check)) for each in readable}
        chain_state = make(verify_chain(answers, chain, fields, check, settings.rsa_bits_min, settings.arc_sets_max))
        tasks: list[asyncio.Future[Any]] = [helo, mail_from, chain_state, *dkim.values()]
        try:
            await asyncio.wait(tasks, timeout=settings.timeout_s)
        finally:
            for task in tasks:
                task.cancel()
        spf = _outcome(mail_from, SpfResult("temperror", domain or client.helo, _LATE))
        results = tuple(
            _outcome(dkim[each], unread(each, "temperror", _LATE)) if isinstance(each, Signature) else each
            for each in signatures
        )
        author = author_of(fields)
        try:
            async with asyncio.timeout_at(timeout_at):
                dmarc = await evaluate_dmarc(answers, author, spf, results, self._chance)
        except TimeoutError:
            dmarc = DmarcResult("temperror", author.domain, reason=_LATE)
        return Evaluation(
            _outcome(helo, SpfResult("temperror", client.helo, _LATE)),
            spf,
            results,
            _outcome(chain_state, ArcResult("temperror", chain.highest, _LATE)),
            dmarc,
        )

    async def _verified(self, signature: Signature, fields: list[Field], body: BodyCheck) -> DkimResult:
        settings = self._settings
        return await verified(
            self._answers,
            signature,
            fields,
            body,
            rsa_bits_min=settings.rsa_bits_min,
            takes_partial=settings.partial_body == "accept",
            now=self._wall(),
        )


def _outcome(task: asyncio.Future[_T], otherwise: _T) -> _T:
    return task.result() if task.done() and not task.cancelled() else otherwise
