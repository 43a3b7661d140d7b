"""One answer from several shards: which shard is asked for each operation, and how the answers become one."""
