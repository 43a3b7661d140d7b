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
        "connection.getsockname()[0], trusted=False)",
        "connection.getsockname()[0], trusted=True)",
        "tests/receiver/test_proxy_header.py -k not_named_is_not_trusted",
    ),
]
