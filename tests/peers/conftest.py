"""Clusters of PostgreSQL for the tests of several nodes as one place."""

from tests.replication.conftest import cluster, own_cluster, shared_cluster, template

__all__ = ["cluster", "own_cluster", "shared_cluster", "template"]
