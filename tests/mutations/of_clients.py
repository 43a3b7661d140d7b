"""Ways to break what is believed of a client: its address, and what follows from it."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a PROXY header is believed from anyone",
        "mailcore/receiver/server.py",
        "if context.balancers is not None and context.balancers.hold(peer[0]):",
        "if context.balancers is not None:",
        "tests/receiver/test_proxy_header.py -k anyone_else",
    ),
    Mutation(
        "a client that the balancer cannot name is trusted",
        "mailcore/receiver/server.py",
        "own, trusted=False, is_named=False)",
        "own, trusted=True)",
        "tests/receiver/test_proxy_header.py -k not_named_is_not_trusted",
    ),
    Mutation(
        "mail of a client that the balancer cannot name has the balancer's address",
        "mailcore/receiver/session.py",
        "        self.address, self.port = NO_ADDRESS, 0\n",
        "",
        "tests/receiver/test_proxy_header.py -k not_named_is_not_trusted",
    ),
    Mutation(
        "XCLIENT is for every host",
        "mailcore/receiver/named_client.py",
        "        return self.is_named and networks.hold(self.connected_from) and verb",
        "        return self.is_named and verb",
        "tests/receiver/test_named_client.py -k every_other_host",
    ),
    Mutation(
        "a client that a proxy names has any room",
        "mailcore/receiver/admission.py",
        "        if not trusted and (was_trusted or network != self._network(address)):\n",
        "        if not trusted and network == address:\n",
        "tests/receiver/test_named_client.py -k no_more_room",
    ),
    Mutation(
        "a known network has all of the reserve",
        "mailcore/receiver/admission.py",
        "        return len(taken) < KNOWN_SHARE * reserve and taken.count(network) < KNOWN_NETWORK_SHARE * reserve\n",
        "        return len(taken) < reserve\n",
        "tests/receiver/test_guard.py -k only_a_part",
    ),
    Mutation(
        "a client has the rights of the host that names it",
        "mailcore/receiver/named_client.py",
        "        self.trusted = self.context.policy.trusts(self.address)\n",
        "",
        "tests/receiver/test_named_client.py -k takes_the_place",
    ),
    Mutation(
        "a client has the login of the one before",
        "mailcore/receiver/named_client.py",
        "        self.forget_login()\n",
        "",
        "tests/receiver/test_named_client.py -k login_is_that",
    ),
    Mutation(
        "mail for the postmaster leads to any host",
        "mailcore/receiver/postmaster.py",
        "(not path.domain or path.domain.lower() in self._names)",
        "True",
        "tests/receiver/test_postmaster.py -k nothing_else",
    ),
    Mutation(
        "a connection beyond the limit is not refused",
        "mailcore/receiver/client_rates.py",
        '        if limit and self._count("Connection", self._other, 0, address, limit):\n',
        '        if limit > 1_000 and self._count("Connection", self._other, 0, address, limit):\n',
        "tests/receiver/test_client_rates.py -k 421",
    ),
    Mutation(
        "recipients are counted only when they are accepted",
        "mailcore/receiver/recipient_session.py",
        "            and (refusal := self.context.rates.recipient(self.address))\n",
        "            and self.context.policy.accepts(path, self.trusted)\n"
        "            and (refusal := self.context.rates.recipient(self.address))\n",
        "tests/receiver/test_client_rates.py -k recipients",
    ),
    Mutation(
        "the tarpit does not hold back the next command",
        "mailcore/receiver/error_session.py",
        "        self.state = State.WAITING\n        self.loop",
        "        self.loop",
        "tests/receiver/test_error_session.py -k soft_limit",
    ),
    Mutation(
        "a recipient may be repeated without end",
        "mailcore/receiver/error_session.py",
        "        if self._useless > (STRESS_USELESS if self._is_hurried else self.context.clients.useless_command_limit):\n",
        "        if self._useless < 0:\n",
        "tests/receiver/test_error_session.py -k repeated_without_end",
    ),
    Mutation(
        "a name that does not lead back is used",
        "mailcore/routing/reverse_names.py",
        "        return ipaddress.ip_address(text) == address\n",
        "        return ipaddress.ip_address(text) != 0\n",
        "tests/routing/test_reverse_names.py -k lead_back",
    ),
]
