"""Names of the copy of all shards' event files on a node of several, for those who make it and those who read it.

```
events/_nodes/shards.json            which shards there are, and what the copy lacks
events/_nodes/shards/01/events/dt=…  as the directory of events of the shard whose number is 1
```
"""

__all__ = ["COPY", "MANIFEST"]

COPY = "_nodes"  # in the directory of events of the home; readers of events pass names by that begin so
MANIFEST = "shards.json"
