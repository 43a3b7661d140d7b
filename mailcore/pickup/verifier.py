"""Finds out what would become of mail for an address: its route, the hosts of its next hop, and, where recipients are known by
asking the next hop (``[recipients]``), that server's answer. Loaded with the first ``sendmail -bv``.

Laws
- A next hop is only asked where ``[recipients]`` says so; of all others the finding is that it was not asked.
- Questions at a time and the time of each question are bounded, by ``[maildrop]``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from mailcore.bounce.verified import Action, Finding
from mailcore.config.host_finder_of import host_finder_of, our_name
from mailcore.config.recipients import domain_pattern_of
from mailcore.config.settings import Settings
from mailcore.envelope import Status
from mailcore.pickup.verification import Asked, Question
from mailcore.receiver import probe
from mailcore.routing.address import comparable_domain, split
from mailcore.routing.mx import Address
from mailcore.routing.resolve import Refused, Resolved, Routing
from mailcore.tls.policy import Policies, Policy

__all__ = ["AddressVerifier"]

HOSTS_NAMED_MAX = 3


class AddressVerifier:
    """Answers questions, in the loop of the process. ``routing`` returns the routing in use."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, routing: Callable[[], Routing]) -> None:
        self._settings = settings
        self._loop = loop
        self._routing = routing
        self._prober = probe.Prober(host_finder_of(settings, time.monotonic))
        self._policies = Policies(settings.tls_policy, settings.deliverer.port, settings.tls.ca_file)
        self._slots = asyncio.Semaphore(settings.maildrop.verify_questions_max)
        self._relayed = dict.fromkeys((each.lower() for each in settings.relay.domains), "")

    def begin(self, question: Question) -> Future[list[Finding]]:
        """Begins to look for the findings. Called in the pickup's thread."""
        return asyncio.run_coroutine_threadsafe(self._ask(question), self._loop)

    async def _ask(self, question: Question) -> list[Finding]:
        return list(await asyncio.gather(*(self._one(question, asked) for asked in question.asked)))

    async def _one(self, question: Question, asked: Asked) -> Finding:
        route = self._routing().of_message(question.sender, question.login)(asked.address, "")
        if isinstance(route, Refused):
            return _by_route(asked, route)
        async with self._slots:
            return await self._by_next_hop(asked, route)

    async def _by_next_hop(self, asked: Asked, route: Resolved) -> Finding:
        limit_s = self._settings.maildrop.verify_timeout_s
        status, late = "4.4.3", "the DNS had no answer about"  # RFC 3463: directory server failure
        try:
            async with asyncio.timeout(limit_s) as limit:
                tls = self._settings.transports[route.transport].tls
                policy = self._policies.of(route.transport, tls, route.next_hop)
                hosts = await self._prober.find(policy, route.next_hop)
                if isinstance(hosts, Refused):
                    return Finding(asked.address, Action.UNDELIVERABLE, hosts.dsn, hosts.reply, asked.original)
                if not self._asks_about(asked.address):
                    return Finding(asked.address, Action.UNVERIFIED, "4.0.0", _not_asked(route, hosts), asked.original)
                status, late = "4.4.1", "no answer from"
                answer = await self._prober.ask(self._question(asked.address, route, policy), hosts, route.next_hop)
                return _by_answer(asked, answer)
        except TimeoutError:
            if not limit.expired():  # of something inside: a fault of ours
                raise
            text = f"{late} {route.destination} within {limit_s:g} s ([maildrop] verify_timeout_s)"
            return Finding(asked.address, Action.UNDELIVERABLE, status, text, asked.original)

    def _asks_about(self, address: str) -> bool:
        """Returns whether recipients of this domain are known by asking the next hop."""
        ways = self._settings.recipients.ways
        domain = comparable_domain(split(address)[1])
        return bool(domain_pattern_of(domain, self._relayed)) and ways[domain_pattern_of(domain, ways)] == "next_hop"

    def _question(self, address: str, route: Resolved, policy: Policy) -> probe.Question:
        settings, recipients = self._settings, self._settings.recipients
        return probe.Question(
            address,
            recipients.address_verify_sender,
            our_name(settings),
            policy,
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


def _by_answer(asked: Asked, answer: probe.Answer) -> Finding:
    if answer.outcome is probe.Outcome.UNDECIDED:
        return Finding(asked.address, Action.UNDELIVERABLE, "4.1.1", f"unverified: {answer.text}", asked.original)
    text = f"{answer.text} (in reply to RCPT TO command)"
    if answer.outcome is probe.Outcome.VALID:
        return Finding(asked.address, Action.DELIVERABLE, "2.1.5", text, asked.original)
    return Finding(asked.address, Action.UNDELIVERABLE, "5.1.1", text, asked.original)


def _not_asked(route: Resolved, hosts: Sequence[Address]) -> str:
    names = list(dict.fromkeys(f"{each.host}[{each.address}]" for each in hosts))
    more = ", and others" if len(names) > HOSTS_NAMED_MAX else ""
    return (
        f"not asked: mail goes to {route.destination} ({', '.join(names[:HOSTS_NAMED_MAX])}{more}); "
        "whether that server has the mailbox was not checked"
    )
