"""Finds out what would become of mail for an address: its route, the hosts of its next hop, and, where recipients are known by
asking the next hop (``[recipients]``), that server's answer. Loaded with the first ``sendmail -bv``.

Laws
- A next hop is only asked where ``[recipients]`` says so; of all others the finding is that it was not asked.
- Requests under way, questions at a time and the time of each question are bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future

from mailcore.bounce.verified import Action, Finding
from mailcore.config.host_finder_of import host_finder_of, our_name
from mailcore.config.recipients import domain_pattern_of
from mailcore.config.routing_of import routing_of
from mailcore.config.settings import Settings
from mailcore.config.tls import level_of
from mailcore.envelope import Status
from mailcore.pickup.verification import Asked, Question
from mailcore.receiver import probe
from mailcore.routing.address import comparable_domain, split
from mailcore.routing.mx import Address
from mailcore.routing.resolve import Refused, Resolved

__all__ = ["AddressVerifier"]

REQUESTS_MAX = 10  # under way; further ones wait in the maildrop
QUESTIONS_MAX = 5  # at a time, of all requests
QUESTION_S_MAX = 120.0  # of one address: its DNS and all its hosts
HOSTS_NAMED_MAX = 3


class AddressVerifier:
    """The requests under way."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._routing = routing_of(settings)
        self._finder = host_finder_of(settings, time.monotonic)
        self._slots = asyncio.Semaphore(QUESTIONS_MAX)
        self._relayed = dict.fromkeys((each.lower() for each in settings.relay.domains), "")
        self._requests: dict[Question, Future[list[Finding]]] = {}

    def findings(self, question: Question) -> Sequence[Finding] | None:
        """Returns the findings, once; None while they are not there. Called in the pickup's thread."""
        request = self._requests.get(question)
        if request is None:
            self._forget_abandoned()
            if len(self._requests) < REQUESTS_MAX:
                self._requests[question] = asyncio.run_coroutine_threadsafe(self._ask(question), self._loop)
            return None
        if not request.done():
            return None
        del self._requests[question]
        return [*request.result(), *question.known]

    def _forget_abandoned(self) -> None:
        """Drops an answer when there are too many: its file may be gone, or it is asked again."""
        if len(self._requests) >= REQUESTS_MAX:
            done = next((question for question, request in self._requests.items() if request.done()), None)
            if done is not None:
                del self._requests[done]

    async def _ask(self, question: Question) -> list[Finding]:
        return list(await asyncio.gather(*(self._one(question, asked) for asked in question.asked)))

    async def _one(self, question: Question, asked: Asked) -> Finding:
        route = self._routing.of_message(question.sender, question.login)(asked.address, "")
        if isinstance(route, Refused):
            return _by_route(asked, route)
        async with self._slots:
            try:
                async with asyncio.timeout(QUESTION_S_MAX):
                    return await self._by_next_hop(asked, route)
            except TimeoutError:
                text = f"{route.destination} gave no answer within {QUESTION_S_MAX:.0f} s"
                return Finding(asked.address, Action.UNDELIVERABLE, "4.4.1", text, asked.original)

    async def _by_next_hop(self, asked: Asked, route: Resolved) -> Finding:
        hosts = await self._finder.find(route.next_hop)
        if isinstance(hosts, Refused):
            return Finding(asked.address, Action.UNDELIVERABLE, hosts.dsn, hosts.reply, asked.original)
        if not self._asks_about(asked.address):
            return Finding(asked.address, Action.UNVERIFIED, "4.0.0", _not_asked(route, hosts), asked.original)
        answer = await probe.ask(self._question(asked.address, route), hosts, route.next_hop.port)
        if answer.outcome is probe.Outcome.UNDECIDED:
            return Finding(asked.address, Action.UNDELIVERABLE, "4.1.1", f"unverified: {answer.text}", asked.original)
        text = f"{answer.text} (in reply to RCPT TO command)"
        if answer.outcome is probe.Outcome.VALID:
            return Finding(asked.address, Action.DELIVERABLE, "2.1.5", text, asked.original)
        return Finding(asked.address, Action.UNDELIVERABLE, "5.1.1", text, asked.original)

    def _asks_about(self, address: str) -> bool:
        """Returns whether recipients of this domain are known by asking the next hop."""
        ways = self._settings.recipients.ways
        domain = comparable_domain(split(address)[1])
        return bool(domain_pattern_of(domain, self._relayed)) and ways[domain_pattern_of(domain, ways)] == "next_hop"

    def _question(self, address: str, route: Resolved) -> probe.Question:
        settings, recipients = self._settings, self._settings.recipients
        tls = settings.transports[route.transport].tls
        return probe.Question(
            address,
            recipients.address_verify_sender,
            our_name(settings),
            level_of(settings.tls_policy, tls, route.next_hop, settings.deliverer.port),
            route.transport in settings.lmtp_transports,
            recipients.address_verify_timeout_s,
        )


def _by_route(asked: Asked, route: Refused) -> Finding:
    if route.released:
        action, text = Action.UNVERIFIED, f"not asked: mail is {route.reply}"
    elif route.status is Status.DELIVERED:
        action, text = Action.DELIVERABLE, f"{route.reply}: the route throws mail away"
    else:
        action, text = Action.UNDELIVERABLE, route.reply
    return Finding(asked.address, action, route.dsn, text, asked.original)


def _not_asked(route: Resolved, hosts: Sequence[Address]) -> str:
    names = list(dict.fromkeys(f"{each.host}[{each.address}]" for each in hosts))
    more = ", and others" if len(names) > HOSTS_NAMED_MAX else ""
    return (
        f"not asked: mail goes to {route.destination} ({', '.join(names[:HOSTS_NAMED_MAX])}{more}); "
        "whether that server has the mailbox was not checked"
    )
