"""Ways to send mail with less encryption than was demanded."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a connection is kept without its policy",
        "mailcore/deliverer/client.py",
        "    return work.transport, policy, address.host, address.address, work.next_hop.port\n",
        "    return work.transport, Policy('may'), address.host, address.address, work.next_hop.port\n",
        "tests/deliverer/test_tls_levels.py tests/deliverer/test_client.py",
    ),
    Mutation(
        "a certificate with another name is taken",
        "mailcore/deliverer/opening.py",
        "        wrong = mismatch(session.getpeercert(), policy.names)\n",
        "        wrong = ''\n",
        "tests/deliverer/test_tls_levels.py",
    ),
    Mutation(
        "a broken handshake is followed by mail in the clear at any level",
        "mailcore/deliverer/opening.py",
        '        if policy.level != "may":\n',
        '        if policy.level == "none":\n',
        "tests/deliverer/test_tls_levels.py",
    ),
]
