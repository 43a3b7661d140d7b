"""A queue that is a shard kept by a database: becoming its owner, and the parts that its processes need for that."""
