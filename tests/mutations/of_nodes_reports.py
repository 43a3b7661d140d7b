"""Ways to break a report over all nodes: it is green over events that it does not have, or comes twice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

NODES, CUTS = "appliance/pipeline/nodes.py", "appliance/pipeline/shard_cuts.py"
GATHERING, LETTERS = "mailcore/nodes/gathering.py", "mailcore/nodes/letters.py"
COPIES = "tests/appliance/pipeline/test_nodes.py"

MUTATIONS = [
    Mutation(
        "a report believes a copy that was made before the day was over",
        NODES,
        "        if self.at < day.end and (self.fault or now >= day.end):\n",
        "        if False:\n",
        f"{COPIES} -k not_there and asked",
    ),
    Mutation(
        "a shard of which files are missing is checked all the same",
        NODES,
        "        if shard.missing:\n",
        "        if False:\n",
        f"{COPIES} -k not_there and file",
    ),
    Mutation(
        "the count of a node that is gone ends the day",
        CUTS,
        "_ends_behind(cuts, day, so_far) if name else ends(cuts, day)",
        "ends(cuts, day)",
        f"{COPIES} -k not_there and exported",
    ),
    Mutation(
        "a shard that says nothing is left out",
        NODES,
        "        if not cuts:\n",
        "        if False:\n",
        f"{COPIES} -k not_there and nothing",
    ),
    Mutation(
        "a file of the same length is taken for the same",
        GATHERING,
        "self._disk.read(fd, each.length, each.at)) == each.crc for",
        "self._disk.read(fd, each.length, each.at)) >= 0 for",
        "tests/nodes/test_gathering.py -k anew",
    ),
    Mutation(
        "counts are fetched before events",
        GATHERING,
        "        for name in (*names, *(name for name in self._files if name.startswith(CUTS))):\n",
        "        for name in (*(name for name in self._files if name.startswith(CUTS)), *names):\n",
        "tests/nodes/test_gathering.py -k in_steps",
    ),
    Mutation(
        "the copy counts as complete although files are missing",
        GATHERING,
        "self._absent_at, len(lacking), named",
        "self._absent_at, 0, named",
        "tests/nodes/test_gathering.py -k missing_and_named",
    ),
    Mutation(
        "two nodes that ask at once both mail the report",
        LETTERS,
        "                    if known.sent or is_under_way:\n",
        "                    if known.sent:\n",
        "tests/nodes/test_letters.py -k at_once",
    ),
    Mutation(
        "a report that another node has mailed is mailed again",
        LETTERS,
        "                    if known.sent or is_under_way:\n",
        "                    if is_under_way:\n",
        "tests/nodes/test_letters.py -k was_sent",
    ),
]
