"""The process that passes questions of this node's clients on to the nodes that own the other shards, and takes in theirs."""
