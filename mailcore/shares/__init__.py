"""Divides one limit among the shards that have mail for a destination. Values only: no clock, no I/O."""
