"""Ways to break the passing of questions between nodes."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

ACCESS = "tests/control/test_access.py"
SERVER = "tests/control/test_server.py"
PLACE = "tests/peers/test_one_place.py -k law_rights_the_other_node"
SHARDS = "tests/config/test_shards.py"
SEVERAL = "tests/control/test_several.py"

MUTATIONS = [
    Mutation(
        "metrics are sums of the shards that answer",
        "mailcore/metrics/families.py",
        "    answers = _whole(answers)\n",
        "",
        "tests/metrics/test_metrics.py -k lacks_a_shard",
    ),
    Mutation(
        "each question waits again for a shard that hangs",
        "mailcore/control/async_client.py",
        "                            self._silent.look(self._several.path_of(step.shard))\n",
        "                            pass\n",
        "tests/appliance/live/test_hub.py -k that_hangs",
    ),
    Mutation(
        "a client of another node may change what it may only look at there",
        "mailcore/control/access.py",
        "(access is Access.CHANGE and self.given.may_change)",
        "access is Access.CHANGE",
        ACCESS,
    ),
    Mutation(
        "a node says itself what its name is",
        "mailcore/peers/asked.py",
        "self._asked.open(self, msgspec.structs.replace(client, node=node))",
        "self._asked.open(self, client)",
        PLACE,
    ),
    Mutation(
        "another node asks for what is about the machine",
        "mailcore/control/server.py",
        "if isinstance(session.peer, RemotePeer) and operation.name in OF_THE_NODE:",
        "if False:",
        SERVER,
    ),
    Mutation(
        "another user acts for a client of another node",
        "mailcore/control/server.py",
        "if session is None or not isinstance(session.peer, Peer) or not session.peer.trusted:",
        "if session is None:",
        SERVER,
    ),
    Mutation(
        "a shard that another node owns is left out",
        "mailcore/config/known_shards.py",
        "            found.append(_elsewhere(run_directory, number, row))\n",
        "            pass\n",
        SHARDS,
    ),
    Mutation(
        "a shard that does not answer is not named",
        "mailcore/control/several/steps.py",
        "            for shard, error in self.errors.items()\n        ]",
        "            for shard, error in ()\n        ]",
        SEVERAL,
    ),
]
