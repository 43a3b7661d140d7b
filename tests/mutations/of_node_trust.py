"""Ways to break the trust between nodes, and the election of the giver over them."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

JOINING = "tests/nodes/test_joining.py"
ELECTION = "tests/replication/test_giver_election.py"

MUTATIONS = [
    Mutation(
        "a certificate of the authority counts without a row",
        "mailcore/nodes/trust.py",
        'if row.certificate == certificate), "")',
        'if row.certificate == certificate), "unknown")',
        JOINING,
    ),
    Mutation(
        "rows that are not read any more are believed for ever",
        "mailcore/nodes/trust.py",
        "        if not self._why_not and age_s > self._believed_s:\n",
        "        if False:\n",
        JOINING,
    ),
    Mutation(
        "any node may answer in the place of the giver",
        "mailcore/nodes/guard.py",
        '        return bool(name) and self._expected in ("", name)\n',
        "        return bool(name)\n",
        JOINING,
    ),
    Mutation(
        "the connection of a removed node lives on",
        "mailcore/nodes/guard.py",
        "        for guard in list(self._guards):\n            guard.look()\n",
        "",
        JOINING,
    ),
    Mutation(
        "a node that is not in may be the giver",
        "mailcore/replication/giver_election.py",
        "            if not self._may():\n                self.end()\n",
        "",
        ELECTION,
    ),
    Mutation(
        "the authority waits for a node in the clear",
        "mailcore/nodes/authority.py",
        "    return nonce + ChaCha20Poly1305(_key_of(token)).encrypt(nonce, plain, node.encode())\n",
        "    return nonce + plain\n",
        JOINING,
    ),
    Mutation(
        "others may read the keys of a node",
        "mailcore/nodes/node_files.py",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)",
        JOINING,
    ),
    Mutation(
        "a token counts after its time",
        "mailcore/nodes/joining.py",
        "        if not taken.is_valid:\n",
        "        if False:\n",
        JOINING,
    ),
    Mutation(
        "the giver after a silent one does not wait for what that gave",
        "mailcore/replication/giver_election.py",
        "self._watch.since + GIVER_LEASE_S * (1 + DRIFT) if is_silent",
        "self._watch.since if is_silent",
        ELECTION,
    ),
    Mutation(
        "a giver renews its election after it has left it",
        "mailcore/replication/giver_election.py",
        "            self.elected = None\n            self._not_before = self._clock() + RESIGNED_S\n",
        "            self._not_before = self._clock() + RESIGNED_S\n",
        ELECTION,
    ),
]
