"""The encryption that next hops must have: the policy of each, and whether a connection fulfils it."""
